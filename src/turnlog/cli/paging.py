"""A pager between a command and a terminal, as git has one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from turnlog.cli.output import note
from turnlog.errors import os_reason

if TYPE_CHECKING:
    import subprocess

PAGER_VARIABLE = "TURNLOG_PAGER"
"""The environment variable that names the pager, before `PAGER`; empty or `cat` for none."""

_DEFAULT = "less"
_SETTINGS = {"LESS": "FRX", "LESSCHARSET": "utf-8", "LV": "-c"}
"""What a pager is told that nobody has set up: to leave what fits on the screen there, and to show colours and UTF-8,
which is printed in every locale."""

_OF_A_SHELL = re.compile(r"[|&;<>()$`*?~]")
"""What only a shell makes something of: with one of these a pager is a line for it, as for git and man."""

_COLOURS = "-R"
"""What `less` is told where somebody has set it up, for without it colours are escape sequences to read."""


class _Shown(TextIOWrapper):
    """Standard output that a pager shows on a terminal."""

    def isatty(self) -> bool:
        """Tell that people read it, who want colours and lines that fit."""
        return True


@contextmanager
def paging(*, json: bool = False) -> Generator[None]:
    """Have what is printed shown by the user's pager, where standard output is a terminal.

    It begins to show what there is at once, and nothing is held in memory. Whoever leaves it early has seen enough.
    Without a pager, or for programs (`json`), what is printed goes where it goes.
    """
    if json or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    variable, named = _named()
    pager = None
    try:
        pager = _started(named)
    except (OSError, ValueError) as error:
        if variable is not None:
            note(f"the pager {named!r}, which {variable} names, cannot be run ({os_reason(error)})")
    if pager is None:
        yield
        return
    assert pager.stdin is not None
    terminal = sys.stdout
    sys.stdout = shown = _Shown(pager.stdin, encoding="utf-8", errors="backslashreplace")
    try:
        yield
        shown.flush()
    finally:
        sys.stdout = terminal
        with suppress(OSError):
            shown.close()
        _wait(pager)
        if pager.returncode:
            how = f"status {pager.returncode}" if pager.returncode > 0 else f"signal {-pager.returncode}"
            note(f"the pager {named!r} failed ({how}): {PAGER_VARIABLE}=cat shows all without one")


def _named() -> tuple[str | None, str]:
    """Return the variable that names the pager, None where none does, and the pager with its arguments."""
    for variable in (PAGER_VARIABLE, "PAGER"):
        if variable in os.environ:
            return variable, os.environ[variable]
    return None, _DEFAULT


def _started(named: str) -> subprocess.Popen[bytes] | None:
    """Start a pager; None where none is wanted.

    Raises:
        OSError: it cannot be run.
        ValueError: it is no command line.
    """
    command = shlex.split(named)
    if not command or command == ["cat"]:
        return None
    if _OF_A_SHELL.search(named):
        command = ["sh", "-c", named]
    elif Path(command[0]).name == "less" and "LESS" in os.environ:
        command.append(_COLOURS)
    import subprocess  # noqa: PLC0415 - files and pipes need none of it

    sys.stdout.flush()
    settings = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **settings})


def _wait(pager: subprocess.Popen[bytes]) -> None:
    """Wait until the person has left the pager. Ctrl-C is for the pager meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        pager.wait()
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
