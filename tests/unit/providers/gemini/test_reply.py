"""Replies of Gemini: parts to blocks, and back to the same parts; ends, usage, errors, deltas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.providers.gemini.wire import (
    MODEL,
    again,
    candidate,
    event,
    streamed,
    whole,
)

from turnlog.model import Block, Delta, Native, Text, Thinking, ToolUse, Usage, content_bytes, decode_content
from turnlog.providers.gemini import Gemini

OF_GEMINI = {"provider": "gemini", "api": "generate_content", "model": MODEL}
CALL = {"functionCall": {"name": "f", "args": {"path": "a"}}}


def _json(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())


def _thinking(text: str, signature: str | None = None) -> Thinking:
    return Thinking(thinking=text, signature=signature, **OF_GEMINI)


# Parts to blocks


HM = {"text": "hm", "thought": True}
SIGNED = {"thoughtSignature": "c2ln"}
USED = ToolUse(name="f", input=Raw(b'{"path":"a"}'), id="call_r1_1")


@pytest.mark.parametrize(
    ("parts", "blocks"),
    [
        ([{"text": "a"}, {"text": ""}, {"text": "b"}, {"text": "c"}], [Text(text="abc")]),
        ([HM, HM, {"text": "Yes."}], [_thinking("hmhm"), Text(text="Yes.")]),
        ([{"text": "a"}, CALL | SIGNED], [Text(text="a"), _thinking("", "c2ln"), USED]),
        ([HM, CALL | SIGNED], [_thinking("hm", "c2ln"), USED]),
        ([{"text": "a"} | SIGNED, {"text": "b"}], [_thinking("", "c2ln"), Text(text="a"), Text(text="b")]),
    ],
    ids=["text adds up", "thoughts add up", "signature", "thought with the next signature", "text behind a signed one"],
)
def test_parts_become_blocks(parts: list[dict[str, Any]], blocks: list[Block]) -> None:
    """A signature is thinking before the block of its part, and what was thought right before is of it."""
    assert list(whole(*parts).content) == list(streamed(*parts).content) == blocks


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}, "thoughtSignature": "c2ln"},
        {"fileData": {"fileUri": "https://example.org/f"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "1"}},
        {"somethingNew": [1.50, {}]},
        {"text": 7},
        {"thinking": "hm"},
        {"text": "x", "inlineData": {}},
        {"text": "a", "thoughtSignature": 7},
        {},
    ],
)
def test_other_parts_are_native_and_go_back_as_they_came(part: dict[str, Any]) -> None:
    """What has no normalized form, or not the form that the API describes, is kept whole."""
    response = whole({"text": "a"}, part, {"text": "b"})
    assert response.content[1] == Native(**OF_GEMINI, block=_json(part))
    assert again(response) == [{"text": "a"}, part, {"text": "b"}]


def test_ids_of_calls_are_the_ones_given_or_made_from_the_reply() -> None:
    """A call without an id gets one from the reply's id, where it has one, and its place; streamed or not."""
    parts = [CALL, {"functionCall": {"name": "g", "args": {}, "id": "g-1"}}, {"functionCall": {"name": "h"}}]
    response = whole(*parts)
    calls = [block for block in response.content if isinstance(block, ToolUse)]
    assert [call.id for call in calls] == ["call_r1_1", "g-1", "call_r1_3"]
    assert [bytes(call.input) for call in calls] == [b'{"path":"a"}', b"{}", b"{}"]
    assert streamed(*parts) == response
    [call] = whole(CALL, responseId=None).content
    assert isinstance(call, ToolUse)
    assert call.id == "call_reply_1"


@pytest.mark.parametrize("named", [{}, {"name": ""}, {"name": None}])
def test_a_call_without_a_name_is_a_call(named: dict[str, Any]) -> None:
    """The model is told that there is no such tool, so that each call has a result."""
    part = {"functionCall": {**named, "args": {"path": "a"}}}
    response = whole(part, CALL)
    assert response.content == (
        ToolUse(name="", input=Raw(b'{"path":"a"}'), id="call_r1_1"),
        ToolUse(name="f", input=Raw(b'{"path":"a"}'), id="call_r1_2"),
    )
    assert streamed(part, CALL) == response
    assert response.stop_reason == "tool_use"


