"""Pieces of Gemini's wire for its tests: windows, replies, and what a request says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.model import ContextWindow, Message, Response, Tool, content_bytes, parse_tools
from turnlog.providers import OnLoss, PreparedRequest
from turnlog.providers.gemini import Gemini

MODEL = "gemini-2.5-test"
OWN = {"provider": "gemini", "api": "generate_content", "model": MODEL}
"""Where the conversations of these tests go to."""

OTHER = {"provider": "anthropic", "api": "messages", "model": "claude-test"}


def window(*messages: Message, **options: Any) -> ContextWindow:
    """Return a window of messages and options."""
    return ContextWindow(messages=messages, options=options)


def message(role: str, *blocks: Any, turn: str = "t", **fields: Any) -> Message:
    """Return a message of blocks; a string is a text block."""
    return Message(turn=turn, role=role, content_json=content_bytes(list(blocks)), **fields)


def tool(schema: Mapping[str, Any] | None = None, name: str = "files___read", **fields: Any) -> Tool:
    """Return a tool with an input schema."""
    schema = {"type": "object", "properties": {}} if schema is None else schema
    [one] = parse_tools(json.dumps([{"name": name, "inputSchema": schema, **fields}]))
    return one


def prepared(
    given: ContextWindow,
    tools: Sequence[Tool] = (),
    *,
    params: Mapping[str, Any] | None = None,
    on_loss: OnLoss | None = None,
    model: str = MODEL,
) -> PreparedRequest:
    """Return the request of a window, from an adapter that has seen no other."""
    return Gemini().prepare_request(given, tools, model=model, params=params, on_loss=on_loss)


def body(given: ContextWindow, tools: Sequence[Tool] = (), **more: Any) -> dict[str, Any]:
    """Return the decoded body of a window's request."""
    return json.loads(prepared(given, tools, **more).body)


def losses(request: PreparedRequest) -> list[tuple[str, str, str]]:
    """Return what a request lost: kind, block, turn."""
    return [(loss.kind, loss.block, loss.turn) for loss in request.loss_report.entries]


def event(*parts: Mapping[str, Any], finish: str | int | None = None, **fields: Any) -> bytes:
    """Return an event whose first candidate holds parts; other fields stand beside the candidates."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return json.dumps({"candidates": [candidate], "modelVersion": MODEL, "responseId": "r1"} | fields).encode()


def whole(*parts: Mapping[str, Any], finish: str | int | None = "STOP", **fields: Any) -> Response:
    """Return what a whole reply of parts adds up to."""
    return Gemini().aggregate([event(*parts, finish=finish, **fields)])


def candidate(*parts: Mapping[str, Any], **fields: Any) -> Response:
    """Return what a whole reply adds up to whose candidate has parts, and fields beside its content."""
    said = {"content": {"parts": list(parts), "role": "model"}, "index": 0} | fields
    return Gemini().aggregate([json.dumps({"candidates": [said], "modelVersion": MODEL, "responseId": "r1"}).encode()])


def streamed(*parts: Mapping[str, Any], finish: str | int | None = "STOP", **fields: Any) -> Response:
    """Return what a stream adds up to that has one event for each part, and one that ends it."""
    return Gemini().aggregate([*(event(part) for part in parts), event(finish=finish, **fields)])


def again(response: Response, **fields: Any) -> list[Any]:
    """Record a response as a turn, ask the same model again, and return the parts of that turn on the wire."""
    said = message("assistant", *response.content, **({**OWN, "model": response.model} | fields))
    return body(window(message("user", "Go on."), said))["contents"][1]["parts"]
