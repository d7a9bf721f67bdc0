"""From events and responses of the Responses API to normalized replies, and back to the model that wrote them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.unit.providers.openai_responses.wire import (
    CITATION,
    MODEL,
    REASONING,
    SEARCH,
    USAGE,
    aggregate,
    both,
    called,
    check_reply,
    dumped,
    response,
    said,
    streamed,
)

from turnlog.model import MALFORMED, Delta, Native, Response, Text, Thinking, ToolUse, Usage
from turnlog.providers.openai_responses import OpenAIResponses


def _both(*output: dict[str, Any], **fields: Any) -> Response:
    """Return what a response says, checked against the types of the SDK, streamed and whole."""
    check_reply(*output, **fields)
    return both(*output, **fields)


def _cut(*output: dict[str, Any], after: str, count: int = 1) -> Response:
    """Aggregate a stream that breaks off after the `count`th event of a type."""
    events = streamed(*output)
    places = [place for place, event in enumerate(events) if json.loads(event)["type"] == after]
    return aggregate(*events[: places[count - 1] + 1])


def _shown(events: list[bytes]) -> list[Delta]:
    return [delta for event in events for delta in OpenAIResponses().deltas(event)]


# What a reply says


def test_usage_counts_no_token_twice() -> None:
    """Cached tokens are not input, and reasoning is not output: the sum is that of the API."""
    usage = _both(said("Hello")).usage
    assert usage == Usage(
        input_tokens=30,
        output_tokens=15,
        cache_creation_input_tokens=10,
        cache_read_input_tokens=60,
        reasoning_tokens=35,
    )
    assert usage.total_tokens == USAGE["total_tokens"]


def test_usage_without_details_or_none_at_all() -> None:
    """Endpoints that tell less are understood."""
    whole = response(said("x"), usage={"input_tokens": 3, "output_tokens": 2, "input_tokens_details": None})
    assert aggregate(dumped(whole)).usage == Usage(input_tokens=3, output_tokens=2)
    none = aggregate(dumped(response(said("x"), usage=None)))
    assert (none.usage, none.raw_usage) == (None, None)


def test_reasoning_text_comes_before_its_summary() -> None:
    """Where the reasoning itself is told, it is the text of the thinking."""
    item = REASONING | {"content": [{"type": "reasoning_text", "text": "All of it."}]}
    [thinking] = aggregate(dumped(response(item))).content
    assert isinstance(thinking, Thinking)
    assert thinking.thinking == "All of it."


def test_reasoning_without_encrypted_content_is_not_signed() -> None:
    """Thinking that cannot go back has no signature."""
    [thinking] = aggregate(dumped(response(REASONING | {"encrypted_content": None}))).content
    assert isinstance(thinking, Thinking)
    assert thinking.signature is None


def test_arguments_that_are_no_object_are_kept() -> None:
    """What the model wrote in place of arguments is kept beside an empty input."""
    [call] = _both(called("f", '{"x":')).content
    assert isinstance(call, ToolUse)
    assert (bytes(call.input), bytes(call.extra[MALFORMED])) == (b"{}", b'"{\\"x\\":"')


def test_arguments_as_an_object_are_understood() -> None:
    """Endpoints that send arguments as an object and not as its text give the same call."""
    call = called("f", "")
    assert aggregate(dumped(response(call | {"arguments": {"x": 1}}))).content == (
        ToolUse(
            id="call_1", name="f", input=Raw(b'{"x":1}'), extra={"item": Raw(b'{"id":"fc_1","status":"completed"}')}
        ),
    )


def test_incomplete_response_without_a_reason_is_cut_at_a_limit() -> None:
    """An endpoint that gives no reason still says that the reply is not complete."""
    reply = aggregate(dumped(response(said("Hel"), status="incomplete")))
    assert (reply.stop_reason, reply.raw_stop_reason) == ("length", "incomplete")


@pytest.mark.parametrize(("code", "retryable"), [("server_error", True), ("invalid_prompt", False)])
def test_failed_response_is_an_error_with_what_had_arrived(code: str, retryable: bool) -> None:
    """A failed response gives the provider's error, and the text that was streamed before it."""
    events = streamed(said("Hello"))[:5]
    failed = response(status="failed", error={"code": code, "message": "It broke."}, usage=None)
    reply = aggregate(*events, dumped({"type": "response.failed", "response": failed, "sequence_number": 9}))
    assert (reply.stop_reason, reply.raw_stop_reason) == ("error", "failed")
    assert reply.error is not None
    assert (reply.error.message, reply.error.retryable) == (
        f"openai reported an error: {code}: It broke.",
        retryable,
    )
    assert [block.text for block in reply.content if isinstance(block, Text)] == ["Hel"]
    assert msgspec.json.decode(reply.extra["error"])["code"] == code
    assert aggregate(dumped(failed)).error == reply.error


