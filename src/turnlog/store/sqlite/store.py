"""The SQLite store: opening, the write path, reading, measuring."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from turnlog.errors import (
    CorruptionError,
    StoreBusyError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)
from turnlog.events import Recorded, Seal, Seals
from turnlog.sources import Sources
from turnlog.store.files import looking
from turnlog.store.gate import Gate
from turnlog.store.interface import Store
from turnlog.store.locks import LOCKS_SUFFIX, FileLocks, MemoryLocks
from turnlog.store.pages import Tail
from turnlog.store.payloads import Condemned, PayloadPlacer
from turnlog.store.sqlite import handles
from turnlog.store.sqlite.appending import Appender, OnBusy
from turnlog.store.sqlite.connections import Connections
from turnlog.store.sqlite.erasing import (
    SCRUB_WAIT_S,
    note_nothing,
    note_pending,
    pending,
    scrub,
    take_away,
)
from turnlog.store.sqlite.errors import DRIVER_ERRORS, converted, store_error
from turnlog.store.sqlite.opening import MEMORY, Place, check_file, look, signature
from turnlog.store.sqlite.schema import (
    APPLICATION_ID,
    OBJECTS,
    SCRUBS,
    STATEMENTS,
    VERSION,
    built_projections,
    expected_objects,
    projection_statements,
    side_objects,
)
from turnlog.store.sqlite.transactions import SQLiteRead, SQLiteWrite
from turnlog.store.telling import Teller
from turnlog.store.transactions import (
    ReadTransaction,
    ScratchTransaction,
    SideTables,
    SyncProjection,
    WriteTransaction,
    check_not_newer,
)
from turnlog.store.values import ErasedFiles, NewPayload, Payload, StoreStats
from turnlog.store.waiting import Waker, Watch

if TYPE_CHECKING:
    from turnlog.store.folding import Progress
    from turnlog.store.sqlite.recorders import SQLiteLogFactory


_log = Teller("turnlog.store")

T = TypeVar("T")

PAYLOAD_FOLDER_SUFFIX = "-payloads"
"""What the name of the payload folder adds to that of the store's file."""


