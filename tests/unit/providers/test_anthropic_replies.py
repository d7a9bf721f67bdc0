"""Replies of the Messages API: what events and whole replies add up to, and what is shown of them."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.unit.providers.messages_wire import (
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

from turnlog import ProviderError
from turnlog.model import (
    CallError,
    ContextWindow,
    Delta,
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
    return [json.loads(msgspec.json.encode(delta)) for event in events for delta in anthropic().deltas(event)]


def sent_back(response: Response, *, model: str = MODEL) -> list[Any]:
    """Return the blocks of a reply as the next request to a model has them, and check that nothing of them is lost."""
    messages = [recorded(response)]
    calls = [found for found in response.content if isinstance(found, ToolUse)]
    results = [{"type": "tool_result", "tool_use_id": found.id, "content": "ok"} for found in calls]
    if results:
        messages.append(Message(turn="results", role="user", content_json=content_bytes(results)))
    request = anthropic().prepare_request(ContextWindow(messages=messages, options={}), model=model)
    assert request.loss_report.entries == ()
    return json.loads(request.body)["messages"][0]["content"]


# Streamed and whole replies

EVENTS = [
    start(usage={"input_tokens": 10, "output_tokens": 1, "service_tier": "standard"}),
    encoded({"type": "ping"}),
    *thinking(0, "sig", "let me ", "see"),
    *block(1, {"type": "redacted_thinking", "data": "secret"}),
    *text(2, "I'll ", "look"),
    *block(3, SEARCH_USE | {"input": {}}, {"type": "input_json_delta", "partial_json": '{"query":"x"}'}),
    *block(4, SEARCH_RESULT),
    *block(
        5,
        {"type": "text", "text": "", "citations": []},
        {"type": "citations_delta", "citation": CITATION},
        {"type": "text_delta", "text": "cited"},
    ),
    *call(6, "toolu_1", "a___f", '{"n": 1.0,', ' "s": "é"}'),
    *call(7, "toolu_2", "a___g"),
    *end("tool_use", usage={"output_tokens": 20, "input_tokens": None}),
]
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


def test_a_streamed_and_a_whole_reply_are_equal() -> None:
    """All kinds of blocks add up to the same response, field by field."""
    assert aggregate(*EVENTS) == aggregate(WHOLE)


def test_blocks_have_their_normalized_form() -> None:
    """Text, thinking and calls are typed, with the model's own spelling of inputs; others are kept as they are."""
    assert aggregate(*EVENTS).content == (
        Thinking(thinking="let me see", signature="sig", **MARKS),
        Thinking(thinking="", signature="secret", redacted=True, **MARKS),
        Text(text="I'll look"),
        Native(block=Raw(encoded(SEARCH_USE)), **MARKS),
        Native(block=Raw(encoded(SEARCH_RESULT)), **MARKS),
        Text(text="cited", extra={"citations": Raw(encoded([CITATION]))}),
        ToolUse(id="toolu_1", name="a___f", input=Raw('{"n":1.0,"s":"é"}'.encode())),
        ToolUse(id="toolu_2", name="a___g", input=Raw(b"{}")),
    )


def test_a_response_has_the_fields_of_the_reply() -> None:
    """Ids, stop reasons and usage, normalized and raw."""
    response = aggregate(*EVENTS)
    assert (response.id, response.model, response.provider, response.api) == ("msg_1", MODEL, "anthropic", "messages")
    assert (response.stop_reason, response.raw_stop_reason, response.error) == ("tool_use", "tool_use", None)
    assert response.usage == Usage(input_tokens=10, output_tokens=20)
    assert response.raw_usage == Raw(b'{"input_tokens":10,"output_tokens":20,"service_tier":"standard"}')
    assert response.extra == {}


def test_a_reply_goes_back_unchanged() -> None:
    """Recorded as an assistant turn, its blocks stand in the next request as they came; blank ones apart."""
    assert sent_back(aggregate(*EVENTS)) == [
        {name: value for name, value in found.items() if value is not None} for found in json.loads(WHOLE)["content"]
    ]


def test_blocks_go_back_under_the_name_that_was_asked() -> None:
    """A reply names a dated version of the model, and its blocks are that version's: they are the asked model's too."""
    dated = f"{MODEL}-20260101"
    response = aggregate(start(model=dated), *thinking(0, "sig", "hm"), *text(1, "a"), *end(), model=MODEL)
    assert response.model == dated
    assert response.content[0] == Thinking(thinking="hm", signature="sig", **(MARKS | {"model": dated}))
    for model in (MODEL, dated):
        assert sent_back(response, model=model)[0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}


