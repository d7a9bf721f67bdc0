"""Questions to whoever is at the terminal."""

from __future__ import annotations

import sys


def agrees(question: str) -> bool:
    """Ask a question on standard error until it is answered with yes or no. Nobody there is a no."""
    while True:
        sys.stderr.write(f"{question} [y/n] ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
            return False
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
