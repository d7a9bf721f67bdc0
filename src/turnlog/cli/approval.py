"""Somebody at a terminal is asked whether a tool may run."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from turnlog.agent.policy import Answer
from turnlog.cli.live import Live
from turnlog.cli.text import count, one_line, to_decide_on
from turnlog.model import ToolUse

_INPUT_LINES_MAX = 60
_INPUT_CHARACTERS_MAX = 8000
_ONE_LINE_CHARACTERS_MAX = 60
_LINE_BYTES_MAX = 65_536
_LOOK_S = 0.03
_QUESTION = "run it? [y/n/a/?, or an answer] "
_HELP = "y: run it; n: do not; a: always run this tool; anything longer is the answer in its place"
_QUESTION_AGAIN = "run it again? [y/n/?, or an answer] "
_HELP_AGAIN = "y: run it; n: do not, the model reads that nobody knows; anything longer is the answer in its place"


class Approval:
    """Asks at the terminal, once a call, unless the tool was allowed for good.

    Of a call that may have had effects in an earlier run it asks in any case.
    """

    def __init__(self, live: Live) -> None:
        """Take the display that the questions go between."""
        self._live = live
        self._allowed: set[str] = set()

    async def __call__(self, call: ToolUse) -> Answer:
        """Return what the person says, None when there is nobody to ask, or nothing was said."""
        is_again = self._live.interrupted is call
        if call.name in self._allowed and not is_again:
            return True
        if not sys.stderr.isatty():
            return None
        self._live.end_line()
        self._show(call)
        with _terminal() as terminal:
            if terminal is not None:
                # What was typed before the question was seen is no answer to it.
                termios.tcflush(terminal, termios.TCIFLUSH)
            while terminal is not None:
                sys.stderr.write(_QUESTION_AGAIN if is_again else _QUESTION)
                sys.stderr.flush()
                line = await _line(terminal)
                if not line:
                    sys.stderr.write("\n")
                    return None
                match line.strip():
                    case "y" | "yes":
                        return True
                    case "n" | "no":
                        return False
                    case "a" | "always" if not is_again:
                        self._allowed.add(call.name)
                        return True
                    case answer if len(answer) > 1 and answer != "always":
                        return answer
                    case _:  # one letter is a slip of the finger and no answer
                        self._live.line((_HELP_AGAIN if is_again else _HELP, "dim"))
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
def _terminal() -> Generator[int | None]:
    """Give the terminal to read from: standard input, else that of the process, where text was piped in."""
    if sys.stdin is not None and sys.stdin.isatty():
        yield sys.stdin.fileno()
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


async def _line(terminal: int) -> str:
    """Return the next line that is typed, empty for none. The event loop goes on meanwhile, so that a run can end."""
    try:
        # Not every event loop can watch a terminal.
        while not select.select([terminal], [], [], 0)[0]:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        raise
    return os.read(terminal, _LINE_BYTES_MAX).decode(errors="replace")
