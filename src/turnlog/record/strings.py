"""The strings of a JSON text: each is looked at where it stands, and all that is not changed keeps its spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Protocol

import msgspec

from turnlog.model.depth import JSON_DEPTH_MAX
from turnlog.model.long_strings import decode_string
from turnlog.model.pieces import PIECE
from turnlog.record.long_texts import LONG_BYTES, Text, json_text

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>"?)|[{}\[\],:]', re.DOTALL)
_SIGN = re.compile(rb"[{}\[\],:]")
_ESCAPES = re.compile(r'\\(?:(?P<short>["\\/bfnrt])|u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*)')
_SHORT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_text = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()

_Change = tuple[int, int, Iterable[bytes | memoryview]]
"""From where to where in a JSON text, and what is to stand there."""

SCHEMA_WORDS = frozenset(
    b'"%b"' % word
    for word in (
        b"type text source media_type data base64 document tool_use tool_result thinking native name input id content "
        b"tool_use_id is_error signature redacted provider api model block role message"
    ).split()
)
"""Keys and types of content blocks, as JSON: nobody has to look at these."""


class Look(Protocol):
    """What looks at strings."""

    def text(self, text: Text, field: str) -> Text:
        """Return what is to stand in the place of a text: most often the text itself, the same object."""
        ...

    def base64(self, text: Text, field: str) -> Text:
        """Return what is to stand in the place of the base64 of a document."""
        ...

    def signature_removed(self, field: str) -> None:
        """Take note that a signature was taken away."""
        ...


class _Level:
    """An object or an array that is open."""

    __slots__ = (
        "changed",
        "field",
        "index",
        "is_object",
        "key",
        "key_start",
        "keys",
        "kind",
        "numbers",
        "signature",
        "signature_changes",
    )

    def __init__(self, field: str, *, is_object: bool) -> None:
        self.field = field
        self.is_object = is_object
        self.index = 0
        self.key: str | None = None
        self.key_start = 0
        self.keys: set[str] = set()
        """Keys that were changed: no two may become the same."""
        self.numbers: dict[str, int] = {}
        """The last number of those that would have become the same, by what that is."""
        self.kind = ""
        self.changed = False
        """Whether the text of thinking, or its signature, was changed."""
        self.signature: tuple[int, int] | None = None
        self.signature_changes = slice(0)
        """Which of the changes are within the signature."""

    def member(self) -> str:
        """Return the name of what comes next in it."""
        if self.is_object:
            return f"{self.field}.{self.key}" if self.field else str(self.key)
        return f"{self.field}[{self.index}]"


def look_at_strings(text: bytes, look: Look, field: str) -> bytes:
    """Return a JSON text with other strings in it, keys included, at any depth.

    What stands as `data` in a `source` is the base64 of a document. Where the text of a `thinking` block is changed, or
    its signature, the block loses the signature: it is that of the text.

    Args:
        text: JSON. Of what is none, the strings are found all the same.
        look: what looks at them.
        field: the name of the text, such as `content`.
    """
    changes: list[_Change] = []
    levels: list[_Level] = [_Level(field, is_object=False)]
    outermost = True  # the text itself, and no member of anything
    for token in _tokens(text):
        level = levels[-1]
        match _token(text, token):
            case b"{" | b"[" as bracket:
                # What is nested deeper than anything that is recorded needs no name, and all names together much room.
                is_named = len(levels) <= JSON_DEPTH_MAX
                name = field if outermost else level.member() if is_named else level.field
                levels.append(_Level(name, is_object=bracket == b"{"))
                outermost = False
            case b"}" | b"]":
                if len(levels) > 1:
                    levels.pop()
                if level.changed and level.signature is not None and level.kind == "thinking":
                    changes[level.signature_changes] = [_cut(text, *level.signature)]
                    look.signature_removed(f"{level.field}.signature")
            case b",":
                level.index += 1
                level.key = None
            case b":":
                pass
            case literal if level.is_object and level.key is None:
                level.key_start = token.start()
                level.key, changed = _key(literal, level, look)
                if changed:
                    changes.append((token.start(), token.end(), (_encoder.encode(level.key),)))
            case literal:
                new = _value(literal, level, levels, look, field if outermost else level.member())
                before = len(changes)
                if new is not None:
                    changes.append((token.start(), token.end(), new))
                    level.changed |= level.key in ("thinking", "signature")
                if level.key == "signature":
                    level.signature = (level.key_start, token.end())
                    level.signature_changes = slice(before, len(changes))
    return _changed(text, changes)


def as_read(text: bytes) -> str:
    """Return a JSON text with what its strings say in their place: no escape is left. What is no JSON stays as it is.

    What comes of it is for reading, and no JSON: quotes are not told apart from those around strings.
    """
    said = text.decode(errors="replace")
    if b"\\" not in text:
        return said
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return said
    except RecursionError:
        pass  # it is nested too deeply to be told
    return _ESCAPES.sub(_escaped, said)


def _escaped(escape: re.Match[str]) -> str:
    """Return what an escape stands for, or several of UTF-16 one behind the other; U+FFFD for half of a pair."""
    short = escape["short"]
    if short is not None:
        return _SHORT_ESCAPES.get(short, short)
    return bytes.fromhex(escape[0].replace("\\u", "")).decode("utf-16-be", errors="replace")


def _tokens(text: bytes) -> Iterator[re.Match[bytes]]:
    """Give the strings of a JSON text, and the signs between them."""
    for token in _TOKEN.finditer(text):
        if token["end"] == b"":
            # It has no end, and so has none that begins behind it: each would be looked for to the end of the text.
            yield from _SIGN.finditer(text, token.start())
            return
        yield token


def _token(text: bytes, token: re.Match[bytes]) -> bytes | memoryview:
    """Return a token: of a long string no copy."""
    start, end = token.span()
    return token[0] if end - start <= PIECE else memoryview(text)[start:end]


def _key(literal: bytes | memoryview, level: _Level, look: Look) -> tuple[str, bool]:
    if isinstance(literal, bytes) and literal in SCHEMA_WORDS:
        return literal[1:-1].decode(), False
    key = str(_decoded(literal))
    new = str(look.text(key, f"{level.field} (a key)"))
    if new == key:
        return key, False
    number = level.numbers.get(new, 1)
    unique = new if number == 1 else f"{new} {number}"
    while unique in level.keys:
        number += 1
        unique = f"{new} {number}"
    level.keys.add(unique)
    level.numbers[new] = number
    return unique, True


def _value(
    literal: bytes | memoryview, level: _Level, levels: list[_Level], look: Look, field: str
) -> Iterable[bytes | memoryview] | None:
    """Return what is to stand in the place of a string, in pieces; None for itself."""
    if level.key == "type" and isinstance(literal, bytes) and literal in SCHEMA_WORDS:
        level.kind = literal[1:-1].decode()
        return None
    is_source = level.key == "data" and len(levels) > 2 and levels[-2].key == "source"
    see: Callable[[Text, str], Text] = look.base64 if is_source else look.text
    value = _decoded(literal)
    new = see(value, field)
    if new is value or new == value:
        return None
    return (_encoder.encode(new),) if isinstance(new, str) else new.json()


def _decoded(literal: bytes | memoryview) -> Text:
    if isinstance(literal, memoryview) and len(literal) >= LONG_BYTES:
        text = json_text(literal)
        if text is not None:
            return text
    if isinstance(literal, memoryview):
        try:
            return decode_string(literal)
        except (msgspec.DecodeError, UnicodeDecodeError):
            literal = bytes(literal)
    if b"\\" not in literal:
        return literal[1:-1].decode(errors="replace")
    try:
        return _text.decode(literal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # An unpaired surrogate, which is no text: what stands beside it may be one.
        try:
            return _text.decode(_SURROGATE.sub(rb"\\ufffd", literal))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return literal[1:-1].decode(errors="replace")


def _cut(text: bytes, start: int, end: int) -> _Change:
    """Return the change that takes a member of an object away, with the comma on one side of it."""
    after, before = end, start
    while text[after : after + 1].isspace():
        after += 1
    if text[after : after + 1] == b",":
        return start, after + 1, ()
    while text[before - 1 : before].isspace():
        before -= 1
    return before - 1 if text[before - 1 : before] == b"," else start, end, ()


def _changed(text: bytes, changes: list[_Change]) -> bytes:
    if not changes:
        return text
    file = BytesIO()
    at = 0
    for start, end, new in sorted(changes, key=lambda change: change[:2]):
        file.write(memoryview(text)[at:start])
        file.writelines(new)
        at = end
    file.write(memoryview(text)[at:])
    return file.getvalue()  # the buffer itself, and not a copy of it
