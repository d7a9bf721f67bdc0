"""Base64 that is read in pieces, and from any place on: of a file, or of what is itself in base64.

It is written in one way only: with padding, and without bits that say nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from turnlog.errors import ProofError

_PIECE_CHARACTERS = 1024 * 1024
"""What is decoded at a time of a file: four characters are three bytes."""


class Source(Protocol):
    """What base64 stands in."""

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Iterate over the bytes from one place up to another one, in pieces."""
        ...


class FileSource:
    """A file that can be read more than once."""

    def __init__(self, file: BinaryIO) -> None:
        """Take the file, which stays open for as long as this is read."""
        self._file = file

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Iterate over the bytes from one place up to another one, in pieces.

        Raises:
            ProofError: the file has become shorter.
        """
        while start < stop:
            self._file.seek(start)  # somebody else may have read it in between
            piece = self._file.read(min(_PIECE_CHARACTERS, stop - start))
            if not piece:
                raise ProofError("the file was changed while it was read")
            start += len(piece)
            yield piece


class Base64:
    """What stands in base64 between two places of something.

    Attributes:
        size: how many bytes it is.
    """

    def __init__(self, source: Source, start: int, stop: int) -> None:
        """Take what it stands in, and from where up to where."""
        self._source = source
        self._start, self._stop = start, stop
        end = b"".join(source.pieces(max(start, stop - 2), stop))
        self.size = (stop - start) // 4 * 3 - end.count(b"=")

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Iterate over its bytes from one up to another one, in pieces. Without a place, to the end.

        Raises:
            ProofError: it is not base64, or not written as it should be.
        """
        end = self._stop if stop is None else min(self._stop, self._start + (stop + 2) // 3 * 4)
        left = (self.size if stop is None else stop) - start
        place, before, rest = self._start + start // 3 * 4, start % 3, b""
        for piece in self._source.pieces(place, end):
            text = rest + piece
            whole = len(text) // 4 * 4
            place, rest = place + whole, text[whole:]
            found = decoded(text[:whole], is_end=place == self._stop)
            wanted = found[before : before + left]
            before, left = max(0, before - len(found)), left - len(wanted)
            if wanted:
                yield wanted
        decoded(rest)


def decoded(text: bytes, *, is_end: bool = True) -> bytes:
    """Decode base64, or a piece of it that is not its end.

    Raises:
        ProofError: it is not base64, or not written as it should be.
    """
    try:
        found = b64decode(text, validate=True)
    except ValueError as error:
        raise ProofError("a part of the proof is not base64") from error
    if not is_end and len(found) * 4 != len(text) * 3:
        raise ProofError("a part of the proof is not base64")
    if b64encode(found) != text:
        raise ProofError("a part of the proof is not base64 as it should be written")
    return found
