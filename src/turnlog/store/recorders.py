"""eventsourcing's recorders on a turnlog store: what they do on every engine.

They read what turnlog recorded, and record through the same append path, so that eventsourcing's projections, tracking
and followers work on a turnlog store as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eventsourcing.persistence import ApplicationRecorder, IntegrityError, Notification, StoredEvent

from turnlog import events
from turnlog.errors import IdConflictError, StoreError
from turnlog.events import Event, Recorded
from turnlog.sources import Sources
from turnlog.store.begin import begin
from turnlog.store.interface import Store
from turnlog.store.notifications import LogSubscription, select_notifications
from turnlog.store.transactions import WriteTransaction
from turnlog.store.values import NO_PAYLOAD, Taken

if TYPE_CHECKING:
    from uuid import UUID

NO_PROCESS_RECORDER = "a turnlog store has no process recorder, use a tracking recorder"


class LogRecorder(ApplicationRecorder):
    """eventsourcing's application recorder on a turnlog store: notification id = global position."""

    _store: Store
    _sources: Sources
    """What a new log begins with."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int]:
        """Record events that have no private part, all or none; return their global positions. Durable on return.

        Raises:
            IntegrityError: an id or a position is taken (eventsourcing's own error, as its callers expect).
            StoreError: a state is not a turnlog event, or is not the event that the record says.
        """
        decoded = [(stored, events.decode(stored.state, None)) for stored in stored_events]
        for stored, event in decoded:
            header = event.header
            if (header.stream, header.position, header.topic) != (
                str(stored.originator_id),
                stored.originator_version,
                stored.topic,
            ):
                raise StoreError(f"stored event {header.id!r} says another stream, position or topic than its state")
            if header.private is not None:
                raise StoreError(f"stored event {header.id!r} has a private part, which a recorder cannot carry")

        def plan(transaction: WriteTransaction) -> list[Recorded]:
            begin(transaction, self._sources)
            return [_appended(transaction.append(event, NO_PAYLOAD), event) for _, event in decoded]

        try:
            # Positions are known once it is committed.
            return [recorded.global_position for recorded in self._store.write(plan)]
        except IdConflictError as error:
            raise IntegrityError(str(error)) from error

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return events in global order, from `start` (included or not) to `stop` (included), at most `limit`."""
        return select_notifications(self._store, start, limit, stop, topics, inclusive_of_start=inclusive_of_start)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> LogSubscription:
        """Return an iterator over the events above a global position, which waits for more; see `LogSubscription`."""
        return LogSubscription(self, self._store, gt, topics)

    def convert_originator_id(self, originator_id: str) -> UUID | str:
        """Return a stream's id as it is: text."""
        return originator_id


def _appended(outcome: Recorded | Taken, event: Event) -> Recorded:
    if isinstance(outcome, Taken):
        what = f"the {outcome.name.lower()} of event {event.header.id!r} is taken by another event"
        raise IdConflictError(what, event_id=event.header.id)
    return outcome
