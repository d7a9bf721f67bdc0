"""The thread index: the roots. What grows from a root is folded from the turn index when it is asked for.

A turn belongs to the threads of all its parents, so a merge of two threads belongs to both, and so does what grows
from it. Of each stream a thread has all turns from some position on: a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice

from msgspec import Struct

from turnlog.events import TURN, Recorded, turn_meta
from turnlog.events.times import said_at
from turnlog.projections.bookmarks import all_bookmarks
from turnlog.projections.turns import ANYWHERE, Link, find_links, is_leaf, stream_backwards, turns_within
from turnlog.store import FoldTransaction, ReadTransaction, SQLTransaction, SyncProjection

POSITION_MAX = (1 << 63) - 1
"""No position in a stream is above it."""

LOOKED_AT_MAX = 10_000
"""So many turns are looked at for a few turns or threads, before it is asked where such are, or all threads are read.

That takes a twentieth of a second.
"""


class Thread(Struct, frozen=True, kw_only=True):
    """All turns that grow from one root turn.

    Attributes:
        id: id of the root turn.
        turns: number of turns, the root included.
        heads: ids of the turns that nothing continues, in global order.
        bookmarks: names of the bookmarks that point into the thread, sorted.
        started: time of the root turn, ISO 8601 in UTC.
        last: time of the turn that was recorded last, ISO 8601 in UTC.
        last_position: global position of that turn.
    """

    id: str
    turns: int
    heads: tuple[str, ...]
    bookmarks: tuple[str, ...]
    started: str
    last: str
    last_position: int


class ThreadIndex(SyncProjection):
    """The root of every thread."""

    name = "thread index"
    tables = ("threads",)
    schema = ("CREATE TABLE threads (thread TEXT PRIMARY KEY)",)

    def reads_private(self, recorded: Recorded) -> bool:  # noqa: ARG002 - no event does
        """Tell that only headers are folded."""
        return False

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Write down a turn that continues nothing."""
        header = recorded.header
        if header.position == 0 and header.topic == TURN and not header.parents:
            transaction.run("INSERT INTO threads VALUES (?)", (header.id,))


_Links = Callable[[str, int], Iterable[Link]]
"""Finds what continues a stream from a position on."""


def _runs(roots: Iterable[str], links_from: _Links) -> dict[str, int]:
    """Return the streams that grow from roots, each with the first position that does."""
    runs = dict.fromkeys(roots, 0)
    waiting = list(runs)
    while waiting:
        stream = waiting.pop()
        for link in links_from(stream, runs[stream]):
            if link.child_position < runs.get(link.child_stream, POSITION_MAX):
                runs[link.child_stream] = link.child_position
                waiting.append(link.child_stream)
    return runs


def threads_of(transaction: SQLTransaction, stream: str, position: int) -> list[str]:
    """Return the ids of the threads that the turn at a position of a stream belongs to, sorted."""
    reached = {stream: position}
    waiting = [stream]
    roots: set[str] = set()
    while waiting:
        below = waiting.pop()
        links = find_links(transaction, "child_stream = ? AND child_position <= ?", below, reached[below])
        if all(link.child_position > 0 for link in links):
            roots.add(below)
        for link in links:
            if link.parent_position > reached.get(link.parent_stream, -1):
                reached[link.parent_stream] = link.parent_position
                waiting.append(link.parent_stream)
    return sorted(roots)


def latest_threads(
    transaction: ReadTransaction,
    limit: int | None = None,
    *,
    among: Callable[[Thread], bool] | None = None,
    fits: Callable[[Recorded], bool] | None = None,
    spans: Sequence[range] | None = None,
    fitting: Sequence[range] | None = None,
    turns_max: int | None = None,
) -> list[Thread]:
    """Return the threads with the latest activity, the latest one last.

    A few are found by the last turns of the log. Where these are of fewer threads, all threads are looked at.

    Args:
        transaction: where they are read.
        limit: how many; None for all.
        among: only threads of which this is true.
        fits: only threads with a turn of which this is true. Turns are read from their ends, each once, and no more
            of them than it takes.
        spans: global positions among which the last turns of all these threads are, the last ones first. Threads with
            other turns there are given to `among` too.
        fitting: global positions among which all turns are that fit, likewise; where these are few, that is less to
            read than threads from their ends.
        turns_max: so many turns are read to see whether they fit.

    Raises:
        TooManyTurnsError: it would take more.
    """
    threads = _Threads(transaction)
    if fitting is not None:
        every = _latest_first(threads.at(fitting, fits=fits))
        fits = None
    elif spans is not None:
        every = threads.at(spans)
    elif limit is not None:
        every = chain(threads.at(ANYWHERE, turns_max=LOOKED_AT_MAX), threads.others())
    else:
        every = threads.others()
    found = filter(among, every)
    if fits is not None:
        looked_at = _Fitting(transaction, threads.ends, fits, turns_max)
        found = (thread for thread in found if any(looked_at.is_in(*run) for run in threads.runs(thread.id).items()))
    return list(islice(found, limit))[::-1]


