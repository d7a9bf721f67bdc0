"""Bookmarks of an imported log: guests move none by themselves, so the import sets them, by events of this log.

They are set in the transaction that records the events that moved them over there. So an import that was stopped
leaves nothing to be set later by events that are known by then, and importing the same file twice sets nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from msgspec import Struct

from turnlog.events import Recorded
from turnlog.interop.portable.report import KeptBookmark
from turnlog.projections import MovedBookmark, bookmarks
from turnlog.projections.moves import kept_move, said_move
from turnlog.record import plan_bookmark_set
from turnlog.record.lookup import may_mean_a_turn
from turnlog.sources import Sources
from turnlog.store import WriteTransaction

OnBookmark = Literal["keep", "take"]
"""What becomes of a bookmark that stands elsewhere here, and of one whose name could mean a turn here already.

It stays or is not set, or it is where the export has it.
"""


class Changes(Struct, frozen=True, kw_only=True):
    """What became of bookmarks. `closed` has those whose name cannot be read, as an index has them."""

    set: tuple[MovedBookmark, ...] = ()
    moved: tuple[MovedBookmark, ...] = ()
    kept: tuple[KeptBookmark, ...] = ()
    same: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()

    @property
    def names(self) -> AbstractSet[str]:
        """The names that are settled."""
        return {bookmark.name for bookmark in (*self.set, *self.moved, *self.kept)} | frozenset(self.same)


def plan_bookmarks(
    transaction: WriteTransaction,
    added: Sequence[Recorded],
    theirs: Mapping[str, str],
    on_bookmark: OnBookmark,
    settled: AbstractSet[str],
    sources: Sources,
) -> Changes:
    """Set the bookmarks that newly added events leave on a turn, in their order, each at most once.

    Args:
        transaction: where they were added.
        added: the events.
        theirs: where the export leaves each bookmark, in the end; by names as an index has them.
        on_bookmark: what becomes of one that stands elsewhere here, or could mean a turn here.
        settled: names that need not be looked at again.
        sources: where ids, the time and randomness come from.
    """
    set_: list[MovedBookmark] = []
    moved: list[MovedBookmark] = []
    kept: list[KeptBookmark] = []
    same: list[str] = []
    for name, kept_name in dict.fromkeys(both for recorded in added for both in _names(recorded)):
        turn = theirs.get(kept_name)
        # A later event may move it on to a turn that is still to come: that one's transaction settles it.
        if name in settled or turn is None or transaction.event(turn) is None:
            continue
        here = bookmarks.head(transaction, name)
        if here == turn:
            same.append(name)
        elif on_bookmark == "keep" and (here is not None or may_mean_a_turn(name)):
            kept.append(KeptBookmark(name=name, here=here, theirs=turn))
        else:
            plan_bookmark_set(transaction, name, turn, None, sources)
            (set_ if here is None else moved).append(MovedBookmark(name=name, before=here, after=turn))
    closed = frozenset(name for recorded in added if (name := _closed_name(recorded)) is not None and name in theirs)
    return Changes(set=tuple(set_), moved=tuple(moved), kept=tuple(kept), same=tuple(same), closed=closed)


def _names(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Give the bookmark that an event put on a turn where it was recorded, by its name and as an index has it."""
    said, kept = said_move(recorded, guests=True), kept_move(recorded, guests=True)
    if said is not None and kept is not None and said.placed is not None and kept.placed is not None:
        yield said.placed, kept.placed


def _closed_name(recorded: Recorded) -> str | None:
    """Return the bookmark that an event put on a turn, as an index has it, where its key is not here; else None."""
    kept = kept_move(recorded, guests=True) if recorded.sealed is not None and recorded.unreadable else None
    return None if kept is None else kept.placed
