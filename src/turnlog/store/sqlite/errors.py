"""The one place where errors of SQLite become errors of turnlog."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from turnlog.errors import (
    NO_SPACE,
    CorruptionError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreOpenError,
    StoreReadOnlyError,
    UncertainError,
)

_UNREADABLE = "store {place!r} cannot be read ({message}): check the disk and restore a backup"
DRIVER_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises. A damaged schema makes sqlite3 fail to decode its own message."""

PRIMARY_CODE = 0xFF
"""The low byte of an extended result code is the primary one (SQLite, "Result and Error Codes")."""


_NOT_COMMITTED = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
"""What a COMMIT fails with that has certainly not been carried out."""

_NO_INDEX = (
    "{what} can be neither read nor written ({message}): the index that SQLite makes beside it while it is open takes "
    "32 KiB, free some space"
)
_ELSEWHERE = ", or copy the store, with its '-wal' file and its folder of payloads, to another disk"
_NO_SPACE = "no space left for {what}: free some"
_NO_FILE = "no space left for another file beside {what}: free some (`df -i` tells how many files there may be)"
_LACKING: dict[int, str] = {
    sqlite3.SQLITE_FULL: _NO_SPACE,
    sqlite3.SQLITE_IOERR: "{what} cannot be written ({message}): check that the disk has space and is sound",
    sqlite3.SQLITE_IOERR_SHMSIZE: _NO_INDEX,
    sqlite3.SQLITE_IOERR_SHMOPEN: _NO_INDEX,
    sqlite3.SQLITE_IOERR_SHMMAP: _NO_INDEX,
}
"""By result code, extended or primary: what may be mended by space on the disk."""

_NO_HANDLE = "too many files are open to use {what}: close some, or allow more (`ulimit -n`)"
_HANDLES = 4
"""So many files SQLite opens for one connection: the database, two beside it, and their folder."""

_NOT_ALLOWED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
"""What SQLite says of a database beside which there are files that it may not use."""

_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_IOERR_READ: (CorruptionError, _UNREADABLE),
    sqlite3.SQLITE_IOERR_SHORT_READ: (CorruptionError, _UNREADABLE),
    sqlite3.SQLITE_IOERR_CORRUPTFS: (CorruptionError, _UNREADABLE),
    sqlite3.SQLITE_READONLY: (StoreReadOnlyError, "store {place!r} is read-only: {message}"),
    sqlite3.SQLITE_PERM: (StoreReadOnlyError, "store {place!r} is read-only: {message}"),
    sqlite3.SQLITE_BUSY: (StoreBusyError, "store {place!r} is busy: another process writes to it, try again later"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "store {place!r} is busy: another process writes to it, try again later"),
    sqlite3.SQLITE_CORRUPT: (
        CorruptionError,
        "store {place!r} is damaged ({message}): run `turnlog verify` and restore a backup",
    ),
    sqlite3.SQLITE_NOTADB: (StoreOpenError, "{place!r} is not a turnlog store, nor any SQLite database"),
    sqlite3.SQLITE_CANTOPEN: (StoreOpenError, "store {place!r} cannot be opened: {message}"),
    sqlite3.SQLITE_AUTH: (StoreOpenError, "store {place!r} cannot be opened: {message}"),
}
"""By result code, extended or primary."""


def is_damaged(error: BaseException) -> bool:
    """Tell whether an error says that a file is damaged, or is no database."""
    code: int = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def lacking(error: BaseException, what: str, path: Path, more: str = "") -> StoreError | None:
    """Return the error for what is lacking to use a database, with what to do about it; None if it is something else.

    Args:
        error: what SQLite, or the system, has raised.
        what: the name of the database, for people.
        path: its file.
        more: what the message ends with.
    """
    code: int = getattr(error, "sqlite_errorcode", 0)
    form = None if code in _KINDS else _LACKING.get(code) or _LACKING.get(code & PRIMARY_CODE)
    if form is not None:
        return StoreFullError(form.format(what=what, message=error) + more)
    is_unopened = code & PRIMARY_CODE == sqlite3.SQLITE_CANTOPEN
    cause = _why_unopened(path) if is_unopened else error
    if not isinstance(cause, OSError):
        return None
    if cause.errno in NO_SPACE:
        return StoreFullError((_NO_FILE if is_unopened else _NO_SPACE).format(what=what) + more)
    if cause.errno in {errno.EMFILE, errno.ENFILE}:
        return StoreOpenError(_NO_HANDLE.format(what=what) + more)
    return None


def _why_unopened(path: Path) -> OSError | None:
    """Return what the system says of making a file beside another one, and of so many handles as SQLite takes.

    SQLite does not tell. Its own files are left alone: whoever closes one loses the locks of this process on it.
    """
    from tempfile import TemporaryFile  # noqa: PLC0415 - it takes a while to import, and few need it

    try:
        with ExitStack() as stack:
            for _ in range(_HANDLES - 1):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            stack.enter_context(TemporaryFile(dir=path.resolve().parent))
    except OSError as error:
        return error
    return None


def _not_ours(path: Path) -> Path | None:
    """Return what SQLite has beside a database that this user may write, and this not."""
    beside = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if not os.access(path, os.W_OK):
        return None
    return next((each for each in beside if each.exists() and not os.access(each, os.W_OK)), None)


def store_error(error: BaseException, place: str, *, committing: bool = False) -> StoreError:
    """Return the turnlog error for an error of SQLite.

    Args:
        error: what was raised.
        place: the name of the store, for people.
        committing: it came of a COMMIT, which may have been carried out all the same.
    """
    if isinstance(error, UnicodeDecodeError):
        return CorruptionError(f"store {place!r} is damaged: run `turnlog verify` and restore a backup")
    message = str(error)
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in message:
        return StoreClosedError(f"store {place!r} is closed")
    code: int = getattr(error, "sqlite_errorcode", 0)
    if committing and code & PRIMARY_CODE not in _NOT_COMMITTED:
        return UncertainError(
            f"the disk of store {place!r} failed at the end of an append ({message}): it may be recorded or not, "
            "ask for its id, or record it again under the same id"
        )
    elsewhere = _ELSEWHERE if _LACKING.get(code) == _NO_INDEX else ""
    lacks = lacking(error, f"store {place!r}", Path(place), f"{elsewhere}; nothing was recorded")
    if lacks is not None:
        return lacks
    if code & PRIMARY_CODE in _NOT_ALLOWED and (theirs := _not_ours(Path(place).resolve())) is not None:
        message = f"{message}; {str(theirs)!r} is not for this user: let its owner, or root, open the store once"
    kind, form = _KINDS.get(code) or _KINDS.get(code & PRIMARY_CODE) or (StoreError, "store {place!r}: {message}")
    return kind(form.format(place=place, message=message))


@contextmanager
def converted(place: str) -> Generator[None]:
    """Raise errors of SQLite as turnlog's own."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise store_error(error, place) from error
