"""What Converse says beside what is known of its events is kept."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from turnlog.model import Text
from turnlog.providers import get


def test_unknown_keys_of_events_are_in_the_extra_of_the_response() -> None:
    """What an event says beside its piece is about the reply; what differs is a list, and padding says nothing."""
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "a"}, "p": "abc", "took": 1}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "b"}, "p": "ab", "took": 2}},
        {"contentBlockStop": {"contentBlockIndex": 0, "trace": {"n": 1}}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    response = get("bedrock").aggregate([json.dumps(one).encode() for one in events], model="m")
    assert (response.content, response.error) == ((Text(text="ab"),), None)
    assert response.extra == {"took": Raw(b"[1,2]"), "trace": Raw(b'{"n":1}')}
