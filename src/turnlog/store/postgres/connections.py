"""Connections to a PostgreSQL store: its URL, the settings that they need, and those that are kept for readers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from weakref import WeakSet

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from turnlog.errors import StoreOpenError
from turnlog.hurry import hurry
from turnlog.store.postgres.errors import is_full
from turnlog.store.postgres.pooling import check_pooling
from turnlog.store.postgres.wire import LOOK_S, NO_ANSWER, Wire

SCHEMA = "turnlog"
"""The schema of a log, where its URL names none."""

SCHEMA_OPTION = "schema"
"""What names the schema in a URL."""

PAYLOADS_OPTION = "payloads"
"""What names the place of large payloads in a URL. All else in its query is libpq's."""

NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names."""

READERS_KEPT = 8
"""Connections that are kept open for the next reader."""

IDLE_S = 60
"""How long a transaction may be open without a statement, in seconds. Others' positions wait for its end."""

_HAS_TRANSACTION_TIMEOUT = 170_000

SCHEMES = ("postgresql", "postgres")

_open: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""The connections of this process, and in a forked one what it has got of them."""


def check_schema(name: str, of: str) -> None:
    """Check that a schema can have a name.

    Args:
        name: the name.
        of: what is in the schema, for people.

    Raises:
        StoreOpenError: it cannot.
    """
    if not name:
        why = "it is empty"
    elif "\0" in name:
        why = "it has a NUL character"
    elif name == "information_schema":
        why = "this one is PostgreSQL's own"
    elif name.startswith("pg_"):
        why = "names that begin with 'pg_' are PostgreSQL's own"
    elif len(name.encode()) > NAME_BYTES_MAX:
        why = f"it has more than {NAME_BYTES_MAX} bytes"
    else:
        return
    raise StoreOpenError(f"{name!r} cannot be the schema of {of}, give another name: {why}")


class Address:
    """Where a PostgreSQL log is.

    Attributes:
        conninfo: the URL for libpq.
        schema: the schema.
        payloads: the place of large payloads; None where they stand beside their events.
        place: how the log is named to people: without user and password.
    """

    def __init__(self, url: str) -> None:
        """Read a URL.

        Raises:
            StoreOpenError: it is malformed.
        """
        authority, slash, rest = url.partition("://")[2].partition("/")
        user = authority.rpartition("@")[0]
        if "@" in slash + rest or {"?", "#", "@"}.intersection(user):
            # Where the password ends cannot be told, so nothing of the URL is.
            raise StoreOpenError(
                "the store's URL has an @ where none can be: in names, passwords and options write %2F for /, %3F for "
                "?, %23 for # and %40 for @"
            )
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            options = dict(query)
        except ValueError as error:
            # What the error shows may be part of a password.
            raise StoreOpenError(
                "the store's URL is malformed: write postgresql://USER@HOST:PORT/DATABASE?NAME=VALUE&…, with other "
                "characters as %XX"
            ) from error
        if parts.fragment:
            raise StoreOpenError("a store URL has no fragment (write %23 for #)")
        if len(options) < len(query):
            twice = next(name for name in options if sum(name == given for given, _ in query) > 1)
            raise StoreOpenError(f"the store's URL gives {twice!r} more than once: give it once")
        self.schema = options.pop(SCHEMA_OPTION, SCHEMA)
        self.payloads = options.pop(PAYLOADS_OPTION, None)
        check_schema(self.schema, "a log")
        # Whatever the environment, a service file or the server say: texts are sent as UTF-8.
        options["client_encoding"] = "utf8"
        self._keeps_session = False
        """Known from the first connection on."""
        self.conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(options, quote_via=quote)}"
        hosts = parts.netloc.rpartition("@")[2]
        shown = {} if hosts or "host" not in options else {"host": options["host"]}
        if self.schema != SCHEMA:
            shown["schema"] = self.schema
        asked = "&".join(f"{name}={value}" for name, value in shown.items())
        self.place = f"postgresql://{hosts}{parts.path}" + (f"?{asked}" if asked else "")
        try:
            conninfo_to_dict(self.conninfo)
        except psycopg.ProgrammingError as error:
            said = str(error).strip()
            if "query parameter" not in said:
                said = said.partition(":")[0].partition('"')[0].strip()  # what follows may be part of a password
            raise StoreOpenError(f"the store's URL {self.place!r} is malformed: {said}") from error

    @property
    def servers(self) -> int:
        """How many servers the URL names."""
        return str(conninfo_to_dict(self.conninfo).get("host", "")).count(",") + 1

    def connect(self, *, lock_timeout_s: float, connect_timeout_s: float) -> psycopg.Connection[Any]:
        """Open a connection with the settings that a log needs, in autocommit mode.

        Raises:
            psycopg.Error: it cannot be opened, or not in time for who is in a hurry.
            StoreOpenError: the database has another encoding than UTF-8, or a pooler gives each transaction another
                session.
        """
        return _opened(partial(self._connect, lock_timeout_s=lock_timeout_s, connect_timeout_s=connect_timeout_s))

    def _connect(self, *, lock_timeout_s: float, connect_timeout_s: float) -> psycopg.Connection[Any]:
        connect = partial(
            psycopg.connect,
            self.conninfo,
            autocommit=True,
            prepare_threshold=None,
            **self._defaults(
                connect_timeout=max(2, int(connect_timeout_s)),
                application_name="turnlog",
                # A host that is gone without a word is noticed within half a minute: before what waits for it gives up.
                keepalives_idle=15,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=30_000,
            ),
        )
        connection = connect()
        _open.add(connection)
        try:
            check_encoding(connection, self.place)
            if not self._keeps_session:
                # Before anything is set, which would be so for others then.
                check_pooling(connection, connect, self.place)
                self._keeps_session = True
            settings = {
                "lock_timeout": f"{max(1, int(1000 * lock_timeout_s))}ms",
                "idle_in_transaction_session_timeout": f"{IDLE_S}s",
                # Statements outside of a transaction settle positions, too.
                **lasting(connection),
                # Plans that do not depend on how large the tables were when they were made.
                "plan_cache_mode": "force_generic_plan",
                "enable_seqscan": "off",
                "enable_bitmapscan": "off",
                "jit": "off",
                # The server notices within a minute that this host is gone: until then its locks are taken.
                "tcp_keepalives_idle": "30",
                "tcp_keepalives_interval": "10",
                "tcp_keepalives_count": "3",
                "tcp_user_timeout": "60s",
                "client_min_messages": "error",
                "bytea_output": "hex",
                "array_nulls": "on",
                "standard_conforming_strings": "on",
                "transform_null_equals": "off",
                # How the catalog spells names. The signature of the tables is of that.
                "quote_all_identifiers": "off",
            }
            connection.execute(
                sql.SQL(";").join(
                    [
                        set_all(settings),
                        # Behind what says how names are spelled: functions keep it as it is spelled here.
                        sql.SQL("SET search_path = {}, pg_temp").format(sql.Identifier(self.schema)),
                    ]
                )
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _defaults(self, **values: Any) -> dict[str, Any]:
        """Return settings of a connection that its URL does not give."""
        given = conninfo_to_dict(self.conninfo)
        return {name: value for name, value in values.items() if name not in given}


def lasting(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Return what a session is set to whose locks are those of turnlog, whatever is its role's default, or a server's.

    Who has waited for a lock sees what was made meanwhile. A session holds locks and listens while it is idle, and one
    that is ended while it waits for a standby shows what that has not.
    """
    return {
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "idle_session_timeout": "0",
        **({"transaction_timeout": "0"} if connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT else {}),
    }


