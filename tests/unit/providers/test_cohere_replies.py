"""Replies of Cohere's v2 chat, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turnlog import ProviderError
from turnlog.model import (
    ContextWindow,
    Message,
    Native,
    Response,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    content_bytes,
)
from turnlog.providers import get

MODEL = "command-a-reasoning-08-2025"
OWN = {"provider": "cohere", "api": "chat_v2", "model": MODEL}
USAGE = {
    "billed_units": {"input_tokens": 40, "output_tokens": 220},
    "tokens": {"input_tokens": 1500.0, "output_tokens": 249.0},
    "cached_tokens": 480,
}
CITATION = {"start": 0, "end": 2, "text": "It", "sources": [{"type": "tool", "id": "c1:0", "tool_output": {"n": "1"}}]}


def event(type: str, index: int | None = None, **fields: Any) -> bytes:
    """Return an event of a stream as it stands on the wire."""
    return json.dumps({"type": type} | ({} if index is None else {"index": index}) | fields).encode()


def of_message(type: str, index: int | None = None, **message: Any) -> bytes:
    """Return an event that adds to the message."""
    return event(type, index, delta={"message": message})


def end(reason: str | None = "COMPLETE", **fields: Any) -> bytes:
    """Return the last event of a stream."""
    return event("message-end", delta={"finish_reason": reason, "usage": USAGE, **fields})


START = b'{"type":"message-start","id":"r1","delta":{"message":{"role":"assistant","content":[],"tool_calls":[]}}}'
STREAM = [
    START,
    of_message("content-start", 0, content={"type": "thinking", "thinking": ""}),
    of_message("content-delta", 0, content={"thinking": "Hm"}),
    of_message("content-delta", 0, content={"thinking": "."}),
    event("content-end", 0),
    of_message("tool-plan-delta", tool_plan="I will "),
    of_message("tool-plan-delta", tool_plan="look."),
    of_message(
        "tool-call-start",
        0,
        tool_calls={"id": "c1", "type": "function", "function": {"name": "fs___read", "arguments": ""}},
    ),
    of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"path":'}}),
    of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": ' "a", "n": 1.0}'}}),
    event("tool-call-end", 0),
    of_message("tool-call-start", 1, tool_calls={"id": "c2", "type": "function", "function": {"name": "ls"}}),
    of_message("tool-call-delta", 1, tool_calls={"function": {"arguments": "{}"}}),
    event("tool-call-end", 1),
    of_message("citation-start", 0, citations=CITATION | {"type": "PLAN"}),
    event("citation-end", 0),
    end("TOOL_CALL"),
]
WHOLE = {
    "id": "r1",
    "finish_reason": "TOOL_CALL",
    "message": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}],
        "tool_plan": "I will look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "fs___read", "arguments": '{"path": "a", "n": 1.0}'}},
            {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
        ],
        "citations": [CITATION | {"type": "PLAN"}],
    },
    "usage": USAGE,
}


def add_up(*events: bytes, model: str | None = MODEL) -> Response:
    """Return what events add up to."""
    return get("cohere").aggregate(events, model=model)


def whole(**fields: Any) -> bytes:
    """Return a whole reply, with its fields changed."""
    return json.dumps(WHOLE | fields, indent=1).encode()


def content(**fields: Any) -> dict[str, Any]:
    """Return a message of a whole reply."""
    return {"role": "assistant", **fields}


def deltas(*events: bytes) -> list[Any]:
    """Return the deltas of events as JSON."""
    return [json.loads(msgspec.json.encode(delta)) for one in events for delta in get("cohere").deltas(one)]


def test_stream_adds_up_to_thinking_plan_and_calls() -> None:
    """Parallel calls keep their order, ids and the text of their arguments without whitespace."""
    response = add_up(*STREAM)
    thinking, plan, first, second = response.content
    assert thinking == Thinking(thinking="Hm.", **OWN)
    assert isinstance(plan, Thinking)
    assert (plan.thinking, plan.provider, plan.model) == ("I will look.", "cohere", MODEL)
    assert json.loads(bytes(plan.extra["tool_plan"])) is True
    assert json.loads(bytes(plan.extra["citations"])) == [CITATION | {"type": "PLAN"}]
    assert first == ToolUse(id="c1", name="fs___read", input=msgspec.Raw(b'{"path":"a","n":1.0}'))
    assert second == ToolUse(id="c2", name="ls", input=msgspec.Raw(b"{}"))
    assert (response.stop_reason, response.raw_stop_reason, response.error) == ("tool_use", "TOOL_CALL", None)
    assert (response.id, response.model, response.extra) == ("r1", MODEL, {})


def test_whole_reply_equals_the_streamed_one() -> None:
    """Whitespace between the tokens of JSON apart."""
    assert add_up(whole()) == add_up(*STREAM)


def test_reply_goes_back_unchanged() -> None:
    """What was aggregated, recorded and prepared again is the message that came."""
    response = add_up(*STREAM)
    answers = [ToolResult(tool_use_id=id, content="ok") for id in ("c1", "c2")]
    window = ContextWindow(
        messages=[
            Message(turn="t1", role="assistant", content_json=content_bytes(response.content), **OWN),
            Message(turn="t2", role="user", content_json=content_bytes(answers)),
        ],
        options={},
    )
    request = get("cohere").prepare_request(window, model=MODEL)
    sent = json.loads(request.body)["messages"][0]
    sent["tool_calls"][0]["function"]["arguments"] = WHOLE["message"]["tool_calls"][0]["function"]["arguments"]
    assert sent == WHOLE["message"]
    assert not request.loss_report


def test_usage_is_what_was_billed() -> None:
    """Billed tokens are without the provider's own template; the rest is in the raw usage."""
    response = add_up(*STREAM)
    assert response.usage == Usage(input_tokens=40, output_tokens=220)
    assert response.raw_usage is not None
    assert json.loads(bytes(response.raw_usage)) == USAGE


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"tokens": {"input_tokens": 100.0, "output_tokens": 7.0}, "cached_tokens": 30},
            Usage(input_tokens=70, output_tokens=7, cache_read_input_tokens=30),
        ),
        ({"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 5}}, Usage(input_tokens=5)),
        ({"billed_units": {"output_tokens": 3}, "tokens": {"input_tokens": 5}}, Usage(output_tokens=3)),
        ({"tokens": "many"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_without_billed_units_is_all_tokens(usage: Any, expected: Usage | None) -> None:
    """Those read from the cache are counted once; what cannot be read is no usage."""
    assert add_up(whole(usage=usage)).usage == expected


def test_text_after_thinking_has_the_same_index() -> None:
    """Each `content-start` begins a part, whatever its index. A citation is of the part of its kind."""
    response = add_up(
        START,
        of_message("content-start", 0, content={"type": "thinking", "thinking": "Hm"}),
        of_message("content-start", 0, content={"type": "text", "text": ""}),
        of_message("content-delta", 0, content={"text": "It is."}),
        of_message("citation-start", 0, citations=CITATION | {"content_index": 0, "type": "TEXT_CONTENT"}),
        end(),
    )
    thinking, text = response.content
    assert thinking == Thinking(thinking="Hm", **OWN)
    assert isinstance(text, Text)
    assert (text.text, len(json.loads(bytes(text.extra["citations"])))) == ("It is.", 1)


def test_citations_are_in_the_block_that_they_name() -> None:
    """By place where that is of their kind; those of nothing that came are kept beside the message."""
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    cited = [
        CITATION | {"content_index": 1, "text": "1"},
        CITATION | {"text": "2"},
        CITATION | {"type": "THINKING_CONTENT", "text": "3"},
        {"content_index": "?", "text": "4"},
    ]
    response = add_up(whole(message=content(content=texts, citations=cited)))
    assert [[one["text"] for one in json.loads(bytes(block.extra["citations"]))] for block in response.content] == [
        ["2"],
        ["1"],
    ]
    assert [one["text"] for one in json.loads(bytes(response.extra["citations"]))] == ["3", "4"]


def test_unknown_parts_and_fields_are_kept() -> None:
    """A part of another type is native, streamed too; further fields are extra keys, of blocks and of the response."""
    streamed = add_up(
        START,
        of_message("content-start", 0, content={"type": "chart", "n": 1.0, "title": "A"}),
        of_message("content-delta", 0, content={"title": "BC"}),
        of_message("content-start", 1, content={"type": "text", "text": "x", "mark": {"y": 1}}),
        end(seen=[1]),
    )
    parts = [{"type": "chart", "n": 1.0, "title": "ABC"}, {"type": "text", "text": "x", "mark": {"y": 1}}]
    together = add_up(whole(message=content(content=parts), seen=[1], finish_reason="COMPLETE"))
    assert streamed == together
    native, text = streamed.content
    assert native == Native(block=msgspec.Raw(b'{"type":"chart","n":1.0,"title":"ABC"}'), **OWN)
    assert text == Text(text="x", extra={"mark": msgspec.Raw(b'{"y":1}')})
    assert streamed.extra == {"seen": msgspec.Raw(b"[1]")}


def test_log_probabilities_are_kept() -> None:
    """They come piece by piece, or all at once."""
    one, other = ({"text": text, "token_ids": [1], "logprobs": [-0.5]} for text in "ab")
    streamed = add_up(
        START,
        of_message("content-start", 0, content={"type": "text", "text": ""}),
        event("content-delta", 0, delta={"message": {"content": {"text": "a"}}}, logprobs=one),
        event("content-delta", 0, delta={"message": {"content": {"text": "b"}}}, logprobs=other),
        end(),
    )
    parts = [{"type": "text", "text": "ab"}]
    assert streamed == add_up(whole(message=content(content=parts), logprobs=[one, other], finish_reason="COMPLETE"))
    assert json.loads(bytes(streamed.extra["logprobs"])) == [one, other]


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("TOOL_CALL", "stop"),
        ("MAX_TOKENS", "length"),
        ("ERROR_LIMIT", "length"),
        ("ERROR_TOXIC", "refusal"),
        ("ERROR", "error"),
        ("ERROR_NEW", "error"),
        ("TIMEOUT", "error"),
        ("USER_CANCEL", "aborted"),
        ("SOMETHING_NEW", "stop"),
        (None, "stop"),
    ],
)
def test_stop_reasons_are_normalized(reason: str | None, stop_reason: str) -> None:
    """The provider's word is kept. Text without calls."""
    response = add_up(whole(finish_reason=reason, message=content(content=[{"type": "text", "text": "a"}])))
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, reason)
    assert response.content == (Text(text="a"),)
    failed = stop_reason in ("error", "aborted")
    assert (response.error is not None) == failed
    if failed:
        assert response.error is not None
        assert (response.error.message, response.error.retryable) == (f"cohere ended its reply with {reason}", True)


@pytest.mark.parametrize(("reason", "stop_reason"), [("COMPLETE", "tool_use"), ("MAX_TOKENS", "length")])
def test_calls_make_a_normal_end_tool_use(reason: str, stop_reason: str) -> None:
    """A reply that was cut short is not one."""
    assert add_up(whole(finish_reason=reason)).stop_reason == stop_reason


def test_truncated_arguments_are_kept_as_text() -> None:
    """The call's input is an empty object then."""
    response = add_up(*STREAM[:9], end("MAX_TOKENS"))
    call = response.content[-1]
    assert isinstance(call, ToolUse)
    assert (bytes(call.input), json.loads(bytes(call.extra["malformed_arguments"]))) == (b"{}", '{"path":')
    assert response.stop_reason == "length"


def test_stream_without_its_end_is_an_error() -> None:
    """What had arrived is kept, and the call may be tried again."""
    response = add_up(*STREAM[:4])
    assert response.content == (Thinking(thinking="Hm.", **OWN),)
    assert response.error is not None
    assert (response.stop_reason, response.error.retryable) == ("error", True)
    assert response.error.message == "the stream of cohere ended without its message-end"
    assert add_up().stop_reason == "error"


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"',
        b'{"type":"content-delta","index":"0"}',
        b'{"type":"content-delta","delta":{"message":{"content":[1]}}}',
        b'{"type":"tool-call-start","delta":{"message":{"tool_calls":{"id":1}}}}',
        b"\xff",
        b"[" * 5000,
        b"1",
    ],
)
def test_event_that_cannot_be_read_is_an_error(broken: bytes) -> None:
    """The events before and after it are kept."""
    response = add_up(*STREAM[:3], broken, *STREAM[3:])
    assert response.error is not None
    assert response.error.message.startswith("cohere sent an event that cannot be read: ")
    assert (response.stop_reason, response.error.retryable) == ("error", True)
    assert response.content == add_up(*STREAM).content
    with pytest.raises(ProviderError, match="cannot be read"):
        get("cohere").deltas(broken)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"message":"overloaded"}', "cohere broke off: overloaded"),
        (b'{"type":"error","message":"overloaded"}', "cohere broke off: overloaded"),
        (b'{"error":{"message":"overloaded"}}', "cohere broke off: overloaded"),
        (end("ERROR", error="out of luck"), "cohere broke off: out of luck"),
    ],
)
def test_errors_inside_a_stream_end_it(said: bytes, message: str) -> None:
    """With what the provider said, and what had arrived."""
    response = add_up(*STREAM[:4], said)
    assert response.error is not None
    assert (response.stop_reason, response.error.message) == ("error", message)
    assert len(response.content) == 1


