"""Which events an export of a part has: turns, all that they cite, what stands beside them, and bookmarks on them.

The turns are those around some heads, or of these (or of the whole log) only those that fit, each with its ancestry.

Citations are followed to their end and their digests are checked, so that nothing dangles and nothing that was edited
goes out. Reading is done in pages, a snapshot a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from turnlog.errors import CorruptionError, NotFoundError
from turnlog.events import (
    BOOKMARK,
    ERASURE,
    SHAPES,
    SUMMARY,
    TOOL_CALL,
    TOOL_END,
    TURN,
    Arrival,
    Citation,
    Recorded,
    check_cited,
    is_of_format,
    turn_meta,
)
from turnlog.interop.portable.marks import Marks
from turnlog.model import Origin
from turnlog.projections.moves import kept_move
from turnlog.projections.threads import thread_runs
from turnlog.projections.turns import ANYWHERE, children, turns_within
from turnlog.record import find_turn
from turnlog.record.tool_calls import results_turn
from turnlog.store import ReadTransaction, Store

PAGE_EVENTS = 500

_Run = tuple[str, int]
"""A stream, and the position up to which it is wanted."""


class Part(Struct, frozen=True, kw_only=True):
    """A part of a log.

    Attributes:
        head: id of the turn that was asked for; of several the one that was recorded last.
        positions: global positions of its events.
        payload_bytes: bytes of their payloads.
    """

    head: str
    positions: Marks
    payload_bytes: int


def choose(
    store: Store,
    headish: Sequence[str],
    *,
    ancestry: bool,
    fits: Callable[[Recorded], bool] | None = None,
    limit: int | None = None,
    spans: Sequence[range] = ANYWHERE,
) -> Part:
    """Return a part of a log, as of now.

    Args:
        store: the log.
        headish: the turns that it is around; without any it is of the whole log, and only what fits.
        ancestry: only the ancestries of these turns, the turns included; else all turns of their threads.
        fits: of these turns only those of which this is true, each with its ancestry.
        limit: of the turns that fit only so many, each with its ancestry: the latest that no other one continues.
        spans: global positions among which all turns of the log are that fit, the last ones first.

    Raises:
        UnknownTurnError: there is no such turn.
        NotFoundError: no turn fits.
        CorruptionError: an event cites what is not there before it, or has another digest than is cited.
    """
    with store.read() as transaction:
        end = transaction.log_end()
        heads = [find_turn(transaction, each) for each in headish]
        runs = [_run_of(head) for head in heads]
        if not ancestry:
            streams = {stream for run in runs for stream in thread_runs(transaction, *run)}
            runs = [(stream, transaction.stream_end(stream).header.position) for stream in streams]
    collector = _Collector()
    if fits is None and limit is None:
        collector.collect(store, runs)
    else:
        around: Marks | None = None
        if heads:
            there = _Collector()
            there.collect(store, runs)
            around = there.found
        heads = _collect_latest(store, collector, _newest_first(store, around, end, spans), fits, limit)
    head = max(heads, key=lambda each: each.global_position, default=None)
    if head is None:
        raise NotFoundError("none of the turns is such a one: there is nothing to export")
    if not collector.found:
        raise CorruptionError(
            f"the threads of turn {head.header.id!r} do not lead to it: run `turnlog verify`",
            global_position=head.global_position,
        )
    _add_beside(store, collector, end)
    _add_bookmark_events(store, collector, end)
    if collector.erased:
        _add_erasures(store, collector.found, end)
    return Part(head=head.header.id, positions=collector.found, payload_bytes=collector.payload_bytes)


def _run_of(turn: Recorded) -> _Run:
    return turn.header.stream, turn.header.position


def _newest_first(store: Store, around: Marks | None, end: int, spans: Sequence[range]) -> Iterator[Recorded]:
    """Give the turns at some global positions, or of spans of the log, the latest first. Each page is a snapshot."""
    if around is None:
        for span in spans:
            before = min(span.stop, end + 1)
            while page := _turns_page(store, range(span.start, before)):
                before = page[-1].global_position
                yield from page
        return
    positions = reversed(around)
    while chosen := list(islice(positions, PAGE_EVENTS)):
        with store.read() as transaction:
            events = list(map(transaction.at_global, chosen))
        yield from (event for event in events if event is not None and event.header.topic == TURN)


def _turns_page(store: Store, span: range) -> list[Recorded]:
    with store.read() as transaction:
        return list(islice(turns_within(transaction, (span,)), PAGE_EVENTS))


def _collect_latest(
    store: Store,
    collector: _Collector,
    turns: Iterable[Recorded],
    fits: Callable[[Recorded], bool] | None,
    limit: int | None,
) -> list[Recorded]:
    """Collect turns that fit, given the latest first, each with its ancestry; return those that no other one continues.

    What a turn continues was recorded before it: where a turn is reached, all that continue it have been seen.
    """
    heads: list[Recorded] = []
    for turn in turns:
        if turn.global_position not in collector.found and (fits is None or fits(turn)):
            collector.collect(store, [_run_of(turn)])
            heads.append(turn)
            if len(heads) == limit:
                break
    return heads


def before(transaction: ReadTransaction, citing: Recorded, citation: Citation) -> Recorded:
    """Return the event that another one cites.

    Raises:
        CorruptionError: it is not there, or not before the other, or has another digest than is cited.
    """
    cited = transaction.event(citation.id)
    if cited is None or cited.global_position >= citing.global_position:
        raise CorruptionError(
            f"event {citing.header.id!r} cites {citation.id!r}, which is not recorded before it: run `turnlog verify`",
            global_position=citing.global_position,
        )
    check_cited(citing, citation, cited)
    return cited


class _Collector:
    """Follows citations. What is found of a stream is always its beginning, as each turn in it cites the one before.

    Attributes:
        found: global positions of what was found.
        payload_bytes: bytes of its payloads.
        turns: ids of its turns.
        names: the bookmarks that its turns moved.
        erased: whether anything of it was erased.
    """

    def __init__(self) -> None:
        self.found = Marks()
        self.payload_bytes = 0
        self.turns: set[str] = set()
        self.names: set[str] = set()
        self.erased = False
        self._reached: dict[str, int] = {}
        self._waiting: list[_Run | Recorded] = []

    def collect(self, store: Store, runs: Sequence[_Run | Recorded]) -> None:
        self._waiting += runs
        while self._waiting:
            with store.read() as transaction:
                left = PAGE_EVENTS
                while self._waiting and left > 0:
                    left -= self._step(transaction, self._waiting.pop())

    def _step(self, transaction: ReadTransaction, wanted: _Run | Recorded) -> int:
        """Take what waits next, or a page of it; return how many events were read."""
        if isinstance(wanted, Recorded):
            self._take(transaction, wanted, None)
            return 1
        stream, last = wanted
        first = self._reached.get(stream, -1) + 1
        page_last = min(last, first + PAGE_EVENTS - 1)
        if first > last:
            return 1
        turns = transaction.stream(stream, first, page_last)
        if len(turns) != page_last - first + 1:
            raise CorruptionError(f"stream {stream!r} has a gap before its position {page_last}: run `turnlog verify`")
        self._reached[stream] = page_last
        if page_last < last:
            self._waiting.append((stream, last))
        earlier = transaction.at(stream, first - 1) if first else None
        for turn in turns:
            self._take(transaction, turn, earlier)
            earlier = turn
        return len(turns)

    def _take(self, transaction: ReadTransaction, recorded: Recorded, earlier: Recorded | None) -> None:
        """Add an event, and let wait what it cites; `earlier` is the one before it in its stream."""
        header = recorded.header
        if not self.found.add(recorded.global_position):
            return
        self.payload_bytes += recorded.stored_size or 0
        self.erased |= recorded.erased
        if header.topic == TURN:
            self.turns.add(header.id)
            move = kept_move(recorded)
            self.names.update(() if move is None else (move.name,))
        parents = header.parents
        if header.position and (earlier is None or not parents or parents[0].id != earlier.header.id):
            raise CorruptionError(
                f"event {header.id!r} does not follow the turn before it in its stream: run `turnlog verify`",
                global_position=recorded.global_position,
            )
        for citation in header.citations:
            if header.position and earlier is not None and citation.id == earlier.header.id:
                check_cited(recorded, citation, earlier)
                continue
            cited = before(transaction, recorded, citation)
            if cited.global_position not in self.found:
                alone = cited.header.topic != TURN and cited.header.position == 0
                self._waiting.append(cited if alone else (cited.header.stream, cited.header.position))


# What stands beside turns


def _add_beside(store: Store, collector: _Collector, end: int) -> None:
    """Add what turns of the part have no place for, and what no turn cites yet: summaries, and tool calls.

    How a tool call ended that a turn elsewhere has the result of stays there: it belongs to that branch. What says that
    a tool was not called has no result, and without it the attempts would have a gap.
    """
    ours = (SUMMARY, TOOL_CALL, TOOL_END)
    with store.read() as transaction:
        topics = tuple(topic for topic in transaction.rare_topics() if topic in ours or topic not in SHAPES)
    beside: list[Recorded] = []

    def note(transaction: ReadTransaction, recorded: Recorded) -> None:
        header = recorded.header
        of = header.cited("to" if header.topic == SUMMARY else "turn")
        if of is None or of not in collector.turns:
            return
        if header.topic not in ours and not _is_line(transaction, header.topic, of):
            return
        if header.topic == TOOL_END and header.cited("tool_call") is not None:
            turn = transaction.event(of)
            results = None if turn is None else results_turn(header.id, children(transaction, turn))
            if results is not None and results.header.id not in collector.turns:
                return
        beside.append(recorded)

    if topics:
        _each(store, 0, end, topics, note)
        collector.collect(store, beside)


def _is_line(transaction: ReadTransaction, topic: str, turn: str) -> bool:
    """Tell whether an event that cites a turn is a line of a transcript: of a format of turnlog's, or of the turn."""
    if is_of_format(topic):
        return True
    of = transaction.event(turn)
    origin = None if of is None else turn_meta(of).origin
    return isinstance(origin, Origin) and is_of_format(topic, (origin.format,))


