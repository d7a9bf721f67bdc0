"""The command `turnlog`, from its first moment on.

It stands outside the package because importing the package is most of what the command takes to start: an interrupt
in that time ends the process by the signal, without a word, where Python would print a traceback.
"""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    catches = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from turnlog.cli import main as run  # noqa: PLC0415 - see above

    if catches:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