def test_cancelled_response_is_aborted() -> None:
    """A response that was cancelled at the provider is an aborted reply."""
    reply = aggregate(dumped(response(said("Hel"), status="cancelled")))
    assert (reply.stop_reason, reply.raw_stop_reason) == ("aborted", "cancelled")
    assert reply.error is not None


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_response_that_is_not_there_yet_is_an_error(status: str) -> None:
    """A response that runs in the background has not answered."""
    reply = aggregate(dumped(response(status=status)))
    assert reply.stop_reason == "error"
    assert reply.error is not None
    assert status in reply.error.message


# Streams that are not what they should be


def test_stream_cut_in_a_text_keeps_what_had_arrived() -> None:
    """A stream without its last event is a retryable error, and its text is as far as it came."""
    reply = _cut(REASONING, said("Hello there"), after="response.output_text.delta", count=2)
    assert (reply.stop_reason, reply.raw_stop_reason, reply.model) == ("error", None, MODEL)
    assert reply.error is not None
    assert reply.error.retryable
    assert "response.completed" in reply.error.message
    [thinking, text] = reply.content
    assert isinstance(thinking, Thinking)
    assert thinking.signature == "gAAAA-secret"
    assert isinstance(text, Text)
    assert text.text == "Hello "


def test_stream_cut_in_reasoning_has_no_signature() -> None:
    """The encrypted content of an item that did not come to its end is not complete, and does not sign it."""
    reply = _cut(REASONING, after="response.reasoning_summary_text.delta", count=3)
    [thinking] = reply.content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.signature) == ("First.\n\nThe", None)


def test_stream_cut_in_arguments_keeps_their_text() -> None:
    """A call whose arguments are cut has an empty input, and their text beside it."""
    reply = _cut(called("f", '{"path":"a"}'), after="response.function_call_arguments.delta", count=2)
    [call] = reply.content
    assert isinstance(call, ToolUse)
    assert (call.id, call.name, bytes(call.input), msgspec.json.decode(call.extra[MALFORMED])) == (
        "call_1",
        "f",
        b"{}",
        '{"path',
    )
    assert reply.stop_reason == "error"


def test_stream_cut_in_a_native_item_keeps_it_as_it_was() -> None:
    """An item of another kind is kept with the pieces that had arrived."""
    item = {"id": "ci_1", "type": "code_interpreter_call", "container_id": "c", "code": ""}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "item_id": "ci_1", "delta": "1 "},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "item_id": "ci_1", "delta": "+ 1"},
    ]
    [block] = aggregate(*map(dumped, events)).content
    assert isinstance(block, Native)
    assert msgspec.json.decode(block.block) == item | {"code": "1 + 1"}


def test_annotations_of_a_stream_that_was_cut_are_kept() -> None:
    """Annotations that had arrived are with their text."""
    reply = _cut(said("Tide", annotations=[CITATION]), after="response.output_text.annotation.added")
    [text] = reply.content
    assert isinstance(text, Text)
    assert (text.text, msgspec.json.decode(text.extra["annotations"])) == ("Tide", [CITATION])


def test_response_at_the_end_without_output_leaves_the_items_that_came() -> None:
    """Some endpoints leave the output out of the last event: then the items before it are the content."""
    output = [REASONING, said("Tide", annotations=[CITATION]), called("f", '{"x":1}')]
    whole, events = response(*output), streamed(*output)
    last = {"type": "response.completed", "response": whole | {"output": []}}
    assert aggregate(*events[:-1], dumped(last)) == aggregate(dumped(whole))
    del last["response"]["output"]
    assert aggregate(*events[:-1], dumped(last)) == aggregate(dumped(whole))


