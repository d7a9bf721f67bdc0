"""Finding a pooler that gives each transaction another session of the server (PgBouncer: `pool_mode = transaction`).

Locks, settings and prepared statements of a log are those of its session. Behind such a pooler two runs could both have
one lock, and statements of others would run with the settings of a log. That there is a pooler is seen by the number
of the session: it has made up one of its own. How it gives sessions is seen by what it gives to two that ask.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors, pq

from turnlog.errors import StoreOpenError

_SESSION = b"SELECT pg_backend_pid()"
_BEGIN = b"BEGIN; SELECT pg_backend_pid()"

_NOT_ALLOWED = 0

_OTHERS = 2
"""How many others ask. A pooler gives them the session that was used last, or that which is idle for longest."""

_OTHER_S = 2.0
"""So long another one is waited for: a pooler that gives each client a session of its own may have none left."""

_OWN_S = 10.0
"""So long an answer is waited for where there was one before: the session is at nothing else, if it is kept."""


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
    [(session,)] = connection.execute(_SESSION).fetchall()
    if connection.info.backend_pid == session:
        return
    with ExitStack() as others:
        for _ in range(_OTHERS):
            theirs = _session_of_another(others, connect)
            # First what needs no session: where another one has taken the only one, this one would get no answer.
            if theirs in (session, _NOT_ALLOWED) or _asked(connection, _SESSION, _OWN_S) != session:
                raise StoreOpenError(
                    f"store {place!r} is behind a pooler that gives each transaction another session of the server: "
                    "connect to the server itself, or to a pool that keeps the session (PgBouncer: pool_mode = session)"
                )


def _session_of_another(others: ExitStack, connect: Callable[[], psycopg.Connection[Any]]) -> int | None:
    """Return the session that another connection has for a transaction, which it stays in; None where it gets none."""
    try:
        other = connect()
        others.callback(other.close)
        return _asked(other, _BEGIN, _OTHER_S)
    except errors.ProtocolViolation:
        # A pool in which nobody may begin a transaction says so; one that is full says it in another way.
        return _NOT_ALLOWED
    except psycopg.Error:
        return None


def _asked(connection: psycopg.Connection[Any], question: bytes, timeout_s: float) -> int | None:
    """Return the number that the server answers; None where no answer comes in time.

    Raises:
        psycopg.Error: it answers with an error, or the connection is lost.
    """
    pg, until = connection.pgconn, monotonic() + timeout_s
    pg.send_query(question)
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    found: int | None = None
    while True:
        while pg.is_busy():
            if not poll.poll(1000 * max(0.0, until - monotonic())):
                return None
            pg.consume_input()
        result = pg.get_result()
        if result is None:
            return found
        if result.status == pq.ExecStatus.TUPLES_OK:
            found = int(result.get_value(0, 0) or 0)
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