def test_unknown_keys_of_known_blocks_are_kept() -> None:
    """They go back to the model; null says nothing, in a stream as in a whole reply."""
    began = {
        "type": "tool_use",
        "id": "a",
        "name": "f",
        "input": {},
        "caller": {"type": "direct"},
        "toolset_name": None,
    }
    response = aggregate(*reply(block(0, began), end("tool_use")))
    assert response.content[0].extra == {"caller": Raw(b'{"type":"direct"}')}
    assert sent_back(response) == [{name: value for name, value in began.items() if value is not None}]


def test_an_input_that_came_with_the_beginning_is_kept() -> None:
    """Servers that do not stream inputs send them at once."""
    began = {"type": "tool_use", "id": "a", "name": "f", "input": {"n": 1}}
    events = reply(block(0, began), end("tool_use"))
    assert aggregate(*events).content == (ToolUse(id="a", name="f", input=Raw(b'{"n":1}')),)
    assert deltas(*events) == [{"type": "tool_use", "name": "f", "content": {"n": 1}}]


def test_blocks_that_share_an_index_are_told_apart() -> None:
    """A piece is of the block of its index that began last."""
    response = aggregate(*reply(text(0, "a"), text(0, "b", "c"), end()))
    assert response.content == (Text(text="a"), Text(text="bc"))


def test_interleaved_pieces_go_to_their_blocks() -> None:
    """The index says which block a piece is of, and blocks stand in the order in which they began."""
    one, two = call(0, "a", "f", '{"x":1}'), call(1, "b", "g", '{"y":2}')
    response = aggregate(*reply([one[0], two[0], two[1], two[2], one[1], one[2], one[3], two[3]], end("tool_use")))
    assert [bytes(found.input) for found in response.content if isinstance(found, ToolUse)] == [b'{"x":1}', b'{"y":2}']


# Stop reasons


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_use"),
        ("refusal", "refusal"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_stop_reasons_are_mapped(raw: str | None, expected: str) -> None:
    """Each has its place in the enum, and the provider's own word is kept."""
    response = aggregate(*reply(text(0, "a"), end(raw)))
    assert (response.stop_reason, response.raw_stop_reason, response.error) == (expected, raw, None)
    assert aggregate(whole({"type": "text", "text": "a"}, stop_reason=raw)) == response  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("raw", "expected"), [("end_turn", "tool_use"), ("max_tokens", "length"), ("refusal", "refusal")]
)
def test_a_reply_with_calls_that_ended_normally_asks_for_tools(raw: str, expected: str) -> None:
    """One that was cut short does not."""
    assert aggregate(*reply(call(0, "a", "f"), end(raw))).stop_reason == expected


def test_fields_without_a_normalized_form_are_kept() -> None:
    """Of the beginning and of the end of a stream; the end wins."""
    details = {"type": "refusal", "category": "bio"}
    started = start(container={"id": "c"}, diagnostics=None, role="assistant")
    context = encoded({"type": "message_delta", "delta": {}, "usage": {}, "context_management": {"applied_edits": []}})
    response = aggregate(started, context, *end("refusal", stop_details=details, container={"id": "d"}))
    assert response.stop_reason == "refusal"
    assert response.extra == {
        "container": Raw(b'{"id":"d"}'),
        "context_management": Raw(b'{"applied_edits":[]}'),
        "stop_details": Raw(encoded(details)),
    }


def test_the_stop_sequence_is_kept() -> None:
    """It says which one it was."""
    assert aggregate(*reply(text(0, "a"), end("stop_sequence", stop_sequence="END"))).extra == {
        "stop_sequence": Raw(b'"END"')
    }


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
    assert json.loads(bytes(response.raw_usage or b"")) == began | {
        "input_tokens": 6,
        "output_tokens": 50,
        "server_tool_use": {"n": 1},
    }