def test_an_id_that_is_no_text_is_its_json_text() -> None:
    """As on the other wires."""
    [call] = whole({"functionCall": {"name": "f", "id": 7}}).content
    assert call == ToolUse(name="f", input=Raw(b"{}"), id="7")


# And back


def test_a_call_that_was_recorded_as_a_native_block_goes_back_as_it_came() -> None:
    """As earlier versions recorded calls without a name."""
    part = {"functionCall": {"args": {"path": "a"}}}
    response = replace(whole({"text": "a"}), content=(Native(**OF_GEMINI, block=_json(part)),))
    assert again(response) == [part]


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": "a", "thoughtSignature": "c2ln"}],
        [{"text": "a"}, {"text": "", "thoughtSignature": "c2ln"}],
        [{"text": "", "thoughtSignature": "c2ln"}, {"text": "a"}],
        [{"text": "", "thoughtSignature": "czE="}, {"text": "", "thoughtSignature": "czI="}],
        [{"text": "hm", "thought": True}, {"text": "a"}],
        [{"text": "hm", "thought": True}, {"text": "a", "thoughtSignature": "c2ln"}],
        [{"text": "hm", "thought": True}, {"text": "", "thoughtSignature": "c2ln"}],
        [{"text": "hm", "thought": True, "thoughtSignature": "c2ln"}, {"text": "a"}],
        [{"text": "", "thought": True, "thoughtSignature": "c2ln"}, CALL],
        [{"text": "hm", "thought": True, "thoughtSignature": "czE="}, CALL | {"thoughtSignature": "czI="}],
        [{"text": "a"}, CALL | {"thoughtSignature": "c2ln"}, CALL, {"text": "b"}],
        [{"text": "a", "thoughtSignature": "czE="}, {"text": "b"}, {"text": "c", "thoughtSignature": "czI="}],
        [{"functionCall": {"name": "f", "args": {}, "id": id}} for id in ("f-1", "call_883098", "call_1", "call_a")],
        [{"functionCall": {"name": "f", "args": {}, "willContinue": True}, "partMetadata": {"k": 1}}],
        [{"text": "a", "partMetadata": {"k": 1}}, {"text": "b"}],
        [{"text": "", "partMetadata": {"k": 1}}],
    ],
)
def test_parts_go_back_as_they_came(parts: list[dict[str, Any]]) -> None:
    """What was recorded of a reply becomes the same parts again, each signature where it was; streamed or not."""
    response = whole(*parts)
    assert again(response) == parts
    assert streamed(*parts) == response


def test_thinking_is_of_the_model_that_was_asked() -> None:
    """An alias answers under another name; a request to the alias still gets its signatures back."""
    events = [event(CALL | {"thoughtSignature": "c2ln"}, finish="STOP")]
    response = Gemini().aggregate(events, model="gemini-latest")
    [thinking, _] = response.content
    assert isinstance(thinking, Thinking)
    assert (response.model, thinking.model) == (MODEL, "gemini-latest")


# Ends


@pytest.mark.parametrize(
    ("finish", "stop_reason", "name"),
    [
        (1, "stop", "STOP"),
        (2, "length", "MAX_TOKENS"),
        (3, "refusal", "SAFETY"),
        (5, "error", "OTHER"),
        (7, "error", "7"),
    ],
)
def test_reasons_to_stop_may_be_numbers(finish: int, stop_reason: str, name: str) -> None:
    """Of the enumeration of the API. A number that the APIs do not agree on is a failure that has it."""
    response = whole({"text": "a"}, finish=finish)
    assert response.content == (Text(text="a"),)
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, name)
    assert (response.error is None) is (stop_reason != "error")


