"""Replies of Gemini: parts to blocks, and back to the same parts; ends, usage, errors, deltas."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.unit.providers.gemini_wire import MODEL, again, event, streamed, whole

from turnlog import ProviderError
from turnlog.model import MALFORMED, Native, Text, Thinking, ToolUse, Usage, content_bytes
from turnlog.providers.gemini import Gemini

OF_GEMINI = {"provider": "gemini", "api": "generate_content", "model": MODEL}
CALL = {"functionCall": {"name": "f", "args": {"path": "a"}}}


def _json(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())


# Parts to blocks


def test_text_of_adjacent_parts_is_one_block() -> None:
    """Pieces of text add up, over parts and over events, and empty ones are nothing."""
    parts = [{"text": "a"}, {"text": ""}, {"text": "b"}, {"text": "c"}]
    assert streamed(*parts).content == whole(*parts).content == (Text(text="abc"),)


def test_thought_text_becomes_thinking() -> None:
    """Parts that are thoughts add up to one thinking block, without a signature."""
    response = streamed({"text": "hm", "thought": True}, {"text": "!", "thought": True}, {"text": "Yes."})
    assert response.content == (Thinking(thinking="hm!", **OF_GEMINI), Text(text="Yes."))


def test_signature_becomes_thinking_before_the_block_of_its_part() -> None:
    """The signature of a call stands in a thinking block of its own, which says whose it is."""
    response = whole({"text": "Let me see."}, CALL | {"thoughtSignature": "c2ln"})
    assert response.content == (
        Text(text="Let me see."),
        Thinking(thinking="", signature="c2ln", **OF_GEMINI),
        ToolUse(name="f", input=Raw(b'{"path":"a"}'), id="call_r1_1"),
    )


def test_thought_right_before_a_signed_part_is_what_the_signature_is_of() -> None:
    """A summary and the signature of the part behind it are one thinking block."""
    response = whole({"text": "hm", "thought": True}, CALL | {"thoughtSignature": "c2ln"})
    assert response.content[0] == Thinking(thinking="hm", signature="c2ln", **OF_GEMINI)
    assert len(response.content) == 2


def test_text_behind_a_signed_text_is_a_block_of_its_own() -> None:
    """A signature is of its own part only: text that follows is not joined to it."""
    response = whole({"text": "a", "thoughtSignature": "c2ln"}, {"text": "b"})
    assert [type(block) for block in response.content] == [Thinking, Text, Text]


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
        {"text": "a", "type": "b"},
        {"functionCall": {"name": "f", "args": {}}, "input": 1},
        {"text": "x", "inlineData": {}},
        {"functionCall": {"args": {}}},
        {},
    ],
)
def test_other_parts_are_native_and_go_back_as_they_came(part: dict[str, Any]) -> None:
    """What has no normalized form, or not the form that the API describes, is kept whole."""
    response = whole({"text": "a"}, part, {"text": "b"})
    assert response.content[1] == Native(**OF_GEMINI, block=_json(part))
    assert again(response) == [{"text": "a"}, part, {"text": "b"}]


def test_spelling_of_arguments_and_native_parts_is_kept() -> None:
    """Numbers and escapes are not written anew; only whitespace between values goes."""
    parts = rb'{"functionCall":{"name":"f","args":{"n": 1.50e2, "t": "\u00e9"}}}, {"x":[ 1.0 ]}'
    response = Gemini().aggregate([rb'{"candidates":[{"finishReason":"STOP","content":{"parts":[%s]}}]}' % parts])
    call, native = response.content
    assert isinstance(call, ToolUse)
    assert isinstance(native, Native)
    assert bytes(call.input) == rb'{"n":1.50e2,"t":"\u00e9"}'
    assert bytes(native.block) == rb'{"x":[1.0]}'


def test_ids_of_calls_are_the_ones_given_or_made_from_the_reply() -> None:
    """A call without an id gets one from the reply's id and its place, the same streamed and not."""
    parts = [CALL, {"functionCall": {"name": "g", "args": {}, "id": "g-1"}}, {"functionCall": {"name": "h"}}]
    response = whole(*parts)
    calls = [block for block in response.content if isinstance(block, ToolUse)]
    assert [call.id for call in calls] == ["call_r1_1", "g-1", "call_r1_3"]
    assert [bytes(call.input) for call in calls] == [b'{"path":"a"}', b"{}", b"{}"]
    assert streamed(*parts) == response