def test_tokens_of_thinking_are_counted_once() -> None:
    """Where they are told apart they are no output tokens."""
    response = aggregate(*reply(end(usage={"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}})))
    assert response.usage == Usage(input_tokens=10, output_tokens=20, reasoning_tokens=30)


def test_usage_that_cannot_be_read_is_kept_raw() -> None:
    """No count is made up."""
    response = aggregate(start(usage={"input_tokens": "many"}), *end(usage={}))
    assert (response.usage, response.raw_usage) == (None, Raw(b'{"input_tokens":"many"}'))
    assert aggregate(start(usage=None), *end(usage={})).usage is None


# What goes wrong


def test_a_stream_that_is_cut_keeps_what_came() -> None:
    """Text and thinking as far as they came, the calls among them with the text of their arguments."""
    events = reply(thinking(0, "s", "hm"), text(1, "half a "), call(2, "a", "f", '{"x": ')[:-1])
    response = aggregate(*events, model=MODEL)
    assert response.content == (
        Thinking(thinking="hm", signature="s", **MARKS),
        Text(text="half a "),
        ToolUse(id="a", name="f", input=Raw(b"{}"), extra={"malformed_arguments": Raw(b'"{\\"x\\": "')}),
    )
    assert (response.stop_reason, response.raw_stop_reason) == ("error", None)
    message = "anthropic: the stream ended without its message_stop event"
    assert response.error == CallError(message=message, retryable=True)
    assert response.usage == Usage(input_tokens=10, output_tokens=1)


def test_thinking_that_is_cut_has_no_signature() -> None:
    """An empty one would not be valid."""
    response = aggregate(*reply(thinking(0, "s", "hm")[:2]))
    assert response.content == (Thinking(thinking="hm", **MARKS),)
    assert response.content[0].signature is UNSET  # pyright: ignore[reportAttributeAccessIssue]


def test_a_call_that_the_length_cut_says_so() -> None:
    """It is no error: the reply is complete as such."""
    response = aggregate(*reply(call(0, "a", "f", '{"x": "unfin'), end("max_tokens")))
    assert (response.stop_reason, response.error) == ("length", None)
    assert response.content[0].extra == {"malformed_arguments": Raw(b'"{\\"x\\": \\"unfin"')}


@pytest.mark.parametrize("missing", [[], end("end_turn")[:1]])
def test_a_stream_without_its_last_event_failed(missing: list[bytes]) -> None:
    """Even where the stop reason came."""
    response = aggregate(*reply(text(0, "a"), missing))
    assert (response.stop_reason, response.raw_stop_reason) == ("error", "end_turn" if missing else None)
    assert response.content == (Text(text="a"),)


def test_no_event_at_all_is_an_error() -> None:
    """The response names the model that was asked."""
    response = aggregate(model="asked")
    assert (response.content, response.model, response.stop_reason) == ((), "asked", "error")
    assert (response.id, response.usage, response.raw_usage) == (None, None, None)
    assert aggregate().model == ""


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("rate_limit_error", True),
        ("api_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
        ("authentication_error", False),
    ],
)
def test_an_error_event_is_the_error_of_the_reply(kind: str, retryable: bool) -> None:
    """What had come is kept; the type of the error says whether to try again."""
    event = encoded({"type": "error", "error": {"type": kind, "message": "Too\nmuch"}})
    response = aggregate(*reply(text(0, "a"), [event]))
    assert response.error == CallError(message=f"anthropic broke off: Too much ({kind})", retryable=retryable)
    assert (response.stop_reason, response.content) == ("error", (Text(text="a"),))
    assert aggregate(event).error == response.error


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"type": "error", "error": {"type": "api_error"}}, "api_error"),
        ({"type": "error", "error": {}}, "an error, and no more"),
        ({"error": {"message": "no type"}}, "no type"),
    ],
)
def test_errors_that_say_little_are_errors(event: dict[str, Any], said: str) -> None:
    """The message has what there is."""
    error = aggregate(*reply([encoded(event)], end())).error
    assert error is not None
    assert error.message == f"anthropic broke off: {said}"


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","te',
        b"",
        b"null",
        b"[1]",
        b'{"type":1}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\xff"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud800"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":1}}',
        b'{"type":"content_block_start","index":0}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"new","x":"\xff"}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"new","x":'
        + b"[" * 99_999
        + b"]" * 99_999
        + b"}}",
        b'{"type":"message_delta","delta":[]}',
    ],
)
def test_an_event_that_cannot_be_read_is_an_error_and_the_rest_is_kept(event: bytes) -> None:
    """The error shows the beginning of the event, and that trying again may help."""
    response = aggregate(*reply(text(0, "a"), [event], text(1, "b"), end()))
    assert response.content == (Text(text="a"), Text(text="b"))
    assert (response.stop_reason, response.raw_stop_reason) == ("error", "end_turn")
    assert response.error is not None
    assert response.error.message.startswith("anthropic sent an event that cannot be read: ")
    assert (response.error.retryable, len(response.error.message) < 200) == (True, True)


def test_the_first_error_counts() -> None:
    """Later ones follow from it."""
    response = aggregate(start(), b"{", encoded({"type": "error", "error": {"message": "late"}}))
    assert response.error is not None
    assert response.error.message == "anthropic sent an event that cannot be read: '{'"