def test_unknown_events_are_passed_over() -> None:
    """Whatever shape they have."""
    unknown = [event("debug", prompt="p"), event("new", delta="x"), event("newer", index="a", delta=[1])]
    assert add_up(*STREAM[:5], *unknown, *STREAM[5:]) == add_up(*STREAM)
    assert deltas(*unknown) == []


def test_stream_that_was_joined_late_is_read() -> None:
    """Pieces of a part and of a call that never began are kept."""
    response = add_up(
        of_message("content-delta", 0, content={"text": "a"}),
        of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": "{}"}}),
        end(),
    )
    assert response.content == (Text(text="a"), ToolUse(name="", input=msgspec.Raw(b"{}")))


def test_empty_parts_are_no_blocks() -> None:
    """A part that began and got nothing says nothing."""
    parts = [{"type": "thinking", "thinking": ""}, {"type": "text", "text": ""}]
    assert add_up(whole(message=content(content=parts, tool_plan=None, tool_calls=None))).content == ()
    assert add_up(whole(message=content(content="a"))).content == (Text(text="a"),)


def test_model_is_the_one_that_was_asked() -> None:
    """Replies do not name it."""
    assert add_up(whole(), model=None).model == "cohere"
    assert add_up(whole()).to_record()["message"]["model"] == MODEL


def test_deltas_show_each_piece() -> None:
    """Text and thinking name their type each time, as does the plan; a call begins with its name and id."""
    assert deltas(*STREAM) == [
        {"type": "thinking", "content": "Hm"},
        {"type": "thinking", "content": "."},
        {"type": "thinking", "content": "I will "},
        {"type": "thinking", "content": "look."},
        {"type": "tool_use", "name": "fs___read", "id": "c1"},
        {"content": '{"path":'},
        {"content": ' "a", "n": 1.0}'},
        {"type": "tool_use", "name": "ls", "id": "c2"},
        {"content": "{}"},
    ]


def test_deltas_of_a_whole_reply_are_its_blocks() -> None:
    """In one piece each; an error shows nothing."""
    assert deltas(whole()) == [
        {"type": "thinking", "content": "Hm."},
        {"type": "thinking", "content": "I will look."},
        {"type": "tool_use", "name": "fs___read", "id": "c1"},
        {"content": '{"path": "a", "n": 1.0}'},
        {"type": "tool_use", "name": "ls", "id": "c2"},
        {"content": "{}"},
    ]
    assert deltas(b'{"message":"no"}') == []
