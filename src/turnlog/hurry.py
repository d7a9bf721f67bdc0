"""A person wants to stop: what waits for a server gives up soon then, and else waits for as long as it must.

Ctrl-C is of a process, and so is this. What ends meanwhile still does its work, such as recording what a model had said
so far: only what a server leaves unanswered is given up.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from types import TracebackType

PATIENCE_S = 2.5
"""How long something waits for an answer once somebody wants to stop, in seconds. Stopping may take 5 in all."""

AGAIN_S = 0.25
"""How long the next one waits, where one has given up already."""

REMEMBERED_S = 10.0
"""How long it is known that one has given up, in seconds."""


class Hurry:
    """Whether somebody wants to stop. Safe to use from many threads, and in a signal handler.

    A context manager: in a hurry within its block, and as before behind it.
    """

    def __init__(self) -> None:
        """Begin without a hurry."""
        self._since_s: float | None = None
        self._gave_up_s = -inf
        self._before: list[float | None] = []

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
        since_s = self._since_s
        if since_s is None:
            return inf
        return max(since_s, asked_s) + (AGAIN_S if self.gave_up else PATIENCE_S) - monotonic()

    def give_up(self) -> None:
        """Say that something has waited in vain, so that others need not as long."""
        self._gave_up_s = monotonic()

    @property
    def gave_up(self) -> bool:
        """Whether somebody wants to stop, and something has waited in vain a moment ago."""
        return self._since_s is not None and monotonic() - self._gave_up_s < REMEMBERED_S


HURRY = Hurry()
"""That of this process."""
