"""The canonical messages of an agent, as a JSON list that loads back into them."""

from __future__ import annotations

import msgspec

from turnlog.interop import canonical
from turnlog.interop.exports.reading import Exported, Said
from turnlog.log import TurnLog


def canonical_messages(log: TurnLog, headish: str, said: list[Said]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a JSON list of messages, for `turnlog.interop.canonical.parse_messages`.

    Turns that were recorded from messages come back equal. Of others it is told what messages have no place for:
    system turns, documents, what was erased, ….
    """
    messages, losses = canonical.messages(log, said[-1].turn.id)
    content = msgspec.json.format(canonical.to_json(messages), indent=2) + b"\n"
    return Exported(content=content, turns=len(said), losses=losses)
