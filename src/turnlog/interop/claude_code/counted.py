"""What the log has of the usage of messages: a session that was copied has them under other uuids."""

from __future__ import annotations

from turnlog.events import TURN, Recorded, turn_meta
from turnlog.ids import starts_at
from turnlog.interop.claude_code.lines import FORMAT, Row
from turnlog.model import Usage
from turnlog.store import ReadTransaction

_CANDIDATES_MAX = 100_000
"""So many turns of one time are looked at, at most."""

Counts = dict[tuple[str, str | None], dict[str, Usage | None]]
"""The turns of messages, by the ids of message and request, and what each turn has of the usage of its message."""


class Counted:
    """What the log has of the usage of messages.

    Attributes:
        turns: the turns that have it.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.turns: Counts = {}
        self._read: set[str] = set()
        self._starts: set[str] = set()

    def find(self, transaction: ReadTransaction, row: Row) -> None:
        """Look for the turns of the message of a row that were said when it was: copies keep the time of each row."""
        if row.time is None or row.message is None or row.message.id is None or row.message.usage is None:
            return
        for start in starts_at(row.time):
            if start in self._starts:
                continue
            self._starts.add(start)
            for turn in transaction.ids_beginning(start, topic=TURN, limit=_CANDIDATES_MAX):
                event = None if turn in self._read else transaction.event(turn)
                if event is not None:
                    self.add(event)

    def add(self, event: Recorded) -> None:
        """Take a turn."""
        self._read.add(event.header.id)
        meta = turn_meta(event)
        origin = meta.origin
        if origin is not None and origin.format == FORMAT and origin.message_id is not None:
            self.turns.setdefault((origin.message_id, origin.request_id), {})[event.header.id] = meta.usage
