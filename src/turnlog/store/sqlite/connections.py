"""Connections to a SQLite store: eventsourcing's datastore and pool, with the settings that durability needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from operator import methodcaller

from eventsourcing.persistence import ConnectionPoolClosedError, InterfaceError
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore

READERS_MAX = 256
"""Connections that can read at the same time; more wait."""

READERS_KEPT = 16
"""Connections that are kept open for the next reader."""

BUSY_LOOK_S = 1.0
"""How long a writer waits for another process before it says so, and waits on."""

STATEMENTS_KEPT = 128
"""Prepared statements that a connection keeps."""


_text = methodcaller("decode", "utf-8", "replace")
"""Damaged text must not hide what stands behind it: it is read, and then found not to be what it should."""


class LogConnectionPool(SQLiteConnectionPool):
    """A pool whose connections sync to disk on every commit and wait for other processes."""

    busy_timeout_s: float
    read_only: bool = False

    def close(self) -> None:
        """Close what nobody uses; what is in use is closed by whoever gives it back.

        To close a connection in the middle of another thread's statement, as the library does, can crash the
        interpreter.
        """
        with self._put_condition:
            self._closed = True
            while self._pool:
                self._pool.popleft().close()
            self._put_condition.notify_all()

    def put_connection(self, conn: SQLiteConnection) -> None:
        """Give a connection back."""
        with self._put_condition:
            if not self._closed:
                super().put_connection(conn)
                return
            del self._in_use[id(conn)]
            conn.close()
            conn.in_use.release()
            self._put_condition.notify_all()
        if conn.is_writer is True:
            self._writer_lock.release()
        elif conn.is_writer is False:
            with self._no_readers:
                self._num_readers -= 1
                self._no_readers.notify_all()

    def _create_connection(self) -> SQLiteConnection:
        if self._closed:
            raise ConnectionPoolClosedError
        # The library's own method keeps only one prepared statement a connection (it passes True for their number),
        # so that every statement would be prepared anew each time.
        try:
            connection = sqlite3.connect(
                self.db_name,
                uri=True,
                check_same_thread=False,
                isolation_level=None,
                cached_statements=STATEMENTS_KEPT,
                timeout=self.busy_timeout_s,
            )
            if not self.is_sqlite_memory_mode and not self.is_journal_mode_wal:
                connection.execute("PRAGMA journal_mode = WAL")
                self.is_journal_mode_wal = True
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA temp_store = MEMORY")
            # What a trigger or a view of somebody else's may call: nothing that reaches out of the database.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if self.read_only:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise InterfaceError(error) from error
        connection.row_factory = sqlite3.Row
        connection.text_factory = _text
        return SQLiteConnection(connection, max_age=self.max_age)


class LogDatastore(SQLiteDatastore):
    """eventsourcing's datastore on a turnlog store: a file with a write-ahead log, or one connection in memory."""

    def __init__(self, uri: str, *, busy_timeout_s: float, read_only: bool = False) -> None:
        """Connect to a SQLite URI: a file, or a new database in memory that lives until the datastore is closed."""
        super().__init__(uri, originator_id_type="text")
        self.pool.close()
        in_memory = self.pool.is_sqlite_memory_mode
        self.pool = LogConnectionPool(
            db_name=uri,
            lock_timeout=max(1, int(busy_timeout_s)),
            pool_size=1 if in_memory else READERS_KEPT,
            max_overflow=0 if in_memory else READERS_MAX - READERS_KEPT,
            pool_timeout=busy_timeout_s,
        )
        self.pool.busy_timeout_s = busy_timeout_s
        self.pool.read_only = read_only
        # What can only be read is not asked to change its journal mode.
        self.pool.is_journal_mode_wal = read_only

    @contextmanager
    def reader(self) -> Generator[sqlite3.Cursor]:
        """Open a snapshot and give a cursor on it, whose rows are plain tuples."""
        with self.transaction(commit=False) as cursor:
            raw = cursor.sqlite_cursor
            raw.row_factory = None
            yield raw


def raw_connection(connection: SQLiteConnection) -> sqlite3.Connection:
    """Return the sqlite3 connection behind a connection of the pool."""
    return connection.cursor().sqlite_cursor.connection


def plain_cursor(connection: SQLiteConnection) -> sqlite3.Cursor:
    """Return a new cursor of sqlite3's own, whose rows are plain tuples."""
    cursor = raw_connection(connection).cursor()
    cursor.row_factory = None
    return cursor
