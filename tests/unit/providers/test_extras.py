"""Fields of a provider's block whose names a content block has for itself, on every wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from turnlog.model import (
    ContextWindow,
    Message,
    Response,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    content_bytes,
    parse_content,
)
from turnlog.model.blocks import decode_content
from turnlog.providers import get, get_as

MODEL = "model-1"
OF_THINKING = {"redacted": True, "provider": "x", "api": "y", "model": "z"}
RESERVED = {"provider_fields": {"a": 1}, "$extra": {"b": 2}}


def anthropic(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [record],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def bedrock(record: dict[str, Any]) -> dict[str, Any]:
    return {"output": {"message": {"role": "assistant", "content": [record]}}, "stopReason": "end_turn"}


def cohere(record: dict[str, Any]) -> dict[str, Any]:
    name = "tool_calls" if "function" in record else "content"
    return {"id": "r1", "message": {"role": "assistant", name: [record]}, "finish_reason": "COMPLETE"}


def chat(record: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": [record]}
    return {"id": "r1", "model": MODEL, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def gemini(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": [record]}, "finishReason": "STOP"}],
        "modelVersion": MODEL,
        "responseId": "r1",
    }


def responses(record: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [record]}
    return {"id": "r1", "object": "response", "model": MODEL, "status": "completed", "output": [item]}


CASES = [
    ("anthropic", anthropic, Text, {"type": "text", "text": "hi"} | RESERVED),
    ("anthropic", anthropic, Thinking, {"type": "thinking", "thinking": "hi", "signature": "c2ln"} | OF_THINKING),
    ("anthropic", anthropic, ToolUse, {"type": "tool_use", "id": "c1", "name": "f", "input": {}} | RESERVED),
    ("bedrock", bedrock, ToolUse, {"toolUse": {"toolUseId": "c1", "name": "f", "input": {}, "id": "other"}}),
    (
        "bedrock",
        bedrock,
        Thinking,
        {
            "reasoningContent": {
                "reasoningText": {"text": "hi", "signature": "c2ln", "type": 1, "thinking": 2} | OF_THINKING
            }
        },
    ),
    ("bedrock", bedrock, Text, {"citationsContent": {"content": [{"text": "hi"}], "type": "t", "text": "u"}}),
    ("cohere", cohere, Text, {"type": "text", "text": "hi", "citations": [], "tool_plan": True} | RESERVED),
    (
        "cohere",
        cohere,
        Thinking,
        {"type": "thinking", "thinking": "hi", "signature": "s", "tool_plan": True} | OF_THINKING,
    ),
    (
        "cohere",
        cohere,
        ToolUse,
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "name": "g", "input": {"a": 1}},
    ),
    (
        "openai_chat",
        chat,
        ToolUse,
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "name": "g",
            "input": {"a": 1},
            "audio": {"id": "a"},
            "call_type": "custom",
        },
    ),
    ("gemini", gemini, Text, {"text": "hi", "type": "b", "groundingMetadata": {"x": 1}, "signed_part": "thought"}),
    ("gemini", gemini, Thinking, {"text": "hi", "thought": True, "thoughtSignature": "c2ln"} | OF_THINKING),
    ("gemini", gemini, ToolUse, {"functionCall": {"id": "c1", "name": "f", "args": {}}, "input": 1, "name": "g"}),
    (
        "openai_responses",
        responses,
        Text,
        {"type": "output_text", "text": "hi", "annotations": [], "item": {"id": "x"}, "refusal": True} | RESERVED,
    ),
]


@pytest.fixture(params=CASES, ids=[f"{case[0]}-{case[2].__name__}" for case in CASES])
def case(request: pytest.FixtureRequest) -> tuple[str, Callable[..., dict[str, Any]], type, dict[str, Any]]:
    """Return an adapter, what makes a reply, the kind of block, and the block as the provider sent it."""
    return request.param


def read(adapter: str, reply: dict[str, Any]) -> Response:
    response = get(adapter).aggregate([json.dumps(reply).encode()], model=MODEL)
    assert response.error is None
    return response


def test_block_with_names_that_are_taken_says_what_the_reply_says(case: Any) -> None:
    """The block is of its kind, with its own text, input and id, and is the same once it was recorded."""
    adapter, reply, kind, sent = case
    response = read(adapter, reply(sent))
    [block] = response.content
    assert type(block) is kind
    assert "provider_fields" in block.extra
    match block:
        case Text():
            assert block.text == "hi"
        case Thinking():
            assert (block.thinking, block.redacted, block.model) == ("hi", False, MODEL)
            assert (block.provider, block.api) == (response.provider, response.api)
        case ToolUse():
            assert (block.name, bytes(block.input), block.id) == ("f", b"{}", "c1")
        case _:
            pytest.fail(f"a {kind.__name__} is expected")
    recorded = content_bytes(response.content)
    assert parse_content(recorded) == recorded
    assert content_bytes(decode_content(recorded)) == recorded
    [again] = decode_content(recorded)
    assert type(again) is kind


def test_names_that_are_taken_go_back_as_they_came(case: Any) -> None:
    """The very block that the provider sent is in the next request to the same model, and nothing is lost."""
    adapter, reply, kind, sent = case
    response = read(adapter, reply(sent))
    window = [
        Message(
            turn="t1",
            role="assistant",
            # No message can end with thinking.
            content_json=content_bytes([*response.content, *([Text(text="so")] if kind is Thinking else [])]),
            provider=response.provider,
            api=response.api,
            model=MODEL,
        )
    ]
    if kind is ToolUse:
        [call] = response.content
        assert isinstance(call, ToolUse)
        window.append(
            Message(
                turn="t2",
                role="user",
                content_json=content_bytes([ToolResult(tool_use_id=call.id, name=call.name, content="ok")]),
            )
        )
    else:
        window.append(Message(turn="t2", role="user", content_json=content_bytes("go on")))
    request = get(adapter).prepare_request(ContextWindow(messages=window, options={}), model=MODEL, on_loss="error")
    assert not request.loss_report
    assert sent in list(_objects(json.loads(request.body)))


def _objects(value: Any) -> Any:
    """Return all objects in a body."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


