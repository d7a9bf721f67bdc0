"""Threads for asynchronous use, so that calls which take long never hold up appends.

Appends, reads and waits have threads of their own each. `asyncio.to_thread` shares a few among the whole program: when
as many followers wait for the log to grow, the append that would wake them waits behind them. Nothing here uses it:
each log has its executors, and what belongs to no log uses `of_process()`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from itertools import count
from threading import Lock, Thread, current_thread
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakSet

from turnlog.errors import NO_THREAD, StoreBusyError, StoreClosedError
from turnlog.long_work import LongWork

P = ParamSpec("P")
T = TypeVar("T")


def is_in_a_loop() -> bool:
    """Tell whether an event loop runs in this thread, which should not be held up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Executors:
    """Runs blocking functions for coroutines, in threads that are started when there is work and end when there is not.

    Functions see the context variables of their caller. When the task that awaits one is cancelled, a function that has
    begun goes on to its end, and nobody gets its result. A read or a wait that has not begun never runs; an append does
    all the same, since it was accepted.

    Threads do not keep the process alive. When it ends, only appends that were accepted are waited for.

    Attributes:
        long_work: what uses them for long, such as a run.
    """

    def __init__(
        self,
        *,
        appends_max: int = 64,
        reads_max: int = 16,
        waits_max: int = 1024,
        idle_s: float = 10.0,
        name: str = "turnlog",
    ) -> None:
        """Say how many functions of each kind run at the same time at most; more are queued, in order.

        Args:
            appends_max: functions that record something. Those that run at the same time can share a commit.
            reads_max: functions that read.
            waits_max: functions that may take for ever.
            idle_s: how long a thread stays that has nothing to do, in seconds.
            name: what the names of the threads begin with.
        """
        self._pid = os.getpid()
        self.long_work = LongWork()
        self._appends = _Threads(f"{name}-append", appends_max, idle_s)
        self._reads = _Threads(f"{name}-read", reads_max, idle_s)
        self._waits = _Threads(f"{name}-wait", waits_max, idle_s)
        _finished_at_exit.add(self._appends)

    async def run_append(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that records something, and return its result. It runs even if this task is cancelled.

        Raises:
            StoreClosedError: the log is closed, or was opened before this process was forked.
            StoreBusyError: there can be no more threads in this process.
        """
        return await self._run(self._appends, partial(function, *args, **kwargs), drop=False)

    async def run_read(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads, and return its result. Raises what `run_append` does."""
        return await self._run(self._reads, partial(function, *args, **kwargs), drop=True)

    async def run_wait(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that may take for ever, and return its result. Raises what `run_append` does."""
        return await self._run(self._waits, partial(function, *args, **kwargs), drop=True)

    def close(self, *, wait: bool = True) -> None:
        """End what goes on for long; then accept nothing more, and run appends that were accepted to the end.

        Reads and waits that have not begun are dropped: who awaits them gets a StoreClosedError. Those that have begun
        go on. May be called from any thread, and twice.

        Args:
            wait: return only when all appends and reads have ended, but for the one that calls this. Waits are not
                waited for: wake them first.
        """
        if self._pid != os.getpid():
            return
        self.long_work.close()
        self._waits.close(drop=True)
        self._reads.close(drop=True)
        self._appends.close(drop=False)
        if wait:
            self._reads.join()
            self._appends.join()

    async def _run(self, threads: _Threads, work: Callable[[], T], *, drop: bool) -> T:
        if self._pid != os.getpid():
            raise StoreClosedError("the log was opened before this process was forked: open it again")
        loop = asyncio.get_running_loop()
        # Not `asyncio.wrap_future`: when a task is cancelled it would drop an append that waits for a thread.
        outcome: asyncio.Future[T] = loop.create_future()
        future = threads.submit(partial(copy_context().run, work))
        future.add_done_callback(partial(_hand_over, loop, outcome))
        try:
            return await outcome
        except asyncio.CancelledError:
            if drop:
                future.cancel()
            raise
        finally:
            del outcome, future  # an error's traceback leads here, and from here would lead back to it


def of_process() -> Executors:
    """Return the executors for what belongs to no log, or goes on when the log is closed. They are never closed.

    What they run as an append goes on to its end even if the task is cancelled; the end of the process waits for it.
    """
    return _of_process(os.getpid())


@cache
def _of_process(pid: int) -> Executors:  # noqa: ARG001 - a process that was forked has its own
    # As many appends as waits: who opens a log may wait for one that is being closed.
    return Executors(appends_max=1024, name="turnlog process")


def _hand_over(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[T], done: Future[T]) -> None:
    with suppress(RuntimeError):  # the event loop is closed: nobody awaits it any more
        loop.call_soon_threadsafe(_settle, outcome, done)


def _settle(outcome: asyncio.Future[T], done: Future[T]) -> None:
    if outcome.done():  # the task was cancelled
        return
    if done.cancelled():
        outcome.set_exception(_closed())
    elif (error := done.exception()) is None:
        outcome.set_result(done.result())
    elif isinstance(error, StopIteration):  # a coroutine cannot raise it (PEP 479)
        outcome.set_exception(RuntimeError("a function raised StopIteration"))
    else:
        outcome.set_exception(error)


def _closed() -> StoreClosedError:
    return StoreClosedError("the log is closed: open it again")


class _Task(Generic[T]):
    """Work for a thread, and the future of its result."""

    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - raised by who awaits it
            self.future.set_exception(error)
            del self  # as in `_run`
        else:
            self.future.set_result(result)


class _Threads:
    """Threads of one kind. `ThreadPoolExecutor` keeps its threads for ever, and the process waits for all of them."""

    def __init__(self, name: str, threads_max: int, idle_s: float) -> None:
        self.pid = os.getpid()
        self.idle_s = idle_s
        self._name = name
        self._threads_max = threads_max
        self._lock = Lock()
        self._queue: deque[_Task[Any]] = deque()
        self._threads: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._numbers = count(1)
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have work done by the thread that was idle for the shortest time, or by a new one, or later."""
        task = _Task(work)
        with self._lock:
            if self._closed:
                raise _closed()
            if self._idle:
                self._idle.pop().give(task)
            elif len(self._threads) >= self._threads_max or not self._start(task):
                self._queue.append(task)
        return task.future

    def _start(self, task: _Task[Any]) -> bool:
        """Start a thread with a task, and tell whether that was possible. If not, the threads there are must do."""
        worker = _Worker(self, task, name=f"{self._name}-{next(self._numbers)}")
        try:
            worker.start()
        except RuntimeError as error:
            if self._threads:
                return False
            raise StoreBusyError(NO_THREAD) from error
        self._threads.add(worker)
        return True

    def next_task(self, worker: _Worker) -> _Task[Any] | None:
        """Give a thread that is done its next task, once there is one; None tells it to end."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            if self._closed:
                self._threads.discard(worker)
                return None
            worker.rest()
            self._idle.append(worker)
        worker.wait(self.idle_s)
        with self._lock:
            task, worker.task = worker.task, None
            if task is None:
                self._threads.discard(worker)
                with suppress(ValueError):  # closed
                    self._idle.remove(worker)
            return task

    def close(self, *, drop: bool) -> None:
        """Accept no more work, and drop what has not begun, or have it done."""
        with self._lock:
            self._closed = True
            dropped = list(self._queue) if drop else []
            if drop:
                self._queue.clear()
            idle, self._idle = self._idle, []
            for worker in idle:
                worker.wake()
        for task in dropped:
            task.future.cancel()

    def join(self) -> None:
        """Wait until the threads have ended, after closing; not for the calling one."""
        for worker in list(self._threads):
            if worker is not current_thread():
                worker.join()


class _Worker(Thread):
    """A thread that works as long as there are tasks. The end of the process does not wait for it."""

    def __init__(self, threads: _Threads, task: _Task[Any], *, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.task: _Task[Any] | None = task
        self._own = threads
        self._latch = Lock()
        self._latch.acquire()

    def run(self) -> None:
        task, self.task = self.task, None
        while task is not None:
            task.run()
            del task  # neither work nor result is kept while the thread is idle
            task = self._own.next_task(self)

    def give(self, task: _Task[Any]) -> None:
        self.task = task
        self.wake()

    def rest(self) -> None:
        """Make ready to be woken, if it was woken too late the last time."""
        self._latch.acquire(blocking=False)

    def wake(self) -> None:
        self._latch.release()

    def wait(self, timeout_s: float) -> None:
        self._latch.acquire(timeout=timeout_s)


_finished_at_exit: WeakSet[_Threads] = WeakSet()


@atexit.register
def _finish() -> None:
    for threads in list(_finished_at_exit):
        if threads.pid == os.getpid():
            threads.close(drop=False)
            threads.join()
