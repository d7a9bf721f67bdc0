"""Replies of Bedrock's Converse API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.providers.bedrock.wire import (
    METADATA,
    MODEL,
    OWN,
    START,
    STREAM,
    WHOLE,
    add_up,
    begins,
    ends,
    event,
    piece,
    shown,
    whole,
)

from turnlog.model import Native, Thinking, ToolUse, Usage, content_bytes


def blocks(*events: bytes) -> list[Any]:
    """Return the blocks of a reply as JSON, without whose they are."""
    found = json.loads(content_bytes(add_up(*events).content))
    return [{name: value for name, value in block.items() if name not in OWN} for block in found]


def test_pieces_are_shown_as_they_come() -> None:
    """The first piece of a block has a type; signatures, citations and padding are not for reading."""
    assert shown(*STREAM) == [
        {"type": "thinking", "content": "Hm"},
        {"content": "."},
        {"type": "text", "content": "I will "},
        {"content": "look."},
        {"type": "tool_use", "name": "fs___read", "id": "c1"},
        {"content": '{"path":'},
        {"content": ' "a", "n": 1.0}'},
        {"type": "tool_use", "name": "ls", "id": "c2"},
    ]
    assert shown(WHOLE) == [
        {"type": "thinking", "content": "Hm."},
        {"type": "text", "content": "I will look."},
        {"type": "tool_use", "name": "fs___read", "id": "c1", "content": '{"path":"a","n":1.0}'},
        {"type": "tool_use", "name": "ls", "id": "c2", "content": "{}"},
    ]


@pytest.mark.parametrize(
    ("pieces", "signature"),
    [
        (["cmVk"], "cmVk"),
        (["cmU=", "ZA=="], "cmVk"),
        (["cmVk", "cmVk"], "cmVkcmVk"),
        (["?", "!"], "?!"),
        (["é", "!"], "é!"),
    ],
)
def test_redacted_reasoning_is_put_together(pieces: list[str], signature: str) -> None:
    """Each piece is base64 of its own."""
    events = [piece(0, reasoningContent={"redactedContent": each}) for each in pieces]
    [block] = add_up(START, *events, ends()).content
    assert isinstance(block, Thinking)
    assert (block.redacted, block.thinking, block.signature) == (True, "", signature)


@pytest.mark.parametrize(
    ("streamed", "record"),
    [
        (
            [
                begins(0, toolUse={"toolUseId": "s", "name": "code", "type": "server_tool_use"}),
                piece(0, toolUse={"input": '{"a":'}),
                piece(0, toolUse={"input": " 1}"}),
            ],
            {"toolUse": {"toolUseId": "s", "name": "code", "type": "server_tool_use", "input": {"a": 1}}},
        ),
        (
            [
                begins(0, toolResult={"toolUseId": "s", "status": "success"}),
                piece(0, toolResult=[{"json": {"x": 1.50}}]),
                piece(0, toolResult=[{"text": "y"}]),
            ],
            {"toolResult": {"toolUseId": "s", "status": "success", "content": [{"json": {"x": 1.5}}, {"text": "y"}]}},
        ),
        (
            [begins(0, image={"format": "png"}), piece(0, image={"source": {"bytes": "aGk="}})],
            {"image": {"format": "png", "source": {"bytes": "aGk="}}},
        ),
        ([piece(0, hum="la"), piece(0, hum="la")], {"hum": "lala"}),
        ([piece(0, hum=[1]), piece(0, hum=[2])], {"hum": [1, 2]}),
        ([begins(0, hum=7)], {"hum": 7}),
        ([piece(0, hum=7), piece(0, hum=None), piece(0, hum=8)], {"hum": 8}),
        ([begins(0, text=7)], {"text": 7}),
        (
            [piece(0, reasoningContent={"text": "a"}), piece(0, reasoningContent={"redactedContent": "cg=="})],
            {"reasoningContent": {"text": "a", "redactedContent": "cg=="}},
        ),
    ],
    ids=["server tool", "its result", "image", "text", "list", "number", "numbers", "no text", "two forms"],
)
def test_what_has_no_normalized_form_is_native(streamed: list[bytes], record: dict[str, Any]) -> None:
    """It is kept as the provider writes it whole."""
    for events in ([START, *streamed, ends()], [whole(record)]):
        [block] = add_up(*events).content
        assert isinstance(block, Native)
        assert (block.provider, block.api, block.model) == ("bedrock", "converse", MODEL)
        assert json.loads(bytes(block.block)) == record


def test_block_of_two_kinds_is_native() -> None:
    """A later version may have such."""
    record = {"text": "a", "mood": "calm"}
    assert blocks(whole(record)) == [{"type": "native", "block": record}]
    assert shown(whole(record, {"hum": ["la"]})) == [
        {"type": "native", "content": record},
        {"type": "hum", "content": ["la"]},
    ]


def test_citations_without_plain_text_are_native() -> None:
    """What is cited may be something else one day."""
    record = {"citationsContent": {"content": [{"image": {}}], "citations": []}}
    assert blocks(whole(record)) == [{"type": "native", "block": record}]
    cited = {"content": [{"text": "a"}, {"text": "b"}], "citations": [], "mood": "calm"}
    assert blocks(whole({"citationsContent": cited})) == [{"type": "text", "text": "ab", "mood": "calm"}]


def test_empty_text_is_no_block() -> None:
    """Some models send it before a call."""
    assert blocks(START, piece(0, text=""), begins(1, toolUse={"toolUseId": "c", "name": "f"}), ends("tool_use")) == [
        {"type": "tool_use", "name": "f", "id": "c", "input": {}}
    ]
    assert add_up(whole({"text": ""})).content == ()


def test_arguments_that_are_no_object_are_kept() -> None:
    """So are fields of a call that nobody knows."""
    began = begins(0, toolUse={"toolUseId": "c", "name": "f"})
    [block] = add_up(START, began, piece(0, toolUse={"input": '{"a', "mood": "calm"}), ends("max_tokens")).content
    assert isinstance(block, ToolUse)
    assert bytes(block.input) == b"{}"
    assert {name: bytes(value) for name, value in block.extra.items()} == {
        "mood": b'"calm"',
        "malformed_arguments": b'"{\\"a"',
    }


def test_what_is_about_the_reply_is_kept() -> None:
    """Whatever stands beside what is known, in the end or in the metadata, is in `extra`; padding is not."""
    fields = {"trace": {"guardrail": {}}, "serviceTier": {"type": "flex"}}
    streamed = add_up(
        event("messageStart", role="assistant", mood="calm", p="abc"),
        piece(0, text="a"),
        ends(additionalModelResponseFields={"top_k": 1.0}, p="a"),
        event(
            "metadata", usage=json.loads(METADATA)["metadata"]["usage"], metrics={"latencyMs": 512}, p="ab", **fields
        ),
    )
    reply = json.loads(whole({"text": "a"}, additionalModelResponseFields={"top_k": 1.0}, **fields))
    reply["output"]["message"]["mood"] = "calm"
    assert streamed == add_up(json.dumps(reply).encode())
    assert {name: json.loads(bytes(value)) for name, value in streamed.extra.items()} == {
        "mood": "calm",
        "additionalModelResponseFields": {"top_k": 1.0},
        "metrics": {"latencyMs": 512},
        **fields,
    }


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"inputTokens": 5, "outputTokens": 2}, Usage(input_tokens=5, output_tokens=2)),
        (
            {
                "inputTokens": 5,
                "outputTokens": 2,
                "cacheReadInputTokens": 3,
                "cacheWriteInputTokens": 1,
                "totalTokens": 11,
            },
            Usage(input_tokens=5, output_tokens=2, cache_read_input_tokens=3, cache_creation_input_tokens=1),
        ),
        (
            {
                "inputTokens": 5,
                "outputTokens": 2,
                "cacheReadInputTokens": 3,
                "cacheWriteInputTokens": 1,
                "totalTokens": 7,
            },
            Usage(input_tokens=1, output_tokens=2, cache_read_input_tokens=3, cache_creation_input_tokens=1),
        ),
        ({"inputTokens": None, "outputTokens": "x"}, None),
    ],
    ids=["plain", "beside", "within", "odd"],
)
def test_usage_adds_up(counts: dict[str, Any], usage: Usage | None) -> None:
    """The total says whether what was cached is beside the input or a part of it."""
    response = add_up(START, ends(), event("metadata", usage=counts))
    assert response.usage == usage
    assert response.raw_usage is not None
    assert json.loads(bytes(response.raw_usage)) == counts


def test_stream_without_its_end_is_an_error() -> None:
    """From `messageStop` on it is none; a piece of a block whose beginning was lost is a block."""
    cut = add_up(*STREAM[:-2])
    assert cut.error is not None
    assert cut.error.message == "bedrock: the stream ended without its messageStop"
    assert add_up(*STREAM[:-1]).error is None
    [block] = add_up(START, piece(4, toolUse={"input": '{"a":1}'})).content
    assert isinstance(block, ToolUse)
    assert (block.name, bytes(block.input)) == ("", b'{"a":1}')


@pytest.mark.parametrize(
    "broken",
    [
        b'{"contentBlockDelta":{"contentBlockIndex":1,"delta":7}}',
        b'{"contentBlockStart":{"contentBlockIndex":1,"start":"x"}}',
        b'{"contentBlockDelta":7}',
        b'{"metadata":[]}',
    ],
)
def test_what_is_no_object_where_one_belongs_is_told(broken: bytes) -> None:
    """What could be read stays."""
    response = add_up(START, piece(0, text="Hi."), broken, ends())
    assert response.stop_reason == "error"
    assert response.error is not None
    assert response.error.message.startswith(f"bedrock sent an event that cannot be read: {broken.decode()[:80]!r}: ")
    assert [getattr(block, "text", None) for block in response.content] == ["Hi."]
