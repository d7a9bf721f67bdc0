"""The command `turnlog`, from its first moment on.

It stands outside the package because importing the package is most of what the command takes to start: a signal in
that time ends the process with one line, where Python would print a traceback, or nothing. By then nothing is done yet.
What strikes Python itself, before it comes here, is Python's to tell. So nothing is imported here that takes time:
`_signal` is what `signal` gives names to, with the help of `enum`.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

_ALLOCATIONS = 20_000
"""After so many new objects Python looks for what has gone; by itself it does after 700."""

_WORDS: dict[int, bytes] = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated", signal.SIGHUP: b"terminated"}


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    _catch()
    # Nothing that is imported goes again: to look for what has, time after time, is a tenth of what importing takes.
    gc.disable()
    from turnlog.cli import main as run  # noqa: PLC0415 - see above

    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)  # the command itself is imported only now
    gc.enable()
    _let_go()
    try:
        return run()
    finally:
        gc.freeze()  # to look at all once more, at the end of the process, takes as long again


def _catch() -> None:
    """Let signals end the process with one line. One that it was started to ignore is ignored."""
    for number in _WORDS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def _let_go() -> None:
    for number in _WORDS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    try:
        os.write(2, b"turnlog: %b\n" % _WORDS[number])
    finally:
        os._exit(128 + number)


def _is_run_as_module() -> bool:
    """Tell whether this is `python -m turnlog`, which imports the package before any of its own lines run.

    While Python looks for what to run, the first argument is `-m`.
    """
    return sys.argv[:1] == ["-m"] and sys.orig_argv[len(sys.orig_argv) - len(sys.argv)] in ("turnlog", "-mturnlog")


if _is_run_as_module():
    _catch()
