"""The one place where errors of PostgreSQL become errors of turnlog."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from turnlog.errors import (
    CorruptionError,
    SchemaError,
    StoreBusyError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreLostError,
    StoreOpenError,
    StoreReadOnlyError,
)

DRIVER_ERRORS = (psycopg.Error,)
"""What psycopg raises."""

CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation, errors.InternalError_)
"""Somebody else was first: the plans run again. Internal errors are of tables that are made anew at this moment."""

_BUSY = "store {place!r} is busy: another process writes to it, try again later"
_LACKS = (StoreBusyError, "store {place!r} is busy ({message}): try again later")
_DENIED = (
    StoreReadOnlyError,
    "store {place!r} cannot be written by this role ({message}): connect as one that may, see `turnlog grant`",
)
UNREADABLE = (
    StoreDeniedError,
    "store {place!r} cannot be read by this role ({message}): its owner gives rights with `turnlog grant ROLE --read`",
)
"""What it is that a role has no right where it only reads, and what is said of it."""

_TOO_LONG = ("25P03", "25P04")
"""What is said where the server ends a session, for it was idle within a transaction for too long, or in one."""

_NO_MORE = ("too many connections", "too many clients", "connection slots are reserved")
"""What a server without room says where it takes no connection: psycopg gives no state then."""

_MISSING = (errors.UndefinedTable, errors.UndefinedFunction)

_KINDS: dict[type[psycopg.Error], tuple[type[StoreError], str]] = {
    errors.LockNotAvailable: (StoreBusyError, _BUSY),
    errors.DeadlockDetected: _LACKS,
    errors.SerializationFailure: _LACKS,
    errors.QueryCanceled: (StoreBusyError, "store {place!r} did not answer in time ({message}): try again later"),
    errors.TooManyConnections: _LACKS,
    errors.OutOfMemory: _LACKS,
    errors.ConfigurationLimitExceeded: _LACKS,
    errors.ReadOnlySqlTransaction: (
        StoreReadOnlyError,
        "store {place!r} is read-only ({message}): connect to the primary, with target_session_attrs=read-write",
    ),
    errors.DiskFull: (StoreFullError, "no space left for store {place!r}: free some; nothing was recorded"),
    errors.DataCorrupted: (CorruptionError, "store {place!r} is damaged ({message}): run `turnlog verify`"),
    errors.IndexCorrupted: (CorruptionError, "store {place!r} is damaged ({message}): run `turnlog verify`"),
    # Whoever is late runs its plan again: what is left is a row where there cannot be one.
    errors.UniqueViolation: (CorruptionError, "store {place!r} is damaged ({message}): run `turnlog verify`"),
    errors.UndefinedTable: (
        CorruptionError,
        "store {place!r} has lost a table ({message}): run `turnlog verify` and restore a backup",
    ),
    errors.UndefinedFunction: (
        CorruptionError,
        "store {place!r} has lost a function ({message}): run `turnlog verify` and restore a backup",
    ),
    errors.TriggeredActionException: (
        SchemaError,
        "nothing went into store {place!r} ({message}): run `turnlog verify`",
    ),
    errors.ObjectNotInPrerequisiteState: (StoreError, "store {place!r} refuses ({message}); nothing was recorded"),
}


def is_lost(error: BaseException) -> bool:
    """Tell whether an error says that the connection is lost, or that the server is about to stop or has just begun."""
    if isinstance(error, psycopg.InterfaceError):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P", *_TOO_LONG))


def store_error(
    error: BaseException,
    place: str,
    *,
    denied: tuple[type[StoreError], str] = _DENIED,
    is_hidden: Callable[[], bool] = lambda: False,
) -> StoreError:
    """Return the turnlog error for one of psycopg.

    Args:
        error: what was raised.
        place: the name of the store, for people.
        denied: what to return where the role has no right; by default it is taken for one to write.
        is_hidden: tells whether the role may not look into the schema of the store. What it has in there then seems
            to be missing.
    """
    message = " ".join(str(error).split("\n")[0].split())
    hidden = isinstance(error, _MISSING) and is_hidden()
    if hidden or isinstance(error, errors.InsufficientPrivilege):
        raised, form = denied
        return raised(form.format(place=place, message="permission denied for its schema" if hidden else message))
    for kind, (raised, form) in _KINDS.items():
        if isinstance(error, kind):
            return raised(form.format(place=place, message=message))
    if is_lost(error) and any(said in message for said in _NO_MORE):
        raised, form = _LACKS
        return raised(form.format(place=place, message=message))
    if is_lost(error):
        return StoreLostError(f"store {place!r} cannot be reached ({message}): see whether its server runs")
    return StoreError(f"store {place!r}: {message}")


def open_error(error: psycopg.Error, place: str) -> StoreError:
    """Return the turnlog error for one of psycopg while a store is opened."""
    found = store_error(error, place)
    if isinstance(found, StoreReadOnlyError | CorruptionError) and not isinstance(error, errors.InsufficientPrivilege):
        return found
    message = " ".join(str(error).split("\n")[0].split())
    advice = ""
    if isinstance(found, StoreBusyError):
        advice = "; try again later"
    elif isinstance(error, errors.DuplicateTable | errors.DuplicateObject | errors.DuplicateFunction):
        advice = "; the schema is another program's: give the log one of its own, with `?schema=NAME` in the URL"
    return StoreOpenError(f"store {place!r} cannot be opened: {message}{advice}")


@contextmanager
def converted(
    place: str,
    *,
    denied: tuple[type[StoreError], str] = _DENIED,
    is_hidden: Callable[[], bool] = lambda: False,
) -> Generator[None]:
    """Raise errors of psycopg as turnlog's own: see `store_error`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise store_error(error, place, denied=denied, is_hidden=is_hidden) from error
