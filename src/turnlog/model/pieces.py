"""Text, bytes and base64 in pieces: none of it is whole twice, and between pieces other threads go on."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Literal

import msgspec

PIECE = 256 * 1024
"""So many bytes or characters are done at a time. A string of more, in JSON or as a text, is long."""

_encode = msgspec.json.Encoder().encode


def text_pieces(text: str) -> Iterator[str]:
    """Iterate over a text in pieces, none of which ends between CR and LF."""
    start = 0
    while start < len(text):
        end = start + PIECE
        end += text[end - 1 : end + 1] == "\r\n"
        yield text[start:end]
        start = end


def byte_pieces(content: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Iterate over bytes in pieces."""
    for start in range(0, len(content), PIECE):
        yield memoryview(content)[start : start + PIECE]


def decoded_text(
    text: bytes | bytearray | memoryview, errors: Literal["strict", "replace"] = "strict"
) -> Iterator[str]:
    """Iterate over text in UTF-8 in pieces.

    Raises:
        UnicodeDecodeError: it is not UTF-8, and what is not is not to be replaced.
    """
    return decoded_pieces((text,), errors)


def decoded_pieces(
    pieces: Iterable[bytes | bytearray | memoryview], errors: Literal["strict", "replace"] = "strict"
) -> Iterator[str]:
    """Do what `decoded_text` does with text that comes in pieces of any size, which end anywhere."""
    decoder = getincrementaldecoder("utf-8")(errors)
    yield from map(decoder.decode, chain.from_iterable(map(byte_pieces, pieces)))
    yield decoder.decode(b"", final=True)


def in_json(pieces: Iterable[str]) -> Iterator[memoryview]:
    """Iterate over text, which comes in pieces, as it stands in a string of JSON: without quotes."""
    return (memoryview(_encode(piece))[1:-1] for piece in pieces)


def encoded_text(text: bytes | memoryview) -> Iterator[memoryview]:
    """Iterate over text as it stands in a string of JSON, as the codec spells it, without quotes.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    return in_json(decoded_text(text))


def check_utf8(text: bytes | memoryview) -> None:
    """Check that text is UTF-8, in pieces: what it says is not held for that.

    Raises:
        UnicodeDecodeError: it is not.
    """
    if len(text) > PIECE:
        with suppress(UnicodeDecodeError):
            for _ in decoded_text(text):
                pass
            return
    str(text, "utf-8")  # says where in the whole text


def joined(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return pieces as a whole. Each is let go once it was taken, and what there is of the whole is not copied."""
    whole = io.BytesIO()
    whole.writelines(pieces)
    return whole.getvalue()  # the buffer itself


def base64_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Iterate over bytes, which come in pieces, as base64 in pieces."""
    rest = b""
    for piece in pieces:
        known = rest + piece
        whole = len(known) // 3 * 3
        yield b64encode(known[:whole])
        rest = known[whole:]
    yield b64encode(rest)


def base64_size(pieces: Iterable[str]) -> int:
    """Return of how many bytes some base64 is, which comes in pieces; it is not decoded for that."""
    count, end = 0, ""
    for piece in pieces:
        count += len(piece)
        end = (end + piece[-2:])[-2:]
    return count * 3 // 4 - end.count("=")


def base64_bytes(pieces: Iterable[str]) -> Iterator[bytes]:
    """Iterate over the bytes of which some base64 is, which comes in pieces.

    Raises:
        ValueError: it is no base64 (RFC 4648 §4), or not padded.
    """
    rest, is_padded = "", False
    for piece in pieces:
        known = rest + piece
        whole = len(known) // 4 * 4
        digits, rest = known[:whole], known[whole:]
        if (is_padded and known) or digits.endswith("==="):  # which Python takes, as RFC 4648 §3.2 does not
            raise ValueError("there is more than padding at the end")
        yield b64decode(digits, validate=True)
        is_padded |= digits.endswith("=")
    yield b64decode(rest, validate=True)


def base64_text(pieces: Iterable[str]) -> Iterator[str]:
    """Iterate over the text of whose UTF-8 some base64 is, which comes in pieces.

    Raises:
        ValueError: it is no base64 (RFC 4648 §4), or not padded, or what it is of is not UTF-8.
    """
    return decoded_pieces(base64_bytes(pieces))


def is_base64(text: str | Iterable[str]) -> bool:
    """Tell whether a text, or what comes in pieces, is padded base64 (RFC 4648 §4). What it is of is never whole."""
    try:
        for _ in base64_bytes(text_pieces(text) if isinstance(text, str) else text):
            pass
    except ValueError:
        return False
    return True