EVIL = dict.fromkeys(
    ("type", "role", "text", "content", "parts", "name", "arguments", "args", "input", "call_id", "id"), "EVIL"
) | {"call": "EVIL", "tool_call_id": "EVIL", "toolUseId": "EVIL", "output": "EVIL", "response": "EVIL"}
NAMED = ("provider_fields", "item", "content_fields", "functionCall", "function", "message_fields")


OWN = ("anthropic", "bedrock", "cohere", "gemini", "openai_chat", "openai_responses")


@pytest.mark.parametrize("adapter", OWN)
def test_no_field_stands_in_the_place_of_what_a_block_says(adapter: str) -> None:
    """Whoever makes a log can give a block any field: what is shown of it is what a model is told."""
    target = get(adapter)
    own = {"provider": target.provider, "api": target.api, "model": MODEL}

    def body(fields: dict[str, Any]) -> Any:
        beside = dict.fromkeys(NAMED, {"further": 1} | fields)
        said = [
            ("user", {"type": "text", "text": "Go."}),
            ("assistant", {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}} | beside),
            ("user", {"type": "tool_result", "tool_use_id": "c1", "name": "look", "content": "seen"} | beside),
            ("assistant", {"type": "text", "text": "visible"} | beside),
            ("user", {"type": "text", "text": "visible"} | beside),
        ]
        window = [
            Message(turn=f"t{place}", role=role, content_json=content_bytes([block]), **own)
            for place, (role, block) in enumerate(said)
        ]
        return json.loads(target.prepare_request(ContextWindow(messages=window, options={}), model=MODEL).body)

    assert _holds(body({}), body(EVIL))


