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

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from time import monotonic
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from turnlog.errors import StoreOpenError
from turnlog.store.files import make_file

WAIT_S = 2.0
"""How long a fork waits at most, for what is in use."""

FileId = tuple[int, int]
"""A file, by device and number."""


class Connection(sqlite3.Connection):
    """sqlite3's own, that can be known without being kept."""


class Resting(Protocol):
    """What has connections, and can do without them for the moment of a fork."""

    def rest(self, until_s: float) -> None:
        """Let nobody use a connection, wait for those who do, until a time of `monotonic`; close the idle ones."""
        ...

    def resume(self) -> None:
        """Go on. It is not called in the child."""
        ...


_mutex = RLock()
"""Held while a database is opened, or its file by itself, and by whoever forks."""
_forking = Lock()
"""Held by the one thread that forks."""
_connected: WeakKeyDictionary[Connection, FileId] = WeakKeyDictionary()
_handles: dict[FileId, tuple[int, FileId]] = {}
"""Handles to read from, by the file: each with the database that it is of."""
_resting: WeakSet[Resting] = WeakSet()
_carried: dict[FileId, list[Connection]] = {}
"""Files that were in use when this process was forked. Their connections must never be closed in it."""


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
    if path is None:
        return sqlite3.connect(database, factory=Connection, **options)
    with _mutex:
        _check_carried(path)
        connection = sqlite3.connect(database, factory=Connection, **options)
        file_id = _file_id(path)
        if file_id is not None:
            _connected[connection] = file_id
        return connection


def make(path: Path, mode: int) -> None:
    """Make an empty file for a database, where there is none.

    Raises:
        OSError: it cannot be made.
    """
    with _mutex, suppress(FileExistsError):
        os.close(make_file(path, mode))


@contextmanager
def unconnected(path: Path) -> Generator[bool]:
    """Tell whether no connection of this process has a database open. Meanwhile none is opened.

    Raises:
        StoreOpenError: it was in use when this process was forked.
    """
    with _mutex:
        _check_carried(path)
        yield not _is_connected(_file_id(path))


def first_bytes(path: Path, count: int, database: Path) -> bytes:
    """Return how a file begins, which is that of a database or beside it.

    Raises:
        OSError: it cannot be read, or is a symbolic link.
    """
    with _mutex:
        for file_id, (handle, of) in list(_handles.items()):
            if not _is_connected(of):
                del _handles[file_id]
                os.close(handle)
        held = _handles.get(_file_id(path) or (0, 0))
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC) if held is None else held[0]
        of, file_id = _file_id(database), _file_id(handle)
        try:
            return os.pread(handle, count, 0)
        finally:
            if of is not None and file_id is not None and _is_connected(of):
                _handles[file_id] = handle, of
            else:
                os.close(handle)


def rests(each: Resting) -> None:
    """Have something rest at each fork, for as long as it is there."""
    with _mutex:
        _resting.add(each)


def _check_carried(path: str | Path) -> None:
    if _carried and _file_id(path) in _carried:
        raise StoreOpenError(
            f"{str(path)!r} was in use when this process was forked, and cannot be opened in it: fork while nobody "
            "reads or writes it, or start processes afresh (multiprocessing's 'spawn')"
        )


def _file_id(file: str | Path | int) -> FileId | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - it may be a handle
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_connected(file_id: FileId | None) -> bool:
    return any(each == file_id and _is_open(connection) for connection, each in list(_connected.items()))


def _is_open(connection: Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


def _before_fork() -> None:
    _forking.acquire()
    until_s = monotonic() + WAIT_S
    try:
        with _mutex:
            resting = list(_resting)
        for each in resting:
            with suppress(sqlite3.Error):  # what it could not close is found open in the child
                each.rest(until_s)
    finally:
        _mutex.acquire()  # only now: who is under way may have to open something


def _after_fork_in_parent() -> None:
    resting = list(_resting)
    with suppress(RuntimeError):  # an interrupt came before it was held; Python does not raise it then
        _mutex.release()
    for each in resting:
        each.resume()
    with suppress(RuntimeError):
        _forking.release()


def _after_fork_in_child() -> None:
    global _mutex, _forking
    _mutex, _forking = RLock(), Lock()
    _resting.clear()
    for connection, file_id in list(_connected.items()):
        if _is_open(connection):
            _carried.setdefault(file_id, []).append(connection)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
