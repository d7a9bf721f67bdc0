"""Content blocks for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import dropwhile, islice

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from turnlog.cli.output import Screen
from turnlog.cli.preview import CLOSED, ERASED, START_BYTES_MAX, of_block, of_document
from turnlog.cli.text import count, first_lines, line_pieces, one_line, printable, said_pieces, without_end
from turnlog.errors import ContentError
from turnlog.model import Document, Erased, Native, Text, Thinking, ToolResult, ToolUse, WindowBlock
from turnlog.model.erased import window_content
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import decoded_pieces

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
            write_blocks(screen, self._blocks, self._long, whole=whole)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ContentError(f"content: a text is malformed: {error}", field="content") from error


def write_blocks(screen: Screen, blocks: Sequence[WindowBlock], long: LongStrings, *, whole: bool = False) -> None:
    """Print blocks. Tool calls, their results and thinking are abbreviated unless `whole`.

    Args:
        screen: where they go.
        blocks: the blocks.
        long: the long strings whose marks stand in them.
        whole: whether nothing is abbreviated.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: a long string is malformed.
    """
    for block in blocks:
        match block:
            case Text():
                screen.pieces(said_pieces(long.said_pieces(block.text)))
            case Thinking():
                _write_thinking(screen, block, long, whole=whole)
            case ToolUse():
                _write_tool_use(screen, block, long, whole=whole)
            case ToolResult():
                _write_tool_result(screen, block, long, whole=whole)
            case Erased():
                screen.line((CLOSED if block.sealed else ERASED, "dim"))
            case Document():
                _write_document(screen, block, long)
            case Native():
                screen.line((of_block(replace(block, block=_beginning(block.block, long))), "blue"), cut=True)


def _write_document(
    screen: Screen, block: Document, long: LongStrings, style: str = "blue", *, cut: bool = True
) -> None:
    size = long.bytes_of_base64(block.source.data)
    screen.line((of_document(long.into(block.source.media_type), size), style), cut=cut)


def _write_thinking(screen: Screen, block: Thinking, long: LongStrings, *, whole: bool) -> None:
    if block.redacted:
        screen.line(("(thinking, redacted)", "dim"))
    elif whole:
        screen.pieces(said_pieces(long.said_pieces(block.thinking), "(thinking) "), "dim")
    else:
        # Two pieces in a row have the whole of a line as it is shown.
        said = dropwhile(lambda piece: not piece.strip(), long.said_pieces(block.thinking))
        screen.line((of_block(Thinking(thinking="".join(islice(said, 2)))), "dim"), cut=True)


def _write_tool_use(screen: Screen, block: ToolUse, long: LongStrings, *, whole: bool) -> None:
    name = long.into(block.name)
    if whole:
        call = f" {one_line(long.into(block.id))}" if isinstance(block.id, str) else ""
        screen.line(("→ ", "blue"), (one_line(name), "bold blue"), (call, "dim"))
        said = decoded_pieces(long.pieces(bytes(block.input)))
        screen.pieces(map(printable, line_pieces(said)), "blue")
    else:
        screen.line((of_block(replace(block, name=name, input=_beginning(block.input, long))), "blue"), cut=True)


def _beginning(raw: Raw, long: LongStrings) -> Raw:
    """Return more of some JSON than a line shows, or all of it."""
    found = b""
    for piece in long.pieces(bytes(raw)):
        found += piece[: START_BYTES_MAX + 1 - len(found)]
    return Raw(found)


def _write_tool_result(screen: Screen, block: ToolResult, long: LongStrings, *, whole: bool) -> None:
    style = "red" if block.is_error is True else "blue"
    sign = "← error: " if block.is_error is True else "← "
    if isinstance(block.content, str):
        _write_cut(screen, partial(long.said_pieces, block.content), style, whole=whole, lead=sign)
        return
    screen.line((sign + count(len(block.content), "block"), style))
    for inner in block.content:
        match inner:
            case Text():
                _write_cut(screen, partial(long.said_pieces, inner.text), style, whole=whole)
            case Document():
                _write_document(screen, inner, long, style, cut=False)
            case Native():
                screen.line((of_block(replace(inner, block=_beginning(inner.block, long))), style))


def _write_cut(screen: Screen, pieces: Callable[[], Iterator[str]], style: str, *, whole: bool, lead: str = "") -> None:
    """Print text, which comes in pieces, without the line feeds at its end, and unless `whole` only its first lines."""
    more = 0 if whole else sum(piece.count("\n") for piece in without_end(pieces())) + 1 - _RESULT_LINES_MAX
    if more <= 1:
        screen.pieces(said_pieces(without_end(pieces()), lead), style)
        return
    screen.pieces(said_pieces(first_lines(pieces(), _RESULT_LINES_MAX), lead), style)
    screen.line((f"… {count(more, 'more line')}", "dim"))
