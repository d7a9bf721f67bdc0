"""Whether two calls are of one thread: the threads of each stream, as its turns are read.

A stream is of the threads of what its first turn continues, and from each merge on of those of the other parents too.
Only this is written down, into the scratch database: nothing for a turn that goes on in its stream, nor for a root.
"""

from __future__ import annotations

from turnlog.audit.known import Known
from turnlog.errors import CorruptionError
from turnlog.events import Recorded
from turnlog.store import ReadTransaction, ScratchTransaction

THREADS_MAX = 1000
"""Of a turn of more threads than this it is not known which they are."""

_Roots = frozenset[str] | None
"""The roots of threads; None for too many to know."""


class Threads:
    """Knows of which threads the turns read so far are."""

    def __init__(self, scratch: ScratchTransaction, known: Known) -> None:
        """Take the scratch database to write them down in."""
        self._scratch = scratch
        self._known = known
        scratch.run(
            "CREATE TABLE verified_threads"
            " (stream TEXT NOT NULL, position BIGINT NOT NULL, roots TEXT, PRIMARY KEY (stream, position))"
        )

    def note(self, recorded: Recorded) -> None:
        """Take in a turn, once all that it continues was taken in."""
        header = recorded.header
        parents = header.parents
        if not parents or (header.position and len(parents) == 1):
            return
        roots: _Roots = frozenset()
        for parent in parents:
            known = self._known.event(parent.id)
            if known is not None:
                roots = _union(roots, self._of(known.stream, known.position))
        if header.position and roots == self._of(header.stream, header.position - 1):
            return
        self._scratch.run(
            "INSERT INTO verified_threads VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (header.stream, header.position, None if roots is None else " ".join(sorted(roots))),
        )

    def _of(self, stream: str, position: int) -> _Roots:
        rows = self._scratch.rows(
            "SELECT roots FROM verified_threads WHERE stream = ? AND position <= ? ORDER BY position DESC LIMIT 1",
            (stream, position),
        )
        if not rows:
            return frozenset((stream,))
        return None if rows[0][0] is None else frozenset(rows[0][0].split())

    def share(self, transaction: ReadTransaction, turn: str | None, base: str) -> bool:
        """Tell whether a turn shares a thread with the turn that an earlier call went on from.

        Args:
            transaction: a snapshot with both.
            turn: the turn that a call goes on from.
            base: the call that it is based on.
        """
        try:
            other = self._known.rests_on(transaction, base)
        except CorruptionError:
            return True  # it was found where the base is
        here = None if turn is None else self._known.event(turn)
        there = None if other is None else self._known.event(other)
        if here is None or there is None:
            return False
        if here.stream == there.stream:
            return True
        ours, theirs = self._of(here.stream, here.position), self._of(there.stream, there.position)
        return ours is None or theirs is None or not ours.isdisjoint(theirs)


def _union(one: _Roots, other: _Roots) -> _Roots:
    if one is None or other is None:
        return None
    both = one | other
    return both if len(both) <= THREADS_MAX else None