def test_unknown_events_are_passed_over() -> None:
    """Whatever they look like."""
    strange = [encoded({"type": "new_event", "index": "x", "delta": "y"}), encoded({"type": "ping"}), b"{}"]
    response = aggregate(*reply(strange, text(0, "a"), strange, end()))
    assert (response.content, response.error) == ((Text(text="a"),), None)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ({"type": "text_delta", "text": "b"}, Text(text="b")),
        ({"type": "thinking_delta", "thinking": "b"}, Thinking(thinking="b", **MARKS)),
        ({"type": "signature_delta", "signature": "s"}, Thinking(thinking="", signature="s", **MARKS)),
        ({"type": "citations_delta", "citation": 1}, Text(text="", extra={"citations": Raw(b"[1]")})),
        ({"type": "input_json_delta", "partial_json": '{"x":1}'}, ToolUse(name="", input=Raw(b'{"x":1}'))),
        ({"type": "new_delta", "x": 1}, Native(block=Raw(b'{"x":1}'), **MARKS)),
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


def test_a_server_tool_call_that_was_cut_keeps_its_text() -> None:
    """Its input stays an object."""
    began = SEARCH_USE | {"input": {}}
    response = aggregate(*reply(block(0, began, {"type": "input_json_delta", "partial_json": '{"q'})))
    expected = began | {"input": {"malformed_arguments": '{"q'}}
    assert response.content == (Native(block=Raw(encoded(expected)), **MARKS),)


def test_pieces_of_an_unknown_kind_become_keys_of_their_block() -> None:
    """As the compaction of a conversation has them: text goes on with text, anything else takes its place."""
    began = {"type": "compaction", "content": None, "n": 1}
    pieces = [
        {"type": "compaction_delta", "content": "a", "encrypted_content": None},
        {"type": "compaction_delta", "content": "b", "encrypted_content": "x", "n": 2},
    ]
    response = aggregate(*reply(block(0, began, *pieces), end()))
    expected = {"type": "compaction", "content": "ab", "n": 2, "encrypted_content": "x"}
    assert response.content == (Native(block=Raw(encoded(expected)), **MARKS),)


def test_pieces_of_text_go_on_with_the_text_of_a_native_block() -> None:
    """So do blocks of a known type that have not its form: nothing is lost."""
    piece = {"type": "text_delta", "text": "b"}
    response = aggregate(
        *reply(block(0, {"type": "new", "text": "a"}, piece), block(1, {"type": "text", "text": 1}), end())
    )
    assert response.content == (
        Native(block=Raw(b'{"type":"new","text":"ab"}'), **MARKS),
        Native(block=Raw(b'{"type":"text","text":1}'), **MARKS),
    )


# For display


def test_deltas_show_each_piece_as_it_comes() -> None:
    """The first piece of a block has its type; signatures and citations are not shown."""
    assert deltas(*EVENTS) == [
        {"type": "thinking", "content": ""},
        {"content": "let me "},
        {"content": "see"},
        {"type": "thinking", "content": ""},
        {"type": "text", "content": ""},
        {"content": "I'll "},
        {"content": "look"},
        {"type": "server_tool_use", "name": "web_search"},
        {"content": '{"query":"x"}'},
        {"type": "web_search_tool_result", "content": "type,url,page_age\nweb_search_result,https://x.test,\n"},
        {"type": "text", "content": ""},
        {"content": "cited"},
        {"type": "tool_use", "name": "a___f"},
        {"content": ""},
        {"content": '{"n": 1.0,'},
        {"content": ' "s": "é"}'},
        {"type": "tool_use", "name": "a___g"},
        {"content": ""},
    ]


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


def test_other_events_show_nothing() -> None:
    """Beginnings and ends of messages, pings, errors and what is not known."""
    error = encoded({"type": "error", "error": {"type": "api_error", "message": "x"}})
    assert deltas(start(), encoded({"type": "ping"}), error, encoded({"type": "new", "delta": 1}), *end()) == []
    assert anthropic().deltas(text(0, "a")[1]) == (Delta(content="a"),)


@pytest.mark.parametrize("event", [b"{", b'{"type":"content_block_start"}', b'{"type":"message","content":1}'])
def test_deltas_of_an_event_that_cannot_be_read_raise(event: bytes) -> None:
    """The error shows the event."""
    with pytest.raises(ProviderError, match="cannot be read") as raised:
        anthropic().deltas(event)
    assert raised.value.provider == "anthropic"
