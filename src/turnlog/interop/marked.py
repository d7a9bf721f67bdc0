"""Long strings of somebody else's files: read in pieces, with marks in their place until a payload is written.

A reader works on short texts then, and what is long is held once, as its file has it. What asks for a text by
`text_of`, or for JSON by `whole`, gets what a mark stands for: nobody sees a mark who does not look for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import TypeGuard
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from turnlog.model.long_strings import LongStrings, check_utf8, string_pieces

_MARK = re.compile(r"([0-9a-f]{32}-[0-9]+-)[0-9]+;")
_MARK_IN_JSON = re.compile(rb'"([0-9a-f]{32}-[0-9]+-)[0-9]+;"')

_files: WeakValueDictionary[str, Marks] = WeakValueDictionary()
"""The long strings of each file that is in memory, by what their marks begin with: nobody can have written that."""

_encode = msgspec.json.Encoder().encode


class Marks(LongStrings):
    """The long strings of a file, but for keys. A string has one mark: JSON is equal where it is without marks.

    Whoever holds JSON with marks holds these too.
    """

    with_keys = False

    def __init__(self) -> None:
        """Have none yet."""
        super().__init__()
        self._marks: dict[bytes, str] = {}
        _files[self._mark] = self

    def marked(self, text: bytes) -> bytes | None:
        """Return JSON with marks, without whitespace outside strings; None where nothing is long, or it is damaged."""
        if len(text) <= self.json_bytes_max:
            return None
        first = len(self)
        try:
            marked = self.out_of_json(text)
            self._taken_out = None  # which would hold the text
            if marked is text:
                return None
            check_utf8(marked)
            formatted = msgspec.json.format(marked, indent=-1)
            self.check(first)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            while len(self) > first:  # what was not checked has no mark
                self._marks.popitem()
                self._found.pop()
            return None
        return formatted

    def rest_of(self, mark: str, start: int) -> str:
        """Return a mark for what a long string says from one of its characters on, spelled as the codec does.

        Args:
            mark: a mark.
            start: how many characters to leave out; 0 where it is the mark of such a rest.
        """
        string = self._found[self._number(mark)]
        if not isinstance(string, memoryview):
            assert start == 0
            return mark
        named = f"{mark}{start}".encode()
        if named not in self._marks:
            self._marks[named] = super()._kept(partial(_rest, string, start))
        return self._marks[named]

    def _kept(self, string: str | memoryview | Callable[[], Iterator[str]]) -> str:
        assert isinstance(string, memoryview)
        digest = sha256(string).digest()
        if digest not in self._marks:
            self._marks[digest] = super()._kept(memoryview(bytes(string)))  # all around it can go
        return self._marks[digest]


def begins(raw: Raw | None, byte: bytes) -> TypeGuard[Raw]:
    """Tell whether there is JSON that begins with a byte. It may be all of a file, and is not copied."""
    return raw is not None and bytes(memoryview(raw)[:1]) == byte


def is_text(raw: Raw | None) -> TypeGuard[Raw]:
    """Tell whether there is a JSON string."""
    return begins(raw, b'"')


def says(raw: Raw | None) -> TypeGuard[Raw]:
    """Tell whether there is a JSON string that is not empty."""
    return is_text(raw) and len(memoryview(raw)) > len('""')


def text_of(raw: Raw | None) -> str | None:
    """Return the text of a JSON string, or None where it is something else."""
    return "".join(text_pieces(raw)) if is_text(raw) else None


def text_pieces(raw: Raw) -> Iterator[str]:
    """Iterate over the text of a JSON string in pieces, which end anywhere."""
    text = msgspec.json.decode(raw, type=str)
    marks = _marks_of(text)
    return iter((text,)) if marks is None else marks.said_pieces(text)


def unmarked(text: str) -> str:
    """Return what a text is, or the mark stands for that it is."""
    marks = _marks_of(text)
    return text if marks is None else marks.into(text)


def respelled_text(text: str) -> str:
    """Return a text; for the mark that it is one of the same text, which is spelled as the codec does."""
    marks = _marks_of(text)
    return text if marks is None else marks.rest_of(text, 0)


def respelled(raw: Raw) -> Raw:
    """Return a JSON string as the codec spells it."""
    return Raw(_encode(respelled_text(msgspec.json.decode(raw, type=str))))


def data_url(raw: Raw | None) -> tuple[str, Raw] | None:
    """Return what a `data:` URL in base64 says before its data (RFC 2397 §2), and the data as a JSON string."""
    if not is_text(raw):
        return None
    text = msgspec.json.decode(raw, type=str)
    marks = _marks_of(text)
    beginning = text if marks is None else next(marks.said_pieces(text))
    head, comma, data = beginning.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    rest = data if marks is None else marks.rest_of(text, len(head) + 1)
    return head.removeprefix("data:").removesuffix(";base64"), Raw(_encode(rest))


def pieces(text: bytes | Raw) -> Iterator[bytes | memoryview]:
    """Iterate over JSON as its file has it, without marks, in pieces."""
    text = bytes(text)
    marks = _marks_in(text)
    return iter((text,)) if marks is None else marks.pieces(text)


def whole(text: bytes | Raw) -> bytes:
    """Return JSON as its file has it, without marks."""
    text = bytes(text)
    marks = _marks_in(text)
    return text if marks is None else marks.into_json(text)


def _marks_in(text: bytes) -> Marks | None:
    """Return whose marks are in JSON: those of one file. What looks like one can be text."""
    found = (_files.get(mark[1].decode()) for mark in _MARK_IN_JSON.finditer(text))
    return next((each for each in found if each is not None), None)


def _marks_of(text: str) -> Marks | None:
    """Return whose mark a text is; None for another text."""
    found = _MARK.fullmatch(text)
    return None if found is None else _files.get(found[1])


def _rest(string: memoryview, start: int) -> Iterator[str]:
    for piece in string_pieces(string):
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))
