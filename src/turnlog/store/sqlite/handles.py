"""Handles of database files: what a process must not do with them, for the sake of its locks.

SQLite locks a database with `fcntl`, and by that a whole process has a lock, and not a handle. Two things follow
(SQLite, "How To Corrupt An SQLite Database File", §2.2 and 2.6), and whoever overlooks them loses what was recorded,
without an error: another process believes that it is the last one, and takes the write-ahead log away.

- *Whoever closes any handle of a file takes all of the process's locks from it.* So where a connection of this process
  has a database open, its bytes are read on a handle that stays open as long.
- *A forked child has none of its parent's locks, and SQLite there believes that it has.* So before a fork what is open
  and idle is closed, and opened again by who needs it. Calls that come meanwhile wait, and those under way are waited
  for, for a moment. A file that is in use even so, as by a reader in the middle of a long log, cannot be opened in the
  child.
"""

from __future__ import annotations

import _thread
import os
import sqlite3
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from turnlog.errors import StoreError, StoreOpenError
from turnlog.store.files import OWN, Access, make_file
from turnlog.store.gate import Gate
from turnlog.store.sqlite.mounts import file_system

WAIT_S = 2.0
"""How long a fork waits at most, for what is in use."""

FileId = tuple[int, int]
"""A file, by device and number."""


class Connection(sqlite3.Connection):
    """sqlite3's own, that can be known without being kept, and is not closed while a file is opened or forked."""

    is_lent = False
    """Whether somebody has it who must not close it."""

    copied: tuple[Path, Callable[[object], None]] | None = None
    """The database, where its index takes space each time that it is written (see `check_index`), and what keeps an
    object for ever."""

    _is_left = False

    def close(self) -> None:
        """Close it. Closing twice is allowed.

        Raises:
            StoreError: it is lent to who calls this.
        """
        if self.is_lent:
            raise StoreError("the connection is not to be closed: it is lent for a transaction, and used after it")
        with _mutex:
            if not self._is_left_open():
                super().close()
                _connected.pop(self, None)

    def __del__(self) -> None:
        """Close it: whoever had it is gone. Python would warn, from 3.13 on, though nothing can be lost by that."""
        try:
            if not self._is_left_open():
                super().close()  # without `_mutex`, which a thread may hold that waits for what this one has
        except sqlite3.ProgrammingError:
            return  # it could not even be opened

    def _is_left_open(self) -> bool:
        """Let it be open until the process ends, and tell so, where closing it could have the process killed.

        The last one that is closed writes to the index. What is in the write-ahead log is taken from there by the next.
        """
        if self.copied is not None and not self._is_left:
            path, keep = self.copied
            try:
                check_index(path)
            except sqlite3.OperationalError:
                self._is_left = True
                with suppress(sqlite3.Error):
                    self.rollback()
                keep(self)
        return self._is_left


class Resting(ABC):
    """What has connections, and can do without them for the moment of a fork."""

    @abstractmethod
    def rest(self, until_s: float) -> None:
        """Let nobody use a connection, wait for those who do, until a time of `monotonic`; close the idle ones."""

    def resume(self) -> None:
        """Go on. It is not called in the child."""
        return

    def forget(self) -> None:
        """Let go of what was of the parent, without closing it, in the child."""
        return


_INDEX_PAGE_BYTES = 4096
_INDEX_BYTES = 8 * _INDEX_PAGE_BYTES
"""How large the index of a write-ahead log is that has not grown."""

_ROOM_BYTES = 4 * _INDEX_BYTES
"""So much has to be there for an index, and for what is written while it is made."""

_COPYING = frozenset({"bcachefs", "btrfs"})
"""File systems that give what is written again another place each time."""

_COPYING_ROOM_BYTES = 16 * 1024 * 1024
"""So much has to be there on such a file system: a commit may copy all of a write-ahead log into the database."""

