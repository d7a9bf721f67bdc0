"""Chat Completions: from events to responses and deltas."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.providers.carrying import message, result

from turnlog.errors import ProviderError
from turnlog.model import (
    MALFORMED,
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
from turnlog.providers.openai_chat import OpenAIChat

ADAPTER = OpenAIChat()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk of a stream with one choice, or with none if there is neither a delta nor a finish reason."""
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    choices = [] if delta is None and finish is None else [choice]
    return event({"choices": choices} | fields)


def event(fields: dict[str, Any]) -> bytes:
    """Return an event of a reply that the model `m` gave."""
    known = {"id": "r-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps(known | fields).encode()


def whole(reply: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    """Return a whole reply of one choice."""
    choice = {"index": 0, "message": {"role": "assistant"} | reply, "logprobs": None, "finish_reason": finish}
    return event({"object": "chat.completion", "choices": [choice]} | fields)


def piece(index: int | None, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a piece of a tool call."""
    name = fields.pop("name", None)
    function = {} if name is None else {"name": name}
    function |= {} if arguments is None else {"arguments": arguments}
    return ({} if index is None else {"index": index}) | fields | {"function": function}


def calls(*pieces: dict[str, Any]) -> bytes:
    """Return a chunk with pieces of tool calls."""
    return chunk({"tool_calls": list(pieces)})


def aggregate(*events: bytes, adapter: OpenAIChat = ADAPTER, model: str | None = None) -> Response:
    """Return what events add up to."""
    return adapter.aggregate(events, model=model)


def used(*events: bytes) -> list[tuple[str, str | None, Any]]:
    """Return the tool calls of a stream that ends well: name, id and arguments."""
    response = aggregate(*events, chunk({}, "tool_calls"))
    assert response.stop_reason == "tool_use"
    return [
        (block.name, block.id or None, msgspec.json.decode(block.input))
        for block in response.content
        if isinstance(block, ToolUse)
    ]


def shown(*events: bytes) -> list[Any]:
    """Return the deltas of events as values."""
    return [json.loads(msgspec.json.encode(delta)) for given in events for delta in ADAPTER.deltas(given)]


# Content


def test_text_of_a_stream_is_one_block() -> None:
    """Pieces of text add up, and who answered is told."""
    response = aggregate(
        chunk({"role": "assistant", "content": ""}), chunk({"content": "a"}), chunk({"content": "b"}, "stop")
    )
    assert response == Response(
        content=(Text(text="ab"),),
        model="m",
        stop_reason="stop",
        provider="openai",
        api="chat_completions",
        raw_stop_reason="stop",
        id="r-1",
        extra={"created": msgspec.Raw(b"1")},
    )


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_of_compatible_endpoints_comes_first(field: str) -> None:
    """Thinking is a block of its own, with whose it is."""
    response = aggregate(chunk({field: "h"}), chunk({field: "m"}), chunk({"content": "a"}, "stop"))
    assert response.content == (
        Thinking(thinking="hm", provider="openai", api="chat_completions", model="m"),
        Text(text="a"),
    )


def test_thinking_in_both_fields_is_said_once() -> None:
    """Some endpoints send the old field and the new one side by side."""
    both = chunk({"reasoning": "hm", "reasoning_content": "hm"})
    assert aggregate(both, chunk({"content": "a"}, "stop")).content[0].thinking == "hm"
    assert shown(both) == [{"type": "thinking", "content": "hm"}]


def test_thinking_is_of_the_model_that_was_asked() -> None:
    """A provider answers with a dated name; what goes back goes to the name that was asked."""
    response = aggregate(chunk({"reasoning": "hm"}, "stop", model="m-2025-01-01"), model="m")
    assert response.model == "m-2025-01-01"
    assert response.content == (Thinking(thinking="hm", provider="openai", api="chat_completions", model="m"),)


def test_model_that_was_asked_stands_in_for_one_that_is_not_named() -> None:
    """Some endpoints name no model, or none at first."""
    assert aggregate(chunk({"content": "a"}, "stop", model=""), model="asked").model == "asked"
    assert aggregate(chunk(model=""), chunk({"content": "a"}, "stop"), model="asked").model == "m"


def test_content_in_parts_is_taken_apart() -> None:
    """Some endpoints send thinking and text as parts; what is unknown is kept verbatim."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "reference", "ids": [1]},
    ]
    of = {"provider": "openai", "api": "chat_completions", "model": "m"}
    assert aggregate(whole({"content": parts})).content == (
        Thinking(thinking="hm", **of),
        Text(text="a"),
        Native(block=msgspec.Raw(b'{"type":"reference","ids":[1]}'), **of),
    )


def test_refusal_is_text_with_its_own_stop_reason() -> None:
    """A refusal is shown, and told from an answer."""
    response = aggregate(chunk({"refusal": "I "}), chunk({"refusal": "won't."}), chunk({}, "stop"))
    assert response.content == (Text(text="I won't."),)
    assert (response.stop_reason, response.raw_stop_reason) == ("refusal", "stop")


# Tool calls


def test_parallel_calls_add_up_by_their_index() -> None:
    """Pieces of several calls may come mixed."""
    assert used(
        calls(piece(0, "", id="a", type="function", name="f"), piece(1, "", id="b", type="function", name="g")),
        calls(piece(1, '{"y"')),
        calls(piece(0, '{"x":1}'), piece(1, ":2}")),
    ) == [("f", "a", {"x": 1}), ("g", "b", {"y": 2})]


def test_calls_in_one_piece_each_are_calls() -> None:
    """Some endpoints send a call whole, with an index, with the same index each time, or without any."""
    for indexes in ((0, 1), (0, 0), (None, None)):
        assert used(
            calls(piece(indexes[0], '{"x":1}', id="a", name="f")), calls(piece(indexes[1], '{"x":2}', id="b", name="f"))
        ) == [("f", "a", {"x": 1}), ("f", "b", {"x": 2})]


def test_pieces_without_index_go_on_with_the_last_call() -> None:
    """Without an index a piece is of the call before it, unless it has a name of its own."""
    assert used(
        calls(piece(None, id="a", name="f")),
        calls(piece(None, '{"x":')),
        calls(piece(None, "1}")),
        calls(piece(None, "{}", name="g")),
    ) == [("f", "a", {"x": 1}), ("g", None, {})]


def test_name_may_come_in_pieces_or_again_and_again() -> None:
    """Pieces of a name add up; a name that is repeated with each piece is one."""
    assert used(calls(piece(0, id="a", name="files___")), calls(piece(0, "{}", name="read"))) == [
        ("files___read", "a", {})
    ]
    assert used(calls(piece(0, '{"x"', id="a", name="f")), calls(piece(0, ":1}", id="a", name="f"))) == [
        ("f", "a", {"x": 1})
    ]


def test_new_id_without_a_name_is_no_new_call() -> None:
    """Some endpoints make up an id for each piece: the first one counts."""
    assert used(calls(piece(0, '{"x"', id="a", name="f")), calls(piece(0, ":1}", id="other"))) == [("f", "a", {"x": 1})]


def test_empty_names_and_nulls_say_nothing() -> None:
    """Later pieces may name nothing in several ways."""
    nothing = {"index": 0, "id": None, "function": {"name": None, "arguments": None}}
    assert used(calls(piece(0, "{}", id="a", name="f")), calls(nothing), calls(piece(0, "", id="", name=""))) == [
        ("f", "a", {})
    ]


def test_function_call_of_the_old_form_is_a_call_without_an_id() -> None:
    """The form before tool calls has one call and no id."""
    response = aggregate(
        chunk({"function_call": {"name": "f", "arguments": '{"x":'}}),
        chunk({"function_call": {"arguments": "1}"}}),
        chunk({}, "function_call"),
    )
    assert response.content == (ToolUse(name="f", input=msgspec.Raw(b'{"x":1}')),)
    assert response.stop_reason == "tool_use"


def test_empty_function_call_is_no_call() -> None:
    """Some endpoints have every field in each reply."""
    message = {"content": "a", "function_call": {"name": "", "arguments": ""}, "tool_calls": None}
    response = aggregate(event({"choices": [{"index": 0, "message": message, "finish_reason": ""}]}))
    assert (response.content, response.stop_reason, response.error) == ((Text(text="a"),), "stop", None)


def test_arguments_keep_their_spelling() -> None:
    """Numbers and escapes of the arguments stay as the model wrote them, without whitespace between."""
    response = aggregate(calls(piece(0, '{"n": 1.50e3, "s": "\\u00e9"}', id="a", name="f")), chunk({}, "tool_calls"))
    assert bytes(response.content[0].input) == b'{"n":1.50e3,"s":"\\u00e9"}'


def test_arguments_and_ids_that_are_no_text_are_taken_as_their_json() -> None:
    """Some endpoints write the arguments as an object, and ids as numbers."""
    reply = whole({"tool_calls": [{"id": 7, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]})
    assert aggregate(reply).content == (ToolUse(id="7", name="f", input=msgspec.Raw(b'{"x":1}')),)


@pytest.mark.parametrize("arguments", ['{"x":', "[1]", "no json"])
def test_malformed_arguments_are_kept_as_their_text(arguments: str) -> None:
    """A call whose arguments are no object has an empty input, and the text that the model wrote."""
    [block] = aggregate(calls(piece(0, arguments, id="a", name="f")), chunk({}, "tool_calls")).content
    assert isinstance(block, ToolUse)
    assert (bytes(block.input), msgspec.json.decode(block.extra[MALFORMED])) == (b"{}", arguments)


def test_unknown_fields_of_a_call_are_kept_with_it() -> None:
    """Some endpoints hang signatures on calls."""
    [block] = aggregate(
        calls(piece(0, "{}", id="a", name="f", extra_content={"google": {"thought_signature": "s"}})),
        chunk({}, "tool_calls"),
    ).content
    assert isinstance(block, ToolUse)
    assert block.extra == {"extra_content": msgspec.Raw(b'{"google":{"thought_signature":"s"}}')}


# Stop reasons


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("eos", "stop"),
        ("max_tokens", "length"),
        ("a word of tomorrow", "stop"),
        ("tool_calls", "stop"),
    ],
)
def test_finish_reason_becomes_the_stop_reason(finish: str, expected: str) -> None:
    """Each word has its meaning, and is kept."""
    response = aggregate(chunk({"content": "a"}), chunk({}, finish))
    assert (response.stop_reason, response.raw_stop_reason, response.error) == (expected, finish, None)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("stop", "tool_use"),
        ("length", "length"),
        ("content_filter", "refusal"),
    ],
)
def test_reply_with_calls_that_ended_normally_is_tool_use(finish: str, expected: str) -> None:
    """Calls are to be run only where the reply came to its end."""
    response = aggregate(calls(piece(0, "{}", id="a", name="f")), chunk({}, finish))
    assert (response.stop_reason, response.raw_stop_reason) == (expected, finish)


