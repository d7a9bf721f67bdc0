"""The write path of the PostgreSQL store: plans in one transaction, beside those of others or alone.

`docs/adr/0035` has how positions are given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import TypeVar, cast

import psycopg
from psycopg import errors

from turnlog.errors import (
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreReadOnlyError,
    TurnlogError,
    UncertainError,
)
from turnlog.events import Seals
from turnlog.store.group_commit import GroupCommit, Request
from turnlog.store.log_write import Knowledge
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.postgres.connections import Wires
from turnlog.store.postgres.errors import CONFLICTS, DRIVER_ERRORS, is_full, is_lost, store_error
from turnlog.store.postgres.opening import missing
from turnlog.store.postgres.schema import BUILT, VERSION, versions
from turnlog.store.postgres.transactions import (
    BEGIN_ALONE,
    BEGIN_READ,
    COMMIT,
    POSITION,
    ROLLBACK,
    SETTLE,
    WRITTEN,
    AloneError,
    PostgresRead,
    PostgresWrite,
    begin_alone,
)
from turnlog.store.postgres.tries import Tries
from turnlog.store.postgres.wire import Statement, Wire, rows_of
from turnlog.store.transactions import SQLRow, SyncProjection, WriteTransaction
from turnlog.store.values import SealPolicy

T = TypeVar("T")
OnBusy = Callable[[float], None]

LOOK_S = 60.0
"""How often who appends looks whether somebody has changed the tables, in seconds, besides when others say so."""

FOUND_S = 10.0
"""So long, at least, a server is looked for when a connection is found to be lost: that alone takes half a minute."""

TRIES_MAX = 4
"""How often a plan meets others before it runs while nobody else does."""

_FULL_STATE = "SELECT version, epoch, signature = log_signature() FROM store_state WHERE one = 1"
_THERE = "SELECT event_id FROM stored_events WHERE event_id = ?"
_BACKEND = Statement("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
_END_BACKEND = """\
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
  WHERE pid = ? AND backend_start::text = ? AND wait_event IS DISTINCT FROM 'SyncRep'"""
"""One that waits for a standby is waited for: if its wait were ended, others would see what the standby has not."""
_NO_STATE = -1
_NEVER = float("-inf")


class Appender:
    """Appends to a log, with one connection for all threads: whoever comes first commits for those that wait."""

    def __init__(
        self,
        wires: Wires,
        payloads: PayloadPlacer,
        projections: Sequence[SyncProjection],
        *,
        seals: Seals | None,
        busy_timeout_s: float,
        on_busy: OnBusy | None,
        flaws: Callable[[], list[str]],
        tell: Callable[[int | None], None],
    ) -> None:
        """Take what a transaction needs.

        Args:
            wires: where connections come from.
            payloads: what places payloads.
            projections: what is folded.
            seals: the keys of what is sealed.
            busy_timeout_s: how long to wait for others, in seconds.
            on_busy: called while it waits.
            flaws: looks at the tables, and returns what is not as it should be.
            tell: told of the global position that the log reaches, None where it is not known.
        """
        self._wires = wires
        self._payloads = payloads
        self._projections = tuple(projections)
        self._place_name = wires.address.place
        self._error = partial(store_error, place=self._place_name, missing=partial(missing, wires.address))
        self._seals = seals
        self._busy_timeout_s = busy_timeout_s
        self._on_busy = on_busy
        self._flaws = flaws
        self._tell = tell
        self._versions = versions(projections)
        self._writer: Wire | None = None
        self._backend: SQLRow = (0, "")
        """The server's process behind it, by number and beginning."""
        self._known = Knowledge()
        """Only plans look here, one after the other."""
        self._epoch = _NO_STATE
        """The state of the log that is known. It changes with all that is recorded but turns, calls and replies."""
        self._learned_at = _NEVER
        self._policy: SealPolicy | None = None
        self._group = GroupCommit[WriteTransaction](self._commit)

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable."""
        return cast("T", self._group.run(plan))

    def look_again(self) -> None:
        """Have the next plan begin without what is kept in memory: something of it was erased."""
        self._learned_at = _NEVER

    def close(self) -> None:
        """Close the connection. Nobody may be at it."""
        self._drop_writer()

    @contextmanager
    def alone(self) -> Generator[PostgresWrite]:
        """Be the only one who appends, with a connection of its own; commit on leaving.

        Where the connection is lost at the commit, it is found out whether what was appended is there.

        Raises:
            UncertainError: that cannot be found out in time.
        """
        wire = self._connected()
        try:
            [backend] = _backend_of(wire)
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
            try:
                transaction.commit()
            except psycopg.Error as error:
                wire.close()
                if not is_lost(error) or not self._came_in(transaction, backend, error):
                    raise
            self._tell(None)
        finally:
            wire.close()

    def _connected(self) -> Wire:
        """Open a connection, and wait while the server has no room for one."""
        tries = self._tries()
        while True:
            try:
                return self._wires.new(self._on_busy)
            except psycopg.OperationalError as error:
                if not is_full(error):
                    raise
                tries.pause(error)

    def _came_in(self, transaction: PostgresWrite, backend: SQLRow, error: psycopg.Error) -> bool:
        """Tell whether a transaction is recorded whose connection was lost at its commit.

        Raises:
            UncertainError: that is not known.
        """
        if not transaction.is_sent or not transaction.recorded:
            return False  # what records no event is done again, or not, and nobody is to know of it
        tries = self._tries()
        while True:
            try:
                wire = self._wires.new(self._on_busy)
                try:
                    return _is_there(wire, transaction.recorded[0].header.id, backend)
                finally:
                    wire.close()
            except psycopg.Error as again:
                if self._is_over(again, tries):
                    raise UncertainError(
                        f"the connection to store {self._place_name!r} was lost at the end of a change "
                        f"({self._error(error)}): it may be recorded or not, do it again"
                    ) from error

    def _commit(self, batch: Sequence[Request[WriteTransaction]]) -> None:
        """Run a batch in one transaction, again and again until it meets nobody."""
        waiting = batch
        met, is_alone, is_careful, has_lost = 0, False, False, False
        tries = self._tries()
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
                met += 1
                if is_alone and met > 2 * TRIES_MAX:
                    self._fail(waiting, self._error(error))
                    return
                is_careful = is_careful or isinstance(error, errors.UniqueViolation)
                is_alone = is_alone or met >= TRIES_MAX
                sleep(random.random() * 0.001 * met)
            except (*DRIVER_ERRORS, SchemaError) as error:
                if not isinstance(error, SchemaError) and is_lost(error):
                    if self._writer is not None and not has_lost:
                        has_lost = True
                        tries.last(min(FOUND_S, self._busy_timeout_s))
                    waiting = self._lost(error, transaction, waiting, tries)
                    continue
                self._roll_back()
                self._forget()
                failure = error if isinstance(error, SchemaError) else self._error(error)
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
        transaction.commit(is_refused=all(request.error is not None for request in waiting))
        self._settle_down(transaction)
        return []

    def _settle_down(self, transaction: PostgresWrite) -> None:
        """Learn what a transaction has changed, once it is committed, and tell those who follow."""
        tries = self._tries()
        while not transaction.is_placed:
            self._place(transaction, tries)
        self._epoch, self._policy = transaction.epoch, transaction.seal_policy()
        self._known.remember([*transaction.met, *transaction.recorded])
        if transaction.recorded:
            self._tell(transaction.recorded[-1].global_position)

    def _place(self, transaction: PostgresWrite, tries: Tries) -> None:
        """Ask where events stand that are committed. Writers of others, that began earlier, may still be at it."""
        event_id = next(iter(transaction.unplaced()), "")
        try:
            wire = self._writing()
            answers = wire.exchange(*([Statement(POSITION, (event_id,))] for event_id in transaction.unplaced()))
            transaction.place_all(answers)
        except psycopg.Error as error:
            self._drop_writer()
            try:
                tries.pause(error, 0.05)
            except psycopg.Error:
                raise UncertainError(
                    f"event {event_id!r} is recorded in store {self._place_name!r}, and its global position is not "
                    "known yet, because another writer neither goes on nor ends: ask for its id"
                ) from error
        else:
            if not transaction.is_placed:
                raise UncertainError(
                    f"event {event_id!r} was recorded in store {self._place_name!r}, and is not there any more: its "
                    "tables were removed or put back meanwhile. Record it again when that is over"
                )

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
        self._learned_at = monotonic()  # first: what is erased while this looks makes the next plan look again
        self._known.forget()
        self._known.recent.clear()
        [(version, epoch, is_signed)] = read.rows(_FULL_STATE) or [(None, None, False)]
        if not is_signed and version in (VERSION, None) and (flaws := self._flaws()):
            raise SchemaError(
                f"the tables of store {self._place_name!r} are not what they should be ({flaws[0]}): "
                "run `turnlog verify`; nothing was recorded"
            )
        built = dict(read.rows(BUILT))
        self._policy = read.seal_policy()
        if version != VERSION or built != self._versions:
            raise SchemaError(
                f"store {self._place_name!r} was changed by another version of turnlog: "
                "open it again, or upgrade turnlog; nothing was recorded"
            )
        self._epoch = epoch

    def _forget(self) -> None:
        self._epoch = _NO_STATE
        self._known.forget()
        self._known.recent.clear()

    def _writing(self) -> Wire:
        """Return the one connection that appends. Only the leader of a group commit asks for it."""
        if self._writer is None or self._writer.is_broken:
            self._drop_writer()
            self._writer = wire = self._wires.new(self._on_busy)
            [self._backend] = _backend_of(wire)
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
        tries: Tries,
    ) -> Sequence[Request[WriteTransaction]]:
        """Go on after the connection was lost. Return the requests that must run again."""
        self._drop_writer()
        backend = self._backend
        is_open = transaction is not None and transaction.is_sent and bool(transaction.recorded)
        while is_open and transaction is not None:
            try:
                if _is_there(self._writing(), transaction.recorded[0].header.id, backend):
                    self._settle_down(transaction)
                    return []
                return waiting
            except psycopg.Error as again:
                self._drop_writer()
                if self._is_over(again, tries):
                    self._fail(
                        waiting,
                        UncertainError(
                            f"the connection to store {self._place_name!r} was lost at the end of an append "
                            f"({self._error(error)}): it may be recorded or not, ask for its id, or "
                            "record it again under the same id"
                        ),
                    )
                    return []
        try:
            tries.pause(error)
        except psycopg.Error as last:
            self._fail(waiting, self._error(last))
            return []
        return waiting

    def _tries(self) -> Tries:
        return Tries(self._busy_timeout_s, on_wait=self._on_busy)

    @staticmethod
    def _is_over(error: psycopg.Error, tries: Tries) -> bool:
        """Tell whether a server is not looked for again after an error. If it is, this has waited a moment."""
        if not is_lost(error):
            return True
        try:
            tries.pause(error)
        except psycopg.Error:
            return True
        return False


def _backend_of(wire: Wire) -> list[SQLRow]:
    """Return the server's process behind a connection, by number and beginning."""
    return rows_of(wire.exchange([_BACKEND])[0])[0]


def _is_there(wire: Wire, event_id: str, backend: SQLRow) -> bool:
    """Tell whether an event whose commit was sent is recorded. Both answers are certain.

    Args:
        wire: another connection.
        event_id: the id of the event.
        backend: the server's process that it was sent to. It may still be at it, or not have read it yet.
    """
    ended, answer = wire.exchange(
        [Statement(_END_BACKEND, backend)],
        [*BEGIN_ALONE, Statement(_THERE, (event_id,)), WRITTEN, COMMIT],
    )
    rows_of(ended)
    _, _, found, _, _ = rows_of(answer)
    return bool(found)
