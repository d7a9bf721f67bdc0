"""Bookmarks: names for turns."""

from __future__ import annotations

from typing import Literal

from turnlog.errors import UnknownBookmarkError
from turnlog.events import BOOKMARK
from turnlog.model.kinds import check_kind, check_type
from turnlog.projections import Bookmark
from turnlog.projections.bookmarks import all_bookmarks, head
from turnlog.record import Redaction, plan_bookmark_delete, plan_bookmark_rename, plan_bookmark_set
from turnlog.record.fields import check_bookmark_name, check_expected_head
from turnlog.record.redaction import NOTHING
from turnlog.sources import Sources
from turnlog.store import Store, WriteTransaction


class Bookmarks:
    """Names for turns. `TurnLog.bookmarks` is one. Turns move them along; see `TurnLog.add_turn`."""

    def __init__(self, store: Store, sources: Sources, redaction: Redaction = NOTHING) -> None:
        """Take the parts of a log."""
        self._store = store
        self._sources = sources
        self._redaction = redaction

    def all(self) -> list[Bookmark]:
        """Return all bookmarks, by name."""
        with self._store.read() as transaction:
            return all_bookmarks(transaction)

    def get(self, name: str) -> Bookmark:
        """Return a bookmark.

        Raises:
            MetaError: the name is no text.
            UnknownBookmarkError: there is none of this name.
        """
        with self._store.read() as transaction:
            turn = head(transaction, name) if check_type(name, str, "name").isprintable() else None
        if turn is None:
            raise UnknownBookmarkError(f"no bookmark {name!r}", name=name)
        return Bookmark(name=name, turn=turn)

    def check_name(self, name: str) -> None:
        """Check that a name can be that of a bookmark. Nothing is looked up, so that no server is sent a secret.

        Raises:
            MetaError: it cannot.
            SecretError: a redaction hook finds something in it.
            RedactionError: a redaction hook failed.
        """
        self._store.check_open()
        check_bookmark_name(name)
        self._redaction.refuse(BOOKMARK, {"bookmark": name})

    def set(self, name: str, headish: str, *, expected_head: str | Literal[False] | None = None) -> Bookmark:
        """Point a bookmark at a turn. On return the event is on disk.

        Args:
            name: the bookmark; it is made if there is none of this name.
            headish: the turn, by id or bookmark.
            expected_head: the turn id that it must be at, False if it must not exist yet. Else nothing is written.

        Raises:
            MetaError: the name cannot be that of a bookmark.
            SecretError: a redaction hook finds something in the name.
            RedactionError: a redaction hook failed.
            UnknownTurnError: there is no such turn.
            HeadConflictError: the bookmark is not at `expected_head`.
        """
        self.check_name(name)
        expected = check_expected_head(expected_head)
        recorded = self._store.write(lambda t: plan_bookmark_set(t, name, headish, expected, self._sources))
        return Bookmark(name=name, turn=recorded.header.citations[0].id)

    def rename(self, name: str, to: str) -> Bookmark:
        """Give a bookmark another name, and return it as it is then. On return the event is on disk.

        Raises:
            MetaError: the new name cannot be that of a bookmark, or the old one is no text.
            SecretError: a redaction hook finds something in the new name.
            RedactionError: a redaction hook failed.
            UnknownBookmarkError: there is no bookmark `name`.
            BookmarkExistsError: there is a bookmark `to`.
        """
        self.check_name(to)
        check_kind(name, str, "name")

        def plan(transaction: WriteTransaction) -> str:
            plan_bookmark_rename(transaction, name, to, self._sources)
            turn = head(transaction, to)
            assert turn is not None
            return turn

        return Bookmark(name=to, turn=self._store.write(plan))

    def delete(self, name: str) -> None:
        """Delete a bookmark; the turns stay. On return the event is on disk.

        Raises:
            MetaError: the name is no text.
            UnknownBookmarkError: there is none of this name.
        """
        check_kind(name, str, "name")
        self._store.write(lambda transaction: plan_bookmark_delete(transaction, name, self._sources))
