"""The one place where errors of SQLite become errors of turnlog."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from turnlog.errors import (
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
_NO_INDEX = (
    "store {place!r} can be neither read nor written ({message}): the index that SQLite makes beside it while it is "
    "open takes 32 KiB, free some space; nothing was recorded"
)
DRIVER_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises. A damaged schema makes sqlite3 fail to decode its own message."""

PRIMARY_CODE = 0xFF
"""The low byte of an extended result code is the primary one (SQLite, "Result and Error Codes")."""


_NOT_COMMITTED = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
"""What a COMMIT fails with that has certainly not been carried out."""

_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "no space left for store {place!r}: free some; nothing was recorded"),
    sqlite3.SQLITE_IOERR: (
        StoreFullError,
        "store {place!r} cannot be written ({message}): check that the disk has space and is sound; "
        "nothing was recorded",
    ),
    sqlite3.SQLITE_IOERR_SHMSIZE: (StoreFullError, _NO_INDEX),
    sqlite3.SQLITE_IOERR_SHMOPEN: (StoreFullError, _NO_INDEX),
    sqlite3.SQLITE_IOERR_SHMMAP: (StoreFullError, _NO_INDEX),
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
    kind, form = _KINDS.get(code) or _KINDS.get(code & PRIMARY_CODE) or (StoreError, "store {place!r}: {message}")
    return kind(form.format(place=place, message=message))


@contextmanager
def converted(place: str) -> Generator[None]:
    """Raise errors of SQLite as turnlog's own."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise store_error(error, place) from error
