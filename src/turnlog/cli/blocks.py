"""Content blocks for people to read."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.cli.output import Screen
from turnlog.cli.preview import CLOSED, ERASED, of_block
from turnlog.cli.text import count, one_line, printable, said_in_lines
from turnlog.model import Document, Erased, Native, Text, Thinking, ToolResult, ToolUse, WindowBlock

_RESULT_LINES_MAX = 5
"""Of a tool's result so many lines are shown where blocks are abbreviated."""


def write_blocks(screen: Screen, blocks: Sequence[WindowBlock], *, whole: bool = False) -> None:
    """Print blocks. Tool calls, their results and thinking are abbreviated unless `whole`."""
    for block in blocks:
        match block:
            case Text():
                screen.text(said_in_lines(printable(block.text)))
            case Thinking():
                _write_thinking(screen, block, whole=whole)
            case ToolUse():
                _write_tool_use(screen, block, whole=whole)
            case ToolResult():
                _write_tool_result(screen, block, whole=whole)
            case Erased():
                screen.line((CLOSED if block.sealed else ERASED, "dim"))
            case Document() | Native():
                screen.line((of_block(block), "blue"))


def _write_thinking(screen: Screen, block: Thinking, *, whole: bool) -> None:
    if block.redacted:
        screen.line(("(thinking, redacted)", "dim"))
    elif whole:
        screen.text("(thinking) " + _continued(printable(block.thinking)), "dim")
    else:
        screen.line((of_block(block), "dim"))


def _write_tool_use(screen: Screen, block: ToolUse, *, whole: bool) -> None:
    if whole:
        call = f" {one_line(block.id)}" if isinstance(block.id, str) else ""
        screen.line(("→ ", "blue"), (one_line(block.name), "bold blue"), (call, "dim"))
        screen.text(printable(bytes(block.input).decode()), "blue")
    else:
        screen.line((of_block(block), "blue"))


def _write_tool_result(screen: Screen, block: ToolResult, *, whole: bool) -> None:
    style = "red" if block.is_error is True else "blue"
    sign = "← error: " if block.is_error is True else "← "
    if not isinstance(block.content, str):
        screen.line((sign + count(len(block.content), "block"), style))
        for inner in block.content:
            said = said_in_lines(printable(inner.text)) if isinstance(inner, Text) else of_block(inner)
            _write_cut(screen, said, style, whole=whole)
        return
    _write_cut(screen, sign + _continued(printable(block.content)), style, whole=whole)


def _continued(text: str) -> str:
    """Return text that goes on in a line that is turnlog's own."""
    first, feed, rest = text.partition("\n")
    return first + feed + said_in_lines(rest)


def _write_cut(screen: Screen, text: str, style: str, *, whole: bool) -> None:
    lines = text.rstrip("\n").split("\n")
    if whole or len(lines) <= _RESULT_LINES_MAX + 1:
        screen.text("\n".join(lines), style)
        return
    screen.text("\n".join(lines[:_RESULT_LINES_MAX]), style)
    screen.line((f"… {count(len(lines) - _RESULT_LINES_MAX, 'more line')}", "dim"))
