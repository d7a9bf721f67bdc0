"""Reading a log a page at a time, and noticing when it was cut or rolled back between two pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import islice
from threading import Lock
from typing import NamedTuple

from turnlog.errors import CorruptionError, StoreCutError
from turnlog.events import ERASURE, Recorded
from turnlog.store.telling import Teller
from turnlog.store.transactions import ReadTransaction
from turnlog.store.waiting import take

_log = Teller("turnlog.store")

PAGE_EVENTS = 1000
"""How many events are read in one transaction at most, so that a reader that takes its time holds nothing up."""

TAIL_EVENTS = 1000
"""How many of the last events are kept in memory for those who follow the log."""

ANOTHER = "is another log, or one of two stores of this log that went different ways, of which a user can use but one"
"""What a log may be that has not what was read of it, if it was not cut: what is kept of a log goes by its id."""


class Seen(NamedTuple):
    """An event that was read or passed over, by which a log is known again. Nothing of its content."""

    position: int
    event_id: str
    digest: str | None = None
    """Its digest, where that is known."""


def seen_of(event: Recorded) -> Seen:
    """Return what an event is known by."""
    return Seen(event.global_position, event.header.id, event.digest)


class Page(NamedTuple):
    """Some events in global order. All up to `position` was looked at."""

    events: list[Recorded]
    position: int
    seen: Seen | None
    """The event at `position`, wanted or not; None at 0, and where it cannot be read."""


def read_page(
    transaction: ReadTransaction, after: int, *, topics: tuple[str, ...] = (), seen: Seen | None = None
) -> Page:
    """Return the events above a global position, as many as a page has.

    Args:
        transaction: a snapshot.
        after: a global position.
        topics: only these; empty for all.
        seen: an event that was passed before, and has to be there still.

    Raises:
        StoreCutError: the log ends below `after`, or has another event where `seen` was.
        CorruptionError: a stored event is damaged.
    """
    end = transaction.log_end()
    if end < after:
        raise StoreCutError(
            f"the log ends at global position {end:,}, and {after:,} was read before: it was cut or rolled back, "
            f"or {ANOTHER}",
            position=after,
            end=end,
        )
    passed = seen and check_seen(transaction, seen.position, seen.event_id, digest=seen.digest)
    if end == after:
        return Page([], after, seen_of(passed) if passed else _seen_at(transaction, after))
    events = list(islice(transaction.log(after, topics=topics), PAGE_EVENTS))
    position = events[-1].global_position if len(events) == PAGE_EVENTS else end
    is_last = bool(events) and events[-1].global_position == position
    return Page(events, position, seen_of(events[-1]) if is_last else _seen_at(transaction, position))


def _seen_at(transaction: ReadTransaction, position: int) -> Seen | None:
    # Whoever wants an event that is damaged is told so when it is read for them.
    with suppress(CorruptionError):
        event = transaction.at_global(position) if position else None
        return None if event is None else seen_of(event)
    return None


_POSITION_MAX = (1 << 63) - 1
"""No event is behind it: engines count no further."""


def check_seen(transaction: ReadTransaction, position: int, event_id: str, *, digest: str | None = None) -> Recorded:
    """Return an event that is where it was when it was read.

    Raises:
        StoreCutError: another one is, or none.
    """
    now = transaction.at_global(position) if position <= _POSITION_MAX else None
    if now is None or now.header.id != event_id or (digest is not None and now.digest != digest):
        found = "none" if now is None else f"event {now.header.id!r}"
        if now is not None and now.header.id == event_id:
            found += " with another digest"
        _log.error("who follows the log has read event %s at %d, which is not there any more", event_id, position)
        raise StoreCutError(
            f"global position {position:,} has {found}, and had event {event_id!r} when it was read: the log was "
            f"rolled back or written anew, or {ANOTHER}",
            position=position,
            end=transaction.log_end(),
        )
    return now


def check_dense(events: list[Recorded], after: int) -> None:
    """Check that events follow each other, and a global position.

    Raises:
        CorruptionError: one is missing.
    """
    if not events or events[-1].global_position == after + len(events):
        return
    missing = next(due for due, event in enumerate(events, after + 1) if event.global_position != due)
    raise CorruptionError(
        f"global position {missing:,} is missing in the log: run `turnlog verify`", global_position=missing
    )


class _Kept(NamedTuple):
    """Events that follow each other, and the one before the first of them."""

    before: int
    seen: Seen | None
    events: list[Recorded]

    @property
    def last(self) -> int:
        """The global position of the last event."""
        return self.before + len(self.events)

    def is_behind(self, after: int, seen: Seen | None) -> bool:
        """Tell whether an event is the one that stands here at a global position."""
        here = self.seen if after == self.before else seen_of(self.events[after - self.before - 1])
        return after == 0 or here == seen

    def page(self, after: int, seen: Seen | None) -> Page | None:
        """Return what is here above a global position, where that is behind the event that was seen there."""
        if not self.before <= after < self.last or not self.is_behind(after, seen):
            return None
        return Page(self.events[after - self.before :], self.last, seen_of(self.events[-1]))

    def more(self, events: list[Recorded]) -> _Kept:
        """Return the last of these events and of those that follow them."""
        every = [*self.events, *events]
        dropped = len(every) - TAIL_EVENTS
        if dropped <= 0:
            return _Kept(self.before, self.seen, every)
        return _Kept(self.before + dropped, seen_of(every[dropped - 1]), every[dropped:])


_NOTHING = _Kept(0, None, [])


class Tail:
    """The last events of a log: read once for all who follow it, and not once for each. Safe to use from many threads.

    Who follows says which event it has passed last. What is kept is given only behind that one, and nothing is read
    where it is not there any more: the log may have been rolled back or written anew, or a server has taken over that
    lacks its last events.

    What was erased is not kept longer than until its erasure is read.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[ReadTransaction]]) -> None:
        """Take what opens a snapshot."""
        self._read = read
        self._lock = Lock()
        self._kept = _NOTHING

    def page(self, after: int, seen: Seen | None) -> Page | None:
        """Return the events above a global position, or None where that lies before what is kept.

        Args:
            after: a global position.
            seen: the event there; None at 0, and where it is not known.

        Raises:
            StoreCutError: as `read_page` does.
            CorruptionError: a stored event is damaged, or one is missing.
        """
        with self._lock:
            kept = self._kept
            if page := kept.page(after, seen):
                return page
            if kept.before <= after < kept.last:
                return None  # it has passed another event than is kept here
            if kept.events and after < kept.before:
                return None
            return self._read_on(after, seen)

    def kept(self, after: int, seen: Seen | None) -> Page | None:
        """Return what is in memory of the events above a global position; None where that is nothing. Never waits."""
        taken: list[bool] = []
        try:
            return self._kept.page(after, seen) if take(self._lock, 0, taken) else None
        finally:
            if taken and taken[0]:
                self._lock.release()

    def forget(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._kept = _NOTHING

    def _read_on(self, after: int, seen: Seen | None) -> Page:
        kept = self._kept
        if kept.last != after or not kept.is_behind(after, seen):
            kept = _Kept(after, seen, [])
        try:
            with self._read() as transaction:
                page = read_page(transaction, after, seen=seen)
            check_dense(page.events, after)
        except BaseException:
            self._kept = _NOTHING
            raise
        was_erased = any(event.header.topic == ERASURE for event in page.events)
        self._kept = _Kept(page.position, page.seen, []) if was_erased else kept.more(page.events)
        return page
