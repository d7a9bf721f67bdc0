"""Finding a pooler that gives each transaction another session of the server (PgBouncer: `pool_mode = transaction`).

Locks, settings and prepared statements of a log are those of its session. Behind such a pooler two runs could both have
one lock, and statements of others would run with the settings of a log. That there is a pooler is seen by the number
of the session: it has made up one of its own. How it gives sessions is seen by what it gives to two that ask.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors, pq

from turnlog.errors import StoreOpenError

_SESSION = "SELECT pg_backend_pid()"
_BEGIN = b"BEGIN; SELECT pg_backend_pid()"

_NOT_ALLOWED = 0

_OTHERS = 2
"""How many others ask. A pooler gives them the session that was used last, or that which is idle for longest."""

_OTHER_S = 2.0
"""So long another one is waited for: a pooler that gives each client a session of its own may have none left."""


def check_pooling(
    connection: psycopg.Connection[Any], connect: Callable[[], psycopg.Connection[Any]], place: str
) -> None:
    """Check that a pooler, if there is one, lets a connection keep its session.

    Args:
        connection: the connection, in no transaction.
        connect: opens another one to the same place.
        place: how the log is named to people.

    Raises:
        StoreOpenError: it does not.
    """
    session = _session(connection)
    if connection.info.backend_pid == session:
        return
    with ExitStack() as others:
        for _ in range(_OTHERS):
            theirs = _session_of_another(others, connect)
            if _session(connection) != session or theirs in (session, _NOT_ALLOWED):
                raise StoreOpenError(
                    f"store {place!r} is behind a pooler that gives each transaction another session of the server: "
                    "connect to the server itself, or to a pool that keeps the session (PgBouncer: pool_mode = session)"
                )


def _session(connection: psycopg.Connection[Any]) -> int:
    [(session,)] = connection.execute(_SESSION).fetchall()
    return session


def _session_of_another(others: ExitStack, connect: Callable[[], psycopg.Connection[Any]]) -> int | None:
    """Return the session that another connection has for a transaction, which it stays in; None where it gets none."""
    with suppress(psycopg.Error):
        other = connect()
        others.callback(other.close)
        pg, until = other.pgconn, monotonic() + _OTHER_S
        pg.send_query(_BEGIN)
        poll = select.poll()
        poll.register(pg.socket, select.POLLIN)
        while True:
            while pg.is_busy():
                if not poll.poll(1000 * max(0.0, until - monotonic())):
                    return None
                pg.consume_input()
            result = pg.get_result()
            if result is None:
                return None
            if result.status == pq.ExecStatus.TUPLES_OK:
                return int(result.get_value(0, 0) or 0)
            if result.status == pq.ExecStatus.FATAL_ERROR:
                # A pool in which nobody may begin a transaction says so; one that is full says it in another way.
                return _NOT_ALLOWED if isinstance(errors.error_from_result(result), errors.ProtocolViolation) else None
    return None
