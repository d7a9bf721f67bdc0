"""From a headish to a turn."""

from __future__ import annotations

import re

from turnlog.errors import UnknownTurnError
from turnlog.events import BOOKMARK, TURN, Arrival, Recorded, meta_of, named_head
from turnlog.ids import is_id
from turnlog.model import BookmarkMeta
from turnlog.projections import bookmarks
from turnlog.store import ReadTransaction

_BACK = re.compile(r"(?P<name>.+)~(?P<steps>[0-9]{1,9})", re.DOTALL)
"""What means a turn, and how many first parents before that the turn is that is meant."""


def find_turn(transaction: ReadTransaction, headish: str) -> Recorded:
    """Return the turn that a headish means: the turn of an id, the head of a bookmark, or with `~N` behind either the
    Nth first parent of that. A bookmark whose own name ends so comes first.

    Raises:
        UnknownTurnError: there is none.
    """
    try:
        return _named_turn(transaction, headish, headish)
    except UnknownTurnError:
        back = _BACK.fullmatch(headish)
        if back is None:
            raise
    name = back["name"]
    turn = _named_turn(transaction, name, headish)
    for step in range(int(back["steps"])):
        parents = turn.header.parents
        if not parents:
            line = f"the line of first parents of {name!r} begins {step} before it"
            raise UnknownTurnError(f"no turn {headish!r}: {line}", headish=headish)
        turn = _named_turn(transaction, parents[0].id, headish)
    return turn


def _named_turn(transaction: ReadTransaction, name: str, headish: str) -> Recorded:
    """Return the turn of an id, or the head of a bookmark. `headish` is what was asked for.

    Raises:
        UnknownTurnError: there is none.
    """
    by_id = is_id(name)
    recorded = None
    if by_id:
        recorded = transaction.event(name.lower())
    elif name.isprintable():  # as every bookmark is
        recorded = bookmarks.head_turn(transaction, name)
    if recorded is None:
        raise UnknownTurnError(f"no {'turn' if by_id else 'turn or bookmark'} {name!r}", headish=headish)
    if recorded.header.topic != TURN:
        raise UnknownTurnError(f"{name!r} is a {recorded.header.topic} event, not a turn", headish=headish)
    return recorded


def find_event(transaction: ReadTransaction, headish: str) -> Recorded:
    """Return the event of an id, else the turn that a headish means.

    Raises:
        UnknownTurnError: there is none.
    """
    recorded = transaction.event(headish.lower()) if is_id(headish) else None
    return recorded or find_turn(transaction, headish)


def head_before(transaction: ReadTransaction, name: str, global_position: int) -> str | None:
    """Return the turn that a bookmark pointed at before an event of the log, or None if it did not exist.

    Reads the log backwards, through renames: for rare questions about the past.
    """
    for recorded in transaction.log_backwards(global_position, topics=(TURN, BOOKMARK)):
        if recorded.unreadable or recorded.arrival == Arrival.GUEST:
            continue
        if recorded.header.topic == TURN:
            if named_head(recorded) == name:
                return recorded.header.id
            continue
        meta = meta_of(recorded, BookmarkMeta)
        match meta:
            case BookmarkMeta(action="set", name=bookmark, turn=str(moved)) if bookmark == name:
                return moved
            case BookmarkMeta(action="rename", to=bookmark) if bookmark == name:
                name = meta.name
            case BookmarkMeta(action="rename" | "delete", name=bookmark) if bookmark == name:
                return None
            case _:
                pass
    return None
