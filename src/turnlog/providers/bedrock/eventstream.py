"""Streams of type `application/vnd.amazon.eventstream`, cut into events.

A message is its length and that of its headers (4 bytes each), a CRC32 of these, the headers, the payload, and a CRC32
of all before (https://smithy.io/2.0/aws/amazon-eventstream.html). Numbers have the most significant byte first.
"""

from __future__ import annotations

import struct
from zlib import crc32

from turnlog.providers.body import encode

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""The longest message that is waited for."""

DAMAGED = "DamagedStream"
"""The code of the error event that stands for what cannot be cut. It is turnlog's own."""

_PRELUDE = struct.Struct(">III")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of the value of a header, by its type."""

_WITH_LENGTH = (6, 7)
"""The types of headers whose value has its length before it: bytes, and text."""


class _Damage(Exception):  # noqa: N818 - a signal inside this module, and no error
    """What came is no message; says why."""


class EventStreamBytes:
    """Cuts bytes into events, each as `{"EVENT-TYPE": PAYLOAD}` with the payload as it came.

    Exceptions are events of their type. An error, and what is no message, are an event `error` with code and message.
    Behind damage nothing can be cut any more: the rest is passed over.
    """

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._rest = bytearray()
        self._damaged = False

    def add(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the events that end in them."""
        if self._damaged:
            return []
        self._rest += chunk
        events: list[bytes] = []
        try:
            while (event := self._next()) is not None:
                events.append(event)
        except _Damage as damage:
            events.append(self._damage(str(damage)))
        return events

    def end(self) -> list[bytes]:
        """Return an error where the stream ended within a message."""
        return [self._damage("the stream ended within a message")] if self._rest else []

    def _damage(self, why: str) -> bytes:
        self._damaged = True
        self._rest.clear()
        return encode({"error": {"code": DAMAGED, "message": why}})

    def _next(self) -> bytes | None:
        """Return the next event, None where it has not come as a whole.

        Raises:
            _Damage: what came is no message.
        """
        rest = self._rest
        if len(rest) < _PRELUDE.size:
            return None
        length, headers_length, checksum = _PRELUDE.unpack_from(rest)
        if crc32(rest[: _PRELUDE.size - _CRC.size]) != checksum:
            raise _Damage("the lengths of a message do not have their checksum")
        if not _PRELUDE.size + headers_length + _CRC.size <= length <= MESSAGE_BYTES_MAX:
            raise _Damage(f"a message of {length:,} bytes, {headers_length:,} of them headers")
        if len(rest) < length:
            return None
        message = bytes(rest[:length])
        del rest[:length]
        if crc32(message[: -_CRC.size]) != _CRC.unpack(message[-_CRC.size :])[0]:
            raise _Damage("a message does not have its checksum")
        payload_at = _PRELUDE.size + headers_length
        return _event(_headers(message[_PRELUDE.size : payload_at]), message[payload_at : -_CRC.size])


def _event(headers: dict[str, str], payload: bytes) -> bytes:
    kind = headers.get(":message-type", "event")
    if kind == "error":
        code, message = headers.get(":error-code", "Unknown"), headers.get(":error-message", "")
        return encode({"error": {"code": code, "message": message}})
    name = headers.get(":exception-type" if kind == "exception" else ":event-type", kind)
    return b"{" + encode(name) + b":" + (payload or b"{}") + b"}"


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers whose values are text.

    Raises:
        _Damage: they are no headers.
    """
    headers: dict[str, str] = {}
    place = 0
    try:
        while place < len(data):
            name_at = place + 1
            kind_at = name_at + data[place]
            kind, place = data[kind_at], kind_at + 1
            if kind in _WITH_LENGTH:
                size = _LENGTH.unpack_from(data, place)[0]
                place += _LENGTH.size
            else:
                size = _SIZES[kind]
            if place + size > len(data):
                raise _Damage("a header is longer than all of them")
            if kind == 7:
                headers[data[name_at:kind_at].decode()] = data[place : place + size].decode()
            place += size
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise _Damage("a message has headers that cannot be read") from error
    return headers
