"""Replies of the Messages API: what events and whole replies add up to, and what is shown of them."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.unit.providers.anthropic.wire import (
    MODEL,
    anthropic,
    block,
    call,
    encoded,
    end,
    recorded,
    reply,
    start,
    text,
    thinking,
    whole,
)

from turnlog.model import (
    CallError,
    ContextWindow,
    Message,
    Native,
    Response,
    Text,
    Thinking,
    ToolUse,
    Usage,
    content_bytes,
)

MARKS = {"provider": "anthropic", "api": "messages", "model": MODEL}
SEARCH_USE = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "https://x.test", "encrypted_content": "abc", "page_age": None}],
}
CITATION = {"type": "char_location", "cited_text": "b", "document_index": 0}


def aggregate(*events: bytes, model: str | None = None) -> Response:
    """Return what events add up to."""
    return anthropic().aggregate(events, model=model)


def deltas(*events: bytes) -> list[dict[str, Any]]:
    """Return what is shown of events, as JSON."""
    reader = anthropic().reader()
    return [json.loads(msgspec.json.encode(delta)) for event in events for delta in reader.add(event)]


def native(record: dict[str, Any]) -> Native:
    """Return a native block of the model of these tests."""
    return Native(block=Raw(encoded(record)), **MARKS)


def sent_back(response: Response, *, model: str = MODEL) -> list[Any]:
    """Return the blocks of a reply as the next request to a model has them, and check that nothing of them is lost."""
    messages = [recorded(response)]
    calls = [found for found in response.content if isinstance(found, ToolUse)]
    if results := [{"type": "tool_result", "tool_use_id": found.id, "content": "ok"} for found in calls]:
        messages.append(Message(turn="results", role="user", content_json=content_bytes(results)))
    request = anthropic().prepare_request(ContextWindow(messages=messages, options={}), model=model)
    assert request.loss_report.entries == ()
    return json.loads(request.body)["messages"][0]["content"]


# Streamed and whole replies

WHOLE = whole(
    {"type": "thinking", "thinking": "let me see", "signature": "sig"},
    {"type": "redacted_thinking", "data": "secret"},
    {"type": "text", "text": "I'll look", "citations": None},
    SEARCH_USE,
    SEARCH_RESULT,
    {"type": "text", "text": "cited", "citations": [CITATION]},
    {"type": "tool_use", "id": "toolu_1", "name": "a___f", "input": {"n": 1.0, "s": "é"}},
    {"type": "tool_use", "id": "toolu_2", "name": "a___g", "input": {}},
    stop_reason="tool_use",
    usage={"input_tokens": 10, "output_tokens": 20, "service_tier": "standard"},
)


def test_unknown_keys_of_known_blocks_are_kept() -> None:
    """They go back to the model; null says nothing, in a stream as in a whole reply."""
    began = {"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": {"type": "direct"}, "toolset": None}
    response = aggregate(*reply(block(0, began), end("tool_use")))
    assert response.content[0].extra == {"caller": Raw(b'{"type":"direct"}')}
    assert sent_back(response) == [{name: value for name, value in began.items() if value is not None}]


def test_an_input_that_came_with_the_beginning_is_kept() -> None:
    """Servers that do not stream inputs send them at once."""
    events = reply(block(0, {"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1}}), end("tool_use"))
    assert aggregate(*events).content == (ToolUse(id="a", name="f", input=Raw(b'{"n":1}')),)
    assert deltas(*events) == [{"type": "tool_use", "name": "f", "content": {"n": 1}}]


def test_blocks_that_came_with_the_beginning_of_the_message_are_kept_and_shown() -> None:
    """As the calls that a program made in its container do, before the events of any block."""
    events = [start(content=[{"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1}}]), *end("tool_use")]
    assert aggregate(*events).content == (ToolUse(id="a", name="f", input=Raw(b'{"n":1}')),)
    assert deltas(*events) == [{"type": "tool_use", "name": "f", "content": {"n": 1}}]


def test_pieces_go_to_the_block_of_their_index_that_began_last() -> None:
    """Blocks stand in the order in which they began."""
    one, two, three = call(0, "a", "f", '{"x":1}'), call(1, "b", "g", '{"y":2}'), call(0, "c", "h", '{"z":3}')
    response = aggregate(*reply([one[0], two[0], *two[1:], *one[1:], *three], end("tool_use")))
    inputs = [(found.id, bytes(found.input)) for found in response.content if isinstance(found, ToolUse)]
    assert inputs == [("a", b'{"x":1}'), ("b", b'{"y":2}'), ("c", b'{"z":3}')]


# Stop reasons


def test_fields_without_a_normalized_form_are_kept() -> None:
    """Of the beginning and of the end of a stream, the stop sequence among them; the end wins."""
    details = {"type": "refusal", "category": "bio"}
    started = start(container={"id": "c"}, diagnostics=None, role="assistant")
    context = encoded({"type": "message_delta", "delta": {}, "usage": {}, "context_management": {"applied_edits": []}})
    ended = end("refusal", stop_details=details, container={"id": "d"}, stop_sequence="END")
    response = aggregate(started, context, *ended)
    assert response.stop_reason == "refusal"
    assert response.extra == {
        "container": Raw(b'{"id":"d"}'),
        "context_management": Raw(b'{"applied_edits":[]}'),
        "stop_details": Raw(encoded(details)),
        "stop_sequence": Raw(b'"END"'),
    }


def test_fields_of_another_type_say_nothing() -> None:
    """The content of a reply is not lost for them."""
    said = {"type": "text", "text": "a"}
    response = aggregate(whole(said, id=1, model=[], stop_reason={}, usage="none"), model=MODEL)  # pyright: ignore[reportArgumentType]
    assert (response.content, response.model, response.stop_reason) == ((Text(text="a"),), MODEL, "stop")
    assert (response.id, response.raw_stop_reason, response.usage, response.error) == (None, None, None, None)


# Usage


def test_usage_of_the_end_wins_over_that_of_the_beginning() -> None:
    """Counts at the end are totals. What only the beginning reports stays, and so does what the end has as null."""
    began = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 3,
        "cache_creation": {"ephemeral_5m_input_tokens": 7},
        "output_tokens": 1,
    }
    ended = {"input_tokens": 6, "cache_creation_input_tokens": None, "output_tokens": 50, "server_tool_use": {"n": 1}}
    response = aggregate(start(usage=began), *end(usage=ended))
    assert response.usage == Usage(
        input_tokens=6, output_tokens=50, cache_creation_input_tokens=7, cache_read_input_tokens=3
    )
    assert response.usage.total_tokens == 66
    counts = {"input_tokens": 6, "output_tokens": 50, "server_tool_use": {"n": 1}}
    assert json.loads(bytes(response.raw_usage or b"")) == began | counts


def test_iterations_that_the_counts_leave_out_are_counted() -> None:
    """Compacting the conversation and asking an advisor take tokens of their own; messages are in the counts."""
    counts = dict[str, int]
    iterations: list[dict[str, Any]] = [
        {"type": "compaction"} | counts(input_tokens=100, output_tokens=30, cache_read_input_tokens=5000),
        {"type": "message"} | counts(input_tokens=20, output_tokens=9),
        {"type": "advisor_message", "model": "other"} | counts(input_tokens=40, output_tokens=8),
        {"type": "message", "model": "declined"} | counts(input_tokens=7, output_tokens=0),
        {"type": "fallback_message", "model": "m"} | counts(input_tokens=10, output_tokens=3),
    ]
    ended = {"input_tokens": 30, "output_tokens": 12, "output_tokens_details": {"thinking_tokens": 2}}
    response = aggregate(start(usage={"input_tokens": 30}), *end(usage=ended | {"iterations": iterations}))
    assert response.usage == Usage(
        input_tokens=30 + 100 + 40, output_tokens=12 - 2 + 30 + 8, cache_read_input_tokens=5000, reasoning_tokens=2
    )


def test_usage_that_cannot_be_read_is_kept_raw() -> None:
    """No count is made up."""
    response = aggregate(start(usage={"input_tokens": "many"}), *end(usage={}))
    assert (response.usage, response.raw_usage) == (None, Raw(b'{"input_tokens":"many"}'))
    assert aggregate(start(usage=None), *end(usage={})).usage is None


# What goes wrong


def test_a_stream_that_is_cut_keeps_what_came() -> None:
    """Calls have the text of their arguments, and thinking has no signature yet: an empty one would not be valid."""
    events = reply(thinking(0, "s", "hm")[:2], text(1, "half a "), call(2, "a", "f", '{"x": ')[:-1])
    response = aggregate(*events, model=MODEL)
    assert response.content == (
        Thinking(thinking="hm", **MARKS),
        Text(text="half a "),
        ToolUse(id="a", name="f", input=Raw(b"{}"), extra={"malformed_arguments": Raw(b'"{\\"x\\": "')}),
    )
    assert (response.stop_reason, response.raw_stop_reason) == ("error", None)
    message = "anthropic: the stream ended without its message_stop event"
    assert response.error == CallError(message=message, retryable=True)
    assert response.usage == Usage(input_tokens=10, output_tokens=1)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ({"type": "text_delta", "text": "b"}, Text(text="b")),
        ({"type": "thinking_delta", "thinking": "b"}, Thinking(thinking="b", **MARKS)),
        ({"type": "signature_delta", "signature": "s"}, Thinking(thinking="", signature="s", **MARKS)),
        ({"type": "citations_delta", "citation": 1}, Text(text="", extra={"citations": Raw(b"[1]")})),
        ({"type": "input_json_delta", "partial_json": '{"x":1}'}, ToolUse(name="", input=Raw(b'{"x":1}'))),
        ({"type": "new_delta", "x": 1}, native({"x": 1})),
    ],
)
def test_a_block_whose_beginning_did_not_come_begins_with_its_first_piece(piece: dict[str, Any], expected: Any) -> None:
    """The piece tells what kind of block it is of."""
    response = aggregate(*reply(text(0, "a"), block(1, {}, piece)[1:], end()))
    assert response.content == (Text(text="a"), expected)


# Native blocks


def test_native_blocks_keep_their_order_and_spelling() -> None:
    """But for whitespace between tokens."""
    event = b'{"type":"content_block_start","index":0,"content_block":{"type":"new", "z":1E2,"a":"\\u00e9","n":null}}'
    response = aggregate(start(), event, *end())
    assert response.content == (Native(block=Raw(b'{"type":"new","z":1E2,"a":"\\u00e9","n":null}'), **MARKS),)
    assert sent_back(response) == [{"type": "new", "z": 100.0, "a": "é", "n": None}]


@pytest.mark.parametrize(
    ("began", "pieces", "expected"),
    [
        (
            SEARCH_USE | {"input": {}},
            [{"type": "input_json_delta", "partial_json": '{"q'}],
            SEARCH_USE | {"input": {"malformed_arguments": '{"q'}},
        ),
        (
            {"type": "compaction", "content": None, "n": 1},
            [
                {"type": "compaction_delta", "content": "a", "encrypted_content": None},
                {"type": "compaction_delta", "content": "b", "encrypted_content": "x", "n": 2},
                {"type": "compaction_delta", "content": "c"},
            ],
            {"type": "compaction", "content": "abc", "n": 2, "encrypted_content": "x"},
        ),
        ({"type": "new", "x": "a"}, [{"type": "new_delta", "x": x} for x in ("b", 1, "c")], {"type": "new", "x": "c"}),
        ({"type": "new", "text": "a"}, [{"type": "text_delta", "text": "b"}], {"type": "new", "text": "ab"}),
        ({"type": "text", "text": 1}, [], {"type": "text", "text": 1}),
        ({"type": "text", "text": "a", "citations": 1}, [], {"type": "text", "text": "a", "citations": 1}),
    ],
    ids=["cut input", "compaction", "other values", "text", "text of another type", "citations of another type"],
)
def test_blocks_without_a_normalized_form_are_native(
    began: dict[str, Any], pieces: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    """Keys of unknown pieces become theirs: text goes on with text, anything else takes its place. Nothing is lost."""
    assert aggregate(*reply(block(0, began, *pieces), end())).content == (native(expected),)


# For display


def test_deltas_of_a_whole_reply_show_each_block() -> None:
    """With all of its content."""
    assert deltas(WHOLE) == [
        {"type": "thinking", "content": "let me see"},
        {"type": "thinking", "content": ""},
        {"type": "text", "content": "I'll look"},
        {"type": "server_tool_use", "name": "web_search", "content": {"query": "x"}},
        {"type": "web_search_tool_result", "content": "type,url,page_age\nweb_search_result,https://x.test,\n"},
        {"type": "text", "content": "cited"},
        {"type": "tool_use", "name": "a___f", "content": {"n": 1.0, "s": "é"}},
        {"type": "tool_use", "name": "a___g", "content": {}},
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], ""),
        ([{"encrypted_content": "x"}], ""),
        ([{"a": 'say "hi", x', "b": "1\n2"}, {"c": 1.5, "a": True}], 'a,b,c\n"say ""hi"", x","1\n2",\ntrue,,1.5\n'),
        ({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}, None),
        (["text"], None),
    ],
)
def test_search_results_are_shown_as_csv(content: Any, expected: str | None) -> None:
    """A line a result, with the columns of all; what is no list of results is shown as JSON."""
    [delta] = deltas(block(0, SEARCH_RESULT | {"content": content})[0])
    assert delta == {"type": "web_search_tool_result", "content": content if expected is None else expected}


def test_what_else_server_tools_found_is_shown_as_json() -> None:
    """A block that has nothing to read is its type alone."""
    found = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "hi", "return_code": 0}}
    upload = {"type": "container_upload", "file_id": "f"}
    assert deltas(*reply(block(0, found), block(1, upload), end())) == [
        {"type": "code_execution_tool_result", "content": {"stdout": "hi", "return_code": 0}},
        {"type": "container_upload"},
    ]
