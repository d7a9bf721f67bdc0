"""Connections to a SQLite store: a pool of them, with the settings that durability needs."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from threading import Condition, Lock, RLock, get_ident
from time import monotonic
from weakref import WeakSet

from turnlog.errors import StoreBusyError, StoreClosedError
from turnlog.hurry import hurry
from turnlog.store.files import OWN, Access
from turnlog.store.sqlite.errors import PRIMARY_CODE
from turnlog.store.sqlite.handles import Connection, check_index, connect, is_copied, make_beside
from turnlog.store.waiting import take

READERS_MAX = 256
"""Connections that can read at the same time; more wait."""

READERS_KEPT = 16
"""Connections that are kept open for the next reader."""

BUSY_LOOK_S = 1.0
"""How long a writer waits for another process before it says so, and waits on."""

_SOON_S = 0.1
"""SQLite may come back so much before a time is over."""

STATEMENTS_KEPT = 128
"""Prepared statements that a connection keeps."""


def begin_to_write(cursor: sqlite3.Cursor, timeout_s: float, on_wait: Callable[[float], None]) -> None:
    """Begin a transaction that has the write lock, which another process may have.

    Args:
        cursor: of a connection that waits for `BUSY_LOOK_S`.
        timeout_s: how long to wait; it may be up to `BUSY_LOOK_S` more.
        on_wait: called each time that it was waited for so long, with the seconds so far.

    Raises:
        sqlite3.Error: the other has it still, or there is another reason.
    """
    start = monotonic()
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            waited_s = monotonic() - start
            if error.sqlite_errorcode & PRIMARY_CODE != sqlite3.SQLITE_BUSY or waited_s > timeout_s - _SOON_S:
                raise
            if hurry().left_s(start) <= 0:
                hurry().give_up()
                raise
            on_wait(waited_s)


_text = methodcaller("decode", "utf-8", "replace")
"""Damaged text must not hide what stands behind it: it is read, and then found not to be what it should."""


class Connections:
    """A pool of connections to one database: a file with a write-ahead log, or one connection in memory.

    Safe to use from many threads. Each connection is used by one thread at a time, and comes back in no transaction.
    Closing never touches one that is in use: in the middle of another thread's statement it can crash the interpreter.

    Attributes:
        uri: the SQLite URI of the database.
        in_memory: whether it is there for no longer than this pool, on the only connection to it.
        busy_timeout_s: how long to wait for a connection, and on a connection for other processes, in seconds.
    """

    def __init__(
        self,
        uri: str,
        path: Path | None,
        *,
        place: str,
        busy_timeout_s: float,
        read_only: bool = False,
        access: Access = OWN,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        """Take a SQLite URI; nothing is connected yet.

        Args:
            uri: a file, or a new database in memory, which is gone when the pool is closed.
            path: the file; None in memory.
            place: the name of the store, for people.
            busy_timeout_s: how long to wait for a connection, and on a connection for other processes, in seconds.
            read_only: whether nothing may be written, and the journal mode not be changed.
            access: who may use what SQLite makes beside the file.
            on_closed: called when a connection of the pool was closed, which may have been the last one.
        """
        self.uri = uri
        self._path = path
        self._copied = path if path is not None and "immutable=1" not in uri and is_copied(path) else None
        """The file, where its index takes space each time that somebody reads or writes; else None."""
        self.in_memory = path is None
        self._place = place
        self.busy_timeout_s = busy_timeout_s
        self._read_only = read_only
        self._access = access
        self._on_closed = on_closed
        self._is_write_ahead = self.in_memory or read_only
        self._max, self._kept = (1, 1) if self.in_memory else (READERS_MAX, READERS_KEPT)
        self._closed = False
        # What can be done at once is done by a deque, whose methods are atomic. Nothing is counted that an interrupt
        # could leave wrong: a connection that is lost on its way leaves the set by itself. In memory it must not: the
        # next one would be to another database.
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] | WeakSet[Connection] = set() if self.in_memory else WeakSet()
        """All that were given, and idle ones."""
        self._reading: dict[int, Connection] = {}
        """By thread the connection that it reads with; in memory alone, where nobody is given another one."""
        self._turn = Lock()
        """Held by the one who waits for a connection, or makes one. The others come after, also those who come now."""
        self._lock = RLock()
        self._freed = Condition(self._lock)
        """Entered by its lock: an interrupt within `Condition.__enter__`, which is Python, would leave it locked."""

    def connect(self) -> Connection:
        """Return a connection of its own, which is no part of the pool. Whoever asked for it closes it.

        Raises:
            StoreClosedError: the pool is closed.
            StoreOpenError: the file was in use when this process was forked.
            sqlite3.Error: the database cannot be opened.
        """
        if self._closed:
            raise StoreClosedError(f"store {self._place!r} is closed")
        if self._path is not None and not self._read_only:
            with suppress(OSError):  # what is not made is made by SQLite, which tells why it cannot
                make_beside(self._path, self._access)
        connection = connect(
            self.uri,
            self._path,
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=STATEMENTS_KEPT,
            timeout=self.busy_timeout_s,
        )
        try:
            if not self._is_write_ahead:
                connection.execute("PRAGMA journal_mode = WAL")
                self._is_write_ahead = True
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA temp_store = MEMORY")
            # What a trigger or a view of somebody else's may call: nothing that reaches out of the database.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if self._read_only:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        connection.text_factory = _text
        return connection

    def check_room(self) -> None:
        """Raise where a transaction that began now could have the process killed for want of space.

        Raises:
            sqlite3.OperationalError: it could.
        """
        if self._copied is not None:
            check_index(self._copied)

    def acquire(self, wait_s: float | None = None) -> Connection:
        """Return a connection that nobody else uses, until it is released. Whoever waits is served in turn.

        Args:
            wait_s: how long to wait while all are in use, in seconds; None for as long as the pool was told.

        Raises:
            StoreClosedError: the pool is closed, or was closed meanwhile.
            StoreBusyError: all connections were in use for too long.
            sqlite3.Error: the database cannot be opened, or the disk is so full that nobody can use it.
        """
        self.check_room()
        if not self._turn.locked() and not self._closed:
            try:
                return self._idle.pop()
            except IndexError:
                pass
        wait_s = self.busy_timeout_s if wait_s is None else wait_s
        until = monotonic() + wait_s
        taken: list[bool] = []
        try:
            if not take(self._turn, wait_s, taken):
                raise self._busy()
            return self._idle_before(until) or self._another()
        finally:
            if taken and taken[0]:
                self._turn.release()

    def _idle_before(self, until: float) -> Connection | None:
        """Wait for an idle connection, or for leave to make one: None."""
        with self._lock:
            while not self._closed:
                try:
                    return self._idle.pop()
                except IndexError:
                    pass
                if len(self._open) < self._max:
                    return None
                rest_s = until - monotonic()
                if rest_s <= 0:
                    raise self._busy()
                self._freed.wait(rest_s)
        return None

    def _another(self) -> Connection:
        connection = self.connect()
        self._open.add(connection)
        return connection

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(f"store {self._place!r} is busy: too many readers at once, try again later")

    def release(self, connection: Connection) -> None:
        """Give a connection back; what it was in the middle of is rolled back.

        Raises:
            sqlite3.Error: it is of no more use. It is closed, and not given to anybody else.
        """
        kept = False
        try:
            if connection.in_transaction:
                connection.rollback()
            kept = len(self._idle) < self._kept
        finally:
            if kept:
                self._idle.append(connection)
            else:
                self._close_one(connection)
                # What was in memory is gone with it.
                self._closed = self._closed or self.in_memory
            if self._closed:
                self._close_idle()
            if self._turn.locked():
                with self._lock:
                    self._freed.notify()

    @contextmanager
    def reader(self) -> Generator[sqlite3.Cursor]:
        """Open a snapshot and give a cursor on it. In memory who reads already is given the same one.

        Raises:
            As `acquire` does.
        """
        thread = get_ident()
        if (connection := self._reading.get(thread)) is not None:
            with closing(connection.cursor()) as cursor:
                yield cursor
            return
        connection = self.acquire()
        try:
            if self.in_memory:
                self._reading[thread] = connection
            cursor = connection.execute("BEGIN")
            try:
                yield cursor
            finally:
                cursor.close()
        finally:
            self._reading.pop(thread, None)
            self.release(connection)

    @contextmanager
    def alone(self) -> Generator[sqlite3.Cursor]:
        """Give a cursor on a connection that nobody else uses, in no transaction: in memory, the only one.

        Raises:
            StoreBusyError: this thread is reading in memory.
            As `acquire` does.
        """
        if get_ident() in self._reading:
            raise StoreBusyError(
                f"store {self._place!r} is read by what wants to write to it, and in memory that is one at a time: "
                "write when it is read"
            )
        connection = self.acquire()
        try:
            yield connection.cursor()
        finally:
            self.release(connection)

    def rest(self) -> None:
        """Close what nobody uses. It is opened again when it is needed."""
        if not self.in_memory:
            self._close_idle()

    def close(self) -> None:
        """Close what nobody uses; what is in use is closed by whoever gives it back. Closing twice is allowed."""
        self._closed = True
        self._close_idle()
        with self._lock:
            self._freed.notify()

    def _close_idle(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._close_one(connection)

    def _close_one(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()
        if self._on_closed is not None:
            self._on_closed()

    def __del__(self) -> None:
        """Close it: whoever had it is gone."""
        self.close()
