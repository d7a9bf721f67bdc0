"""Long strings of somebody else's files: read in pieces, with marks in their place until a payload is written.

A reader works on short texts then, and what is long is held once, as its file has it. What asks for a text by
`text_of`, or for JSON by `whole`, gets what a mark stands for: nobody sees a mark who does not look for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TypeGuard, cast
from weakref import WeakValueDictionary, proxy

import msgspec
from msgspec import Raw

from turnlog.model import JSONValue
from turnlog.model.json_text import UNREADABLE
from turnlog.model.long_strings import LongString, LongStrings, string_pieces
from turnlog.model.pieces import PIECE, check_utf8, decoded_pieces, in_json, is_base64, joined
from turnlog.model.pieces import text_pieces as text_in_pieces

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
        with suppress(*UNREADABLE):
            marked, formatted = self._taken(text)
            return None if marked is text else formatted
        return None

    def of_texts(self, texts: bytes) -> bytes | None:
        """Return JSON texts that follow each other with marks; None where nothing is long, or a string is damaged."""
        with suppress(*UNREADABLE), self._all_or_none():
            marked = self.out_of_json(texts)
            return None if marked is texts else marked
        return None

    def of_text(self, text: str, *, size: int) -> str:
        """Return a mark for a text that is long; else, and where JSON could not have it, the text.

        Args:
            text: the text.
            size: how many bytes all that it is of has.
        """
        if len(text) <= self.short_max(size):
            return text
        try:
            return self._kept(memoryview(joined(chain((b'"',), in_json(text_in_pieces(text)), (b'"',)))))
        except UnicodeEncodeError:  # half of a pair of surrogates
            return text

    def json_in(self, mark: str) -> tuple[bytes, bool] | None:
        """Return the JSON object that a long string says, without whitespace outside strings, with marks.

        Returns:
            The object, and whether it says that without such whitespace; None where it says something else.
        """
        with suppress(*UNREADABLE):
            marked, formatted = self._taken(joined(piece.encode() for piece in self.said_pieces(mark)))
            return (formatted, marked == formatted) if formatted[:1] == b"{" else None
        return None

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
        return self._derived(f"{mark}{start}".encode(), partial(_rest, string, start))

    def around(self, text: str) -> str:
        """Return a mark for a text in which marks stand among other text."""
        own = proxy(self)  # which is not to keep itself
        return self._derived(text.encode(), lambda: own.said_pieces(text))

    def json_text(self, text: bytes) -> str:
        """Return a mark for JSON in which marks stand, as a text."""
        own = proxy(self)
        return self._derived(b"json" + text, lambda: decoded_pieces(own.pieces(text)))

    def _taken(self, text: bytes) -> tuple[bytes, bytes]:
        """Return JSON with marks, and that without whitespace outside strings.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is damaged. Nothing of it has a mark then.
        """
        with self._all_or_none():
            marked = self.out_of_json(text)
            check_utf8(marked)
            formatted = msgspec.json.format(marked, indent=-1)
        return marked, formatted

    @contextmanager
    def _all_or_none(self) -> Generator[None]:
        """Take the marks back that strings get meanwhile where one of these is damaged, or what they are in is.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is.
        """
        first = len(self)
        try:
            yield
            self.check(first)
        except UNREADABLE:
            while len(self) > first:
                self._marks.popitem()
                self._found.pop()
            raise
        finally:
            self._taken_out = None  # which would hold what was read

    def _derived(self, key: bytes, pieces: Callable[[], Iterator[str]]) -> str:
        if key not in self._marks:
            self._marks[key] = super()._kept(pieces)
        return self._marks[key]

    def _kept(self, string: LongString) -> str:
        assert isinstance(string, memoryview)
        digest = sha256(string).digest()
        if digest not in self._marks:
            is_most = 2 * len(string) >= len(memoryview(string.obj))
            self._marks[digest] = super()._kept(string if is_most else memoryview(bytes(string)))  # the rest can go
        return self._marks[digest]


class _Unmarked:
    """JSON without its marks, in pieces that are made each time that it is iterated over."""

    def __init__(self, text: bytes, marks: Marks) -> None:
        self._text = text
        self._marks = marks

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self._marks.pieces(self._text)


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


def is_base64_text(raw: Raw | None) -> bool:
    """Tell whether there is a JSON string of padded base64, as providers take it."""
    return is_text(raw) and is_base64(text_pieces(raw))


def text_pieces(raw: Raw) -> Iterator[str]:
    """Iterate over the text of a JSON string in pieces, which end anywhere."""
    if len(memoryview(raw)) > PIECE:
        return string_pieces(raw)
    text = msgspec.json.decode(raw, type=str)
    marks = _marks_of(text)
    return iter((text,)) if marks is None else marks.said_pieces(text)


def marked_text(raw: Raw | None) -> str | None:
    """Return the text of a JSON string, or the mark for it; None where it is something else."""
    return msgspec.json.decode(raw, type=str) if is_text(raw) else None


def said_pieces(text: str) -> Iterator[str]:
    """Iterate over a text, or what the mark stands for that it is, in pieces, which end anywhere."""
    marks = _marks_of(text)
    return text_in_pieces(text) if marks is None else marks.said_pieces(text)


def is_mark(text: str) -> bool:
    """Tell whether a text is a mark."""
    return _marks_of(text) is not None


def one_mark(text: str) -> str:
    """Return a text; where marks stand in it among other text, one mark for all of it."""
    found = _MARK.search(text)
    marks = None if found is None or found.span() == (0, len(text)) else _files.get(found[1])
    return text if marks is None else marks.around(text)


def json_as_text(raw: Raw) -> str:
    """Return JSON as a text, or a mark for it: what somebody said who was to say a text."""
    marks = _marks_in(bytes(raw))
    return bytes(raw).decode() if marks is None else marks.json_text(bytes(raw))


def json_in(text: str) -> tuple[bytes, bool] | None:
    """Return the JSON object that the long text of a mark says, as `Marks.json_in` does; None for another text."""
    marks = _marks_of(text)
    return None if marks is None else marks.json_in(text)


def digest_of(pieces: Iterable[str]) -> bytes | None:
    """Return what tells a text in pieces from others, without whitespace around it; None where it says nothing."""
    digest, space, is_begun = sha256(), "", False
    for piece in pieces:
        said = piece if is_begun else piece.lstrip()
        is_begun = is_begun or bool(said)
        end = said.rstrip()
        if end:
            digest.update((space + end).encode())
            space = ""
        space += said[len(end) :]
    return digest.digest() if is_begun else None


def unmarked(text: str) -> str:
    """Return what a text is, or the mark stands for that it is."""
    marks = _marks_of(text)
    return text if marks is None else marks.into(text)


def unmarked_value(value: JSONValue) -> JSONValue:
    """Return a value without marks."""
    return _with_texts(value, unmarked) if _files else value


def respelled_value(value: JSONValue) -> JSONValue:
    """Return a value whose marks are of texts that are spelled as the codec does."""
    return _with_texts(value, respelled_text) if _files else value


def same_text(one: str, other: str) -> bool:
    """Tell whether two texts, or what the marks stand for that they are, are the same."""
    if one == other or (_marks_of(one) is None and _marks_of(other) is None):
        return one == other
    return _digest(one) == _digest(other)


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


def in_pieces(text: bytes | Raw) -> Iterable[bytes | memoryview]:
    """Return JSON as its file has it, without marks, in pieces: it can be iterated over as often as is needed."""
    text = bytes(text)
    marks = _marks_in(text)
    return (text,) if marks is None else _Unmarked(text, marks)


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


def _with_texts(value: JSONValue, text: Callable[[str], str]) -> JSONValue:
    """Return a value with something else for each of its texts."""
    match value:
        case str():
            return text(value)
        case dict():
            return {name: _with_texts(inner, text) for name, inner in cast("dict[str, JSONValue]", value).items()}
        case list():
            return [_with_texts(inner, text) for inner in cast("list[JSONValue]", value)]
        case _:
            return value


def _digest(text: str) -> bytes:
    digest = sha256()
    for piece in said_pieces(text):
        digest.update(piece.encode("utf-8", "surrogatepass"))
    return digest.digest()


def _rest(string: memoryview, start: int) -> Iterator[str]:
    for piece in string_pieces(string):
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))
