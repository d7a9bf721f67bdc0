"""The thread index: the roots. What grows from a root is folded from the turn index when it is asked for.

A turn belongs to the threads of all its parents, so a merge of two threads belongs to both, and so does what grows
from it. Of each stream a thread has all turns from some position on: a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import chain, islice

from msgspec import Struct

from turnlog.events import TURN, Recorded, turn_meta
from turnlog.events.times import said_at
from turnlog.projections.belonging import ThreadsInOrder, reach, threads_of
from turnlog.projections.bookmarks import all_bookmarks, bookmarks_like
from turnlog.projections.turns import ANYWHERE, Link, find_links, links_from, stream_backwards, turns_within
from turnlog.store import FoldTransaction, Located, ReadTransaction, SyncProjection

POSITION_MAX = (1 << 63) - 1
"""No position in a stream is above it."""

LOOKED_AT_MAX = 10_000
"""So many turns are looked at for a few turns or threads, before it is asked where such are, or all threads are read.

That takes a twentieth of a second.
"""

_BOOKMARKS_MAX = 100
"""Of so many bookmarks the threads are looked up. Of more, the threads are asked for their bookmarks."""


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


def _runs(roots: Iterable[str], links_of: Callable[[Collection[str]], Iterable[Link]]) -> dict[str, int]:
    """Return the streams that grow from roots, each with the first position that does.

    Args:
        roots: ids of roots.
        links_of: finds what continues streams.
    """
    runs = dict.fromkeys(roots, 0)
    waiting = set(runs)
    while waiting:
        links = links_of(waiting)
        waiting = set[str]()
        for link in links:
            first = runs.get(link.child_stream, POSITION_MAX)
            if link.parent_position >= runs[link.parent_stream] and link.child_position < first:
                runs[link.child_stream] = link.child_position
                waiting.add(link.child_stream)
    return runs


def latest_threads(
    transaction: ReadTransaction,
    limit: int | None = None,
    *,
    bookmark: str | None = None,
    among: Callable[[Thread], bool] | None = None,
    fits: Callable[[Recorded], bool] | None = None,
    spans: Sequence[range] | None = None,
    fitting: Sequence[range] | None = None,
    turns_max: int | None = None,
) -> list[Thread]:
    """Return the threads with the latest activity, the latest one last.

    A few are found by the last turns of the log. Where these are of fewer threads, all threads are looked at. Those of
    a few bookmarks are found by these.

    Args:
        transaction: where they are read.
        limit: how many; None for all.
        bookmark: only threads with a bookmark whose name fits this pattern.
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
    elif bookmark is not None and (named := threads.named(bookmark)) is not None:
        every = named
    elif spans is not None:
        every = threads.at(spans)
    elif limit is not None:
        every = chain(threads.at(ANYWHERE, turns_max=LOOKED_AT_MAX), threads.others())
    else:
        every = threads.others()
    if bookmark is not None:
        every = (thread for thread in every if any(fnmatchcase(name, bookmark) for name in thread.bookmarks))
    found = filter(among, every)
    if fits is not None:
        looked_at = _Fitting(transaction, threads, fits, turns_max)
        found = (thread for thread in found if any(looked_at.is_in(*run) for run in threads.runs(thread.id).items()))
    return list(islice(found, limit))[::-1]


def _latest_first(threads: Iterable[Thread]) -> Iterator[Thread]:
    return iter(sorted(threads, key=lambda thread: (thread.last_position, thread.id), reverse=True))


class TooManyTurnsError(Exception):
    """More turns would have to be read than was said."""