_mutex = RLock()
"""Held while a database is opened or closed, or its file opened by itself, and by whoever forks."""
_forking = RLock()
"""Held by the one thread that forks, which a signal handler may have fork in between."""
_forks = 0
"""How many forks that thread is at."""
_is_interrupted = False
_outside = Gate("SQLite")
"""Gone through by whoever uses SQLite outside of the gate of a store."""
_connected: WeakKeyDictionary[Connection, FileId] = WeakKeyDictionary()
"""Open connections to files."""
_handles: dict[FileId, tuple[int, FileId]] = {}
"""Handles to read from, by the file: each with the database that it is of."""
_resting: WeakSet[Resting] = WeakSet()
_carried: dict[FileId, list[Connection]] = {}
"""Files that were in use when this process was forked. Their connections must never be closed in it."""


def using() -> AbstractContextManager[object]:
    """Use SQLite, outside of the gate of a store: `with using(): …`. A fork waits for that."""
    return _outside.enter()


def connect(database: str | Path, path: str | Path | None, **options: Any) -> Connection:
    """Open a connection to a database.

    Args:
        database: the file, or its URI.
        path: the file; None for a database in memory.
        options: those of `sqlite3.connect`.

    Raises:
        StoreOpenError: it was in use when this process was forked.
        sqlite3.Error: it cannot be opened.
    """
    with _mutex:
        if path is not None:
            _check_carried(path)
        indexed = None if path is None or "immutable=1" in str(database) else Path(path)
        if indexed is not None:
            check_index(indexed)
        connection = sqlite3.connect(database, factory=Connection, **options)
        if indexed is not None and is_copied(indexed):
            connection.copied = indexed, _keeper()
        file = None if path is None else file_id(path)
        if file is not None:
            _connected[connection] = file
        return connection


def _keeper() -> Callable[[object], None]:
    """Return what keeps an object for ever: Python closes no such connection at its end, and could import nothing then.

    Before Python 3.12 there is no other way out of a database without a checkpoint.
    """
    from ctypes import py_object, pythonapi  # noqa: PLC0415 - it takes a while to import, and few need it

    return lambda kept: pythonapi.Py_IncRef(py_object(kept))


def make(path: Path, access: Access = OWN) -> None:
    """Make an empty file for a database, where there is none.

    Raises:
        OSError: it cannot be made.
    """
    with _mutex, suppress(FileExistsError):
        os.close(make_file(path, access))


def make_beside(path: Path, access: Access) -> None:
    """Make what SQLite keeps beside a database, where that would be of another group than the database.

    Whoever is of that group could read it, and those for whom the database is could not. As root, SQLite sees to it.

    Raises:
        OSError: it cannot be made.
    """
    if access.group is None or os.geteuid() == 0:
        return
    folder = path.parent.stat()
    if (folder.st_gid if folder.st_mode & stat.S_ISGID else os.getegid()) != access.group:
        for suffix in ("-wal", "-shm"):
            make(path.with_name(path.name + suffix), access)


@contextmanager
def unconnected(path: Path) -> Generator[bool]:
    """Tell whether no connection of this process has a database open. Meanwhile none is opened.

    Raises:
        StoreOpenError: it was in use when this process was forked.
    """
    with _mutex:
        _check_carried(path)
        yield not _is_connected(file_id(path))


def first_bytes(path: Path, count: int, database: Path) -> bytes:
    """Return how a file begins, which is that of a database or beside it.

    Raises:
        OSError: it cannot be read, or is a symbolic link.
    """
    with _mutex:
        _close_handles()
        kept = _handles.get(file_id(path) or (0, 0))
        if kept is not None:
            return os.pread(kept[0], count, 0)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        file, of = file_id(handle), file_id(database)
        if file is not None and of is not None and _is_connected(of):
            _handles[file] = handle, of
            return os.pread(handle, count, 0)
        try:
            return os.pread(handle, count, 0)
        finally:
            os.close(handle)


