"""The PostgreSQL store: opening, the write path, reading, measuring. `docs/adr/0035` has how positions are given."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property, partial
from threading import Event
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from turnlog.errors import (
    StoreError,
    StoreOpenError,
)
from turnlog.events import Recorded, Seal, Seals
from turnlog.sources import Sources
from turnlog.store.folding import Progress, Refolding, fold_anew, named
from turnlog.store.gate import Gate
from turnlog.store.interface import Store
from turnlog.store.objects import Objects
from turnlog.store.pages import Tail
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.postgres.appending import TRIES_MAX, Appender
from turnlog.store.postgres.catalog import query, schema_flaws, tables_of_others
from turnlog.store.postgres.connections import Address, Wires
from turnlog.store.postgres.erasing import drop_probes, scrub, take_away
from turnlog.store.postgres.errors import UNREADABLE, converted, is_lost, open_error
from turnlog.store.postgres.listening import Listener
from turnlog.store.postgres.locks import PostgresLocks
from turnlog.store.postgres.opening import check_version, connect, is_there, make, missing, restore_objects
from turnlog.store.postgres.rebuild import grant_again, replace_tables, schema_change
from turnlog.store.postgres.recorders import PostgresLogFactory
from turnlog.store.postgres.rights import use_flaws
from turnlog.store.postgres.roles import May, check_owner, grant
from turnlog.store.postgres.schema import BUILT, OWN_TABLES, SIGN, VERSION, dialect, versions
from turnlog.store.postgres.storage import (
    BATCH,
    STORAGE,
    condemn,
    condemned,
    misnamed,
    not_removed,
    orphans,
    remember,
    remembered,
    remove_condemned,
    remove_orphans,
    sizes_of_needed,
    strays,
)
from turnlog.store.postgres.transactions import (
    BEGIN_READ,
    ROLLBACK,
    SETTLE,
    PostgresRead,
    PostgresWrite,
)
from turnlog.store.postgres.tries import Tries
from turnlog.store.postgres.wire import Wire
from turnlog.store.sqlite.scratch import SQLiteScratch, scratch
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

T = TypeVar("T")
_log = Teller("turnlog.store")

OnBusy = Callable[[float], None]

POLL_S = 0.25
"""How often the log is asked for its end while somebody follows it: appends elsewhere are heard of before that."""

_IS_SIGNED = "SELECT signature = log_signature() FROM store_state WHERE one = 1"
_NOT_COMPARED = "it cannot be compared with what it should be"
_ORDER_DAMAGE = """\
SELECT 'global positions are not 1, 2, 3 and so on without gaps' FROM log_order
  HAVING COUNT(*) <> COALESCE(MAX(global_position), 0) OR COALESCE(MIN(global_position), 1) <> 1
UNION ALL
SELECT 'global positions are not in the order of the keys' WHERE EXISTS (
  SELECT 1 FROM (SELECT order_key, lag(order_key) OVER (ORDER BY global_position) AS earlier FROM log_order) o
    WHERE order_key <= earlier)
UNION ALL
SELECT 'global position ' || global_position || ' is that of no event' FROM log_order o
  WHERE NOT EXISTS (SELECT 1 FROM stored_events e WHERE e.order_key = o.order_key)
UNION ALL
SELECT 'event ' || event_id || ' has no global position, though later ones have' FROM stored_events e
  WHERE e.order_key < (SELECT MAX(order_key) FROM log_order)
    AND NOT EXISTS (SELECT 1 FROM log_order o WHERE o.order_key = e.order_key)
