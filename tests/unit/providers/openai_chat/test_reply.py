"""Chat Completions: from events to responses and deltas."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.providers.openai_chat.wire import (
    HOME,
    OTHER,
    aggregate,
    calls,
    chunk,
    event,
    piece,
    recorded,
    shown,
    used,
    values,
    whole,
)

from turnlog.model import ARGUMENTS, MALFORMED, CallError, ContextWindow, Native, Response, Text, Thinking, ToolUse


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


@pytest.mark.parametrize("fields", [("reasoning_content",), ("reasoning",), ("reasoning", "reasoning_content")])
def test_thinking_is_a_block_of_its_own_and_said_once(fields: tuple[str, ...]) -> None:
    """It comes first, with whose it is; some endpoints send the old field and the new one side by side."""
    pieces = [chunk(dict.fromkeys(fields, "h")), chunk(dict.fromkeys(fields, "m"))]
    assert shown(*pieces) == [{"type": "thinking", "content": "h"}, {"type": "thinking", "content": "m"}]
    response = aggregate(*pieces, chunk({"content": "a"}, "stop"))
    assert response.content == (
        Thinking(thinking="hm", provider="openai", api="chat_completions", model="m"),
        Text(text="a"),
    )


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


NOTHING = {"index": 0, "id": None, "function": {"name": None, "arguments": None}}
F_AND_F = [("f", "a", {"x": 1}), ("f", "b", {"x": 2})]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (
            [
                [piece(0, "", id="a", type="function", name="f"), piece(1, "", id="b", type="function", name="g")],
                [piece(1, '{"y"')],
                [piece(0, '{"x":1}'), piece(1, ":2}")],
            ],
            [("f", "a", {"x": 1}), ("g", "b", {"y": 2})],
        ),
        *(
            ([[piece(first, '{"x":1}', id="a", name="f")], [piece(second, '{"x":2}', id="b", name="f")]], F_AND_F)
            for first, second in ((0, 1), (0, 0), (None, None))
        ),
        (
            [[piece(None, text)] if text else [piece(None, id="a", name="f")] for text in ("", '{"x":', "1}")]
            + [[piece(None, "{}", name="g")]],
            [("f", "a", {"x": 1}), ("g", None, {})],
        ),
        ([[piece(0, id="a", name="files___")], [piece(0, "{}", name="read")]], [("files___read", "a", {})]),
        ([[piece(0, '{"x"', id="a", name="f")], [piece(0, ":1}", id="a", name="f")]], F_AND_F[:1]),
        ([[piece(0, '{"x"', id="a", name="f")], [piece(0, ":1}", id="other")]], F_AND_F[:1]),
        ([[piece(0, "{}", id="a", name="f")], [NOTHING], [piece(0, "", id="", name="")]], [("f", "a", {})]),
    ],
    ids=[
        "pieces of several, mixed",
        "whole, each with an index",
        "whole, all with the same index",
        "whole, without indexes",
        "pieces without indexes are of the last one, unless they have a name",
        "a name in pieces",
        "the name again and again",
        "an id made up for each piece",
        "empty names and nulls",
    ],
)
def test_calls_come_in_many_ways(pieces: list[list[dict[str, Any]]], expected: list[Any]) -> None:
    """Endpoints differ in what the pieces of calls have to tell them apart."""
    assert used(*(calls(*some) for some in pieces)) == expected


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
    """Numbers and escapes of the arguments stay as the model wrote them; its whitespace stands beside them."""
    response = aggregate(calls(piece(0, '{"n": 1.50e3, "s": "\\u00e9"}', id="a", name="f")), chunk({}, "tool_calls"))
    [block] = response.content
    assert bytes(block.input) == b'{"n":1.50e3,"s":"\\u00e9"}'
    assert values(block.extra) == {ARGUMENTS: '{"n": 1.50e3, "s": "\\u00e9"}'}


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


# Stop reasons


@pytest.mark.parametrize(
    ("finish", "of_text", "of_calls"),
    [
        ("stop", "stop", "tool_use"),
        ("tool_calls", "stop", "tool_use"),
        ("function_call", "stop", "tool_use"),
        ("eos", "stop", "tool_use"),
        ("a word of tomorrow", "stop", "tool_use"),
        ("length", "length", "length"),
        ("max_tokens", "length", "length"),
        ("content_filter", "refusal", "refusal"),
    ],
)
def test_finish_reason_becomes_the_stop_reason(finish: str, of_text: str, of_calls: str) -> None:
    """Each word has its meaning, and is kept. Calls are to be run only where the reply came to its end."""
    for said, expected in ((chunk({"content": "a"}), of_text), (calls(piece(0, "{}", id="a", name="f")), of_calls)):
        response = aggregate(said, chunk({}, finish))
        assert (response.stop_reason, response.raw_stop_reason, response.error) == (expected, finish, None)


@pytest.mark.parametrize("finish", ["error", "abort", "aborted", "insufficient_system_resource"])
def test_finish_reason_that_means_failure_is_an_error(finish: str) -> None:
    """What had come is kept, and the call may be tried again."""
    response = aggregate(chunk({"content": "a"}), chunk({}, finish))
    assert (response.stop_reason, response.content) == ("error", (Text(text="a"),))
    assert response.error == CallError(message=f"openai broke its reply off: {finish}", retryable=True)


# Further fields


def test_further_fields_are_kept_in_extra() -> None:
    """Fields of the reply and of the choice that have no normalized form stay; mere padding does not."""
    fields = {"service_tier": "default", "system_fingerprint": "fp", "obfuscation": "xx"}
    response = aggregate(whole({"content": "a", "audio": None}, **fields))
    assert values(response.extra) == {"created": 1, "service_tier": "default", "system_fingerprint": "fp"}


def test_further_fields_of_a_stream_are_put_together() -> None:
    """Lists are joined, objects key by key; of others the last one counts."""
    first = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [1], "refusal": None}, "matched_stop": None}
    last = {"logprobs": {"content": [2], "refusal": None}, "matched_stop": 7, "finish_reason": "stop"}
    response = aggregate(event({"choices": [first]}), event({"choices": [first | last]}))
    assert values(response.extra) == {"created": 1, "logprobs": {"content": [1, 2], "refusal": None}, "matched_stop": 7}


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
    assert [delta["content"] for delta in shown(*events)] == ["a", "b"]
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


def test_stream_without_its_end_is_an_error() -> None:
    """No finish reason, no end; what had come is kept, and be it nothing."""
    error = CallError(message="the reply of openai ended without its finish reason", retryable=True)
    begun = [chunk({"content": "a"}), calls(piece(0, '{"x":', id="c", name="f"))]
    for events, kinds in ((begun, [Text, ToolUse]), ([], [])):
        response = aggregate(*events, model="m")
        assert (response.stop_reason, response.error, response.model) == ("error", error, "m")
        assert [type(block) for block in response.content] == kinds


@pytest.mark.parametrize(
    ("reported", "said", "retryable", "status"),
    [
        ({"error": {"message": "too\nmuch", "type": "server_error", "code": None}}, "too much", True, None),
        ({"error": {"message": "bad gateway", "code": 502}}, "bad gateway", True, 502),
        ({"error": {"message": "not yours", "code": 403}}, "not yours", False, 403),
        ({"error": "plainly"}, "plainly", False, None),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long", False, 400),
        ({"message": "full", "type": "too_many_requests_error", "code": "queue_exceeded"}, "full", True, None),
    ],
)
def test_error_inside_a_stream_is_the_error_of_the_reply(
    reported: dict[str, Any], said: str, retryable: bool, status: int | None
) -> None:
    """An error event is reported in whichever form; what came before and after it is kept."""
    response = aggregate(chunk({"content": "a"}), json.dumps(reported).encode(), chunk({"content": "b"}, "stop"))
    message = f"openai reported an error: {said}"
    assert response.stop_reason == "error"
    assert response.error == CallError(message=message, retryable=retryable, status=status)
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
    assert response.error.message.startswith("openai sent an event that cannot be read")
    assert response.content == (Text(text="ab"),)
    assert HOME.deltas(unreadable) == []


# Streamed and whole


REPLIES: dict[str, tuple[list[bytes], bytes]] = {
    "refusal": ([chunk({"refusal": "no"}), chunk({"refusal": "pe"}), chunk({}, "stop")], whole({"refusal": "nope"})),
    "truncated": ([chunk({"content": "ab"}), chunk({}, "length")], whole({"content": "ab"}, "length")),
    "empty": ([chunk({"role": "assistant"}), chunk({}, "stop")], whole({"content": None})),
    "old form": (
        [
            chunk({"function_call": {"name": "f", "arguments": "{"}}),
            chunk({"function_call": {"arguments": "}"}}, "stop"),
        ],
        whole({"function_call": {"name": "f", "arguments": "{}"}}),
    ),
}
"""Besides those of the provider suite, which have thinking, text and calls."""


@pytest.mark.parametrize("name", REPLIES)
def test_streamed_and_whole_replies_are_equal(name: str) -> None:
    """However it came, the same reply is the same response and shows the same; whitespace does not count."""
    events, reply = REPLIES[name]
    fields = {"service_tier": "default", "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    streamed = aggregate(*events, event({"choices": [], **fields}))
    assert streamed == aggregate(json.dumps(json.loads(reply) | fields, indent=2).encode())
    assert streamed.error is None
    told = ["".join(delta["content"] for delta in shown(*one)) for one in (events, [reply])]
    assert told[0] == told[1]


# Deltas


def test_deltas_name_the_type_of_each_piece_of_text_and_of_the_first_of_a_call() -> None:
    """A call begins with type, name and id, once. Empty pieces, the end, and other choices show nothing."""
    assert shown(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning": "hm"}),
        chunk({"content": "a"}),
        chunk({"refusal": "no"}),
        event({"choices": [{"index": 1, "delta": {"content": "B"}}]}),
        calls(piece(0, "", id="a", name="f")),
        calls(piece(0, '{"x":')),
        calls(piece(0, "1}", name="f")),
        calls(piece(1, "{}", id="b", name="g"), piece(2, name="h")),
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 1}),
    ) == [
        {"type": "thinking", "content": "hm"},
        {"type": "text", "content": "a"},
        {"type": "text", "content": "no"},
        {"type": "tool_use", "name": "f", "id": "a"},
        {"content": '{"x":'},
        {"content": "1}"},
        {"type": "tool_use", "name": "g", "id": "b", "content": "{}"},
        {"type": "tool_use", "name": "h"},
    ]


# Whatever comes


_NAMES = ["choices", "index", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "id"]
_NAMES += ["type", "text", "error", "usage", "finish_reason", "reasoning", "audio", "logprobs", "prompt_tokens"]
_NAMES += ["reasoning_details", "custom", "input", "annotations", "transcript", "function_call", "signature"]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "text", "thinking", "{}", "stop"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=20,
)
_EVENTS = st.fixed_dictionaries({"choices": st.lists(st.dictionaries(st.sampled_from(_NAMES), _VALUES), max_size=2)})


@given(st.lists(st.binary(max_size=20) | (_EVENTS | _VALUES).map(lambda value: json.dumps(value).encode()), max_size=4))
def test_reading_never_raises(events: list[bytes]) -> None:
    """Whatever a provider sends is a response that can be recorded, with an error where there is no end."""
    response = aggregate(*events, adapter=OTHER, model="m")
    assert (response.stop_reason in ("error", "aborted")) == (response.error is not None)
    msgspec.json.encode(response.to_record())
    assert OTHER.prepare_request(ContextWindow(messages=(recorded(response),), options={}), model="m").body
