"""The write path of the SQLite store: plans that come together run in one transaction, with one sync."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from turnlog.errors import SchemaError, StoreError, TurnlogError
from turnlog.events import Seals
from turnlog.store.group_commit import GroupCommit, Request
from turnlog.store.log_write import Knowledge
from turnlog.store.payloads import PayloadPlacer
from turnlog.store.sqlite.connections import BUSY_LOOK_S, Connections, begin_to_write
from turnlog.store.sqlite.errors import DRIVER_ERRORS, store_error
from turnlog.store.sqlite.opening import Place, check_file
from turnlog.store.sqlite.schema import OBJECTS, VERSION, SchemaRow, built_projections, schema_flaws
from turnlog.store.sqlite.transactions import SQLiteRead, SQLiteWrite
from turnlog.store.telling import Teller
from turnlog.store.transactions import SyncProjection, WriteTransaction
from turnlog.store.values import SealPolicy

_log = Teller("turnlog.store")

T = TypeVar("T")
OnBusy = Callable[[float], None]
"""Called while an append waits for another process that writes, with the seconds that it has waited."""


class Writer:
    """The connection that appends, with a cursor that is given without any ado: `with writer as cursor: …`."""

    __slots__ = ("connection", "cursor")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take the connection."""
        self.connection = connection
        self.cursor = connection.cursor()

    def __enter__(self) -> sqlite3.Cursor:
        """Give the cursor."""
        return self.cursor

    def __exit__(self, *_: object) -> None:
        """Do nothing: the connection stays open."""


