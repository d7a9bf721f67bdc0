"""eventsourcing's recorders and factory on a turnlog store.

They read what turnlog recorded, and record through the same append path, so that eventsourcing's projections, tracking
and followers work on a turnlog store as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteFactory,
    SQLiteProcessRecorder,
    SQLiteTrackingRecorder,
)

from turnlog import events
from turnlog.errors import IdConflictError, StoreError
from turnlog.events import Event, Recorded
from turnlog.sources import Sources
from turnlog.store.begin import begin
from turnlog.store.interface import Store
from turnlog.store.notifications import LogSubscription, select_notifications
from turnlog.store.sqlite.connections import LogDatastore
from turnlog.store.sqlite.schema import STATEMENTS
from turnlog.store.transactions import WriteTransaction
from turnlog.store.values import NO_PAYLOAD, Taken

if TYPE_CHECKING:
    from uuid import UUID

_COLUMNS = "originator_id, originator_version, topic, state"


class SQLiteLogRecorder(SQLiteApplicationRecorder):
    """eventsourcing's application recorder on a turnlog store: notification id = global position."""

    def __init__(self, store: Store, datastore: LogDatastore, sources: Sources) -> None:
        """Take the store, its datastore, and what a new log begins with."""
        super().__init__(datastore)
        self.datastore: LogDatastore = datastore
        self._store = store
        self._sources = sources
        self.select_events_statement = f"SELECT {_COLUMNS} FROM {self.events_table_name} WHERE originator_id=? "
        self.select_max_notification_id_statement = f"SELECT MAX(notification_id) FROM {self.events_table_name}"

    def construct_create_table_statements(self) -> list[str]:
        """Return the statements that make turnlog's tables."""
        return list(STATEMENTS)

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

        def plan(transaction: WriteTransaction) -> list[int]:
            begin(transaction, self._sources)
            return [_appended(transaction.append(event, NO_PAYLOAD), event) for _, event in decoded]

        try:
            return self._store.write(plan)
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


def _appended(outcome: Recorded | Taken, event: Event) -> int:
    if isinstance(outcome, Taken):
        what = f"the {outcome.name.lower()} of event {event.header.id!r} is taken by another event"
        raise IdConflictError(what, event_id=event.header.id)
    return outcome.global_position


class SQLiteLogTrackingRecorder(SQLiteTrackingRecorder):
    """eventsourcing's tracking recorder, with its table beside the log."""


class SQLiteLogFactory(SQLiteFactory):
    """eventsourcing's infrastructure factory for an open turnlog store."""

    tracking_recorder_class = SQLiteLogTrackingRecorder

    def __init__(self, store: Store, datastore: LogDatastore, sources: Sources) -> None:
        """Take an open store instead of the name of a database in the environment."""
        super().__init__({self.SQLITE_DBNAME: datastore.pool.db_name, self.ORIGINATOR_ID_TYPE: "text"})
        self.datastore.close()
        self.datastore = datastore
        self._store = store
        self._sources = sources

    def application_recorder(self) -> SQLiteLogRecorder:
        """Return a recorder of the log."""
        return SQLiteLogRecorder(self._store, self.datastore, self._sources)

    def process_recorder(self) -> SQLiteProcessRecorder:
        """Refuse: a turnlog store records events through one path, tracking is recorded beside projections."""
        raise NotImplementedError("a turnlog store has no process recorder, use a tracking recorder")
