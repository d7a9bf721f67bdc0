"""What replies come to on every wire: how they end, what was broken or reported in them, and what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.anthropic import wire as anthropic
from tests.unit.providers.bedrock import wire as bedrock
from tests.unit.providers.cohere import wire as cohere
from tests.unit.providers.gemini import wire as gemini
from tests.unit.providers.openai_chat import wire as chat
from tests.unit.providers.openai_responses import wire as responses

from turnlog.model import Response, Text
from turnlog.providers import get

Made = Callable[..., list[bytes]]


def _anthropic(reason: str | None = "end_turn", *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    said = anthropic.call(0, "c", "f", "{}") if calls else anthropic.text(0, "a")
    return anthropic.reply(said, between, [] if calls else anthropic.text(1, "b"), anthropic.end(reason))


def _bedrock(reason: str | None = "end_turn", *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    begun = bedrock.begins(0, toolUse={"toolUseId": "c", "name": "f"})
    first, second = (begun, ()) if calls else (bedrock.piece(0, text="a"), (bedrock.piece(0, text="b"),))
    return [bedrock.START, first, *between, *second, bedrock.ends(reason or "")]


def _chat(reason: str | None = "stop", *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    call = chat.calls(chat.piece(0, "{}", id="c", name="f"))
    first, second = (call, ()) if calls else (chat.chunk({"content": "a"}), (chat.chunk({"content": "b"}),))
    return [first, *between, *second, chat.chunk({}, reason)]


def _cohere(reason: str | None = "COMPLETE", *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    begun = cohere.of_message("tool-call-start", 0, tool_calls=call)
    pieces = [cohere.of_message("content-delta", 0, content={"text": text}) for text in "ab"]
    return [cohere.START, begun if calls else pieces[0], *between, *([] if calls else pieces[1:]), cohere.end(reason)]


def _gemini(reason: str | None = "STOP", *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    parts = [{"functionCall": {"name": "f", "args": {}}}] if calls else [{"text": "a"}, {"text": "b"}]
    events = [gemini.event(part) for part in parts]
    return [events[0], *between, *events[1:], gemini.event(finish=reason)]


def _responses(reason: str | None = None, *, calls: bool = False, between: tuple[bytes, ...] = ()) -> list[bytes]:
    details = {"status": "incomplete", "incomplete_details": {"reason": reason}} if reason else {}
    said = [responses.called("f", "{}")] if calls else [responses.said("a"), responses.said("b", "msg_2")]
    events = responses.streamed(*said, **details)
    return [*events[:4], *between, *events[4:]]


MADE: dict[str, Made] = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "openai_chat": _chat,
    "cohere": _cohere,
    "gemini": _gemini,
    "openai_responses": _responses,
}
"""The events of a reply that says `a` and then `b`, or calls `f`, and ends for a reason."""

SENDERS = {"openai_chat": "openai", "openai_responses": "openai"}


def _text(response: Response) -> str:
    return "".join(block.text for block in response.content if isinstance(block, Text))


ENDS: dict[str, dict[str | None, str]] = {
    "anthropic": {
        **dict.fromkeys(("end_turn", "stop_sequence", "pause_turn", "something_new", None), "stop tool_use"),
        **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length length"),
        "tool_use": "tool_use tool_use",
        "refusal": "refusal refusal",
    },
    "bedrock": {
        **dict.fromkeys(("end_turn", "stop_sequence", "of_a_later_version"), "stop tool_use"),
        "tool_use": "tool_use tool_use",
        **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length length"),
        **dict.fromkeys(("guardrail_intervened", "content_filtered"), "refusal refusal"),
    },
    "openai_chat": {
        **dict.fromkeys(("stop", "tool_calls", "function_call", "eos", "a word of tomorrow"), "stop tool_use"),
        **dict.fromkeys(("length", "max_tokens"), "length length"),
        "content_filter": "refusal refusal",
    },
    "cohere": {
        **dict.fromkeys(("COMPLETE", "STOP_SEQUENCE", "TOOL_CALL", "SOMETHING_NEW", None), "stop tool_use"),
        **dict.fromkeys(("MAX_TOKENS", "ERROR_LIMIT"), "length length"),
        "ERROR_TOXIC": "refusal refusal",
    },
    "gemini": {
        "STOP": "stop tool_use",
        **dict.fromkeys(("MAX_TOKENS", "CONTINUATION"), "length length"),
        **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII"), "refusal refusal"),
        **dict.fromkeys(("PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR"), "refusal refusal"),
    },
    "openai_responses": {
        **dict.fromkeys(("max_output_tokens", "max_messages"), "length length"),
        "content_filter": "refusal refusal",
        "steered": "stop stop",
    },
}
"""By the provider's word for it, the stop reason of a text and that of a call."""