def test_ids_are_made_without_a_reply_id_too() -> None:
    """A reply that has no id numbers its calls."""
    response = Gemini().aggregate([json.dumps({"candidates": [{"content": {"parts": [CALL, CALL]}}]}).encode()])
    assert [block.id for block in response.content if isinstance(block, ToolUse)] == ["call_1", "call_2"]


def test_arguments_that_are_no_object_are_kept_beside_the_call() -> None:
    """Arguments of another form leave an empty input and their text."""
    [call] = whole({"functionCall": {"name": "f", "args": ["a"]}}).content
    assert isinstance(call, ToolUse)
    assert (bytes(call.input), bytes(call.extra[MALFORMED])) == (b"{}", rb'"[\"a\"]"')
    assert again(whole({"functionCall": {"name": "f", "args": ["a"]}})) == [{"functionCall": {"name": "f", "args": {}}}]


# And back


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
        [{"functionCall": {"name": "f", "args": {}, "id": "f-1"}}],
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


def test_blocks_are_the_same_after_they_were_recorded() -> None:
    """Payload bytes of the blocks read back as the blocks, marks of signatures included."""
    response = whole({"text": "hm", "thought": True, "thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "s"})
    recorded = content_bytes(list(response.content))
    assert recorded == (
        b'[{"type":"thinking","thinking":"hm","signature":"c2ln","provider":"gemini","api":"generate_content",'
        b'"model":"gemini-test","signed_part":"thought"},'
        b'{"type":"thinking","thinking":"","signature":"s","provider":"gemini","api":"generate_content",'
        b'"model":"gemini-test","signed_part":"empty"}]'
    )


def test_thinking_is_of_the_model_that_was_asked() -> None:
    """An alias answers under another name; a request to the alias still gets its signatures back."""
    events = [event(CALL | {"thoughtSignature": "c2ln"}, finish="STOP")]
    response = Gemini().aggregate(events, model="gemini-latest")
    [thinking, _] = response.content
    assert isinstance(thinking, Thinking)
    assert (response.model, thinking.model) == (MODEL, "gemini-latest")


# Ends


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        *((reason, "refusal") for reason in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT")),
        *((reason, "refusal") for reason in ("SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION")),
    ],
)
def test_reasons_to_stop_are_mapped(finish: str, stop_reason: str) -> None:
    """Each reason has its normalized one, and the raw one is kept; none of these is an error."""
    response = whole({"text": "a"}, finish=finish)
    assert (response.stop_reason, response.raw_stop_reason, response.error) == (stop_reason, finish, None)


@pytest.mark.parametrize(
    ("finish", "retryable"),
    [
        ("MALFORMED_FUNCTION_CALL", True),
        ("UNEXPECTED_TOOL_CALL", True),
        ("OTHER", True),
        ("TOO_MANY_TOOL_CALLS", False),
        ("MISSING_THOUGHT_SIGNATURE", False),
        ("NEVER_HEARD_OF", False),
    ],
)
def test_reasons_that_are_failures_are_errors(finish: str, retryable: bool) -> None:
    """A reply that is not whole is an error that says why, with what had arrived."""
    response = streamed({"text": "a"}, finish=finish)
    assert (response.stop_reason, response.raw_stop_reason) == ("error", finish)
    assert response.content == (Text(text="a"),)
    assert response.error is not None
    assert (response.error.message, response.error.retryable) == (f"gemini stopped with {finish}", retryable)


@pytest.mark.parametrize(
    ("number", "stop_reason", "name"),
    [
        (1, "stop", "STOP"),
        (2, "length", "MAX_TOKENS"),
        (3, "refusal", "SAFETY"),
        (5, "error", "OTHER"),
        (7, "error", "7"),
    ],
)
def test_reasons_may_be_numbers(number: int, stop_reason: str, name: str) -> None:
    """Some endpoints send them so. One that the APIs do not agree on is a failure that has its number."""
    response = Gemini().aggregate(
        [json.dumps({"candidates": [{"finishReason": number, "content": {"parts": [{"text": "a"}]}}]}).encode()]
    )
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, name)
    assert response.content == (Text(text="a"),)


