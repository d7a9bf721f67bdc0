"""`turnlog projections`: what is derived from the log; how it is doing, bringing it up to date, building it anew."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from turnlog.cli.options import COMMON, Common
from turnlog.cli.outages import waited_for
from turnlog.cli.output import Piece, Screen, note, telling, write_json, write_json_lines
from turnlog.cli.progress import progress_bar
from turnlog.cli.text import count, one_line
from turnlog.errors import NotFoundError, StoreError
from turnlog.feeds.projection import Status
from turnlog.feeds.statuses import ways_on
from turnlog.projections.tree import TREE

EXIT_PAUSED = 1
"""Exit status where a projection does not go on."""

app = App(
    name="projections",
    group_commands="Commands",
    help="List what is derived from the log; bring it up to date, build it anew.",
)


@app.default
def list_projections(*, common: Common = COMMON) -> None:
    """List what is derived from the log and kept beside it: indexes and the like."""
    with common.open() as log:
        with log.store.read() as transaction:
            found = [(each.name, each.version, each.tables) for each in log.store.projections]
            if transaction.has(TREE):
                found.append((TREE.name, 1, TREE.tables))
        found += [(each.name, each.version, (*each.tables, *each.objects)) for each in log.feeds.projections]
    if common.json:
        write_json_lines({"name": name, "version": version, "tables": tables} for name, version, tables in found)
        return
    Screen.of_stdout().table(
        [[(name, "cyan"), f"version {version}", ", ".join(tables)] for name, version, tables in found]
    )


@app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List what is derived from the log."""
    list_projections(common=common)


@app.command
def status(*, common: Common = COMMON) -> int:
    """Show how far projections beside the log have come. Indexes in the store itself are always as new as the log.

    Exit status 1 if one is paused or cannot go on.
    """
    with common.open() as log:
        return _write(log.feeds.status(), common)


@app.command
def run(
    *names: str,
    follow: Annotated[bool, Parameter(alias="-f", negative=(), help="Go on with what is recorded.")] = False,
    common: Common = COMMON,
) -> int:
    """Bring projections beside the log up to date. New ones, and those of an older version, are built.

    Exit status 1 if one is paused.

    Parameters
    ----------
    names
        Which, such as search; all of them by default.
    """
    with common.open() as log:
        if follow:
            waited_for(partial(log.feeds.runner().follow, names))
        with progress_bar("folding") as progress:
            statuses = log.feeds.run(names, progress=progress)
    with telling("projections are brought up to date, as far as they go on, but that could not be printed"):
        return _write(statuses, common)


@app.command
def skip(
    name: str,
    /,
    *,
    reason: Annotated[str, Parameter(help="Why. It is kept.")],
    common: Common = COMMON,
) -> None:
    """Pass over the event that a projection is paused at, and keep that on record.

    Parameters
    ----------
    name
        The projection.
    """
    with common.open() as log:
        skipped = log.feeds.skip(name, reason)
    if common.json:
        with telling(f"{name} passes over event {skipped.event_id}, but that could not be printed"):
            write_json(skipped)
    else:
        note(f"{name} passes over event {skipped.event_id}: `turnlog projections run {name}` goes on")


@app.command
def rebuild(*names: str, common: Common = COMMON) -> None:
    """Build projections anew from the log, in place. Others can append meanwhile.

    Indexes and triggers of the store that are missing are made again too.

    Parameters
    ----------
    names
        Which, such as 'bookmark heads' or search; by default all that are in the store, not those beside it.
    """
    with common.open() as log, progress_bar("rebuilding") as progress:
        known = [
            *(each.name for each in log.store.projections),
            TREE.name,
            *(each.name for each in log.feeds.projections),
        ]
        for name in names:
            if name not in known:
                raise NotFoundError(f"no projection {name!r} (one of {', '.join(map(repr, known))})")
        beside = [each.name for each in log.feeds.projections if each.name in names]
        inside = [name for name in names if name not in beside]
        built = log.rebuild_projections(inside, progress=progress) if inside or not names else []
        for name in beside:
            log.feeds.rebuild(name, progress=progress)
        left: list[str] = []
        # What is wrong with these, whoever asks them is told.
        with suppress(StoreError):
            left = [] if names else log.feeds.built()
    done = (*built, *beside)
    with telling(f"{count(len(done), 'projection')} built anew from the log, but that could not be printed"):
        if common.json:
            write_json_lines({"name": name} for name in done)
        else:
            screen = Screen.of_stdout()
            for name in done:
                screen.line((name, "cyan"), "  built anew from the log")
    if left:
        note(f"beside the store, and as they were: {', '.join(left)}; `turnlog projections rebuild {' '.join(left)}`")


def _write(statuses: Sequence[Status], common: Common) -> int:
    if common.json:
        write_json_lines(statuses)
    else:
        Screen.of_stdout().table([_row(each) for each in statuses])
        for each in statuses:
            if each.error is not None and each.paused_at is None:
                note(each.error)
            elif each.error is not None:
                note(
                    f"{each.name} is paused at global position {each.paused_at:,}, event {each.paused_event}: "
                    f"{one_line(each.error)}; {ways_on(each)}"
                )
    return EXIT_PAUSED if any(each.error is not None for each in statuses) else 0


def _row(each: Status) -> list[Piece]:
    if each.version == 0:
        state: Piece = ("not built yet", "dim")
    elif each.error is not None:
        state = ("cannot go on" if each.paused_at is None else "paused", "bold red")
    elif each.lag:
        state = (f"{count(each.lag, 'event')} behind", "yellow")
    else:
        state = ("up to date", "green")
    skipped = f"{count(len(each.skipped), 'event')} skipped" if each.skipped else ""
    return [(each.name, "cyan"), f"version {each.version or '-'}", f"to {each.position:,}", skipped, state]
