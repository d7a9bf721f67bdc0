"""Somebody wants to stop: what waits for a server gives up soon then, and else waits for as long as it must.

Ctrl-C is of a process, and so is `HURRY`. That a run is cancelled is of this run alone: what is done for it, in
whatever thread, finds its hurry in the context (`hurry`). What ends meanwhile still does its work, such as recording
what a model had said so far: only what a server, or another process, leaves unanswered is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from types import TracebackType

PATIENCE_S = 2.5
"""How long something waits for an answer once somebody wants to stop, in seconds."""

ALL_S = 4.0
"""In how many seconds all waiting is to be over, one after the other. Stopping may take 5 in all."""

LEAST_S = 1.0
"""How long is waited for an answer also where the others took most of that time: a server that lives has answered."""

AGAIN_S = 0.25
"""How long the next one waits, where one has given up already."""

REMEMBERED_S = 10.0
"""How long it is known that one has given up, in seconds."""

LASTS_S = 60.0
"""How long the hurry of a run lasts, in seconds: what it has started, and what outlives it, is in none for ever."""


class Hurry:
    """Whether somebody wants to stop. Safe to use from many threads, and in a signal handler.

    A context manager: in a hurry within its block, and as before behind it.
    """

    def __init__(self) -> None:
        """Begin without a hurry."""
        self._since_s: float | None = None
        self._gave_up_s = -inf
        self._before: list[float | None] = []
        self.is_final = False
        """Whether a signal to end has come (SIGTERM, SIGHUP): nobody is there to say anything more."""

    @property
    def since_s(self) -> float | None:
        """Since when somebody wants to stop, by `time.monotonic`; None where nobody does."""
        return self._since_s

    def begin(self) -> None:
        """Let what waits, and what is going to, give up soon."""
        if self._since_s is None:
            self._since_s = monotonic()

    def end(self) -> None:
        """Let all wait as they do."""
        self._since_s = None

    def __enter__(self) -> None:
        """Begin."""
        self._before.append(self._since_s)
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, unless there was a hurry before."""
        self._since_s = self._before.pop()

    def left_s(self, asked_s: float) -> float:
        """Return how much longer to wait for an answer, in seconds: for ever without a hurry, 0 or less is over.

        Args:
            asked_s: since when it is waited for, by `time.monotonic`.
        """
        since_s = self.since_s
        if since_s is None:
            return inf
        from_s = max(since_s, asked_s)
        patience_s = AGAIN_S if self.gave_up else max(LEAST_S, min(PATIENCE_S, since_s + ALL_S - from_s))
        return from_s + patience_s - monotonic()

    def grace_s(self, most_s: float, times: int) -> float:
        """Return how long something has to end each time that it is told to, in seconds: all of it without a hurry.

        Args:
            most_s: how long it has at most.
            times: how often it is told, one after the other.
        """
        since_s = self.since_s
        if since_s is None:
            return most_s
        return max(AGAIN_S, min(most_s, (since_s + ALL_S - monotonic()) / times))

    def give_up(self) -> None:
        """Say that something has waited in vain, so that others need not as long."""
        self._gave_up_s = monotonic()

    @property
    def gave_up(self) -> bool:
        """Whether somebody wants to stop, and something has waited in vain a moment ago."""
        return self.since_s is not None and monotonic() - self._gave_up_s < REMEMBERED_S


HURRY = Hurry()
"""That of this process."""


class _OfRun(Hurry):
    """That of a run, and that of the process."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        super().__init__()
        self._is_cancelled = is_cancelled
        self._is_over = False

    @property
    def since_s(self) -> float | None:
        if self._since_s is None and not self._is_over and self._is_cancelled():
            self.begin()
        own_s, of_all_s = self._since_s, HURRY.since_s
        if own_s is None or monotonic() - own_s > LASTS_S:
            return of_all_s
        return own_s if of_all_s is None else min(own_s, of_all_s)

    def give_up(self) -> None:
        super().give_up()
        HURRY.give_up()

    def end(self) -> None:
        """Begin no more. What waits still gives up."""
        self._is_over = True


_own: ContextVar[Hurry] = ContextVar("turnlog_hurry", default=HURRY)


def hurry() -> Hurry:
    """Return the hurry that who calls this is in: that of a run where it is done for one, else that of the process."""
    return _own.get()


@contextmanager
def hurry_of_run(is_cancelled: Callable[[], bool]) -> Generator[None]:
    """Give a run a hurry of its own.

    Args:
        is_cancelled: tells whether the run was cancelled. It is called from any thread.
    """
    own = _OfRun(is_cancelled)
    token = _own.set(own)
    try:
        yield
    finally:
        own.end()
        with suppress(ValueError):  # a run that nobody awaits any more is ended in another context
            _own.reset(token)