def test_error_says_what_the_api_says_of_it() -> None:
    """In a line; as it came it is kept."""
    said = candidate({"text": "a"}, finishReason="OTHER", finishMessage="print(\n x")
    assert said.error is not None
    assert said.error.message == "gemini stopped with OTHER: print( x"
    assert said.extra == {"finishMessage": _json("print(\n x")}


def test_prompt_that_is_refused_is_a_refusal() -> None:
    """There is no candidate then; why is kept."""
    response = Gemini().aggregate([b'{"promptFeedback":{"blockReason":"SAFETY"}}'])
    assert (response.stop_reason, response.content, response.error) == ("refusal", (), None)
    assert response.extra == {"promptFeedback": _json({"blockReason": "SAFETY"})}


def test_null_is_as_if_absent() -> None:
    """In a reply, a candidate, a part and a call."""
    names = ("candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId", "error", "news")
    nothing = {"content": None, "finishReason": None, "index": None, "safetyRatings": None, "citationMetadata": None}
    call = {"functionCall": {"name": "f", "args": None, "id": None}, "thoughtSignature": None}
    events = [
        json.dumps(dict.fromkeys(names)).encode(),
        json.dumps({"candidates": [nothing]}).encode(),
        event({"text": "a", "thoughtSignature": None}, call, finish="STOP"),
    ]
    response = Gemini().aggregate(events)
    assert response.content == (Text(text="a"), ToolUse(name="f", input=Raw(b"{}"), id="call_r1_1"))
    assert (response.stop_reason, response.usage, response.extra) == ("tool_use", None, {})


def test_array_of_replies_is_read_as_their_stream() -> None:
    """A stream that was not asked for as events comes as one array."""
    events = [event({"text": "a"}), event({"text": "b"}, finish="STOP")]
    assert Gemini().aggregate([b"[" + b",\r\n".join(events) + b"]"]) == Gemini().aggregate(events)


# Usage and what has no normalized form


def test_no_token_is_counted_twice() -> None:
    """Cached tokens are not input, thoughts are not output, and what tools read is input; the last counts hold."""
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 7,
        "toolUsePromptTokenCount": 5,
        "totalTokenCount": 132,
    }
    first = event({"text": "a"}, usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 1})
    response = Gemini().aggregate([first, event(finish="STOP", usageMetadata=usage)])
    assert response.usage == Usage(input_tokens=45, output_tokens=20, cache_read_input_tokens=60, reasoning_tokens=7)
    assert response.usage.total_tokens == usage["totalTokenCount"]
    assert response.raw_usage == _json(usage)


def test_what_is_not_known_is_kept() -> None:
    """Fields that the API may add one day, of replies and of candidates, are extra, and change nothing."""
    events = [event({"text": "a"}), b'{"ping":{}}', event(finish="STOP", news=[1], modelVersion=[2])]
    response = Gemini().aggregate(events)
    assert (response.content, response.stop_reason) == ((Text(text="a"),), "stop")
    assert response.extra == {"ping": Raw(b"{}"), "news": Raw(b"[1]"), "modelVersion": Raw(b"[2]")}
    measured = candidate({"text": "a"}, finishReason="STOP", avgLogprobs=-0.25, odd={"a": 1})
    assert measured.content == (Text(text="a"),)
    assert measured.extra == {"avgLogprobs": Raw(b"-0.25"), "odd": _json({"a": 1})}


# What is said about the content

GROUNDING = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://example.org"}}]}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ([{"text": "hm", "thought": True}, {"text": "a"}, CALL], 1),
        ([{"text": "a"}, IMAGE, {"text": "b", "thoughtSignature": "c2ln"}, IMAGE], 3),
        ([IMAGE, {"text": "", "thoughtSignature": "c2ln"}, CALL], 0),
        ([{"text": "", "thoughtSignature": "c2ln"}, CALL], 1),
        ([{"text": "hm", "thought": True}], 0),
    ],
)
@pytest.mark.parametrize(
    "about",
    [
        {"groundingMetadata": GROUNDING},
        {"urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "https://example.org"}]}},
        {"citationMetadata": {"citationSources": [{"startIndex": 0}]}, "groundingMetadata": GROUNDING},
        {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE", "blocked": True}]},
        {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}]},
    ],
)
def test_what_is_said_about_the_content_reaches_the_turn(
    parts: list[dict[str, Any]], place: int, about: dict[str, Any]
) -> None:
    """Beside the last text, else the last native block, else the last block; no request has it."""
    response = candidate(*parts, finishReason="STOP", **about)
    assert response.extra == {}
    assert {name: json.loads(bytes(value)) for name, value in response.content[place].extra.items()} == about
    assert decode_content(content_bytes(response.content)) == list(response.content)
    assert again(response) == again(whole(*parts)) == parts


