"""Replies of Bedrock's Converse API, made up for tests: the same one streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from turnlog.model import Response
from turnlog.providers import get

MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
OWN = {"provider": "bedrock", "api": "converse", "model": MODEL}
USAGE = {"inputTokens": 40, "outputTokens": 22, "totalTokens": 72, "cacheReadInputTokens": 10}
METRICS = {"latencyMs": 512}
CITATION = {"title": "notes", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 1}}}


def event(kind: str, **fields: Any) -> bytes:
    """Return a raw event."""
    return json.dumps({kind: fields}).encode()


def begins(index: int, **start: Any) -> bytes:
    """Return the beginning of a block."""
    return event("contentBlockStart", contentBlockIndex=index, start=start, p="abc")


def piece(index: int, **delta: Any) -> bytes:
    """Return a piece of a block."""
    return event("contentBlockDelta", contentBlockIndex=index, delta=delta, p="abcd")


def ends(reason: str = "end_turn", **fields: Any) -> bytes:
    """Return the end of a message."""
    return event("messageStop", stopReason=reason, **fields)


START = event("messageStart", role="assistant", p="ab")
METADATA = event("metadata", usage=USAGE, metrics=METRICS, p="a")
STREAM = [
    START,
    piece(0, reasoningContent={"text": "Hm"}),
    piece(0, reasoningContent={"text": "."}),
    piece(0, reasoningContent={"signature": "c2ln"}),
    event("contentBlockStop", contentBlockIndex=0),
    piece(1, text="I will "),
    piece(1, text="look."),
    piece(1, citation=CITATION),
    begins(2, toolUse={"toolUseId": "c1", "name": "fs___read"}),
    piece(2, toolUse={"input": '{"path":'}),
    piece(2, toolUse={"input": ' "a", "n": 1.0}'}),
    begins(3, toolUse={"toolUseId": "c2", "name": "ls", "type": "tool_use"}),
    ends("tool_use"),
    METADATA,
]
CONTENT: list[dict[str, Any]] = [
    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
    {"citationsContent": {"content": [{"text": "I will look."}], "citations": [CITATION]}},
    {"toolUse": {"toolUseId": "c1", "name": "fs___read", "input": {"path": "a", "n": 1.0}}},
    {"toolUse": {"toolUseId": "c2", "name": "ls", "type": "tool_use", "input": {}}},
]


def whole(*content: dict[str, Any], reason: str = "end_turn", **fields: Any) -> bytes:
    """Return a whole reply."""
    output = {"message": {"role": "assistant", "content": list(content)}}
    reply = {"output": output, "stopReason": reason, "usage": USAGE, "metrics": METRICS}
    return json.dumps(reply | fields, indent=1).encode()


WHOLE = whole(*CONTENT, reason="tool_use")


def add_up(*events: bytes, model: str | None = MODEL) -> Response:
    """Return what events add up to."""
    return get("bedrock").aggregate(events, model=model)


def shown(*events: bytes) -> list[Any]:
    """Return what a reader shows of events, as JSON."""
    reader = get("bedrock").reader(model=MODEL)
    return [json.loads(msgspec.json.encode(delta)) for one in events for delta in reader.add(one)]
