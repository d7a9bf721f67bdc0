"""Streams of type `application/vnd.amazon.eventstream`, as a server writes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from zlib import crc32

import msgspec
from tests.wires.server import Answer


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message; the values of its headers are texts."""
    written = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    return framed(written, payload)


def framed(headers: bytes, payload: bytes) -> bytes:
    """Return one message of headers that are written already."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    checked = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return checked + struct.pack(">I", crc32(checked))


def event(raw: bytes) -> bytes:
    """Return the message of a raw event `{"TYPE": PAYLOAD}`; what is none has a payload that cannot be read."""
    try:
        [(name, payload)] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()
    except (msgspec.DecodeError, ValueError):
        return message({":event-type": "contentBlockDelta", ":message-type": "event"}, raw)
    kind = "exception" if name.endswith("Exception") else "event"
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return message(headers, bytes(payload))


def eventstream(events: Sequence[bytes], *, cut: bool = False, hang: bool = False) -> Answer:
    """Return the answer of a stream of raw events; see `server.stream`."""
    headers = {"content-type": "application/vnd.amazon.eventstream"}
    return Answer(headers=headers, chunks=[event(raw) for raw in events], cut=cut, hang=hang)
