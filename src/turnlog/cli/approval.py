"""Somebody at a terminal is asked whether a tool may run."""

from __future__ import annotations

import signal
import sys
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import msgspec

from turnlog.agent.policy import Answer
from turnlog.cli.live import Live
from turnlog.cli.text import count, one_line, to_decide_on
from turnlog.model import ToolUse

_INPUT_LINES_MAX = 60
_INPUT_CHARACTERS_MAX = 8000
_ONE_LINE_CHARACTERS_MAX = 60
_HELP = "y: run it; n: do not; a: always run this tool; anything longer is the answer in its place"


class Approval:
    """Asks at the terminal, once a call, unless the tool was allowed for good."""

    def __init__(self, live: Live) -> None:
        """Take the display that the questions go between."""
        self._live = live
        self._allowed: set[str] = set()

    def __call__(self, call: ToolUse) -> Answer:
        """Return what the person says, None when there is nobody to ask, or nothing was said."""
        if call.name in self._allowed:
            return True
        if not sys.stderr.isatty():
            return None
        self._live.end_line()
        self._show(call)
        with _terminal() as terminal, _interruptible():
            if terminal is not None:
                # What was typed before the question was seen is no answer to it.
                termios.tcflush(terminal, termios.TCIFLUSH)
            while terminal is not None:
                sys.stderr.write("run it? [y/n/a/?, or an answer] ")
                sys.stderr.flush()
                line = terminal.readline()
                if not line:
                    sys.stderr.write("\n")
                    return None
                match line.strip():
                    case "y" | "yes":
                        return True
                    case "n" | "no":
                        return False
                    case "a" | "always":
                        self._allowed.add(call.name)
                        return True
                    case answer if len(answer) > 1:
                        return answer
                    case _:  # one letter is a slip of the finger and no answer
                        self._live.line((_HELP, "dim"))
        return None

    def _show(self, call: ToolUse) -> None:
        """Show a call with its arguments, as the tool would get them: nothing is cut away in silence."""
        name = to_decide_on(one_line(call.name))
        text = to_decide_on(bytes(call.input).decode())
        if len(text) <= _ONE_LINE_CHARACTERS_MAX:
            sys.stderr.write(f"→ {name} {text}\n")
            return
        sys.stderr.write(f"→ {name}\n")
        pretty = to_decide_on(msgspec.json.format(bytes(call.input), indent=2).decode())
        lines = pretty[:_INPUT_CHARACTERS_MAX].split("\n")[:_INPUT_LINES_MAX]
        sys.stderr.write("".join(f"  {line}\n" for line in lines))
        hidden = len(pretty) - len("\n".join(lines))
        if hidden > 0:
            self._live.line((f"  … and {count(hidden, 'more character')}, not shown", "bold red"))


@contextmanager
def _terminal() -> Generator[TextIO | None]:
    """Give the terminal to read from: standard input, else that of the process, where text was piped in."""
    if sys.stdin is not None and sys.stdin.isatty():
        yield sys.stdin
        return
    try:
        terminal = open("/dev/tty", encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115 - closed below
    except OSError:
        yield None
        return
    with terminal:
        yield terminal


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C break off a read. It then does what it does while a run goes on, which is to cancel it, and no more.

    What raised here instead would let the run end its servers, and the next Ctrl-C would be taken for the first one
    and break that off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if before is signal.default_int_handler or not callable(before):
            raise
        signal.signal(signal.SIGINT, before)
        sys.stderr.write("\n")
        before(signal.SIGINT, None)
    finally:
        signal.signal(signal.SIGINT, before)
