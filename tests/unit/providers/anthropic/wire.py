"""Builds events and replies of the Messages API for tests, and windows to answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from turnlog.model import ContextWindow, Message, Response, content_bytes, parse_window
from turnlog.providers import PreparedRequest, Provider, get

MODEL = "claude-test"


def anthropic() -> Provider:
    """Return the adapter."""
    return get("anthropic")


def encoded(value: object) -> bytes:
    """Return a value as JSON in UTF-8, without whitespace."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def window(*messages: dict[str, Any], **options: Any) -> ContextWindow:
    """Return a window of messages as JSON has them; the turn of each is its place."""
    return parse_window(encoded({"messages": list(messages), "options": options}))


def message(role: str, *blocks: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """Return a message of a window."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"role": role, "content": content, **fields}


def own(*blocks: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """Return an assistant message that the model of these tests wrote."""
    return message("assistant", *blocks, provider="anthropic", api="messages", model=MODEL, **fields)


def recorded(response: Response) -> Message:
    """Return a reply as the window of the next request has it."""
    return Message(
        turn="reply",
        role="assistant",
        content_json=content_bytes(response.content),
        provider=response.provider,
        api=response.api,
        model=response.model,
    )


def _message(**fields: Any) -> dict[str, Any]:
    given = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    return given | fields


def start(**fields: Any) -> bytes:
    """Return the event that begins a message."""
    return encoded({"type": "message_start", "message": _message(**fields)})


def end(stop_reason: str | None = "end_turn", *, usage: dict[str, Any] | None = None, **delta: Any) -> list[bytes]:
    """Return the events that end a message."""
    changes = {"stop_reason": stop_reason, "stop_sequence": None} | delta
    counts = {"output_tokens": 20} if usage is None else usage
    return [
        encoded({"type": "message_delta", "delta": changes, "usage": counts}),
        encoded({"type": "message_stop"}),
    ]


def block(index: int, began: dict[str, Any], *pieces: dict[str, Any]) -> list[bytes]:
    """Return the events of a block: its beginning, its pieces and its end."""
    return [
        encoded({"type": "content_block_start", "index": index, "content_block": began}),
        *(encoded({"type": "content_block_delta", "index": index, "delta": piece}) for piece in pieces),
        encoded({"type": "content_block_stop", "index": index}),
    ]


def text(index: int, *pieces: str) -> list[bytes]:
    """Return the events of a text block."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(index: int, signature: str, *pieces: str) -> list[bytes]:
    """Return the events of a block of thinking."""
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": piece} for piece in pieces),
        {"type": "signature_delta", "signature": signature},
    )


def call(index: int, id: str, name: str, *pieces: str) -> list[bytes]:
    """Return the events of a tool call."""
    return block(
        index,
        {"type": "tool_use", "id": id, "name": name, "input": {}},
        *({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)),
    )


def reply(*parts: Sequence[bytes]) -> list[bytes]:
    """Return the events of a reply of some blocks."""
    return [start(), *(event for part in parts for event in part)]


def whole(*blocks: dict[str, Any], stop_reason: str | None = "end_turn", **fields: Any) -> bytes:
    """Return a reply that is not streamed."""
    counts = {"input_tokens": 10, "output_tokens": 20}
    return encoded(_message(content=list(blocks), stop_reason=stop_reason, **({"usage": counts} | fields)))


def prepare(*messages: dict[str, Any], options: dict[str, Any] | None = None, **given: Any) -> PreparedRequest:
    """Return the request of a window."""
    return anthropic().prepare_request(
        window(*messages, **(options or {})), given.pop("tools", ()), model=MODEL, **given
    )


def body(*messages: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Return the body of a request, decoded."""
    return json.loads(prepare(*messages, **given).body)


def blocks(*messages: dict[str, Any], **given: Any) -> list[Any]:
    """Return the blocks of the last message of a request."""
    return body(*messages, **given)["messages"][-1]["content"]


def document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    """Return a document; by default its bytes are `hello`."""
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def called(id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": id, "name": "home___weather", "input": {}, **fields}


def result(content: Any, id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    """Return a tool result."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}
