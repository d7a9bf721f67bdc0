"""Making checkpoints by itself, beside the appends: every so many events, or so many seconds after one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, RLock, Thread
from time import time
from typing import cast

from turnlog.errors import MetaError, StoreClosedError, TurnlogError
from turnlog.model.kinds import check_count
from turnlog.store import Store
from turnlog.store.telling import logger

LOOK_S = 0.25
"""How long a keeper waits at most before it looks whether it is to stop."""

_logger = logger("turnlog.checkpoints")


class CheckpointKeeper:
    """A thread that makes a checkpoint when there is enough to cover. It ends with the log, or with `close`.

    Attributes:
        failures: how many checkpoints could not be made, or not be written to a place. Each is handed to `on_error`,
            or logged where there is none.
    """

    def __init__(
        self,
        store: Store,
        checkpoint: Callable[[], int],
        covered: int,
        *,
        every_events: int | None,
        every_s: float | None,
        at_end: bool = True,
        on_error: Callable[[TurnlogError], None] | None = None,
    ) -> None:
        """Begin.

        Args:
            store: the log to follow.
            checkpoint: makes a checkpoint of all events there are, and returns how many.
            covered: how many events the last checkpoint covers.
            every_events: make one when so many events are not covered, at least 1.
            every_s: make one when an event has not been covered for so many seconds.
            at_end: make a last one on `close` when any event is not covered; else only if it is due.
            on_error: told of each that fails, in the keeper's thread. What it raises is logged, and keeps nothing.

        Raises:
            MetaError: neither is given, or one of them is no number, or not above 0.
        """
        if every_events is None and every_s is None:
            raise MetaError("every_events, every_s: give one of them, or both", field="every_events")
        if every_events is not None:
            check_count(every_events, "every_events", least=1)
        if every_s is not None and not (isinstance(cast("object", every_s), int | float) and every_s > 0):
            raise MetaError(f"every_s is {every_s!r}: seconds, above 0", field="every_s")
        self.failures = 0
        self._store = store
        self._checkpoint = checkpoint
        self._covered = covered
        self._every_events = every_events
        self._every_s = every_s
        self._at_end = at_end
        self._on_error = on_error
        self._due_s: float | None = None
        """When the first event that is not covered will have waited for `every_s`, once it is known which that is."""
        self._making = RLock()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="turnlog-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, with a last checkpoint if one is wanted: on return it is made. Closing twice is allowed."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # The thread may wait for the log, and then ends: nobody has to wait for that.
        with self._making:
            end = self._end(self._covered, 0)
            if end is not None and end > self._covered and (self._at_end or self._is_due(end)):
                self._make()

    def _run(self) -> None:
        while not self._stopping.is_set():
            end = self._next_end()
            if end is None:
                return
            with self._making:
                if not self._stopping.is_set() and self._is_due(end):
                    self._make()
            if self._every_s is not None and self._due_s is None and end > self._covered:
                self._stopping.wait(LOOK_S)  # the first event that is not covered cannot be read

    def _next_end(self) -> int | None:
        """Wait until a checkpoint may be due, or for a moment, and return where the log then ends; None if closed."""
        rest_s = LOOK_S
        if self._due_s is not None:
            rest_s = max(0, min(rest_s, self._due_s - time()))
        elif self._every_s is not None:
            return self._end(self._covered, rest_s)
        if self._every_events is not None:
            return self._end(self._covered + self._every_events - 1, rest_s)
        self._stopping.wait(rest_s)
        return self._end(self._covered, 0)

    def _is_due(self, end: int) -> bool:
        """Tell whether enough events are not covered, or one of them has not been for long enough."""
        if end <= self._covered:
            return False
        if self._every_events is not None and end - self._covered >= self._every_events:
            return True
        if self._every_s is None:
            return False
        if self._due_s is None:
            try:
                with self._store.read() as transaction:
                    first = transaction.at_global(self._covered + 1)
            except TurnlogError as error:
                self._failed(error)
                return False
            if first is None:
                return False
            said_s = first.header.time / 1000
            # From further in the future it is by a clock that was wrong, or what another log says: nobody knows then
            # for how long it is here.
            self._due_s = said_s + self._every_s if said_s <= time() + self._every_s else 0.0
        return time() >= self._due_s

    def _end(self, after: int, timeout_s: float) -> int | None:
        """Return where the log ends, once it goes beyond a position or the time is up; None if it is closed."""
        try:
            return self._store.wait(after, timeout_s)
        except StoreClosedError:
            return None
        except TurnlogError as error:
            self._failed(error)
            self._stopping.wait(timeout_s)
            return self._covered

    def _make(self) -> None:
        try:
            self._covered = self._checkpoint()
        except TurnlogError as error:
            self._failed(error)
            # It is tried again when as much has come again: whoever is told can mend it meanwhile.
            self._covered = self._end(self._covered, 0) or self._covered
        self._due_s = None

    def _failed(self, error: TurnlogError) -> None:
        self.failures += 1
        try:
            if self._on_error is not None:
                self._on_error(error)
                return
        except Exception:
            _logger.exception("whoever is told of a checkpoint that failed has failed")
        _logger.error("a checkpoint failed: %s", error)
