"""What a reply says of itself, in arguments that name its fields one by one."""

from collections.abc import Mapping
from typing import Any

from turnlog.model import ReplyFacts


def with_facts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `add_turn` in which the fields of `ReplyFacts` are one value."""
    facts = {name: given[name] for name in ReplyFacts.__struct_fields__ if name in given}
    others = {name: value for name, value in given.items() if name not in facts}
    return others | {"reply": ReplyFacts(**facts)} if facts else others
