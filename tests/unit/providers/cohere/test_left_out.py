"""What Cohere's replies say beside what is known of their events and parts is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.cohere.wire import MODEL, OWN, START, add_up, end, event, of_message, saying

from turnlog.model import ContextWindow, Message, Native, Response, Text, ToolUse, content_bytes
from turnlog.providers import get


def again(response: Response) -> Any:
    """Return a reply as the next request has it."""
    turns = (
        Message(turn="ask", role="user", content_json=b'[{"type":"text","text":"Go."}]'),
        Message(turn="said", role="assistant", content_json=content_bytes(response.content), **OWN),
    )
    request = get("cohere").prepare_request(ContextWindow(messages=turns, options={}), model=MODEL, on_loss="error")
    return json.loads(request.body)["messages"][1]


def test_unknown_keys_of_events_and_deltas_are_in_the_extra_of_the_response() -> None:
    """What stands in an event beside what it adds to the message is about the reply; what differs is a list."""
    response = add_up(
        START,
        of_message("content-start", 0, content={"type": "text", "text": ""}),
        event("content-delta", 0, delta={"message": {"content": {"text": "a"}}, "took_ms": 5}, seen=[1]),
        event("content-delta", 0, delta={"message": {"content": {"text": "b"}}, "took_ms": 6}),
        event("content-end", 0, trace={"n": 1}),
        end(),
    )
    assert response.content == (Text(text="ab"),)
    assert response.error is None
    assert response.extra == {"seen": Raw(b"[1]"), "took_ms": Raw(b"[5,6]"), "trace": Raw(b'{"n":1}')}


def test_unknown_keys_of_call_pieces_are_all_kept() -> None:
    """Where pieces of a call say different things under one key, beside its function or in it, all are kept."""
    begin = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    piece = {"news": 1, "function": {"arguments": "{}", "mode": "a"}}
    more = {"news": 2, "function": {"arguments": "", "mode": "a"}}
    response = add_up(
        START, *(of_message("tool-call-delta", 0, tool_calls=one) for one in (begin, piece, more)), end("TOOL_CALL")
    )
    extra = {"news": Raw(b"[1,2]"), "function": Raw(b'{"mode":"a"}')}
    assert response.content == (ToolUse(name="f", input=Raw(b"{}"), id="c1", extra=extra),)


def test_unknown_keys_of_messages_are_all_kept() -> None:
    """What messages of several events have under one key is kept, where it differs too."""
    response = add_up(
        START, *(of_message("content-delta", 0, content={"text": "a"}, mood=mood) for mood in "xy"), end()
    )
    assert response.content == (Text(text="aa", extra={"message_fields": Raw(b'{"mood":["x","y"]}')}),)


@pytest.mark.parametrize("kind", ["text", "thinking"])
@pytest.mark.parametrize("odd", [5, {"x": 1}, ["a"], True])
def test_part_whose_text_is_none_is_kept_as_it_is(kind: str, odd: Any) -> None:
    """A text that is something else makes a native block, streamed too, and goes back as it came."""
    part = {"type": kind, kind: odd}
    response = add_up(saying(content=[part]))
    assert response == add_up(START, of_message("content-start", 0, content=part), end())
    assert response.content == (Native(block=Raw(json.dumps(part, separators=(",", ":")).encode()), **OWN),)
    assert response.error is None
    assert again(response) == {"role": "assistant", "content": [part]}


def test_text_that_goes_on_with_something_else_loses_nothing() -> None:
    """Pieces that are text and one that is not are a native block with all of them."""
    pieces = [{"type": "text", "text": "a"}, {"text": 5}, {"text": "b"}]
    response = add_up(START, *(of_message("content-delta", 0, content=piece) for piece in pieces), end())
    assert response.content == (Native(block=Raw(b'{"type":"text","text":["ab",5]}'), **OWN),)


def test_text_that_is_null_is_no_text() -> None:
    """A part whose text is null is one without text: there is nothing in it to keep."""
    assert add_up(saying(content=[{"type": "text", "text": None}])).content == ()


def test_fields_of_a_message_without_content_are_reported_and_have_no_message() -> None:
    """Where a message has nothing else, its turn has them, and no request."""
    turns = (
        Message(turn="ask", role="user", content_json=b'[{"type":"text","text":"Go."}]'),
        Message(turn="said", role="assistant", content_json=content_bytes(add_up(saying(mood="calm")).content), **OWN),
    )
    request = get("cohere").prepare_request(ContextWindow(messages=turns, options={}), model=MODEL, on_loss="error")
    assert [one["role"] for one in json.loads(request.body)["messages"]] == ["user"]
    assert [(entry.kind, entry.block) for entry in request.loss_report.entries] == [("dropped", "mood")]


def test_fields_of_a_message_do_not_go_back_and_are_reported() -> None:
    """The API takes no further field of a message: each is reported by its name, and refused nowhere."""
    cited = {"start": 0, "end": 1, "type": "PLAN"}
    response = add_up(saying(content="a", mood="calm", citations=[cited]))
    turn = Message(turn="said", role="assistant", content_json=content_bytes(response.content), **OWN)
    window = ContextWindow(messages=(turn,), options={})
    for on_loss in (None, "report", "error"):
        request = get("cohere").prepare_request(window, model=MODEL, on_loss=on_loss)
        assert json.loads(request.body)["messages"] == [{"role": "assistant", "content": "a"}]
        assert [(entry.kind, entry.turn, entry.block, entry.index) for entry in request.loss_report.entries] == [
            ("dropped", "said", "mood", 0),
            ("dropped", "said", "citations", 0),
        ]
