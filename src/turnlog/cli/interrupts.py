"""Ctrl-C and SIGTERM end a command with one line, wherever they strike.

Python raises `KeyboardInterrupt` at whatever line it is. In a destructor or a callback of the garbage collector it
cannot be raised: Python prints a traceback there and goes on. Here it strikes again a moment later instead.

SIGTERM and SIGHUP take the way of Ctrl-C, so that all that cleans up behind a Ctrl-C does so behind them. Further ones
change nothing for a while, as further Ctrl-C do not: what is being ended, such as the programs that a run has started,
would be left behind. A SIGTERM that comes later ends the process at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType

from msgspec import Struct

from turnlog.cli.failures import EXIT_INTERRUPTED
from turnlog.hurry import HURRY

PATIENCE_S = 10.0
"""How long a further SIGTERM is passed over, as `turnlog.agent.own_loop` does with Ctrl-C."""

_AGAIN_S = 0.01
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Stop(Struct, frozen=True, kw_only=True):
    """What has stopped a command.

    Attributes:
        word: what is said of it.
        status: the exit status.
        is_final: whether it is to end even what Ctrl-C only interrupts, such as a chat.
    """

    word: str = "interrupted"
    status: int = EXIT_INTERRUPTED
    is_final: bool = False


class _Received:
    """The signal that is ending this process, if one is: signals are of a process, not of a part of it."""

    number: signal.Signals | None = None


def what_stopped() -> Stop:
    """Return what has stopped the command that was just interrupted: Ctrl-C, or a signal to end."""
    number = _Received.number
    return Stop() if number is None else Stop(word="terminated", status=128 + number, is_final=True)


class Interrupts:
    """While a command runs: lets no interrupt be lost, and none leave anything behind that is printed later."""

    def __init__(self) -> None:
        """Make one for a command that begins."""
        self._before = sys.unraisablehook
        self._caught: list[signal.Signals] = []
        self._stopped = False

    def __enter__(self) -> None:
        """Begin. Signals that the process was started to ignore are ignored."""
        _Received.number, HURRY.is_final = None, False
        sys.unraisablehook = self._unraisable
        if threading.current_thread() is threading.main_thread():
            self._caught = [number for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL]
            self._listen()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; after an interrupt, what it left half done is still not told of."""
        self._stopped = isinstance(error, KeyboardInterrupt)
        for number in self._caught:
            signal.signal(number, signal.SIG_DFL)
        if not self._stopped:
            sys.unraisablehook = self._before

    def _listen(self) -> None:
        for number in self._caught:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        _Received.number, HURRY.is_final = signal.Signals(number), True
        ended_s = time.monotonic()

        def again(number: int, frame: FrameType | None) -> None:
            del frame
            if number == signal.SIGTERM and time.monotonic() - ended_s > PATIENCE_S:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        for each in self._caught:
            signal.signal(each, again)
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):  # an event loop has one of its own, which cancels what runs in it
            interrupt(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    def _unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        if self._stopped:
            return
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            number, _Received.number = _Received.number or signal.SIGINT, None
            if number != signal.SIGINT:
                self._listen()
            threading.Thread(target=_strike, args=(number,), name="turnlog-interrupt", daemon=True).start()
        else:
            self._before(unraisable)


def _strike(number: signal.Signals) -> None:
    main = threading.main_thread()
    while True:
        time.sleep(_AGAIN_S)
        if not main.is_alive() or main.ident is None:
            return
        if not _is_told(main.ident):
            break
    signal.pthread_kill(main.ident, number)


def _is_told(thread: int) -> bool:
    """Tell whether a thread is being told of what cannot be raised: there another one would be lost too."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code is Interrupts._unraisable.__code__:  # pyright: ignore[reportPrivateUsage]
            return True
        frame = frame.f_back
    return False


def end_at_once() -> None:
    """Let an interrupt end the process from here on without a word: its work is done, and it is leaving."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