def set_all(settings: Mapping[str, str]) -> sql.Composed:
    """Return statements that set settings of a session."""
    return sql.SQL(";").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in settings.items()
    )


def _opened(connect: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """Open a connection in a thread of its own, which who is in a hurry leaves behind.

    Raises:
        psycopg.OperationalError: it was left behind.
    """
    opening: Future[psycopg.Connection[Any]] = Future()

    def run() -> None:
        try:
            connection = connect()
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            if opening.set_running_or_notify_cancel():
                opening.set_exception(error)
        else:
            if opening.set_running_or_notify_cancel():
                opening.set_result(connection)
            else:
                connection.close()

    since_s = monotonic()
    if hurry().gave_up:
        raise psycopg.OperationalError(NO_ANSWER)
    try:
        Thread(target=run, name="turnlog-connect", daemon=True).start()
    except RuntimeError:  # there can be no more threads, as when the interpreter ends
        run()
    while True:
        try:
            return opening.result(max(0.0, min(LOOK_S, hurry().left_s(since_s))))
        except TimeoutError:
            if hurry().left_s(since_s) <= 0 and opening.cancel():
                hurry().give_up()
                raise psycopg.OperationalError(NO_ANSWER) from None
        except BaseException:
            opening.cancel()
            raise


def check_encoding(connection: psycopg.Connection[Any], place: str) -> None:
    """Check that a database can hold all texts. It costs no round trip.

    Args:
        connection: a connection to it.
        place: how it is named to people.

    Raises:
        StoreOpenError: it has another encoding than UTF-8.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise StoreOpenError(
            f"database {connection.info.dbname!r} of {place!r} has the encoding {encoding}, which cannot hold every "
            "text: make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )


class Wires:
    """Opens connections, and keeps some for the next reader. Safe to use from many threads."""

    def __init__(self, address: Address, *, busy_timeout_s: float) -> None:
        """Take where the log is, and how long to wait for others."""
        self.address = address
        self._busy_timeout_s = busy_timeout_s
        self._kept: deque[Wire] = deque()
        self._lock = Lock()
        self._closed = False

    def new(self, on_wait: Callable[[float], None] | None = None) -> Wire:
        """Open a connection. Where there can be no more, it is one that was kept.

        Raises:
            psycopg.Error: it cannot be opened.
        """
        timeout_s = self._busy_timeout_s
        try:
            connection = self.address.connect(lock_timeout_s=timeout_s, connect_timeout_s=min(10, timeout_s))
        except psycopg.OperationalError as error:
            wire = self._idle() if is_full(error) else None
            if wire is None:
                raise
            wire.on_wait = on_wait
            return wire
        return Wire(connection, on_wait)

    def take(self) -> Wire:
        """Return one that was kept, or a new one."""
        return self._idle() or self.new()

    def _idle(self) -> Wire | None:
        while True:
            try:
                wire = self._kept.pop()
            except IndexError:
                return None
            if not wire.is_broken:
                return wire
            wire.close()

    def give_back(self, wire: Wire) -> None:
        """Keep a connection for the next one, or close it."""
        with self._lock:
            if not self._closed and not wire.is_broken and len(self._kept) < READERS_KEPT:
                self._kept.append(wire)
                return
        wire.close()

    def close_kept(self) -> None:
        """Close those that are kept."""
        while (wire := self._idle()) is not None:
            wire.close()

    def close(self) -> None:
        """Close those that are kept. Others are closed by who gives them back."""
        with self._lock:
            self._closed = True
            self.close_kept()


def _after_fork() -> None:
    """Let go of the parent's connections: they would stay open, and keep its locks, when it ends before this process.

    Their numbers stay taken, so that nobody who still has one gets another file for it.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in list(_open):
        with suppress(psycopg.Error, OSError):
            os.dup2(nothing, connection.fileno(), inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_after_fork)