@pytest.mark.parametrize("kind", ["response.output_item.done", "response.completed"])
@pytest.mark.parametrize(
    ("content", "empty"),
    [([], []), (None, None), ([{"type": "output_text", "text": ""}], [])],
    ids=["[]", "null", "a part"],
)
def test_texts_that_the_end_leaves_empty_are_those_that_came(kind: str, content: Any, empty: Any) -> None:
    """Some endpoints have items without their texts in the last events: what was shown is not lost."""
    output = [REASONING, said("Tide"), called("f", '{"x":1}')]
    emptied = [REASONING | {"summary": empty}, said("") | {"content": content}, called("f", "")]
    events = [msgspec.json.decode(event) for event in streamed(*output)]
    for event in events:
        if event["type"] == kind == "response.completed":
            event["response"]["output"] = emptied
        elif event["type"] == kind:
            event["item"] = emptied[event["output_index"]]
        elif event["type"].endswith("output_text.done"):
            event["text"] = ""
    if kind != "response.completed":
        events[-1]["response"]["output"] = []
    thinking, text, call = aggregate(*map(dumped, events)).content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.signature) == ("First.\n\nThen.", "gAAAA-secret")
    assert isinstance(text, Text)
    assert text.text == "Tide"
    assert isinstance(call, ToolUse)
    assert bytes(call.input) == b'{"x":1}'


def test_encrypted_content_of_the_item_is_kept_where_the_last_event_has_none() -> None:
    """Reasoning can go back when only its own last event had the encrypted content."""
    whole = response(REASONING, said("Hello"))
    bare = {name: value for name, value in REASONING.items() if name != "encrypted_content"}
    last = {"type": "response.completed", "response": whole | {"output": [bare, said("Hello")]}}
    events = streamed(REASONING, said("Hello"))
    assert aggregate(*events[:-1], dumped(last)).content[0] == aggregate(dumped(whole)).content[0]


def test_deltas_without_announcements_are_understood() -> None:
    """Endpoints that announce no items and parts still give their texts."""
    events = [
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm."},
        {"type": "response.output_text.delta", "output_index": 1, "item_id": "m", "delta": "Hel"},
        {"type": "response.output_text.done", "output_index": 1, "item_id": "m", "text": "Hello"},
        {"type": "response.completed", "response": {"id": "r", "model": "x", "status": "completed"}},
    ]
    reply = aggregate(*map(dumped, events))
    [thinking, text] = reply.content
    assert isinstance(thinking, Thinking)
    assert isinstance(text, Text)
    assert (thinking.thinking, text.text, reply.stop_reason, reply.model) == ("Hm.", "Hello", "stop", "x")


def _placeless(*output: dict[str, Any], but: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the events of a stream without the places of items, and without further fields, of events and of items."""
    events: list[dict[str, Any]] = [json.loads(event) for event in streamed(*output)]
    for event in events:
        for name in ("output_index", *but):
            event.pop(name, None)
        if "item" in event:
            event["item"] = {name: value for name, value in event["item"].items() if name not in but}
    return events


@pytest.mark.parametrize("but", [(), ("item_id", "id")], ids=["ids", "no ids"])
@pytest.mark.parametrize("end", ["cut", "without output"])
def test_items_without_their_places_are_told_apart(but: tuple[str, ...], end: str) -> None:
    """By their ids, as llama.cpp's server has them, or else by when they are announced."""
    output = [REASONING, said("One."), said("Two.") | {"id": "msg_2"}, called("f", '{"x":1}')]
    events = _placeless(*output, but=but)
    del events[-1]["response"]["output"]
    reply = aggregate(*map(dumped, events[:-1] if end == "cut" else events))
    texts = [getattr(block, "text", getattr(block, "thinking", None)) for block in reply.content[:3]]
    assert texts == ["First.\n\nThen.", "One.", "Two."]
    [call] = reply.content[3:]
    assert isinstance(call, ToolUse)
    assert (call.id, bytes(call.input)) == ("call_1", b'{"x":1}')
    assert reply.stop_reason == ("error" if end == "cut" else "tool_use")


def test_pieces_of_a_call_may_name_it_by_its_call_id() -> None:
    """Where its item has no other id."""
    item = {"type": "function_call", "call_id": "fc_1", "name": "f", "arguments": ""}
    delta = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"q":1}'}
    other = {"type": "response.output_text.delta", "item_id": "m", "delta": "Hm."}
    added = {"type": "response.output_item.added", "item": item}
    call, text = aggregate(*map(dumped, (added, other, delta))).content
    assert isinstance(call, ToolUse)
    assert (call.id, bytes(call.input)) == ("fc_1", b'{"q":1}')
    assert isinstance(text, Text)
    assert text.text == "Hm."