def _latest_first(threads: Iterable[Thread]) -> Iterator[Thread]:
    return iter(sorted(threads, key=lambda thread: (thread.last_position, thread.id), reverse=True))


class TooManyTurnsError(Exception):
    """More turns would have to be read than was said."""


class _Threads:
    """The threads of a snapshot, the one with the latest activity first. None is made twice.

    Attributes:
        ends: the last turns of their streams.
    """

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self.ends = _Ends(transaction)
        self._unsettled = transaction.unsettled()
        self._hidden = set(self._unsettled.values())
        self._names: dict[str, list[tuple[int, str]]] = {}
        """Position and name of each bookmark, by stream."""
        for bookmark in all_bookmarks(transaction):
            if (place := transaction.place(bookmark.turn)) is not None:
                self._names.setdefault(place[0], []).append((place[1], bookmark.name))
        self._links: dict[str, list[Link]] | None = None
        """What continues each stream, once it was read for all."""
        self._seen: set[str] = set()

    def at(
        self,
        spans: Sequence[range],
        *,
        fits: Callable[[Recorded], bool] | None = None,
        turns_max: int | None = None,
    ) -> Iterator[Thread]:
        """Iterate over the threads that have a turn at some global positions, by the last one of these that fits.

        What belongs to a thread of a turn belongs to it from there on: of each stream the last of its turns tells.
        """
        streams: set[str] = set()
        for turn in islice(turns_within(self._transaction, spans), turns_max):
            stream = turn.header.stream
            if stream not in streams and (fits is None or fits(turn)):
                streams.add(stream)
                for thread in reversed(threads_of(self._transaction, stream, turn.header.position)):
                    if thread not in self._seen and thread not in self._unsettled:
                        self._seen.add(thread)
                        yield self._thread(thread)

    def others(self) -> Iterator[Thread]:
        """Iterate over the threads that were not given yet."""
        rows = self._transaction.rows("SELECT thread FROM threads")
        ids = [thread for (thread,) in rows if thread not in self._seen and thread not in self._unsettled]
        if not ids:
            return
        self._links = {}
        for link in find_links(self._transaction, "TRUE"):
            self._links.setdefault(link.parent_stream, []).append(link)
        yield from _latest_first(map(self._thread, ids))

    def runs(self, thread: str) -> dict[str, int]:
        """Return the streams of a thread, each with the first position that is of it."""
        return _runs([thread], self._links_from)

    def _links_from(self, stream: str, position: int) -> Iterator[Link]:
        if self._links is None:
            links = find_links(self._transaction, "parent_stream = ? AND parent_position >= ?", stream, position)
        else:
            links = [link for link in self._links.get(stream, ()) if link.parent_position >= position]
        return (link for link in links if (link.child_stream, link.child_position) not in self._hidden)

    def _thread(self, thread: str) -> Thread:
        runs = self.runs(thread)
        root = self._transaction.event(thread)
        tips = sorted((self.ends[stream] for stream in runs), key=lambda end: end[0].global_position)
        last = tips[-1][0]
        return Thread(
            id=thread,
            turns=sum(tip.header.position - runs[tip.header.stream] + 1 for tip, _ in tips),
            heads=tuple(tip.header.id for tip, leaf in tips if leaf),
            bookmarks=tuple(sorted(self._names_in(runs))),
            started=_said_at(root or last),
            last=_said_at(last),
            last_position=last.global_position,
        )

    def _names_in(self, runs: Mapping[str, int]) -> Iterator[str]:
        for stream, first in runs.items():
            yield from (name for position, name in self._names.get(stream, ()) if position >= first)


