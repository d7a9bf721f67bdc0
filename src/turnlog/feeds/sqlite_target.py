"""A SQLite file as a target of projections."""

from __future__ import annotations

import glob
import operator
import os
import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, cast

import msgspec

from turnlog.errors import MetaError, SchemaError, StoreBusyError, StoreError, StoreReadOnlyError, os_reason
from turnlog.feeds.projection import Projection, Skip, State
from turnlog.feeds.sqlite_copying import copy_all, quoted
from turnlog.feeds.targets import BUSY_TIMEOUT_S, Target, check_free, not_made
from turnlog.store import Store
from turnlog.store.files import NOT_WRITABLE, access_beside
from turnlog.store.locks import LOCKS_SUFFIX, FileLocks, Release
from turnlog.store.sqlite.connections import BUSY_LOOK_S, begin_to_write
from turnlog.store.sqlite.erasing import SCRUB_WAIT_S
from turnlog.store.sqlite.errors import PRIMARY_CODE, is_damaged, lacking
from turnlog.store.sqlite.handles import Connection, FileId, Resting, connect, file_id, make, make_beside, rests, using
from turnlog.store.sqlite.journal import write_ahead
from turnlog.store.sqlite.opening import IMMUTABLE, Signature, can_be_written, must_be_immutable, signature, uri_of
from turnlog.store.telling import logger

_log = logger("turnlog.feeds")

_STATES = (
    "CREATE TABLE IF NOT EXISTS turnlog_projections (name TEXT PRIMARY KEY, state TEXT NOT NULL, objects TEXT NOT NULL)"
)
_SKIPS = (
    "CREATE TABLE IF NOT EXISTS turnlog_skipped"
    " (name TEXT NOT NULL, event_id TEXT NOT NULL, skip TEXT NOT NULL, PRIMARY KEY (name, event_id))"
)

_BUILD = re.compile(r"([0-9a-f]{12}|[0-9]+\.[0-9]+)(-wal|-shm|-journal)?")
"""What ends the name of a file in which a projection is built. Earlier versions named it by a process."""

_KINDS: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: StoreBusyError,
    sqlite3.SQLITE_LOCKED: StoreBusyError,
    sqlite3.SQLITE_READONLY: StoreReadOnlyError,
}
"""By primary result code; the others are StoreError."""

