"""What the models of the pages reply, by what was said to them last."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call, as a part of a reply."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Thought:
    """Thinking, as a part of a reply. Wires without thinking leave it out."""

    text: str


Part = str | Call | Thought


def reply_to(said: str) -> Sequence[Part]:
    """Return what a model replies to the last thing that was said.

    Raises:
        LookupError: no page says this.
    """
    for pattern, parts in REPLIES:
        if re.search(pattern, said):
            return parts
    raise LookupError(f"no reply is scripted to {said!r}")


REPLIES: Sequence[tuple[str, Sequence[Part]]] = (
    # README.md, ask-a-model.md
    ("Name a river", ["The Loire."]),
    ("And a longer one", ["The Danube."]),
    # tutorial.md
    ("^Flamiche: 50 minutes", ["Begin with the flamiche: it needs 50 minutes. The soup can cook beside it."]),
    ("Write that as a plan", ["18:00 flamiche, 18:15 soup, 19:00 at table."]),
    ("Two days by the sea: where", ["Take the train to Marseille.\n\nOn the second day walk to the creeks."]),
    ("And if it rains", ["Then stay in the old town and see the museum in the harbour."]),
    ("In three words", ["Train, creeks, harbour."]),
    ("How do I get there", ["By train, in three hours."]),
    ("Try that again", ["Here I am."]),
    ("What about winter", ["Winter is quiet there."]),
    ("Which days in winter", ['{"days":["Sunday"],"price":-1}']),
    ("price: ", ['{"days":["Sunday"],"price":24.5}']),
    # give-a-model-tools.md
    ("When can I leave on Monday", [Call(name="ferry_times", arguments={"day": "Monday"})]),
    ("^08:10, 17:40$", ["On Monday there are two ferries: at 08:10 and at 17:40."]),
    (
        "What is on my two lists",
        [
            "I will look.",
            Call(name="notes___read", arguments={"name": "shopping"}),
            Call(name="notes___read", arguments={"name": "reading"}),
        ],
    ),
    ("^leeks, potatoes\nMoby-Dick$", ["Leeks and potatoes to buy, and Moby-Dick to read."]),
    ("Put milk on the first", [Call(name="notes___write", arguments={"name": "shopping", "text": "leeks, milk"})]),
    ("^saved shopping$", ["Done: milk is on your list."]),
    ("Empty the second", [Call(name="notes___write", arguments={"name": "reading", "text": ""})]),
    ("^Is all well", [Call(name="read_journal")]),
    ("^09:00:00 all is well", ["All is well, as far as I have read."]),
    # move-to-another-provider.md
    (
        "as many nuts as bolts",
        [
            Thought(text="400 bolts, 380 nuts: 20 are missing."),
            "I will order the missing ones.",
            Call(name="order", arguments={"part": "nut", "count": 20}),
        ],
    ),
    ("^ordered 20 of nut$", ["Ordered: 20 nuts."]),
    ("What did you order", ["20 nuts, to have 400 of each."]),
    ("Thank you", ["You are welcome."]),
    # prepare-a-context-document.md, use-another-endpoint.md, call-an-adapter-from-another-language.md
    ("Say what each file is for", ["hello.py greets the world, and README.md says how to run it."]),
    ("Name a sea", ["The Baltic."]),
    ("Name a lake", ["Lake Constance."]),
    ("Ask me tomorrow", ["I have left it as it is, and will ask again tomorrow."]),
)
