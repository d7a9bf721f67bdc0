"""Chat Completions: from events to responses and deltas."""

import json
from typing import Any

import msgspec
import pytest
from tests.unit.providers.openai_chat.wire import (
    aggregate,
    calls,
    chunk,
    event,
    piece,
    shown,
    used,
    values,
    whole,
)

from turnlog.model import Text, Thinking, ToolUse


def test_thinking_is_of_the_model_that_was_asked() -> None:
    """A provider answers with a dated name; what goes back goes to the name that was asked."""
    response = aggregate(chunk({"reasoning": "hm"}, "stop", model="m-2025-01-01"), model="m")
    assert response.model == "m-2025-01-01"
    assert response.content == (Thinking(thinking="hm", provider="openai", api="chat_completions", model="m"),)


def test_model_that_was_asked_stands_in_for_one_that_is_not_named() -> None:
    """Some endpoints name no model, or none at first."""
    assert aggregate(chunk({"content": "a"}, "stop", model=""), model="asked").model == "asked"
    assert aggregate(chunk(model=""), chunk({"content": "a"}, "stop"), model="asked").model == "m"


def _details(text: str) -> dict[str, Any]:
    return {"reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


@pytest.mark.parametrize(
    "pieces",
    [
        [{"reasoning": text, "reasoning_content": text} for text in ("Hm. ", "So.")],
        [{name: text} for text in ("Hm. ", "So.") for name in ("reasoning_content", "reasoning")],
        [{"reasoning_content": "Hm. "}, {"reasoning_content": "So."}, {"content": "a"}, {"reasoning": "Hm. So.\n"}],
        [{"reasoning_content": "Hm. "}, {"reasoning_content": "So."}, _details("Hm. So.")],
        [_details("Hm. So."), {"reasoning_content": "Hm. "}, {"reasoning_content": "So."}],
        [{"reasoning": text} | _details(text) for text in ("Hm. ", "So.")],
        [{"reasoning_content": "Hm. "}, {"reasoning": "Hm. So."}],
        [{"reasoning_content": "Hm. "}, {"reasoning": "So."}],
    ],
    ids=[
        "in both fields at once",
        "in one field and then in the other",
        "all of it at the end",
        "all of it in records at the end",
        "in records first",
        "in a field and records at once",
        "with more behind it",
        "in two fields, each its own",
    ],
)
def test_thinking_that_is_said_twice_is_taken_once(pieces: list[dict[str, Any]]) -> None:
    """Some endpoints send their thinking in several fields, the old one and the new."""
    events = list(map(chunk, pieces))
    first = aggregate(*events, chunk({}, "stop")).content[0]
    assert isinstance(first, Thinking)
    assert first.thinking == "Hm. So."
    assert "".join(delta["content"] for delta in shown(*events) if delta.get("type") == "thinking") == "Hm. So."


def test_thinking_that_only_begins_as_another_field_is_all_there() -> None:
    """What two fields say is different where one goes on otherwise."""
    events = [chunk({"reasoning_content": "So it is."}), chunk({"reasoning": "So"}), chunk({"reasoning": " what?"})]
    first = aggregate(*events).content[0]
    assert isinstance(first, Thinking)
    assert first.thinking == "So it is.So what?"


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
        *(
            (
                [
                    [piece(index, "", id="a", name="f"), piece(index, "", id="b", name="f")],
                    [piece(index, '{"x"', id="a")],
                    [piece(index, '{"x"', id="b"), piece(index, ":2}")],
                    [piece(index, ":1}", id="a")],
                ],
                F_AND_F,
            )
            for index in (0, None)
        ),
        (
            [
                [piece(0, '{"x":1}', id="", name="f")],
                [piece(0, '{"x":2}', name="f")],
                [piece(0, "", id="", name="g")],
                [piece(0, "{}")],
            ],
            [("f", None, {"x": 1}), ("f", None, {"x": 2}), ("g", None, {})],
        ),
        (
            [
                [piece(0, '{"x":{"y":1}', id="a", name="f")],
                [piece(0, "} ", name="f")],
                [piece(0, '{"x":', name="g")],
                [piece(0, "2}", name="g")],
            ],
            [("f", "a", {"x": {"y": 1}}), ("g", None, {"x": 2})],
        ),
        ([[piece(0, text, name="f")] for text in ('{"x"', ":1}", "", " ")], [("f", None, {"x": 1})]),
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
        "pieces of several, mixed, all with the same index",
        "pieces of several, mixed, without indexes",
        "all with the same index, without ids",
        "all with the same index, in pieces, with one id",
        "the name again behind whole arguments",
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


def test_arguments_and_ids_that_are_no_text_are_taken_as_their_json() -> None:
    """Some endpoints write the arguments as an object, and ids as numbers."""
    reply = whole({"tool_calls": [{"id": 7, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]})
    assert aggregate(reply).content == (ToolUse(id="7", name="f", input=msgspec.Raw(b'{"x":1}')),)


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


def test_whole_message_behind_its_pieces_says_nothing_new() -> None:
    """Some endpoints end a stream with the whole reply. What only that has is added; an empty one takes nothing."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    probable = {"content": [{"token": "a", "logprob": -1}]}
    first = {"index": 0, "delta": {"role": "assistant", "content": "a", "metadata": [1]}, "logprobs": probable}
    events = [event({"choices": [first]}), chunk({"content": "b", "tool_calls": []})]
    message = {"role": "assistant", "content": "ab", "metadata": [1], "tool_calls": [call]}
    end = {"index": 0, "message": message, "logprobs": probable, "finish_reason": "tool_calls"}
    last = event({"object": "chat.completion", "choices": [end]})
    assert aggregate(*events, last) == aggregate(last)
    assert [delta.get("content") for delta in shown(*events, last)] == ["a", "b", "{}"]
    assert aggregate(*events, whole({"content": ""})).content[0].text == "ab"
    assert aggregate(chunk({"role": "assistant", "content": ""}), last) == aggregate(last)


@pytest.mark.parametrize("spelled", ["[]", "[ ]"])
def test_stream_whose_tokens_came_behind_it_has_ended(spelled: str) -> None:
    """Some endpoints give no finish reason; the tokens come in an event of their own when all else has."""
    tokens = b'{"choices":%s,"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}' % spelled.encode()
    response = aggregate(chunk({"content": "a"}), tokens)
    assert (response.stop_reason, response.raw_stop_reason, response.error) == ("stop", None, None)
    assert aggregate(tokens).stop_reason == "error"
    with_choice = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 1}}
    assert aggregate(event(with_choice)).stop_reason == "error"
