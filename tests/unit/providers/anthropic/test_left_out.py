"""What the Messages API says beside what is known of its events and blocks is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.anthropic.wire import MODEL, anthropic, block, encoded, end, recorded, reply, text, whole

from turnlog.model import ContextWindow, Message, Response, Text, Thinking, ToolUse

TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
SIGNED = {"type": "signature_delta", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}


def streamed(*parts: list[bytes]) -> Response:
    """Return what a stream of some events adds up to."""
    return anthropic().aggregate(reply(*parts, end()))


def again(response: Response) -> Any:
    """Return the blocks of a reply as the next request has them."""
    turns = (Message(turn="ask", role="user", content_json=b'[{"type":"text","text":"Go."}]'), recorded(response))
    given = ContextWindow(messages=turns, options={})
    return json.loads(anthropic().prepare_request(given, model=MODEL, on_loss="error").body)["messages"][1]["content"]


@pytest.mark.parametrize(
    ("began", "piece", "expected"),
    [
        (TEXT, {"type": "text_delta", "text": "a"}, {"type": "text", "text": "a"}),
        (
            CALL,
            {"type": "input_json_delta", "partial_json": '{"a":1}'},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ),
    ],
    ids=["text", "call"],
)
def test_unknown_key_of_a_piece_is_a_key_of_its_block(
    began: dict[str, Any], piece: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A key that no one knows beside what a piece adds stays with the block, and goes back with it."""
    response = streamed(block(0, began, piece | {"news": {"x": 1}}))
    assert response.content[0].extra["news"] == Raw(b'{"x":1}')
    assert again(response)[0] == expected | {"news": {"x": 1}}


def test_unknown_keys_of_thinking_pieces_are_kept() -> None:
    """Thinking and its signature come with keys of their own; the same one said twice is there once."""
    pieces = [{"type": "thinking_delta", "thinking": part, "depth": 1} for part in ("Hm", ".")]
    response = streamed(block(0, THINKING, *pieces, {"type": "signature_delta", "signature": "c2ln", "by": "k"}))
    [thinking] = response.content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.signature) == ("Hm.", "c2ln")
    assert thinking.extra == {"depth": Raw(b"1"), "by": Raw(b'"k"')}


def test_unknown_key_that_differs_is_a_list() -> None:
    """Where pieces say different things under one key, all of them are kept, in their order."""
    pieces = [{"type": "text_delta", "text": part, "n": part.upper()} for part in ("a", "b", "b")]
    [found] = streamed(block(0, TEXT, *pieces)).content
    assert found == Text(text="abb", extra={"n": Raw(b'["A","B"]')})


def test_known_key_in_a_piece_of_another_kind_is_that_of_the_block() -> None:
    """A name that only comes with the input is the call's; an empty one says nothing."""
    pieces = [
        {"type": "input_json_delta", "partial_json": "{", "name": "g", "id": ""},
        {"type": "input_json_delta", "partial_json": "}"},
    ]
    assert streamed(block(0, CALL, *pieces)).content == (ToolUse(name="g", input=Raw(b"{}"), id="c1"),)


def test_key_that_the_block_has_for_itself_is_kept_apart() -> None:
    """A key of a piece that means something else to turnlog is one of `provider_fields`, and goes back as it came."""
    piece = {"type": "thinking_delta", "thinking": "Hm", "redacted": True}
    response = streamed(block(0, THINKING, piece, SIGNED), text(1, "a"))
    thinking = response.content[0]
    assert isinstance(thinking, Thinking)
    assert (thinking.redacted, thinking.extra) == (False, {"provider_fields": Raw(b'{"redacted":true}')})
    assert again(response)[0] == {"type": "thinking", "thinking": "Hm", "signature": "c2ln", "redacted": True}


def test_unknown_keys_of_events_are_in_the_extra_of_the_response() -> None:
    """What an event says beside its block, and the last one beside nothing, is about the reply."""
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "!"}, "took_ms": 5}
    last = encoded({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"latency": 1}})
    response = anthropic().aggregate([*reply(text(0, "a")), encoded(piece), *end()[:1], last])
    assert response.error is None
    assert response.extra == {"took_ms": Raw(b"5"), "amazon-bedrock-invocationMetrics": Raw(b'{"latency":1}')}


def test_redacted_thinking_with_a_text_keeps_and_returns_it() -> None:
    """A `thinking` key of what is redacted is no thinking to show, and goes back as it came."""
    record = {"type": "redacted_thinking", "data": "b3BhcXVl", "thinking": "why"}
    response = anthropic().aggregate([whole(record, {"type": "text", "text": "a"})])
    thinking = response.content[0]
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.signature, thinking.redacted) == ("", "b3BhcXVl", True)
    assert thinking.extra == {"provider_fields": Raw(b'{"thinking":"why"}')}
    assert again(response) == [record, {"type": "text", "text": "a"}]


def test_piece_without_a_text_begins_no_block() -> None:
    """What cannot be read of a block whose beginning did not come makes the reply an error, and no empty block."""
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}
    response = anthropic().aggregate(reply([encoded(odd)], end()))
    assert (response.content, response.stop_reason) == ((), "error")
