"""Projections: state folded from the log. The synchronous ones are always as new as the log itself."""

from turnlog.projections.bookmarks import Bookmark, BookmarkHeads, MovedBookmark
from turnlog.projections.checkpoints import CHECKPOINTS
from turnlog.projections.filters import EVERY_TURN, TurnFilter
from turnlog.projections.threads import Thread, ThreadIndex, thread_size, thread_turns, turns_backwards
from turnlog.projections.tree import TREE
from turnlog.projections.turns import ANYWHERE, TurnIndex, turns_within
from turnlog.store import SideTables, SyncProjection


def side_tables() -> list[SideTables]:
    """Return the tables that a store gains when they are first needed."""
    return [TREE, CHECKPOINTS]


def synchronous() -> list[SyncProjection]:
    """Return the synchronous projections, in the order in which they fold."""
    return [TurnIndex(), ThreadIndex(), BookmarkHeads()]


__all__ = [
    "ANYWHERE",
    "EVERY_TURN",
    "Bookmark",
    "BookmarkHeads",
    "MovedBookmark",
    "Thread",
    "ThreadIndex",
    "TurnFilter",
    "TurnIndex",
    "side_tables",
    "synchronous",
    "thread_size",
    "thread_turns",
    "turns_backwards",
    "turns_within",
]