@pytest.mark.parametrize("finish", ["error", "abort", "aborted", "insufficient_system_resource"])
def test_finish_reason_that_means_failure_is_an_error(finish: str) -> None:
    """What had come is kept, and the call may be tried again."""
    response = aggregate(chunk({"content": "a"}), chunk({}, finish))
    assert (response.stop_reason, response.content) == ("error", (Text(text="a"),))
    assert response.error == CallError(message=f"openai_chat broke its reply off: {finish}", retryable=True)


# Usage


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, Usage(input_tokens=5, output_tokens=7)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            Usage(
                input_tokens=30,
                output_tokens=20,
                cache_read_input_tokens=60,
                cache_creation_input_tokens=10,
                reasoning_tokens=30,
            ),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6},
            Usage(input_tokens=6, output_tokens=2, cache_read_input_tokens=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 9,
                "total_tokens": 27,
                "completion_tokens_details": {"reasoning_tokens": 8},
            },
            Usage(input_tokens=10, output_tokens=9, reasoning_tokens=8),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(input_tokens=1, output_tokens=1, reasoning_tokens=5),
        ),
        (  # reasoning is more than the completion that it is in
            {
                "prompt_tokens": 43,
                "completion_tokens": 10,
                "total_tokens": 53,
                "completion_tokens_details": {"reasoning_tokens": 11},
            },
            Usage(input_tokens=43, reasoning_tokens=10),
        ),
        (  # only the total has the reasoning
            {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109},
            Usage(input_tokens=35, output_tokens=12, reasoning_tokens=62),
        ),
        (  # audio stands beside the prompt
            {
                "prompt_tokens": 9,
                "completion_tokens": 248,
                "total_tokens": 632,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 375},
            },
            Usage(input_tokens=384, output_tokens=248),
        ),
        (  # audio stands in the prompt
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 11,
                "prompt_tokens_details": {"audio_tokens": 5},
            },
            Usage(input_tokens=9, output_tokens=2),
        ),
        (  # more is read from a cache than the prompt has
            {
                "prompt_tokens": 7,
                "completion_tokens": 1,
                "total_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 161},
            },
            Usage(output_tokens=1, cache_read_input_tokens=7),
        ),
        (  # the same tokens are read and written
            {
                "prompt_tokens": 2168,
                "completion_tokens": 100,
                "total_tokens": 2268,
                "prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161},
            },
            Usage(output_tokens=100, cache_read_input_tokens=2161, cache_creation_input_tokens=7),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(cache_read_input_tokens=5),
        ),
        ({"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None}, Usage(input_tokens=3)),
        ({"prompt_tokens": "many"}, None),
    ],
    ids=[
        "plain",
        "details",
        "deepseek",
        "reasoning beside",
        "reasoning beside, no total",
        "reasoning of more than the completion",
        "reasoning in the total only",
        "audio beside",
        "audio inside",
        "cached of more than the prompt",
        "read and written",
        "odd",
        "nulls",
        "unreadable",
    ],
)
def test_usage_counts_no_token_twice(reported: dict[str, Any], expected: Usage | None) -> None:
    """Cached tokens are taken out of the prompt's, reasoning out of the completion's; what was reported is kept."""
    response = aggregate(chunk({"content": "a"}, "stop", usage=None), chunk(usage=reported))
    assert response.usage == expected
    assert bytes(response.raw_usage or b"") == json.dumps(reported, separators=(",", ":")).encode()


