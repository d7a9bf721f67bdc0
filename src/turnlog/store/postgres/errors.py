"""The one place where errors of PostgreSQL become errors of turnlog."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal

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

_HOST_NAME = "write the host in its URL as the server's certificate has it"
_OWN_CERTIFICATE = (
    "sslcert=… and sslkey=… in its URL name a certificate that the server takes for this role, and its key"
)
_CERTIFICATES = {
    "private key file": "sslkey=… in its URL names the key of the certificate that sslcert=… names, in a file that "
    "only its owner may read (chmod 600)",
    "does not match host name": _HOST_NAME,
    "for a verified SSL connection": _HOST_NAME,
    "root certificate": "sslrootcert=… in its URL names the file of the authority that the server's certificate is of",
    "certificate verify failed": "the server is to show a certificate that is valid now, of an authority in the file "
    "that sslrootcert=… in its URL names",
    "certificate file": _OWN_CERTIFICATE,
    "client certificate": _OWN_CERTIFICATE,
    "certificate authentication": _OWN_CERTIFICATE,
    "alert certificate": _OWN_CERTIFICATE,
    "alert bad certificate": _OWN_CERTIFICATE,
    "alert unsupported certificate": _OWN_CERTIFICATE,
    "alert unknown ca": _OWN_CERTIFICATE,
}
"""What to do about what libpq or a server says of certificates and keys, by what that has in it: the first."""

_REFUSED = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied for database",
    "is not permitted to log in",
    "failed to resolve host",
    "could not translate host name",
    "SSL was required",
    *_CERTIFICATES,
)
"""What is said of a connection that does not come by waiting. psycopg gives no state then."""

_WRONG = re.compile(
    r"invalid port number|could not match \d+ |invalid integer value|invalid \S+ value: |weak sslmode|"
    r"could not parse network address|bad value for connect_timeout|definition of service|service file"
)
"""What libpq says of a URL, or of what the environment adds to it, before it connects at all."""

_UNFIT = re.compile(
    r"unrecognized configuration parameter|invalid value for parameter|permission denied to set parameter|"
    r"parameter .* cannot be |invalid command-line argument|not currently accepting connections|"
    r"server (?:requested|did not complete) |GSSAPI.* required|gssencmode|channel binding|requires a value|"
    r"replication connection"
)
"""What a server, or libpq, says of settings of a connection that do not fit, once it was reached."""

_OTHER_KIND = ("server is not in hot standby mode", "session is not read-only")
"""What is said of a server that was to be a standby (libpq, `target_session_attrs`), which it may become."""

_ADVICE = {
    **_CERTIFICATES,
    "no password supplied": "give the password in ~/.pgpass, in a service file, or in PGPASSWORD",
    "server does not support SSL": "turn SSL on there, or ask for less with sslmode=… in its URL",
}
"""What to do about what is said of a connection that is refused, by what that has in it."""

_GONE = re.compile(r"FATAL: +(?:database|role) .* does not exist")
"""What a server says where no waiting brings back what was there when the log was opened."""

_COMING = ("is starting up", "is shutting down", "in recovery mode", "not yet accepting", "not accepting connections")
"""What a server says that is about to begin or to end."""

_NOT_THERE = ("Connection refused", "No such file or directory")
"""What is said where nobody listens."""

_NO_PRIMARY = ("session is read-only", "server is in hot standby mode")
"""What is said of a server that was not to be a standby (libpq, `target_session_attrs`)."""

_EACH = re.compile(r"^- host: '(.*)', port: '(.*)', hostaddr: .*?: (?:connection failed: )?(.*)$", re.MULTILINE)
"""What psycopg says of each server of a URL, where none took the connection."""

_WHERE = re.compile(r"^(?:connection [\w ]+: )?(?:connection to server .*? failed: )?")
"""What psycopg and libpq say before the reason why a connection is not there."""

_ROLES = {
    "due to statement timeout": "statement_timeout",
    "synchronous_commit is": "it",
    "access to non-system": "restrict_nonsystem_relation_kind",
}
"""What the server says where a setting is in the way that turnlog leaves as it is, and the setting."""

_NO_FUNCTION = "store {place!r} has lost a function ({message}): `turnlog projections rebuild` makes it anew"
_NO_PATH = (
    "store {place!r} has functions that do not find its tables ({message}): `turnlog projections rebuild` makes them "
    "anew"
)
"""What is said where a function of the log looks for a table in the wrong schema, as after that was renamed."""

_MISSING = (errors.UndefinedTable, errors.UndefinedFunction)

Missing = Literal["right", "function", "table"]
"""What is missing where the server does not find a table or a function: the right to look into the schema, so that all
in it seems to be; a function, or what it needs to find the tables, which are there; or else a table."""

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
        "store {place!r} is read-only ({message}): connect to the primary, with target_session_attrs=read-write; if it "
        "is the primary, see what default_transaction_read_only is for the role and its database",
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


def _failures(error: BaseException) -> list[str]:
    """Return what each server of a URL said, without where it is."""
    said = str(error)
    return [_reason(found[3]) for found in _EACH.finditer(said)] or [_reason(said.split("\n", maxsplit=1)[0])]


def _reason(said: str) -> str:
    return _WHERE.sub("", said, count=1)


def is_refused(error: BaseException) -> bool:
    """Tell whether no server takes a connection, for reasons that do not go away by waiting."""
    return all(any(said in failure for said in _REFUSED) for failure in _failures(error))


def _is_wrong(error: BaseException) -> bool:
    """Tell whether no server can be connected to, as what says how is wrong."""
    is_of_server = not isinstance(error, psycopg.Error) or error.sqlstate is not None
    return not is_of_server and all(_WRONG.search(failure) for failure in _failures(error))


def is_full(error: BaseException) -> bool:
    """Tell whether a server takes no connection for it, a database or a role has as many as it may."""
    return is_lost(error) and any(said in failure for said in _NO_MORE for failure in _failures(error))


def is_gone(error: BaseException) -> bool:
    """Tell whether the database, or the role, is not there, or not any more."""
    return all(_GONE.search(failure) for failure in _failures(error))


def _is_unfit(error: BaseException) -> bool:
    """Tell whether no server takes a connection with the settings that are given for it."""
    return all(_UNFIT.search(failure) for failure in _failures(error))


def _advice(error: BaseException) -> str:
    """Return what to do where the server cannot be reached, or takes no connection."""
    if _is_wrong(error):
        return "see whether its URL is right"
    if _is_unfit(error) or any(said in failure for said in _OTHER_KIND for failure in _failures(error)):
        return "check the settings of the connection, in its URL and in the environment"
    for said, advice in _ADVICE.items():
        if any(said in failure for failure in _failures(error)):
            return advice
    if is_refused(error):
        return "see whether its URL is right, and the role may connect"
    return "see whether its server runs"


def may_come(error: BaseException, *, servers: int) -> bool:
    """Tell whether a server that takes a connection may be there soon: one takes over, is about to begin, or is full.

    Args:
        error: why there is none now.
        servers: how many the URL names. One that is alone and not there may as well be none, and so may all.
    """
    if not is_lost(error) or is_refused(error) or _is_wrong(error) or _is_unfit(error):
        return False
    failures = _failures(error)
    if servers > 1 and not all(any(said in failure for said in _NOT_THERE) for failure in failures):
        return True
    return is_full(error) or any(said in failure for said in _COMING for failure in failures)


def _message(error: BaseException) -> str:
    """Return what an error says, in one line: of several servers what each said."""
    found = [f"{match[1]}:{match[2]}: {_reason(match[3])}" for match in _EACH.finditer(str(error))]
    line = "; ".join(found) or " ".join(str(error).split("\n")[0].split())
    if isinstance(error, psycopg.Error) and error.sqlstate is None and any(said in line for said in _NO_PRIMARY):
        line = f"no primary was found: {line}"
    setting = next((name for said, name in _ROLES.items() if said in line), None)
    return f"{line}: the role, its database or the server sets {setting}" if setting else line


def store_error(
    error: BaseException,
    place: str,
    *,
    denied: tuple[type[StoreError], str] = _DENIED,
    missing: Callable[[], Missing] = lambda: "table",
) -> StoreError:
    """Return the turnlog error for one of psycopg.

    Args:
        error: what was raised.
        place: the name of the store, for people.
        denied: what to return where the role has no right; by default it is taken for one to write.
        missing: tells what is missing, where the server does not find something.
    """
    message = _message(error)
    lost = missing() if isinstance(error, _MISSING) else None
    hidden = lost == "right"
    if hidden or isinstance(error, errors.InsufficientPrivilege):
        raised, form = denied
        return raised(form.format(place=place, message="permission denied for its schema" if hidden else message))
    if lost == "function" and isinstance(error, errors.UndefinedFunction):
        return CorruptionError(_NO_FUNCTION.format(place=place, message=message))
    if lost == "function" and isinstance(error, errors.UndefinedTable) and error.diag.context:
        return CorruptionError(_NO_PATH.format(place=place, message=message))
    for kind, (raised, form) in _KINDS.items():
        if isinstance(error, kind):
            return raised(form.format(place=place, message=message))
    if is_full(error):
        raised, form = _LACKS
        return raised(form.format(place=place, message=message))
    if is_lost(error):
        return StoreLostError(f"store {place!r} cannot be reached ({message}): {_advice(error)}")
    return StoreError(f"store {place!r}: {message}")


def open_error(error: psycopg.Error, place: str) -> StoreError:
    """Return the turnlog error for one of psycopg while a store is opened."""
    found = store_error(error, place)
    if isinstance(found, StoreReadOnlyError | CorruptionError) and not isinstance(error, errors.InsufficientPrivilege):
        return found
    message = _message(error)
    advice = ""
    if isinstance(found, StoreLostError) or _is_wrong(error) or _is_unfit(error):
        advice = f"; {_advice(error)}"
        if advice.endswith("runs"):
            advice += ", and try again later"
    elif isinstance(found, StoreBusyError):
        advice = "; try again later"
    elif isinstance(error, errors.DuplicateTable | errors.DuplicateObject | errors.DuplicateFunction):
        advice = "; the schema is another program's: give the log one of its own, with `?schema=NAME` in the URL"
    return StoreOpenError(f"store {place!r} cannot be opened: {message}{advice}")


@contextmanager
def converted(
    place: str,
    *,
    denied: tuple[type[StoreError], str] = _DENIED,
    missing: Callable[[], Missing] = lambda: "table",
) -> Generator[None]:
    """Raise errors of psycopg as turnlog's own: see `store_error`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise store_error(error, place, denied=denied, missing=missing) from error
