"""Reading a log a page at a time, and noticing when it was cut or rolled back between two pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
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


class Page(NamedTuple):
    """Some events in global order. All up to `position` was looked at."""

    events: list[Recorded]
    position: int


def read_page(
    transaction: ReadTransaction, after: int, *, topics: tuple[str, ...] = (), seen: Recorded | None = None
) -> Page:
    """Return the events above a global position, as many as a page has.

    Args:
        transaction: a snapshot.
        after: a global position.
        topics: only these; empty for all.
        seen: an event that was read before, and has to be there still.

    Raises:
        StoreCutError: the log ends below `after`, or has another event where `seen` was.
        CorruptionError: a stored event is damaged.
    """
    end = transaction.log_end()
    if end < after:
        raise StoreCutError(
            f"the log ends at global position {end:,}, and {after:,} was read before: it was cut or rolled back, "
            "or is another log",
            position=after,
            end=end,
        )
    if seen is not None:
        check_seen(transaction, seen.global_position, seen.header.id, digest=seen.digest)
    if end == after:
        return Page([], after)
    events = list(islice(transaction.log(after, topics=topics), PAGE_EVENTS))
    return Page(events, events[-1].global_position if len(events) == PAGE_EVENTS else end)


def check_seen(transaction: ReadTransaction, position: int, event_id: str, *, digest: str | None = None) -> None:
    """Check that an event is where it was when it was read.

    Raises:
        StoreCutError: another one is, or none.
    """
    now = transaction.at_global(position)
    if now is None or now.header.id != event_id or (digest is not None and now.digest != digest):
        found = "none" if now is None else f"event {now.header.id!r}"
        _log.error("who follows the log has read event %s at %d, which is not there any more", event_id, position)
        raise StoreCutError(
            f"global position {position:,} has {found}, and had event {event_id!r} when it was read: the log was "
            "rolled back or written anew, or is another log",
            position=position,
            end=transaction.log_end(),
        )


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


class Tail:
    """The last events of a log: read once for all who follow it, and not once for each. Safe to use from many threads.

    What was erased is not kept longer than until its erasure is read.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[ReadTransaction]]) -> None:
        """Take what opens a snapshot."""
        self._read = read
        self._lock = Lock()
        self._events: list[Recorded] = []

    def page(self, after: int) -> Page | None:
        """Return the events above a global position, or None where that lies before what is kept.

        Raises:
            StoreCutError: as `read_page` does.
            CorruptionError: a stored event is damaged, or one is missing.
        """
        with self._lock:
            found = self._kept(after)
            if found:
                return Page(found, found[-1].global_position)
            if self._events and after < self._events[0].global_position - 1:
                return None
            return self._read_on(after)

    def kept(self, after: int) -> Page | None:
        """Return what is in memory of the events above a global position; None where that is nothing. Never waits."""
        taken: list[bool] = []
        try:
            found = self._kept(after) if take(self._lock, 0, taken) else None
        finally:
            if taken and taken[0]:
                self._lock.release()
        return Page(found, found[-1].global_position) if found else None

    def forget(self) -> None:
        """Keep nothing any more."""
        with self._lock:
            self._events = []

    def _kept(self, after: int) -> list[Recorded] | None:
        """Return the events above a position, where all of them up to the last one that is kept are here."""
        events = self._events
        if not events or not events[0].global_position - 1 <= after <= events[-1].global_position:
            return None
        return events[after + 1 - events[0].global_position :]

    def _read_on(self, after: int) -> Page:
        events = self._events if self._events and self._events[-1].global_position == after else []
        try:
            with self._read() as transaction:
                page = read_page(transaction, after, seen=events[-1] if events else None)
            check_dense(page.events, after)
        except BaseException:
            self._events = []
            raise
        was_erased = any(event.header.topic == ERASURE for event in page.events)
        self._events = ([] if was_erased else [*events, *page.events])[-TAIL_EVENTS:]
        return page
