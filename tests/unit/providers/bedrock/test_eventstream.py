"""Cutting a stream of type `application/vnd.amazon.eventstream` into raw events."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.providers.bedrock.wire import STREAM
from tests.wires.eventstream import event, framed, message

from turnlog.providers.bedrock.eventstream import MESSAGE_BYTES_MAX, EventStreamBytes

ALL = b"".join(map(event, STREAM))
CUT = "the stream ended within a message"


def cut(*chunks: bytes) -> list[bytes]:
    """Return the events in chunks of a stream."""
    cutter = EventStreamBytes()
    return [found for chunk in chunks for found in cutter.add(chunk)] + cutter.end()


def damage(why: str) -> bytes:
    """Return the event that stands for damage."""
    return json.dumps({"error": {"code": "DamagedStream", "message": why}}, separators=(",", ":")).encode()


@given(st.lists(st.integers(0, len(ALL)), max_size=12))
def test_any_cut_of_the_bytes_gives_the_same_events(places: list[int]) -> None:
    """Events are the payloads byte for byte, under their types, however the network cut them."""
    bounds = [0, *sorted(places), len(ALL)]
    assert cut(*(ALL[start:end] for start, end in pairwise(bounds))) == [raw.replace(b": ", b":", 1) for raw in STREAM]


def test_byte_by_byte_gives_the_same_events() -> None:
    """Each event is there with its last byte."""
    cutter = EventStreamBytes()
    counts = [len(cutter.add(ALL[place : place + 1])) for place in range(len(ALL))]
    ends = [sum(len(event(raw)) for raw in STREAM[: count + 1]) - 1 for count in range(len(STREAM))]
    assert [place for place, count in enumerate(counts) if count] == ends


@given(st.data())
def test_damage_is_one_error_behind_what_had_come(data: st.DataObject) -> None:
    """Changed bytes never raise; what came before them is there, and they and all that follows are one error."""
    place = data.draw(st.integers(0, len(ALL) - 1))
    changed = bytearray(ALL)
    changed[place] ^= data.draw(st.integers(1, 255))
    whole = cut(ALL)
    *before, last = cut(bytes(changed[: place + 1]), bytes(changed[place + 1 :]))
    assert before == whole[: len(before)]
    assert json.loads(last)["error"]["code"] == "DamagedStream"
    assert sum(len(event(raw)) for raw in STREAM[: len(before)]) <= place


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_bytes_that_are_no_stream_never_raise(chunks: list[bytes]) -> None:
    """At most one event comes of them, an error."""
    assert [list(json.loads(found)) for found in cut(*chunks)] in ([], [["error"]])


@given(st.binary(max_size=40))
def test_headers_that_are_none_never_raise(headers: bytes) -> None:
    """A message with its checksums, but with other bytes where headers should be, is an event, or damage."""
    [found] = cut(framed(headers, b"{}"))
    assert isinstance(json.loads(found), dict)


@pytest.mark.parametrize(
    ("length", "headers"), [(MESSAGE_BYTES_MAX + 1, 0), (2**32 - 1, 0), (15, 0), (0, 0), (100, 85), (100, 2**32 - 1)]
)
def test_lengths_that_cannot_be_are_not_waited_for(length: int, headers: int) -> None:
    """Nothing is kept of a message that is too long, or shorter than what it says to hold."""
    prelude = struct.pack(">II", length, headers)
    cutter = EventStreamBytes()
    [found] = cutter.add(prelude + struct.pack(">I", crc32(prelude)))
    assert found == damage(f"a message of {length:,} bytes, {headers:,} of them headers")
    assert cutter.add(b"x" * 1000) == cutter.end() == []


def test_longest_message_is_an_event() -> None:
    """The bound is inclusive."""
    empty = len(event(b'{"x":""}'))
    raw = b'{"x":"' + b"a" * (MESSAGE_BYTES_MAX - empty) + b'"}'
    assert len(event(raw)) == MESSAGE_BYTES_MAX
    assert cut(event(raw)) == [raw]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            message({":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message":"Slow."}'),
            b'{"throttlingException":{"message":"Slow."}}',
        ),
        (
            message({":message-type": "error", ":error-code": "Internal", ":error-message": 'It "broke".'}, b""),
            b'{"error":{"code":"Internal","message":"It \\"broke\\"."}}',
        ),
        (message({":message-type": "error"}, b""), b'{"error":{"code":"Unknown","message":""}}'),
        (message({":message-type": "event", ":event-type": "messageStop"}, b""), b'{"messageStop":{}}'),
        (message({":event-type": 'a"b'}, b'{"x": 1.50}'), b'{"a\\"b":{"x": 1.50}}'),
        (message({}, b"{}"), b'{"event":{}}'),
        (event(b'{"messageStop":')[:-1], damage(CUT)),
    ],
    ids=["exception", "error", "bare error", "no payload", "quotes", "no headers", "cut"],
)
def test_message_becomes_its_event(sent: bytes, expected: bytes) -> None:
    """Exceptions and errors are events as well, and so is a message that the stream ended in."""
    assert cut(sent) == [expected]


def test_headers_of_all_types_are_passed_over() -> None:
    """The values of headers can have nine other types than text."""
    values = {0: b"", 1: b"", 2: b"1", 3: b"12", 4: b"1234", 5: b"12345678", 6: b"\x00\x02ab", 8: b"12345678"}
    others = b"".join(b"\x01x" + bytes([kind]) + value for kind, value in (values | {9: b"1" * 16}).items())
    named = b"\x0b:event-type\x07\x00\x01e"
    assert cut(framed(others + named, b"[1]")) == [b'{"e":[1]}']


def test_payload_that_is_not_json_is_kept_as_it_came() -> None:
    """The reader says what it is."""
    [found] = cut(message({":event-type": "e"}, b"<html>"))
    assert found == b'{"e":<html>}'
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(found)