"""
_ONLY_READS = ("in_hot_standby", "default_transaction_read_only")
"""What a server reports of a session whose transactions only read (PostgreSQL, "Protocol Flow", §55.2.7)."""
_VERSIONS = "a bucket that keeps versions, and its copies, keep the objects for as long as they keep anything"


class PostgresStore(Store):
    """A log in a schema of a PostgreSQL database. Any number of processes, on any number of machines, may write it."""

    def __init__(
        self,
        url: str,
        *,
        projections: Sequence[SyncProjection],
        sides: Sequence[SideTables] = (),
        create: bool = True,
        busy_timeout_s: float = 60.0,
        on_busy: OnBusy | None = None,
        sources: Sources | None = None,
        seals: Seals | None = None,
    ) -> None:
        """Open a store; see `turnlog.store.open_store`."""
        self.url = url
        self._address = address = Address(url)
        self._place_name = address.place
        self._converted = partial(converted, address.place, missing=partial(missing, address))
        self._projections = tuple(projections)
        self._versions = versions(self._projections)
        self._sides = (*sides, STORAGE)
        self._busy_timeout_s = busy_timeout_s
        self.on_busy = on_busy
        self._seals = seals
        self._sources = sources or Sources()
        self._gate = Gate(self._place_name)
        self._ended = Event()
        self._only_reads = False
        self._wires = Wires(address, busy_timeout_s=busy_timeout_s)
        self._payloads = PayloadPlacer(None, objects=Objects(address.payloads) if address.payloads else None)
        self.locks = PostgresLocks(address)
        self._waker = Waker(self._log_end, poll_s=POLL_S)
        self._listener = Listener(address, self._waker.nudge)
        self._appender = Appender(
            self._wires,
            self._payloads,
            self._projections,
            seals=seals,
            busy_timeout_s=busy_timeout_s,
            on_busy=on_busy,
            flaws=self.check_schema,
            tell=self._waker.nudge,
        )
        self.tail = Tail(self.read)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    @cached_property
    def factory(self) -> PostgresLogFactory:  # pyright: ignore[reportIncompatibleVariableOverride]
        """eventsourcing's way to the same log. It has connections of its own."""
        return PostgresLogFactory(self, self._address, self._sources)

    @property
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""
        return self._projections

    # Open

    def _prepare(self, *, create: bool) -> None:
        """Make the tables of a new store; build the projections that an older one lacks."""
        try:
            with self._admin() as connection:
                if not is_there(connection, self._address):
                    if not create:
                        raise StoreOpenError(f"there is no log at {self._place_name!r}: `turnlog add TEXT` makes one")
                    make(connection, self._address, self._projections, self._sides, self._tables())
                self._only_reads = any(connection.info.parameter_status(name) == "on" for name in _ONLY_READS)
                check_version(connection, self._address, self._tables())
                built = self._built(connection)
                check_not_newer(self._projections, built, self._place_name)
                # Where somebody has taken away what says so, reading goes on, and a rebuild restores it.
                known = self._versions if built is None else built
                lacking = [each for each in self._projections if known.get(each.name, 0) < each.version]
                if lacking:
                    check_owner(connection, self._address, "bring it up to date after an older turnlog")
                storage, mark = remembered(connection)
        except psycopg.Error as error:
            raise open_error(error, self._place_name) from error
        if lacking:
            with self._converted():
                self._rebuild(lacking, None)
        self._agree(storage, mark)

    def _agree(self, storage: str | None, mark: str | None) -> None:
        """Take the place that the log has its large payloads at, or let it have the one that the URL names.

        Raises:
            StoreOpenError: the two differ.
            StoreReadOnlyError: it has none, and this role is not the owner.
        """
        objects = self._payloads.objects
        if objects is None:
            self._payloads.elsewhere = storage or ""
            return
        if storage is None:
            with self._converted(), self._admin() as connection:
                check_owner(connection, self._address, "say where its large payloads are to be")
            self.gain(STORAGE)
            with self._gate.enter(), self._converted():
                storage, mark = self._remember(objects.url)
        if storage != objects.url:
            raise StoreOpenError(
                f"store {self._place_name!r} has its large payloads at {storage!r} and not at {objects.url!r}: "
                "`turnlog copy` makes it a store that has them elsewhere"
            )
        objects.mark = mark

    def _remember(self, url: str) -> tuple[str | None, str | None]:
        with self._appender.alone() as transaction:
            remember(transaction, url)
        with self._admin() as connection:
            return remembered(connection)

    def _admin(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Open a connection as psycopg has it, for what is seldom done."""
        return closing(
            connect(
                self._address,
                busy_timeout_s=self._busy_timeout_s,
                ended=self._ended,
                on_busy=self.on_busy,
                make_room=self._wires.close_kept,
            )
        )

    def unsettled(self) -> int:
        """Return how many recorded events no reader is shown yet: on a standby, and in a session that only reads.

        Servers before PostgreSQL 14 do not say that they are one.
        """
        if not self._only_reads:
            return 0
        with self.read() as transaction:
            return len(transaction.unsettled())

    def place(self, payload: Payload | None, seal: Seal | None = None, *, is_written: bool = True) -> NewPayload:
        """Make a payload ready to be appended."""
        with self._gate.enter():
            return self._payloads.place(payload, seal, is_written=is_written)

    # Write

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable."""
        with self._gate.enter():
            return self._appender.write(plan)

    def confirm(self) -> None:
        """Return once the standbys that commits wait for have all that is recorded."""
        self.write(lambda _: None)

    def gain(self, side: SideTables) -> None:
        """Make side tables, durably. Does nothing where they are."""
        with self.read() as transaction:
            if transaction.has(side):
                return
        with self._gate.enter(), self._converted(), self._appender.alone() as transaction:
            if not transaction.has(side):
                with schema_change(transaction):
                    for statement in side.schema:
                        transaction.run(dialect(statement))
                    grant_again(transaction, side.tables)

    def grant(self, role: str, may: May) -> None:
        """Let a role read the log, or read it and append to it, or do nothing with it any more.

        Nobody but the owner can change or erase events.

        Raises:
            StoreReadOnlyError: this role is not the owner.
            StoreError: there is no such role, or it is the owner.
        """
        with self._gate.enter(), self._converted(), self._admin() as connection:
            grant(connection, self._address, role, may, self._tables())

    # Erase

    def erase(
        self,
        plan: Callable[[WriteTransaction], Sequence[Recorded]],
        *,
        foreseen: Sequence[Recorded] = (),
        until: int = 0,
    ) -> ErasedFiles:
        """Take private parts and payloads of events away, for good, in one transaction, and then out of the files."""
        with self._gate.enter(), self._converted():
            with self._admin() as connection:
                check_owner(connection, self._address, "erase")
            shared = self._erase(plan, foreseen, until)
            # From here on it is erased, whatever happens. Whoever appends drops what is kept in memory of events; here
            # also who runs a plan that appends nothing.
            self._appender.look_again()
            self._waker.nudge()
            if shared is None:
                return ErasedFiles()
            try:
                removed, left = self._remove_condemned()
                remains = [what for what in (left, self._scrub(), _VERSIONS if removed else None) if what is not None]
            except (psycopg.Error, StoreError) as error:
                said = str(error).split("\n")[0]
                removed, remains = 0, [f"what was erased is still in the tables ({said}): `turnlog erase --finish`"]
            return ErasedFiles(removed=removed, shared=shared, remains="; ".join(remains) or None)

    def _erase(
        self, plan: Callable[[WriteTransaction], Sequence[Recorded]], foreseen: Sequence[Recorded], until: int
    ) -> int | None:
        """Erase events in one transaction. Return how many objects are kept for others; None if there was nothing."""
        with Refolding(self._projections, scratch, foreseen, until) as refolding:
            refolding.fold_ahead(self.read)
            with self._appender.alone() as transaction:
                refolding.look(transaction)
                targets = plan(transaction)
                if not targets:
                    return None
                transaction.flush()
                files = take_away(transaction, targets)
                unneeded = [file for file in sorted(files) if not transaction.has_file(*file)]
                condemn(transaction, unneeded)
                projections, target = refolding.finish(transaction, targets)
                if target is not None:
                    replace_tables(transaction, projections, target)
        return len(files) - len(unneeded)

    def _remove_condemned(self) -> tuple[int, str | None]:
        """Remove the objects of payloads that were erased. Return how many were, and why some are left."""
        objects, removed = self._payloads.objects, 0
        while True:
            with self.read() as transaction:
                names = condemned(transaction)
                if not names and not misnamed(transaction):
                    return removed, None
            if objects is None and names:
                return removed, not_removed(None, self._payloads.elsewhere, None)
            try:
                self._mark(objects)
                with self._appender.alone() as transaction:
                    removed += remove_condemned(transaction, objects)
            except StoreError as error:
                return removed, not_removed(objects, "", error)

    def _mark(self, objects: Objects | None) -> None:
        """Have a mark for the place of payloads, before something is removed there."""
        if objects is not None and objects.mark is None:
            _, objects.mark = self._remember(objects.url)

    def _collect(self) -> str | None:
        """Remove objects that no event needs and that are not on their way. Return why some are left."""
        objects = self._payloads.objects
        if objects is None:
            return None
        try:
            self._mark(objects)
            with self.read() as reading:
                names = orphans(reading, objects)
            for at in range(0, len(names), BATCH):
                with self._appender.alone() as transaction:
                    remove_orphans(transaction, objects, names[at : at + BATCH])
        except StoreError as error:
            return f"objects that no event needs are left ({error})"
        return None

    def scrub(self) -> str | None:
        """Remove what is left of erased events in the tables; return what still has it."""
        with self._gate.enter(), self._converted():
            with self._admin() as connection:
                check_owner(connection, self._address, "remove what was erased from its files")
            left = self._remove_condemned()[1], self._collect(), self._scrub(in_full=True)
            return "; ".join(what for what in left if what is not None) or None

    def _scrub(self, *, in_full: bool = False) -> str | None:
        tables = [table for projection in self._projections for table in projection.tables]
        with self._admin() as connection:
            return scrub(connection, ["stored_events", *tables], in_full=in_full)

    # Read

    @contextmanager
    def read(self) -> Generator[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""
        with self._gate.enter(), self._converted(denied=UNREADABLE):
            try:
                wire = self._wires.take()
            except psycopg.OperationalError:
                wire = self._reconnect()
            read = PostgresRead(wire, self._payloads, self._seals, [SETTLE], [BEGIN_READ], again=self._reconnect)
            try:
                yield read
            finally:
                wire = read.wire
                if not wire.is_broken:
                    with suppress(psycopg.Error):
                        wire.post(ROLLBACK)
                self._wires.give_back(wire)

    def _reconnect(self) -> Wire:
        """Open a connection, and try again while the server is away, as in a fail-over."""
        tries = Tries(self._busy_timeout_s, ended=self._ended, on_wait=self.on_busy)
        while True:
            try:
                return self._wires.new()
            except psycopg.OperationalError as error:
                if not is_lost(error):
                    raise
                tries.pause(error)

    def _log_end(self) -> int:
        with self.read() as transaction:
            return transaction.log_end()

    def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position, and return the position of its end."""
        self._listener.start()
        return self._waker.wait(after, timeout_s)

    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        """Have a function called once, when the log goes beyond a global position."""
        self._listener.start()
        return self._waker.watch(after, tell, backwards=backwards)

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch. Nothing happens if it was told, or is forgotten already."""
        self._waker.unwatch(watch)

    # Check, measure, mend

    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: wrong positions, and objects that belong to no event."""
        objects = self._payloads.objects
        with self.read() as transaction:
            for (what,) in transaction.rows(_ORDER_DAMAGE):
                yield None, what
            for name in misnamed(transaction):
                yield None, f"{name!r} is to be removed from the payload storage, and can be the name of no payload"
            if objects is not None:
                yield from ((None, what) for what in strays(transaction, objects))

    def check_schema(self) -> list[str]:
        """Return what is not as it should be of tables, indexes, triggers, functions and version, one line each."""
        with self._gate.enter(), self._converted(denied=UNREADABLE), self._admin() as connection:
            try:
                flaws = self._flaws(connection)
            except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
                # Without a temporary table, as on a standby, what those saw who could make one must do.
                flaws = (
                    []
                    if query(connection, _IS_SIGNED) == [(True,)]
                    else [f"{_NOT_COMPARED} ({error.diag.message_primary})"]
                )
            except psycopg.OperationalError:
                raise  # the server cannot do it now, which says nothing of the tables
            except psycopg.Error as error:
                flaws = [f"{_NOT_COMPARED} ({error.diag.message_primary or error})"]
            flaws = [f"the store's schema: {flaw}" for flaw in flaws]
            found = query(connection, "SELECT version FROM store_state WHERE one = 1")
            if found != [(VERSION,)]:
                flaws.append(f"the store's settings: its version is {found[0][0] if found else None}, not {VERSION}")
            built = self._built(connection)
            if built is not None and built != self._versions:
                flaws.append(f"the store says that it has the projections {built}, should have {self._versions}")
            return flaws

    def _flaws(self, connection: psycopg.Connection[Any]) -> list[str]:
        for _ in range(TRIES_MAX):
            # A table that somebody makes anew at this moment cannot be looked at.
            with suppress(errors.InternalError_):
                return self._flaws_now(connection)
        return self._flaws_now(connection)

    def _flaws_now(self, connection: psycopg.Connection[Any]) -> list[str]:
        tables = self._tables()
        return [
            *schema_flaws(connection, tables, self._projections, self._sides),
            *use_flaws(connection, tables),
        ]

    @staticmethod
    def _built(connection: psycopg.Connection[Any]) -> dict[str, int] | None:
        """Return the version that each projection was built with, by name; None where the store does not say."""
        if query(connection, "SELECT to_regclass('store_projections')") == [(None,)]:
            return None
        return dict(query(connection, BUILT))

    def unread(self) -> list[str]:
        """Return the names of tables in the schema that are none of turnlog's."""
        with self._gate.enter(), self._converted(denied=UNREADABLE), self._admin() as connection:
            return tables_of_others(connection, self._tables())

    def _tables(self) -> list[str]:
        """Return the names of the tables that a store can have."""
        folded = [table for projection in self._projections for table in projection.tables]
        return [*OWN_TABLES, *folded, *(name for side in self._sides for name in side.tables)]

    def stats(self) -> StoreStats:
        """Measure the store."""
        with self.read() as transaction:
            payload_bytes = transaction.payload_bytes()
            [(disk_bytes,)] = transaction.rows(
                "SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace ="
                " (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
            )
            sizes = [] if self._payloads.objects is None else sizes_of_needed(transaction, self._payloads.objects)
            return StoreStats(
                events=transaction.log_end(),
                payload_bytes=payload_bytes,
                stored_payload_bytes=transaction.stored_payload_bytes(),
                file_count=len(sizes),
                file_bytes=sum(sizes),
                disk_bytes=disk_bytes,
            )

    def scratch(self) -> AbstractContextManager[ScratchTransaction]:
        """Open an empty temporary database with the tables of the projections."""
        with self._gate.enter():
            return scratch(self._projections)

    def rebuild(self, names: Sequence[str] = (), *, progress: Progress | None = None) -> list[str]:
        """Build projections anew from the log, in place, and return their names. Others can append meanwhile."""
        chosen = named(self._projections, names)
        with self._gate.enter(), self._converted():
            with self._admin() as connection:
                check_owner(connection, self._address, "build its tables anew")
                check_not_newer(self._projections, self._built(connection), self._place_name)
                restore_objects(connection, self._tables())
                drop_probes(connection)
            self._rebuild(chosen, progress)
            self._sign()
        return [projection.name for projection in chosen]

    def _sign(self) -> None:
        """Let those append who saw that the tables were not what they should be, if they are again."""
        if not self.check_schema():
            with self._admin() as connection:
                connection.execute(SIGN)

    def _rebuild(self, projections: Sequence[SyncProjection], progress: Progress | None) -> None:
        _log.info("building %s anew from the log", ", ".join(projection.name for projection in projections))

        @contextmanager
        def alone() -> Generator[tuple[PostgresWrite, ReadTransaction]]:
            with self._appender.alone() as transaction:
                yield transaction, transaction

        def put(transaction: PostgresWrite, target: SQLiteScratch) -> None:
            replace_tables(transaction, projections, target)

        fold_anew(lambda: scratch(projections), self.read, alone, put, progress)

    def check_open(self) -> None:
        """Raise where the store was closed, or this process was forked since."""
        self._gate.check()

    def close(self) -> None:
        """Release everything, once what other threads are at has come to an end. Closing twice is allowed."""
        self._ended.set()
        self._waker.close()
        self._listener.close()
        if self._gate.close(self._busy_timeout_s, self._release):
            self._release()

    def _release(self) -> None:
        self.locks.close()
        self._appender.close()
        self._wires.close()
        if "factory" in vars(self):
            self.factory.close()
        self._payloads.close()
