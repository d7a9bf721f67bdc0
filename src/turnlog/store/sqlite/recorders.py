"""eventsourcing's recorders and factory on a SQLite store, with the store's own connections below them.

The store imports this when it is first asked for its factory: whoever only reads a log starts without eventsourcing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import nullcontext, suppress
from time import monotonic

from eventsourcing.persistence import (
    ConnectionNotFromPoolError,
    ConnectionPoolClosedError,
    ConnectionUnavailableError,
    InterfaceError,
)
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteDatastore,
    SQLiteFactory,
    SQLiteProcessRecorder,
    SQLiteTrackingRecorder,
)

from turnlog.errors import StoreBusyError, StoreClosedError
from turnlog.sources import Sources
from turnlog.store.interface import Store
from turnlog.store.recorders import NO_PROCESS_RECORDER, LogRecorder
from turnlog.store.sqlite.connections import Connection, Connections
from turnlog.store.sqlite.schema import STATEMENTS

_COLUMNS = "originator_id, originator_version, topic, state"


class LogConnectionPool(SQLiteConnectionPool):
    """eventsourcing's pool, which lends connections of a store. It has none itself, and closing it closes none."""

    def __init__(self, connections: Callable[[], Connections]) -> None:
        """Take what returns the connections of the store as it is now."""
        super().__init__(db_name=connections().uri)
        self._connections = connections
        self._lent: dict[int, tuple[SQLiteConnection, Connection, Connections]] = {}
        """By the id of eventsourcing's connection."""

    def get_connection(self, timeout: float | None = None, *, is_writer: bool | None = None) -> SQLiteConnection:
        """Return a connection; of those for writing there is one at a time.

        Raises:
            ConnectionPoolClosedError: the pool or the store is closed.
            ConnectionUnavailableError: all connections were in use for too long.
            InterfaceError: the database cannot be opened.
        """
        connections = self._connections()
        wait_s = connections.busy_timeout_s if timeout is None else timeout
        until = monotonic() + wait_s
        if self._closed:
            raise ConnectionPoolClosedError
        if is_writer is True and not self._writer_lock.acquire(timeout=wait_s):
            raise ConnectionUnavailableError("timed out waiting for return of writer")
        try:
            raw = connections.acquire(max(0.0, until - monotonic()))
        except BaseException as error:
            if is_writer is True:
                self._writer_lock.release()
            if (told := _of_the_pool(error)) is None:
                raise
            raise told from error
        raw.row_factory = sqlite3.Row
        connection = SQLiteConnection(raw, max_age=None)
        connection.is_writer = is_writer
        self._lent[id(connection)] = connection, raw, connections
        return connection

    def put_connection(self, conn: SQLiteConnection) -> None:
        """Give a connection back.

        Raises:
            ConnectionNotFromPoolError: it is none of this pool, or was given back already.
        """
        try:
            _, raw, connections = self._lent.pop(id(conn))
        except KeyError:
            raise ConnectionNotFromPoolError("connection not in use in this pool") from None
        raw.row_factory = None
        try:
            # One that its user has closed is not given to anybody else.
            with suppress(sqlite3.ProgrammingError) if conn.closed else nullcontext():
                connections.release(raw)
        finally:
            if conn.is_writer is True:
                self._writer_lock.release()

    @property
    def _num_in_use(self) -> int:
        return len(self._lent)

    def close(self) -> None:
        """Lend no more. The connections are the store's."""
        self._closed = True


def _of_the_pool(error: BaseException) -> Exception | None:
    """Return an error of the store's connections as eventsourcing's callers know it; None for all others."""
    match error:
        case StoreClosedError():
            return ConnectionPoolClosedError(str(error))
        case StoreBusyError():
            return ConnectionUnavailableError(str(error))
        case sqlite3.Error():
            return InterfaceError(error)
        case _:
            return None


class LogDatastore(SQLiteDatastore):
    """eventsourcing's datastore on the connections of a store."""

    def __init__(self, connections: Callable[[], Connections]) -> None:
        """Take what returns the connections of the store as it is now."""
        super().__init__(connections().uri, originator_id_type="text")
        self.pool = LogConnectionPool(connections)


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
    """eventsourcing's infrastructure factory for an open turnlog store. Closing it leaves the store open."""

    tracking_recorder_class = SQLiteLogTrackingRecorder

    def __init__(self, store: Store, connections: Callable[[], Connections], sources: Sources) -> None:
        """Take an open store instead of the name of a database in the environment."""
        datastore = LogDatastore(connections)
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
