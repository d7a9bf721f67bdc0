"""Replies in the normalized form: deltas, errors, responses, and arguments as models write them."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.model import (
    ARGUMENTS,
    MALFORMED,
    CallError,
    Delta,
    Native,
    Response,
    Text,
    Thinking,
    ToolUse,
    Usage,
    content_bytes,
    decode_content,
    parse_arguments,
)


def _response(*content: Any, **fields: Any) -> Response:
    known = {"model": "m", "stop_reason": "stop", "provider": "p", "api": "a"}
    return Response(content=content, **(known | fields))


# Deltas


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (Delta(type="text", content=""), '{"type":"text","content":""}'),
        (Delta(content="more"), '{"content":"more"}'),
        (Delta(type="tool_use", name="f", id="c"), '{"type":"tool_use","name":"f","id":"c"}'),
        (Delta(type="tool_use", content=Raw(b'{"n":1.50}')), '{"type":"tool_use","content":{"n":1.50}}'),
        (Delta(), "{}"),
    ],
)
def test_delta_is_written_with_what_it_has(delta: Delta, text: str) -> None:
    """A delta as JSON has the keys that it has; text is text, and a whole input is JSON as it was spelled."""
    assert msgspec.json.encode(delta).decode() == text


# Errors


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CallError(message="no"), "no"),
        (CallError(message="no", status=400), "no"),
        (CallError(message="busy", retryable=True), "busy (retryable)"),
        (CallError(message="busy", retryable=True, retry_after_s=1.5), "busy (retryable after 1.5 s)"),
        (CallError(message="busy", retryable=True, retry_after_s=20.0), "busy (retryable after 20 s)"),
        (CallError(message="no", retry_after_s=1.5), "no"),
    ],
)
def test_error_says_in_one_line_whether_to_try_again(error: CallError, line: str) -> None:
    """The line of an error names the wait only where trying again may help."""
    assert error.line() == line


def test_reply_that_broke_off_keeps_what_had_come() -> None:
    """A response made a failed one keeps all but the stop reason and the error."""
    whole = _response(Text(text="half"), usage=Usage(output_tokens=3), raw_stop_reason="end_turn", id="r")
    error = CallError(message="gone", retryable=True)
    failed = whole.failed(error)
    assert (failed.stop_reason, failed.error) == ("error", error)
    assert msgspec.structs.replace(failed, stop_reason="stop", error=None) == whole
    assert whole.failed(error, stop_reason="aborted").stop_reason == "aborted"


# Records


def test_record_is_the_normalized_response() -> None:
    """A record is `{message: {type, role, model, content, stop_reason, usage}, provider, api}`, totals included."""
    response = _response(
        Text(text="hi", extra={"citations": Raw(b"[1]")}),
        ToolUse(id="c", name="f", input=Raw(b'{"n":1.50}')),
        stop_reason="tool_use",
        usage=Usage(input_tokens=2, output_tokens=3, reasoning_tokens=4),
    )
    assert msgspec.json.encode(response.to_record()).decode() == (
        '{"message":{"type":"message","role":"assistant","model":"m","content":['
        '{"type":"text","text":"hi","citations":[1]},{"type":"tool_use","name":"f","input":{"n":1.50},"id":"c"}],'
        '"stop_reason":"tool_use","usage":{"input_tokens":2,"output_tokens":3,"cache_creation_input_tokens":0,'
        '"cache_read_input_tokens":0,"reasoning_tokens":4,"total_tokens":9}},"provider":"p","api":"a"}'
    )


def test_record_has_optional_fields_only_where_they_say_something() -> None:
    """Ids, raw words, errors and further fields are there where the provider sent them; no usage is no key."""
    bare = _response().to_record()
    assert set(bare) == {"message", "provider", "api"}
    assert "usage" not in bare["message"]
    full = _response(
        id="r",
        raw_stop_reason="STOP",
        raw_usage=Raw(b'{"n":1}'),
        error=CallError(message="no"),
        extra={"tier": Raw(b'"x"')},
    )
    record = json.loads(msgspec.json.encode(full.to_record()))
    assert {name: record[name] for name in set(record) - set(bare)} == {
        "id": "r",
        "raw_stop_reason": "STOP",
        "raw_usage": {"n": 1},
        "error": {"message": "no"},
        "extra": {"tier": "x"},
    }


def test_record_shows_native_blocks_as_the_provider_wrote_them() -> None:
    """A native block stands in a record without its wrapping, numbers as they were spelled."""
    record = _response(Native(provider="p", api="a", model="m", block=Raw(b'{"type":"x","n":1.50}'))).to_record()
    assert bytes(record["message"]["content"][0]) == b'{"type":"x","n":1.50}'


def test_content_of_a_response_can_be_recorded() -> None:
    """Blocks made for a response come back from a payload equal, extra keys included."""
    content = (
        Thinking(thinking="hm", signature="s", provider="p", api="a", model="m", extra={"x": Raw(b"1.50")}),
        Text(text="hi"),
        ToolUse(name="f", input=Raw(b"{}"), extra={MALFORMED: Raw(b'"{oops"')}),
        Native(provider="p", block=Raw(b"[]")),
    )
    assert tuple(decode_content(content_bytes(content))) == content


# Arguments


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    """A model that writes nothing calls the tool without arguments."""
    assert parse_arguments(text) == (Raw(b"{}"), {})


@pytest.mark.parametrize(
    ("text", "input"),
    [
        ("{}", b"{}"),
        (' { "b" : 1.50 , "a" : "\\u00e9 x" } ', b'{"b":1.50,"a":"\\u00e9 x"}'),
        ('{"n":123456789012345678901234567890}', b'{"n":123456789012345678901234567890}'),
        ('{"a":1,"a":2}', b'{"a":1,"a":2}'),
        ('{"é":"茶"}', '{"é":"茶"}'.encode()),
    ],
)
def test_arguments_keep_their_spelling(text: str, input: bytes) -> None:
    """An object loses its whitespace outside strings, and nothing else."""
    assert parse_arguments(text) == (Raw(input), {})


@pytest.mark.parametrize("text", ['{"a":', "[1]", '"text"', "null", "3", "{} {}", "{'a': 1}", "\x00", "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_as_text(text: str) -> None:
    """Whatever else a model writes is kept as it is beside an empty input, so that nothing is lost."""
    input, extra = parse_arguments(text)
    assert bytes(input) == b"{}"
    assert {name: json.loads(bytes(raw)) for name, raw in extra.items()} == {MALFORMED: text}


def test_arguments_with_half_of_a_pair_are_an_object() -> None:
    """They say what they would in a whole reply; as a text they keep their spelling."""
    text = r'{"a":"\ud83dx","b":"\ude00","c":"y\ud83d"}'
    mended = Raw(rb'{"a":"\ufffdx","b":"\ufffd","c":"y"}')
    assert parse_arguments(text) == (mended, {})
    assert parse_arguments(text, as_spelled=True) == (mended, {ARGUMENTS: Raw(json.dumps(text).encode())})


def test_arguments_that_are_no_text_can_still_be_recorded() -> None:
    """Half of a surrogate pair cannot be stored; a mark stands in for it."""
    _, extra = parse_arguments('{"a":"\ud83d')
    assert json.loads(bytes(extra[MALFORMED])) == '{"a":"?'
    block = ToolUse(name="f", input=Raw(b"{}"), extra=extra)
    assert decode_content(content_bytes([block])) == [block]
    assert block.id is None
