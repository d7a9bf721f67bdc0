"""Trying again while a server is away, for as long as anybody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

import psycopg

from turnlog.hurry import hurry
from turnlog.store.postgres.errors import is_gone
from turnlog.store.postgres.wire import LOOK_S, NO_ANSWER

AGAIN_S = 0.1
"""How often a server that is away is tried again, in seconds."""


class Tries:
    """How often something is tried that a server may do once it is back: until a time is over.

    Who is in a hurry waits no longer than for a server that does not answer.
    """

    def __init__(
        self, timeout_s: float, *, ended: Event | None = None, on_wait: Callable[[float], None] | None = None
    ) -> None:
        """Begin with the first try.

        Args:
            timeout_s: for how long it is tried, in seconds.
            ended: who waits no more sets it.
            on_wait: called now and then, with the seconds since the first failure.
        """
        self._until_s = monotonic() + timeout_s
        self._ended = ended or Event()
        self._on_wait = on_wait
        self._failed_s: float | None = None

    def last(self, timeout_s: float) -> None:
        """Try for so many seconds from now on, at least."""
        self._until_s = max(self._until_s, monotonic() + timeout_s)

    def pause(self, error: psycopg.Error, wait_s: float = AGAIN_S) -> None:
        """Wait a moment for the next try.

        Args:
            error: what has become of this one.
            wait_s: how long to wait, in seconds.

        Raises:
            psycopg.Error: there is no other one, also as what is tried cannot be any more. It is `error`, or says that
                somebody wants to stop.
        """
        if self._failed_s is None:
            self._failed_s = monotonic()
        if hurry().gave_up or is_gone(error):
            raise error
        if hurry().left_s(self._failed_s) <= 0:
            hurry().give_up()
            raise psycopg.OperationalError(NO_ANSWER) from error
        if monotonic() > self._until_s or self._ended.wait(wait_s):
            raise error
        waited_s = monotonic() - self._failed_s
        if self._on_wait is not None and waited_s > LOOK_S:
            self._on_wait(waited_s)