def test_no_usage_is_none() -> None:
    """Where nothing was reported nothing is made up."""
    response = aggregate(chunk({"content": "a"}, "stop"))
    assert (response.usage, response.raw_usage) == (None, None)


# Further fields


def test_further_fields_are_kept_in_extra() -> None:
    """Fields of the reply, of the choice and of the message that have no normalized form stay as raw text."""
    response = aggregate(
        whole(
            {"content": "a", "annotations": [{"type": "url_citation"}], "audio": None},
            service_tier="default",
            system_fingerprint="fp",
            obfuscation="xx",
        )
    )
    extra = {name: json.loads(bytes(raw)) for name, raw in response.extra.items()}
    assert extra == {
        "created": 1,
        "service_tier": "default",
        "system_fingerprint": "fp",
        "annotations": [{"type": "url_citation"}],
    }


def test_further_fields_of_a_stream_are_put_together() -> None:
    """Lists are joined, objects key by key, texts of audio too."""
    first = {"index": 0, "delta": {"content": "a", "audio": {"id": "x", "data": "AA", "transcript": "a"}}}
    second = {
        "index": 0,
        "delta": {"content": "b", "audio": {"data": "BB", "transcript": "b"}},
        "finish_reason": "stop",
    }
    response = aggregate(
        event({"choices": [first | {"logprobs": {"content": [1], "refusal": None}, "matched_stop": None}]}),
        event({"choices": [second | {"logprobs": {"content": [2], "refusal": None}, "matched_stop": 7}]}),
    )
    extra = {name: json.loads(bytes(raw)) for name, raw in response.extra.items()}
    assert extra == {
        "created": 1,
        "logprobs": {"content": [1, 2], "refusal": None},
        "audio": {"id": "x", "data": "AABB", "transcript": "ab"},
        "matched_stop": 7,
    }