def test_message_of_a_failure_is_told() -> None:
    """What the API says of the end is part of the error, and kept."""
    raw = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(\n x"}]}
    response = Gemini().aggregate([json.dumps(raw).encode()])
    assert response.error is not None
    assert response.error.message == "gemini stopped with MALFORMED_FUNCTION_CALL: print( x"
    assert response.extra == {"finishMessage": _json("print(\n x")}


def test_reply_with_calls_stops_for_them() -> None:
    """A normal end with calls is `tool_use`; one that was cut is not."""
    assert whole(CALL).stop_reason == "tool_use"
    assert whole(CALL, finish="MAX_TOKENS").stop_reason == "length"


def test_blocked_prompt_is_a_refusal() -> None:
    """A request that was not answered at all, for what it says, has no content."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "safetyRatings": []}
    response = Gemini().aggregate([json.dumps({"promptFeedback": feedback, "modelVersion": MODEL}).encode()])
    assert (response.stop_reason, response.raw_stop_reason) == ("refusal", "PROHIBITED_CONTENT")
    assert (response.content, response.error) == ((), None)
    assert response.extra == {"promptFeedback": _json(feedback)}


def test_cut_stream_keeps_what_had_arrived() -> None:
    """Without a reason to stop, the reply is an error that may pass."""
    response = Gemini().aggregate([event({"text": "a"}), event({"text": "b"})])
    assert response.content == (Text(text="ab"),)
    assert (response.stop_reason, response.raw_stop_reason) == ("error", None)
    assert response.error is not None
    assert response.error.line() == "gemini: the reply ended without its finishReason (retryable)"


def test_no_event_at_all_is_a_cut_stream() -> None:
    """An empty reply is an error, under the name of the model that was asked."""
    response = Gemini().aggregate([], model=MODEL)
    assert (response.content, response.stop_reason, response.model) == ((), "error", MODEL)


@pytest.mark.parametrize("broken", [b'{"candidates":[', b"\xff", b"7", b"[" * 5000, b'{"candidates":7}'])
def test_event_that_cannot_be_read_is_an_error_and_the_rest_is_kept(broken: bytes) -> None:
    """Events before and behind it count; the reply is an error that may pass."""
    response = Gemini().aggregate([event({"text": "a"}), broken, event({"text": "b"}, finish="STOP")])
    assert response.content == (Text(text="ab"),)
    assert (response.stop_reason, response.raw_stop_reason) == ("error", "STOP")
    assert response.error is not None
    assert response.error.retryable
    assert response.error.message.startswith("gemini sent an event that ")


def test_error_event_ends_the_reply() -> None:
    """An error in a stream is the reply's, with its status and how long to wait."""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE", "details": [retry]}
    response = Gemini().aggregate([event({"text": "a"}), json.dumps({"error": error}).encode()])
    assert response.content == (Text(text="a"),)
    assert response.error is not None
    assert response.error.line() == "gemini answered 503: The model is overloaded. (retryable after 7 s)"
    assert response.error.status == 503


def test_error_event_without_a_code_is_told() -> None:
    """An error that says nothing but a message is told as it is."""
    response = Gemini().aggregate([b'{"error":"no"}'])
    assert response.error is not None
    assert (response.error.message, response.error.status) == ("gemini broke off: no", None)


def test_unknown_fields_and_events_are_not_fatal() -> None:
    """What the API may add one day is kept, and changes nothing."""
    response = Gemini().aggregate([event({"text": "a"}), b'{"ping":{}}', event(finish="STOP", news=[1])])
    assert (response.content, response.stop_reason) == ((Text(text="a"),), "stop")
    assert response.extra == {"ping": Raw(b"{}"), "news": Raw(b"[1]")}


def test_null_fields_of_parts_are_as_if_absent() -> None:
    """`null` is no signature and no id, and no arguments are an empty object."""
    call = {"functionCall": {"name": "f", "args": None, "id": None}, "thoughtSignature": None}
    assert whole({"text": "a", "thoughtSignature": None}, call).content == (
        Text(text="a"),
        ToolUse(name="f", input=Raw(b"{}"), id="call_r1_1"),
    )


def test_null_fields_are_as_if_absent() -> None:
    """`null` stands for a field that is not there."""
    nothing = {"candidates": None, "usageMetadata": None, "promptFeedback": None, "modelVersion": None}
    candidate = {"content": None, "finishReason": None, "index": None}
    response = Gemini().aggregate(
        [json.dumps(nothing).encode(), json.dumps({"candidates": [candidate]}).encode(), event(finish="STOP")]
    )
    assert (response.content, response.stop_reason, response.usage, response.extra) == ((), "stop", None, {})


def test_array_of_replies_is_read_as_their_stream() -> None:
    """A stream that was not asked for as events comes as one array."""
    events = [event({"text": "a"}), event({"text": "b"}, finish="STOP")]
    assert Gemini().aggregate([b"[" + b",\r\n".join(events) + b"]"]) == Gemini().aggregate(events)


# Usage and what has no normalized form


def test_no_token_is_counted_twice() -> None:
    """Cached tokens are not input, thoughts are not output, and what tools read is input."""
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 7,
        "toolUsePromptTokenCount": 5,
        "totalTokenCount": 132,
    }
    response = streamed({"text": "a"}, usageMetadata=usage)
    assert response.usage == Usage(input_tokens=45, output_tokens=20, cache_read_input_tokens=60, reasoning_tokens=7)
    assert response.usage.total_tokens == usage["totalTokenCount"]
    assert response.raw_usage == _json(usage)


