"""Locks by name in PostgreSQL: advisory locks of a connection that holds nothing else. When it is gone, so are they.

The server, a pooler or a firewall may end a connection whose process lives on: a thread watches it, and takes what it
had again on another one. A server that has just begun gives nothing new for a moment, so that who had locks before it
ended comes first. A standby that takes over has begun long before: there whoever comes first has the lock.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock, Thread
from typing import Any

import psycopg

from turnlog.errors import StoreError
from turnlog.store.locks import Locks, Once, Release
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.errors import converted, is_lost
from turnlog.store.postgres.wire import Statement, Wire, rows_of
from turnlog.store.telling import logger

_log = logger("turnlog.store")

_CONNECT_S = 10.0

_TRIES = 2
"""A connection is known to be lost when it is used."""

_LOOK_S = 1.0
"""How often the thread looks whether there is still something to watch."""

_AGAIN_S = 0.1
"""How soon it connects again to a server that cannot be reached, and asks one again that has just begun."""

BEGUN_S = 5.0
"""So long after it has begun, which it may need to recover, a server gives a lock only to who had it before."""

_TAKE = "SELECT pg_try_advisory_lock(?::bigint)"

_TAKE_NEW = f"""\
SELECT CASE
  WHEN clock_timestamp() - pg_postmaster_start_time() BETWEEN interval '0' AND interval '{BEGUN_S} seconds' THEN NULL
  ELSE pg_try_advisory_lock(?::bigint) END"""

_GIVE_BACK = "SELECT pg_advisory_unlock(?::bigint)"

_KEY = "(classid::bigint << 32 | objid::bigint)"
"""PostgreSQL's documentation, `pg_locks`: classid has the upper half of a key of 64 bits, and objid the lower one."""

_HELD = """\
FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

_IS_TAKEN = f"SELECT EXISTS (SELECT {_HELD} AND {_KEY} = ?::bigint)"

_TAKEN = f"SELECT coalesce(string_agg({_KEY}::text, ' '), '') {_HELD} AND {_KEY} <> ?::bigint"


def lock_number(name: str) -> int:
    """Return the key of the advisory lock of a name, of 64 bits."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


class PostgresLocks(Locks):
    """The locks of a log in PostgreSQL."""

    def __init__(self, address: Address) -> None:
        """Take where the log is. It connects when the first lock is taken."""
        self._address = address
        self._lock = Lock()
        self._wire: Wire | None = None
        self._taken: set[int] = set()
        """A connection gets a lock that it has once more."""
        self._watcher: Thread | None = None

    def take(self, name: str) -> Release | None:
        """Take a lock: see `Locks.take`. It waits for a server that has just begun."""
        number = self._number(name)
        while (is_taken := self._take(number)) is None:
            time.sleep(_AGAIN_S)
        return Once(lambda: self._release(number)) if is_taken else None

    def _take(self, number: int) -> bool | None:
        """Take a lock and tell whether that went; None where the server has just begun."""
        with self._lock, converted(self._address.place):
            if number in self._taken:
                return False
            is_taken = self._ask(_TAKE_NEW, number)
            if is_taken:
                self._taken.add(number)
                if self._watcher is None:
                    self._watcher = Thread(target=self._watch, name="turnlog-locks", daemon=True)
                    self._watcher.start()
        return is_taken

    def is_taken(self, name: str) -> bool:
        """Tell whether somebody has a lock."""
        number = self._number(name)
        with self._lock, converted(self._address.place):
            return number in self._taken or self._ask(_IS_TAKEN, number) is True

    def taken(self, names: Iterable[str]) -> list[str]:
        """Return which locks somebody has."""
        with self._lock, converted(self._address.place):
            numbers = self._taken.union(map(int, self._ask(_TAKEN, 0).split()))
        return [name for name in names if self._number(name) in numbers] if numbers else []

    def close(self) -> None:
        """Give all of them back."""
        with self._lock:
            self._taken.clear()
            self._drop()

    def _release(self, number: int) -> None:
        with self._lock, converted(self._address.place):
            if number not in self._taken:
                return
            self._taken.discard(number)
            if self._wire is None or self._wire.is_broken:
                return
            try:
                self._answer(_GIVE_BACK, number)
            except psycopg.Error as error:
                # With the connection it is given back. What else was on it is taken again by the thread.
                self._drop()
                if not is_lost(error):
                    raise

    def _ask(self, statement: str, number: int) -> Any:
        for left in reversed(range(_TRIES)):
            try:
                if self._wire is None or self._wire.is_broken:
                    self._connect()
                return self._answer(statement, number)
            except psycopg.Error as error:
                if not left or not is_lost(error):
                    raise
                self._drop()
        raise AssertionError("the last try returns or raises")

    def _connect(self) -> None:
        """Connect, and take again what was taken on a connection that is lost."""
        self._wire = Wire(self._address.connect(lock_timeout_s=_CONNECT_S, connect_timeout_s=_CONNECT_S))
        lost = [number for number in self._taken if not self._answer(_TAKE, number)]
        if self._taken:
            told = "the connection with locks of %s was lost: %d of %d are taken again, and others have the rest"
            _log.warning(told, self._address.place, len(self._taken) - len(lost), len(self._taken))
        self._taken.difference_update(lost)

    def _answer(self, statement: str, number: int) -> Any:
        assert self._wire is not None
        [[(answer,)]] = rows_of(self._wire.exchange([Statement(statement, (number,))])[0])
        return answer

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _watch(self) -> None:
        """Take what is taken again as soon as its connection is lost, for as long as anything is."""
        is_reached = True
        while True:
            if not is_reached:
                time.sleep(_AGAIN_S)
            with self._lock:
                if not self._taken:
                    self._watcher = None
                    return
                if not is_reached or self._wire is None or _has_come(self._wire, 0):
                    is_reached = self._look()
                wire = self._wire
            if is_reached and wire is not None:
                _has_come(wire, _LOOK_S)

    def _look(self) -> bool:
        """Use the connection, which takes again what was on one that is lost, and tell whether the server answers."""
        try:
            return bool(self._ask("SELECT ? = 0", 0))
        except (psycopg.Error, StoreError):
            self._drop()
            return False

    def _number(self, name: str) -> int:
        """Return the key of a lock: of this log, where a database has several."""
        return lock_number(f"turnlog lock {self._address.schema} {name}")


def _has_come(wire: Wire, timeout_s: float) -> bool:
    """Wait until something comes over a connection that nobody uses, which is its end, and tell whether it has."""
    try:
        poll = select.poll()
        poll.register(wire.connection.fileno(), select.POLLIN)
    except psycopg.Error:  # it is closed
        return True
    return bool(poll.poll(1000 * timeout_s))
