"""Signal handlers of the program's own, while an event loop of turnlog's runs: what they raise must not hit the loop.

Python runs a handler between any two steps of the main thread. What it raises in the middle of asyncio's own code, or
of a library's, takes along what was to wake a task, which then waits for ever. So it is taken here, and what runs is
cancelled in its stead; it is raised when that has ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

HELD_UP_S = 1.0
"""How long something may hold up the event loop before what a handler has raised is raised right there."""

_END, _GOES_ON = -1, 0


class Handlers:
    """Between `start` and `stop`, both in the main thread, what handlers raise is taken."""

    def __init__(self, take: Callable[[BaseException], bool]) -> None:
        """Take what is told of what a handler has raised, in the handler. Where it returns False that is raised."""
        self._take = take
        self._caught: dict[int, tuple[Handler, Handler]] = {}
        self._is_over = False
        self._told: SimpleQueue[int] = SimpleQueue()
        """Numbers of signals whose handlers have raised, and what became of the loop. It may be used in a handler."""
        self._watcher: threading.Thread | None = None
        self._overdue: BaseException | None = None
        self._is_due = False

    def start(self) -> None:
        """Begin, if there is a handler of the program's own."""
        try:
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler) and handler is not signal.default_int_handler and not _is_of_commands(handler):
                    taking = self._taking(handler)
                    self._caught[number] = handler, taking
                    signal.signal(number, taking)
            if self._caught:
                self._watcher = threading.Thread(target=self._watch, name="turnlog handlers", daemon=True)
                self._watcher.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Give the handlers back that nobody has replaced since. What was taken is with whoever took it."""
        if self._watcher is not None:
            self._told.put(_END)
            self._watcher.join()
        self._is_over = True
        for number, (handler, taking) in self._caught.items():
            if signal.getsignal(number) is taking:
                signal.signal(number, handler)

    def go_on(self) -> None:
        """Say that the event loop goes on, and so comes to see what was cancelled."""
        self._told.put(_GOES_ON)

    def _taking(self, handler: Handler) -> Handler:
        def taking(number: int, frame: FrameType | None) -> None:
            if self._is_due and self._overdue is not None:
                self._is_due = False
                raise self._overdue
            try:
                handler(number, frame)
            except BaseException as error:
                if self._is_over or not self._take(error):
                    raise
                self._overdue = error
                self._told.put(number)

        return taking

    def _watch(self) -> None:
        """Strike where the loop is held up: a callback that waits, as for a person, ends by nothing else."""
        raised = _GOES_ON
        while True:
            try:
                told = self._told.get(timeout=HELD_UP_S if raised else None)
            except Empty:
                self._is_due = True
                signal.pthread_kill(threading.main_thread().ident or 0, raised)
                raised = _GOES_ON
                continue
            if told == _END:
                return
            raised = told


def _is_of_commands(handler: Handler) -> bool:
    """Tell whether a handler is that of turnlog's commands, which raises nothing while a loop runs."""
    return str(getattr(handler, "__module__", "")).startswith("turnlog.cli.")
