"""`turnlog feeds`: what feeds there are, how far each has come, and what keeps it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from turnlog.cli.feed_rows import feed_row
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json, write_json_lines
from turnlog.cli.text import one_line, timestamp
from turnlog.events.times import parse_time
from turnlog.feeds.sinks import FeedStatus

EXIT_FAILED = 1
"""Exit status where a feed does not go on."""

app = App(
    name="feeds",
    group_commands="Commands",
    help="List what feeds there are, how far each has come, and what keeps it; move or forget one.",
)


@app.default
def list_feeds(*, common: Common = COMMON) -> int:
    """List feeds: where each delivers to, how far it has come, how far that is behind the log, and what keeps it.

    Exit status 1 if one does not go on.
    """
    with common.open() as log:
        found = log.feeds.all()
    if common.json:
        write_json_lines(found)
    elif not found:
        note("no feeds: `turnlog feed jsonl FOLDER` begins one")
    else:
        Screen.of_stdout().table([feed_row(each) for each in found])
        for each in found:
            if each.error is not None:
                note(f"{one_line(each.name)} does not go on{_since(each)}: {one_line(each.error)}")
            if each.owes:
                note(f"{one_line(each.name)} still has what was erased: `turnlog erase --finish` takes it back")
    return EXIT_FAILED if any(each.error is not None for each in found) else 0


def _since(feed: FeedStatus) -> str:
    time = parse_time(feed.error_time)
    return "" if time is None else f" since {timestamp(time)}"


@app.command(name="list")
def list_(*, common: Common = COMMON) -> int:
    """List feeds."""
    return list_feeds(common=common)


@app.command
def status(*, common: Common = COMMON) -> int:
    """List feeds."""
    return list_feeds(common=common)


@app.command
def move(
    name: str,
    /,
    *,
    to: Annotated[int, Parameter(help="The global position up to which all counts as delivered.")],
    common: Common = COMMON,
) -> None:
    """Let a feed go on from elsewhere: over events that its destination refuses, or back, to deliver them again.

    A folder goes on where its files end: it is not moved back while it has files beyond.

    Parameters
    ----------
    name
        The feed.
    """
    with common.open() as log:
        moved = log.feeds.move(name, to)
    with telling(f"feed {name!r} is moved to global position {moved.position:,}, but that could not be printed"):
        if common.json:
            write_json(moved)
        else:
            Screen.of_stdout().table([feed_row(moved)])


@app.command
def remove(name: str, /, *, common: Common = COMMON) -> None:
    """Forget how far a feed has come. What it delivered stays, and erasures do not reach it any more.

    Parameters
    ----------
    name
        The feed.
    """
    with common.open() as log:
        feed = log.feeds.get(name)
        log.feeds.remove(name)
    with telling(f"feed {name!r} is removed, but that could not be printed"):
        if common.json:
            write_json({"name": name, "removed": True})
        else:
            Screen.of_stdout().line(("removed feed ", "dim"), (one_line(name), "bold"))
    if feed.takes_back and feed.position:
        there = one_line(feed.destination)
        note(f"erasures do not reach what is in {there!r} any more, until a feed delivers there again")
