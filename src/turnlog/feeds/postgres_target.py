"""Projections in a PostgreSQL database: a schema with their tables, and how far each has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from secrets import token_hex
from threading import Lock
from typing import Any

import msgspec
import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from turnlog.errors import (
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreOpenError,
    StoreReadOnlyError,
)
from turnlog.feeds.postgres_ahead import AheadConnection, AheadCursor
from turnlog.feeds.projection import Projection, Skip, State
from turnlog.feeds.targets import BUSY_TIMEOUT_S, Target, check_free, not_made
from turnlog.store.postgres.connections import SCHEMES, Address, check_encoding, check_schema, lasting, set_all
from turnlog.store.postgres.erasing import wait_for_readers
from turnlog.store.postgres.errors import is_lost, store_error
from turnlog.store.postgres.locks import lock_number

SCHEMA = "turnlog_projections"
"""The schema of projections, where none is named."""

SCRUB_TIMEOUT_S = 2.0
"""How long to wait for those who read a table that is to be written anew. The next run tries again."""

_KEPT = 4
"""Connections that are kept open for the next transaction."""

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_TO_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A lock takes no snapshot: what is read behind it is of after its wait.
_NOT_WHILE_REPLACED = "LOCK TABLE turnlog_projections IN ACCESS SHARE MODE"
_ALONE = "LOCK TABLE turnlog_projections IN ACCESS EXCLUSIVE MODE"

_OWN = ("turnlog_projections", "turnlog_skipped")
_TABLES = (
    'CREATE TABLE IF NOT EXISTS turnlog_projections (name text COLLATE "C" PRIMARY KEY, state text NOT NULL,'
    " objects text NOT NULL)",
    'CREATE TABLE IF NOT EXISTS turnlog_skipped (name text COLLATE "C", event_id text COLLATE "C",'
    " skip text NOT NULL, PRIMARY KEY (name, event_id))",
)
MAKING_LOCK = 0x7475726E70726F6A
"""Held while a schema is made: the letters turnproj."""

# What a schema has, as it was made: what something rests on comes before it. What belongs to a table goes with it.
_OBJECTS = """\
SELECT kind, name FROM (
  SELECT c.oid, CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
      WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END AS kind, quote_ident(c.relname) AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relname <> ALL(%(own)s)
      AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND d.deptype IN ('a', 'i') AND d.refclassid = 'pg_class'::regclass AND c.relkind = 'S')
  UNION ALL
  SELECT p.oid, 'ROUTINE', quote_ident(p.proname) || '(' || pg_get_function_identity_arguments(p.oid) || ')'
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %(schema)s
  UNION ALL
  SELECT t.oid, 'TYPE', quote_ident(t.typname)
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE n.nspname = %(schema)s AND (t.typtype IN ('e', 'd', 'r') OR c.relkind = 'c')
) AS objects ORDER BY oid"""

# Classes of SQLSTATE: connection, transaction rolled back, resources, operator, system. Then: a lock was not had in
# time, a transaction took too long or was idle for too long, a standby, a right that the role lacks.
_TRANSIENT = ("08", "40", "53", "57", "58", "55P03", "25P03", "25P04", "25006", "42501")
"""What begins the state of errors that have nothing to do with what is folded."""

_CONVERTED = (StoreBusyError, StoreFullError, StoreReadOnlyError)


class PostgresTarget(Target):
    """A schema of a PostgreSQL database for projections, which write with a `psycopg.Cursor`.

    Any number of processes, on any number of machines, may run projections in it: whoever folds one holds its row of
    `turnlog_projections` meanwhile. Statements that make tables name no schema.

    On return of a transaction what it wrote is on the server's disk, and not on its standbys: with a server that takes
    over, it is folded again.

    A projection is built in another schema, and what it made is moved: the role needs the right to make schemas.
    """

    can_be_ahead = True
    cursor: type[AheadCursor] = AheadCursor
    """What projections are given."""

    def __init__(self, conninfo: str, schema: str = SCHEMA, *, search_path: Sequence[str] = ()) -> None:
        """Take where the database is. Nothing is opened before it is needed.

        Args:
            conninfo: a URL, or libpq's `name=value …`. In that of a log `schema=` says where the log is, and is passed
                over.
            schema: the schema of the projections, which is made.
            search_path: schemas in which names are looked up behind it, such as that of an extension.

        Raises:
            StoreOpenError: one of them cannot be read.
        """
        check_schema(schema, "projections")
        self.schema = schema
        self._search_path = tuple(search_path)
        if conninfo.partition("://")[0].lower() in SCHEMES:
            address = Address(conninfo)
            self._conninfo = address.conninfo
            self.place = address.place.partition("?")[0]
        else:
            self._conninfo = conninfo
            try:
                given = conninfo_to_dict(conninfo)
            except psycopg.ProgrammingError as error:
                # What the error shows may be part of a password.
                raise StoreOpenError(
                    "the place of a database is malformed: give postgresql://… or name=value"
                ) from error
            self.place = f"postgresql://{given.get('host') or ''}/{given.get('dbname') or ''}"
        self.place += f"?schema={schema}"
        self._kept: deque[AheadConnection] = deque()
        self._lock = Lock()
        self._is_made = False
        self._guard: psycopg.Connection[Any] | None = None

    # Transactions

    @contextmanager
    def transaction(self) -> Generator[psycopg.Cursor[Any]]:
        """Open a transaction that writes. Others that write to the same projection wait for it."""
        with self._transaction(_BEGIN) as cursor:
            yield cursor

    @contextmanager
    def reader(self) -> Generator[psycopg.Cursor[Any]]:
        """Open a snapshot to read what projections have made.

        Raises:
            StoreError: it cannot be read.
        """
        with self._transaction(_BEGIN_TO_READ, _NOT_WHILE_REPLACED) as cursor, self.converted():
            yield cursor

    @contextmanager
    def _transaction(self, *beginning: str) -> Generator[psycopg.Cursor[Any]]:
        connection = self._begun(beginning)
        try:
            with self._transient():
                with connection.cursor() as cursor:
                    yield cursor
                if connection.info.transaction_status == TransactionStatus.INERROR:
                    raise StoreError(f"a statement in {self.place!r} had failed: nothing of the transaction is kept")
                with self.converted():
                    connection.execute("COMMIT")
        except BaseException:
            with suppress(psycopg.Error):
                if connection.info.transaction_status != TransactionStatus.IDLE:
                    connection.execute("ROLLBACK")
            raise
        finally:
            self._give_back(connection)

    def check(self, db: psycopg.Cursor[Any]) -> None:
        """Raise where a statement has failed, and its error was swallowed: the transaction cannot go on.

        Raises:
            StoreError: that is so.
        """
        if db.connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise StoreError("a statement failed, and its error was not raised: use a savepoint for what may fail")

    @contextmanager
    def ahead(self, db: psycopg.Cursor[Any]) -> Generator[None]:
        """Fold some events without a round trip to the server for each row that is written."""
        assert isinstance(db.connection, AheadConnection)
        with db.connection.ahead():
            yield

    def is_open(self, db: psycopg.Cursor[Any]) -> bool:
        """Tell whether the transaction goes on. A connection that is lost is not that."""
        return db.connection.pgconn.transaction_status != TransactionStatus.IDLE

    def _begun(self, beginning: Sequence[str]) -> AheadConnection:
        """Return a connection with a transaction: one that is kept, if it is not lost."""
        with self.converted():
            while True:
                with self._lock:
                    kept = self._kept.pop() if self._kept else None
                connection = self.connect() if kept is None else kept
                try:
                    self._make_schema(connection)
                    for statement in beginning:
                        connection.execute(statement.encode())
                except BaseException as error:
                    connection.close()
                    if kept is not None and isinstance(error, psycopg.Error) and is_lost(error):
                        continue
                    raise
                return connection

    def _give_back(self, connection: AheadConnection) -> None:
        is_idle = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
        if is_idle:
            with self._lock:
                if len(self._kept) < _KEPT:
                    self._kept.append(connection)
                    return
        connection.close()

    def connect(self) -> AheadConnection:
        """Open a connection that looks up names in the schema, in autocommit mode.

        Raises:
            psycopg.Error: it cannot be opened.
            StoreOpenError: the database has another encoding than UTF-8.
        """
        given = conninfo_to_dict(self._conninfo)
        defaults: dict[str, Any] = {"connect_timeout": 10, "application_name": "turnlog projections"}
        connection = AheadConnection.connect(
            self._conninfo,
            autocommit=True,
            cursor_factory=self.cursor,
            client_encoding="utf8",
            **{name: value for name, value in defaults.items() if name not in given},
        )
        try:
            check_encoding(connection, self.place)
            path = sql.SQL(", ").join(map(sql.Identifier, (self.schema, *self._search_path, "pg_temp")))
            connection.execute(sql.SQL("SET search_path = {}").format(path))
            _wait_for_locks(connection, BUSY_TIMEOUT_S)
            # What is lost is folded again: it need not wait for standbys.
            settings = {**lasting(connection), "client_min_messages": "error", "synchronous_commit": "local"}
            connection.execute(set_all(settings))
            self.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make a new connection ready, before anything is read or written with it."""

    def keep_to_owner(self, connection: psycopg.Connection[Any]) -> None:
        """Take rights away that others have by default on the schema, which was just made. Here they keep them."""

    def is_made(self) -> bool:
        """Tell whether any projection was ever run here."""
        if self._is_made:
            return True
        with self.converted(), self.connect() as connection:
            return self._is_there(connection)

    def _is_there(self, connection: psycopg.Connection[Any]) -> bool:
        there = (
            "SELECT COUNT(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = ANY(%s)"
        )
        return connection.execute(there, (self.schema, list(_OWN))).fetchall() == [(len(_OWN),)]

    def _make_schema(self, connection: psycopg.Connection[Any]) -> None:
        if self._is_made:
            return
        if not self._is_there(connection):
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
                    if not connection.execute(
                        "SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.schema,)
                    ).fetchall():
                        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
                        self.keep_to_owner(connection)
                    for statement in _TABLES:
                        connection.execute(statement.encode())
            except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
                [(role, database)] = connection.execute("SELECT current_user, current_database()").fetchall()
                raise StoreReadOnlyError(
                    f"role {role!r} may not make schema {self.schema!r}, which projections need: "
                    f"GRANT CREATE ON DATABASE {database} TO {role}"
                ) from error
        self._is_made = True

    # Errors

    def is_transient(self, error: Exception) -> bool:
        """Tell whether it is the connection, others, a full disk, a standby, or a right or memory that lacks."""
        # What was raised as turnlog's own has psycopg's error for its cause.
        cause = error.__cause__ if isinstance(error, StoreError) else error
        if not isinstance(cause, psycopg.Error):
            return isinstance(error, (*_CONVERTED, MemoryError))
        return is_lost(cause) or (cause.sqlstate is not None and cause.sqlstate.startswith(_TRANSIENT))

    @contextmanager
    def _transient(self) -> Generator[None]:
        """Raise what has nothing to do with an event as turnlog's own."""
        try:
            yield
        except psycopg.Error as error:
            if self.is_transient(error):
                raise store_error(error, self.place) from error
            raise

    @contextmanager
    def converted(self) -> Generator[None]:
        """Raise all that psycopg raises as turnlog's own."""
        try:
            yield
        except psycopg.Error as error:
            if self.is_transient(error):
                raise store_error(error, self.place) from error
            detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
            message = " ".join(f"{error.diag.message_primary or error}{detail}".split())
            raise StoreError(f"projections in {self.place!r} cannot be used: {message}") from error

    @contextmanager
    def _read_whole(self) -> Generator[None]:
        """Raise it as turnlog's own where what is kept of projections cannot be read."""
        try:
            with self.converted():
                yield
        except msgspec.DecodeError as error:
            raise StoreError(
                f"projections in {self.place!r} cannot be used: what is kept of one is damaged ({error})"
            ) from error

    # How far projections have come

    def make(self, db: psycopg.Cursor[Any], projection: Projection) -> None:
        """Make the tables of a projection."""
        for statement in projection.schema:
            try:
                with self._transient():
                    db.execute(self.statement(statement).encode())
            except psycopg.Error as error:
                raise not_made(projection, statement, error.diag.message_primary or str(error)) from error
        for table in projection.tables:
            with self._transient():
                found = db.execute("SELECT to_regclass(quote_ident(%s))", (table,)).fetchall()
            if found == [(None,)]:
                raise SchemaError(f"projection {projection.name!r}: its schema makes no table {table!r}")

    def statement(self, given: str) -> str:
        """Return a statement of a projection that makes a table as it is to be run."""
        return given

    def load(self, db: psycopg.Cursor[Any], name: str) -> State | None:
        """Return how far a projection has come. Nobody else folds it until the transaction ends."""
        with self._read_whole():
            rows = db.execute("SELECT state FROM turnlog_projections WHERE name = %s FOR UPDATE", (name,)).fetchall()
            return msgspec.json.decode(rows[0][0], type=State) if rows else None

    def save(self, db: psycopg.Cursor[Any], projection: Projection, state: State) -> None:
        """Keep how far a projection has come."""
        self._save(db, projection.name, msgspec.json.encode(state).decode())

    def _save(self, db: psycopg.Cursor[Any], name: str, state: str) -> None:
        with self.converted():
            db.execute(
                "INSERT INTO turnlog_projections VALUES (%s, %s, '[]')"
                " ON CONFLICT (name) DO UPDATE SET state = excluded.state",
                (name, state),
            )

    def skips(self, db: psycopg.Cursor[Any], name: str) -> list[Skip]:
        """Return the events that a projection passes over."""
        with self._read_whole():
            rows = db.execute("SELECT skip FROM turnlog_skipped WHERE name = %s", (name,)).fetchall()
            found = [msgspec.json.decode(text, type=Skip) for (text,) in rows]
        return sorted(found, key=lambda skip: skip.position)

    def skip(self, db: psycopg.Cursor[Any], skip: Skip) -> None:
        """Keep that a projection passes over an event."""
        with self.converted():
            db.execute(
                "INSERT INTO turnlog_skipped VALUES (%s, %s, %s)"
                " ON CONFLICT (name, event_id) DO UPDATE SET skip = excluded.skip",
                (skip.name, skip.event_id, msgspec.json.encode(skip).decode()),
            )

    # Building

    def beside(self, projection: Projection) -> PostgresTarget:
        """Return a target in another schema. Those that nobody builds in any more are taken away."""
        with self.transaction() as db:
            rows = db.execute("SELECT name, objects FROM turnlog_projections").fetchall()
        taken = {name: msgspec.json.decode(objects, type=list[tuple[str, str]]) for name, objects in rows}
        check_free(projection, {name: [_unquoted(each) for _, each in objects] for name, objects in taken.items()})
        name = self._beginning(projection) + token_hex(6)
        built = self.sibling(name)
        with self.converted():
            # Whoever builds holds the lock of its schema for as long as it is connected.
            guard = built._guard = self.connect()
            guard.execute("SELECT pg_advisory_lock(%s)", (lock_number(name),))
            self._drop_left(guard, projection)
        return built

    def left(self, projection: Projection) -> PostgresTarget | None:
        """Return a target in the schema of a build that nobody is at any more."""
        with self.converted():
            guard = self.connect()
            try:
                for name in self._builds_of(guard, projection):
                    if _takes_lock(guard, name):
                        left = self.sibling(name)
                        left._guard, guard = guard, None
                        return left
            finally:
                if guard is not None:
                    guard.close()
        return None

    def sweep(self, projection: Projection) -> str | None:
        """Drop the schemas of builds that nobody is at any more.

        Raises:
            StoreError: that cannot be done.
        """
        with self.converted(), closing(self.connect()) as connection:
            building = self._drop_left(connection, projection)
        if not building:
            return None
        return f"schema {building[0]!r}, where projection {projection.name!r} is being built: when that has ended"

    def _drop_left(self, connection: psycopg.Connection[Any], projection: Projection) -> list[str]:
        """Drop the schemas in which nobody builds a projection any more, and return those in which somebody does."""
        building: list[str] = []
        for name in self._builds_of(connection, projection):
            if _takes_lock(connection, name):
                _drop_schema(connection, name)
                connection.execute("SELECT pg_advisory_unlock(%s)", (lock_number(name),))
            else:
                building.append(name)
        return building

    def _builds_of(self, connection: psycopg.Connection[Any], projection: Projection) -> list[str]:
        """Return the schemas in which a projection is built, or was."""
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s) ORDER BY nspname",
            (self._beginning(projection),),
        )
        return [name for (name,) in found.fetchall()]

    def _beginning(self, projection: Projection) -> str:
        """Return what begins the names of the schemas in which a projection is built."""
        return f"{SCHEMA}_{digest(self.schema, projection.name)}_"

    def sibling(self, schema: str) -> PostgresTarget:
        """Return a target like this one in another schema."""
        return type(self)(self._conninfo, schema, search_path=self._search_path)

    def replace(self, projection: Projection, built: Target) -> None:
        """Move what was built beside, in one transaction.

        Raises:
            SchemaError: something of somebody else's rests on the tables that it has now.
        """
        assert isinstance(built, PostgresTarget)
        schema, other = sql.Identifier(self.schema), sql.Identifier(built.schema)
        with self._transaction(_BEGIN, _ALONE) as db, self.converted():
            [(state,)] = db.execute(
                sql.SQL("SELECT state FROM {}.turnlog_projections WHERE name = %s").format(other), (projection.name,)
            ).fetchall()
            self._take_away(db, projection.name)
            objects = db.execute(_OBJECTS, {"schema": built.schema, "own": list(_OWN)}).fetchall()
            for kind, name in objects:
                change = sql.SQL("ALTER {} {}.{} SET SCHEMA {}")
                db.execute(change.format(_verbatim(kind), other, _verbatim(name), schema))
            for table in _OWN:
                db.execute(sql.SQL("DROP TABLE {}.{}").format(other, sql.Identifier(table)))
            # What could not be moved is in the way of that, and is not lost.
            db.execute(sql.SQL("DROP SCHEMA {}").format(other))
            self._save(db, projection.name, state)
            db.execute(
                "UPDATE turnlog_projections SET objects = %s WHERE name = %s",
                (msgspec.json.encode(objects).decode(), projection.name),
            )
        built.discard()

    def _take_away(self, db: psycopg.Cursor[Any], name: str) -> None:
        """Drop what a projection has, and nothing that rests on it."""
        left = self._objects(db, name)[::-1]
        while left:
            in_use: list[tuple[str, str]] = []
            for kind, each in left:
                statement = sql.SQL("DROP {} IF EXISTS {}.{}")
                try:
                    with db.connection.transaction():
                        db.execute(statement.format(_verbatim(kind), sql.Identifier(self.schema), _verbatim(each)))
                except errors.DependentObjectsStillExist as error:
                    # A trigger may have been made later than what it calls: that goes in the next round.
                    in_use.append((kind, each))
                    if len(in_use) == len(left):
                        why = error.diag.message_detail or error.diag.message_primary
                        raise SchemaError(
                            f"projection {name!r} cannot be built anew: {why}: take that away first"
                        ) from error
            left = in_use

    @staticmethod
    def _objects(db: psycopg.Cursor[Any], name: str) -> list[tuple[str, str]]:
        rows = db.execute("SELECT objects FROM turnlog_projections WHERE name = %s", (name,)).fetchall()
        return [each for (text,) in rows for each in msgspec.json.decode(text, type=list[tuple[str, str]])]

    def discard(self) -> None:
        """Drop the schema."""
        self.close()
        with suppress(psycopg.Error, StoreError), self.connect() as connection:
            _drop_schema(connection, self.schema)
        self._unguard()

    def leave(self) -> None:
        """Close the connections. Another build may go on with the schema."""
        self.close()
        self._unguard()

    def _unguard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()

    def scrub(self, projection: Projection) -> None:
        """Write the tables of a projection anew. The write-ahead log, standbys and backups keep what they have.

        Raises:
            StoreBusyError: somebody reads them.
            StoreError: it cannot be done.
        """
        with self.transaction() as db:
            tables = [name for kind, name in self._objects(db, projection.name) if kind == "TABLE"]
        # What is kept of errors has been erased from, too.
        tables += _OWN
        with self.converted():
            connection = self.connect()
            try:
                _wait_for_locks(connection, SCRUB_TIMEOUT_S)
                wait_for_readers(connection)
                for table in tables:
                    statement = sql.SQL("VACUUM (FULL) {}.{}")
                    connection.execute(statement.format(sql.Identifier(self.schema), _verbatim(table)))
            finally:
                connection.close()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            while self._kept:
                self._kept.pop().close()


def _wait_for_locks(connection: psycopg.Connection[Any], timeout_s: float) -> None:
    """Say how long statements wait for others."""
    connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{round(1000 * timeout_s)}ms",))


def _takes_lock(connection: psycopg.Connection[Any], name: str) -> bool:
    """Take the lock of a schema that is built in, for as long as there is a connection; tell whether it was free."""
    return connection.execute("SELECT pg_try_advisory_lock(%s)", (lock_number(name),)).fetchall() == [(True,)]


def _drop_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def _unquoted(name: str) -> str:
    """Return the name that a catalog has quoted, where that is needed."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _verbatim(text: str) -> sql.SQL:
    """Return what a catalog has quoted already, or a kind of object."""
    return sql.SQL(text)  # pyright: ignore[reportArgumentType] - it comes from the catalog


def digest(*names: str) -> str:
    """Return letters that stand for names, where these would be too long."""
    return sha256("\0".join(names).encode()).hexdigest()[:12]
