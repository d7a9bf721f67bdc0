"""eventsourcing's recorders and factory on a PostgreSQL store."""

from __future__ import annotations

from eventsourcing.postgres import (
    PostgresApplicationRecorder,
    PostgresDatastore,
    PostgresFactory,
    PostgresProcessRecorder,
)
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from turnlog.sources import Sources
from turnlog.store.interface import Store
from turnlog.store.postgres.connections import Address
from turnlog.store.recorders import NO_PROCESS_RECORDER, LogRecorder

_POOL_MAX = 5


class LogDatastore(PostgresDatastore):
    """eventsourcing's datastore for the database of a log. It connects when it is first used."""

    def __init__(self, address: Address) -> None:
        """Take where the log is."""
        super().__init__(
            "", "", "", "", "", schema=address.schema, originator_id_type="text", max_overflow=_POOL_MAX - 1
        )
        self.pool.kwargs = {**conninfo_to_dict(address.conninfo), "row_factory": dict_row}


class PostgresLogRecorder(LogRecorder, PostgresApplicationRecorder):
    """eventsourcing's application recorder on a turnlog store: notification id = global position."""

    def __init__(self, store: Store, datastore: PostgresDatastore, sources: Sources) -> None:
        """Take the store, its datastore, and what a new log begins with."""
        # What is selected by stream may not have its global position yet.
        PostgresApplicationRecorder.__init__(self, datastore, events_table_name="log_events_now")
        self._store = store
        self._sources = sources

    def create_table(self) -> None:
        """Do nothing: the store has its tables."""

    def max_notification_id(self) -> int | None:
        """Return the global position of the last event; None in an empty log."""
        with self._store.read() as transaction:
            return transaction.log_end() or None


class PostgresLogFactory(PostgresFactory):
    """eventsourcing's infrastructure factory for an open turnlog store."""

    def __init__(self, store: Store, address: Address, sources: Sources) -> None:
        """Take an open store instead of the name of a database in the environment."""
        nothing = dict.fromkeys((self.POSTGRES_DBNAME, self.POSTGRES_HOST, self.POSTGRES_USER), "-")
        super().__init__({**nothing, self.POSTGRES_PASSWORD: "-", self.ORIGINATOR_ID_TYPE: "text"})
        self.datastore.close()
        self.datastore = LogDatastore(address)
        self._store = store
        self._sources = sources

    def application_recorder(self) -> PostgresLogRecorder:
        """Return a recorder of the log."""
        return PostgresLogRecorder(self._store, self.datastore, self._sources)

    def process_recorder(self) -> PostgresProcessRecorder:
        """Refuse: a turnlog store records events through one path, tracking is recorded beside projections."""
        raise NotImplementedError(NO_PROCESS_RECORDER)
