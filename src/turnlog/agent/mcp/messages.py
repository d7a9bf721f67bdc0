"""Messages of MCP servers, read so that other threads go on meanwhile, and no more of one than is wanted.

A codec does a message in one call, in which no other thread goes on, and what it makes of one with very many parts
keeps the garbage collector at work. So the parts of a long message stay JSON text, each as `Raw`, and so does
structured content: whoever wants one reads it. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter
from msgspec import Raw

from turnlog.agent.half_pairs import odd_json
from turnlog.agent.mcp.content import STRUCTURED
from turnlog.executors import of_process
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE
from turnlog.model.surrogates import without_halves

Incoming = SessionMessage | Exception
"""A message, or why a text is none."""

PARTS = frozenset({"content", "contents", "messages", "prompts", "resources", "resourceTemplates", "tools"})
"""Keys of results for lists that may be long."""

SHORT = 32 * 1024
"""A message of so many bytes at most is read in the event loop, and with all its parts."""

_fields = msgspec.json.Decoder(dict[str, Raw])
_parts = msgspec.json.Decoder(list[Raw])

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_inside = rb'(?:[^\[\]{}"]++|%b)*+' % _STRING
for _ in range(2):
    _inside = rb'(?:[^\[\]{}"]++|%b|[\[{]%b[\]}])*+' % (_STRING, _inside)
_ITEMS = re.compile(rb'(?:(?:[^\[\]{}",]++|%b|[\[{]%b[\]}])++,)*+' % (_STRING, _inside), re.DOTALL)
"""Items of a list that are nested no more than three deep, each with the comma behind it."""

_MARKS = re.compile(rb"[\[\]{},]|%b" % _STRING, re.DOTALL)
"""What tells where an item ends."""


def message_of(text: bytes | bytearray) -> Incoming:
    """Return the message that JSON text is, or why it is none. See `json_of` for a long one."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(json_of(text), by_name=False))
    except (ValueError, RecursionError) as error:
        return error


async def arrived(text: bytes | bytearray) -> Incoming:
    """Return the message that JSON text is, which a thread reads where it is long."""
    return message_of(text) if len(text) <= SHORT else await of_process().run_read(message_of, text)


def json_of(text: bytes | bytearray) -> Any:
    """Return a message as JSON values. U+FFFD stands for half of a surrogate pair, and for bytes that are no UTF-8.

    The parts of a long result, and its structured content, are `Raw`: but for a part with a long string, which is read.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    for spelled in (lambda: text, lambda: without_halves(text)):
        try:
            return _json_of(spelled())
        except (ValueError, RecursionError):
            continue
    return odd_json(text)


def _json_of(text: bytes | bytearray) -> Any:
    long = LongStrings()
    text = long.out_of_json(text)
    fields = _fields.decode(text) if len(text) > SHORT else {}
    result = _fields.decode(fields["result"]) if bytes(fields.get("result", b""))[:1] == b"{" else {}
    if result.keys().isdisjoint({*PARTS, STRUCTURED}):
        return long.into(msgspec.json.decode(text))
    read: dict[str, Any] = {name: long.into(msgspec.json.decode(fields[name])) for name in fields if name != "result"}
    return read | {"result": {name: _read(name, value, long) for name, value in result.items()}}


def _read(name: str, value: Raw, long: LongStrings) -> Any:
    text = bytes(value)
    if name in PARTS and text[:1] == b"[":
        return [long.into(msgspec.json.decode(part)) if long.is_in(part) else part for part in _items(text)]
    if name == STRUCTURED and len(text) > PIECE:
        return long.into(value)
    return long.into(msgspec.json.decode(value))


def _items(text: bytes) -> Iterator[Raw]:
    """Iterate over the items of a list in JSON text, which are read some at a time."""
    place = 1
    while len(text) - place > PIECE:
        found = _ITEMS.match(text, place, place + PIECE)
        end = _end_of_item(text, place) if found is None or found.end() == place else found.end()
        if end == len(text):
            break
        yield from _parts.decode(b"[%b]" % text[place : end - 1])
        place = end
    yield from _parts.decode(b"[%b" % text[place:])


def _end_of_item(text: bytes, place: int) -> int:
    """Return the place behind an item and its comma; of the last one the end of the text."""
    depth = 0
    for found in _MARKS.finditer(text, place):
        match found[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b"," if depth == 0:
                return found.end()
            case _:
                pass
    return len(text)