def test_last_usage_of_a_stream_wins() -> None:
    """Counts grow while a reply streams."""
    events = [
        event({"text": "a"}, usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 1}),
        event({"text": "b"}, finish="STOP", usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 2}),
    ]
    assert Gemini().aggregate(events).usage == Usage(input_tokens=3, output_tokens=2)


def test_reply_without_usage_has_none() -> None:
    """Nothing reported is not zero."""
    assert whole({"text": "a"}).usage is None


def test_metadata_of_the_candidate_is_kept() -> None:
    """Grounding, ratings and the like are extra, the last ones of a stream."""
    grounding = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://example.org"}}]}
    candidates = [
        {"content": {"parts": [{"text": "a"}]}, "safetyRatings": [{"probability": "LOW"}]},
        {"finishReason": "STOP", "groundingMetadata": grounding, "safetyRatings": [], "avgLogprobs": -0.25},
    ]
    response = Gemini().aggregate([json.dumps({"candidates": [one]}).encode() for one in candidates])
    assert response.extra == {
        "safetyRatings": Raw(b"[]"),
        "groundingMetadata": _json(grounding),
        "avgLogprobs": Raw(b"-0.25"),
    }


@pytest.mark.parametrize("repeated", [False, True])
def test_citations_of_the_pieces_of_a_stream_add_up(repeated: bool) -> None:
    """Each event tells its own citations, or all so far; none is lost or doubled."""
    sources = [{"startIndex": 0, "uri": "https://example.org/1"}, {"startIndex": 9, "uri": "https://example.org/2"}]
    told = [sources[:1], sources if repeated else sources[1:]]
    events = [
        json.dumps({"candidates": [{"citationMetadata": {"citationSources": some}, "finishReason": "STOP"}]}).encode()
        for some in told
    ]
    assert Gemini().aggregate(events).extra == {"citationMetadata": _json({"citationSources": sources})}


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


def test_ids_and_names_of_the_reply_are_told() -> None:
    """The response names the reply, the model, the provider and the api."""
    response = whole({"text": "a"})
    assert (response.id, response.model, response.provider, response.api) == (
        "r1",
        MODEL,
        "gemini",
        "generate_content",
    )


# Deltas


def _shown(*events: bytes) -> list[Any]:
    adapter = Gemini()
    return [json.loads(msgspec.json.encode(delta)) for one in events for delta in adapter.deltas(one)]


def test_each_piece_is_shown_by_what_it_is() -> None:
    """Text, thinking, calls with their input, and the kind of anything else; empty pieces are not shown."""
    parts = [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"text": "", "thoughtSignature": "c2ln"},
        CALL | {"thoughtSignature": "c2ln"},
        {"executableCode": {"code": "1"}},
    ]
    shown = [
        {"type": "thinking", "content": "hm"},
        {"type": "text", "content": "a"},
        {"type": "tool_use", "name": "f", "content": {"path": "a"}},
        {"type": "executableCode"},
    ]
    assert _shown(event(*parts)) == shown
    assert _shown(*(event(part) for part in parts), event(finish="STOP")) == shown


def test_only_the_first_candidate_is_shown() -> None:
    """Further candidates and errors have no deltas."""
    candidates = [{"content": {"parts": [{"text": "x"}]}, "index": 1}, {"content": {"parts": [{"text": "a"}]}}]
    assert _shown(json.dumps({"candidates": candidates}).encode()) == [{"type": "text", "content": "a"}]
    assert _shown(b'{"error":{"code":500}}', b'{"candidates":7}') == []


def test_delta_of_what_is_not_json_is_refused() -> None:
    """Whoever shows deltas learns of an event that cannot be read."""
    with pytest.raises(ProviderError, match=r"gemini sent an event that cannot be read: '\{\"candi'"):
        Gemini().deltas(b'{"candi')