# Bookmarks


def _add_bookmark_events(store: Store, collector: _Collector, end: int) -> None:
    """Add what was said of bookmarks while they stood in the part.

    A bookmark that has left for a turn elsewhere stays, in the export, where it last stood here.
    """
    found, names = collector.found, collector.names
    sets: list[int] = []
    others: list[tuple[int, str, str | None]] = []

    def note(transaction: ReadTransaction, recorded: Recorded) -> None:
        move = kept_move(recorded)
        if move is None:
            if recorded.erased or recorded.arrival == Arrival.GUEST:
                return
            raise CorruptionError(
                f"bookmark event {recorded.header.id!r} names no turn: run `turnlog verify`",
                global_position=recorded.global_position,
            )
        if move.turn is None:
            others.append((recorded.global_position, move.name, move.to))
        elif before(transaction, recorded, recorded.header.citations[0]).global_position in found:
            sets.append(recorded.global_position)
            names.add(move.name)

    _each(store, 0, end, (BOOKMARK,), note)
    for at in sets:
        found.add(at)
    last = 0
    for at, name, to in others:
        if name in names:
            last = at
            names.update(() if to is None else (to,))
    if last:
        _follow_bookmarks(store, found, last)


def _follow_bookmarks(store: Store, found: Marks, last: int) -> None:
    """Add the renames and deletions of bookmarks that stood in the part at that time."""
    held: set[str] = set()

    def follow(_: ReadTransaction, recorded: Recorded) -> None:
        move = kept_move(recorded)
        if move is None:
            return
        if move.turn is not None:
            (held.add if recorded.global_position in found else held.discard)(move.name)
        elif move.name in held:
            found.add(recorded.global_position)
            held.discard(move.name)
            held.update(() if move.to is None else (move.to,))

    _each(store, next(iter(found)) - 1, last, (TURN, BOOKMARK), follow)


def _add_erasures(store: Store, found: Marks, end: int) -> None:
    """Add what says who asked for it and why, of erasures that concern nothing but the part."""

    def add(transaction: ReadTransaction, recorded: Recorded) -> None:
        cited = (before(transaction, recorded, citation) for citation in recorded.header.citations)
        if all(event.global_position in found for event in cited):
            found.add(recorded.global_position)

    _each(store, 0, end, (ERASURE,), add)


def _each(
    store: Store,
    after: int,
    last: int,
    topics: tuple[str, ...],
    do: Callable[[ReadTransaction, Recorded], None],
) -> None:
    """Do something with each event of some topics above one global position and up to another."""
    while after < last:
        with store.read() as transaction:
            page = _page(transaction, after, topics)
            for recorded in page:
                if recorded.global_position > last:
                    return
                do(transaction, recorded)
        if len(page) < PAGE_EVENTS:
            return
        after = page[-1].global_position


def _page(transaction: ReadTransaction, after: int, topics: tuple[str, ...]) -> list[Recorded]:
    found: Iterator[Recorded] = transaction.log(after, topics=topics)
    return list(islice(found, PAGE_EVENTS))