class SQLiteStore(Store, handles.Resting):
    """A log in one SQLite file, with a folder beside it for large payloads; or in memory, where nothing is durable."""

    def __init__(  # noqa: PLR0913 - see `open_store`
        self,
        path: Path | None,
        *,
        url: str,
        projections: Sequence[SyncProjection],
        sides: Sequence[SideTables] = (),
        create: bool = True,
        busy_timeout_s: float = 60.0,
        on_busy: OnBusy | None = None,
        sources: Sources | None = None,
        seals: Seals | None = None,
    ) -> None:
        """Open a store; see `turnlog.store.open_store`."""
        with handles.using():
            self.url = url
            self.file = None if path is None else path.absolute()
            self.on_busy = on_busy
            self._place_name = str(path) if path is not None else "memory://"
            self._projections = tuple(projections)
            self._sides = tuple(sides)
            self._expected = expected_objects(self._projections)
            self._busy_timeout_s = busy_timeout_s
            self._sources = sources or Sources()
            self._gate = Gate(self._place_name)
            self._place = place = look(path, create=create) if path is not None else MEMORY
            self._path = place.path
            folder = self._path.with_name(self._path.name + PAYLOAD_FOLDER_SUFFIX) if self._path else None
            self._payloads = PayloadPlacer(folder, access=place.access)
            beside = self._path.with_name(self._path.name + LOCKS_SUFFIX) if self._path else None
            self.locks = MemoryLocks() if beside is None else FileLocks(beside, access=place.access)
            self._connections = self._connect(place)
            self._reopening = Lock()
            self._seals = seals
            self._condemned: list[Condemned] = []
            """Payload files that are to be removed, because their events were erased."""
            self._waker = Waker(self._log_end)
            self._appender = Appender(
                self._place_name,
                place,
                self._connections,
                self._payloads,
                self._projections,
                expected=self._expected,
                seals=seals,
                busy_timeout_s=busy_timeout_s,
                on_busy=on_busy,
                tell=self._waker.nudge,
            )
            self.tail = Tail(self.read)
            if self._path is not None:
                handles.rests(self)
            try:
                with converted(self._place_name):
                    self._prepare(place)
            except BaseException:
                self.close()
                raise

    @cached_property
    def factory(self) -> SQLiteLogFactory:  # pyright: ignore[reportIncompatibleVariableOverride]
        """eventsourcing's way to the same log, on the same connections."""
        from turnlog.store.sqlite import recorders  # noqa: PLC0415 - with it comes eventsourcing

        return recorders.SQLiteLogFactory(self, lambda: self._connections, self._sources)

    @property
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""
        return self._projections

    # Open

    def _connect(self, place: Place) -> Connections:
        return Connections(
            place.uri,
            place.path,
            place=self._place_name,
            busy_timeout_s=self._busy_timeout_s,
            read_only=place.read_only,
            access=place.access,
            on_closed=None if place.beside is None else place.beside.forget,
        )

    def _prepare(self, place: Place) -> None:
        """Make the tables of a new store; build the projections that an older one lacks; collect what a crash left."""
        if not place.is_store:
            with self._under_lock() as (cursor, _):
                # Another process may have made the store since.
                if not cursor.execute(f"{OBJECTS} WHERE name = 'stored_events'").fetchall():
                    self._make(cursor)
            return
        with self._connections.reader() as cursor:
            self._check_tables(cursor)
            lacking = self._lacking(cursor)
            if place.beside is not None:
                place.beside.look()
        if lacking and place.read_only:
            raise StoreReadOnlyError(
                f"store {self._place_name!r} lacks the {lacking[0].name} and cannot be written: "
                "open it once where it can be, so that it is built"
            )
        if lacking:
            from turnlog.store.sqlite.rebuild import rebuild  # noqa: PLC0415 - most stores lack nothing

            rebuild(lacking, self._reading, self._under_lock)
        if not place.read_only and self._payloads.needs_collecting():
            self._collect()
        if not place.read_only:
            # What an erasure left behind. Whoever opens the store does not wait for it.
            self._scrub(min(self._busy_timeout_s, SCRUB_WAIT_S))

    def _collect(self) -> None:
        """Remove what processes left of payloads that died; it stays where that cannot be, and a store be read."""
        try:
            with self._under_lock() as (_, transaction):
                self._payloads.collect(transaction.has_file)
        except (StoreFullError, StoreReadOnlyError, StoreDeniedError) as error:
            _log.warning("what a process has left that died stays there: %s", error)

    def _check_tables(self, cursor: sqlite3.Cursor) -> None:
        """Refuse a store in which something else has the name of a table: a view can be made to have no end.

        Raises:
            CorruptionError: it is one.
        """
        kinds: dict[str, str] = {name: kind for kind, name, *_ in cursor.execute(OBJECTS).fetchall()}
        for name, (kind, *_) in self._expected.items():
            if kind == "table" and kinds.get(name, kind) != kind:
                raise CorruptionError(
                    f"store {self._place_name!r} has a {kinds[name]} in the place of its table {name!r}: "
                    "restore a backup"
                )
        if "stored_events" not in kinds:
            raise CorruptionError(f"store {self._place_name!r} has lost its table of events: restore a backup")

    def _make(self, cursor: sqlite3.Cursor) -> None:
        for statement in STATEMENTS:
            cursor.execute(statement)
        for projection in self._projections:
            for statement in projection_statements(projection):
                cursor.execute(statement)
            cursor.execute("INSERT INTO store_projections VALUES (?, ?)", (projection.name, projection.version))
        cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        cursor.execute(f"PRAGMA user_version = {VERSION}")

    def _lacking(self, cursor: sqlite3.Cursor) -> list[SyncProjection]:
        """Return the projections that the store was never given, or in an older version.

        Raises:
            StoreOpenError: it has one in a newer version.
        """
        built = built_projections(cursor)
        if built is None:
            # Somebody has taken it away. Reading goes on, and a rebuild restores it.
            return []
        check_not_newer(self._projections, built, self._place_name)
        return [projection for projection in self._projections if built.get(projection.name, 0) < projection.version]

    def place(self, payload: Payload | None, seal: Seal | None = None, *, is_written: bool = True) -> NewPayload:
        """Make a payload ready to be appended."""
        with self._gate.enter():
            self._check_writable()
            return self._payloads.place(payload, seal, is_written=is_written)

    # Write

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable."""
        with self._gate.enter():
            self._check_writable()
            return self._appender.write(plan)

    def gain(self, side: SideTables) -> None:
        """Make side tables, durably. Does nothing where they are."""
        with self.read() as transaction:
            if transaction.has(side):
                return
        with self._gate.enter(), converted(self._place_name):
            self._check_writable()
            with self._under_lock() as (cursor, transaction):
                if not transaction.has(side):
                    present = {row[1] for row in cursor.execute(OBJECTS).fetchall()}
                    for name, (_, _, _, statement) in side_objects(side).items():
                        if name not in present and statement is not None:
                            cursor.execute(statement)

    def _check_writable(self) -> None:
        if self._place.read_only:
            raise StoreReadOnlyError(f"store {self._place_name!r} is read-only")

    def _read_on(self, cursor: sqlite3.Cursor) -> SQLiteRead:
        return SQLiteRead(cursor, self._payloads, self._seals)

    @contextmanager
    def _under_lock(self) -> Generator[tuple[sqlite3.Cursor, SQLiteRead]]:
        """Hold the write lock with a connection of its own, beside the appends of this process."""
        if self._path is None:
            with self._connections.alone() as shared, _transaction(shared) as cursor:
                yield cursor, self._read_on(cursor)
            return
        with closing(self._connections.connect()) as connection, _transaction(connection.cursor()) as cursor:
            yield cursor, self._read_on(cursor)

    # Erase

    def erase(
        self,
        plan: Callable[[WriteTransaction], Sequence[Recorded]],
        *,
        foreseen: Sequence[Recorded] = (),
        until: int = 0,
    ) -> ErasedFiles:
        """Take private parts and payloads of events away, for good, in one transaction, and then out of the files."""
        with self._gate.enter(), converted(self._place_name):
            self._check_writable()
            condemned, shared = self._erase(plan, foreseen, until)
            self._condemned += condemned
            # From here on it is erased, whatever happens. Whoever appends drops what is kept in memory of events.
            with suppress(StoreError):
                self._appender.write(lambda _: None)
            remains = self._scrub(self._busy_timeout_s)
            # Those who read an older state have been waited for: they could not do without these files.
            return ErasedFiles(removed=len(condemned), shared=shared, remains=self._remove_condemned() or remains)

    def _erase(
        self, plan: Callable[[WriteTransaction], Sequence[Recorded]], foreseen: Sequence[Recorded], until: int
    ) -> tuple[list[Condemned], int]:
        """Erase events in one transaction, and return the payload files to remove, and how many are kept."""
        from turnlog.store.folding import Refolding  # noqa: PLC0415 - few processes erase anything
        from turnlog.store.sqlite.rebuild import replace_tables  # noqa: PLC0415
        from turnlog.store.sqlite.scratch import scratch  # noqa: PLC0415

        with Refolding(self._projections, scratch, foreseen, until) as refolding:
            refolding.fold_ahead(self._reading)
            with self._under_lock() as (cursor, _):
                self._appender.check_tables(cursor)
                cursor.execute("PRAGMA secure_delete = ON")
                policy = self._read_on(cursor).seal_policy()
                transaction = SQLiteWrite(cursor, self._payloads, self._projections, seals=self._seals, policy=policy)
                refolding.look(transaction)
                targets = plan(transaction)
                if not targets:
                    return [], 0
                condemned, shared = take_away(cursor, transaction, self._payloads, targets)
                try:
                    projections, target = refolding.finish(transaction, targets)
                    if target is not None:
                        replace_tables(cursor, projections, target)
                    end = transaction.log_end()
                    note_pending(cursor, end)
                    if self._path is None:
                        note_nothing(cursor)
                    transaction.publish_payloads()
                except BaseException:
                    for file in condemned:
                        self._payloads.spare(file)
                    raise
                try:
                    cursor.execute("COMMIT")
                except sqlite3.Error as error:
                    raise store_error(error, self._place_name, committing=True) from error
            transaction.release_payloads()
        self._waker.nudge(end)
        return condemned, shared

    def _remove_condemned(self) -> str | None:
        """Remove payload files that no event needs, and return why some cannot be removed."""
        if not self._condemned:
            return None
        try:
            with self._under_lock() as (_, transaction):
                while self._condemned:
                    file = self._condemned[-1]
                    # Somebody may have recorded the same payload since.
                    if transaction.has_file(file.hash, file.placement):
                        self._payloads.spare(file)
                    else:
                        self._payloads.remove(file)
                    self._condemned.pop()
        except (StoreError, *DRIVER_ERRORS) as error:
            failure = error if isinstance(error, StoreError) else store_error(error, self._place_name)
            return f"payload files of what was erased cannot be removed yet ({failure}): `turnlog erase --finish`"
        return None

    def scrub(self) -> str | None:
        """Remove what is left of erased events in the files of the store; return why something is still left."""
        with self._gate.enter(), converted(self._place_name):
            self._check_writable()
            if self._payloads.needs_collecting():
                with self._under_lock() as (_, transaction):
                    self._payloads.collect(transaction.has_file)
            remains = self._scrub(self._busy_timeout_s)
            return self._remove_condemned() or remains

    def _scrub(self, wait_s: float) -> str | None:
        if self._path is None:
            return None
        with self._connections.reader() as cursor:
            if pending(cursor) is None:
                return None
        with closing(self._connections.connect()) as connection:
            return scrub(connection, self._path, self._place_name, wait_s)

    # Read

    @contextmanager
    def read(self) -> Generator[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""
        with self._gate.enter(), self._steady(), converted(self._place_name):
            check_file(self._place, self._place_name)
            with self._reading() as transaction:
                yield transaction

    @contextmanager
    def _reading(self) -> Generator[SQLiteRead]:
        with self._connections.reader() as cursor:
            yield self._read_on(cursor)

    @contextmanager
    def _steady(self) -> Generator[None]:
        """Give a store that cannot be written as it is now, and tell when it changes while it is read without locks.

        Without the right to write, SQLite cannot follow a write-ahead log that comes and goes beside its file.
        """
        if not self._place.read_only or self._path is None:
            yield
            return
        if signature(self._path) != self._place.signature:
            self._reopen()
        before = self._place.signature if self._place.immutable else None
        try:
            yield
        finally:
            if before is not None and signature(self._path) != before:
                raise StoreBusyError(f"store {self._place_name!r} was changed while it was read: read again")

    def _reopen(self) -> None:
        assert self._path is not None
        with self._reopening:
            if signature(self._path) == self._place.signature:  # another thread has done it
                return
            self._place = place = look(self._path, create=False)
            old, self._connections = self._connections, self._connect(place)
            old.close()

    def _log_end(self) -> int:
        with self.read() as transaction:
            return transaction.log_end()

    def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position, and return the position of its end."""
        return self._waker.wait(after, timeout_s)

    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        """Have a function called once, when the log goes beyond a global position."""
        return self._waker.watch(after, tell, backwards=backwards)

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch. Nothing happens if it was told, or is forgotten already."""
        self._waker.unwatch(watch)

    # Check, measure, mend

    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: pages, write-ahead log, files that belong to nothing."""
        from turnlog.store.sqlite.check import engine_damage  # noqa: PLC0415 - few processes check anything

        with self._gate.enter(), converted(self._place_name), looking(self._place_name):
            for what in engine_damage(
                self._path, self._payloads, self._reading, self._under_lock, self._place, self._tables()
            ):
                yield None, what

    def check_schema(self) -> list[str]:
        """Return what is not as it should be of tables, indexes, triggers, version and settings."""
        from turnlog.store.sqlite.check import schema_damage  # noqa: PLC0415 - as above

        with self.read() as transaction, looking(self._place_name):
            return schema_damage(transaction, self._expected, self._projections, self._sides, self._path)

    def unread(self) -> list[str]:
        """Return the names of tables in the store that are none of turnlog's."""
        from turnlog.store.sqlite.check import tables_of_others  # noqa: PLC0415 - as above

        with self.read() as transaction:
            return tables_of_others(transaction, self._tables())

    def _tables(self) -> list[str]:
        """Return the names of the tables that a store can have."""
        own = [name for name, row in self._expected.items() if row[0] == "table"]
        return [*own, SCRUBS, *(name for side in self._sides for name in side.tables)]

    def stats(self) -> StoreStats:
        """Measure the store."""
        with self.read() as transaction:
            events = transaction.log_end()
            payload_bytes = transaction.payload_bytes()
            stored = transaction.stored_payload_bytes()
        file_count, file_bytes = self._payloads.stats()
        parts = (self._path.with_name(self._path.name + end) for end in ("", "-wal", "-shm")) if self._path else ()
        with looking(self._place_name):
            database_bytes = sum(part.stat().st_size for part in parts if part.exists())
        return StoreStats(
            events=events,
            payload_bytes=payload_bytes,
            stored_payload_bytes=stored,
            file_count=file_count,
            file_bytes=file_bytes,
            disk_bytes=database_bytes + file_bytes,
        )

    def scratch(self) -> AbstractContextManager[ScratchTransaction]:
        """Open an empty temporary database with the tables of the projections."""
        from turnlog.store.sqlite.scratch import scratch  # noqa: PLC0415 - few processes check or build anything

        with self._gate.enter():
            return scratch(self._projections)

    def rebuild(self, names: Sequence[str] = (), *, progress: Progress | None = None) -> list[str]:
        """Build projections anew from the log, in place, and return their names. Others can append meanwhile."""
        from turnlog.store.folding import named  # noqa: PLC0415 - as above
        from turnlog.store.sqlite.rebuild import rebuild, restore_objects  # noqa: PLC0415

        chosen = named(self._projections, names)
        with self._gate.enter(), converted(self._place_name):
            self._check_writable()
            if self._path is not None:
                with self._under_lock() as (cursor, _):
                    check_not_newer(self._projections, built_projections(cursor), self._place_name)
                    restore_objects(cursor)
            rebuild(chosen, self._reading, self._under_lock, progress)
        return [projection.name for projection in chosen]

    def rest(self, until_s: float) -> None:
        """Let nobody in and close what is idle, for the moment of a fork: see `turnlog.store.sqlite.handles`."""
        self._gate.shut(max(0.0, until_s - monotonic()))
        self._connections.rest()
        self._appender.rest()
        self.forget()

    def forget(self) -> None:
        """Take no file beside the store for one that is open: connections were closed, or are those of the parent."""
        if self._place.beside is not None:
            self._place.beside.forget()

    def resume(self) -> None:
        """Go on behind a fork."""
        self._gate.open()

    def check_open(self) -> None:
        """Raise where the store was closed, or this process was forked since."""
        self._gate.check()

    def close(self) -> None:
        """Release everything, once what other threads are at has come to an end. Closing twice is allowed."""
        self._waker.close()
        if self._gate.close(self._busy_timeout_s, self._release):
            self._release()

    def _release(self) -> None:
        with handles.using(), suppress(sqlite3.Error):
            self._appender.close()
            self._connections.close()
        self.locks.close()
        self._payloads.close()


@contextmanager
def _transaction(cursor: sqlite3.Cursor) -> Generator[sqlite3.Cursor]:
    """Hold the write lock; commit on leaving unless the transaction was rolled back, roll back on any error."""
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
        if cursor.connection.in_transaction:
            cursor.execute("COMMIT")
    finally:
        if cursor.connection.in_transaction:
            cursor.connection.rollback()
        cursor.close()
