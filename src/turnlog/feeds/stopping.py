"""Requests to stop something that folds or delivers, from another thread or from a signal handler."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Stopping:
    """Whether what goes on is to stop: it is asked by any thread, and looked at by the one that works.

    A request holds for all that goes on when it comes. One that comes while nothing goes on holds for the next that
    follows: who starts a thread that follows, and asks it to stop before it has begun, is not forgotten. Both are over
    when that returns, so that it can be done again.

    To ask takes no lock: a signal handler may, whatever it has interrupted.
    """

    def __init__(self) -> None:
        """Begin with no request."""
        self._last = self._heeded = self._before = object()

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
        around, self._before = self._before, before
        try:
            yield
        finally:
            self._before = around  # a callback may have begun this one, while another goes on
            last = self._last
            if last is not before:
                self._heeded = last
