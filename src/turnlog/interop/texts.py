"""Reading somebody else's files: lines and JSON texts as they were written, and what is damaged of them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from turnlog.errors import FormatError
from turnlog.model.long_strings import check_utf8
from turnlog.record.files import open_regular

UNKNOWN_TYPE = "unknown"
"""The type that rows without a type are counted as."""

RECOGNIZED_LINES = 20
"""How many lines of a file are looked at to tell its format."""

_TYPE_CHARACTERS_MAX = 60
_DEPTH_MAX = 500
"""JSON that is nested deeper is taken for damage: what reads it later may have less room than this."""

# Escapes are read from left to right, so that the second half of a pair, or what follows an escaped backslash, is never
# taken for an escape of its own.
_escapes = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_strings = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_brackets = re.compile(rb"[\[{}\]]")


class DamagedError(Exception):
    """Say why a text cannot be read."""


def file_bytes(path: Path) -> bytes:
    """Return what a file has.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        if path.is_dir():
            raise FormatError(f"{str(path)!r} is a folder: name a session file in it")
        with open_regular(path, FormatError) as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{str(path)!r} cannot be read: {str(reason).lower()}") from error


def split_lines(content: bytes) -> list[bytes]:
    """Split at line feeds, take the carriage returns of CRLF line ends away, and a byte order mark at the start."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def parsed(line: bytes) -> tuple[bytes, bool]:
    """Return a line without whitespace outside strings, and whether unpaired surrogates had to be replaced for it.

    Raises:
        DamagedError: it is not JSON in UTF-8, or nested too deeply.
    """
    try:
        check_utf8(line)
    except UnicodeDecodeError as error:
        raise DamagedError(f"not UTF-8 ({error.reason} at byte {error.start})") from error
    if _depth(line) > _DEPTH_MAX:
        raise DamagedError(f"nested deeper than {_DEPTH_MAX} levels")
    try:
        return msgspec.json.format(line, indent=-1), False
    except msgspec.DecodeError as error:
        paired = _escapes.sub(lambda found: rb"\ufffd" if found[1] else found[0], line)
        try:
            return msgspec.json.format(paired, indent=-1), True
        except msgspec.DecodeError:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise DamagedError(f"not JSON: {reason[:1].lower()}{reason[1:]}") from error


def _depth(line: bytes) -> int:
    """Return how deep a JSON text is nested, or a bound for it that is small enough."""
    if (bound := line.count(b"[") + line.count(b"{")) <= _DEPTH_MAX:
        return bound
    depth = deepest = 0
    for bracket in _brackets.findall(_strings.sub(b"", line)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def topic_name(type_: str | None) -> str:
    """Return the part of a topic that stands for the type of a row: of a-z, 0-9 and `-` only."""
    name = re.sub(r"[^a-z0-9]+", "-", (type_ or "").lower()).strip("-")
    return name[:_TYPE_CHARACTERS_MAX] or UNKNOWN_TYPE
