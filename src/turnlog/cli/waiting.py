"""What a run waits for, told on standard error."""

from __future__ import annotations

import threading
import time

from rich.console import Console

from turnlog.cli.first_sign import ERASE, erase_first_sign
from turnlog.cli.text import count, fit, one_line

_EVERY_S = 1.0
_LINES_EVERY_S = 30.0


class Waiting:
    """Says what is waited for, and for how long, where nothing else has been shown for a second.

    A terminal that can erase a line again has one line that counts; anything else is told every half a minute, on a
    line of its own. Whoever writes to it calls `end` before.
    """

    def __init__(self, console: Console, *, every_s: float = _EVERY_S, lines_every_s: float = _LINES_EVERY_S) -> None:
        """Take where to say it, and how often."""
        self._console = console
        self._erases = console.is_terminal and not console.is_dumb_terminal
        self._every_s = every_s if self._erases else lines_every_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ended.set()
        self._shown = False
        self._what = ""
        self._characters = 0
        self._since_s = 0.0

    def begin(self, what: str) -> None:
        """Begin to wait for something. Where it is shown that something is waited for, this is shown in its place."""
        at_once = self.end()
        self._what, self._characters, self._since_s = one_line(what), 0, time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._go_on, args=(self._ended, at_once), name="turnlog-waiting", daemon=True).start()

    def say(self, what: str) -> None:
        """Say otherwise what is waited for, from now on."""
        self._what = one_line(what)

    def count(self, characters: int) -> None:
        """Say that so many more characters have come that are not shown."""
        self._characters += characters

    def end(self) -> bool:
        """Wait no longer, erase what was said, and return whether anything was."""
        with self._lock:
            self._ended.set()
            shown, self._shown = self._shown, False
            if shown:
                self._write(ERASE)
            return erase_first_sign() or shown

    def _go_on(self, ended: threading.Event, at_once: bool) -> None:
        while not ended.wait(0 if at_once else self._every_s):
            at_once = False
            with self._lock:
                if ended.is_set():
                    return
                if not self._erases:
                    self._write(f"{self._said()}\n")
                    continue
                self._shown = True
                self._write(f"{ERASE}\x1b[2m{fit(self._said(), self._console.width - 1)}\x1b[0m")

    def _said(self) -> str:
        waited_s = int(time.monotonic() - self._since_s)
        came = f", {count(self._characters, 'character')}" if self._characters else ""
        return f"{self._what} … {waited_s} s{came}"

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
