"""Long texts, read in pieces: as one Python string they take up to four bytes a character."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import msgspec

from turnlog.model.long_strings import string_pieces
from turnlog.model.pieces import check_utf8, decoded_text, in_json

LONG_BYTES = 1 << 21
"""So many bytes are a long text."""

STRETCH_CHARACTERS = 1 << 21
"""A long text is looked at so many characters at a time, and some more that two stretches share."""


class LongText:
    """A text that is read in pieces, as often as it is asked for. It is another text if it is not the same object."""

    def __init__(self, pieces: Callable[[], Iterator[str]]) -> None:
        """Take what gives its pieces, which end anywhere."""
        self.pieces = pieces

    def __str__(self) -> str:
        """Return the text as one string."""
        return "".join(self.pieces())

    def stretches(self, shared: int) -> Iterator[tuple[int, str, bool]]:
        """Iterate over the text in stretches, each of which shares characters with the one before.

        Returns:
            How many characters come before the stretch, the stretch, and whether it is the last.
        """
        start, stretch = 0, ""
        for piece in self.pieces():
            stretch += piece
            if len(stretch) >= STRETCH_CHARACTERS + shared:
                yield start, stretch, False
                start += len(stretch) - shared
                stretch = stretch[len(stretch) - shared :]
        yield start, stretch, True

    def json(self) -> Iterator[bytes | memoryview]:
        """Iterate over the text as a string of JSON, in pieces."""
        yield b'"'
        yield from in_json(self.pieces())
        yield b'"'

    def utf8(self) -> Iterator[bytes]:
        """Iterate over the text in UTF-8, in pieces."""
        return (piece.encode() for piece in self.pieces())


Text = str | LongText


def joined(texts: Sequence[Text]) -> Text:
    """Return texts as one, which is long if one of them is."""
    if any(isinstance(text, LongText) for text in texts):
        return LongText(lambda: chain.from_iterable(_pieces(text) for text in texts))
    return "".join(map(str, texts))


def _pieces(text: Text) -> Iterator[str]:
    return iter((text,)) if isinstance(text, str) else text.pieces()


def json_text(string: memoryview) -> LongText | None:
    """Return what a long string of JSON says; None where it is no string to the codec."""
    text = LongText(lambda: string_pieces(string))
    try:
        for _ in text.pieces():
            pass
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return text


def utf8_text(content: bytes) -> LongText | None:
    """Return bytes as the text that they are in UTF-8; None where they are none."""
    try:
        check_utf8(content)
    except UnicodeDecodeError:
        return None
    return LongText(lambda: decoded_text(content))
