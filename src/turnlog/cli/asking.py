"""Questions to whoever is at the terminal."""

from __future__ import annotations

import select
import sys

_LOOK_S = 0.1


def agrees(question: str) -> bool:
    """Ask a question on standard error until it is answered with yes or no. Nobody there is a no."""
    while True:
        sys.stderr.write(f"{question} [y/n] ")
        sys.stderr.flush()
        line = _line()
        if not line:
            sys.stderr.write("\n")
            return False
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False


def _line() -> str:
    """Return the next line. Ctrl-C just before reading begins is noticed too: reading goes on until a line comes."""
    if sys.stdin.isatty():
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            pass
    return sys.stdin.readline()
