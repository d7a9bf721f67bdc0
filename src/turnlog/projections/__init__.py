"""Projections: state folded from the log. The synchronous ones are always as new as the log itself."""

from turnlog.projections.bookmarks import Bookmark, BookmarkHeads
from turnlog.projections.threads import Thread, ThreadIndex, thread_turns
from turnlog.projections.turns import TurnIndex
from turnlog.store import SyncProjection


def synchronous() -> list[SyncProjection]:
    """Return the synchronous projections, in the order in which they fold."""
    return [TurnIndex(), ThreadIndex(), BookmarkHeads()]


__all__ = ["Bookmark", "BookmarkHeads", "Thread", "ThreadIndex", "TurnIndex", "synchronous", "thread_turns"]