def test_choices_after_the_first_are_kept() -> None:
    """With `n` above 1 the first choice is the reply, and the others are beside it."""
    response = aggregate(
        event({"choices": [{"index": 1, "delta": {"content": "B"}}]}),
        event({"choices": [{"index": 0, "delta": {"content": "A"}}]}),
        event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]}),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    )
    assert (response.content, response.stop_reason) == ((Text(text="A"),), "stop")
    assert json.loads(bytes(response.extra["choices"])) == [
        {"index": 1, "content": [{"type": "text", "text": "Bb"}], "finish_reason": "length"}
    ]


def test_choices_without_an_index_are_counted() -> None:
    """In a whole reply the place of a choice is its index."""
    replies = [{"message": {"content": text}, "finish_reason": "stop"} for text in "ab"]
    response = aggregate(event({"choices": replies}))
    assert response.content == (Text(text="a"),)
    assert json.loads(bytes(response.extra["choices"]))[0]["content"] == [{"type": "text", "text": "b"}]


# What goes wrong


def test_messages_that_repeat_what_came_say_nothing_new() -> None:
    """Some endpoints have all of it so far in each event of a stream, and once more at its end."""

    def piece_of(text: str, so_far: str, kind: str, finish: str | None) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "message": {"content": so_far}, "finish_reason": finish}
        return event({"object": f"chat.completion.{kind}", "choices": [choice]})

    events = [
        piece_of("a", "a", "chunk", None),
        piece_of("b", "ab", "chunk", None),
        piece_of("", "ab", "done", "stop"),
    ]
    assert (aggregate(*events).content, aggregate(*events).stop_reason) == ((Text(text="ab"),), "stop")
    assert aggregate(*events[:2]).stop_reason == "error"
    assert [delta.content for each in events for delta in OpenAIChat().deltas(each)] == ["a", "b"]
    whole = {"index": 0, "delta": {"content": ""}, "message": {"content": "ab"}, "finish_reason": "stop"}
    assert aggregate(event({"object": "chat.completion", "choices": [whole]})).content == (Text(text="ab"),)


