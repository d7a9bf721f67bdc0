"""How much of a tool's result goes to a model: the log has all of it, and a model is told where it was cut.

The turn keeps the result as it came. What a model is asked with is another window than that of the turn, and the call
records how it differs, as it does for `on_window`: so the same request can be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import msgspec
from msgspec import Struct

from turnlog.model import (
    Block,
    ContextWindow,
    Document,
    Message,
    Native,
    Text,
    ToolResult,
    content_bytes,
    decode_content,
)
from turnlog.model.blocks import malformed_texts
from turnlog.model.chunked import Chunked
from turnlog.model.long_strings import LongStrings
from turnlog.model.marked_blocks import marked_texts
from turnlog.providers.documents import document_text, document_words

READ_RESULT = "read_result"
"""The tool that reads on behind a cut."""

RESULT_BYTES_MAX = 100_000
"""How much text of a result goes to a model by default, in bytes of UTF-8."""

NOTICE_BYTES_MAX = 500
"""How much longer a result may be that is not cut: the notice of a cut would be as long as what it leaves out."""

DOCUMENT_BYTES_PER_BYTE = 50
"""How many bytes of an image or another document weigh as much as one of text: no more of it is read by a model."""


class Bounds:
    """How much of each result goes to a model. Of one run; not safe to use from several threads at once."""

    def __init__(self, bytes_max: int) -> None:
        """Take how much text of a result may go, in bytes of UTF-8, at least 1. Documents weigh a fiftieth."""
        self._bytes_max = bytes_max
        self._known: dict[str, _Known] = {}

    def cut_turns(self, window: ContextWindow) -> Set[str]:
        """Return the ids of the turns of a window that have results whose text has to be cut."""
        found = ((message.turn, self._of(message)) for message in window.messages)
        return {turn for turn, known in found if known is not None and known.is_cut}

    def bounded(self, window: ContextWindow, readable: Set[str] = frozenset()) -> ContextWindow:
        """Return a window in which no result is longer than it may be; the same one where none is.

        Text is cut at the end of a character, and a notice says where. A document that is too large is a line of text
        that says what it was.

        Args:
            window: the window to ask with.
            readable: ids of the turns whose results can be read on. Of others the notice does not say how.
        """
        messages = [
            message if (known := self._of(message)) is None else known.bounded(message.turn in readable)
            for message in window.messages
        ]
        if all(new is old for new, old in zip(messages, window.messages, strict=True)):
            return window
        return msgspec.structs.replace(window, messages=Chunked(messages), explanation=None)

    def _of(self, message: Message) -> _Known | None:
        # Text is never longer than the JSON that it stands in.
        if len(message.content_json) <= self._bytes_max or not _may_have_results(message.content_json):
            return None
        known = self._known.get(message.turn)
        if known is None or known.message != message:
            known = self._known[message.turn] = _Known(message, self._bytes_max)
        return known


def _may_have_results(content_json: bytes) -> bool:
    """Return whether there can be tool results in content. It is not decoded for that, as a text may be large."""
    beside = LongStrings().out_of_json(content_json)  # what says of which type a block is, is short
    return b"tool_result" in beside or b"\\u" in beside


class _Known:
    """A long message, and what it is where its results are bounded: a result is looked at once in a run."""

    def __init__(self, message: Message, bytes_max: int) -> None:
        self.message = message
        self._bytes_max = bytes_max
        blocks, long = marked_results(message)
        results = [block for block in blocks if isinstance(block, ToolResult)]
        with malformed_texts():
            self.is_cut = any(_text_is_too_long(result, long, bytes_max) for result in results)
            self._is_bounded = self.is_cut or any(_has_too_large(result, long, bytes_max) for result in results)
        self._made: dict[bool, Message] = {}

    def bounded(self, readable: bool) -> Message:
        """Return the message with its results bounded, itself where they are."""
        if not self._is_bounded:
            return self.message
        if readable not in self._made:
            blocks, long = marked_results(self.message)
            with malformed_texts():
                bounded = [
                    _bounded(block, long, f"{self.message.turn}.{index}" if readable else None, self._bytes_max)
                    if isinstance(block, ToolResult)
                    else block
                    for index, block in enumerate(blocks)
                ]
                content = long.encoded_into(content_bytes(bounded))
            self._made[readable] = msgspec.structs.replace(self.message, content_json=content)
        return self._made[readable]


def marked_results(message: Message) -> tuple[list[Block], LongStrings]:
    """Return the blocks of a message, none of an erased one, and the long strings whose marks stand in them."""
    long = LongStrings()
    if message.erased:
        return [], long
    return decode_content(marked_texts(message.content_json, long, ("results", "documents"))), long


class Page(Struct, frozen=True, kw_only=True):
    """A part of the text of a result.

    Attributes:
        text: the part.
        end: where it ends in the text, in bytes of UTF-8 from 0, exclusive.
        size: how long the text is, in bytes of UTF-8.
    """

    text: str
    end: int
    size: int


def result_page(result: ToolResult, long: LongStrings, offset: int, bytes_max: int) -> Page:
    """Return a part of the text of a result, which begins and ends at the end of a character.

    The text is that of all its texts and text-like documents, with a line feed between any two.

    Args:
        result: the result.
        long: the long strings whose marks stand in it.
        offset: where the part begins, in bytes of UTF-8 from 0.
        bytes_max: how long it may be, in bytes of UTF-8; a character is never divided.
    """
    first, last = max(offset - _INSIDE_MAX, 0), max(offset, 0) + bytes_max + _INSIDE_MAX
    near, size = b"", 0
    for piece in _utf8(result, long):
        near += piece[max(first - size, 0) : max(last - size, 0)]
        size += len(piece)
    begin = max(min(offset, size), 0)
    while 0 < begin < size and _is_inside(near[begin - first]):
        begin -= 1
    end = min(begin + bytes_max, size)
    while begin < end < size and _is_inside(near[end - first]):
        end -= 1
    while end == begin < size or (end < size and _is_inside(near[end - first])):
        end += 1
    return Page(text=near[begin - first : end - first].decode(), end=end, size=size)


def notice(place: str | None, begin: int, end: int, size: int) -> str:
    """Return what a model is told at the end of a part of a result that goes on.

    Args:
        place: the turn and the block of the result, `TURN.INDEX`; None where it cannot be read on.
        begin: where the part begins in the text, in bytes of UTF-8 from 0.
        end: where it ends, exclusive.
        size: how long the text is.
    """
    shown = f"the first {end:,}" if begin == 0 else f"{begin:,} to {end:,}"
    how = "The rest is recorded, and cannot be shown here."
    if place is not None:
        how = f'To read on, call {READ_RESULT} with "result": "{place}" and "offset": {end}.'
    return f"\n\n[Cut here: this is {shown} of {size:,} bytes. {how}]"


_INSIDE_MAX = 4
"""No character of UTF-8 has more bytes."""


def _is_inside(byte: int) -> bool:
    """Tell whether a byte of UTF-8 is not the first one of its character (RFC 3629 §3)."""
    return byte & 0xC0 == 0x80


def _utf8(result: ToolResult, long: LongStrings) -> Iterator[bytes]:
    """Iterate over the text of a result in pieces, which are characters in UTF-8."""
    texts = [result.content] if isinstance(result.content, str) else (_text(block, long) for block in result.content)
    for number, text in enumerate(text for text in texts if text is not None):
        if number:
            yield b"\n"
        for piece in long.said_pieces(text):
            yield piece.encode()


def _text(block: Text | Document | Native, long: LongStrings) -> str | None:
    """Return the text that a block of a result has for a model, or its mark; None where it is none."""
    match block:
        case Text():
            return block.text
        case Document():
            return document_text(block, long)
        case Native():
            return None


def _text_is_too_long(result: ToolResult, long: LongStrings, bytes_max: int) -> bool:
    size = 0
    for piece in _utf8(result, long):
        size += len(piece)
        if size > bytes_max + NOTICE_BYTES_MAX:
            return True
    return False


def _has_too_large(result: ToolResult, long: LongStrings, bytes_max: int) -> bool:
    blocks = [] if isinstance(result.content, str) else result.content
    return any(isinstance(block, Document) and _is_too_large(block, long, bytes_max) for block in blocks)


def _is_too_large(block: Document, long: LongStrings, bytes_max: int) -> bool:
    size = long.bytes_of_base64(block.source.data)
    return size > bytes_max * DOCUMENT_BYTES_PER_BYTE and document_text(block, long) is None


def _beginning(text: str, long: LongStrings, characters: int) -> str:
    """Return no more than so many characters of a text, for which a mark may stand."""
    found = ""
    for piece in long.said_pieces(text):
        found += piece[: max(characters - len(found), 0)]
        if len(found) >= characters:
            break
    return found


def _bounded(result: ToolResult, long: LongStrings, place: str | None, bytes_max: int) -> ToolResult:
    """Return a result as it goes to a model; the same where it is not too long."""
    cut = result_page(result, long, 0, bytes_max) if _text_is_too_long(result, long, bytes_max) else None
    told = "" if cut is None else notice(place, 0, cut.end, cut.size)
    if isinstance(result.content, str):
        return result if cut is None else msgspec.structs.replace(result, content=cut.text + told)
    inside: list[Text | Document | Native] = []
    left, is_over = 0 if cut is None else cut.end, False
    for block in result.content:
        text = _text(block, long)
        if text is None:
            inside.append(_left_out(block, long, bytes_max))
        elif cut is None:
            inside.append(block)
        elif not is_over:
            data = _beginning(text, long, left + 1).encode()  # all of it where it fits: a character has a byte at least
            is_over = len(data) > left
            inside.append(Text(text=data[: max(left, 0)].decode() + told) if is_over else block)
            left -= len(data) + 1  # a line feed is between them
    return msgspec.structs.replace(result, content=inside)


def _left_out(block: Text | Document | Native, long: LongStrings, bytes_max: int) -> Text | Document | Native:
    """Return a document, or what a model is told in place of one that is too large."""
    if not (isinstance(block, Document) and _is_too_large(block, long, bytes_max)):
        return block
    most = bytes_max * DOCUMENT_BYTES_PER_BYTE
    return Text(
        text=f"[{document_words(block, long=long)}, that is recorded and left out here: more than {most:,} bytes]"
    )
