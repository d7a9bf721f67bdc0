"""eventsourcing's recorders and factory on a SQLite store."""

from __future__ import annotations

from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteFactory,
    SQLiteProcessRecorder,
    SQLiteTrackingRecorder,
)

from turnlog.sources import Sources
from turnlog.store.interface import Store
from turnlog.store.recorders import NO_PROCESS_RECORDER, LogRecorder
from turnlog.store.sqlite.connections import LogDatastore
from turnlog.store.sqlite.schema import STATEMENTS

_COLUMNS = "originator_id, originator_version, topic, state"


class SQLiteLogRecorder(LogRecorder, SQLiteApplicationRecorder):
    """eventsourcing's application recorder on a turnlog store: notification id = global position."""

    def __init__(self, store: Store, datastore: LogDatastore, sources: Sources) -> None:
        """Take the store, its datastore, and what a new log begins with."""
        SQLiteApplicationRecorder.__init__(self, datastore)
        self.datastore: LogDatastore = datastore
        self._store = store
        self._sources = sources
        self.select_events_statement = f"SELECT {_COLUMNS} FROM {self.events_table_name} WHERE originator_id=? "
        self.select_max_notification_id_statement = f"SELECT MAX(notification_id) FROM {self.events_table_name}"

    def construct_create_table_statements(self) -> list[str]:
        """Return the statements that make turnlog's tables."""
        return list(STATEMENTS)


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
        raise NotImplementedError(NO_PROCESS_RECORDER)
