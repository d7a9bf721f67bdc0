"""The canonical messages of an agent, as a JSON list that loads back into them."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.interop.canonical.turns import messages_with
from turnlog.interop.exports.reading import Exported, MarkedLog, json_writer
from turnlog.log import TurnLog
from turnlog.model.marked_blocks import LONG_KINDS
from turnlog.turn import Turn


def canonical_messages(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a JSON list of messages, for `turnlog.interop.canonical.parse_messages`.

    Turns that were recorded from messages come back equal. Of others it is told what messages have no place for:
    system turns, documents, what was erased, ….
    """
    marked = MarkedLog(log, also=LONG_KINDS)
    messages, losses = messages_with(marked, turns[-1].id, marked.long)
    return Exported(writer=json_writer(messages, marked.long), turns=len(turns), losses=losses)
