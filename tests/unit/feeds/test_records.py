"""Events as JSON, as `tail` prints them and sinks are given them."""

import json

import msgspec
import pytest

from turnlog import TurnLog
from turnlog.feeds.records import content_record


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        (b'[1,\n 2, "a\\nb"]', [1, 2, "a\nb"]),
        (b"no JSON", None),
        (b'"\xff"', None),
        (b"[" * 100_000 + b"]" * 100_000, None),
        (b"\x1e{}\n", None),
        (b"", None),
    ],
)
def test_content_is_json_that_can_be_read(filed: TurnLog, payload: bytes, content: object) -> None:
    """By whoever reads it; else it says how many bytes there are."""
    recorded = next(iter(filed.events(1))) if filed.add_turn("one") else None
    assert recorded is not None
    line = msgspec.json.encode(content_record(recorded, payload))
    assert b"\n" not in line
    expected = {"type": "bytes", "size": len(payload)} if content is None else content
    assert json.loads(line) == expected
