"""Work on a log that goes on for long, such as a run: it is ended when the log is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from turnlog.errors import StoreClosedError

ENDS_S = 10.0
"""How long work has to end that was told to, in seconds: a tool, and the program of an MCP server, have some of it."""

_inside: ContextVar[tuple[_Work, ...]] = ContextVar("turnlog_long_work", default=())
"""The work that this is a part of, such as a tool of a run."""


class _Work:
    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.is_over = threading.Event()
        self.thread = threading.get_ident()


class LongWork:
    """All such work on one log. Safe to use from many threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.RLock()  # a signal handler may close the log, whatever it has interrupted
        self._works: set[_Work] = set()
        self._closed = False

    @contextmanager
    def known(self, end: Callable[[], None]) -> Generator[None]:
        """Let the work that is done in here be ended when the log is closed.

        Args:
            end: called then, from any thread: it says that the work is to end, and waits for nothing.

        Raises:
            StoreClosedError: the log is closed.
        """
        work = _Work(end)
        with self._lock:
            if self._closed:
                raise StoreClosedError("the log is closed")
            self._works.add(work)
        token = _inside.set((*_inside.get(), work))
        try:
            yield
        finally:
            with suppress(ValueError):  # a run that nobody awaits any more is ended in another context
                _inside.reset(token)
            with self._lock:
                self._works.discard(work)
            work.is_over.set()

    def close(self) -> None:
        """Begin nothing more, tell all work to end, and wait until it has: for `ENDS_S` at most.

        What calls this from within itself is not waited for, nor what cannot end before this returns, as it is in the
        same thread.
        """
        with self._lock:
            self._closed = True
            works = list(self._works)
            for work in works:  # while it is known: what is over is told nothing
                work.end()
        ends_s = time.monotonic() + ENDS_S
        for work in works:
            if work not in _inside.get() and work.thread != threading.get_ident():
                work.is_over.wait(max(0.0, ends_s - time.monotonic()))
