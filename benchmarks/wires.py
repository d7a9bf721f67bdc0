"""What the adapters are measured on: a long conversation with tool calls, and a long streamed reply for each wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.data import Texts
from turnlog.model import Message, content_bytes

WIRES = ("anthropic", "openai_chat", "openai_responses", "gemini", "cohere", "cerebras")
TURNS_EACH = 4
"""A question, a reply that calls a tool, the result, the reply to that: again and again."""

Event = dict[str, Any]


def conversation(texts: Texts) -> Iterator[Message]:
    """Iterate over the turns of an endless conversation, each with 1 KiB of text."""
    number = 0
    while True:
        call = f"call_{number}"
        yield _turn(number, "user", next(texts))
        yield _turn(
            number + 1,
            "assistant",
            {"type": "text", "text": next(texts)},
            {
                "type": "tool_use",
                "id": call,
                "name": "files___read",
                "input": {"path": f"notes/{number}.md", "head": 20},
            },
        )
        result = {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": next(texts)}]}
        yield _turn(number + 2, "user", result)
        yield _turn(number + 3, "assistant", next(texts))
        number += TURNS_EACH


def _turn(number: int, role: str, *blocks: dict[str, Any] | str) -> Message:
    return Message(turn=f"{number:025}", role=role, content_json=content_bytes(blocks))


def plain(messages: list[Message]) -> list[dict[str, Any]]:
    """Return messages as the plain values that a program without turnlog would have."""
    return [{"role": message.role, "content": json.loads(message.content_json)} for message in messages]


def stream(wire: str, count: int, texts: Texts) -> list[bytes]:
    """Return a streamed reply of so many events, nearly all of them a few characters of text."""
    begin, piece, end = _STREAMS[wire]
    pieces = _pieces(texts)
    middle = [piece(next(pieces)) for _ in range(count - len(begin) - len(end))]
    return [json.dumps(event, separators=(",", ":")).encode() for event in (*begin, *middle, *end)]


def _pieces(texts: Texts) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), 4):  # about what a token is
            yield text[start : start + 4]


def _anthropic(text: str) -> Event:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


_ANTHROPIC_BEGIN: list[Event] = [
    {
        "type": "message_start",
        "message": {
            "model": "m",
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 9, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
]
_ANTHROPIC_END: list[Event] = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5000}},
    {"type": "message_stop"},
]


def _chunk(delta: Event, finish: str | None = None, **fields: Any) -> Event:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1762000000,
        "model": "m",
        "system_fingerprint": "fp_560af6e559",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **fields,
    }


_CHAT = (
    [_chunk({"role": "assistant", "content": ""})],
    lambda text: _chunk({"content": text}),
    [_chunk({}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 5000, "total_tokens": 5009})],
)


def _part(text: str, **fields: Any) -> Event:
    return {
        "candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **fields}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5000, "totalTokenCount": 5009},
        "modelVersion": "m",
        "responseId": "r",
    }


def _cohere(kind: str, content: Event) -> Event:
    return {"type": kind, "index": 0, "delta": {"message": {"content": content}}}


_RESPONSE: Event = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
_ITEM: Event = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}


def _output_text(text: str) -> Event:
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
        "logprobs": [],
        "sequence_number": 7,
        "obfuscation": "w8Kx",
    }


_USAGE: Event = {"input_tokens": 9, "output_tokens": 5000, "total_tokens": 5009}

_STREAMS: dict[str, tuple[list[Event], Callable[[str], Event], list[Event]]] = {
    "anthropic": (_ANTHROPIC_BEGIN, _anthropic, _ANTHROPIC_END),
    "openai_chat": _CHAT,
    "cerebras": _CHAT,
    "openai_responses": (
        [
            {"type": "response.created", "response": _RESPONSE},
            {"type": "response.output_item.added", "output_index": 0, "item": _ITEM},
        ],
        _output_text,
        # As some endpoints have it: the end does not repeat the output, so that the pieces count.
        [{"type": "response.completed", "response": _RESPONSE | {"status": "completed", "usage": _USAGE}}],
    ),
    "gemini": ([], _part, [_part(".", finishReason="STOP")]),
    "cohere": (
        [
            {"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant", "content": []}}},
            _cohere("content-start", {"type": "text", "text": ""}),
        ],
        lambda text: _cohere("content-delta", {"text": text}),
        [
            {"type": "content-end", "index": 0},
            {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": _USAGE}}},
        ],
    ),
}
