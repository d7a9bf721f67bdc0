"""Content blocks for people to read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnlog.cli.output import Screen
from turnlog.cli.preview import CLOSED, ERASED, of_block
from turnlog.cli.text import count, one_line, said_pieces
from turnlog.errors import ContentError
from turnlog.model import Document, Erased, Native, Text, Thinking, ToolResult, ToolUse, WindowBlock
from turnlog.model.blocks import window_content
from turnlog.model.long_strings import LongStrings

_RESULT_LINES_MAX = 5
"""Of a tool's result so many lines are shown where blocks are abbreviated."""


class Content:
    """The content of a message, of which long texts are decoded as they are printed."""

    def __init__(self, content: bytes) -> None:
        """Decode the rest.

        Raises:
            ContentError: it is no content.
        """
        self._long = LongStrings()
        self._blocks = window_content(self._long.out_of_json(content))

    @property
    def has_document(self) -> bool:
        """Whether there is a document in it."""
        return any(isinstance(block, Document) for block in self._blocks)

    def write(self, screen: Screen, *, whole: bool = False) -> None:
        """Print it. Tool calls, their results and thinking are abbreviated unless `whole`.

        Raises:
            ContentError: a long text is malformed.
        """
        try:
            for block in self._blocks:
                if isinstance(block, Text):
                    screen.pieces(said_pieces(self._long.said_pieces(block.text)))
                else:
                    write_blocks(screen, [self._long.into(block)], whole=whole)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ContentError(f"content: a text is malformed: {error}", field="content") from error


def write_blocks(screen: Screen, blocks: Sequence[WindowBlock], *, whole: bool = False) -> None:
    """Print blocks. Tool calls, their results and thinking are abbreviated unless `whole`."""
    for block in blocks:
        match block:
            case Text():
                screen.pieces(said_pieces((block.text,)))
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
        screen.pieces(said_pieces((block.thinking,), "(thinking) "), "dim")
    else:
        screen.line((of_block(block), "dim"))


def _write_tool_use(screen: Screen, block: ToolUse, *, whole: bool) -> None:
    if whole:
        call = f" {one_line(block.id)}" if isinstance(block.id, str) else ""
        screen.line(("→ ", "blue"), (one_line(block.name), "bold blue"), (call, "dim"))
        screen.text(bytes(block.input).decode(), "blue")
    else:
        screen.line((of_block(block), "blue"))


def _write_tool_result(screen: Screen, block: ToolResult, *, whole: bool) -> None:
    style = "red" if block.is_error is True else "blue"
    sign = "← error: " if block.is_error is True else "← "
    if not isinstance(block.content, str):
        screen.line((sign + count(len(block.content), "block"), style))
        for inner in block.content:
            if isinstance(inner, Text):
                _write_cut(screen, inner.text, style, whole=whole)
            else:
                screen.line((of_block(inner), style), cut=False)
        return
    _write_cut(screen, block.content, style, whole=whole, lead=sign)


def _write_cut(screen: Screen, text: str, style: str, *, whole: bool, lead: str = "") -> None:
    """Print text without the line feeds at its end, and unless `whole` only its first lines."""
    end = len(text)
    while text[end - 1 : end] == "\n":
        end -= 2 if text[end - 2 : end] == "\r\n" else 1
    more = text.count("\n", 0, end) + 1 - _RESULT_LINES_MAX
    if whole or more <= 1:
        screen.pieces(said_pieces((text[:end],), lead), style)
        return
    cut = -1
    for _ in range(_RESULT_LINES_MAX):
        cut = text.index("\n", cut + 1)
    screen.pieces(said_pieces((text[:cut].removesuffix("\r"),), lead), style)
    screen.line((f"… {count(more, 'more line')}", "dim"))
