"""Locks by name in PostgreSQL: advisory locks of a connection that holds nothing else. When it is gone, so are they."""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import Any

import psycopg

from turnlog.store.locks import Locks, Once, Release
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.errors import converted

_CONNECT_S = 10.0

_IS_TAKEN = """\
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid::bigint = %(number)s::bigint >> 32 & 4294967295 AND objid::bigint = %(number)s::bigint & 4294967295)"""
"""PostgreSQL's documentation, `pg_locks`: classid has the upper half of a key of 64 bits, and objid the lower one."""


def lock_number(name: str) -> int:
    """Return the key of the advisory lock of a name, of 64 bits."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


class PostgresLocks(Locks):
    """The locks of a log in PostgreSQL."""

    def __init__(self, address: Address) -> None:
        """Take where the log is. It connects when the first lock is taken."""
        self._address = address
        self._lock = Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._taken: set[int] = set()
        """A connection gets a lock that it has once more."""

    def take(self, name: str) -> Release | None:
        """Take a lock: see `Locks.take`."""
        number = self._number(name)
        with self._lock, converted(self._address.place):
            if number in self._taken or not self._ask("SELECT pg_try_advisory_lock(%(number)s)", number):
                return None
            self._taken.add(number)
        return Once(lambda: self._release(number))

    def is_taken(self, name: str) -> bool:
        """Tell whether somebody has a lock."""
        number = self._number(name)
        with self._lock, converted(self._address.place):
            return number in self._taken or self._ask(_IS_TAKEN, number)

    def close(self) -> None:
        """Give all of them back."""
        with self._lock:
            self._taken.clear()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _release(self, number: int) -> None:
        with self._lock, converted(self._address.place):
            if number in self._taken:
                self._taken.discard(number)
                self._ask("SELECT pg_advisory_unlock(%(number)s)", number)

    def _ask(self, statement: str, number: int) -> bool:
        if self._connection is None or self._connection.closed:
            # What was taken on one that is lost is not taken any more.
            self._connection = self._address.connect(lock_timeout_s=_CONNECT_S, connect_timeout_s=_CONNECT_S)
        [(is_so,)] = self._connection.execute(statement.encode(), {"number": number}).fetchall()
        return is_so

    def _number(self, name: str) -> int:
        """Return the key of a lock: of this log, where a database has several."""
        return lock_number(f"turnlog lock {self._address.schema} {name}")
