"""Long strings of JSON, read and written in pieces.

A codec does all of a string in one call, in which no other thread goes on, and it holds one with escapes twice. Here
long strings are taken out, marks put in their place, and what is left is for the codec. A string goes back piece by
piece. What it says, and whether it is one, is the codec's to tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple, TypeVar, cast
from weakref import proxy

import msgspec
from msgspec import Raw, Struct

from turnlog.model.pieces import PIECE, base64_size, decoded_pieces, in_json, joined, text_pieces

_LARGE = 16 * PIECE
"""In JSON of more bytes a string is long from fewer on: it may have tens of thousands that are not."""

_LARGE_PIECE = 4 * 1024
"""How many bytes of JSON a string may have there without being long."""

_PIECES_MAX = 32
"""A string that is put together has no more pieces: the first ones cost a copy each of what is read before them."""

_SHORT = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""Strings that end, each with what is before it."""

_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""What goes on with a string."""

_COLON = re.compile(rb"[ \t\r\n]*:")

_CUT = re.compile(rb"[^\\](?:(?=\\(?!u[dD][c-fC-F]))|[^\\]{5}(?=[^\\\x80-\xbf]))")
"""Ends between two characters.

A backslash behind something else begins an escape, which is a character unless it is the second of a pair. Where none
was in the last six bytes, none goes on; and no byte goes on with a character of UTF-8.
"""

_T = TypeVar("_T", bound=bytes | bytearray)


class _AsSpelled(NamedTuple):
    """A string of JSON, or JSON of another kind, that goes into other JSON as it is spelled."""

    json: memoryview


LongString = str | memoryview | _AsSpelled | Callable[[], Iterator[str]]
"""A long string: a text, a string of JSON, or what makes the pieces of a text each time that it is called."""

_MARK = token_hex(16)  # nobody can have written it
_numbers = count()

_encode = msgspec.json.Encoder().encode


class LongStrings:
    """The long strings of some JSON, or of a value that is to be JSON, for which marks stand in it.

    Attributes:
        json_bytes_max: how many bytes of JSON, with quotes, a string of JSON has that is not long; in very large JSON
            it has fewer.
        with_keys: whether marks stand for long keys of JSON too.
    """

    json_bytes_max: ClassVar = PIECE
    with_keys: ClassVar = True

    def __init__(self) -> None:
        """Have none yet."""
        self._mark = f"{_MARK}-{next(_numbers)}-"  # there may be marks of others too
        self._found: list[LongString] = []
        self._taken_out: tuple[bytes, bytes | bytearray] | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def is_in(self, text: str | bytes | Raw) -> bool:
        """Return whether the mark of one is in a text, or in JSON."""
        if not self._found:
            return False
        return self._mark in text if isinstance(text, str) else self._mark.encode() in bytes(text)

    def short_max(self, size: int) -> int:
        """Return how many bytes of JSON, with quotes, a string has that is not long, in JSON of so many bytes."""
        return min(self.json_bytes_max, _LARGE_PIECE) if size > _LARGE else self.json_bytes_max

    def out_of_json(self, text: _T) -> _T | bytes:
        """Return JSON with marks in place of its long strings."""
        if len(text) <= self.json_bytes_max:
            return text
        view, parts, place = memoryview(text), list[bytes | memoryview](), 0
        for start, end in _long(text, self.short_max(len(text))):
            if not self.with_keys and _COLON.match(text, end):
                continue
            parts += (view[place:start], b'"%b"' % self._kept(view[start:end]).encode())
            place = end
        if not parts:
            return text
        marked = b"".join((*parts, view[place:]))
        self._taken_out = marked, text
        return marked

    def into_json(self, text: bytes) -> bytes:
        """Return JSON with the long strings in place of their marks: what they were taken out of, where that is it.

        Raises:
            UnicodeEncodeError: one has half of a pair of surrogates.
        """
        if not self._found:
            return text
        if self._taken_out is not None and self._taken_out[0] == text:
            return bytes(self._taken_out[1])  # the very bytes, and no copy of them
        return joined(self.pieces(text))

    def pieces(self, text: bytes) -> Iterator[bytes | memoryview]:
        """Iterate over JSON with the long strings in place of their marks, in pieces.

        Raises:
            UnicodeEncodeError: one has half of a pair of surrogates.
        """
        place, mark = 0, b'"%b' % self._mark.encode()
        while (start := text.find(mark, place)) >= 0:
            yield memoryview(text)[place:start]
            place = text.index(b'"', start + 1) + 1
            yield from _spelled(self._found[int(text[start + len(mark) : place - 2])])
        yield memoryview(text)[place:]

    def encoded_into(self, text: bytes, before: bytes = b"") -> bytes:
        """Return what `encoded_pieces` has, as a whole, with something before it. Raises what that raises."""
        return joined(chain((before,), self.encoded_pieces(text)))

    def encoded_pieces(self, text: bytes | memoryview) -> Iterator[memoryview]:
        """Iterate over JSON with what the long strings say in place of their marks, spelled as the codec does.

        A mark may stand in a string among other text. The strings are held neither decoded nor twice.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: one is no string to the codec.
            UnicodeEncodeError: one has half of a pair of surrogates.
        """
        place = 0
        for mark in re.finditer(rb"%b(\d+);" % self._mark.encode(), text):
            yield memoryview(text)[place : mark.start()]
            yield from _encoded(self._found[int(mark[1])])
            place = mark.end()
        yield memoryview(text)[place:]

    def check(self, first: int = 0) -> None:
        """Check that each is a string to the codec, from one of them on: what they say is not held for that.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: one is not.
        """
        for string in self._found[first:]:
            if not isinstance(string, str):
                for _ in _long_pieces(string):
                    pass

    def is_blank(self, mark: str) -> bool:
        """Return whether the long string of a mark is whitespace alone.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: it is no string to the codec.
        """
        return not any(piece.strip() for piece in _long_pieces(self._found[self._number(mark)]))

    def bytes_of_base64(self, text: str) -> int:
        """Return of how many bytes some base64 is, for which a mark may stand.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: it is no string to the codec.
        """
        return base64_size(self.said_pieces(text))

    def is_mark(self, text: str) -> bool:
        """Return whether a text is the mark of one."""
        return text.startswith(self._mark)

    def taken_over(self, other: LongStrings, mark: str) -> str:
        """Return a mark for the long string of a mark of others."""
        return self._kept(other._found[other._number(mark)])

    def json_kept(self, text: memoryview) -> bytes:
        """Return a mark, as JSON, for JSON of any kind: it is written as it is spelled."""
        return b'"%b"' % self._kept(_AsSpelled(text)).encode()

    def json_taken_over(self, other: LongStrings, text: bytes) -> bytes:
        """Return JSON in which marks of others stand with own ones: it is written as it is spelled."""

        def taken(found: re.Match[bytes]) -> bytes:
            string = other._found[int(found[1])]
            assert isinstance(string, memoryview)
            return self._kept(_AsSpelled(string)).encode()

        return re.sub(rb"%b(\d+);" % other._mark.encode(), taken, text)

    def json_as_text(self, text: bytes, *, indent: int | None = None) -> str:
        """Return JSON as a text, or where marks stand in it a mark for that.

        Args:
            text: JSON.
            indent: how many spaces to indent it by; None to leave it as it is.
        """
        formatted = text if indent is None else msgspec.json.format(text, indent=indent)
        if not self.is_in(formatted):
            return formatted.decode()
        own = proxy(self)  # which is not to keep itself
        return self.made_of(lambda: decoded_pieces(own.pieces(formatted)))

    def made_of(self, pieces: Callable[[], Iterator[str]]) -> str:
        """Return a mark for a text that is never whole: what makes its pieces is called whenever it is asked for."""
        return self._kept(pieces)

    def out_of(self, value: Any, said: LongStrings | None = None) -> Any:
        """Return a value with marks in place of its long strings: a struct, or what JSON is made of.

        Args:
            value: the value.
            said: others, whose marks may stand in it: a string with one of these stays.
        """

        def marked(text: str) -> str:
            return self._kept(text) if len(text) > PIECE and not (said and said.is_in(text)) else text

        return self._changed(value, marked)

    def into(self, value: Any) -> Any:
        """Return a value with the long strings in place of their marks: a struct, or what JSON is made of.

        A string of the value may have other text behind a mark.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: one is no string to the codec.
        """
        return self._changed(value, self._said) if self._found else value

    def said_pieces(self, text: str) -> Iterator[str]:
        """Iterate over what a text says in which marks may stand, in pieces that end anywhere.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: a long string is no string to the codec.
        """
        place = 0
        while self._found and (start := text.find(self._mark, place)) >= 0:
            if start > place:
                yield text[place:start]
            place = text.index(";", start) + 1
            yield from _long_pieces(self._found[self._number(text[start:place])])
        if place < len(text) or not text:
            yield text[place:]

    def _kept(self, string: LongString) -> str:
        self._found.append(string)
        return f"{self._mark}{len(self._found) - 1};"

    def _number(self, mark: str) -> int:
        return int(mark.removeprefix(self._mark).removesuffix(";"))

    def _said(self, text: str) -> str:
        if not self.is_mark(text):
            return text
        mark, _, behind = text.partition(";")
        string = self._found[self._number(mark)]
        match string:
            case str():
                return string + behind
            case memoryview() | _AsSpelled():
                return decode_string(_json_of(string)) + behind
            case _:
                return "".join(string()) + behind

    def _changed(self, value: Any, text_of: Callable[[str], str]) -> Any:
        match value:
            case str():
                return text_of(value)
            case Raw():
                raw = bytes(value)
                return Raw(self.into_json(raw)) if self.is_in(raw) else value
            case dict():
                fields = cast("dict[Any, Any]", value)
                return {self._changed(name, text_of): self._changed(inner, text_of) for name, inner in fields.items()}
            case list() | tuple():
                return [self._changed(inner, text_of) for inner in cast("Sequence[Any]", value)]
            case Struct():
                changes = {name: self._changed(getattr(value, name), text_of) for name in value.__struct_fields__}
                return msgspec.structs.replace(value, **changes)
            case _:
                return value


def json_pieces(
    value: Any, *, indent: int | None = None, said: LongStrings | None = None
) -> Iterator[bytes | memoryview]:
    """Iterate over a value as JSON, as the codec writes it, in pieces: its long strings are held once.

    Args:
        value: what JSON is made of, structs, and raw JSON.
        indent: how many spaces to indent it by; None for no whitespace.
        said: long strings whose marks stand in its strings, and are to be replaced by what these say.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: one of `said` is no string to the codec.
        UnicodeEncodeError: a string has half of a pair of surrogates.
    """
    long = LongStrings()
    with suppress(RecursionError):  # what is nested so deeply is for the codec alone
        value = long.out_of(value, said)
    text = long.out_of_json(_encode(value))
    pieces = long.pieces(text if indent is None else msgspec.json.format(text, indent=indent))
    return chain.from_iterable(map(said.encoded_pieces, pieces)) if said else pieces


def _long_pieces(string: LongString) -> Iterator[str]:
    """Iterate over what a long string says, in pieces that end anywhere, but not between CR and LF of a text.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it is no string to the codec.
    """
    match string:
        case str():
            return text_pieces(string)
        case memoryview() | _AsSpelled():
            return _decoded_pieces(_json_of(string)[1:-1])
        case _:
            return string()


def _json_of(string: memoryview | _AsSpelled) -> memoryview:
    return string if isinstance(string, memoryview) else string.json


def _spelled(string: LongString) -> Iterator[bytes | memoryview]:
    """Iterate over a string as JSON has it."""
    if isinstance(string, memoryview | _AsSpelled):
        yield _json_of(string)
        return
    yield b'"'
    yield from _encoded(string)
    yield b'"'


def _encoded(string: LongString) -> Iterator[memoryview]:
    """Iterate over what a string says as the codec spells it, without quotes, or as it is spelled."""
    return iter((string.json[1:-1],)) if isinstance(string, _AsSpelled) else in_json(_long_pieces(string))


def has_long_string(value: Any) -> bool:
    """Return whether there is a long string in a value: a struct, or what JSON is made of."""
    match value:
        case str():
            return len(value) > PIECE
        case dict():
            return any(map(has_long_string, cast("dict[Any, Any]", value).values()))
        case list() | tuple():
            return any(map(has_long_string, cast("Sequence[Any]", value)))
        case Struct():
            return any(map(has_long_string, msgspec.structs.astuple(value)))
        case _:
            return False


def _long(text: bytes | bytearray, json_bytes_max: int) -> Iterator[tuple[int, int]]:
    """Iterate over the places of the long strings in JSON, with their quotes."""
    place = 0
    while len(text) - place > json_bytes_max:
        found = _SHORT.match(text, place, place + json_bytes_max)
        if found is not None and found.end() > place:
            place = found.end()
            continue
        start = text.find(b'"', place)
        end = text.find(b'"', start + 1) if start >= 0 else -1
        while end >= 0 and _is_escaped(text, end):
            more = _INSIDE.match(text, end + 1, end + 1 + json_bytes_max)
            end = text.find(b'"', end + 1 if more is None else more.end())
        if end < 0:
            return  # there is no string, or what is no JSON
        place = end + 1
        if place - start > json_bytes_max:
            yield start, place


def _is_escaped(text: bytes | bytearray, place: int) -> bool:
    size = 64
    while not (before := text[max(0, place - size) : place]).rstrip(b"\\") and size < place:
        size *= 2
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def decode_string(string: bytes | memoryview) -> str:
    """Return what a JSON string says, which is as a rule a long one.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it is no string to the codec.
    """
    said = ""
    for piece in _decoded_pieces(memoryview(string)[1:-1], len(string) // _PIECES_MAX):
        said += piece  # in a loop of this form CPython makes it longer where it stands, and so without a copy
    return said


def string_pieces(string: bytes | memoryview) -> Iterator[str]:
    """Iterate over what a JSON string says, which is as a rule a long one, in pieces that end anywhere.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it is no string to the codec.
    """
    return _decoded_pieces(memoryview(string)[1:-1])


def _decoded_pieces(inside: memoryview, size_min: int = 0) -> Iterator[str]:
    start, step = 0, max(PIECE, size_min)
    while start < len(inside):
        cut = _CUT.search(inside, start + step)
        end = len(inside) if cut is None else cut.end()
        yield msgspec.json.decode(b'"%b"' % inside[start:end], type=str)
        start = end
