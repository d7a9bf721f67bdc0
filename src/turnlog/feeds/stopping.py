"""Requests to stop something that folds or delivers, from another thread or from a signal handler."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock

from turnlog.errors import ConflictError


class Stopping:
    """Whether what goes on is to stop: it is asked by any thread, and looked at by the one that works.

    A request holds for all that goes on when it comes. One that comes while nothing goes on holds for the next that
    follows: who starts a thread that follows, and asks it to stop before it has begun, is not forgotten. Both are over
    when that returns, so that it can be done again.

    To ask takes no lock: a signal handler may, whatever it has interrupted. One thread at a time works, and what it
    calls; another one is refused with a ConflictError.
    """

    def __init__(self) -> None:
        """Begin with no request."""
        self._last = self._heeded = self._before = object()
        self._thread = RLock()
        """Held by the thread that works. It is never waited for."""

    def ask(self) -> None:
        """Ask to stop."""
        self._last = object()

    @property
    def is_asked(self) -> bool:
        """Whether what goes on is to stop."""
        return self._last is not self._before

    @contextmanager
    def once(self) -> Generator[None]:
        """Heed requests that come meanwhile. One of before stays, for what follows."""
        with self._since(self._last):
            yield

    @contextmanager
    def following(self) -> Generator[None]:
        """Heed requests that come meanwhile, and one that came when nothing went on."""
        with self._since(self._heeded):
            yield

    @contextmanager
    def _since(self, before: object) -> Generator[None]:
        if not self._thread.acquire(blocking=False):
            raise ConflictError(
                "it is at work in another thread or task already: stop it first, or make another one, such as with "
                "`log.feeds.runner()`: each works for one at a time"
            )
        around, self._before = self._before, before
        try:
            yield
        finally:
            self._before = around  # a callback may have begun this one, while another goes on
            last = self._last
            if last is not before:
                self._heeded = last
            self._thread.release()
