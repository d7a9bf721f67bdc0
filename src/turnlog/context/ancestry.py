"""Ancestry order: depth-first, post-order, parents in listed order, each turn once.

A linear run of turns is one range scan of its stream. What was visited of a stream is always a prefix of it, because a
turn's predecessor in the stream is its first parent: so one number a stream tells what was visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from turnlog.errors import CorruptionError
from turnlog.events import PARENT, Citation, Header, Recorded, check_cited
from turnlog.events.form import gap
from turnlog.projections.belonging import reach
from turnlog.projections.turns import stream_backwards
from turnlog.store import ReadTransaction

R = TypeVar("R")
_MERGES_MAX = 16
"""What is before so many merges is told by links when turns are read backwards. To tell it of each of thousands would
take longer than to read all turns."""

Scan = Callable[[str, int, int], Iterable[R]]
"""Reads the turns of a stream from one position to another, both included, in order."""


class _Segment(Generic[R]):
    """A run of one stream that is being visited.

    Attributes:
        head: its last turn.
        turns: what is still to be read of it.
        turn: the turn whose parents are being visited, None between two turns.
        parent: which of its parents is the next one.
        before: the turn before that one in the run, None at its beginning.
        position: where the next turn stands in the stream.
    """

    __slots__ = ("before", "head", "parent", "position", "turn", "turns")

    def __init__(self, head: Header, turns: Iterable[R], first: int) -> None:
        self.head = head
        self.turns = iter(turns)
        self.turn: R | None = None
        self.parent = 0
        self.before: Recorded | None = None
        self.position = first


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

    Raises while it is iterated over:
        CorruptionError: a turn is missing, or is not the one that is cited.
    """

    def segment(header: Header) -> _Segment[R]:
        first = visited.get(header.stream, -1) + 1
        turns = scan(header.stream, first, header.position) if first <= header.position else ()
        return _Segment(header, turns, first)

    stack = [segment(head.header)]
    while stack:
        run = stack[-1]
        if run.turn is None:
            for turn in run.turns:
                recorded = recorded_of(turn)
                header = recorded.header
                if header.position != run.position:
                    raise gap(run.head.stream, run.head.position)
                run.position += 1
                if run.before is None or not _continues_one(header.citations):
                    run.turn = turn
                    break
                # As most turns do: it continues the one before it, and no other.
                check_cited(recorded, header.citations[0], run.before)
                run.before = recorded
                visited[header.stream] = header.position
                yield turn
            else:
                if run.position <= run.head.position:
                    raise gap(run.head.stream, run.head.position)
                stack.pop()
            continue
        recorded = recorded_of(run.turn)
        header = recorded.header
        parents = header.parents
        if run.parent < len(parents):
            parent = parents[run.parent]
            run.parent += 1
            # Inside its stream a turn's first parent is the turn before it, which has just been visited.
            if header.position == 0 or run.parent > 1:
                stack.append(segment(cited_parent(transaction, recorded, parent).header))
            elif run.before is not None:
                check_cited(recorded, parent, run.before)
            else:
                cited_parent(transaction, recorded, parent)
            continue
        turn, run.turn, run.parent, run.before = run.turn, None, 0, recorded
        visited[header.stream] = header.position
        yield turn


def ancestry_backwards(transaction: ReadTransaction, head: Recorded) -> Iterator[Recorded]:
    """Iterate over the ancestry of a turn and the turn itself, the last one first.

    Not many more turns are read than are asked for, but behind some merges: what is still to come there is read whole.

    Raises while it is iterated over:
        CorruptionError: a turn is missing, or is not the one that is cited.
    """
    merges = 0
    waiting: list[tuple[Recorded, dict[str, int]]] = [(head, {})]
    while waiting:
        turn, visited = waiting.pop()
        if merges > _MERGES_MAX:
            yield from reversed([*ancestry(transaction, turn, transaction.stream, lambda turn: turn, visited)])
            continue
        last: Recorded | None = None
        for last in _line_backwards(transaction, turn, visited):
            yield last
        if last is not None and len(last.header.parents) > 1:
            merges += 1
            waiting += _visits(transaction, last, visited)


def _line_backwards(transaction: ReadTransaction, turn: Recorded, visited: Mapping[str, int]) -> Iterator[Recorded]:
    """Iterate from a turn back to a merge, a root or what was visited, whichever comes first."""
    before = stream_backwards(transaction, turn.header.stream, turn.header.position - 1)
    while turn.header.position > visited.get(turn.header.stream, -1):
        yield turn
        parents = turn.header.parents
        if len(parents) != 1:
            return
        if turn.header.position == 0:
            parent = cited_parent(transaction, turn, parents[0])
            before = stream_backwards(transaction, parent.header.stream, parent.header.position - 1)
        else:
            parent = next(before)
            check_cited(turn, parents[0], parent)
        turn = parent


def _visits(
    transaction: ReadTransaction, merge: Recorded, visited: dict[str, int]
) -> Iterator[tuple[Recorded, dict[str, int]]]:
    """Iterate over the parents of a merge, each with what has been visited when its turn comes: the first one first."""
    for citation in merge.header.parents:
        parent = cited_parent(transaction, merge, citation)
        yield parent, visited
        place = {parent.header.stream: parent.header.position}
        visited = dict(visited)
        for stream, end in reach(transaction, place).ends.items():
            visited[stream] = max(end, visited.get(stream, -1))


def _continues_one(citations: Sequence[Citation]) -> bool:
    """Tell whether a turn continues one other, where that is soon told: it rests on no more than its call and reply."""
    number = len(citations)
    if number == 0 or citations[0].relation != PARENT:
        return False
    return number == 1 or (number <= 3 and PARENT not in (citations[1].relation, citations[-1].relation))


def cited_parent(transaction: ReadTransaction, child: Recorded, parent: Citation) -> Recorded:
    """Return the parent of a turn that one of its citations names.

    Raises:
        CorruptionError: it is missing, or is not the one that is cited, or is not recorded before the turn.
    """
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
    return cited_parent(transaction, start, start.header.parents[0]) if start and start.header.parents else None
