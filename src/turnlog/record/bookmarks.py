"""Plans that set, rename and delete bookmarks, as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnlog.errors import BookmarkExistsError, HeadConflictError, SealError, UnknownBookmarkError
from turnlog.events import BOOKMARK, Citation, DataKey, Recorded, cite
from turnlog.events.sealing import find_key
from turnlog.model import BookmarkMeta
from turnlog.projections import bookmarks
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft
from turnlog.record.lookup import find_turn
from turnlog.record.sealing import general_key, key_after
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, WriteTransaction
from turnlog.store.sealing import checked_seals


def plan_bookmark_set(
    transaction: WriteTransaction, name: str, headish: str, expected_head: str | Literal[False] | None, sources: Sources
) -> Recorded:
    """Point a bookmark at a turn, wherever it is now.

    Raises:
        UnknownTurnError: there is no such turn.
        HeadConflictError: the bookmark is not where it was expected.
    """
    turn = find_turn(transaction, headish)
    check_head(transaction, name, expected_head)
    return _set(transaction, name, turn, sources)


def plan_bookmark_rename(transaction: WriteTransaction, name: str, to: str, sources: Sources) -> Recorded:
    """Give a bookmark another name. It stays where it is.

    Raises:
        UnknownBookmarkError: there is no such bookmark.
        BookmarkExistsError: the new name is taken.
    """
    kept = _kept(transaction, name)
    check_seen(transaction, to)
    if bookmarks.head(transaction, to) is not None:
        raise BookmarkExistsError(f"bookmark {to!r} exists already: delete it first, or choose another name", name=to)
    if not kept.is_sealed and general_key(transaction) is not None:
        # Its old name is known. The new one is not to be.
        turn = find_turn(transaction, name)
        give_up_name(transaction, name, sources, is_sealed=True)
        return _set(transaction, to, turn, sources)
    meta = BookmarkMeta(action="rename", name=name, to=to)
    return _record(transaction, meta, sources, key=_key_of(transaction, kept))


def plan_bookmark_delete(transaction: WriteTransaction, name: str, sources: Sources) -> Recorded:
    """Delete a bookmark. The turns stay.

    Raises:
        UnknownBookmarkError: there is no such bookmark.
    """
    return _delete(transaction, name, _kept(transaction, name), sources)


def give_up_name(transaction: WriteTransaction, name: str, sources: Sources, *, is_sealed: bool) -> None:
    """Delete a bookmark that is sealed where another event is about to set it that is not, or the other way round.

    The indexes know a name as it is, or as a tag: it must not be in them as both.

    Raises:
        SealError: whether it is a sealed one cannot be seen without keys.
    """
    if not is_sealed and (name in transaction.heads or not bookmarks.has_sealed(transaction)):
        return
    check_seen(transaction, name)
    kept = bookmarks.kept(transaction, name)
    if kept is not None and kept.is_sealed != is_sealed:
        _delete(transaction, name, kept, sources)


def check_seen(transaction: ReadTransaction, name: str) -> None:
    """Check that whether there is a bookmark of a name can be seen.

    Raises:
        SealError: there are sealed ones, and their keys are not here.
    """
    if transaction.seals is None and bookmarks.has_sealed(transaction) and bookmarks.kept(transaction, name) is None:
        raise SealError(
            f"bookmark {name!r} may be one of those whose names are sealed, and the keys are not here: "
            "nothing was recorded. Open the log with `seals=`"
        )


def check_head(transaction: ReadTransaction, bookmark: str | None, expected: str | Literal[False] | None) -> None:
    """Check that a bookmark is where a caller expects it: at a turn, or (False) nowhere; None expects nothing.

    Raises:
        HeadConflictError: it is elsewhere, or there is no bookmark to move.
    """
    if expected is None:
        return
    wanted = expected or None
    actual = None if bookmark is None else bookmarks.head(transaction, bookmark)
    if bookmark is not None and actual == wanted:
        return
    if bookmark is None:
        message = f"this turn would move no bookmark, expected one at {wanted!r}: it has moved on, or name it"
        if wanted is None:
            message = "this turn would move no bookmark, expected to make one: name it"
    elif wanted is None:
        message = f"bookmark {bookmark!r} is there already, at {actual!r}: name another one, or go on from it"
    elif actual is None:
        message = f"there is no bookmark {bookmark!r}, expected at {wanted!r}: it was deleted, or has another name"
    else:
        message = f"bookmark {bookmark!r} is at {actual!r}, expected {wanted!r}: read what is new and try again"
    raise HeadConflictError(message, bookmark=bookmark, expected=wanted, actual=actual)


def _set(transaction: WriteTransaction, name: str, turn: Recorded, sources: Sources) -> Recorded:
    key = key_after(transaction, [turn])
    give_up_name(transaction, name, sources, is_sealed=key is not None)
    return _record(transaction, BookmarkMeta(action="set", name=name), sources, [cite(turn, "turn")], key=key)


def _delete(transaction: WriteTransaction, name: str, kept: bookmarks.KeptName, sources: Sources) -> Recorded:
    policy = transaction.seal_policy()
    if not kept.is_sealed and policy is not None and policy.store:
        checked_seals(transaction)  # the name stands in plain, and all else that is recorded needs the keys
    meta = BookmarkMeta(action="delete", name=name)
    return _record(transaction, meta, sources, key=_key_of(transaction, kept))


def _key_of(transaction: WriteTransaction, kept: bookmarks.KeptName) -> DataKey | None:
    """Return a key for an event that names a bookmark as the indexes know it: that of its turn, while it is here."""
    seals = transaction.seals
    if not kept.is_sealed or seals is None:
        return None
    turn = transaction.event(kept.turn)
    key = None if turn is None or turn.sealed is None else find_key(seals, turn.sealed.key)
    return key or seals.make(None)


def _record(
    transaction: WriteTransaction,
    meta: BookmarkMeta,
    sources: Sources,
    citations: Sequence[Citation] = (),
    *,
    key: DataKey | None,
) -> Recorded:
    draft = EventDraft(topic=BOOKMARK, meta=meta)
    return plan_event(transaction, draft, NO_PAYLOAD, sources, citations, key=key)


def _kept(transaction: ReadTransaction, name: str) -> bookmarks.KeptName:
    kept = bookmarks.kept(transaction, name) if name.isprintable() else None
    if kept is None:
        raise UnknownBookmarkError(f"no bookmark {name!r}", name=name)
    return kept
