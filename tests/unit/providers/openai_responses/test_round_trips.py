"""Replies of the Responses API on their way back to the model that wrote them, and to others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tests.unit.providers.openai_responses.wire import (
    CITATION,
    MODEL,
    REASONING,
    SEARCH,
    called,
    dumped,
    lost,
    prepared,
    recorded,
    response,
    said,
    spoken,
    stream_of,
)

from turnlog.model import ContextWindow, Native, Text, ToolUse
from turnlog.providers.openai_responses import OpenAIResponses


def _back(*output: dict[str, Any], model: str = MODEL, reply_model: str = MODEL) -> Any:
    """Return the request that sends a recorded reply back, with results for its calls."""
    reply = OpenAIResponses().aggregate(stream_of(response(*output, model=reply_model)))
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "ok"}
        for block in reply.content
        if isinstance(block, ToolUse)
    ]
    return prepared(spoken("user", "?"), recorded(reply), spoken("user", *results, "Go on"), model=model)


def _items(request: Any) -> list[Any]:
    return json.loads(request.body)["input"]


def test_reply_goes_back_item_by_item_as_it_came() -> None:
    """All items of a reply go back to their model verbatim and in order; nothing is lost."""
    output = [
        REASONING | {"status": "completed"},
        SEARCH,
        said("Tide", annotations=[CITATION], phase="commentary"),
        REASONING | {"id": "rs_2", "summary": []},
        called("a___b", '{"x":1.50}', 1),
        called("a___c", "{}", 2) | {"namespace": "n"},
    ]
    request = _back(*output)
    assert _items(request)[1 : 1 + len(output)] == output
    assert not request.loss_report


def test_arguments_go_back_as_they_were_spelled() -> None:
    """Numbers and escapes of arguments are not written anew."""
    request = _back(called("f", '{"x":1.50,"y":"\\u00e9"}'))
    assert b'"arguments":"{\\"x\\":1.50,\\"y\\":\\"\\\\u00e9\\"}"' in request.body


def test_malformed_arguments_go_back_as_they_were_written() -> None:
    """The model sees its own mistake."""
    assert _items(_back(called("f", '{"x":')))[1] == called("f", '{"x":')


def test_message_of_several_parts_goes_back_as_one() -> None:
    """Texts, refusals and parts of unknown types of one message stay together, and two messages stay two."""
    parts = [
        {"type": "output_text", "text": "One", "annotations": [CITATION], "logprobs": []},
        {"type": "output_text", "text": "Two", "annotations": []},
        {"type": "refusal", "refusal": "Three"},
    ]
    message = said("") | {"content": parts}
    items = _items(_back(message, said("Four", "msg_2"), said("Five", "msg_3")))
    assert items[1:4] == [message, said("Four", "msg_2"), said("Five", "msg_3")]


def test_part_of_an_unknown_type_goes_back_in_its_message() -> None:
    """A part that has no normalized form is a native block, and goes back where it was."""
    audio = {"type": "output_audio", "data": "aGk=", "transcript": "Hi"}
    message = said("Hello") | {"content": [said("Hello")["content"][0], audio]}
    reply = OpenAIResponses().aggregate([dumped(response(message))])
    assert [type(block) for block in reply.content] == [Text, Native]
    window = ContextWindow(messages=[spoken("user", "?"), recorded(reply)], options={})
    assert _items(OpenAIResponses().prepare_request(window, model=MODEL))[1] == message


def test_reply_of_a_dated_model_goes_back_to_its_alias() -> None:
    """The API answers an alias with the name of a snapshot, and the alias gets everything back."""
    output = [REASONING, said("Hello")]
    request = _back(*output, reply_model="gpt-6-2026-02-03")
    assert _items(request)[1:3] == output
    assert not request.loss_report


def test_another_model_gets_text_and_calls_and_a_report() -> None:
    """Another model of the same api gets no encrypted reasoning, no native items and no ids; all is reported."""
    request = _back(REASONING, SEARCH, said("Tide", annotations=[CITATION]), called("f", "{}"), model="gpt-7")
    assert _items(request)[1:3] == [
        {"type": "message", "role": "assistant", "content": "Tide"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ]
    assert [entry.split(":")[0] for entry in lost(request)] == [
        "dropped thinking reply",
        "dropped native reply",
        "dropped annotations reply",
        "dropped item reply",
        "dropped item reply",
    ]


def test_unsigned_thinking_does_not_go_back() -> None:
    """Reasoning without encrypted content cannot be resumed: it is dropped and reported."""
    request = _back(REASONING | {"encrypted_content": None}, said("Hello"))
    assert _items(request)[1] == said("Hello")
    assert [entry.split(":")[0] for entry in lost(request)] == ["dropped thinking reply"]


def test_reasoning_that_nothing_follows_does_not_go_back() -> None:
    """A reply cut at its limit while it reasoned is left out: the API wants the item that reasoning is followed by."""
    request = _back(REASONING)
    assert [item["type"] for item in _items(request)] == ["message", "message"]
    assert [entry.split(":")[0] for entry in lost(request)] == ["dropped thinking reply"]


def test_message_without_parts_is_kept_as_empty_text() -> None:
    """A message that says nothing keeps its id in the log, and is left out of the next request."""
    reply = OpenAIResponses().aggregate([dumped(response(said("") | {"content": []}))])
    [text] = reply.content
    assert isinstance(text, Text)
    assert (text.text, msgspec.json.decode(text.extra["item"])["id"]) == ("", "msg_1")
    assert [entry.split(":")[0] for entry in lost(_back(said("") | {"content": []}))] == ["dropped text reply"]