@pytest.mark.parametrize("spelled", ["[]", "[ ]"])
def test_stream_whose_tokens_came_behind_it_has_ended(spelled: str) -> None:
    """Some endpoints give no finish reason; the tokens come in an event of their own when all else has."""
    tokens = b'{"choices":%s,"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}' % spelled.encode()
    response = aggregate(chunk({"content": "a"}), tokens)
    assert (response.stop_reason, response.raw_stop_reason, response.error) == ("stop", None, None)
    assert aggregate(tokens).stop_reason == "error"
    with_choice = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 1}}
    assert aggregate(event(with_choice)).stop_reason == "error"


def test_stream_without_its_end_is_an_error_with_what_had_come() -> None:
    """No finish reason, no end."""
    response = aggregate(chunk({"content": "a"}), calls(piece(0, '{"x":', id="c", name="f")))
    assert response.stop_reason == "error"
    assert response.error == CallError(
        message="the reply of openai_chat ended without its finish reason", retryable=True
    )
    assert [type(block) for block in response.content] == [Text, ToolUse]


def test_no_event_is_an_error() -> None:
    """A reply of nothing did not come to its end."""
    response = aggregate(model="asked")
    assert (response.stop_reason, response.model, response.content) == ("error", "asked", ())


@pytest.mark.parametrize(
    ("reported", "error"),
    [
        (
            {"error": {"message": "too\nmuch", "type": "server_error", "code": None}},
            CallError(message="openai_chat reported an error: too much", retryable=True),
        ),
        (
            {"error": {"message": "bad gateway", "code": 502}},
            CallError(message="openai_chat reported an error: bad gateway", retryable=True, status=502),
        ),
        (
            {"error": {"message": "not yours", "code": 403}},
            CallError(message="openai_chat reported an error: not yours", status=403),
        ),
        ({"error": "plainly"}, CallError(message="openai_chat reported an error: plainly")),
        (
            {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400},
            CallError(message="openai_chat reported an error: too long", status=400),
        ),
        (
            {"message": "queue full", "type": "too_many_requests_error", "param": "queue", "code": "queue_exceeded"},
            CallError(message="openai_chat reported an error: queue full", retryable=True),
        ),
    ],
)
def test_error_inside_a_stream_is_the_error_of_the_reply(reported: dict[str, Any], error: CallError) -> None:
    """An error event is reported in whichever form; what came before and after it is kept."""
    response = aggregate(chunk({"content": "a"}), json.dumps(reported).encode(), chunk({"content": "b"}, "stop"))
    assert (response.stop_reason, response.error) == ("error", error)
    assert response.content == (Text(text="ab"),)


