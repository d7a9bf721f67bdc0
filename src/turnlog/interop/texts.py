"""Reading somebody else's files: lines and JSON texts as they were written, and what is damaged of them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO

import msgspec

from turnlog.errors import FormatError, os_reason
from turnlog.interop.marked import Marks
from turnlog.model.depth import NESTED_FIELD_DEPTH_MAX, is_deeper
from turnlog.model.pieces import check_utf8
from turnlog.record.files import open_regular

UNKNOWN_TYPE = "unknown"
"""The type that rows without a type are counted as."""

RECOGNIZED_LINES = 20
"""How many lines of a file are looked at to tell its format."""

BOM = b"\xef\xbb\xbf"
"""The byte order mark that may begin a text."""

NOT_BASE64 = "the bytes of a document are not base64: kept as a native block"
"""What is said of a document whose source says that it has base64."""

_TYPE_CHARACTERS_MAX = 60

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
    with opened(path) as file:
        return file.read()


def file_lines(path: Path) -> Iterator[bytes]:
    """Iterate over the lines of a file, as `split_lines` gives them. It is never in memory as a whole.

    What is written to it meanwhile is not read: it may be the rest of the last line.

    Raises:
        FormatError: it cannot be read.
    """
    with opened(path) as file:
        left = os.fstat(file.fileno()).st_size
        if file.read(len(BOM)) == BOM:
            left -= len(BOM)
        else:
            file.seek(0)
        while line := file.readline(left):
            left -= len(line)
            line = _line(line)
            yield line


def split_lines(content: bytes) -> list[bytes]:
    """Split at line feeds, take the carriage returns of CRLF line ends away, and a byte order mark at the start."""
    return [_line(line) for line in io.BytesIO(content.removeprefix(BOM))]


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """Open a file to read.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        if path.is_dir():
            raise FormatError(f"{str(path)!r} is a folder: name a session file in it")
        with open_regular(path, FormatError) as file:
            yield file
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be read: {os_reason(error)}") from error


def _line(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def parsed(line: bytes, marks: Marks) -> tuple[bytes, bool]:
    """Return a line without whitespace outside strings, and whether unpaired surrogates had to be replaced for it.

    Its long strings have marks then.

    Raises:
        DamagedError: it is not JSON in UTF-8, or nested too deeply.
    """
    marked = marks.marked(line)
    # A part of it may stand in content where least is left around it.
    if marked is not None and not is_deeper(marked, NESTED_FIELD_DEPTH_MAX):
        return marked, False
    try:
        check_utf8(line)
    except UnicodeDecodeError as error:
        raise DamagedError(f"not UTF-8 ({error.reason} at byte {error.start})") from error
    if is_deeper(line, NESTED_FIELD_DEPTH_MAX):
        raise DamagedError(f"nested deeper than {NESTED_FIELD_DEPTH_MAX} levels")
    try:
        return msgspec.json.format(line, indent=-1), False
    except msgspec.DecodeError as error:
        paired = _escapes.sub(lambda found: rb"\ufffd" if found[1] else found[0], line)
        try:
            return marks.marked(paired) or msgspec.json.format(paired, indent=-1), True
        except msgspec.DecodeError:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise DamagedError(f"not JSON: {reason[:1].lower()}{reason[1:]}") from error


def depths(text: bytes, depth: int = 0) -> Iterator[int]:
    """Iterate over how deep JSON is nested where a text of it begins, and behind each of its brackets."""
    brackets = _brackets.findall(_strings.sub(b"", text))
    return accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=depth)


def topic_name(type_: str | None) -> str:
    """Return the part of a topic that stands for the type of a row: of a-z, 0-9 and `-` only."""
    name = re.sub(r"[^a-z0-9]+", "-", (type_ or "").lower()).strip("-")
    return name[:_TYPE_CHARACTERS_MAX] or UNKNOWN_TYPE
