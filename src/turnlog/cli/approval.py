"""Somebody at a terminal is asked whether a tool may run."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import msgspec

from turnlog.agent.policy import Answer
from turnlog.cli.live import Live
from turnlog.cli.text import count, one_line, to_decide_on
from turnlog.model import Tool, ToolUse

_HEAD_LINES, _TAIL_LINES = 40, 20
_HEAD_CHARACTERS, _TAIL_CHARACTERS = 6000, 2000
"""So much of the beginning and of the end of arguments is shown where they are longer than both."""
_ONE_LINE_CHARACTERS_MAX = 60
_LINE_BYTES_MAX = 65_536
_LOOK_S = 0.03


class Approval:
    """Asks at the terminal, once a call, unless the tool was allowed for good.

    Of a call that may have had effects in an earlier run it asks in any case, and of a tool that is not what it was
    when it was allowed.
    """

    def __init__(self, live: Live, tools_of: Callable[[str], Iterable[Tool]]) -> None:
        """Take the display that the questions go between, and what returns the tools that a model call offered."""
        self._live = live
        self._tools_of = tools_of
        self._allowed: dict[str, Tool] = {}

    def forget(self) -> None:
        """Forget what was allowed: other servers may offer tools of the same names from here on."""
        self._allowed.clear()

    async def __call__(self, call: ToolUse) -> Answer:
        """Return what the person says, None when there is nobody to ask, or nothing was said."""
        is_again = self._live.interrupted is call
        if not is_again and self._is_allowed(call.name):
            return True
        if not sys.stderr.isatty():
            return None
        self._live.end_line()
        is_cut = self._show(call)
        question, answers = _question(is_again=is_again, is_cut=is_cut)
        with _terminal() as terminal:
            if terminal is not None:
                # What was typed before the question was seen is no answer to it.
                termios.tcflush(terminal, termios.TCIFLUSH)
            while terminal is not None:
                sys.stderr.write(question)
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
                        if (offered := self._offered(call.name)) is not None:
                            self._allowed[call.name] = offered
                        return True
                    case "v" if is_cut:
                        _write(_pretty(call))
                    case answer if len(answer) > 1 and answer != "always":
                        return answer
                    case _:  # one letter is a slip of the finger and no answer
                        self._live.line((answers, "dim"))
        return None

    def _is_allowed(self, name: str) -> bool:
        """Tell whether a tool was allowed for good, as it is now. Of another one of the name it is said that it is."""
        if name not in self._allowed:
            return False
        if self._allowed[name] == self._offered(name):
            return True
        del self._allowed[name]
        self._live.end_line()
        self._live.line((f"! the server describes {to_decide_on(one_line(name))} otherwise now", "yellow"))
        return False

    def _offered(self, name: str) -> Tool | None:
        """Return a tool as the model was told of it last; None where no model was asked yet."""
        offered = () if self._live.call is None else self._tools_of(self._live.call)
        return next((tool for tool in offered if tool.name == name), None)

    def _show(self, call: ToolUse) -> bool:
        """Show a call with its arguments, as the tool would get them; return whether something between is left out."""
        name = to_decide_on(one_line(call.name))
        text = to_decide_on(bytes(call.input).decode())
        if len(text) <= _ONE_LINE_CHARACTERS_MAX:
            sys.stderr.write(f"→ {name} {text}\n")
            return False
        sys.stderr.write(f"→ {name}\n")
        pretty = _pretty(call)
        # What is nested many times takes much more room in many lines than in one.
        head, hidden, tail = _ends(pretty if len(pretty) <= 2 * len(text) else text)
        _write(head)
        if hidden:
            self._live.line((f"  … {count(hidden, 'character')} between, not shown: v shows all", "bold red"))
            _write(tail)
        return hidden > 0


def _question(*, is_again: bool, is_cut: bool) -> tuple[str, str]:
    """Return what is asked, and what the answers mean."""
    answers = {"y": "run it", "n": "do not"}
    if is_again:
        answers["n"] += ", the model reads that nobody knows"
    else:
        answers["a"] = "always run this tool"
    if is_cut:
        answers["v"] = "show all of its arguments"
    meanings = "; ".join(f"{letter}: {meaning}" for letter, meaning in answers.items())
    again = " again" if is_again else ""
    return (
        f"run it{again}? [{'/'.join(answers)}/?, or an answer] ",
        f"{meanings}; anything longer is the answer in its place",
    )


def _pretty(call: ToolUse) -> str:
    return to_decide_on(msgspec.json.format(bytes(call.input), indent=2).decode())


def _ends(text: str) -> tuple[str, int, str]:
    """Return how a text begins, how many characters are between, and how it ends; all of one that is not longer."""
    is_short = len(text) <= _HEAD_CHARACTERS + _TAIL_CHARACTERS
    if is_short and text.count("\n") < _HEAD_LINES + _TAIL_LINES:
        return text, 0, ""
    head = "\n".join(text[:_HEAD_CHARACTERS].split("\n")[:_HEAD_LINES])
    tail = "\n".join(text[max(len(head), len(text) - _TAIL_CHARACTERS) :].split("\n")[-_TAIL_LINES:])
    return head, len(text) - len(head) - len(tail), tail


def _write(text: str) -> None:
    sys.stderr.write("".join(f"  {line}\n" for line in text.split("\n")))


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
