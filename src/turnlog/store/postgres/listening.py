"""Hearing of appends elsewhere: a connection that listens, for as long as somebody waits for the log to grow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

import psycopg
from psycopg import sql

from turnlog.store.postgres.connections import Address

AGAIN_S = 1.0
"""How long to wait before a connection that was lost is opened again, in seconds. Meanwhile the log is asked."""


class Listener:
    """Calls a function when somebody has appended. It has one thread, which begins with the first `start`."""

    def __init__(self, address: Address, tell: Callable[[], None]) -> None:
        """Take where the log is, and what to call."""
        self._address = address
        self._tell = tell
        self._lock = Lock()
        self._thread: Thread | None = None
        self._ended = Event()
        self._ready = Event()

    def start(self) -> None:
        """Begin, if it has not begun. Returns once it listens, or has found that it cannot now."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = Thread(target=self._run, name="turnlog-listener", daemon=True)
                self._thread.start()
        self._ready.wait(AGAIN_S)

    def close(self) -> None:
        """End it, soon."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(psycopg.Error):
                self._listen()
            self._ready.set()
            self._ended.wait(AGAIN_S)

    def _listen(self) -> None:
        connection = self._address.connect(lock_timeout_s=10, connect_timeout_s=10)
        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_followed(connection))))
            self._ready.set()
            self._tell()
            while not self._ended.is_set():
                for _ in connection.notifies(timeout=AGAIN_S, stop_after=1):
                    self._tell()
        finally:
            connection.close()


def _followed(connection: psycopg.Connection[Any]) -> str:
    """Tell writers that somebody follows, and return the channel to listen to."""
    [(channel,)] = connection.execute("SELECT log_follow()").fetchall()
    return channel