_TRANSIENT = (*_KINDS, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""What errors have that have nothing to do with what is folded."""

_NOT_WRITABLE_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
"""Primary result codes of a file that is there, and is not for whoever comes to write."""

_ENDINGS = ("", "-wal", "-shm", "-journal")
"""What ends the names of the files of a database."""


class SQLiteTarget(Target, Resting):
    """A SQLite file for projections, for its owner alone. They write with a `sqlite3.Cursor`; rows are tuples.

    What they write is lost in a power failure together with how far they had come, and then folded again. So it is
    where the file is deleted while it is open: the next transaction makes it again, and projections are built anew.

    Where nothing can be written, what is in the file is read without locks, as if it never changed.
    """

    def __init__(
        self, path: str | Path, *, on_busy: Callable[[float], None] | None = None, like: str | Path | None = None
    ) -> None:
        """Take the path of the file, which is made when it is first needed; `:memory:` for none.

        Args:
            path: the file.
            on_busy: called now and then while a transaction waits for another process that writes, with the seconds.
            like: a file, as that of a log: who may use this may use the target. By default its maker.
        """
        self._like = like
        self._access = access_beside(like)
        self._path = Path(path)
        self._on_busy = on_busy
        self.place = str(path)
        self._is_in_memory = str(path) == ":memory:"
        self._connection: Connection | None = None
        self._seen: Signature | None = None
        """Of the file, where the connection reads it as if it never changed."""
        self._file: FileId | None = None
        """Which file the connection has open."""
        self._lock = Lock()
        # Whoever builds beside holds the lock of the file's name: in a file of its own, for the sake of SQLite's.
        self._builds = FileLocks(self._path.with_name(self._path.name + LOCKS_SUFFIX), access=self._access)
        self._release: Release | None = None
        rests(self)

    def check_apart(self, store: Store) -> None:
        """Raise where the file is the log's, by whatever name, or one of those beside it."""
        log = store.file
        if log is None or self._is_in_memory:
            return
        if any(_is_same(self._path, log.with_name(log.name + end)) for end in _ENDINGS):
            raise MetaError(
                f"target: {self.place!r} is a file of the log itself: name another one, such as '{log.name}-mine'",
                field="target",
            )

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Cursor]:
        """Open a transaction that writes. Others of this process wait for it."""
        with self._transient(), self._only() as connection:
            cursor = connection.cursor()
            with self._converted():
                self._begin(cursor)
            seen = self._seen
            try:
                with _kept_open(connection):
                    yield cursor
                with self._converted():
                    cursor.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    with self._converted():
                        connection.rollback()
                self._check_unchanged(seen)

    @contextmanager
    def reader(self) -> Generator[sqlite3.Cursor]:
        """Open a snapshot to read what projections have made.

        Raises:
            StoreError: it cannot be read.
        """
        if self._is_in_memory:
            with self.transaction() as cursor, self._converted():
                yield cursor
            return
        with self._converted(), using():
            connection, seen = self._connect()
            with closing(connection):
                cursor = connection.cursor()
                cursor.execute("BEGIN")
                try:
                    yield cursor
                finally:
                    self._check_unchanged(seen)

    def is_open(self, db: sqlite3.Cursor) -> bool:
        """Tell whether the transaction goes on: a conflict may have rolled it back."""
        return db.connection.in_transaction

    def make(self, db: sqlite3.Cursor, projection: Projection) -> None:
        """Make the tables of a projection."""
        there = {name for (name,) in db.execute(_TABLES).fetchall()}
        for statement in projection.schema:
            try:
                db.execute(statement)
            except (sqlite3.Error, sqlite3.Warning) as error:
                if self.is_transient(error):
                    raise
                raise not_made(projection, statement, str(error)) from error
        for table in projection.tables:
            if not db.execute("SELECT 1 FROM pragma_table_info(?)", (table,)).fetchall():
                raise SchemaError(f"projection {projection.name!r}: its schema makes no table {table!r}")
        named = [name.lower() for name in (*projection.tables, *projection.objects)]  # as SQLite compares names
        for (table,) in db.execute(_TABLES).fetchall():
            # What a virtual table makes for itself begins with its name.
            if table not in there and not any(f"{table.lower()}_".startswith(f"{name}_") for name in named):
                raise SchemaError(
                    f"projection {projection.name!r}: its schema makes {table!r}, which is in neither its "
                    "tables nor, as what others fill, its objects: name it there"
                )

    def load(self, db: sqlite3.Cursor, name: str) -> State | None:
        """Return how far a projection has come."""
        with self._read_whole():
            rows = db.execute("SELECT state FROM turnlog_projections WHERE name = ?", (name,)).fetchall()
            return msgspec.json.decode(rows[0][0], type=State) if rows else None

    def save(self, db: sqlite3.Cursor, projection: Projection, state: State) -> None:
        """Keep how far a projection has come."""
        objects = [*projection.objects, *reversed(projection.tables)]
        db.execute(
            "INSERT INTO turnlog_projections VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET state = excluded.state, objects = excluded.objects",
            (projection.name, msgspec.json.encode(state).decode(), msgspec.json.encode(objects).decode()),
        )

    def skips(self, db: sqlite3.Cursor, name: str) -> list[Skip]:
        """Return the events that a projection passes over."""
        with self._read_whole():
            rows = db.execute("SELECT skip FROM turnlog_skipped WHERE name = ?", (name,)).fetchall()
            found = [msgspec.json.decode(text, type=Skip) for (text,) in rows]
        return sorted(found, key=lambda skip: skip.position)

    def skip(self, db: sqlite3.Cursor, skip: Skip) -> None:
        """Keep that a projection passes over an event."""
        db.execute(
            "INSERT INTO turnlog_skipped VALUES (?, ?, ?)"
            " ON CONFLICT (name, event_id) DO UPDATE SET skip = excluded.skip",
            (skip.name, skip.event_id, msgspec.json.encode(skip).decode()),
        )

    def beside(self, projection: Projection) -> SQLiteTarget:
        """Return a target in a file beside this one."""
        with self.transaction() as db:
            rows = db.execute("SELECT name, objects FROM turnlog_projections").fetchall()
        check_free(projection, {name: msgspec.json.decode(objects, type=list[str]) for name, objects in rows})
        if self._is_in_memory:
            return SQLiteTarget(":memory:")
        self.sweep(projection)
        path = self._path.with_name(self._beginning(projection) + token_hex(6))
        built = SQLiteTarget(path, like=self._like)
        # Where there are no locks, others cannot take it for a leftover either.
        with suppress(StoreError):
            built._release = self._builds.take(path.name)
        return built

    def left(self, projection: Projection) -> SQLiteTarget | None:
        """Return a target in the file of a build that nobody is at any more."""
        for path in self._builds_of(projection):
            release: Release | None = None
            with suppress(StoreError):
                release = self._builds.take(path.name)
            if release is not None and path.exists():
                left = SQLiteTarget(path, like=self._like)
                left._release = release
                return left
            if release is not None:
                release()
        return None

    def sweep(self, projection: Projection) -> str | None:
        """Remove the files of builds that nobody is at any more."""
        left: str | None = None
        for path in self._builds_of(projection):
            try:
                release = self._builds.take(path.name)
                if release is None:
                    if path.exists():
                        left = (
                            f"{str(path)!r}, where projection {projection.name!r} is being built: when that has ended"
                        )
                    continue
                try:
                    _remove(path)
                finally:
                    release()
            except (OSError, StoreError) as error:
                why = os_reason(error) if isinstance(error, OSError) else error
                left = f"{str(path)!r}, which cannot be removed ({why}): when that is mended"
        return left

    def _builds_of(self, projection: Projection) -> list[Path]:
        """Return the files in which a projection is built, or was."""
        if self._is_in_memory:
            return []
        beginning = self._beginning(projection)
        there = self._path.parent.glob(glob.escape(beginning) + "*")
        found = (_BUILD.fullmatch(path.name.removeprefix(beginning)) for path in there)
        return sorted({self._path.with_name(beginning + each[1]) for each in found if each is not None})

    def _beginning(self, projection: Projection) -> str:
        return f"{self._path.name}-{projection.name}-"

    def replace(self, projection: Projection, built: Target) -> None:
        """Copy what was built beside, in one transaction."""
        assert isinstance(built, SQLiteTarget)
        with built.reader() as source:
            state = built.load(source, projection.name)
            assert state is not None
            with self.transaction() as db:
                self._take_away(db, projection.name)
                self.make(db, projection)
                try:
                    copy_all(source, db, projection.tables)
                    projection.copied(db)
                except sqlite3.Error as error:
                    if self.is_transient(error):
                        raise
                    raise SchemaError(
                        f"projection {projection.name!r} is built and cannot be put in its place: {error}"
                    ) from error
                self.save(db, projection, state)
        built.discard()

    def discard(self) -> None:
        """Remove the file."""
        self.close()
        if not self._is_in_memory:
            _remove(self._path)
        self._give_back()

    def leave(self) -> None:
        """Close the file, which another build may go on with."""
        self.close()
        self._give_back()

    def _give_back(self) -> None:
        if self._release is not None:
            self._release()

    def is_transient(self, error: Exception) -> bool:
        """Tell whether it was locked, memory lacks, the disk is full, fails or is read-only, or the file is damaged."""
        # What was raised as turnlog's own has SQLite's error for its cause.
        cause = error.__cause__ if isinstance(error, StoreError) else error
        return isinstance(cause, MemoryError) or _primary_code(cause) in _TRANSIENT

    def is_made(self) -> bool:
        """Tell whether the file is there."""
        return self._is_in_memory or self._path.exists()

    @property
    def is_read_only(self) -> bool:
        """Whether the file, or another one beside it, cannot be written. Others may write it."""
        if self._is_in_memory or not self._path.parent.exists():
            return False
        return not can_be_written(self._path) and must_be_immutable(self._path)

    def scrub(self, projection: Projection) -> None:  # noqa: ARG002 - it is one file
        """Write the file anew, and empty its write-ahead log. Others are waited for for a second, at each of the two.

        Raises:
            StoreBusyError: somebody reads it, or writes.
            StoreFullError: the disk is full.
            StoreError: it cannot be done.
        """
        if self._is_in_memory:
            return
        with self._converted(), self._only() as connection:
            cursor = connection.cursor()
            _wait_for_others(cursor, SCRUB_WAIT_S)
            try:
                cursor.execute("VACUUM")
                [(busy, *_)] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                _wait_for_others(cursor, BUSY_TIMEOUT_S)
        if busy:
            raise StoreBusyError(f"{self._name} is read by somebody")

    def rest(self, until_s: float) -> None:  # noqa: ARG002 - who is at work goes through a gate that is shut
        """Close the file, unless it is in use, for the moment of a fork: see `turnlog.store.sqlite.handles`."""
        if self._connection is not None and not self._is_in_memory and not self._lock.locked():
            self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Let go of the parent's connection, in a forked child."""
        self._connection, self._lock = None, Lock()

    def close(self) -> None:
        """Close the file."""
        with using(), self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _take_away(self, db: sqlite3.Cursor, name: str) -> None:
        rows = db.execute("SELECT objects FROM turnlog_projections WHERE name = ?", (name,)).fetchall()
        for (objects,) in rows:
            for each in msgspec.json.decode(objects, type=list[str]):
                is_view = db.execute(
                    "SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE", (each,)
                ).fetchall()
                db.execute(f"DROP {'VIEW' if is_view else 'TABLE'} IF EXISTS {quoted(each)}")

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        """Take the write lock, and say now and then that another process has it."""
        if self._seen is not None:
            cursor.execute("BEGIN")
            return
        _wait_for_others(cursor, BUSY_LOOK_S)
        try:
            begin_to_write(cursor, BUSY_TIMEOUT_S, self._say_waiting)
        finally:
            _wait_for_others(cursor, BUSY_TIMEOUT_S)

    def _say_waiting(self, waited_s: float) -> None:
        _log.info("another process writes into %s: waiting, for %.1f s so far", self.place, waited_s)
        if self._on_busy is not None:
            self._on_busy(waited_s)

    @contextmanager
    def _only(self) -> Generator[Connection]:
        """Give the one connection that writes."""
        with using(), self._lock:
            if self._connection is not None and not self._is_at_its_path():
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection, self._seen = self._connect()
                self._file = None if self._is_in_memory else file_id(self._path)
            yield self._connection

    def _is_at_its_path(self) -> bool:
        """Tell whether the file that the connection has open is what others find: as it was, where it only reads it."""
        if self._is_in_memory:
            return True
        if self._seen is not None:
            return self._seen == signature(self._path)
        if file_id(self._path) == self._file:
            return True
        _log.warning(
            "%s was moved, deleted or replaced while it was open: what is at its path is gone on with", self.place
        )
        return False

    def _connect(self) -> tuple[Connection, Signature | None]:
        """Return a connection, and what is known of the file where it reads this as if it never changed."""
        if self.is_read_only:
            seen = signature(self._path)
            return self._connect_read_only(), seen
        try:
            if not self._is_in_memory:
                self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
                # SQLite gives its other files the same mode.
                make(self._path, self._access)
                make_beside(self._path, self._access)
            connection = connect(
                ":memory:" if self._is_in_memory else self._path,
                None if self._is_in_memory else self._path,
                isolation_level=None,
                timeout=BUSY_TIMEOUT_S,
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise self._lacking(error) or StoreError(
                f"{self._name} cannot be opened: {_reason(error)}{_advice(error)}"
            ) from error
        try:
            write_ahead(connection, BUSY_TIMEOUT_S)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(_STATES)
            connection.execute(_SKIPS)
        except sqlite3.Error as error:
            connection.close()
            raise self._error(error) from error
        return connection, None

    def _connect_read_only(self) -> Connection:
        """Return a connection to the file as it is; to an empty database where there is none."""
        is_there = self._path.exists() and self._path.stat().st_size > 0
        with self._converted():
            connection = connect(
                uri_of(self._path, IMMUTABLE) if is_there else ":memory:",
                self._path if is_there else None,
                uri=is_there,
                isolation_level=None,
                check_same_thread=False,
            )
        if not is_there:
            connection.execute(_STATES)
            connection.execute(_SKIPS)
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _check_unchanged(self, seen: Signature | None) -> None:
        """Refuse what was read without locks of a file that somebody has written meanwhile."""
        if seen is not None and signature(self._path) != seen:
            raise StoreBusyError(f"{self._name} was changed while it was read: read again")

    # Errors

    @contextmanager
    def _transient(self) -> Generator[None]:
        """Raise what has nothing to do with an event as turnlog's own."""
        try:
            yield
        except sqlite3.Error as error:
            if not self.is_transient(error):
                raise
            raise self._error(error) from error

    @contextmanager
    def _converted(self) -> Generator[None]:
        """Raise all that SQLite raises as turnlog's own."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error

    @contextmanager
    def _read_whole(self) -> Generator[None]:
        """Raise it as turnlog's own where what is kept of projections cannot be read."""
        try:
            with self._converted():
                yield
        except msgspec.DecodeError as error:
            raise self._damage(error) from error

    def _damage(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self._name} is damaged, or none ({error}): if it is one, remove it, "
            "with its -wal and -shm files, and it is built again from the log"
        )

    def _error(self, error: sqlite3.Error) -> StoreError:
        if is_damaged(error):
            return self._damage(error)
        kind = _KINDS.get(_primary_code(error), StoreError)
        return self._lacking(error) or kind(f"{self._name} cannot be used: {error}{_advice(error)}")

    def _lacking(self, error: Exception) -> StoreError | None:
        return lacking(error, self._name, self._path)

    @property
    def _name(self) -> str:
        return f"the database of projections {str(self._path)!r}"


