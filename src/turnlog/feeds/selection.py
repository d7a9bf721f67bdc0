"""Which events a follower wants: by topic, by thread, by bookmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import Struct

from turnlog.events import BOOKMARK, Arrival, Recorded, meta_of
from turnlog.model import BookmarkMeta
from turnlog.model.kinds import check_texts
from turnlog.projections.belonging import ThreadsInOrder, turns_of
from turnlog.projections.bookmarks import moved_head
from turnlog.record import find_turn
from turnlog.record.fields import check_bookmark_name, check_headish
from turnlog.store import ReadTransaction


def topics_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return topics as a list, also one alone.

    Raises:
        MetaError: one of them is none.
    """
    return check_texts((given,) if isinstance(given, str) else given, "topics", "['gpt.turn']")


class Selection(Struct, frozen=True, kw_only=True):
    """What is wanted. All conditions that are given must hold.

    Attributes:
        topics: the topics; empty for all.
        thread: a turn, by id or bookmark. Wanted is what is about the turns of its threads: these turns themselves, the
            calls that were made from them, the replies to these, and whatever else cites one of them.
        bookmark: a name. Wanted are the turns that moved it, what is about them as above, and the events that set,
            renamed or deleted it.
    """

    topics: tuple[str, ...] = ()
    thread: str | None = None
    bookmark: str | None = None

    @classmethod
    def of(cls, topics: str | Sequence[str], thread: str | None, bookmark: str | None) -> Selection:
        """Return a selection of what a caller gives.

        Raises:
            MetaError: one of them is none.
        """
        return cls(
            topics=topics_of(topics),
            thread=None if thread is None else check_headish(thread, "thread"),
            bookmark=None if bookmark is None else check_bookmark_name(bookmark),
        )

    def selector(self, transaction: ReadTransaction) -> Selector | None:
        """Return what picks events, or None where the topic says all.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        conditions: list[Condition] = []
        if self.thread is not None:
            conditions.append(_OfThread(transaction, find_turn(transaction, self.thread)).of)
        if self.bookmark is not None:
            conditions.append(_OfBookmark(self.bookmark).of)
        return Selector(conditions) if conditions else None

    def before_last(self, transaction: ReadTransaction, count: int) -> int:
        """Return the global position before the last `count` wanted events, or before all where there are fewer.

        The log is read backwards, until there are so many; to its beginning where there are not.

        Raises:
            UnknownTurnError: there is no such turn.
        """
        selector = self.selector(transaction)
        start = transaction.log_end()
        events = transaction.log_backwards(start + 1, topics=self.topics)
        wanted = (each for each in events if selector is None or selector.has(transaction, each))
        for each in islice(wanted, min(count, start)):  # there are no more, and it takes no number that is too large
            start = each.global_position - 1
        return start


Condition = Callable[[ReadTransaction, Recorded], bool]


class Selector:
    """Picks events. It keeps in memory what it found out of threads, which never changes: for one follower."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        """Take what must hold."""
        self._conditions = conditions

    def has(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        """Tell whether an event is wanted."""
        return all(condition(transaction, recorded) for condition in self._conditions)


class _OfThread:
    """Whether events are about turns of some threads."""

    def __init__(self, transaction: ReadTransaction, turn: Recorded) -> None:
        self._found = ThreadsInOrder()
        self._threads = frozenset(self._found.of(transaction, turn.header))

    def of(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        return any(
            not self._threads.isdisjoint(self._found.of(transaction, turn.header))
            for turn in turns_of(transaction, recorded)
        )


class _OfBookmark:
    """Whether events are about turns that moved a bookmark, or about the bookmark itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def of(self, transaction: ReadTransaction, recorded: Recorded) -> bool:
        if recorded.header.topic == BOOKMARK:
            return self._is_named(recorded)
        return any(moved_head(turn) == self._name for turn in turns_of(transaction, recorded))

    def _is_named(self, recorded: Recorded) -> bool:
        if recorded.unreadable or recorded.arrival == Arrival.GUEST:
            return False
        meta = meta_of(recorded, BookmarkMeta)
        return self._name in (meta.name, meta.to)
