"""The PostgreSQL store: opening, the write path, reading, measuring. `docs/adr/0035` has how positions are given."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from threading import Event
from time import monotonic, sleep
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors

from turnlog.errors import (
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreOpenError,
    StoreReadOnlyError,
    TurnlogError,
    UncertainError,
)
from turnlog.events import Recorded, Seal, Seals
from turnlog.sources import Sources
from turnlog.store.folding import fold_page, fold_without
from turnlog.store.gate import Gate
from turnlog.store.group_commit import GroupCommit, Request
from turnlog.store.interface import Store
from turnlog.store.log_write import Knowledge
from turnlog.store.objects import Objects
from turnlog.store.pages import Tail
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.postgres.catalog import query, schema_flaws, tables_of_others
from turnlog.store.postgres.connections import Address, Wires
from turnlog.store.postgres.erasing import scrub, take_away
from turnlog.store.postgres.errors import CONFLICTS, DRIVER_ERRORS, converted, is_lost, open_error, store_error
from turnlog.store.postgres.listening import Listener
from turnlog.store.postgres.opening import check_version, is_there, make, restore_objects
from turnlog.store.postgres.rebuild import grant_again, replace_tables, schema_change
from turnlog.store.postgres.recorders import PostgresLogFactory
from turnlog.store.postgres.roles import May, check_owner, grant
from turnlog.store.postgres.schema import OWN_TABLES, SIGN, VERSION, dialect
from turnlog.store.postgres.storage import (
    BATCH,
    STORAGE,
    condemn,
    condemned,
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
    BEGIN_ALONE,
    BEGIN_READ,
    COMMIT,
    POSITION,
    ROLLBACK,
    SETTLE,
    AloneError,
    PostgresRead,
    PostgresWrite,
    begin_alone,
)
from turnlog.store.postgres.wire import Statement, Wire, rows_of
from turnlog.store.sqlite.scratch import scratch
from turnlog.store.transactions import (
    ReadTransaction,
    ScratchTransaction,
    SideTables,
    SQLRow,
    SyncProjection,
    WriteTransaction,
)
from turnlog.store.values import ErasedFiles, NewPayload, SealPolicy, StoreStats
from turnlog.store.waiting import Waker, Watch

T = TypeVar("T")
OnBusy = Callable[[float], None]

POLL_S = 0.25
"""How often the log is asked for its end while somebody follows it: appends elsewhere are heard of before that."""

AGAIN_S = 0.1
"""How often a server that is away is tried again, in seconds."""

LOOK_S = 60.0
"""How often who appends looks whether somebody has changed the tables, in seconds, besides when others say so."""

TRIES_MAX = 4
"""How often a plan meets others before it runs while nobody else does."""

_FULL_STATE = "SELECT version, epoch, signature = log_signature() FROM store_state WHERE one = 1"
_IS_SIGNED = "SELECT signature = log_signature() FROM store_state WHERE one = 1"
_NOT_COMPARED = "it cannot be compared with what it should be"
_BUILT = "SELECT name, version FROM store_projections"
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
_THERE = "SELECT event_id FROM stored_events WHERE event_id = ?"
_BACKEND = Statement("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
_END_BACKEND = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid = ? AND backend_start::text = ?"
_WRITTEN = Statement("SELECT pg_logical_emit_message(true, 'turnlog', '')")
_NO_STATE = -1
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
        self._projections = tuple(projections)
        self._sides = (*sides, STORAGE)
        self._busy_timeout_s = busy_timeout_s
        self._on_busy = on_busy
        self._seals = seals
        self._sources = sources or Sources()
        self._gate = Gate(self._place_name)
        self._ended = Event()
        self._wires = Wires(address, busy_timeout_s=busy_timeout_s)
        self._payloads = PayloadPlacer(None, objects=Objects(address.payloads) if address.payloads else None)
        self._writer: Wire | None = None
        self._backend: SQLRow = (0, "")
        """The server's process behind it, by number and beginning."""
        self._known = Knowledge()
        """Only plans look here, one after the other."""
        self._epoch = _NO_STATE
        """The state of the log that is known. It changes with all that is recorded but turns, calls and replies."""
        self._learned_at = 0.0
        self._policy: SealPolicy | None = None
        self._group = GroupCommit[WriteTransaction](self._commit)
        self._waker = Waker(self._log_end, poll_s=POLL_S)
        self._listener = Listener(address, self._waker.nudge)
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
                check_version(connection, self._address)
                built = self._built(connection)
                # Where somebody has taken away what says so, reading goes on, and a rebuild restores it.
                known = self._versions if built is None else built
                lacking = [each for each in self._projections if known.get(each.name, 0) < each.version]
                if lacking:
                    check_owner(connection, self._address, "bring it up to date after an older turnlog")
                storage = remembered(connection)
        except psycopg.Error as error:
            raise open_error(error, self._place_name) from error
        if lacking:
            with converted(self._place_name):
                self._rebuild(lacking, None)
        self._agree(storage)

    def _agree(self, storage: str | None) -> None:
        """Take the place that the log has its large payloads at, or let it have the one that the URL names.

        Raises:
            StoreOpenError: the two differ.
        """
        objects = self._payloads.objects
        if objects is None:
            self._payloads.elsewhere = storage or ""
            return
        if storage is None:
            self.gain(STORAGE)
            with self._gate.enter(), converted(self._place_name):
                with self._alone() as transaction:
                    remember(transaction, objects.url)
                with self._admin() as connection:
                    storage = remembered(connection)
        if storage != objects.url:
            raise StoreOpenError(
                f"store {self._place_name!r} has its large payloads at {storage!r} and not at {objects.url!r}: "
                "`turnlog copy` makes it a store that has them elsewhere"
            )

    @contextmanager
    def _admin(self) -> Generator[psycopg.Connection[Any]]:
        """Open a connection as psycopg has it, for what is seldom done."""
        connection = self._address.connect(lock_timeout_s=self._busy_timeout_s, connect_timeout_s=10)
        try:
            yield connection
        finally:
            connection.close()

    def place(self, payload: bytes | None, seal: Seal | None = None) -> NewPayload:
        """Make a payload ready to be appended."""
        with self._gate.enter():
            return self._payloads.place(payload, seal)

    # Write

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable."""
        with self._gate.enter():
            return cast("T", self._group.run(plan))

    def _commit(self, batch: Sequence[Request[WriteTransaction]]) -> None:
        """Run a batch in one transaction, again and again until it meets nobody."""
        waiting = batch
        tries, is_alone, is_careful = 0, False, False
        until = monotonic() + self._busy_timeout_s
        while waiting:
            transaction: PostgresWrite | None = None
            try:
                wire = self._writing()
                if self._epoch == _NO_STATE or monotonic() - self._learned_at > LOOK_S:
                    self._learn(wire)
                transaction = self._transaction(wire, is_alone=is_alone, is_careful=is_careful)
                waiting = self._attempt(transaction, waiting)
            except AloneError:
                self._roll_back()
                is_alone = True
            except CONFLICTS as error:
                self._roll_back()
                self._forget()
                tries += 1
                if is_alone and tries > 2 * TRIES_MAX:
                    self._fail(waiting, store_error(error, self._place_name))
                    return
                is_careful = is_careful or isinstance(error, errors.UniqueViolation)
                is_alone = is_alone or tries >= TRIES_MAX
                sleep(random.random() * 0.001 * tries)
            except (*DRIVER_ERRORS, SchemaError) as error:
                if not isinstance(error, SchemaError) and is_lost(error):
                    waiting = self._lost(error, transaction, waiting, until)
                    continue
                self._roll_back()
                self._forget()
                failure = error if isinstance(error, SchemaError) else store_error(error, self._place_name)
                if len(waiting) == 1 or isinstance(failure, SchemaError | StoreBusyError | StoreReadOnlyError):
                    self._fail(waiting, failure)
                    return
                # It is one's fault, and nobody knows whose: each by itself.
                for request in waiting:
                    self._commit([request])
                return
            except BaseException:
                self._drop_writer()
                raise

    @staticmethod
    def _fail(waiting: Sequence[Request[WriteTransaction]], error: StoreError) -> None:
        for request in waiting:
            request.error = request.error or error

    def _attempt(
        self, transaction: PostgresWrite, waiting: Sequence[Request[WriteTransaction]]
    ) -> list[Request[WriteTransaction]]:
        """Run requests in one transaction and commit it. Return those that must run again."""
        for request in waiting:
            before = len(transaction.recorded)
            request.error = None
            try:
                request.result = request.work(transaction)
            except (AloneError, *DRIVER_ERRORS):
                raise
            except Exception as error:  # noqa: BLE001 - every error of a plan goes to its own caller
                request.error = error
                if len(transaction.recorded) > before or not isinstance(error, TurnlogError):
                    self._roll_back()
                    self._forget()
                    return [other for other in waiting if other.error is None]
        transaction.commit()
        self._settle_down(transaction)
        return []

    def _settle_down(self, transaction: PostgresWrite) -> None:
        """Learn what a transaction has changed, once it is committed, and tell those who follow."""
        until = monotonic() + self._busy_timeout_s
        while not transaction.is_placed:
            self._place(transaction, until)
        self._epoch, self._policy = transaction.epoch, transaction.seal_policy()
        self._known.remember([*transaction.met, *transaction.recorded])
        if transaction.recorded:
            self._waker.nudge(transaction.recorded[-1].global_position)

    def _place(self, transaction: PostgresWrite, until: float) -> None:
        """Ask where events stand that are committed. Writers of others, that began earlier, may still be at it."""
        try:
            wire = self._writing()
            answers = wire.exchange(*([Statement(POSITION, (event_id,))] for event_id in transaction.unplaced()))
            transaction.place_all([rows_of(answer)[0][0][0] for answer in answers])
        except psycopg.Error as error:
            self._drop_writer()
            if monotonic() > until:
                event_id = transaction.recorded[0].header.id if transaction.recorded else ""
                raise UncertainError(
                    f"event {event_id!r} is recorded in store {self._place_name!r}, and its global position is not "
                    "known yet, because another writer neither goes on nor ends: ask for its id"
                ) from error
            sleep(0.05)

    def _transaction(self, wire: Wire, *, is_alone: bool, is_careful: bool) -> PostgresWrite:
        """Begin a write transaction: beside others, or with nobody else appending."""
        self._known.heads.clear()  # others may have moved them
        end = 0
        if is_alone:
            end, epoch = begin_alone(wire)
            if epoch != self._epoch:
                # Now that nobody else appends it stays as it is.
                self._look(PostgresRead(wire, self._payloads, self._seals))
        return PostgresWrite(
            wire,
            self._payloads,
            self._projections,
            seals=self._seals,
            policy=self._policy,
            known=self._known,
            epoch=self._epoch,
            is_alone=is_alone,
            is_careful=is_careful,
            end=end,
        )

    def _learn(self, wire: Wire) -> None:
        """Look at the state of the log.

        Raises:
            SchemaError: another version of turnlog has changed the tables.
        """
        try:
            self._look(PostgresRead(wire, self._payloads, self._seals, [SETTLE], [BEGIN_READ]))
        finally:
            if not wire.is_broken:
                wire.post(ROLLBACK)

    def _look(self, read: PostgresRead) -> None:
        """Look at the state of the log in a transaction that is at hand. See `_learn`."""
        self._known.forget()
        self._known.recent.clear()
        [(version, epoch, is_signed)] = read.rows(_FULL_STATE) or [(None, None, False)]
        if not is_signed and version in (VERSION, None) and (flaws := self.check_schema()):
            raise SchemaError(
                f"the tables of store {self._place_name!r} are not what they should be ({flaws[0]}): "
                "run `turnlog verify`; nothing was recorded"
            )
        built = dict(read.rows(_BUILT))
        self._policy = read.seal_policy()
        if version != VERSION or built != self._versions:
            raise SchemaError(
                f"store {self._place_name!r} was changed by another version of turnlog: "
                "open it again, or upgrade turnlog; nothing was recorded"
            )
        self._epoch = epoch
        self._learned_at = monotonic()

    def _forget(self) -> None:
        self._epoch = _NO_STATE
        self._known.forget()
        self._known.recent.clear()

    def _writing(self) -> Wire:
        """Return the one connection that appends. Only the leader of a group commit asks for it."""
        if self._writer is None or self._writer.is_broken:
            self._drop_writer()
            self._writer = wire = self._wires.new(self._on_busy)
            [self._backend] = rows_of(wire.exchange([_BACKEND])[0])[0]
        return self._writer

    def _roll_back(self) -> None:
        if self._writer is not None and not self._writer.is_broken:
            with suppress(psycopg.Error):
                self._writer.post(ROLLBACK)

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._forget()

    def _lost(
        self,
        error: psycopg.Error,
        transaction: PostgresWrite | None,
        waiting: Sequence[Request[WriteTransaction]],
        until: float,
    ) -> Sequence[Request[WriteTransaction]]:
        """Go on after the connection was lost. Return the requests that must run again."""
        self._drop_writer()
        backend = self._backend
        is_open = transaction is not None and transaction.is_sent and bool(transaction.recorded)
        while is_open and transaction is not None:
            try:
                if self._is_there(transaction.recorded[0].header.id, backend):
                    self._settle_down(transaction)
                    return []
                return waiting
            except psycopg.Error as again:
                self._drop_writer()
                if not is_lost(again) or monotonic() > until:
                    self._fail(
                        waiting,
                        UncertainError(
                            f"the connection to store {self._place_name!r} was lost at the end of an append "
                            f"({store_error(error, self._place_name)}): it may be recorded or not, ask for its id, or "
                            "record it again under the same id"
                        ),
                    )
                    return []
                sleep(0.1)
        if monotonic() > until:
            self._fail(waiting, store_error(error, self._place_name))
            return []
        sleep(0.1)
        return waiting

    def _is_there(self, event_id: str, backend: SQLRow) -> bool:
        """Tell whether an event whose commit was sent is recorded. Both answers are certain.

        Args:
            event_id: the id of the event.
            backend: the server's process that it was sent to. It may still be at it, or not have read it yet.
        """
        wire = self._writing()
        ended, answer = wire.exchange(
            [Statement(_END_BACKEND, backend)],
            # What is written makes the commit wait for standbys: then they have all that came before, too.
            [*BEGIN_ALONE, Statement(_THERE, (event_id,)), _WRITTEN, COMMIT],
        )
        rows_of(ended)
        _, _, found, _, _ = rows_of(answer)
        return bool(found)

    @contextmanager
    def _alone(self) -> Generator[PostgresWrite]:
        """Be the only one who appends, with a connection of its own; commit on leaving."""
        wire = self._wires.new(self._on_busy)
        try:
            end, epoch = begin_alone(wire)
            transaction = PostgresWrite(
                wire,
                self._payloads,
                self._projections,
                seals=self._seals,
                policy=None,
                known=Knowledge(),
                epoch=epoch,
                is_alone=True,
                is_careful=True,
                end=end,
            )
            transaction.learn_policy()
            yield transaction
            transaction.commit()
            self._waker.nudge()
        finally:
            wire.close()

    def gain(self, side: SideTables) -> None:
        """Make side tables, durably. Does nothing where they are."""
        with self.read() as transaction:
            if transaction.has(side):
                return
        with self._gate.enter(), converted(self._place_name), self._alone() as transaction:
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
        with self._gate.enter(), converted(self._place_name), self._admin() as connection:
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
        with self._gate.enter(), converted(self._place_name):
            with self._admin() as connection:
                check_owner(connection, self._address, "erase")
            shared = self._erase(plan, foreseen, until)
            # From here on it is erased, whatever happens. Whoever appends drops what is kept in memory of events.
            self._waker.nudge()
            if shared is None:
                return ErasedFiles()
            removed, left = self._remove_condemned()
            remains = [what for what in (left, self._scrub(), _VERSIONS if removed else None) if what is not None]
            return ErasedFiles(removed=removed, shared=shared, remains="; ".join(remains) or None)

    def _erase(
        self, plan: Callable[[WriteTransaction], Sequence[Recorded]], foreseen: Sequence[Recorded], until: int
    ) -> int | None:
        """Erase events in one transaction. Return how many objects are kept for others; None if there was nothing."""
        erased = frozenset(recorded.global_position for recorded in foreseen)
        folded = self._projections_of(foreseen)
        with ExitStack() as stack:
            target = stack.enter_context(scratch(folded))
            after = 0
            while folded and after < until:
                with self.read() as transaction:
                    after = fold_without(target, transaction, after, until, erased)
            transaction = stack.enter_context(self._alone())
            targets = plan(transaction)
            if not targets:
                return None
            transaction.flush()
            files = take_away(transaction, targets)
            unneeded = [file for file in sorted(files) if not transaction.has_file(*file)]
            condemn(transaction, unneeded)
            needed = self._projections_of(targets)
            if {projection.name for projection in needed} - {projection.name for projection in folded} or any(
                recorded.global_position <= until and recorded.global_position not in erased for recorded in targets
            ):
                target, after = stack.enter_context(scratch(needed)), 0
            end = transaction.log_end()
            while needed and after < end:
                after = fold_without(target, transaction, after, end)
            replace_tables(transaction, needed, target)
        return len(files) - len(unneeded)

    def _remove_condemned(self) -> tuple[int, str | None]:
        """Remove the objects of payloads that were erased. Return how many were, and why some are left."""
        objects, removed = self._payloads.objects, 0
        while True:
            with self.read() as transaction:
                if not condemned(transaction):
                    return removed, None
            if objects is None:
                return removed, not_removed(None, self._payloads.elsewhere, None)
            try:
                with self._alone() as transaction:
                    removed += remove_condemned(transaction, objects)
            except StoreError as error:
                return removed, not_removed(objects, "", error)

    def _collect(self) -> str | None:
        """Remove objects that no event needs and that are not on their way. Return why some are left."""
        objects = self._payloads.objects
        if objects is None:
            return None
        try:
            with self.read() as reading:
                names = orphans(reading, objects)
            for at in range(0, len(names), BATCH):
                with self._alone() as transaction:
                    remove_orphans(transaction, objects, names[at : at + BATCH])
        except StoreError as error:
            return f"objects that no event needs are left ({error})"
        return None

    def _projections_of(self, events: Sequence[Recorded]) -> list[SyncProjection]:
        """Return the projections that rest on private parts of events."""
        return [projection for projection in self._projections if any(map(projection.reads_private, events))]

    def scrub(self) -> str | None:
        """Remove what is left of erased events in the tables; return what still has it."""
        with self._gate.enter(), converted(self._place_name):
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
        with self._gate.enter(), converted(self._place_name):
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
        until = monotonic() + self._busy_timeout_s
        while True:
            try:
                return self._wires.new()
            except psycopg.OperationalError as error:
                if not is_lost(error) or monotonic() > until or self._ended.wait(AGAIN_S):
                    raise

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
            if objects is not None:
                try:
                    yield from ((None, what) for what in strays(transaction, objects))
                except StoreError as error:
                    yield None, str(error)

    def check_schema(self) -> list[str]:
        """Return what is not as it should be of tables, indexes, triggers, functions and version, one line each."""
        with self._gate.enter(), converted(self._place_name), self._admin() as connection:
            try:
                flaws = self._flaws(connection)
            except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
                # Without a temporary table, as on a standby, what those saw who could make one must do.
                flaws = (
                    []
                    if query(connection, _IS_SIGNED) == [(True,)]
                    else [f"{_NOT_COMPARED} ({error.diag.message_primary})"]
                )
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
                return schema_flaws(connection, self._tables(), self._projections, self._sides)
        return schema_flaws(connection, self._tables(), self._projections, self._sides)

    @property
    def _versions(self) -> dict[str, int]:
        return {projection.name: projection.version for projection in self._projections}

    @staticmethod
    def _built(connection: psycopg.Connection[Any]) -> dict[str, int] | None:
        """Return the version that each projection was built with, by name; None where the store does not say."""
        if query(connection, "SELECT to_regclass('store_projections')") == [(None,)]:
            return None
        return dict(query(connection, _BUILT))

    def unread(self) -> list[str]:
        """Return the names of tables in the schema that are none of turnlog's."""
        with self._gate.enter(), converted(self._place_name), self._admin() as connection:
            return tables_of_others(connection, self._tables())

    def _tables(self) -> list[str]:
        """Return the names of the tables that a store can have."""
        folded = [table for projection in self._projections for table in projection.tables]
        return [*OWN_TABLES, *folded, *(name for side in self._sides for name in side.tables)]

    def stats(self) -> StoreStats:
        """Measure the store."""
        with self.read() as transaction:
            [(stored,)] = transaction.rows("SELECT COALESCE(SUM(LENGTH(payload)), 0)::bigint FROM stored_events")
            payload_bytes = sum(recorded.size or recorded.stored_size or 0 for recorded in transaction.log())
            [(disk_bytes,)] = transaction.rows(
                "SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace ="
                " (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
            )
            sizes = [] if self._payloads.objects is None else sizes_of_needed(transaction, self._payloads.objects)
            return StoreStats(
                events=transaction.log_end(),
                payload_bytes=payload_bytes,
                stored_payload_bytes=stored,
                file_count=len(sizes),
                file_bytes=sum(sizes),
                disk_bytes=disk_bytes,
            )

    def scratch(self) -> AbstractContextManager[ScratchTransaction]:
        """Open an empty temporary database with the tables of the projections."""
        with self._gate.enter():
            return scratch(self._projections)

    def rebuild(self, names: Sequence[str] = (), *, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Build projections anew from the log, in place, and return their names. Others can append meanwhile."""
        known = {projection.name: projection for projection in self._projections}
        if unknown := [name for name in names if name not in known]:
            raise SchemaError(f"no projection {unknown[0]!r} (one of {', '.join(map(repr, known))})")
        with self._gate.enter(), converted(self._place_name):
            with self._admin() as connection:
                check_owner(connection, self._address, "build its tables anew")
                restore_objects(connection, self._tables())
            chosen = [known[name] for name in names] or list(self._projections)
            self._rebuild(chosen, progress)
            self._sign()
        return [projection.name for projection in chosen]

    def _sign(self) -> None:
        """Let those append who saw that the tables were not what they should be, if they are again."""
        if not self.check_schema():
            with self._admin() as connection:
                connection.execute(SIGN)

    def _rebuild(self, projections: Sequence[SyncProjection], progress: Callable[[int, int], None] | None) -> None:
        with scratch(projections) as target:
            after = 0
            with self.read() as transaction:
                end = transaction.log_end()
            while after < end:
                with self.read() as transaction:
                    after = fold_page(target, transaction, after)
                if progress is not None:
                    progress(after, end)
            with self._alone() as transaction:
                while (reached := fold_page(target, transaction, after)) > after:
                    after = reached
                replace_tables(transaction, projections, target)

    def close(self) -> None:
        """Release everything, once what other threads are at has come to an end. Closing twice is allowed."""
        self._ended.set()
        self._waker.close()
        self._listener.close()
        if self._gate.close(self._busy_timeout_s, self._release):
            self._release()

    def _release(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._wires.close()
        if "factory" in vars(self):
            self.factory.close()
        self._payloads.close()