def test_items_may_have_their_places_in_some_events() -> None:
    """An event that says the place of an item says where all of it belongs."""
    events = [
        {"type": "response.output_text.delta", "item_id": "b", "delta": "Two"},
        {"type": "response.output_text.delta", "item_id": "a", "output_index": 0, "delta": "One."},
        {"type": "response.output_text.delta", "item_id": "b", "output_index": 1, "delta": "."},
    ]
    texts = [block.text for block in aggregate(*map(dumped, events)).content if isinstance(block, Text)]
    assert texts == ["One.", "Two."]


def test_place_of_an_item_goes_before_its_id() -> None:
    """Some endpoints call an item another thing in each event, and others call all of them the same."""
    deltas = [(0, "a", "One"), (0, "b", "."), (1, "b", "Two"), (1, "b", ".")]
    events = [
        {"type": "response.output_text.delta", "output_index": index, "item_id": id, "delta": text}
        for index, id, text in deltas
    ]
    texts = [block.text for block in aggregate(*map(dumped, events)).content if isinstance(block, Text)]
    assert texts == ["One.", "Two."]


def test_item_that_begins_is_none_that_came_to_its_end() -> None:
    """Also where both are called the same, or nothing."""
    for name in ({"id": "m"}, {}):
        item = {"type": "message", "role": "assistant", **name}
        events: list[dict[str, Any]] = []
        for text in ("One.", "Two."):
            content = [{"type": "output_text", "text": text}]
            events.append({"type": "response.output_item.added", "item": item | {"content": []}})
            events.append({"type": "response.output_item.done", "item": item | {"content": content}})
        texts = [block.text for block in aggregate(*map(dumped, events)).content if isinstance(block, Text)]
        assert texts == ["One.", "Two."]


# Deltas


def test_deltas_of_a_whole_response_are_those_of_its_stream_put_together() -> None:
    """A reply that is not streamed is shown block by block."""
    whole = response(REASONING, SEARCH, said("Hello"), called("f", '{"x":1}'))
    assert _shown([dumped(whole)]) == [
        Delta(type="thinking", content="First.\n\nThen."),
        Delta(type="web_search_call"),
        Delta(type="text", content="Hello"),
        Delta(type="tool_use", name="f", id="call_1"),
        Delta(content='{"x":1}'),
    ]


def test_error_that_is_only_a_text_is_told() -> None:
    """Endpoints that have no code for an error still say what it is."""
    for event in ({"error": "No such model"}, {"type": "error", "error": "No such model"}):
        error = aggregate(dumped(event)).error
        assert error is not None
        assert error.message == "openai reported an error: No such model"


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_stream_cut_before_an_item_said_anything_has_no_block_of_it(kind: str) -> None:
    """An item that was only announced says nothing."""
    item = said("Hello") if kind == "message" else REASONING
    reply = _cut(item, after="response.output_item.added")
    assert (reply.content, reply.stop_reason) == ((), "error")


def test_unknown_events_change_nothing() -> None:
    """Events of unknown types, also with fields of other shapes than known ones, are passed over."""
    events = streamed(said("Hello"))
    unknown = [
        {"type": "keepalive", "sequence_number": 3},
        {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 7},
        {"type": "response.novelty.delta", "delta": {"a": 1}, "output_index": None, "text": [1], "item": 5},
        {"type": "response.image_generation_call.partial_image", "partial_image_b64": "aGk="},
        {},
        {"detail": "?"},
    ]
    assert aggregate(*map(dumped, unknown[:1]), *events[:4], *map(dumped, unknown), *events[4:]) == aggregate(*events)
    assert _shown(list(map(dumped, unknown))) == []
