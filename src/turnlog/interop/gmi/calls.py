"""The tools that a conversation has called, by the ids of the calls: its turns are read once, the oldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from turnlog.interop.gmi.record import blocks_of
from turnlog.log import TurnLog
from turnlog.model import ToolUse
from turnlog.turn import Turn


class CalledTools:
    """The names of called tools, as far as the turns were read."""

    def __init__(self, log: TurnLog, ancestry: Sequence[Turn]) -> None:
        """Take a turn and what it continues, the oldest first, as `TurnLog.ancestry` returns them."""
        self._log = log
        self._unread = iter(ancestry)
        self._children = Counter(parent for turn in ancestry for parent in turn.continues)
        self._names: dict[str, dict[str, str]] = {}

    def at(self, turn: Turn) -> Mapping[str, str]:
        """Return the names of what a turn and those that it continues have called, by the ids of the calls.

        Of several calls of one id the last holds, within a turn the first. Turns are asked for in the order of the
        ancestry, and what is returned is good until the next one is.
        """
        while turn.id not in self._names:
            self._read(next(self._unread))
        return self._names[turn.id]

    def _read(self, turn: Turn) -> None:
        names: dict[str, str] = {}
        for parent in turn.continues:
            before = self._before(parent)
            names = {**names, **before} if names else before
        calls = [block for block in blocks_of(self._log, turn) if isinstance(block, ToolUse)]
        names.update({call.id: call.name for call in reversed(calls) if isinstance(call.id, str)})
        self._names[turn.id] = names

    def _before(self, parent: str) -> dict[str, str]:
        """Return the names at a turn that is continued: its own for the last turn that does so, else a copy."""
        self._children[parent] -= 1
        return self._names[parent].copy() if self._children[parent] else self._names.pop(parent)
