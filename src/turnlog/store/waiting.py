"""Waiting for the log to grow: one thread looks for any number of readers that wait.

Appends of this process wake readers at once, by `Waker.nudge`. Those of other processes are seen by asking the store
where the log ends, again and again: that is what the thread does, and only while somebody waits and no append has told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import TIMEOUT_MAX, Event, Lock, Thread, current_thread, main_thread
from time import monotonic

from turnlog.errors import NO_THREAD, MetaError, StoreBusyError, StoreClosedError
from turnlog.model.kinds import check_count

IDLE_POLLS = 50
"""Polls that the thread stays for when nobody waits any more: who waits in a loop finds it there."""


DIRECT_MAX = 8
"""How many that wait an append tells itself. More are told by the thread, so that no number of them holds it up."""

MAIN_WAIT_S = 1.0
"""How long the main thread waits at a time: a signal that comes just before it begins to wait does not wake it, and
Python raises `KeyboardInterrupt` only when it is awake."""


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
            MetaError: `after` is no global position, or `timeout_s` is negative or not a number.
            StoreClosedError: the waker was closed, before or meanwhile.
            StoreBusyError: there can be no more threads in this process.
            StoreError: what `log_end` raised.
        """
        check_wait(after, timeout_s)
        if timeout_s == 0:
            self._check_open()
            return self._log_end()
        until = None if timeout_s is None else monotonic() + timeout_s
        latch = Latch()
        watch = self.watch(after, latch.open)
        try:
            if latch.wait(until):
                return watch.result()
        finally:
            self.unwatch(watch)
        return self._log_end()

    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        """Have a function called once: when the log goes beyond a global position, or that cannot be known any more.

        It is called by an append, by the waker's thread, or before this returns; it must not block and not raise.

        Args:
            after: a global position.
            tell: what is called.
            backwards: call it too when the log ends below `after`.

        Raises:
            StoreClosedError: the waker was closed.
            StoreBusyError: there can be no more threads in this process.
            StoreError: what `log_end` raised.
        """
        here = self._process()
        watch = Watch(after, tell, backwards=backwards)
        with here.lock:
            self._check_open()
            here.watches[watch] = None
        try:
            # It can be told from now on, so that an append which this does not see does.
            end = self._log_end()
            if watch.waits_for(end):
                here.tell(watch, end)
            else:
                self._serve(here)
        except BaseException:
            self.unwatch(watch)
            raise
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch. Nothing happens if it was told, or is forgotten already."""
        self._here.watches.pop(watch, None)

    def nudge(self, end: int | None = None) -> None:
        """Tell those who wait for less than what was just recorded. Takes no lock where nobody waits.

        Args:
            end: the global position that was recorded last; None makes the thread ask for it.
        """
        here = self._here
        if not here.watches or here.pid != os.getpid():
            return
        if end is None:
            here.told = False
            here.look.set()
        elif len(here.watches) > DIRECT_MAX:
            here.end = end
            here.look.set()
        else:
            here.told = True
            here.tell_all(end)

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
                raise StoreBusyError(NO_THREAD) from error

    def _look(self, here: _Here) -> None:
        idle_polls = told_to = 0
        while True:
            here.look.wait(self._poll_s)
            here.look.clear()
            if here.watches:
                idle_polls = 0
                end = here.end
                if here.told and end <= told_to and not self._closed:
                    # An append has just said where the log ends, with what others had recorded until then.
                    here.told = False
                    continue
                try:
                    end = told_to = end if end > told_to else self._log_end()
                except BaseException as error:  # noqa: BLE001 - raised by all who wait
                    here.fail(error)
                else:
                    here.tell_all(end)
                continue
            idle_polls += 1
            if self._closed or idle_polls > IDLE_POLLS:
                with here.lock:
                    # Who waits says so first, and then looks whether there is a thread.
                    if not here.watches:
                        here.thread = None
                        return


def check_wait(after: int, timeout_s: float | None) -> None:
    """Check what to wait for, and how long.

    Raises:
        MetaError: the one is no global position, or the other is negative or not a number.
    """
    check_count(after, "after")
    if timeout_s is None:
        return
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not timeout_s >= 0:
        raise MetaError(f"timeout_s is {timeout_s!r}: give seconds, from 0, or None", field="timeout_s")


class Watch:
    """Somebody who is told once that the log has gone beyond a position."""

    __slots__ = ("_backwards", "_error", "_tell", "after", "end")

    def __init__(self, after: int, tell: Callable[[], None], *, backwards: bool) -> None:
        self.after = after
        self.end = 0
        self._tell = tell
        self._backwards = backwards
        self._error: BaseException | None = None

    def waits_for(self, end: int) -> bool:
        """Whether it is to be told that the log ends at a global position."""
        return end > self.after or (self._backwards and end < self.after)

    def result(self) -> int:
        """Return where the log ended when this was told, or raise why that is not known."""
        if self._error is not None:
            raise _copied(self._error)
        return self.end

    def tell(self, end: int, error: BaseException | None = None) -> None:
        """Tell it. Twice is allowed."""
        self.end = end
        if error is not None:
            self._error = error
        self._tell()


def _copied(error: BaseException) -> BaseException:
    """Return an error like another one. Many raise it, in threads of their own: each has a traceback of its own."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__, copied.__traceback__ = error.__cause__, error.__traceback__
    return copied


class Latch:
    """What one thread waits at until another opens it. It then closes by itself."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let the one who waits, or the next who does, go on. Opening twice is allowed."""
        with suppress(RuntimeError):
            self._lock.release()

    def wait(self, until: float | None) -> bool:
        """Wait until it is opened or a time has come, and tell whether it was opened."""
        end_s = inf if until is None else until
        at_once_s = MAIN_WAIT_S if current_thread() is main_thread() else TIMEOUT_MAX
        while (rest_s := end_s - monotonic()) > at_once_s:
            if self._lock.acquire(timeout=at_once_s):
                return True
        return self._lock.acquire(timeout=max(0, rest_s))


def take(lock: Lock, wait_s: float, taken: list[bool]) -> bool:
    """Acquire a lock, note that in a list, and tell whether it was acquired. Whoever finds it there releases it.

        taken: list[bool] = []
        try:
            if take(lock, 5.0, taken): ...
        finally:
            if taken and taken[0]:
                lock.release()

    A signal that comes while a lock is acquired is raised behind the call: its answer is lost, a `try` that
    follows is not in force yet, and the lock would stay locked for ever. Here the list has the answer before that.

    Args:
        lock: what is acquired.
        wait_s: how long to wait at most, in seconds; 0 does not wait.
        taken: an empty list.
    """
    taken.extend(map(lock.acquire, (True,), (max(0, wait_s),)))
    return taken[0]


class _Here:
    """What a waker has in one process: those who wait, and the thread that looks for them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.watches: dict[Watch, None] = {}
        self.look = Event()
        self.told = False
        """Whether an append has told where the log ends since the thread looked last."""
        self.end = 0
        """Where the log ended when an append last left it to the thread to tell; 0 where none has."""
        self.thread: Thread | None = None

    def tell_all(self, end: int) -> None:
        """Tell all who wait for that."""
        with self.lock:
            for watch in list(self.watches):
                if watch.waits_for(end):
                    self.tell(watch, end)

    def fail(self, error: BaseException) -> None:
        """Tell all of an error."""
        with self.lock:
            for watch in list(self.watches):
                self.tell(watch, 0, error)

    def tell(self, watch: Watch, end: int, error: BaseException | None = None) -> None:
        # In this order: what an interrupt leaves here is told again.
        watch.tell(end, error)
        self.watches.pop(watch, None)
