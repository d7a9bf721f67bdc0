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
    refused,
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


def test_reply_is_normalized() -> None:
    """Model, id, stop reason, usage and further fields of a response are told, streamed or not."""
    reply = _both(said("Hello"))
    assert (reply.model, reply.provider, reply.api, reply.id) == (MODEL, "openai", "responses", "resp_1")
    assert (reply.stop_reason, reply.raw_stop_reason, reply.error) == ("stop", "completed", None)
    assert [block.text for block in reply.content if isinstance(block, Text)] == ["Hello"]
    assert reply.extra == {"created_at": Raw(b"1790000000"), "service_tier": Raw(b'"default"')}
    assert msgspec.json.decode(reply.raw_usage or b"") == USAGE


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


def test_reasoning_becomes_signed_thinking() -> None:
    """The summary is the text of the thinking, the encrypted content its signature, and the model its owner."""
    [thinking, _] = _both(REASONING, said("Hello")).content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.signature) == ("First.\n\nThen.", "gAAAA-secret")
    assert (thinking.provider, thinking.api, thinking.model) == ("openai", "responses", MODEL)
    assert msgspec.json.decode(thinking.extra["item"]) == {"id": "rs_1", "summary": REASONING["summary"]}


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


def test_parallel_calls_keep_their_ids_and_the_spelling_of_their_arguments() -> None:
    """Each function call is a tool use with the API's call id."""
    reply = _both(called("a___b", '{"x":1.50,"y":"é"}', 1), called("a___c", "", 2))
    assert reply.stop_reason == "tool_use"
    assert reply.content == (
        ToolUse(
            id="call_1",
            name="a___b",
            input=Raw('{"x":1.50,"y":"é"}'.encode()),
            extra={"item": Raw(b'{"id":"fc_1","status":"completed"}')},
        ),
        ToolUse(
            id="call_2",
            name="a___c",
            input=Raw(b"{}"),
            extra={"item": Raw(b'{"id":"fc_2","status":"completed"}')},
        ),
    )


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


def test_refusal_is_text_that_says_so() -> None:
    """A refusal is text, marked, and the stop reason."""
    reply = _both(refused("I cannot help with that."))
    [text] = reply.content
    assert isinstance(text, Text)
    assert (text.text, bytes(text.extra["refusal"])) == ("I cannot help with that.", b"true")
    assert (reply.stop_reason, reply.raw_stop_reason) == ("refusal", "completed")


def test_other_items_are_native_blocks() -> None:
    """An item that has no normalized form is kept verbatim with its owner."""
    [block, text] = _both(SEARCH, said("Tide", annotations=[CITATION])).content
    assert isinstance(block, Native)
    assert bytes(block.block) == dumped(SEARCH)
    assert (block.provider, block.api, block.model) == ("openai", "responses", MODEL)
    assert isinstance(text, Text)
    assert msgspec.json.decode(text.extra["annotations"]) == [CITATION]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "stop"),
    ],
)
def test_incomplete_response_says_why(fields: dict[str, Any], expected: str) -> None:
    """The reason of an incomplete response is its stop reason; calls in it may be cut."""
    reply = _both(said("Hel", status="incomplete"), called("f", '{"x":1}'), **fields)
    assert (reply.stop_reason, reply.raw_stop_reason) == (expected, fields["incomplete_details"]["reason"])
    assert reply.error is None


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


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow\ndown", "param": None},
        {"type": "error", "error": {"type": "x", "code": "rate_limit_exceeded", "message": "Slow down"}},
        {"error": {"code": "rate_limit_exceeded", "message": "Slow down"}},
    ],
)
def test_error_event_is_an_error_with_what_had_arrived(event: dict[str, Any]) -> None:
    """An error in a stream, in any of its forms, ends it; one that may pass says so."""
    reply = aggregate(*streamed(said("Hello"))[:5], dumped(event))
    assert reply.stop_reason == "error"
    assert reply.error is not None
    assert (reply.error.message, reply.error.retryable) == (
        "openai reported an error: rate_limit_exceeded: Slow down",
        True,
    )
    assert [block.text for block in reply.content if isinstance(block, Text)] == ["Hel"]


