"""To which threads turns and other events belong: some of them, or one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from turnlog.errors import CorruptionError
from turnlog.events import BASE, CALL, REPLY, TURN, Header, Recorded
from turnlog.projections.turns import find_links, links_to
from turnlog.store import ReadTransaction, SQLTransaction

_OF_A_TURN = (CALL, REPLY)
"""Topics of events that are about the turn that they cite, directly or through another one of these."""

_STREAMS_MAX = 100_000
"""The threads of so many streams are kept, which is some 50 MB."""


def turns_of(transaction: ReadTransaction, recorded: Recorded) -> Iterator[Recorded]:
    """Iterate over the turns that an event is about; a turn is about itself.

    Raises:
        CorruptionError: an event that is cited is not there.
    """
    if recorded.header.topic == TURN:
        yield recorded
        return
    for citation in recorded.header.citations:
        if citation.relation == BASE:  # the bytes that a request builds on, of whatever turn
            continue
        cited = transaction.event(citation.id)
        if cited is None:
            raise CorruptionError(
                f"event {citation.id!r}, which {recorded.header.id!r} cites, is not in the log: run `turnlog verify`",
                global_position=recorded.global_position,
            )
        if cited.header.topic == TURN:
            yield cited
        elif cited.header.topic in _OF_A_TURN:
            yield from turns_of(transaction, cited)


def threads_of(transaction: SQLTransaction, stream: str, position: int) -> list[str]:
    """Return the ids of the threads that the turn at a position of a stream belongs to, sorted."""
    return sorted(reach(transaction, {stream: position}).roots)


class Reach(NamedTuple):
    """What the ancestries of some turns are made of, told by links alone.

    Attributes:
        ends: the streams that they have turns of, each with the last position that is of them.
        roots: the streams among them that begin with a root, which is named as they are.
    """

    ends: dict[str, int]
    roots: set[str]


def reach(
    transaction: SQLTransaction,
    places: Mapping[str, int],
    threads_at: Callable[[str, int], Sequence[str] | None] | None = None,
) -> Reach:
    """Return what the ancestries of turns are made of, each up to a position of a stream.

    Args:
        transaction: where that is read.
        places: the streams of the turns, with their positions.
        threads_at: told a place, returns the roots of its turn where these are known: it is not gone beyond.
    """
    ends = dict(places)
    waiting = set(ends)
    roots: set[str] = set()
    while waiting:
        links = [link for link in links_to(transaction, waiting) if link.child_position <= ends[link.child_stream]]
        roots |= waiting - {link.child_stream for link in links if link.child_position == 0}
        waiting = set[str]()
        for link in links:
            if link.parent_position <= ends.get(link.parent_stream, -1):
                continue
            known = None if threads_at is None else threads_at(link.parent_stream, link.parent_position)
            if known is not None:
                roots.update(known)
            else:
                ends[link.parent_stream] = link.parent_position
                waiting.add(link.parent_stream)
    return Reach(ends, roots)


class ThreadsInOrder:
    """Tells of turns, asked for in the order of the log or against it, to which threads they belong.

    What it found it keeps, for that never changes: of a turn that goes on alone beside one that is known, and of a fork
    of what is known, hardly anything is read. In any other order it tells the same, and reads more.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[str, _Known] = {}

    def of(self, transaction: SQLTransaction, turn: Header) -> tuple[str, ...]:
        """Return the ids of the threads that a turn belongs to, sorted."""
        known = self._known.get(turn.stream)
        found = None if known is None else known.beside(turn)
        if found is None:
            found = self._joined(transaction, turn)
            if self._at(turn.stream, turn.position) is None and (known is None or not known.join(turn, found)):
                alone = _goes_on_alone(turn)
                self._keep(turn.stream, _Known(turn.position, turn.position, found, begins_alone=alone))
        return found

    def at(self, transaction: SQLTransaction, stream: str, position: int) -> tuple[str, ...]:
        """Return the same for the turn at a position of a stream."""
        return self._at(stream, position) or self._reached(transaction, stream, position)

    def _at(self, stream: str, position: int) -> tuple[str, ...] | None:
        known = self._known.get(stream)
        return None if known is None else known.at(position)

    def _keep(self, stream: str, known: _Known) -> None:
        if len(self._known) >= _STREAMS_MAX:
            self._known.clear()
        self._known[stream] = known

    def _joined(self, transaction: SQLTransaction, turn: Header) -> tuple[str, ...]:
        """Return the threads of all that a turn continues; its own id where that is nothing."""
        if turn.position == 0 and not turn.parents:
            return (turn.id,)
        places = [(turn.stream, turn.position - 1)] if turn.position else []
        links = find_links(transaction, "child_stream = ? AND child_position = ?", turn.stream, turn.position)
        places += [(link.parent_stream, link.parent_position) for link in links]
        told = [threads for place in places if (threads := self._at(*place)) is not None]
        if not told or len(told) < len(places):
            return self._reached(transaction, turn.stream, turn.position)
        return tuple(sorted(set(chain.from_iterable(told))))

    def _reached(self, transaction: SQLTransaction, stream: str, position: int) -> tuple[str, ...]:
        """Return the roots of all that a turn continues. Where that is one, it is the one of all turns between."""
        ends, roots = reach(transaction, {stream: position}, self._at)
        found = tuple(sorted(roots))
        if len(found) == 1:
            for each, end in ends.items():
                if self._at(each, end) is None:
                    self._keep(each, _Known(0, end, found))
        return found


