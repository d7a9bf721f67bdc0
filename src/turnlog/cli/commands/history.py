"""`turnlog log`, `threads`, `ancestry` and `children`: turns in their order."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.filters import ThreadFilter, TurnFilter
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, write_json_lines
from turnlog.cli.rows import TurnRows, when
from turnlog.cli.text import count, one_line
from turnlog.log import TurnLog
from turnlog.turn import Turn

_ALL_TURNS = TurnFilter()
_ALL_THREADS = ThreadFilter()
_THREAD_FIELDS = ("id", "turns", "heads", "bookmarks", "started", "last")


def log(
    headish: str | None = None,
    /,
    *,
    all: Annotated[bool, Parameter(alias="-a", negative=(), help="All threads.")] = False,
    ancestry: Annotated[
        bool, Parameter(negative=(), help="Of HEADISH only its ancestry, and not what else grows from it.")
    ] = False,
    which: TurnFilter = _ALL_TURNS,
    common: Common = COMMON,
) -> None:
    """Draw a thread: forks, merges, bookmarks, who, when, first line.

    A side branch is drawn whole before the line that it left goes on; the branch with the latest turn comes last.
    ● is a turn, ✗ one that failed, and below ┊ is a turn whose parents are not shown. With --json: the turns in
    global order.

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
    with common.open() as log:
        if all and which.limit is not None and which.takes_all:
            shown, there_are = log.latest(which.limit), log.stats().turns
            fit = there_are
        else:
            turns = _all_turns(log) if all else _turns(log, headish, ancestry=ancestry)
            wanted = which.of(turns)
            shown, there_are, fit = which.latest(wanted), len(turns), len(wanted)
        if common.json:
            write_json_lines(turn.to_record() for turn in shown)
            return
        if not shown:
            note("none of the turns is such a one" if there_are else "no turns yet: `turnlog add TEXT` records one")
            return
        screen = Screen.of_stdout()
        if len(shown) < fit:
            screen.line((f"… {count(fit - len(shown), 'earlier turn')}", "dim"))
        TurnRows.of(log, shown, screen).write_graph(shown)


def _turns(log: TurnLog, headish: str | None, *, ancestry: bool) -> list[Turn]:
    """Return the turns of a thread, or of an ancestry; of the thread with the latest activity if none is named."""
    if headish is not None and ancestry:
        return sorted(log.ancestry(headish), key=lambda turn: turn.global_position)
    if headish is not None:
        return log.thread(headish)
    found = log.threads()
    return log.thread(found[-1].heads[-1]) if found else []


def _all_turns(log: TurnLog) -> list[Turn]:
    by_id = {turn.id: turn for thread in log.threads() for turn in log.thread(thread.id)}
    return sorted(by_id.values(), key=lambda turn: turn.global_position)


def threads(*, which: ThreadFilter = _ALL_THREADS, common: Common = COMMON) -> None:
    """List threads, the one with the latest activity first."""
    which.check()
    with common.open() as log:
        every = log.threads()
        found = which.of(every)[::-1]
        if common.json:
            write_json_lines({name: getattr(thread, name) for name in _THREAD_FIELDS} for thread in found)
            return
        if not found:
            note("none of the threads is such a one" if every else "no threads yet: `turnlog add TEXT` starts one")
            return
        screen = Screen.of_stdout()
        roots = [log.turn(thread.id) for thread in found]
        rows = TurnRows.of(log, roots, screen)
        screen.table(
            [
                [
                    (rows.ids.get(thread.id, thread.id), "yellow"),
                    count(thread.turns, "turn"),
                    count(len(thread.heads), "head") if len(thread.heads) > 1 or screen.width is None else "",
                    (when(screen, datetime.fromisoformat(thread.last), rows.now), "dim"),
                    (f"[{', '.join(map(one_line, thread.bookmarks))}]" if thread.bookmarks else "", "bold green"),
                    rows.lines[thread.id],
                ]
                for thread in found
            ]
        )


def ancestry(headish: str, /, *, which: TurnFilter = _ALL_TURNS, common: Common = COMMON) -> None:
    """List the ancestry of a turn and the turn itself, oldest first: what its context window is made of.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    which.check()
    with common.open() as log:
        _list(log, which.latest(which.of(log.ancestry(headish))), common)


def children(headish: str, /, *, which: TurnFilter = _ALL_TURNS, common: Common = COMMON) -> None:
    """List the turns that continue a turn, in the order in which they were recorded.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    which.check()
    with common.open() as log:
        _list(log, which.latest(which.of(log.children(headish))), common)


def _list(log: TurnLog, turns: list[Turn], common: Common) -> None:
    if common.json:
        write_json_lines(turn.to_record() for turn in turns)
    else:
        TurnRows.of(log, turns, Screen.of_stdout()).write(turns)
