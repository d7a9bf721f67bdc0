"""`turnlog log`, `threads`, `ancestry` and `children`: turns in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from msgspec.structs import replace
from rich.cells import cell_len

from turnlog.cli.about import lines_about
from turnlog.cli.completing import HEADISH
from turnlog.cli.failures import UsageError
from turnlog.cli.filters import ThreadListing, TurnListing, none_of
from turnlog.cli.graph import NODE, Node, Row, draw
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import LANE_COLOURS, Piece, Screen, note, write_json_lines
from turnlog.cli.paging import paging
from turnlog.cli.preview import previews
from turnlog.cli.progress import progress_bar
from turnlog.cli.rows import TurnRows, shown_ids, when
from turnlog.cli.text import count, fit, marked, quoted
from turnlog.errors import CorruptionError
from turnlog.events import TURN, Header, Recorded
from turnlog.events.form import gap
from turnlog.log import TurnLog
from turnlog.projections.threads import all_runs, settled_runs
from turnlog.projections.turns import find_links
from turnlog.record.lookup import find_turn
from turnlog.store import ReadTransaction
from turnlog.turn import Turn, turn_of

_ALL_TURNS = TurnListing()
_ALL_THREADS = ThreadListing()
_FAILED_NODE = "✗"
_READ_AHEAD = 500
"""So many turns, and what they say, are read at once."""

_HELD_MAX = 2000
"""Of a thread of more turns than these, whose ids are never shortened, only a few are in memory at once."""

_CLOSE = 16
"""Of a stream that has a line in each so many turns, all turns are read to find them, else the ends of lines alone."""

_NAMES_PART = 4
"""Bookmarks of a thread take a part of the width, one of so many."""

_THREAD_FIELDS = ("id", "turns", "heads", "bookmarks", "started", "last")


def log(
    headish: Annotated[str | None, HEADISH] = None,
    /,
    *,
    all: Annotated[bool, Parameter(alias="-a", negative=(), help="All threads.")] = False,
    ancestry: Annotated[
        bool, Parameter(negative=(), help="Of HEADISH only its ancestry, and not what else grows from it.")
    ] = False,
    which: TurnListing = _ALL_TURNS,
    common: Common = COMMON,
) -> None:
    """Draw a thread: forks, merges, bookmarks, who, when, first line.

    A side branch is drawn whole before the line that it left goes on; the branch with the latest turn comes last.
    ● is a turn, ✗ one that failed, and below ┊ is a turn whose parents are not shown. At most 12 lines stand beside
    each other: where one more is needed, another one ends in ┊, and what goes on from there says below what it
    continues.
    With --json: the turns in global order.

    Parameters
    ----------
    headish
        A turn or bookmark of the thread. By default the thread with the latest activity.
    """
    if all and headish is not None:
        raise UsageError("log: give HEADISH for its thread, or --all, not both")
    if ancestry and headish is None:
        raise UsageError("log: --ancestry of which turn? Give HEADISH")
    which.check()
    with common.open() as log, paging(json=common.json):
        if headish is None and not all and (last := log.latest(1)):
            headish = last[0].id
        if which.is_all and not ancestry:
            if all and common.json:
                write_json_lines(turn_of(event).to_record() for event in log.events(topics=TURN))
                return
            if not common.json and log.turn_count(headish) > _HELD_MAX:
                _draw_lines(log, headish, Screen.of_stdout())
                return
        shown, earlier = _found(log, which, headish, ancestry=ancestry)
        if common.json:
            write_json_lines(turn.to_record() for turn in shown)
            return
        if not shown:
            none = "no turns yet: `turnlog add TEXT` records one"
            note(none_of("turns", log, which.bookmark) if log.turn_count() else none)
            return
        screen = Screen.of_stdout()
        if earlier:
            screen.line((f"… {earlier}", "dim"))
        _draw(log, shown, screen)


class _Line(NamedTuple):
    """Turns of a stream of which each continues the one before it alone, and nothing else does: by their positions."""

    stream: str
    first: int
    last: int


_Page = list[tuple[Row, Sequence[Turn]]]
"""Rows of a drawing, and the turns that stand in each: in one of lines none, in that of a line of turns all of them."""


def _draw(log: TurnLog, turns: Sequence[Turn], screen: Screen) -> None:
    """Print turns, given in global order, as a graph. What they say is read when their rows come."""
    by_id = {turn.id: turn for turn in turns}
    rows = draw([Node(id=turn.id, parents=turn.continues) for turn in turns])
    pages = _pages((row, [] if row.id is None else [by_id[row.id]]) for row in rows)
    ids = shown_ids(log, turns, screen)
    _print(log, pages, replace(TurnRows.of(log, [], screen), ids=ids), ids)


def _draw_lines(log: TurnLog, headish: str | None, screen: Screen) -> None:
    """Print the threads that a turn belongs to, or all, as a graph. Turns are read when their rows come."""
    with log.store.read() as transaction:
        nodes, lines, ends = _lines_of(transaction, _runs(transaction, headish))

    def read() -> Iterator[tuple[Row, Sequence[Turn]]]:
        for row in draw(nodes):
            if row.id is None:
                yield row, []
                continue
            stream, first, last = lines[row.id]
            for at in range(first, last + 1, _READ_AHEAD):
                end = min(at + _READ_AHEAD - 1, last)
                with log.store.read() as transaction:
                    found = transaction.stream(stream, at, end)
                if len(found) != end - at + 1:
                    raise gap(stream, end)
                yield row, [turn_of(recorded) for recorded in found]

    _print(log, _pages(read()), TurnRows.of(log, [], screen), ends)


def _runs(transaction: ReadTransaction, headish: str | None) -> dict[str, int]:
    """Return the streams of the threads that a turn belongs to, or of all, each from where on it is of them."""
    if headish is None:
        return all_runs(transaction)
    head = find_turn(transaction, headish).header
    return settled_runs(transaction, head.stream, head.position)


def _lines_of(
    transaction: ReadTransaction, runs: Mapping[str, int]
) -> tuple[list[Node], dict[str, _Line], dict[str, str]]:
    """Return threads as lines: nodes to draw, what is in each, and the id of its last turn.

    Of a line, only its first and last turn are read.
    """
    begins = {run: {first} for run, first in runs.items()}
    for run, first in runs.items():
        for link in find_links(transaction, "parent_stream = ? AND parent_position >= ?", run, first):
            if link.child_stream in runs:
                begins[run].add(link.parent_position + 1)
                begins[link.child_stream].add(link.child_position)
    found: list[tuple[Recorded, Recorded]] = []
    for run, places in begins.items():
        end = transaction.stream_end(run)
        firsts = sorted(place for place in places if place <= end.header.position)
        lasts = [*(place - 1 for place in firsts[1:]), end.header.position]
        if end.header.position - firsts[0] < _CLOSE * len(firsts):
            at = {turn.header.position: turn for turn in transaction.stream(run, firsts[0], lasts[-1])}
        else:
            at = {place: turn for place in {*firsts, *lasts[:-1]} for turn in transaction.stream(run, place, place)}
        at[end.header.position] = end
        if missing := [place for place in (*firsts, *lasts) if place not in at]:
            raise gap(run, missing[0])
        found += ((at[first], at[last]) for first, last in zip(firsts, lasts, strict=True))
    found.sort(key=lambda line: line[0].global_position)
    by_end = {(last.header.stream, last.header.position): first.header.id for first, last in found}

    def line_of(turn: Header, parent: str, *, is_first: bool) -> str:
        # A turn that extends its stream follows its first parent by position.
        extends = is_first and turn.position
        place = (turn.stream, turn.position - 1) if extends else transaction.place(parent)
        return by_end.get(place, parent) if place else parent

    nodes = [
        Node(
            id=first.header.id,
            parents=tuple(
                line_of(first.header, parent.id, is_first=not at) for at, parent in enumerate(first.header.parents)
            ),
            last=last.global_position,
        )
        for first, last in found
    ]
    lines = {
        first.header.id: _Line(first.header.stream, first.header.position, last.header.position)
        for first, last in found
    }
    return nodes, lines, {first.header.id: last.header.id for first, last in found}


def _pages(rows: Iterable[tuple[Row, Sequence[Turn]]]) -> Iterator[_Page]:
    """Yield rows, so many at once that they have about as many turns as are read at once."""
    page: _Page = []
    there_are = 0
    for row, turns in rows:
        page.append((row, turns))
        there_are += len(turns)
        if there_are >= _READ_AHEAD:
            yield page
            page, there_are = [], 0
    yield page


def _print(log: TurnLog, pages: Iterable[_Page], rows: TurnRows, ends: Mapping[str, str]) -> None:
    """Print rows of a drawing.

    Args:
        log: where first lines are read.
        pages: the rows.
        rows: what the rows of turns need beside first lines.
        ends: how the last turn of a node is named, by the node's id, where not by that.
    """
    screen = rows.screen
    for page in pages:
        rows = replace(rows, lines=previews(log, [turn for _, turns in page for turn in turns], rows.damages))
        for row, turns in page:
            for turn in turns:
                screen.line(*_lanes(row, _FAILED_NODE if turn.meta.failed else NODE), *rows.pieces(turn), cut=True)
            if row.continues is not None:
                screen.line(*_lanes(row), "continues ", (ends.get(row.continues, row.continues), "yellow"), cut=True)
            elif not turns:
                screen.line(*_lanes(row), cut=True)
    rows.check()


def _lanes(row: Row, sign: str = NODE) -> list[Piece]:
    """Return the cells of a row, each lane in its colour; a line across has that of the lane at its right end."""
    across = [lane for lane, cell in enumerate(row.cells) if cell[1] == "─"]
    right_end = across[-1] + 1 if across else 0
    pieces: list[Piece] = []
    for lane, (above, beside) in enumerate(row.cells):
        node = above == NODE
        pieces.append((sign if node else above, f"bold {_colour(lane)}" if node else _colour(lane, above, right_end)))
        pieces.append((beside, _colour(lane, beside, right_end)))
    return pieces


def _colour(lane: int, sign: str = "", right_end: int = 0) -> str:
    return LANE_COLOURS[(right_end if sign == "─" else lane) % len(LANE_COLOURS)]


def _found(log: TurnLog, which: TurnListing, headish: str | None, *, ancestry: bool) -> tuple[list[Turn], str]:
    """Return the turns that are shown, in global order, and what earlier ones are wanted too: their number, if known.

    They are of the threads that a turn belongs to, of its ancestry, or of the whole log.
    """
    if ancestry or which.bookmark is not None:
        turns = log.ancestry(headish) if ancestry and headish is not None else _heads(log, which, headish)
        wanted = which.of(sorted(turns, key=lambda turn: turn.global_position), log)
        shown = which.latest(wanted)
        return shown, count(len(wanted) - len(shown), "earlier turn") if len(shown) < len(wanted) else ""
    more = None if which.limit is None else which.limit + 1
    with progress_bar("indexing", at_once=False) as progress:
        found = log.latest(more, headish, which=which.filter(), progress=progress)
    shown = which.latest(found)
    if len(shown) == len(found):
        return shown, ""
    return shown, count(log.turn_count(headish) - len(shown), "earlier turn") if which.takes_all else "earlier turns"


def _heads(log: TurnLog, which: TurnListing, headish: str | None) -> list[Turn]:
    """Return the turns of the threads that a turn belongs to, or of all, that bookmarks of the wanted name are at."""
    turns: list[Turn] = []
    heads = which.heads(log) or ()
    with log.store.read() as transaction:
        for head in heads:
            if (turn := transaction.event(head)) is None:
                raise CorruptionError(f"turn {head!r}, which a bookmark is at, is missing: run `turnlog verify`")
            turns.append(turn_of(turn))
        if headish is None:
            return turns
        runs = _runs(transaction, headish)
    return [turn for turn in turns if turn.stream in runs and turn.position >= runs[turn.stream]]


def threads(*, which: ThreadListing = _ALL_THREADS, common: Common = COMMON) -> None:
    """List threads, the one with the latest activity first, each with what a person said first.

    Context that an agent put before that, as an environment or instructions of a project, is passed over.
    --since and --until are about the last turn of a thread.
    """
    which.check()
    with common.open() as log, paging(json=common.json):
        found = which.of(log)[::-1]
        if not found and not common.json:
            none = "no threads yet: `turnlog add TEXT` starts one"
            note(none_of("threads", log, which.bookmark) if log.turn_count() else none)
            return
        screen = Screen.of_stdout()
        rows = TurnRows.of(log, [log.turn(thread.id) for thread in found], screen, names={}, lines_of=lines_about)
        if common.json:
            write_json_lines(
                {name: getattr(thread, name) for name in _THREAD_FIELDS} | {"about": rows.lines[thread.id]}
                for thread in found
            )
            rows.check()
            return
        screen.table(
            [
                [
                    (rows.ids.get(thread.id, thread.id), "yellow"),
                    count(thread.turns, "turn"),
                    count(len(thread.heads), "head") if len(thread.heads) > 1 or screen.width is None else "",
                    (when(screen, datetime.fromisoformat(thread.last), rows.now), "dim"),
                    (_marked(thread.bookmarks, screen), "bold green"),
                    rows.line(thread.id),
                ]
                for thread in found
            ]
        )
        rows.check()


def _marked(names: Sequence[str], screen: Screen) -> str:
    """Return the mark of bookmarks; on a terminal no wider than a quarter of it, so that more can be said."""
    if not names:
        return ""
    if screen.width is None or cell_len(marked(names)) <= screen.width // _NAMES_PART:
        return marked(names)
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return fit(marked(names[:1])[:-1], screen.width // _NAMES_PART - len(more) - 1) + f"{more}]"


def ancestry(headish: Annotated[str, HEADISH], /, *, which: TurnListing = _ALL_TURNS, common: Common = COMMON) -> None:
    """List the ancestry of a turn and the turn itself, oldest first: what its context window is made of.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    which.check()
    with common.open() as log, paging(json=common.json):
        _list(log, which, log.ancestry(headish, which.limit, wanted=which.fits(which.heads(log))), common)


def children(headish: Annotated[str, HEADISH], /, *, which: TurnListing = _ALL_TURNS, common: Common = COMMON) -> None:
    """List the turns that continue a turn, in the order in which they were recorded.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    which.check()
    with common.open() as log, paging(json=common.json):
        found = log.children(headish, which.limit, wanted=which.fits(which.heads(log)))
        if found or common.json or log.children(headish, 1):
            _list(log, which, found, common)
        else:
            note(f"no turn continues {quoted(headish)} yet: `turnlog add TEXT --continues {quoted(headish)}` does")


def _list(log: TurnLog, which: TurnListing, found: list[Turn], common: Common) -> None:
    if common.json:
        write_json_lines(turn.to_record() for turn in found)
    elif not found:
        note(none_of("turns", log, which.bookmark))
    else:
        TurnRows.of(log, found, Screen.of_stdout()).write(found)
