"""What builds events of Chat Completions, and takes its bodies apart."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tests.wires.typed_bodies import check_body

from turnlog.model import ContextWindow, Message, Response, ToolUse, content_bytes
from turnlog.providers import PreparedRequest
from turnlog.providers.openai_chat import OpenAIChat

HOME = OpenAIChat()
OTHER = OpenAIChat(provider="other")
"""An endpoint of somebody else, who speaks the wire too."""

OWN = {"provider": "openai", "api": "chat_completions", "model": "m"}
THEIRS = OWN | {"provider": "other"}


def event(fields: dict[str, Any]) -> bytes:
    """Return an event of a reply that the model `m` gave."""
    known = {"id": "r-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps(known | fields, ensure_ascii=False).encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk of a stream with one choice, or with none if there is neither a delta nor a finish reason."""
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    choices = [] if delta is None and finish is None else [choice]
    return event({"choices": choices} | fields)


def whole(reply: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    """Return a whole reply of one choice."""
    choice = {"index": 0, "message": {"role": "assistant"} | reply, "logprobs": None, "finish_reason": finish}
    return event({"object": "chat.completion", "choices": [choice]} | fields)


def piece(index: int | None, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a piece of a tool call."""
    name = fields.pop("name", None)
    function = {} if name is None else {"name": name}
    function |= {} if arguments is None else {"arguments": arguments}
    return ({} if index is None else {"index": index}) | fields | {"function": function}


def calls(*pieces: dict[str, Any]) -> bytes:
    """Return a chunk with pieces of tool calls."""
    return chunk({"tool_calls": list(pieces)})


def aggregate(*events: bytes, adapter: OpenAIChat = HOME, model: str | None = None) -> Response:
    """Return what events add up to."""
    return adapter.aggregate(events, model=model)


def used(*events: bytes) -> list[tuple[str, str | None, Any]]:
    """Return the tool calls of a stream that ends well: name, id and arguments."""
    response = aggregate(*events, chunk({}, "tool_calls"))
    assert response.stop_reason == "tool_use"
    return [
        (block.name, block.id or None, msgspec.json.decode(block.input))
        for block in response.content
        if isinstance(block, ToolUse)
    ]


def shown(*events: bytes, adapter: OpenAIChat = HOME) -> list[Any]:
    """Return the deltas of a stream as values."""
    reader = adapter.reader()
    return [json.loads(msgspec.json.encode(delta)) for one in events for delta in reader.add(one)]


def values(extra: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """Return raw fields as values."""
    return {name: json.loads(bytes(raw)) for name, raw in extra.items()}


def recorded(response: Response, **fields: Any) -> Message:
    """Return a response as the turn that a log has of it."""
    whose = {"provider": response.provider, "api": response.api, "model": response.model} | fields
    return Message(turn="reply", role="assistant", content_json=content_bytes(list(response.content)), **whose)


def prepare(*messages: Message, adapter: OpenAIChat = HOME, typed: bool = True, **arguments: Any) -> PreparedRequest:
    """Prepare a request to the model `m`; check its body against the types of the SDK, unless `typed` is false."""
    window = ContextWindow(messages=messages, options=arguments.pop("options", {}))
    request = adapter.prepare_request(window, model=arguments.pop("model", "m"), **arguments)
    if typed:
        check_body("openai_chat", request.body)
    return request


def body(*messages: Message, **arguments: Any) -> Any:
    """Return the body as values."""
    return json.loads(prepare(*messages, **arguments).body)


def sent(*messages: Message, **arguments: Any) -> Any:
    """Return the messages of the body."""
    return body(*messages, **arguments)["messages"]


def lost(request: PreparedRequest) -> list[tuple[str, str, str]]:
    """Return the losses as kind, block and turn."""
    return [(entry.kind, entry.block, entry.turn) for entry in request.loss_report.entries]