def file_id(file: str | Path | int) -> FileId | None:
    """Return which file is at a path, or behind a handle; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a `Path` takes twice the time, and each append looks
    except OSError:
        return None
    return found.st_dev, found.st_ino


def rests(each: Resting) -> None:
    """Have something rest at each fork, for as long as it is there."""
    with _mutex:
        _resting.add(each)


def _close_handles() -> None:
    """Close those by which no lock can be lost: of files that nobody here has open, or that are gone."""
    for file, (handle, of) in list(_handles.items()):
        if not _is_connected(of) or not os.fstat(handle).st_nlink:
            del _handles[file]
            os.close(handle)


def _check_carried(path: str | Path) -> None:
    if _carried and file_id(path) in _carried:
        raise StoreOpenError(
            f"{str(path)!r} was in use when this process was forked, and cannot be opened in it: fork while nobody "
            "reads or writes it, or start processes afresh (multiprocessing's 'spawn')"
        )


def is_copied(path: Path) -> bool:
    """Tell whether the index of a database takes new space each time that it is written: see `check_index`."""
    return file_system(path.parent) in _COPYING


def check_index(path: Path) -> None:
    """Raise where the index that SQLite makes beside a database would be written to memory that no disk stands behind.

    It makes sure of one byte in each 4 KiB, which is enough where a file has no smaller blocks and keeps the place that
    it has. Elsewhere the process would be killed (SIGBUS) once the disk is full: in small blocks when the index is
    made, on a file system that copies what is written whenever somebody reads or writes. There it MUST be called each
    time, and what somebody else takes in between is not seen.

    Args:
        path: the database, without symbolic links.

    Raises:
        sqlite3.OperationalError: there is not enough space.
    """
    with suppress(OSError):
        system = os.statvfs(path.parent)
        # Not what is free: of that a file system keeps some, which root is not given either.
        free_bytes = system.f_frsize * system.f_bavail
        if is_copied(path):
            if free_bytes < _COPYING_ROOM_BYTES:
                raise _no_index(f"less than 16 MiB is free on {file_system(path.parent)}")
            return
        if system.f_frsize >= _INDEX_PAGE_BYTES:
            return
        index = path.with_name(path.name + "-shm")
        there_bytes = index.stat().st_blocks * 512 if index.exists() else 0
        if there_bytes < _INDEX_BYTES and there_bytes + free_bytes < _ROOM_BYTES:
            raise _no_index("disk full")


def _no_index(why: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    return error


def _is_connected(file: FileId | None) -> bool:
    return file in list(_connected.values())


def _before_fork() -> None:
    global _forks, _is_interrupted  # noqa: PLW0603 - of the one thread that forks
    _forking.acquire()
    _forks += 1
    until_s = monotonic() + WAIT_S
    try:
        _outside.shut(WAIT_S)  # first: who is there may open a store, and go on in that
        with _mutex:
            resting = list(_resting)
        for each in resting:
            with suppress(sqlite3.Error):  # what it could not close is found open in the child
                each.rest(until_s)
    except KeyboardInterrupt:  # Python forks all the same
        _is_interrupted = True
    finally:
        _mutex.acquire()  # only now: who is under way may have to open something
        _close_handles()


def _after_fork_in_parent() -> None:
    global _forks, _is_interrupted  # noqa: PLW0603 - of the one thread that forks
    _forks -= 1
    resting = [] if _forks else list(_resting)
    _mutex.release()
    if not _forks:
        _outside.open()
    for each in resting:
        each.resume()
    is_interrupted, _is_interrupted = _is_interrupted, False
    _forking.release()
    if is_interrupted:  # not from here, where Python raises nothing
        _thread.start_new_thread(_thread.interrupt_main, ())


def _after_fork_in_child() -> None:
    global _mutex, _forking, _forks, _is_interrupted, _outside
    _mutex, _forking, _forks, _is_interrupted, _outside = RLock(), RLock(), 0, False, Gate("SQLite")
    for connection, file in list(_connected.items()):
        _carried.setdefault(file, []).append(connection)
    _connected.clear()
    for each in list(_resting):
        each.forget()
    _resting.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