@pytest.mark.parametrize("wire", ENDS)
def test_words_for_the_end_have_their_stop_reason(wire: str) -> None:
    """The word is kept. Calls are to be run only where the reply came to its end; a new word is an end like others."""
    for word, expected in ENDS[wire].items():
        for calls, stop_reason in zip((False, True), expected.split(), strict=True):
            response = get(wire).aggregate(MADE[wire](word, calls=calls), model="m")
            found = (response.stop_reason, response.raw_stop_reason, response.error)
            assert found == (stop_reason, word, None), (word, calls)


FAILS: list[tuple[str, str, str, str, bool]] = [
    ("bedrock", "malformed_tool_use", "error", "ended its reply with", True),
    ("bedrock", "malformed_model_output", "error", "ended its reply with", True),
    *(
        ("openai_chat", word, "error", "broke its reply off:", True)
        for word in ("error", "abort", "aborted", "insufficient_system_resource")
    ),
    *(("cohere", word, "error", "ended its reply with", True) for word in ("ERROR", "ERROR_NEW", "TIMEOUT")),
    ("cohere", "USER_CANCEL", "aborted", "ended its reply with", True),
    *(
        ("gemini", word, "error", "stopped with", True)
        for word in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER")
    ),
    *(("gemini", word, "error", "stopped with", False) for word in ("TOO_MANY_TOOL_CALLS", "NEVER_HEARD_OF")),
]


@pytest.mark.parametrize(("wire", "word", "stop_reason", "said", "retryable"), FAILS)
def test_word_that_means_failure_is_an_error(
    wire: str, word: str, stop_reason: str, said: str, retryable: bool
) -> None:
    """What had come is kept, and the error says whether the call may be tried again."""
    response = get(wire).aggregate(MADE[wire](word), model="m")
    assert (response.stop_reason, response.raw_stop_reason) == (stop_reason, word)
    assert response.content == (Text(text="ab"),)
    assert response.error is not None
    message = f"{SENDERS.get(wire, wire)} {said} {word}"
    assert (response.error.message, response.error.retryable) == (message, retryable)


DEEP = b"[" * 99_999 + b"]" * 99_999
DELTA = b'{"type":"content_block_delta","index":%s,"delta":{"type":"text_delta","text":%s}}'
UNREADABLE: dict[str, list[bytes]] = {
    "anthropic": [
        b"null",
        b'{"type":1}',
        DELTA[:-9] + b'"te',
        DELTA % (b"0", b'"\xff"'),
        DELTA % (b"0", b'"\\x"'),
        DELTA % (b"0", b"1"),
        DELTA % (b'"x"', b'"x"'),
        b'{"type":"content_block_start","index":0}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"new","x":"\xff"}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"new","x":' + DEEP + b"}}",
        b'{"type":"message_delta","delta":[]}',
        b'{"type":"message","content":1}',
    ],
    "bedrock": [b'{"messageStop":'],
    "openai_chat": [b'{"choices":[{"delta":{"content":"', b'{"choices":7}', b'{"a":"\xff"}'],
    "cohere": [
        b'{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"',
        b'{"type":"content-delta","index":"0"}',
        b'{"type":"content-delta","delta":{"message":{"content":[1]}}}',
        b'{"type":"content-delta","delta":{"message":{"content":1}}}',
        b'{"type":"tool-call-start","delta":{"message":{"tool_calls":{"id":1}}}}',
        b'{"type":"tool-plan-delta","delta":{"message":{"tool_plan":"\xff"}}}',
    ],
    "gemini": [
        b'{"candidates":[',
        *(b'{"candidates":%s}' % odd for odd in (b"7", b"[7]")),
        *(b'{"candidates":[{"content":%s}]}' % odd for odd in (b"7", b'{"parts":{}}', b'{"parts":["x"]}')),
    ],
    "openai_responses": [b'{"type":"\\x"}'],
}
EVERYWHERE = [b"", b"1", b'"x"', b"no json", b"[" * 100_000, b"\xff"]


