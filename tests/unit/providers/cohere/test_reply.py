"""Replies of Cohere's v2 chat, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.cohere.wire import (
    CITATION,
    MODEL,
    OWN,
    START,
    STREAM,
    add_up,
    end,
    event,
    of_message,
    saying,
    shown,
    whole,
)

from turnlog.model import (
    ContextWindow,
    Message,
    Native,
    Response,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    content_bytes,
)
from turnlog.providers import get


def parsed(raw: Raw | None) -> Any:
    """Return raw JSON as values."""
    assert raw is not None
    return json.loads(bytes(raw))


def sent_back(response: Response, *lost: str) -> dict[str, Any]:
    """Return the message that a reply becomes on its way back to its model, with nothing lost but what is named."""
    calls = [block for block in response.content if isinstance(block, ToolUse)]
    answers = [ToolResult(tool_use_id=call.id, name=call.name, content="ok") for call in calls]
    turns = [Message(turn="t1", role="assistant", content_json=content_bytes(response.content), **OWN)]
    if answers:
        turns.append(Message(turn="t2", role="user", content_json=content_bytes(answers)))
    request = get("cohere").prepare_request(ContextWindow(messages=turns, options={}), model=MODEL)
    assert [entry.block for entry in request.loss_report.entries] == list(lost)
    return json.loads(request.body)["messages"][0]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"tokens": {"input_tokens": 100.0, "output_tokens": 7.0}, "cached_tokens": 30},
            Usage(input_tokens=70, output_tokens=7, cache_read_input_tokens=30),
        ),
        ({"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 5}}, Usage(input_tokens=5)),
        ({"billed_units": {"output_tokens": 3}, "tokens": {"input_tokens": 5}}, Usage(output_tokens=3)),
        ({"tokens": "many"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_without_billed_units_is_all_tokens(usage: Any, expected: Usage | None) -> None:
    """Those read from the cache are counted once; what cannot be read is no usage."""
    assert add_up(whole(usage=usage)).usage == expected


def test_text_after_thinking_has_the_same_index() -> None:
    """Each `content-start` begins a part, whatever its index. A citation is of the part of its kind."""
    response = add_up(
        START,
        of_message("content-start", 0, content={"type": "thinking", "thinking": "Hm"}),
        of_message("content-start", 0, content={"type": "text", "text": ""}),
        of_message("content-delta", 0, content={"text": "It is."}),
        of_message("citation-start", 0, citations=CITATION | {"content_index": 0, "type": "TEXT_CONTENT"}),
        end(),
    )
    thinking, text = response.content
    assert thinking == Thinking(thinking="Hm", **OWN)
    assert isinstance(text, Text)
    assert (text.text, len(parsed(text.extra["citations"]))) == ("It is.", 1)


def test_a_citation_is_of_the_part_that_came_under_its_index() -> None:
    """Though thinking and the text after it have the same one, so that places and indexes differ."""
    response = add_up(
        START,
        of_message("content-start", 0, content={"type": "thinking", "thinking": "Hm"}),
        of_message("content-start", 0, content={"type": "text", "text": "one"}),
        of_message("content-start", 1, content={"type": "text", "text": "two"}),
        of_message("citation-start", 0, citations=CITATION | {"content_index": 1, "type": "TEXT_CONTENT"}),
        of_message("citation-start", 1, citations=CITATION | {"content_index": 0, "type": "TEXT_CONTENT"}),
        of_message("citation-start", 2, citations=CITATION | {"content_index": 0, "type": "THINKING_CONTENT"}),
        end(),
    )
    found = [[one["content_index"] for one in parsed(block.extra["citations"])] for block in response.content]
    assert found == [[0], [0], [1]]
    assert [one["content_index"] for one in sent_back(response)["citations"]] == [0, 1, 2]


def test_a_citation_goes_back_with_the_place_of_its_part() -> None:
    """A part that says nothing is no block, and shifts those behind it."""
    parts = [{"type": "text", "text": text} for text in ("", "a", "b")]
    cited = [CITATION | {"content_index": place, "type": "TEXT_CONTENT"} for place in (1, 2)]
    response = add_up(saying(content=parts, citations=cited))
    message = sent_back(response)
    assert message["content"] == parts[1:]
    assert message["citations"] == [citation | {"content_index": place} for place, citation in enumerate(cited)]


# What has no place of its own


def test_citations_are_in_the_block_that_they_name() -> None:
    """By place where that is of their kind; those of nothing that came are kept beside, and do not go back."""
    cited = [
        CITATION | {"content_index": 1, "text": "1"},
        CITATION | {"text": "2"},
        CITATION | {"type": "THINKING_CONTENT", "text": "3"},
        {"content_index": "?", "text": "4"},
        CITATION | {"type": "PLAN", "text": "5"},
    ]
    response = add_up(saying(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], citations=cited))
    found = [[one["text"] for one in parsed(block.extra["citations"])] for block in response.content]
    beside = parsed(response.content[-1].extra["message_fields"])
    assert (found, [one["text"] for one in beside["citations"]]) == ([["2"], ["1"]], ["3", "4", "5"])
    assert [one["text"] for one in sent_back(response, "citations")["citations"]] == ["2", "1"]


def test_unknown_parts_and_fields_are_kept() -> None:
    """A part of another type is native, streamed too; further fields are extra keys of a block or of the response."""
    streamed = add_up(
        START,
        of_message("content-start", 0, content={"type": "chart", "n": 1.0, "title": "A"}),
        of_message("content-delta", 0, content={"title": "BC", "n": None}),
        of_message("content-start", 1, content={"type": "text", "text": "x", "mark": {"y": 1}}),
        end(seen=[1]),
    )
    parts = [{"type": "chart", "n": 1.0, "title": "ABC"}, {"type": "text", "text": "x", "mark": {"y": 1}}]
    together = add_up(whole(message={"role": "assistant", "content": parts}, seen=[1], finish_reason="COMPLETE"))
    assert streamed == together
    native, text = streamed.content
    assert native == Native(block=Raw(b'{"type":"chart","n":1.0,"title":"ABC"}'), **OWN)
    assert text == Text(text="x", extra={"mark": Raw(b'{"y":1}')})
    assert streamed.extra == {"seen": Raw(b"[1]")}


def test_unknown_fields_of_a_call_go_back() -> None:
    """Those of the call and those of its function."""
    function = {"name": "ls", "arguments": "{ }", "strict": True}
    called = {"id": "c1", "type": "function", "function": function, "mark": 1}
    response = add_up(saying(tool_calls=[called]))
    assert sent_back(response)["tool_calls"] == [called]
    begun = called | {"function": {"name": "ls", "strict": True}}
    streamed = [of_message("tool-call-start", 0, tool_calls=begun)]
    streamed += [of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": text}}) for text in "{ }"]
    assert add_up(START, *streamed, end()).content == response.content


def test_unknown_fields_of_a_message_reach_the_turn() -> None:
    """They are in the last block, or are one where there is none, and do not go back."""
    told = {"safety": {"level": 1}}
    response = add_up(saying(content="a", note=None, **told))
    [text] = response.content
    assert parsed(text.extra["message_fields"]) == told
    assert sent_back(response, "safety") == {"role": "assistant", "content": "a"}
    content = of_message("content-start", 0, content={"type": "text", "text": "a"})
    assert add_up(of_message("message-start", role="assistant", **told), content, end()).content == response.content
    [alone] = add_up(saying(**told)).content
    assert alone == Native(block=Raw(b'{"safety":{"level":1}}'), extra={"message_fields": Raw(b"true")}, **OWN)


def test_log_probabilities_are_kept() -> None:
    """They come piece by piece, or all at once."""
    one, other = ({"text": text, "token_ids": [1], "logprobs": [-0.5]} for text in "ab")
    streamed = add_up(
        START,
        of_message("content-start", 0, content={"type": "text", "text": ""}),
        event("content-delta", 0, delta={"message": {"content": {"text": "a"}}}, logprobs=one),
        event("content-delta", 0, delta={"message": {"content": {"text": "b"}}}, logprobs=other),
        end(),
    )
    message = {"content": [{"type": "text", "text": "ab"}]}
    assert streamed == add_up(whole(message=message, logprobs=[one, other], finish_reason="COMPLETE"))
    assert parsed(streamed.extra["logprobs"]) == [one, other]


# How replies end


def test_end_may_say_what_went_wrong() -> None:
    """In its last event."""
    response = add_up(*STREAM[:4], end("ERROR", error="out of\nluck\n"))
    assert response.error is not None
    assert (response.stop_reason, response.error.message) == ("error", "cohere broke off: out of luck")
    assert len(response.content) == 1


# Odd streams


def test_stream_that_was_joined_late_is_read() -> None:
    """Pieces of a part and of a call that never began are kept."""
    response = add_up(
        of_message("content-delta", 0, content={"text": "a"}),
        of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": "{}"}}),
        end(),
    )
    assert response.content == (Text(text="a"), ToolUse(name="", input=Raw(b"{}")))


# What is shown


def test_pieces_are_shown_as_they_come() -> None:
    """Text and thinking name their type each time, as does the plan; a call begins with its name and id."""
    first = {"type": "tool_use", "name": "fs___read", "id": "c1"}
    second = {"type": "tool_use", "name": "ls", "id": "c2"}
    assert shown(*STREAM) == [
        {"type": "thinking", "content": "Hm"},
        {"type": "thinking", "content": "."},
        {"type": "thinking", "content": "I will "},
        {"type": "thinking", "content": "look."},
        first,
        {"content": '{"path":'},
        {"content": ' "a", "n": 1.0}'},
        second,
        {"content": "{}"},
    ]
    assert shown(whole()) == [
        {"type": "thinking", "content": "Hm."},
        {"type": "thinking", "content": "I will look."},
        first,
        {"content": '{"path": "a", "n": 1.0}'},
        second,
        {"content": "{}"},
    ]
