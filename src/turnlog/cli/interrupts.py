"""Ctrl-C ends a command with one line, wherever it strikes.

Python raises `KeyboardInterrupt` at whatever line it is. In a destructor or a callback of the garbage collector it
cannot be raised: Python prints a traceback there and goes on. Here it strikes again a moment later instead.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import TracebackType

_AGAIN_S = 0.01


class Interrupts:
    """While a command runs: lets no interrupt be lost, and none leave anything behind that is printed later."""

    def __init__(self) -> None:
        """Make one for a command that begins."""
        self._before = sys.unraisablehook
        self._stopped = False

    def __enter__(self) -> None:
        """Begin."""
        sys.unraisablehook = self._unraisable

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; after an interrupt, what it left half done is still not told of."""
        self._stopped = isinstance(error, KeyboardInterrupt)
        if not self._stopped:
            sys.unraisablehook = self._before

    def _unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        if self._stopped:
            return
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(_AGAIN_S, _strike).start()
        else:
            self._before(unraisable)


def _strike() -> None:
    main = threading.main_thread()
    if main.is_alive() and main.ident is not None:
        signal.pthread_kill(main.ident, signal.SIGINT)


def end_at_once() -> None:
    """Let an interrupt end the process from here on without a word: its work is done, and it is leaving."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