class Appender:
    """Appends to a log, with one connection for all threads: whoever comes first commits for those that wait.

    It is connected with the first plan. What is known of the log from one transaction to the next is kept here, and
    dropped as soon as anybody else is seen to have written.
    """

    def __init__(  # noqa: PLR0913 - what the store has that is behind it
        self,
        name: str,
        place: Place,
        connections: Connections,
        payloads: PayloadPlacer,
        projections: Sequence[SyncProjection],
        *,
        expected: dict[str, SchemaRow],
        seals: Seals | None,
        busy_timeout_s: float,
        on_busy: OnBusy | None,
        tell: Callable[[int], None],
    ) -> None:
        """Take what a store consists of; nothing is connected yet.

        Args:
            name: the name of the store, for people.
            place: where it is.
            connections: what connects to it.
            payloads: what places payloads.
            projections: what is folded with each event.
            expected: the objects that the store has, by name.
            seals: the keys of what is sealed.
            busy_timeout_s: how long to wait for another process that writes, in seconds.
            on_busy: called while an append waits for it.
            tell: told of the global position that the log reaches.
        """
        self._name = name
        self._place = place
        self._connections = connections
        self._payloads = payloads
        self._projections = projections
        self._expected = expected
        self._seals = seals
        self._busy_timeout_s = busy_timeout_s
        self._on_busy = on_busy
        self._tell = tell
        self._writer: Writer | None = None
        self._policy: SealPolicy | None = None
        self._known = Knowledge()
        """Only plans look here, one after the other."""
        self._committing = False
        self._data_seen: int | None = None
        """SQLite's number for what others have committed, when it was last looked at."""
        self._schema_seen: int | None = None
        """SQLite's count of schema changes when the schema was last found to be as it should."""
        self._group = GroupCommit[WriteTransaction](self._commit)

    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable. See `Store.write`."""
        outcome: Any = self._group.run(plan)
        return outcome

    def rest(self) -> None:
        """Close the connection, unless a plan runs. The next one opens another."""
        if not self._group.is_leading:
            self._data_seen = None  # of this connection
            self.close()

    def close(self) -> None:
        """Close the connection. No plan may be running."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.connection.close()

    def check_tables(self, cursor: sqlite3.Cursor) -> None:
        """Refuse to write to a store whose tables are others than this process knows.

        Raises:
            SchemaError: they are not what they should be, or another turnlog has changed them.
        """
        [(version,)] = cursor.execute("PRAGMA user_version").fetchall()
        built = built_projections(cursor)
        known = {projection.name: projection.version for projection in self._projections}
        if version != VERSION or (built is not None and built != known):
            raise SchemaError(
                f"store {self._name!r} was changed by another version of turnlog: "
                "open it again, or upgrade turnlog; nothing was recorded"
            )
        if flaws := schema_flaws(self._expected, cursor.execute(OBJECTS).fetchall()):
            raise SchemaError(
                f"the tables of store {self._name!r} are not what they should be ({flaws[0]}): "
                "run `turnlog verify`; nothing was recorded"
            )

    def _commit(self, batch: Sequence[Request[WriteTransaction]]) -> None:
        """Run a batch in one transaction. A request that fails after it appended makes the others run again."""
        waiting = batch
        try:
            with self._writing() as cursor:
                while waiting:
                    waiting = self._attempt(cursor, waiting)
        except (*DRIVER_ERRORS, StoreError) as error:
            failure = (
                error if isinstance(error, StoreError) else store_error(error, self._name, committing=self._committing)
            )
            for request in waiting:
                request.error = request.error or failure

    def _attempt(
        self, cursor: sqlite3.Cursor, waiting: Sequence[Request[WriteTransaction]]
    ) -> list[Request[WriteTransaction]]:
        """Run requests in one transaction and commit it. Return those that must run again."""
        # Not through `_transaction`: what runs between two syncs to disk runs cold, so that every call here is dear.
        self._committing = False
        transactions: list[SQLiteWrite] = []
        try:
            self._begin(cursor)
            check_file(self._place, self._name)
            if self._place.beside is not None:
                self._place.beside.look()
            self._look_for_others(cursor)
            policy = self._policy
            # Until the end is reached, whatever happens, nothing is known of what follows.
            data_seen, self._data_seen = self._data_seen, None
            connection = cursor.connection
            for request in waiting:
                changes = connection.total_changes
                transaction = SQLiteWrite(
                    cursor, self._payloads, self._projections, seals=self._seals, policy=policy, known=self._known
                )
                transactions.append(transaction)
                try:
                    request.result = request.work(transaction)
                    transaction.publish_payloads()
                    policy = transaction.seal_policy()  # it may have said what is sealed from here on
                except Exception as error:  # noqa: BLE001 - every error of a plan goes to its own caller
                    request.error = store_error(error, self._name) if isinstance(error, DRIVER_ERRORS) else error
                    if connection.total_changes != changes or not isinstance(error, TurnlogError):
                        return [other for other in waiting if other.error is None]
            self._committing = True
            cursor.execute("COMMIT")
            self._committing = False
        finally:
            if cursor.connection.in_transaction:
                cursor.connection.rollback()
        for transaction in transactions:
            if transaction.recorded:
                transaction.release_payloads()
                self._known.remember(transaction.recorded)
                self._tell(transaction.recorded[-1].global_position)
        self._policy = policy
        self._data_seen = data_seen
        return []

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        """Take the write lock, and say now and then that another process has it."""
        if cursor.connection.in_transaction:  # whoever led before was interrupted on the way out
            cursor.connection.rollback()
        self._connections.check_room()
        begin_to_write(cursor, self._busy_timeout_s, self._say_waiting)

    def _say_waiting(self, waited_s: float) -> None:
        _log.info("another process writes: waiting, for %.1f s so far", waited_s)
        if self._on_busy is not None:
            self._on_busy(waited_s)

    def _look_for_others(self, cursor: sqlite3.Cursor) -> None:
        """See whether anybody else has written since this process did, and what follows from it.

        Raises:
            SchemaError: the tables have changed, and are not what they should be.
        """
        [(seen,)] = cursor.execute("PRAGMA data_version").fetchall()
        if seen == self._data_seen:
            return
        self._known.forget()
        self._check_schema(cursor)
        # In memory there is but one connection, whoever writes: it never counts what others have committed.
        self._data_seen = None if self._connections.in_memory else seen

    def _check_schema(self, cursor: sqlite3.Cursor) -> None:
        """Refuse to write to a store whose tables have changed under this process.

        Raises:
            SchemaError: they are not what they should be, or a newer turnlog has changed them.
        """
        [(seen,)] = cursor.execute("PRAGMA schema_version").fetchall()
        if seen == self._schema_seen:
            return
        self.check_tables(cursor)
        # Each erasure changes it: what is kept of events may have been erased. So does what is sealed from here on.
        self._known.recent.clear()
        self._policy = SQLiteRead(cursor, self._payloads, self._seals).seal_policy()
        self._schema_seen = seen

    def _writing(self) -> AbstractContextManager[sqlite3.Cursor]:
        """Give the one cursor that appends. Only the leader of a group commit asks for it."""
        if self._connections.in_memory:
            return self._connections.alone()
        if self._writer is None:
            writer = Writer(self._connections.connect())
            writer.cursor.execute(f"PRAGMA busy_timeout = {int(1000 * min(BUSY_LOOK_S, self._busy_timeout_s))}")
            self._writer = writer
        return self._writer