@pytest.mark.parametrize(
    "unreadable",
    [b"no json", b"[]", b'{"choices":[{"delta":{"content":"', b'{"choices":7}', b'{"a":"\xff"}', b"[" * 100_000, b""],
)
def test_unreadable_event_is_an_error_and_the_rest_is_kept(unreadable: bytes) -> None:
    """One broken event does not lose the others; nothing is shown of it."""
    response = aggregate(chunk({"content": "a"}), unreadable, chunk({"content": "b"}, "stop"))
    assert response.stop_reason == "error"
    assert response.error is not None
    assert response.error.message.startswith("openai_chat sent an event that cannot be read")
    assert response.content == (Text(text="ab"),)
    with pytest.raises(ProviderError, match="cannot be read"):
        ADAPTER.deltas(unreadable)


def test_unknown_events_are_ignored() -> None:
    """An event of a kind that there may be tomorrow has no content."""
    response = aggregate(
        b'{"type":"ping","message":"hi"}', chunk({"content": "a"}, "stop"), b'{"object":"moderation","ok":true}'
    )
    assert (response.content, response.stop_reason) == ((Text(text="a"),), "stop")


# Streamed and whole


MESSAGES: dict[str, tuple[list[bytes], bytes]] = {
    "text": (
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "a"}),
            chunk({"content": "b"}),
            chunk({}, "stop"),
        ],
        whole({"content": "ab", "refusal": None}),
    ),
    "thinking and calls": (
        [
            chunk({"reasoning_content": "h"}),
            chunk({"reasoning_content": "m"}),
            chunk({"content": "I look."}),
            calls(piece(0, "", id="a", type="function", name="f")),
            calls(piece(0, '{"x": ')),
            calls(piece(0, "1}")),
            calls(piece(1, "{}", id="b", type="function", name="g")),
            chunk({}, "tool_calls"),
        ],
        whole(
            {
                "content": "I look.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "tool_calls",
        ),
    ),
    "refusal": ([chunk({"refusal": "no"}), chunk({"refusal": "pe"}), chunk({}, "stop")], whole({"refusal": "nope"})),
    "truncated": ([chunk({"content": "ab"}), chunk({}, "length")], whole({"content": "ab"}, "length")),
    "empty": ([chunk({"role": "assistant"}), chunk({}, "stop")], whole({"content": None})),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_streamed_and_whole_replies_are_equal(name: str) -> None:
    """The same reply is the same response, however it came; spelling of whitespace does not count."""
    events, reply = MESSAGES[name]
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    fields = {"service_tier": "default", "usage": usage}
    streamed = aggregate(*events, event({"choices": [], **fields}))
    at_once = aggregate(json.dumps(json.loads(reply) | fields, indent=2).encode())
    assert streamed == at_once
    assert streamed.error is None
    assert streamed.usage == Usage(input_tokens=3, output_tokens=3, cache_read_input_tokens=2)


@pytest.mark.parametrize("name", MESSAGES)
def test_deltas_of_a_stream_and_of_a_whole_reply_show_the_same(name: str) -> None:
    """What is shown adds up to the same texts."""

    def told(deltas: list[Any]) -> dict[str, str]:
        texts: dict[str, str] = {}
        kind = ""
        for delta in deltas:
            kind = delta.get("name") or delta.get("type") or kind
            texts[kind] = texts.get(kind, "") + delta.get("content", "")
        return texts

    events, reply = MESSAGES[name]
    assert told(shown(*events)) == told(shown(reply))


# Deltas


def test_deltas_name_the_type_of_each_piece_of_text() -> None:
    """Text and thinking name their type in every piece; empty pieces and the end show nothing."""
    assert shown(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning": "hm"}),
        chunk({"content": "a"}),
        chunk({"content": "b"}),
        chunk({"refusal": "no"}),
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 1}),
    ) == [
        {"type": "thinking", "content": "hm"},
        {"type": "text", "content": "a"},
        {"type": "text", "content": "b"},
        {"type": "text", "content": "no"},
    ]