class _Fitting:
    """The last turn of each stream of which something is true. No turn is read twice, and no more than so many."""

    def __init__(
        self, transaction: ReadTransaction, ends: _Ends, fits: Callable[[Recorded], bool], turns_max: int | None
    ) -> None:
        self._transaction = transaction
        self._ends = ends
        self._fits = fits
        self._left = turns_max
        self._found: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def is_in(self, stream: str, first: int) -> bool:
        """Tell whether a stream has such a turn at a position or later."""
        if stream not in self._found and self._read.get(stream, POSITION_MAX) > first:
            self._look(stream, first)
        return self._found.get(stream, -1) >= first

    def _look(self, stream: str, first: int) -> None:
        if stream in self._read:
            turns = stream_backwards(self._transaction, stream, self._read[stream] - 1, first)
        else:
            turns = _backwards(self._transaction, self._ends[stream][0], first)
        for turn in turns:
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise TooManyTurnsError
            if self._fits(turn):
                self._found[stream] = turn.header.position
                return
        self._read[stream] = first


class _Ends(dict[str, tuple[Recorded, bool]]):
    """The last turn of each stream, and whether nothing continues it; read once."""

    def __init__(self, transaction: ReadTransaction) -> None:
        super().__init__()
        self._transaction = transaction

    def __missing__(self, stream: str) -> tuple[Recorded, bool]:
        tip = self._transaction.stream_end(stream)
        self[stream] = tip, is_leaf(self._transaction, stream, tip.header.position)
        return self[stream]


def _said_at(turn: Recorded) -> str:
    return said_at(turn_meta(turn), turn.header.time).isoformat()


def count_threads(transaction: ReadTransaction) -> int:
    """Return the number of threads."""
    [(count,)] = transaction.rows("SELECT COUNT(*) FROM threads")
    hidden = [*transaction.unsettled()]
    if not hidden:
        return count
    marks = ", ".join("?" * len(hidden))
    return count - transaction.rows(f"SELECT COUNT(*) FROM threads WHERE thread IN ({marks})", hidden)[0][0]


def thread_runs(transaction: ReadTransaction, stream: str, position: int) -> dict[str, int]:
    """Return the streams of the threads that the turn at a position belongs to, each from where on it is of them."""

    def links_from(run: str, first: int) -> Iterable[Link]:
        return find_links(transaction, "parent_stream = ? AND parent_position >= ?", run, first)

    return _runs(threads_of(transaction, stream, position), links_from)


def thread_turns(transaction: ReadTransaction, stream: str, position: int) -> list[Recorded]:
    """Return all turns of the threads that the turn at a position of a stream belongs to, in global order."""
    runs = thread_runs(transaction, stream, position)
    turns = [turn for run, first in runs.items() for turn in transaction.stream(run, first, POSITION_MAX)]
    return sorted(turns, key=lambda turn: turn.global_position)


def thread_size(transaction: ReadTransaction, stream: str, position: int) -> int:
    """Return the number of turns of the threads that the turn at a position of a stream belongs to."""
    runs = settled_runs(transaction, stream, position)
    return sum(transaction.stream_end(run).header.position - first + 1 for run, first in runs.items())


def turns_backwards(transaction: ReadTransaction, stream: str, position: int) -> Iterator[Recorded]:
    """Iterate over the turns of the threads that the turn at a position of a stream belongs to, the last one first.

    Of each of their streams the last turn is read at once, and of the others not many more than are asked for.
    """
    runs = settled_runs(transaction, stream, position)
    found = (_backwards(transaction, transaction.stream_end(run), first) for run, first in runs.items())
    return merge(*found, key=lambda turn: -turn.global_position)


def _backwards(transaction: ReadTransaction, end: Recorded, first: int) -> Iterator[Recorded]:
    return chain((end,), stream_backwards(transaction, end.header.stream, end.header.position - 1, first))


def all_runs(transaction: ReadTransaction) -> dict[str, int]:
    """Return all streams of turns that are in the log of this snapshot, each from its first position on."""
    streams = {
        stream for (stream,) in transaction.rows("SELECT thread FROM threads UNION SELECT child_stream FROM turn_links")
    }
    hidden = {stream for stream, first in transaction.unsettled().values() if first == 0}
    return dict.fromkeys(streams - hidden, 0)


def count_turns(transaction: ReadTransaction) -> int:
    """Return the number of turns. None of them is read."""
    return transaction.count_in(all_runs(transaction))


def settled_runs(transaction: ReadTransaction, stream: str, position: int) -> dict[str, int]:
    """Return what `thread_runs` does, without what is not in the log of this snapshot yet."""
    hidden = set(transaction.unsettled().values())
    return {
        run: first for run, first in thread_runs(transaction, stream, position).items() if (run, first) not in hidden
    }
