"""Replies of Cohere's v2 chat, made up for tests: the same one streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from turnlog.model import Response
from turnlog.providers import get

MODEL = "command-a-reasoning-08-2025"
OWN = {"provider": "cohere", "api": "chat_v2", "model": MODEL}
USAGE = {
    "billed_units": {"input_tokens": 40, "output_tokens": 220},
    "tokens": {"input_tokens": 1500.0, "output_tokens": 249.0},
    "cached_tokens": 480,
}
CITATION = {"start": 0, "end": 2, "text": "It", "sources": [{"type": "tool", "id": "c1:0", "tool_output": {"n": "1"}}]}


def event(type: str, index: int | None = None, **fields: Any) -> bytes:
    """Return an event of a stream as it stands on the wire."""
    return json.dumps({"type": type} | ({} if index is None else {"index": index}) | fields).encode()


def of_message(type: str, index: int | None = None, **message: Any) -> bytes:
    """Return an event that adds to the message."""
    return event(type, index, delta={"message": message})


def end(reason: str | None = "COMPLETE", **fields: Any) -> bytes:
    """Return the last event of a stream."""
    return event("message-end", delta={"finish_reason": reason, "usage": USAGE, **fields})


START = b'{"type":"message-start","id":"r1","delta":{"message":{"role":"assistant","content":[],"tool_calls":[]}}}'
STREAM = [
    START,
    of_message("content-start", 0, content={"type": "thinking", "thinking": ""}),
    of_message("content-delta", 0, content={"thinking": "Hm"}),
    of_message("content-delta", 0, content={"thinking": "."}),
    event("content-end", 0),
    of_message("tool-plan-delta", tool_plan="I will "),
    of_message("tool-plan-delta", tool_plan="look."),
    of_message(
        "tool-call-start",
        0,
        tool_calls={"id": "c1", "type": "function", "function": {"name": "fs___read", "arguments": ""}},
    ),
    of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"path":'}}),
    of_message("tool-call-delta", 0, tool_calls={"function": {"arguments": ' "a", "n": 1.0}'}}),
    event("tool-call-end", 0),
    of_message("tool-call-start", 1, tool_calls={"id": "c2", "type": "function", "function": {"name": "ls"}}),
    of_message("tool-call-delta", 1, tool_calls={"function": {"arguments": "{}"}}),
    event("tool-call-end", 1),
    of_message("citation-start", 0, citations=CITATION | {"type": "PLAN"}),
    event("citation-end", 0),
    end("TOOL_CALL"),
]
WHOLE = {
    "id": "r1",
    "finish_reason": "TOOL_CALL",
    "message": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}],
        "tool_plan": "I will look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "fs___read", "arguments": '{"path": "a", "n": 1.0}'}},
            {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
        ],
        "citations": [CITATION | {"type": "PLAN"}],
    },
    "usage": USAGE,
}


def whole(**fields: Any) -> bytes:
    """Return the whole reply, with its fields changed."""
    return json.dumps(WHOLE | fields, indent=1).encode()


def saying(finish_reason: str | None = "COMPLETE", /, **message: Any) -> bytes:
    """Return a whole reply with a message."""
    return whole(message={"role": "assistant", **message}, finish_reason=finish_reason)


def add_up(*events: bytes, model: str | None = MODEL) -> Response:
    """Return what events add up to."""
    return get("cohere").aggregate(events, model=model)


def shown(*events: bytes) -> list[Any]:
    """Return what a reader shows of events, as JSON."""
    reader = get("cohere").reader(model=MODEL)
    return [json.loads(msgspec.json.encode(delta)) for one in events for delta in reader.add(one)]
