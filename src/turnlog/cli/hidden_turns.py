"""Turns that a new bookmark comes before: its name has meant one of them until now."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from turnlog.cli.output import note
from turnlog.cli.text import one_line
from turnlog.errors import MetaError, TurnlogError, UnknownTurnError
from turnlog.log import TurnLog
from turnlog.record.lookup import find_turn, is_bookmark


@contextmanager
def telling_of_hidden(log: TurnLog, bookmark: str | Literal[False] | None) -> Generator[None]:
    """Say in a line, once a bookmark is made, which turn its name no longer means.

    Args:
        log: the log.
        bookmark: the name of the bookmark that is set meanwhile; False or None for none.
    """
    turn = _meant(log, bookmark) if isinstance(bookmark, str) and bookmark.isprintable() else None
    try:
        yield
    finally:
        if isinstance(bookmark, str) and turn is not None and _is_bookmark(log, bookmark):
            note(f"{one_line(bookmark)!r} means this bookmark from now on, and not turn {turn} any more")


def _meant(log: TurnLog, name: str) -> str | None:
    """Return the id of the turn that a name means without being a bookmark; None where it means none, or is refused."""
    try:
        log.bookmarks.check_name(name)
    except TurnlogError:
        return None
    with log.store.read() as transaction:
        try:
            return None if is_bookmark(transaction, name) else find_turn(transaction, name).header.id
        except (MetaError, UnknownTurnError):
            return None


def _is_bookmark(log: TurnLog, name: str) -> bool:
    try:
        with log.store.read() as transaction:
            return is_bookmark(transaction, name)
    except TurnlogError:
        return False  # what failed before is told
