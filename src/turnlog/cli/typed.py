"""What a person types at the prompt of a session: messages of one line or of many."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType

_EDITING = (
    # A paste is inserted as it is, line feeds too, and sent with Enter.
    "set enable-bracketed-paste on",
    # Alt-Enter, which terminals send as Escape and Return: a line feed, taken as it is.
    r'"\e\C-m": "\C-v\C-j"',
    r'"\e\C-j": "\C-v\C-j"',
)
"""What GNU Readline is told. Libedit, which stands in for it in some builds of Python, knows none of it."""


class Prompt:
    """Reads messages: from a terminal with a history and keys to edit with, else line by line."""

    def __init__(self) -> None:
        """Make one; the terminal is set up with the first message that is read from it."""
        self._is_set_up = False

    def read(self, prompt: str) -> str | None:
        """Return what was typed, None at the end of it.

        A backslash at the end takes the next line in. Line feeds at the end, which a paste of whole lines has, are left
        out.

        Raises:
            KeyboardInterrupt: Ctrl-C was typed.
        """
        pieces: list[str] = []
        while True:
            piece = self._line(prompt if not pieces else "… ")
            if piece is None:
                return "\n".join(pieces) if pieces else None
            piece = piece.rstrip("\n")
            if not piece.endswith("\\"):
                return "\n".join([*pieces, piece])
            pieces.append(piece[:-1])

    def _line(self, prompt: str) -> str | None:
        """Return what was typed up to Enter: a line, or more than one where they came by a paste or by Alt-Enter."""
        if sys.stdin is None:  # it was closed
            return None
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            line = sys.stdin.readline()
            return line.removesuffix("\n") if line else None
        self._set_up()
        try:
            return input(prompt)
        except EOFError:
            sys.stdout.write("\n")
            return None

    def _set_up(self) -> None:
        if self._is_set_up:
            return
        self._is_set_up = True
        with suppress(ImportError):  # not on every platform
            readline = import_module("readline")
            if _can_edit(readline):
                for line in _EDITING:
                    readline.parse_and_bind(line)


def _can_edit(readline: ModuleType) -> bool:
    """Return whether it is GNU Readline, on a terminal that knows what it is told."""
    return "libedit" not in (readline.__doc__ or "") and os.environ.get("TERM", "dumb") != "dumb"