@pytest.mark.parametrize(
    "noise",
    [
        {"groundingMetadata": {}},
        {"safetyRatings": []},
        {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]},
    ],
)
def test_what_says_nothing_about_the_content_is_of_the_reply(noise: dict[str, Any]) -> None:
    """What is empty, and ratings that find nothing."""
    response = candidate({"text": "a"}, finishReason="STOP", **noise)
    assert response.content == (Text(text="a"),)
    assert response.extra == {name: _json(value) for name, value in noise.items()}


def test_what_is_said_about_no_content_is_of_the_reply() -> None:
    """There is no block to stand beside."""
    ratings = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}]
    response = candidate(finishReason="SAFETY", safetyRatings=ratings)
    assert (response.content, response.extra) == ((), {"safetyRatings": _json(ratings)})


@pytest.mark.parametrize("repeated", [False, True])
def test_citations_of_the_pieces_of_a_stream_add_up(repeated: bool) -> None:
    """Each event tells its own citations, or all so far; none is lost or doubled."""
    sources = [{"startIndex": place, "uri": f"https://example.org/{place}"} for place in range(3)]
    told = [sources[: place + 1] if repeated else [sources[place]] for place in range(3)]
    events = [json.dumps({"candidates": [{"citationMetadata": {"citationSources": some}}]}).encode() for some in told]
    response = Gemini().aggregate([event({"text": "a"}), *events, event(finish="STOP")])
    assert response.content == (Text(text="a", extra={"citationMetadata": _json({"citationSources": sources})}),)


def test_further_candidates_are_kept_whole() -> None:
    """Candidates behind the first one are extra, put together from their pieces."""

    def both(first: str, second: str, **fields: Any) -> bytes:
        candidates = [
            {"content": {"parts": [{"text": text}], "role": "model"}, "index": index, **fields}
            for index, text in ((1, second), (0, first))
        ]
        return json.dumps({"candidates": candidates, "responseId": "r"}).encode()

    response = Gemini().aggregate([both("a", "x"), both("b", "y", finishReason="STOP")])
    assert response.content == (Text(text="ab"),)
    assert json.loads(bytes(response.extra["candidates"])) == [
        {"content": {"parts": [{"text": "xy"}], "role": "model"}, "finishReason": "STOP", "index": 1}
    ]
    assert Gemini().aggregate([both("ab", "xy", finishReason="STOP")]) == response


def test_candidate_with_any_index_is_the_reply_where_it_is_alone() -> None:
    """The one with the least index is, as it is of Chat Completions."""
    alone = {"content": {"parts": [{"text": "a"}], "role": "model"}, "finishReason": "STOP"}
    replies = [
        Gemini().aggregate([json.dumps({"candidates": [alone | index]}).encode()]) for index in ({"index": 1}, {})
    ]
    assert replies[0] == replies[1]
    assert (replies[0].content, replies[0].error) == ((Text(text="a"),), None)


# Deltas


def test_only_the_first_candidate_is_shown() -> None:
    """Further candidates and errors have no deltas; what cannot be read behind it takes nothing away."""
    candidates = [{"content": {"parts": [{"text": "x"}]}, "index": 1}, {"content": {"parts": [{"text": "a"}, 7]}}]
    assert Gemini().deltas(json.dumps({"candidates": candidates}).encode()) == [Delta(type="text", content="a")]
    assert Gemini().deltas(b'{"error":{"code":500}}') == []
