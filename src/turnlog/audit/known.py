"""What the events read so far say of the log, apart from any index of the store.

The latest are kept in memory, the others looked up in the scratch database: a log may have more events than fit into
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from turnlog.events import CALL, REPLY, TURN, Recorded
from turnlog.store import Folded, ReadTransaction, ScratchTransaction

RECENT_MAX = 10_000
"""How many of each kind are kept in memory at least, once there are so many. At most it is twice as many."""

_RESTS_ON = {CALL: "turn", REPLY: "call"}

V = TypeVar("V")


class Recent(Generic[V]):
    """The values that were put in last, by key."""

    def __init__(self, count_max: int = RECENT_MAX) -> None:
        """Keep at least the last `count_max` values."""
        self._count_max = count_max
        self._new: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def get(self, key: str) -> V | None:
        """Return a value that is kept, or None."""
        found = self._new.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: str, value: V) -> dict[str, V] | None:
        """Keep a value. Return the values that are dropped for it, now and then."""
        dropped = None
        if len(self._new) >= self._count_max:
            dropped, self._old, self._new = self._old, self._new, {}
        self._new[key] = value
        return dropped


class Known:
    """The events read so far. Whoever reads one folds it into the scratch database, and notes it here."""

    def __init__(self, scratch: ScratchTransaction, *, recent_max: int = RECENT_MAX) -> None:
        """Take the scratch database that events are folded into, and how much to keep in memory."""
        self._scratch = scratch
        self.event: Callable[[str], Folded | None] = scratch.folded
        """Return what is known of an event by its id, None if it is not among those read so far."""
        self._rests_on = Recent[str](recent_max)
        self._ends = Recent[int](recent_max)
        scratch.run("CREATE TABLE verified_ends (stream TEXT PRIMARY KEY, position BIGINT NOT NULL)")

    def rests_on(self, transaction: ReadTransaction, event_id: str) -> str | None:
        """Return the call of a reply or the turn of a call that was read; None where it names none.

        Raises:
            CorruptionError: it was read long ago, and cannot be read again.
        """
        found = self._rests_on.get(event_id)
        if found is not None:
            return found
        recorded = transaction.event(event_id)
        return None if recorded is None else _rests_on(recorded)

    def end(self, stream: str) -> int | None:
        """Return the last position of a stream, None if nothing of it was read."""
        end = self._ends.get(stream)
        if end is not None:
            return end
        rows = self._scratch.rows("SELECT position FROM verified_ends WHERE stream = ?", (stream,))
        if rows:
            return rows[0][0]
        # Ends at the first position are not written down: the stream has the name of the event that is there.
        first = self.event(stream)
        return 0 if first is not None and (first.stream, first.position) == (stream, 0) else None

    def note(self, recorded: Recorded) -> None:
        """Take in an event that was read and has a sound id."""
        header = recorded.header
        if header.topic != TURN:
            cited = _rests_on(recorded)
            if cited is not None:
                self._rests_on.put(header.id, cited)
            return
        for stream, position in (self._ends.put(header.stream, header.position) or {}).items():
            if position > 0 and self._ends.get(stream) is None:
                self._scratch.run(
                    "INSERT INTO verified_ends VALUES (?, ?)"
                    " ON CONFLICT (stream) DO UPDATE SET position = excluded.position",
                    (stream, position),
                )


def _rests_on(recorded: Recorded) -> str | None:
    relation = _RESTS_ON.get(recorded.header.topic)
    return None if relation is None else recorded.header.cited(relation)
