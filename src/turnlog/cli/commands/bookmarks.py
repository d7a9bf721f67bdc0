"""`turnlog bookmarks`: list, set, rename and delete them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from turnlog.cli.completing import BOOKMARK, HEADISH
from turnlog.cli.filters import BookmarkListing, none_of
from turnlog.cli.hidden_turns import telling_of_hidden
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json, write_json_lines
from turnlog.cli.paging import paging
from turnlog.cli.rows import TurnRows, when
from turnlog.cli.text import one_line, quoted
from turnlog.errors import UnknownTurnError
from turnlog.log import TurnLog
from turnlog.projections import Bookmark
from turnlog.projections.bookmarks import bookmarks_beginning
from turnlog.record.lookup import find_turn
from turnlog.turn import turn_of

app = App(name="bookmarks", group_commands="Commands", help="List bookmarks; set, rename and delete them.")


_ALL = BookmarkListing()


@app.default
def list_bookmarks(*, which: BookmarkListing = _ALL, common: Common = COMMON) -> None:
    """List bookmarks by name; set, rename and delete them."""
    which.check()
    with common.open() as log, paging(json=common.json):
        with log.store.read() as transaction:
            found = which.of_bookmarks(transaction)
            turns = [] if common.json else [turn_of(find_turn(transaction, each.turn)) for each in found]
            is_empty = not found and not bookmarks_beginning(transaction, "", 1)
        if common.json:
            write_json_lines(found)
            return
        if not found:
            none = "no bookmarks yet: `turnlog bookmarks set NAME HEADISH` makes one"
            note(none if is_empty else none_of("bookmarks", log, which.bookmark))
            return
        screen = Screen.of_stdout()
        rows = TurnRows.of(log, turns, screen, names={})
        screen.table(
            [
                [
                    (one_line(bookmark.name), "bold green"),
                    (rows.ids.get(bookmark.turn, bookmark.turn), "yellow"),
                    (when(screen, turn.said_at, rows.now), "dim"),
                    rows.line(bookmark.turn),
                ]
                for bookmark, turn in zip(found, turns, strict=True)
            ]
        )
        rows.check()


@app.command(name="list")
def list_(*, which: BookmarkListing = _ALL, common: Common = COMMON) -> None:
    """List bookmarks by name."""
    list_bookmarks(which=which, common=common)


@app.command(name="set")
def set_(
    name: Annotated[str, BOOKMARK],
    headish: Annotated[str, HEADISH],
    /,
    *,
    expected_head: Annotated[
        str | None,
        Parameter(help="Set it only if it is at this turn id; `none`: only if there is no such bookmark yet."),
    ] = None,
    common: Common = COMMON,
) -> None:
    """Point a bookmark at a turn, wherever it is now.

    Parameters
    ----------
    name
        The bookmark.
    headish
        The turn, by id or by another bookmark.
    """
    expected = False if expected_head == "none" else expected_head
    with common.open() as log, telling_of_hidden(log, name):
        try:
            bookmark = log.bookmarks.set(name, headish, expected_head=expected)
        except UnknownTurnError as error:
            if _is_turn(log, name):
                error.add_note(f"the new name comes first: turnlog bookmarks set {quoted(headish)} {quoted(name)}")
            raise
    _report(bookmark, common, "is set to")


def _is_turn(log: TurnLog, headish: str) -> bool:
    try:
        log.turn(headish)
    except UnknownTurnError:
        return False
    return True


@app.command
def rename(name: Annotated[str, BOOKMARK], to: str, /, *, common: Common = COMMON) -> None:
    """Give a bookmark another name.

    Parameters
    ----------
    name
        The bookmark.
    to
        Its new name.
    """
    with common.open() as log, telling_of_hidden(log, to):
        bookmark = log.bookmarks.rename(name, to)
    _report(bookmark, common, "has its new name, and is at")


@app.command
def delete(name: Annotated[str, BOOKMARK], /, *, common: Common = COMMON) -> None:
    """Delete a bookmark. The turns stay.

    Parameters
    ----------
    name
        The bookmark.
    """
    with common.open() as log:
        log.bookmarks.delete(name)
    with telling(f"bookmark {name!r} is deleted, and that is recorded, but it could not be printed"):
        if common.json:
            write_json({"name": name, "turn": None})
        else:
            Screen.of_stdout().line(("deleted bookmark ", "dim"), (one_line(name), "bold green"))


def _report(bookmark: Bookmark, common: Common, done: str) -> None:
    with telling(f"bookmark {bookmark.name!r} {done} {bookmark.turn}, and that is recorded, but could not be printed"):
        if common.json:
            write_json(bookmark)
        else:
            Screen.of_stdout().line((one_line(bookmark.name), "bold green"), "  ", (bookmark.turn, "yellow"))
