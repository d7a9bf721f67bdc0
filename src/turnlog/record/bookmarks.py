"""Plans that set, rename and delete bookmarks, as events."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType

from turnlog.errors import BookmarkExistsError, UnknownBookmarkError
from turnlog.events import BOOKMARK, Citation, Recorded, cite
from turnlog.model import BookmarkMeta
from turnlog.projections import bookmarks
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft
from turnlog.record.lookup import find_turn
from turnlog.record.turns import check_head
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, WriteTransaction


def plan_bookmark_set(
    transaction: WriteTransaction, name: str, headish: str, expected_head: str | UnsetType | None, sources: Sources
) -> Recorded:
    """Point a bookmark at a turn, wherever it is now.

    Raises:
        UnknownTurnError: there is no such turn.
        HeadConflictError: the bookmark is not where it was expected.
    """
    turn = find_turn(transaction, headish)
    check_head(transaction, name, expected_head)
    return _record(transaction, BookmarkMeta(action="set", name=name), sources, [cite(turn, "turn")])


def plan_bookmark_rename(transaction: WriteTransaction, name: str, to: str, sources: Sources) -> Recorded:
    """Give a bookmark another name. It stays where it is.

    Raises:
        UnknownBookmarkError: there is no such bookmark.
        BookmarkExistsError: the new name is taken.
    """
    _check_known(transaction, name)
    if bookmarks.head(transaction, to) is not None:
        raise BookmarkExistsError(f"bookmark {to!r} exists already: delete it first, or choose another name", name=to)
    return _record(transaction, BookmarkMeta(action="rename", name=name, to=to), sources)


def plan_bookmark_delete(transaction: WriteTransaction, name: str, sources: Sources) -> Recorded:
    """Delete a bookmark. The turns stay.

    Raises:
        UnknownBookmarkError: there is no such bookmark.
    """
    _check_known(transaction, name)
    return _record(transaction, BookmarkMeta(action="delete", name=name), sources)


def _record(
    transaction: WriteTransaction, meta: BookmarkMeta, sources: Sources, citations: Sequence[Citation] = ()
) -> Recorded:
    return plan_event(transaction, EventDraft(topic=BOOKMARK, meta=meta), NO_PAYLOAD, sources, citations)


def _check_known(transaction: ReadTransaction, name: str) -> None:
    if not name.isprintable() or bookmarks.head(transaction, name) is None:
        raise UnknownBookmarkError(f"no bookmark {name!r}", name=name)
