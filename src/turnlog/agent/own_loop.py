"""An event loop for runs in a program that has none, in which Ctrl-C ends things and never leaves them half ended."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from turnlog.agent.handlers import Handlers
from turnlog.agent.letting_go import LEAVING
from turnlog.errors import RunError
from turnlog.executors import is_in_a_loop
from turnlog.hurry import HURRY

T = TypeVar("T")

PATIENCE_S = 10.0
"""How long further Ctrl-C are passed over: ending the programs that a run has started takes up to 5 seconds."""


class OwnLoop:
    """An event loop of one's own: a context manager, with `run` as often as one likes.

    The first Ctrl-C cancels what runs. `asyncio.Runner` breaks off at the second, and so leaves behind what was being
    ended: programs, and turns that were to be recorded. Here further ones change nothing, as long as the loop goes on,
    for `PATIENCE_S` seconds, and what waits for a server's answer gives up soon. What a signal handler of the program's
    own raises ends what runs as the first one does, and is raised behind it. So does what leaves the loop all the same,
    as a Ctrl-C where something holds it up.
    """

    def __init__(self, *, instead: str = "await it there") -> None:
        """Make one. Nothing is started yet. `instead` says what to do in a thread that has a loop."""
        self._instead = instead
        self._runner = asyncio.Runner()
        self._task: asyncio.Task[Any] | None = None
        self._is_running = False
        self._interrupted_s: float | None = None
        self._goes_on = self._is_cancelled = False
        self._raised: BaseException | None = None
        """What a signal handler of the program's own has raised, first of all, while something ran."""
        self._raised_s = 0.0
        self._handlers = Handlers(self._take)
        self._is_closing = False
        self._caught = False
        self._woken = ExitStack()

    def __enter__(self) -> Self:
        """Start the loop.

        Raises:
            RunError: one runs in this thread already.
        """
        self._refuse_in_a_loop()
        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            self._handlers.start()
        try:
            self._runner.__enter__()
            if is_main:
                self._woken.enter_context(_woken_by_signals(self._runner.get_loop()))
        except BaseException:
            self._handlers.stop()
            raise
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
            self._caught = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what still runs, wait for it, and close the loop. What a signal handler raises meanwhile is raised."""
        self._is_closing = True
        loop = self._runner.get_loop()
        try:
            self._runner.__exit__(kind, error, trace)
        finally:
            try:
                for give_back in _at_close.pop(loop, ()):
                    give_back()
            finally:
                HURRY.end()
                self._woken.close()
                if self._caught:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                self._handlers.stop()
        if error is None:
            self._raise_taken()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result.

        Raises:
            KeyboardInterrupt: Ctrl-C has cancelled it.
            SystemExit: a task beside it has raised that. It was cancelled.
            BaseException: a signal handler has raised it. It was cancelled.
        """

        async def watched() -> T:
            self._task = asyncio.current_task()
            if self._raised is not None or self._interrupted_s is not None:
                work.close()
                raise asyncio.CancelledError
            return await work

        self._interrupted_s, self._is_cancelled = None, False
        HURRY.end()
        self._is_running = True
        try:
            result = self._runner.run(watched())
        except asyncio.CancelledError:
            self._raise_taken()
            if self._interrupted_s is None:
                raise
            raise KeyboardInterrupt from None
        except LEAVING as left:
            if self._task is not None:
                self._end(self._task, left)
            raise
        finally:
            self._is_running, self._task = False, None
        self._raise_taken()
        return result

    def _raise_taken(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised from None

    def _take(self, error: BaseException) -> bool:
        """Cancel what runs in place of what a signal handler has raised; False where that does not let itself end."""
        now_s = time.monotonic()
        if self._raised is None:
            self._raised, self._raised_s = error, now_s
        elif now_s - self._raised_s > PATIENCE_S:
            return False
        if self._task is None:  # it is not begun, or ended already
            self._handlers.go_on()
            return True
        self._runner.get_loop().call_soon_threadsafe(self._cancel)
        return True

    def _cancel(self) -> None:
        """Cancel what runs: in the loop, since a signal may come in the middle of what it does for a future."""
        self._goes_on = True
        self._handlers.go_on()
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True  # once: a limit of time may have done so too, and takes only its own back
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any], left: BaseException) -> None:
        """Cancel what runs when something has left the loop beside it, and let it come to its end.

        Raises:
            Exception: what it could not do, as where a store takes nothing. It goes before what has left the loop.
        """
        if task.done():
            return
        if not task.cancelling():
            task.cancel()
        until_s = time.monotonic() + PATIENCE_S
        while not task.done() and (left_s := until_s - time.monotonic()) > 0:
            with suppress(*LEAVING):  # of one more task of it
                self._runner.run(_waited(task, left_s))
        error = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(error, Exception):
            raise error from left

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._interrupted_s is None:
            if not self._is_running and not self._is_closing:
                signal.default_int_handler(number, frame)
            self._interrupted_s, self._goes_on = now_s, self._is_closing
            HURRY.begin()
            if self._task is not None:
                self._runner.get_loop().call_soon_threadsafe(self._cancel)
        elif not self._goes_on or now_s - self._interrupted_s > PATIENCE_S:
            # A callback keeps the loop waiting, or something does not let itself be ended.
            signal.default_int_handler(number, frame)

    def _refuse_in_a_loop(self) -> None:
        if is_in_a_loop():
            raise RunError(f"an event loop runs in this thread: {self._instead}")


_at_close: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()
"""By event loops, what gives back what is held there."""


@contextmanager
def given_back_at_close(give_back: Callable[[], None]) -> Generator[None]:
    """Have something given back also where the event loop, an `OwnLoop`, is closed before this context is left.

    Args:
        give_back: gives it back, without raising. A second call does nothing.
    """
    held = _at_close.setdefault(asyncio.get_running_loop(), [])
    held.append(give_back)
    try:
        yield
    finally:
        held.remove(give_back)


async def _waited(task: asyncio.Task[Any], timeout_s: float) -> None:
    await asyncio.wait([task], timeout=timeout_s)


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Wake an event loop of the main thread at each signal, until it is closed.

    Handlers run when the loop is awake, and a signal that comes just before it begins to wait does not wake it.
    """
    awake, waking = socket.socketpair()
    with awake, waking:
        for end in (awake, waking):
            end.setblocking(False)
        loop.add_reader(awake, awake.recv, 4096)
        before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