@pytest.mark.parametrize("wire", MADE)
def test_event_that_cannot_be_read_is_an_error_and_the_rest_is_kept(wire: str) -> None:
    """It is not JSON, or has not the shape that is known; nothing is shown of it, and the call may be tried again."""
    whole = get(wire).aggregate(MADE[wire](), model="m")
    for broken in [*EVERYWHERE, *UNREADABLE[wire]]:
        response = get(wire).aggregate(MADE[wire](between=(broken, b"{")), model="m")
        assert _text(response) == "ab", broken[:80]
        assert response.error is not None, broken[:80]
        sender = SENDERS.get(wire, wire)
        said = (f"{sender} sent an event that ", f"{sender} broke off within an event: ")
        assert response.error.message.startswith(said), response.error
        assert (response.stop_reason, response.error.retryable) == ("error", wire != "openai_responses")
        assert response.raw_stop_reason == whole.raw_stop_reason
        assert list(get(wire).deltas(broken)) == []


@pytest.mark.parametrize("wire", [wire for wire in MADE if wire != "bedrock"])
def test_an_event_that_a_stream_broke_off_in_may_be_asked_for_again(wire: str) -> None:
    """It is the connection that failed, and not the provider that speaks another wire."""
    error = get(wire).aggregate([b'{"type": "x", "y"'], model="m").error
    assert error is not None
    assert error.message == f'{SENDERS.get(wire, wire)} broke off within an event: \'{{"type": "x", "y"\''
    assert error.retryable


def _typed(**error: Any) -> dict[str, Any]:
    return {"type": "error", "error": error}


