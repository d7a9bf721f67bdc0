"""From a headish to a turn."""

from __future__ import annotations

from turnlog.errors import UnknownTurnError
from turnlog.events import BOOKMARK, TURN, Arrival, Recorded, meta_of, named_head
from turnlog.ids import is_id
from turnlog.model import BookmarkMeta
from turnlog.projections import bookmarks
from turnlog.store import ReadTransaction


def find_turn(transaction: ReadTransaction, headish: str) -> Recorded:
    """Return the turn that a headish means.

    Raises:
        UnknownTurnError: there is none.
    """
    by_id = is_id(headish)
    recorded = None
    if by_id:
        recorded = transaction.event(headish.lower())
    elif headish.isprintable():  # as every bookmark is
        recorded = bookmarks.head_turn(transaction, headish)
    if recorded is None:
        raise UnknownTurnError(f"no {'turn' if by_id else 'turn or bookmark'} {headish!r}", headish=headish)
    if recorded.header.topic != TURN:
        raise UnknownTurnError(f"{headish!r} is a {recorded.header.topic} event, not a turn", headish=headish)
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
