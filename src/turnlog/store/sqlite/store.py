"""The SQLite store: opening, the write path, reading, measuring."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

from eventsourcing.sqlite import SQLiteConnection

from turnlog.errors import StoreClosedError, StoreReadOnlyError, TurnlogError
from turnlog.store.group_commit import GroupCommit, Request
from turnlog.store.interface import (
    NewPayload,
    ReadTransaction,
    SQLTransaction,
    Store,
    StoreStats,
    SyncProjection,
    WriteTransaction,
)
from turnlog.store.payloads import PayloadPlacer, file_matches_name
from turnlog.store.sqlite.connections import LogDatastore, raw_connection
from turnlog.store.sqlite.errors import DRIVER_ERRORS, converted, store_error
from turnlog.store.sqlite.opening import MEMORY, Place, look
from turnlog.store.sqlite.recorders import SQLiteLogFactory
from turnlog.store.sqlite.schema import APPLICATION_ID, RARE_TOPICS, STATEMENTS, VERSION
from turnlog.store.sqlite.transactions import SQLiteRead, SQLiteSQL, SQLiteWrite

T = TypeVar("T")
PAYLOAD_FOLDER_SUFFIX = "-payloads"
"""What the name of the payload folder adds to that of the store's file."""


class SQLiteStore(Store):
    """A log in one SQLite file, with a folder beside it for large payloads; or in memory, where nothing is durable."""

    def __init__(
        self,
        path: Path | None,
        *,
        url: str,
        projections: Sequence[SyncProjection],
        create: bool = True,
        busy_timeout_s: float = 60.0,
    ) -> None:
        """Open a store; see `turnlog.store.open_store`."""
        self.url = url
        self._path = path.absolute() if path is not None else None
        self._place_name = str(path) if path is not None else "memory://"
        self._projections = tuple(projections)
        self._pid = os.getpid()
        self._closed = False
        folder = self._path.with_name(self._path.name + PAYLOAD_FOLDER_SUFFIX) if self._path else None
        self._payloads = PayloadPlacer(folder)
        place = look(self._path, create=create) if self._path else MEMORY
        self._read_only = place.read_only
        self._datastore = LogDatastore(place.uri, busy_timeout_s=busy_timeout_s, read_only=place.read_only)
        self._writer: SQLiteConnection | None = None
        self._group = GroupCommit[WriteTransaction](self._commit)
        self.factory = SQLiteLogFactory(self._datastore, self.write)
        try:
            with converted(self._place_name):
                self._prepare(place)
        except BaseException:
            self.close()
            raise

    @property
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""
        return self._projections

    def _prepare(self, place: Place) -> None:
        """Make the tables of a new store; open a connection, so that what cannot be opened fails now."""
        if place.is_store:
            with self._datastore.reader() as cursor:
                cursor.execute("SELECT 1 FROM stored_events LIMIT 1").fetchall()
                indexed = cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'stored_events_rare'").fetchall()
            if not indexed and not self._read_only:
                with self._writing() as connection, _transaction(connection) as cursor:
                    cursor.execute(RARE_TOPICS)
            return
        with self._writing() as connection, _transaction(connection) as cursor:
            # Another process may have made the store since: every statement allows for that.
            for statement in (*STATEMENTS, *(sql for projection in self._projections for sql in projection.schema)):
                cursor.execute(statement)
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            cursor.execute(f"PRAGMA user_version = {VERSION}")

    def place(self, payload: bytes | None) -> NewPayload:
        """Make a payload ready to be appended."""
        self._check_usable()
        return self._payloads.place(payload)

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable."""
        self._check_usable()
        if self._read_only:
            raise StoreReadOnlyError(f"store {self._place_name!r} is read-only")
        return cast("T", self._group.run(plan))

    def _commit(self, batch: Sequence[Request[WriteTransaction]]) -> None:
        """Run a batch in one transaction. A request that fails after it appended makes the others run again."""
        waiting = batch
        try:
            with self._writing() as connection:
                while waiting:
                    waiting = self._attempt(connection, waiting)
        except DRIVER_ERRORS as error:
            for request in waiting:
                request.error = request.error or store_error(error, self._place_name)

    def _attempt(
        self, connection: sqlite3.Connection, waiting: Sequence[Request[WriteTransaction]]
    ) -> list[Request[WriteTransaction]]:
        """Run requests in one transaction and commit it. Return those that must run again."""
        # Not through `_transaction`: what runs between two syncs to disk runs cold, so that every call here is dear.
        cursor = connection.execute("BEGIN IMMEDIATE")
        cursor.row_factory = None
        try:
            for request in waiting:
                transaction = SQLiteWrite(cursor, self._payloads, self._projections)
                try:
                    request.result = request.work(transaction)
                    transaction.keep_payloads()
                except Exception as error:  # noqa: BLE001 - every error of a plan goes to its own caller
                    request.error = store_error(error, self._place_name) if isinstance(error, DRIVER_ERRORS) else error
                    if transaction.appended or not isinstance(error, TurnlogError):
                        return [other for other in waiting if other.error is None]
            cursor.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.rollback()
        return []

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """Give the one writer connection. Only the leader of a group commit, and the making of a store, ask for it."""
        if self._path is None:
            with self._datastore.get_connection(commit=True) as connection:
                yield raw_connection(connection)
            return
        if self._writer is None:
            self._writer = self._datastore.pool._create_connection()  # pyright: ignore[reportPrivateUsage]
        yield raw_connection(self._writer)

    @contextmanager
    def read(self) -> Generator[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""
        self._check_usable()
        with converted(self._place_name), self._datastore.reader() as cursor:
            yield SQLiteRead(cursor, self._payloads)

    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: pages, payload files."""
        self._check_usable()
        with converted(self._place_name), self._datastore.reader() as cursor:
            for (message,) in cursor.execute("PRAGMA integrity_check").fetchall():
                if message != "ok":
                    yield None, f"SQLite: {message}"
        for file in self._payloads.files():
            if not file_matches_name(file):
                yield None, f"payload file {file.parent.name}/{file.name} does not have the hash that it is named by"

    def stats(self) -> StoreStats:
        """Measure the store."""
        with self.read() as transaction:
            [(events, stored)] = transaction.rows(
                "SELECT COUNT(*), COALESCE(SUM(LENGTH(payload)), 0) FROM stored_events"
            )
            payload_bytes = sum(recorded.event.size or 0 for recorded in transaction.log())
        files = [file.stat().st_size for file in self._payloads.files()]
        parts = (self._path.with_name(self._path.name + end) for end in ("", "-wal", "-shm")) if self._path else ()
        database_bytes = sum(part.stat().st_size for part in parts if part.exists())
        return StoreStats(
            events=events,
            payload_bytes=payload_bytes,
            stored_payload_bytes=stored,
            file_count=len(files),
            file_bytes=sum(files),
            disk_bytes=database_bytes + sum(files),
        )

    @contextmanager
    def _scratch(self) -> Generator[SQLTransaction]:
        connection = sqlite3.connect("", isolation_level=None)
        try:
            with _transaction(connection) as cursor:
                for projection in self._projections:
                    for statement in projection.schema:
                        cursor.execute(statement)
                yield SQLiteSQL(cursor)
        finally:
            connection.close()

    def scratch(self) -> AbstractContextManager[SQLTransaction]:
        """Open an empty temporary database with the tables of the projections."""
        self._check_usable()
        return self._scratch()

    def close(self) -> None:
        """Release everything. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._writer.close()
        with suppress(sqlite3.Error):
            self._datastore.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"store {self._place_name!r} is closed")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"store {self._place_name!r} was opened before this process was forked: open it again"
            )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[sqlite3.Cursor]:
    """Hold the write lock; commit on leaving unless the transaction was rolled back, roll back on any error."""
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
        if connection.in_transaction:
            cursor.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()
        cursor.close()
