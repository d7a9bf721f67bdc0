"""Replies of the Responses API on their way back to the model that wrote them, and to others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.unit.providers.carrying import message, result
from tests.unit.providers.openai_responses.wire import (
    CITATION,
    HOME,
    MODEL,
    OTHER,
    PLAIN,
    REASONING,
    SEARCH,
    aggregate,
    both,
    called,
    lost,
    prepare,
    recorded,
    refused,
    said,
    streamed,
    whole,
)

from turnlog.model import Native, Response, Text, ToolUse
from turnlog.providers import PreparedRequest
from turnlog.providers.openai_responses import OpenAIResponses


def back(reply: Response, adapter: OpenAIResponses = HOME, **arguments: Any) -> PreparedRequest:
    """Return the request that sends a recorded reply back, with results for its calls."""
    results = [result(block.id or None) for block in reply.content if isinstance(block, ToolUse)]
    messages = (message("user", "?"), recorded(reply), message("user", *results, "Go on"))
    return prepare(*messages, adapter=adapter, typed=arguments.pop("typed", True), **arguments)


def items(request: PreparedRequest) -> list[Any]:
    """Return the items of the reply in a request, and what follows them."""
    return json.loads(request.body)["input"][1:]


def dropped(request: PreparedRequest) -> list[str]:
    """Return the kinds and blocks of the losses, all of the reply."""
    return [entry.partition(" reply: ")[0] for entry in lost(request)]


def test_reply_goes_back_item_by_item_as_it_came() -> None:
    """All items of a reply go back to their model verbatim and in order; nothing is lost."""
    output = [
        REASONING | {"status": "completed"},
        SEARCH,
        said("Tide", annotations=[CITATION], phase="commentary"),
        REASONING | {"id": "rs_2", "summary": []},
        refused("I cannot."),
        called("a___b", '{"x": 1.50,\n "y":"\\u00e9"}', 1),
        called("a___c", '{"cut', 2) | {"namespace": "n"},
        called("a___d", "", 3),
    ]
    request = back(both(*output))
    assert items(request)[: len(output)] == [*output[:-1], output[-1] | {"arguments": "{}"}]
    assert not request.loss_report


def test_spelling_of_arguments_is_of_the_model_that_wrote_them() -> None:
    """Its own whitespace and escapes go back to it; another model gets the same arguments without whitespace."""
    reply = aggregate(whole(called("f", '{"path": ".env", "y":"\\u00e9"}')))
    assert items(back(reply))[0]["arguments"] == '{"path": ".env", "y":"\\u00e9"}'
    other = back(reply, model="gpt-7")
    assert items(other)[0]["arguments"] == '{"path":".env","y":"\\u00e9"}'
    assert dropped(other) == ["dropped item"]


def test_message_of_several_parts_goes_back_as_one() -> None:
    """Texts, refusals and parts of unknown types of one message stay together, and two messages stay two."""
    parts = [
        {"type": "output_text", "text": "One", "annotations": [CITATION], "logprobs": []},
        {"type": "output_text", "text": "Two", "annotations": []},
        {"type": "refusal", "refusal": "Three"},
        {"type": "output_audio", "data": "aGk=", "transcript": "Hi"},
    ]
    output = [said("") | {"content": parts}, said("Four", "msg_2"), said("Five", "msg_3")]
    reply = aggregate(whole(*output))
    assert [type(block) for block in reply.content] == [Text, Text, Text, Native, Text, Text]
    assert items(back(reply, typed=False))[:3] == output


@pytest.mark.parametrize(
    ("answered", "asked"), [("gpt-6-2026-02-03", "gpt-6"), ("gpt-6", "gpt-6-2026-02-03"), ("gpt-6", "gpt-6-latest")]
)
def test_reply_of_a_dated_model_goes_back_to_its_alias(answered: str, asked: str) -> None:
    """The API answers an alias with the name of a snapshot, and the alias gets everything back."""
    output = [REASONING, said("Hello")]
    request = back(both(*output, model=answered), model=asked)
    assert items(request)[:2] == output
    assert not request.loss_report


def test_another_model_gets_text_and_calls_and_a_report() -> None:
    """Another model of the same api gets no encrypted reasoning, no native items and no ids; all is reported."""
    reply = both(REASONING, SEARCH, said("Tide", annotations=[CITATION]), called("f", "{}"))
    request = back(reply, model="gpt-7")
    assert items(request)[:2] == [
        {"type": "message", "role": "assistant", "content": "Tide"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ]
    assert dropped(request) == [
        "dropped thinking",
        "dropped native",
        "dropped annotations",
        "dropped item",
        "dropped item",
    ]


# Reasoning that is not encrypted


@pytest.mark.parametrize("fields", [{}, {"content": [], "summary": PLAIN["content"]}, {"status": "completed"}])
def test_plain_reasoning_goes_back_to_the_endpoint_that_sent_it(fields: dict[str, Any]) -> None:
    """vLLM, Ollama, LM Studio and others never encrypt it, and want it back as it came."""
    output = [PLAIN | fields, said("Hello"), called("f", "{}")]
    request = back(both(*output, adapter=OTHER), OTHER, typed=False)
    assert items(request)[:3] == output
    assert not request.loss_report


def test_plain_thinking_that_came_in_no_item_becomes_one() -> None:
    """Thinking of a transcript gets an id made from what it says, always the same."""
    own = {"provider": "other", "api": "responses", "model": MODEL}
    said_before = message("assistant", {"type": "thinking", "thinking": "hm", **own}, "Hello", **own)
    item = json.loads(prepare(message("user", "?"), said_before, adapter=OTHER).body)["input"][1]
    summary = [{"type": "summary_text", "text": "hm"}]
    assert item == {
        "type": "reasoning",
        "id": "rs_b82e2178ecf4d0c5859dc2e169d7fed8673f9f6eeb9f3591",
        "summary": summary,
    }


@pytest.mark.parametrize(("adapter", "model"), [(HOME, MODEL), (OTHER, "another")])
def test_plain_reasoning_goes_to_no_one_else(adapter: OpenAIResponses, model: str) -> None:
    """Neither to OpenAI nor to another model of the same endpoint: it is dropped and reported."""
    request = back(both(PLAIN, said("Hello"), adapter=OTHER), adapter, model=model)
    assert items(request)[0] == {"type": "message", "role": "assistant", "content": "Hello"}
    assert dropped(request) == ["dropped thinking", "dropped item"]


def test_plain_reasoning_of_openai_stays_behind() -> None:
    """OpenAI keeps no reasoning that is not encrypted where nothing is stored: its own is dropped, too."""
    request = back(both(REASONING | {"encrypted_content": None}, said("Hello")))
    assert items(request)[0] == said("Hello")
    assert dropped(request) == ["dropped thinking"]
    assert (HOME.capabilities.thinking, OTHER.capabilities.thinking) == ("signed", "all")


# What does not go back


def test_reasoning_that_nothing_follows_does_not_go_back() -> None:
    """A reply cut at its limit while it reasoned is left out: the API wants the item that reasoning is followed by."""
    request = back(both(REASONING))
    assert [item["type"] for item in items(request)] == ["message"]
    assert dropped(request) == ["dropped thinking"]


def test_message_without_parts_is_kept_as_empty_text() -> None:
    """A message that says nothing keeps its id in the log, and is left out of the next request."""
    reply = aggregate(*streamed(said("") | {"content": []}))
    [text] = reply.content
    assert isinstance(text, Text)
    assert (text.text, msgspec.json.decode(text.extra["item"])["id"]) == ("", "msg_1")
    assert dropped(back(reply)) == ["dropped text"]
