"""Ancestry order: depth-first, post-order, parents in listed order, each turn once.

A linear run of turns is one range scan of its stream. What was visited of a stream is always a prefix of it, because a
turn's predecessor in the stream is its first parent: so one number a stream tells what was visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from turnlog.errors import CorruptionError
from turnlog.events import PARENT, Citation, Header, Recorded, check_cited
from turnlog.store import ReadTransaction

R = TypeVar("R")
Scan = Callable[[str, int, int], list[R]]
"""Reads the turns of a stream from one position to another, both included."""

Progress = Mapping[str, int]
"""The last visited position of each stream."""


class _Segment(Generic[R]):
    """A run of one stream that is being visited: its turns, the next one, and that one's next parent to visit."""

    __slots__ = ("parent", "turn", "turns")

    def __init__(self, turns: list[R]) -> None:
        self.turns = turns
        self.turn = 0
        self.parent = 0


def ancestry(
    transaction: ReadTransaction,
    head: Recorded,
    scan: Scan[R],
    recorded_of: Callable[[R], Recorded],
    visited: dict[str, int],
) -> Iterator[R]:
    """Iterate over the ancestry of a turn and the turn itself, oldest first, without what was visited before.

    Args:
        transaction: the snapshot to read from.
        head: the last turn to visit.
        scan: reads a run of a stream.
        recorded_of: returns the event of what `scan` reads.
        visited: the last visited position of each stream; kept up to date.
    """

    def segment(header: Header) -> _Segment[R]:
        first = visited.get(header.stream, -1) + 1
        found = scan(header.stream, first, header.position) if first <= header.position else []
        if len(found) != max(header.position - first + 1, 0):
            raise CorruptionError(f"stream {header.stream!r} has a gap before its position {header.position}")
        return _Segment(found)

    stack = [segment(head.header)]
    while stack:
        run = stack[-1]
        if run.turn == len(run.turns):
            stack.pop()
            continue
        turn = run.turns[run.turn]
        recorded = recorded_of(turn)
        header = recorded.header
        citations = header.citations
        if run.turn and not run.parent and header.position and len(citations) == 1 and citations[0].relation == PARENT:
            # As most turns are: it continues the one before it, and rests on nothing else.
            check_cited(recorded, citations[0], recorded_of(run.turns[run.turn - 1]))
            run.turn += 1
            visited[header.stream] = header.position
            yield turn
            continue
        parents = header.parents
        if run.parent < len(parents):
            parent = parents[run.parent]
            run.parent += 1
            # Inside its stream a turn's first parent is the turn before it, which has just been visited.
            if header.position == 0 or run.parent > 1:
                stack.append(segment(_parent(transaction, recorded, parent).header))
            elif run.turn > 0:
                check_cited(recorded, parent, recorded_of(run.turns[run.turn - 1]))
            else:
                _parent(transaction, recorded, parent)
            continue
        run.turn, run.parent = run.turn + 1, 0
        visited[header.stream] = header.position
        yield turn


def _parent(transaction: ReadTransaction, child: Recorded, parent: Citation) -> Recorded:
    found = transaction.event(parent.id)
    # Parents are recorded first. In a damaged or forged log they may not be, and to follow them might never end.
    if found is None or found.global_position >= child.global_position:
        raise CorruptionError(
            f"turn {child.header.id!r} continues {parent.id!r}, which is not recorded before it: run `turnlog verify`",
            global_position=child.global_position,
        )
    check_cited(child, parent, found)
    return found


def first_parent(transaction: ReadTransaction, turn: Recorded) -> Recorded | None:
    """Return the first parent of the first turn of a turn's stream, or None at a root."""
    start = turn if turn.header.position == 0 else transaction.at(turn.header.stream, 0)
    return _parent(transaction, start, start.header.parents[0]) if start and start.header.parents else None