def _holds(said: Any, more: Any) -> bool:
    """Tell whether one value says all that another one says, and nothing else in its place."""
    if isinstance(said, dict):
        return isinstance(more, dict) and all(name in more and _holds(said[name], more[name]) for name in said)
    if isinstance(said, list):
        return isinstance(more, list) and len(more) == len(said) and all(map(_holds, said, more))
    return said == more


def _lost(adapter: str, *said: tuple[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return what the report says of a conversation with the model that is asked: turn, field and why."""
    target = get(adapter)
    own = {"provider": target.provider, "api": target.api, "model": MODEL}
    window = [
        Message(turn=f"t{place}", role=role, content_json=content_bytes([block]), **own)
        for place, (role, block) in enumerate(said)
    ]
    request = target.prepare_request(ContextWindow(messages=window, options={}), model=MODEL)
    assert b"EVIL" not in request.body
    return [(entry.turn, entry.block, entry.why) for entry in request.loss_report.entries]


GO = ("user", {"type": "text", "text": "Go."})
CALL: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "c1", "name": "look", "content": "seen"}
INSTEAD = "what the block says itself stands there"
NO_PLACE = "the wire has no place for it"


@pytest.mark.parametrize("adapter", OWN)
def test_a_field_that_would_replace_what_a_block_says_is_reported(adapter: str) -> None:
    """It is left out, and the last message of a conversation is no exception."""
    named = {
        "bedrock": ("provider_fields", "toolUseId"),
        "gemini": ("functionCall", "args"),
        "openai_responses": ("item", "name"),
    }
    place, name = named.get(adapter, ("provider_fields", "id"))
    call = CALL | {place: {name: "EVIL"}}
    assert _lost(adapter, GO, ("assistant", call), ("user", RESULT), GO) == [("t1", name, INSTEAD)]
    field = {"bedrock": "toolUseId", "gemini": "response", "openai_chat": "role", "openai_responses": "output"}
    if name := field.get(adapter):
        assert _lost(adapter, GO, ("assistant", CALL), ("user", RESULT | {name: "EVIL"})) == [("t2", name, INSTEAD)]


@pytest.mark.parametrize("adapter", OWN)
def test_what_stands_beside_a_native_block_is_reported(adapter: str) -> None:
    """But for what the wire itself puts there."""
    target = get(adapter)
    whose = {"provider": target.provider, "api": target.api, "model": MODEL}
    block = {"type": "native", "block": {"type": "odd", "n": 1}, "beside": "EVIL", **whose}
    assert _lost(adapter, GO, ("assistant", block), GO) == [("t1", "beside", NO_PLACE)]


@pytest.mark.parametrize("adapter", ["cohere", "gemini"])
def test_what_stands_beside_a_result_is_reported_where_the_wire_has_no_place(adapter: str) -> None:
    """Cohere's results have no further fields, and the texts of Gemini's are one."""
    inside = {"content": [{"type": "text", "text": "seen", "beside": "EVIL"}]}
    result = RESULT | ({"beside": "EVIL"} if adapter == "cohere" else inside)
    assert _lost(adapter, GO, ("assistant", CALL), ("user", result)) == [("t2", "beside", NO_PLACE)]


def test_reasoning_that_is_read_is_what_a_block_says() -> None:
    """What the item had for it goes back where it is the same, and is reported where it is not."""
    target = get_as("openai_responses", "other")
    own = {"provider": target.provider, "api": target.api, "model": MODEL}

    def sent(text: str) -> tuple[Any, list[str]]:
        item = {"id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
        blocks = [{"type": "thinking", "thinking": "deep", "item": item, **own}, {"type": "text", "text": "hi"}]
        message = Message(turn="t", role="assistant", content_json=content_bytes(blocks), **own)
        request = target.prepare_request(ContextWindow(messages=[message], options={}), model=MODEL)
        return json.loads(request.body)["input"][0], [entry.block for entry in request.loss_report.entries]

    item = {"type": "reasoning", "id": "rs_1"}
    assert sent("deep") == (item | {"summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}, [])
    said = item | {"summary": [{"type": "summary_text", "text": "deep"}]}
    assert sent("EVIL") == (said, ["content", "summary"])