OVERLOADED = {"message": "overloaded"}
SLOW = {"code": "rate_limit_exceeded", "message": "Slow\ndown"}
REPORTED: list[tuple[str, Any, str]] = [
    ("anthropic", _typed(type="overloaded_error", message="a\nb"), "broke off: a b (overloaded_error) (retryable)"),
    ("anthropic", _typed(type="rate_limit_error", message="a"), "broke off: a (rate_limit_error) (retryable)"),
    *(("anthropic", _typed(type=kind), f"broke off: {kind} (retryable)") for kind in ("api_error", "timeout_error")),
    ("anthropic", _typed(type="invalid_request_error"), "broke off: invalid_request_error"),
    *(("anthropic", odd, "broke off: an error, and no more") for odd in (_typed(), {"type": "error"})),
    ("anthropic", {"error": {"message": "no type"}}, "broke off: no type"),
    ("anthropic", {"error": "down"}, "broke off: down"),
    *(
        ("bedrock", {kind: fields}, f"broke off: {line}")
        for kind, fields, line in (
            ("throttlingException", {"message": "Slow\ndown."}, "Slow down. (throttlingException) (retryable)"),
            ("validationException", {"message": "No."}, "No. (validationException)"),
            ("modelStreamErrorException", {"originalMessage": "H"}, "H (modelStreamErrorException) (retryable)"),
            ("laterException", {}, "laterException (retryable)"),
            ("error", {"code": "DamagedStream", "message": "cut"}, "cut (DamagedStream) (retryable)"),
            ("error", "busy", "busy (retryable)"),
            ("message", "Too long.", "Too long."),
        )
    ),
    *(
        ("cohere", said, "broke off: overloaded (retryable)")
        for said in (OVERLOADED, {"type": "error"} | OVERLOADED, {"error": OVERLOADED})
    ),
    *(
        ("openai_chat", said, f"reported an error: {line}")
        for said, line in (
            ({"error": {"message": "too\nmuch", "type": "server_error", "code": None}}, "too much (retryable)"),
            ({"error": {"message": "bad gateway", "code": 502}}, "bad gateway (retryable)"),
            ({"error": {"message": "not yours", "code": 403}}, "not yours"),
            ({"error": "plainly"}, "plainly"),
            ({"object": "error", "message": "long", "type": "BadRequestError", "code": 400}, "long"),
            ({"message": "full", "type": "too_many_requests_error", "code": "queue"}, "full (retryable)"),
        )
    ),
    *(
        ("openai_responses", said, "reported an error: rate_limit_exceeded: Slow down (retryable)")
        for said in ({"type": "error", "param": None} | SLOW, _typed(type="x", **SLOW), {"error": SLOW})
    ),
    *(
        ("openai_responses", said, "reported an error: No such model")
        for said in ({"error": "No such model"}, {"type": "error", "error": "No such model"})
    ),
    *(
        ("gemini", {"error": said}, line)
        for said, line in (
            ({"code": 503, "message": "Overloaded."}, "answered 503: Overloaded. (retryable)"),
            (
                {"code": 429, "message": "No.", "details": [{"@type": "Help"}, {"retryDelay": "36.5s"}]},
                "answered 429: No. (retryable after 36.5 s)",
            ),
            ({"code": "odd", "message": "no"}, "broke off: no"),
            ("no", "broke off: no"),
        )
    ),
]


@pytest.mark.parametrize(("wire", "event", "line"), REPORTED)
def test_error_event_is_the_error_of_the_reply(wire: str, event: dict[str, Any], line: str) -> None:
    """In whichever form it comes; what had come is kept, nothing is shown of it, and a later error changes nothing."""
    said, later = json.dumps(event).encode(), json.dumps({"error": {"message": "later"}}).encode()
    response = get(wire).aggregate(MADE[wire](between=(said, later)), model="m")
    assert response.stop_reason == "error"
    assert response.error is not None
    assert response.error.line() == f"{SENDERS.get(wire, wire)} {line}"
    assert _text(response) == "ab"
    assert list(get(wire).deltas(said)) == []


@pytest.mark.parametrize("code", [0, -1, 8, 1301, 1 << 63, 1 << 70, 429.5, True, "429", None])
def test_code_that_is_no_http_status_is_not_told_as_one(code: object) -> None:
    """Some endpoints have codes of their own, and a status of more than 64 bits is no JSON of ours."""
    said = json.dumps({"error": {"message": "no", "code": code}}).encode()
    for wire, line in (("openai_chat", "openai reported an error: no"), ("gemini", "gemini broke off: no")):
        error = get(wire).aggregate([said], model="m").error
        assert error is not None
        assert (error.line(), error.status) == (line, None), wire


@pytest.mark.parametrize("wire", MADE)
def test_stream_without_its_end_is_an_error_that_keeps_what_came(wire: str) -> None:
    """Cut behind each of its events, and before all of them, it is of the model that was asked."""
    for events in (MADE[wire](), MADE[wire](calls=True)):
        for count in range(len(events) - (2 if wire == "anthropic" else 1)):
            response = get(wire).aggregate(events[:count], model="asked")
            assert response.error is not None, count
            assert (response.stop_reason, response.raw_stop_reason, response.error.retryable) == ("error", None, True)
            assert count > 0 or (response.content, response.model, response.usage) == ((), "asked", None)
