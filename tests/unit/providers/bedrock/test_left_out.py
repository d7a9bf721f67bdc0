"""What Converse says beside what is known of its events is kept."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from turnlog.model import Text, ToolUse
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


def test_what_a_piece_has_beside_its_kind_is_in_the_extra_of_the_response() -> None:
    """It is not shown as if it was said, and neither a text nor a call becomes something else by it."""
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "a", "later": "b"}}},
        {
            "contentBlockStart": {
                "contentBlockIndex": 1,
                "start": {"toolUse": {"name": "n", "toolUseId": "c"}, "new": 1},
            }
        },
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "{}"}, "later": "c"}}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]
    reader = get("bedrock").reader(model="m")
    shown = [delta.content for event in events for delta in reader.add(json.dumps(event).encode())]
    assert [content for content in shown if content] == ["a", "{}"]
    response = reader.response()
    assert (response.content, response.error) == (
        (Text(text="a"), ToolUse(name="n", id="c", input=Raw(b"{}"))),
        None,
    )
    assert response.extra == {"later": Raw(b'["b","c"]'), "new": Raw(b"1")}