class _Known:
    """The threads of the turns of a stream, from one position to another: they change where another thread comes in."""

    __slots__ = ("_begins_alone", "_last", "_starts", "_threads")

    def __init__(self, first: int, last: int, threads: tuple[str, ...], *, begins_alone: bool = False) -> None:
        """Take a span of positions, the last one included, and whether the turn at the first has one parent."""
        self._last = last
        self._starts = [first]
        self._threads = [threads]
        self._begins_alone = begins_alone

    def at(self, position: int) -> tuple[str, ...] | None:
        """Return those of a turn; None where they are not known."""
        if not self._starts[0] <= position <= self._last:
            return None
        return self._threads[bisect_right(self._starts, position) - 1]

    def beside(self, turn: Header) -> tuple[str, ...] | None:
        """Return those of a turn that is known, or next to one that has the same threads, and keep them; else None."""
        if turn.position == self._last + 1 and _goes_on_alone(turn):
            self._last += 1
        elif turn.position == self._starts[0] - 1 and self._begins_alone:
            self._starts[0] -= 1
            self._begins_alone = _goes_on_alone(turn)
        return self.at(turn.position)

    def join(self, turn: Header, threads: tuple[str, ...]) -> bool:
        """Keep those of the turn behind the last one; return whether it is that."""
        if turn.position != self._last + 1:
            return False
        self._last += 1
        if threads != self._threads[-1]:
            self._starts.append(turn.position)
            self._threads.append(threads)
        return True


def threads_of_turns(transaction: ReadTransaction, turns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the threads that turns belong to, sorted, by the ids of the turns."""
    places = transaction.located(turns)
    merges: dict[str, list[int]] = {}
    for link in links_to(transaction, {at.stream for at in places.values()}):
        merges.setdefault(link.child_stream, []).append(link.child_position)
    # Where a merge comes in, what follows is of more threads; all else of a stream is of the same.
    threads = ThreadsInOrder()
    parts: dict[tuple[str, int], tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for turn, at in places.items():
        part = at.stream, sum(start <= at.position for start in merges.get(at.stream, ()))
        if part not in parts:
            parts[part] = threads.at(transaction, at.stream, at.position)
        found[turn] = parts[part]
    return found


def _goes_on_alone(turn: Header) -> bool:
    """Tell whether a turn has one parent: where it is not the first of its stream, the one before it."""
    return len(turn.parents) == 1
