"""Group commit: appends that arrive together share one transaction and one sync to disk.

There is no writer thread. The first caller that finds nobody leading leads: it takes all waiting requests, runs them in
one transaction and wakes one that arrived meanwhile, to lead next. One caller alone thus pays for no thread switch.

A leader whose predecessor had company waits a moment for as much of it: callers that have just been served come back
soon, and while they prepare their next request they and the leader would only take the interpreter from each other.

Who led wakes one of those that it served, and each of them, once it has the interpreter, the next one. Woken all at
once they would queue for the interpreter and take it from each other.

An interrupt (Ctrl-C) may hit any line. So leading is holding a lock in a `with` statement, and waking is but a hint:
a request that nobody wakes looks for itself after a while. So may a signal handler or a finalizer that appends: where
its own thread leads it would wait for itself, and is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock, get_ident
from time import monotonic
from typing import Any, Generic, TypeVar

from turnlog.errors import StoreBusyError, UncertainError
from turnlog.hurry import hurry

T = TypeVar("T")

BATCH_MAX = 256
"""Requests that share a transaction at most, so that one of them never waits for long."""

GATHER_S = 80e-6
"""How long a leader waits for company at most, in seconds for each caller that was seen."""

LOOK_S = 0.1
"""How long a request that was not woken waits before it looks for itself, in seconds."""


_UNCERTAIN = "it may or may not be recorded, ask for its id, or record it again under the same id"
_STUCK = f"the append waited behind others that do not come to an end: {_UNCERTAIN}"
_WITHIN = (
    "this thread is in the middle of an append to the store, which a signal handler or a finalizer has interrupted: "
    "append when that has returned, or in another thread that nobody waits for"
)
_INTERRUPTED = f"the append was interrupted: {_UNCERTAIN}"


class _Batch:
    """The fate that requests share: finished in one step, so that no interrupt finds some finished and some not."""

    __slots__ = ("_asleep", "finished")

    def __init__(self, asleep: Iterable[Request[Any]]) -> None:
        self.finished = False
        self._asleep = deque(asleep)

    def wake_one(self) -> None:
        """Wake one of those that wait for it and were not woken yet."""
        with suppress(IndexError):  # all were
            self._asleep.popleft().wake()


class Request(Generic[T]):
    """One caller's work, and later its outcome."""

    __slots__ = ("_latch", "batch", "error", "result", "work")

    def __init__(self, work: Callable[[T], object]) -> None:
        """Take what is to run in the transaction."""
        self.work = work
        self.result: object = None
        self.error: BaseException | None = None
        self.batch: _Batch | None = None
        self._latch = Lock()
        self._latch.acquire()

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self.batch is not None and self.batch.finished

    def pass_on(self) -> None:
        """Wake another one that this batch served, if it is done: each that goes wakes one, so that all are woken."""
        if self.batch is not None and self.batch.finished:
            self.batch.wake_one()

    def wake(self) -> None:
        """Let the caller look: there is an outcome, or it is to lead. Waking twice is allowed."""
        with suppress(RuntimeError):  # it is awake
            self._latch.release()

    def wait(self) -> None:
        """Wait to be woken, but not for ever."""
        self._latch.acquire(timeout=LOOK_S)


class GroupCommit(Generic[T]):
    """Runs requests in shared batches, one batch at a time. Safe to use from many threads."""

    def __init__(self, commit: Callable[[Sequence[Request[T]]], None]) -> None:
        """Take the function that runs a batch; it sets `result` or `error` on each request and does not raise."""
        self._commit = commit
        self._leading = Lock()
        self._leader = 0
        """The thread that leads, while the lock is held. No call stands between the two: nothing comes between."""
        self._waiting: deque[Request[T]] = deque()
        self._company = 1
        """Callers that were seen at the same time: served by the batch before, or waiting when it was done."""
        self._gathering: Lock | None = None
        """Released when as many requests wait."""

    @property
    def is_leading(self) -> bool:
        """Whether somebody runs a batch."""
        return self._leading.locked()

    def run(self, work: Callable[[T], object]) -> object:
        """Run one request and return its result once its batch is durable, or raise its error.

        Raises:
            StoreBusyError: this thread is running one, and something has come between.
        """
        request, thread = Request(work), get_ident()
        if self._leader == thread and self._leading.locked():
            raise StoreBusyError(_WITHIN)
        try:
            if self._company == 1 and not self._waiting and not self._leading.locked():
                # Alone, as most callers are.
                with self._leading:
                    self._leader = thread
                    self._run((request,))
                    self._leader = 0
                self._wake_next()
            else:
                self._join(request)
        except BaseException:
            if self._leader == thread:
                self._leader = 0
            with suppress(ValueError):  # it runs already
                self._waiting.remove(request)
            self._wake_next()
            request.pass_on()
            raise
        if request.error is not None:
            raise request.error
        return request.result

    def _join(self, request: Request[T]) -> None:
        self._waiting.append(request)
        if self._gathering is not None and len(self._waiting) >= self._company:
            self._gathered()
        since_s = monotonic()
        while not request.done:
            if hurry().left_s(since_s) <= 0:  # who leads is in none, or waits for longer
                raise UncertainError(_STUCK)
            # Whoever leads looks at what waits after it has let go of the lock: this request is seen, or leads.
            if self._leading.locked():
                request.wait()
            else:
                self._lead(request)
        request.pass_on()

    def _lead(self, own: Request[T]) -> None:
        thread = get_ident()
        with self._leading:
            self._leader = thread
            if not own.done:
                self._serve(own)
            self._leader = 0
        # Also where another leader served this request meanwhile: the wake that came here may have been the only one.
        self._wake_next()

    def _serve(self, own: Request[T]) -> None:
        if len(self._waiting) < self._company:
            self._gather()
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
        if own not in batch and own not in self._waiting:  # a leader that was interrupted took it
            batch.append(own)
        self._run(batch, [request for request in batch if request is not own])

    def _run(self, requests: Sequence[Request[T]], asleep: Iterable[Request[T]] = ()) -> None:
        batch = _Batch(asleep)
        for request in requests:
            request.batch = batch
        try:
            self._commit(requests)
        except BaseException as error:
            for request in requests:
                request.error = UncertainError(_INTERRUPTED)
                request.error.__cause__ = error
            raise
        finally:
            batch.finished = True
            self._company = len(requests) + len(self._waiting)

    def _wake_next(self) -> None:
        if self._waiting:
            with suppress(IndexError):  # it was served meanwhile
                self._waiting[0].wake()

    def _gather(self) -> None:
        """Wait until as many requests wait as there were callers, or for a moment."""
        self._gathering = latch = Lock()
        latch.acquire()
        if len(self._waiting) < self._company:
            latch.acquire(timeout=GATHER_S * self._company)
        self._gathering = None

    def _gathered(self) -> None:
        gathering = self._gathering
        if gathering is not None:
            with suppress(RuntimeError):  # another request has said so
                gathering.release()