def test_error_that_is_only_a_text_is_told() -> None:
    """Endpoints that have no code for an error still say what it is."""
    for event in ({"error": "No such model"}, {"type": "error", "error": "No such model"}):
        error = aggregate(dumped(event)).error
        assert error is not None
        assert error.message == "openai reported an error: No such model"


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


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_stream_cut_before_an_item_said_anything_has_no_block_of_it(kind: str) -> None:
    """An item that was only announced says nothing."""
    item = said("Hello") if kind == "message" else REASONING
    reply = _cut(item, after="response.output_item.added")
    assert (reply.content, reply.stop_reason) == ((), "error")


def test_annotations_of_a_stream_that_was_cut_are_kept() -> None:
    """Annotations that had arrived are with their text."""
    reply = _cut(said("Tide", annotations=[CITATION]), after="response.output_text.annotation.added")
    [text] = reply.content
    assert isinstance(text, Text)
    assert (text.text, msgspec.json.decode(text.extra["annotations"])) == ("Tide", [CITATION])


def test_no_events_at_all_are_an_error() -> None:
    """A stream that ends at once is a retryable error of the model that was asked."""
    reply = aggregate(model="gpt-6")
    assert (reply.content, reply.model, reply.stop_reason, reply.raw_stop_reason) == ((), "gpt-6", "error", None)
    assert reply.error is not None
    assert reply.error.retryable


def test_event_that_cannot_be_read_is_an_error_and_the_rest_is_kept() -> None:
    """Malformed JSON in a stream is an error, and the response at its end is still taken."""
    events = streamed(REASONING, said("Hello"))
    events[5] = events[5][:-7]
    reply = aggregate(*events)
    assert reply.stop_reason == "error"
    assert reply.error is not None
    assert "cannot be read" in reply.error.message
    assert len(reply.content) == 2
    assert reply.usage is not None


@pytest.mark.parametrize("event", [b"", b"[]", b'"x"', b"nope", b"\xff", b'{"type":"\\ud800"}', b"[" * 5000])
def test_nothing_that_a_provider_sends_raises(event: bytes) -> None:
    """Whatever arrives, the reply says that it cannot be read."""
    reply = aggregate(event)
    assert reply.stop_reason == "error"
    assert reply.error is not None
    assert OpenAIResponses().deltas(event) == []


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


def test_response_at_the_end_without_output_leaves_the_items_that_came() -> None:
    """Some endpoints leave the output out of the last event: then the items before it are the content."""
    output = [REASONING, said("Tide", annotations=[CITATION]), called("f", '{"x":1}')]
    whole, events = response(*output), streamed(*output)
    last = {"type": "response.completed", "response": whole | {"output": []}}
    assert aggregate(*events[:-1], dumped(last)) == aggregate(dumped(whole))
    del last["response"]["output"]
    assert aggregate(*events[:-1], dumped(last)) == aggregate(dumped(whole))


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


# Deltas


def test_deltas_show_what_the_reply_says_as_it_comes() -> None:
    """Texts and thinking come in pieces with their type, calls with their name and then their input."""
    events = streamed(REASONING, SEARCH, said("Hello"), called("f", '{"x":1}'), refused("No.", "msg_2"))
    assert _shown(events) == [
        Delta(type="thinking", content="Fir"),
        Delta(type="thinking", content="st."),
        Delta(type="thinking", content="\n\n"),
        Delta(type="thinking", content="The"),
        Delta(type="thinking", content="n."),
        Delta(type="web_search_call"),
        Delta(type="text", content="Hel"),
        Delta(type="text", content="lo"),
        Delta(type="tool_use", name="f", id="call_1"),
        Delta(content='{"x'),
        Delta(content='":1'),
        Delta(content="}"),
        Delta(type="text", content="No."),
    ]


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
