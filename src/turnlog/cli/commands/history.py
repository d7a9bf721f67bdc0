"""`turnlog log`, `threads`, `ancestry` and `children`: turns in their order."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, write_json_lines
from turnlog.cli.rows import TurnRows, when
from turnlog.cli.text import count, one_line
from turnlog.log import TurnLog
from turnlog.turn import Turn

_THREAD_FIELDS = ("id", "turns", "heads", "bookmarks", "started", "last")


def log(
    headish: str | None = None,
    /,
    *,
    all: Annotated[bool, Parameter(alias="-a", negative=(), help="All threads.")] = False,
    ancestry: Annotated[
        bool, Parameter(negative=(), help="Of HEADISH only its ancestry, and not what else grows from it.")
    ] = False,
    limit: Annotated[int | None, Parameter(alias="-n", help="Only so many turns: the latest.")] = None,
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
    if limit is not None and limit < 1:
        raise UsageError(f"log: --limit must be at least 1, got {limit}")
    with common.open() as log:
        turns = _all_turns(log) if all else _turns(log, headish, ancestry=ancestry)
        shown = turns if limit is None else turns[-limit:]
        if common.json:
            write_json_lines(turn.to_record() for turn in shown)
            return
        if not turns:
            note("no turns yet: `turnlog add TEXT` records one")
            return
        screen = Screen.of_stdout()
        if len(shown) < len(turns):
            screen.line((f"… {count(len(turns) - len(shown), 'earlier turn')}", "dim"))
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


def threads(*, common: Common = COMMON) -> None:
    """List threads, the one with the latest activity last."""
    with common.open() as log:
        found = log.threads()
        if common.json:
            write_json_lines({name: getattr(thread, name) for name in _THREAD_FIELDS} for thread in found)
            return
        if not found:
            note("no threads yet: `turnlog add TEXT` starts one")
            return
        screen = Screen.of_stdout()
        roots = [log.turn(thread.id) for thread in found]
        rows = TurnRows.of(log, roots, screen)
        screen.table(
            [
                [
                    (thread.id, "yellow"),
                    count(thread.turns, "turn"),
                    count(len(thread.heads), "head"),
                    (when(screen, datetime.fromisoformat(thread.last), rows.now), "dim"),
                    (f"[{', '.join(map(one_line, thread.bookmarks))}]" if thread.bookmarks else "", "bold green"),
                    rows.lines[thread.id],
                ]
                for thread in found
            ]
        )


def ancestry(headish: str, /, *, common: Common = COMMON) -> None:
    """List the ancestry of a turn and the turn itself, oldest first: what its context window is made of.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    with common.open() as log:
        _list(log, log.ancestry(headish), common)


def children(headish: str, /, *, common: Common = COMMON) -> None:
    """List the turns that continue a turn, in the order in which they were recorded.

    Parameters
    ----------
    headish
        A turn id or bookmark.
    """
    with common.open() as log:
        _list(log, log.children(headish), common)


def _list(log: TurnLog, turns: list[Turn], common: Common) -> None:
    if common.json:
        write_json_lines(turn.to_record() for turn in turns)
    else:
        TurnRows.of(log, turns, Screen.of_stdout()).write(turns)