class _Links:
    """What continues streams, but for what is not in the log of the snapshot yet; read once for each."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._hidden = set(transaction.unsettled().values())
        self._by_stream: dict[str, list[Link]] = {}
        self._has_all = False

    def of(self, streams: Collection[str]) -> Iterator[Link]:
        """Iterate over what continues the turns of some streams."""
        new = [] if self._has_all else [stream for stream in streams if stream not in self._by_stream]
        self._by_stream |= {stream: [] for stream in new}
        self._take(links_from(self._transaction, new))
        return chain.from_iterable(self._by_stream.get(stream, ()) for stream in streams)

    def read_all(self) -> None:
        """Read what continues any stream."""
        self._by_stream = {}
        self._take(find_links(self._transaction, "TRUE"))
        self._has_all = True

    def _take(self, links: Iterable[Link]) -> None:
        for link in links:
            if (link.child_stream, link.child_position) not in self._hidden:
                self._by_stream.setdefault(link.parent_stream, []).append(link)


class _Threads:
    """The threads of a snapshot, the one with the latest activity first. None is made twice."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._unsettled = transaction.unsettled()
        self._links = _Links(transaction)
        self._ends: dict[str, Located] = {}
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
        threads = ThreadsInOrder()
        for turn in islice(turns_within(self._transaction, spans), turns_max):
            stream = turn.header.stream
            if stream not in streams and (fits is None or fits(turn)):
                streams.add(stream)
                for thread in reversed(threads.at(self._transaction, stream, turn.header.position)):
                    if thread not in self._seen and thread not in self._unsettled:
                        self._seen.add(thread)
                        yield self._thread(thread)

    def others(self) -> Iterator[Thread]:
        """Iterate over the threads that were not given yet."""
        rows = self._transaction.rows("SELECT thread FROM threads")
        ids = [thread for (thread,) in rows if thread not in self._seen and thread not in self._unsettled]
        if not ids:
            return
        self._links.read_all()
        yield from self._latest_of(ids)

    def named(self, pattern: str) -> Iterator[Thread] | None:
        """Return the threads that have a bookmark whose name fits a pattern; None where many bookmarks have."""
        found = bookmarks_like(self._transaction, pattern)
        if len(found) > _BOOKMARKS_MAX:
            return None
        places: dict[str, int] = {}
        for at in self._transaction.located({bookmark.turn for bookmark in found}).values():
            places[at.stream] = max(at.position, places.get(at.stream, 0))
        return self._latest_of([id for id in reach(self._transaction, places).roots if id not in self._unsettled])

    def runs(self, thread: str) -> dict[str, int]:
        """Return the streams of a thread, each with the first position that is of it."""
        return _runs([thread], self._links.of)

    def end(self, stream: str) -> Located:
        """Return where the last turn of a stream is."""
        self._find_ends([stream])
        return self._ends[stream]

    def _find_ends(self, streams: Iterable[str]) -> None:
        """Look up where the last turns of some streams are, of each once."""
        self._ends |= self._transaction.stream_ends([stream for stream in streams if stream not in self._ends])

    def _latest_of(self, ids: Sequence[str]) -> Iterator[Thread]:
        """Iterate over some threads, the one with the latest activity first. Each is made when it is asked for.

        Where the streams of all of them end is looked up at once.
        """
        self._find_ends(_runs(ids, self._links.of))
        lasts = {id: max(self._ends[stream].global_position for stream in self.runs(id)) for id in ids}
        return map(self._thread, sorted(ids, key=lambda id: (lasts[id], id), reverse=True))

    def _thread(self, thread: str) -> Thread:
        runs = self.runs(thread)
        self._find_ends(runs)
        tips = sorted((self._ends[stream] for stream in runs), key=lambda tip: tip.global_position)
        continued = {(link.parent_stream, link.parent_position) for link in self._links.of(runs)}
        last = _turn_at(self._transaction, tips[-1])
        return Thread(
            id=thread,
            turns=sum(tip.position - runs[tip.stream] + 1 for tip in tips),
            heads=tuple(tip.event_id for tip in tips if (tip.stream, tip.position) not in continued),
            bookmarks=tuple(sorted(self._names_in(runs))),
            started=_said_at(self._transaction.event(thread) or last),
            last=_said_at(last),
            last_position=last.global_position,
        )

    def _names_in(self, runs: Mapping[str, int]) -> Iterator[str]:
        for stream, first in runs.items():
            yield from (name for position, name in self._names.get(stream, ()) if position >= first)

    @cached_property
    def _names(self) -> dict[str, list[tuple[int, str]]]:
        """Position and name of each bookmark, by stream."""
        bookmarks = all_bookmarks(self._transaction)
        located = self._transaction.located({bookmark.turn for bookmark in bookmarks})
        names: dict[str, list[tuple[int, str]]] = {}
        for bookmark in bookmarks:
            if (at := located.get(bookmark.turn)) is not None:
                names.setdefault(at.stream, []).append((at.position, bookmark.name))
        return names


class _Fitting:
    """The last turn of each stream of which something is true. No turn is read twice, and no more than so many."""

    def __init__(
        self, transaction: ReadTransaction, threads: _Threads, fits: Callable[[Recorded], bool], turns_max: int | None
    ) -> None:
        self._transaction = transaction
        self._threads = threads
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
        last = self._read[stream] - 1 if stream in self._read else self._threads.end(stream).position
        for turn in stream_backwards(self._transaction, stream, last, first):
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise TooManyTurnsError
            if self._fits(turn):
                self._found[stream] = turn.header.position
                return
        self._read[stream] = first


def _turn_at(transaction: ReadTransaction, at: Located) -> Recorded:
    [turn] = stream_backwards(transaction, at.stream, at.position, at.position)
    return turn


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

    return _runs(threads_of(transaction, stream, position), partial(links_from, transaction))


def thread_turns(transaction: ReadTransaction, stream: str, position: int) -> list[Recorded]:
    """Return all turns of the threads that the turn at a position of a stream belongs to, in global order."""
    runs = thread_runs(transaction, stream, position)
    turns = [turn for run, first in runs.items() for turn in transaction.stream(run, first, POSITION_MAX)]
    return sorted(turns, key=lambda turn: turn.global_position)


def thread_size(transaction: ReadTransaction, stream: str, position: int) -> int:
    """Return the number of turns of the threads that the turn at a position of a stream belongs to."""
    runs = settled_runs(transaction, stream, position)
    return sum(end.position - runs[run] + 1 for run, end in transaction.stream_ends(runs).items())


def turns_backwards(transaction: ReadTransaction, stream: str, position: int) -> Iterator[Recorded]:
    """Iterate over the turns of the threads that the turn at a position of a stream belongs to, the last one first.

    Not many more are read than are asked for: of streams that none is asked for of, none.
    """
    runs = settled_runs(transaction, stream, position)
    ends = transaction.stream_ends(runs)
    turns = {run: stream_backwards(transaction, run, end.position, runs[run]) for run, end in ends.items()}
    waiting = [(-end.global_position, run) for run, end in ends.items()]
    heapify(waiting)
    ahead: dict[str, Recorded] = {}
    while waiting:
        _, run = heappop(waiting)
        yield ahead.pop(run, None) or next(turns[run])
        if (turn := next(turns[run], None)) is not None:
            ahead[run] = turn
            heappush(waiting, (-turn.global_position, run))


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
