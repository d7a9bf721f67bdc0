"""The first sign of a command that takes a while to start: a line on the terminal, until there is more to show."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

ERASE = "\r\x1b[K"
"""What takes the line that is being written away from a terminal."""

_SIGN = "\x1b[2mstarting …\x1b[0m"
_SLOW = ("run",)
"""Commands that import much, or wait for others, before they have anything to say."""

_QUIET = frozenset({"--json", "--help", "-h", "--version"})
_DUMB = ("", "dumb", "unknown")


class _Shown:
    """Whether the sign is on the terminal: there is one of a process."""

    now = False


def show_first_sign(tokens: list[str]) -> None:
    """Show that a command line was understood so far, before anything is imported for it. Files and pipes show none."""
    if not tokens or tokens[0] not in _SLOW or not _QUIET.isdisjoint(tokens):
        return
    if sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB:
        _write(_SIGN)
        _Shown.now = True


def is_first_sign_shown() -> bool:
    """Tell whether it is on the terminal."""
    return _Shown.now


def erase_first_sign() -> bool:
    """Take it away, if it is there, and return whether it was: whoever writes to the terminal does so before."""
    shown, _Shown.now = _Shown.now, False
    if shown:
        _write(ERASE)
    return shown


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
