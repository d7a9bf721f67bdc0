"""Waiting for the log to grow: one thread looks for any number of readers that wait.

Appends of this process wake readers at once, by `Waker.nudge`. Those of other processes are seen by asking the store
where the log ends, again and again: that is what the thread does, and only while somebody waits and no append has told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import TIMEOUT_MAX, Event, Lock, Thread
from time import monotonic
from types import TracebackType

from turnlog.errors import MetaError, StoreBusyError, StoreClosedError

IDLE_POLLS = 50
"""Polls that the thread stays for when nobody waits any more: who waits in a loop finds it there."""


class Waker:
    """Wakes readers that wait for the log to grow. Safe to use from many threads, and in a forked process."""

    def __init__(self, log_end: Callable[[], int], *, poll_s: float = 0.02) -> None:
        """Take what tells the global position of the last event, and how often to ask it while somebody waits.

        `log_end` is called by readers and by a thread of the waker, at the same time.
        """
        self._log_end = log_end
        self._poll_s = poll_s
        self._closed = False
        self._here = _Here()
        self._processes = {self._here.pid: self._here}

    def wait(self, after: int, timeout_s: float | None) -> int:
        """Wait until the log goes beyond a global position, and return where it then ends.

        When the time is up, the end of the log as it is then is returned, which is not beyond. Appends of this process
        are seen at once, those of other processes after `poll_s`, or twice that just after one of this process.

        Args:
            after: a global position.
            timeout_s: how long to wait at most, in seconds; 0 asks once, None waits without end.

        Raises:
            MetaError: `timeout_s` is negative or not a number.
            StoreClosedError: the waker was closed, before or meanwhile.
            StoreBusyError: there can be no more threads in this process.
            StoreError: what `log_end` raised.
        """
        if timeout_s is not None and not timeout_s >= 0:
            raise MetaError(f"timeout_s is {timeout_s!r}: give seconds, from 0, or None", field="timeout_s")
        until = None if timeout_s is None else monotonic() + timeout_s
        here = self._process()
        waiter = _Waiter(after)
        try:
            with here.lock:
                self._check_open()
                here.waiters[waiter] = None
            # It can be woken from now on, so that an append which this does not see does.
            end = self._log_end()
            if end > after or timeout_s == 0:
                return end
            self._serve(here)
            if waiter.wait(until):
                return waiter.end
        finally:
            here.waiters.pop(waiter, None)
        return self._log_end()

    def nudge(self, end: int | None = None) -> None:
        """Wake those who wait for less than what was just recorded. Takes no lock where nobody waits.

        Args:
            end: the global position that was recorded last; None makes the thread ask for it.
        """
        here = self._here
        if not here.waiters or here.pid != os.getpid():
            return
        if end is None:
            here.told = False
            here.look.set()
        else:
            here.told = True
            here.wake(end)

    def close(self) -> None:
        """Wake everybody with a StoreClosedError. Nobody can wait any more; closing twice is allowed."""
        here = self._process()
        with here.lock:
            self._closed = True
        here.fail(StoreClosedError("the store was closed while it was waited for"))
        here.look.set()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")

    def _process(self) -> _Here:
        """Return what there is of this process. A forked one has none of its parent's threads, and maybe its locks."""
        pid = os.getpid()
        if self._here.pid != pid:
            self._here = self._processes.setdefault(pid, _Here())
        return self._here

    def _serve(self, here: _Here) -> None:
        """See to it that there is a thread."""
        with here.lock:
            if here.thread is not None and here.thread.is_alive():
                return
            here.thread = Thread(target=self._look, args=(here,), name="turnlog-waker", daemon=True)
            try:
                here.thread.start()
            except RuntimeError as error:
                raise StoreBusyError("no thread can be started to wait with: end some and try again") from error

    def _look(self, here: _Here) -> None:
        idle_polls = 0
        while True:
            here.look.wait(self._poll_s)
            here.look.clear()
            if here.waiters:
                idle_polls = 0
                if here.told and not self._closed:
                    # An append has just said where the log ends, with what others had recorded until then.
                    here.told = False
                    continue
                try:
                    end = self._log_end()
                except BaseException as error:  # noqa: BLE001 - raised by all who wait
                    here.fail(error)
                else:
                    here.wake(end)
                continue
            idle_polls += 1
            if self._closed or idle_polls > IDLE_POLLS:
                with here.lock:
                    # Who waits says so first, and then looks whether there is a thread.
                    if not here.waiters:
                        here.thread = None
                        return


class _Waiter:
    """A reader that waits."""

    __slots__ = ("_latch", "after", "end", "error", "trace")

    def __init__(self, after: int) -> None:
        self.after = after
        self.end = 0
        self.error: BaseException | None = None
        self.trace: TracebackType | None = None
        self._latch = Lock()
        self._latch.acquire()

    def wake(self) -> None:
        """Let the reader go on. Waking twice is allowed."""
        with suppress(RuntimeError):
            self._latch.release()

    def wait(self, until: float | None) -> bool:
        """Wait until a time, and tell whether it was woken; raise the error that it was woken with."""
        rest_s = -1 if until is None or until == float("inf") else min(max(0, until - monotonic()), TIMEOUT_MAX)
        if not self._latch.acquire(timeout=rest_s):
            return False
        if self.error is not None:
            # Many raise the same error. Its traceback would grow with each of them.
            raise self.error.with_traceback(self.trace)
        return True


class _Here:
    """What a waker has in one process: those who wait, and the thread that looks for them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.waiters: dict[_Waiter, None] = {}
        self.look = Event()
        self.told = False
        """Whether an append has told where the log ends since the thread looked last."""
        self.thread: Thread | None = None

    def wake(self, end: int) -> None:
        """Wake all who wait for less."""
        with self.lock:
            for waiter in list(self.waiters):
                if waiter.after < end:
                    waiter.end = end
                    self._wake(waiter)

    def fail(self, error: BaseException) -> None:
        """Wake all with an error."""
        with self.lock:
            for waiter in list(self.waiters):
                waiter.error, waiter.trace = error, error.__traceback__
                self._wake(waiter)

    def _wake(self, waiter: _Waiter) -> None:
        # In this order: what an interrupt leaves here is woken, and takes itself out.
        waiter.wake()
        self.waiters.pop(waiter, None)