def test_deltas_of_a_call_begin_with_its_name() -> None:
    """A call begins with type, name and id; arguments that come with them are in the same delta."""
    assert shown(
        calls(piece(0, "", id="a", name="f")),
        calls(piece(0, '{"x":')),
        calls(piece(0, "1}")),
        calls(piece(1, "{}", id="b", name="g"), piece(2, name="h")),
    ) == [
        {"type": "tool_use", "name": "f", "id": "a"},
        {"content": '{"x":'},
        {"content": "1}"},
        {"type": "tool_use", "name": "g", "id": "b", "content": "{}"},
        {"type": "tool_use", "name": "h"},
    ]


def test_deltas_are_of_the_first_choice() -> None:
    """Other choices are kept and not shown."""
    assert shown(event({"choices": [{"index": 1, "delta": {"content": "B"}}]})) == []


# Back to the wire


def recorded(response: Response) -> Message:
    """Return a response as the turn that a log has of it."""
    return Message(
        turn="reply",
        role="assistant",
        content_json=content_bytes(list(response.content)),
        provider=response.provider,
        api=response.api,
        model=response.model,
    )


def test_what_came_goes_back_as_it_was() -> None:
    """Text, calls and their arguments, malformed ones too, go back to the same model as it wrote them."""
    written = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n":1.50e3,"s":"\\u00e9"}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"cut'}, "extra_content": {"s": 1}},
    ]
    reply = recorded(aggregate(whole({"content": "I look.", "tool_calls": written}, "tool_calls")))
    window = ContextWindow(messages=(reply, message("user", result("a"), result("b"))), options={})
    request = ADAPTER.prepare_request(window, model="m")
    assert json.loads(request.body)["messages"][0] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": written,
    }
    assert not request.loss_report


def test_unknown_parts_go_back_as_they_were() -> None:
    """A part that turnlog does not know goes back verbatim, to the same model."""
    parts = [{"type": "text", "text": "a"}, {"type": "reference", "ids": [1]}]
    window = ContextWindow(messages=(recorded(aggregate(whole({"content": parts}))),), options={})
    request = ADAPTER.prepare_request(window, model="m")
    assert json.loads(request.body)["messages"] == [{"role": "assistant", "content": parts}]
    assert not request.loss_report


# Whatever comes


_NAMES = ["choices", "index", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "id"]
_NAMES += ["type", "text", "error", "usage", "finish_reason", "reasoning", "audio", "logprobs", "prompt_tokens"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "text", "thinking", "{}", "stop"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=20,
)
_EVENTS = st.fixed_dictionaries({"choices": st.lists(st.dictionaries(st.sampled_from(_NAMES), _VALUES), max_size=2)})


@given(st.lists(st.binary(max_size=20) | (_EVENTS | _VALUES).map(lambda value: json.dumps(value).encode()), max_size=4))
def test_aggregate_never_raises(events: list[bytes]) -> None:
    """Whatever a provider sends is a response that can be recorded, with an error where there is no end."""
    response = aggregate(*events, model="m")
    assert (response.stop_reason in ("error", "aborted")) == (response.error is not None)
    content_bytes(list(response.content))
    msgspec.json.encode(response.to_record())