def _reason(error: OSError | sqlite3.Error) -> str:
    return os_reason(error) if isinstance(error, OSError) else str(error)


def _advice(error: OSError | sqlite3.Error) -> str:
    """Return what to do about a place that cannot be written; nothing where that is not it."""
    if isinstance(error, OSError):
        is_writable = error.errno not in NOT_WRITABLE
    else:
        is_writable = _primary_code(error) not in _NOT_WRITABLE_CODES
    return "" if is_writable else ": copy the store to where you can write, with `turnlog copy`"


def _wait_for_others(cursor: sqlite3.Cursor, wait_s: float) -> None:
    cursor.execute(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")


def _primary_code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE


@contextmanager
def _kept_open(connection: Connection) -> Generator[None]:
    """Keep others from ending the transaction, and from closing the connection."""
    connection.is_lent = True
    connection.set_authorizer(_but_transactions)
    try:
        yield
    except sqlite3.DatabaseError as error:
        if str(error) == _REFUSED:
            raise StoreError(
                "a projection must not begin, commit or roll back: the transaction is the runner's"
            ) from error
        raise
    finally:
        connection.is_lent = False
        connection.set_authorizer(None)


_REFUSED = "authorizer malfunction"
"""What SQLite says of a statement where it is answered neither that it may run nor that it may not."""

_but_transactions: Callable[..., int] = cast(
    "Any", partial(max, sqlite3.SQLITE_OK, key=partial(operator.eq, sqlite3.SQLITE_TRANSACTION))
)
"""Answers SQLite, about what a statement does, with that number where it begins or ends a transaction, else with OK.

It MUST NOT be a function in Python: there signals are handled when it begins, and what that raises, as Ctrl-C does, is
taken for a denial by `sqlite3`, which drops it.
"""


_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
"""The names of all tables and views."""


def _is_same(path: Path, other: Path) -> bool:
    """Tell whether two paths are those of one file."""
    try:
        return path.samefile(other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)


def _remove(path: Path) -> None:
    for end in _ENDINGS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()
