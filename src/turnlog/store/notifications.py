"""The log as eventsourcing's followers and projections read it: notifications, and subscriptions to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from eventsourcing.persistence import ApplicationRecorder, Notification, StoredEvent, Subscription

from turnlog.events import Recorded
from turnlog.store.interface import Store
from turnlog.store.reading import Reader
from turnlog.store.waiting import Latch

_RECORDED = "recorded"
"""The attribute in which a notification carries its event as it was read, so that nobody need read it again."""


def notification_of(recorded: Recorded) -> Notification:
    """Return the notification of an event: the library's own, equal to any other one of it."""
    header = recorded.header
    notification = Notification(
        id=recorded.global_position,
        originator_id=header.stream,
        originator_version=header.position,
        topic=header.topic,
        state=recorded.state,
    )
    vars(notification)[_RECORDED] = recorded
    return notification


def carried_by(stored_event: StoredEvent) -> Recorded | None:
    """Return the event that a notification carries; None where it carries none."""
    return vars(stored_event).get(_RECORDED)


def select_notifications(
    store: Store,
    start: int | None,
    limit: int,
    stop: int | None,
    topics: Sequence[str],
    *,
    inclusive_of_start: bool,
) -> list[Notification]:
    """Return events in global order, from `start` (included or not) to `stop` (included), at most `limit`."""
    after = 0 if start is None else max(0, start - 1 if inclusive_of_start else start)
    found: list[Notification] = []
    with store.read() as transaction:
        for recorded in transaction.log(after, topics=tuple(topics)):
            if len(found) >= limit or (stop is not None and recorded.global_position > stop):
                break
            found.append(notification_of(recorded))
    return found


class LogSubscription(Subscription[ApplicationRecorder]):
    """All events above a global position, in order, and then those that are recorded, as they are.

    It has no thread of its own. `stop` ends it, also while another thread waits for the next event.

    Raises while it is iterated over:
        StoreCutError: the log ends before the position, or was cut or rolled back since.
        CorruptionError: a stored event is damaged or missing.
        StoreClosedError: the store is closed, or was closed meanwhile.
    """

    def __init__(self, recorder: ApplicationRecorder, store: Store, gt: int | None, topics: Sequence[str]) -> None:
        """Begin after a global position; None for the beginning."""
        super().__init__(recorder, gt, topics)
        self._store = store
        self._reader = Reader(store, gt or 0, topics)
        self._ready: deque[Recorded] = deque()
        self._latch = Latch()

    def stop(self) -> None:
        """End it."""
        super().stop()
        self._latch.open()

    def __next__(self) -> Notification:
        """Return the next event; wait for it."""
        while not self._has_been_stopped:
            if self._ready:
                return notification_of(self._ready.popleft())
            if (events := self._reader.read()) is None:
                self._wait()
            else:
                self._ready.extend(events)
        raise StopIteration

    def _wait(self) -> None:
        watch = self._store.watch(self._reader.position, self._latch.open, backwards=True)
        try:
            if not self._has_been_stopped:
                self._latch.wait(None)
        finally:
            self._store.unwatch(watch)
        watch.result()

    def __del__(self) -> None:
        """End it: whoever had it is gone."""
        with suppress(AttributeError):
            self.stop()
