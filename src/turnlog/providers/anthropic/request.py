"""Requests of the Messages API: messages as it has them, and the body around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model import Block, Document, Native, Text, Thinking, Tool, ToolResult, ToolUse
from turnlog.model.plain import plain_json
from turnlog.providers.anthropic.breakpoints import CACHE_CONTROL
from turnlog.providers.body import encode, frame
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import native_block, provider_fields, with_fields, with_input
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.losses import Losses
from turnlog.providers.raw_json import Fields, fields_of, text_of
from turnlog.providers.results import error_in_text
from turnlog.providers.server_calls import ServerPart
from turnlog.providers.tool_choice import tool_choice
from turnlog.providers.tool_loops import Kind

MAX_TOKENS = 8192
"""`max_tokens` where no parameter sets it, beside the budget of thinking, which it counts too: the API asks for one."""

SYSTEM_SEPARATOR = "\n\n----\n\n"
"""What stands between the texts of system turns."""

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
"""The search tool, which the provider runs itself."""

RESERVED = ("model", "messages", "stream", "system", "tools")
_KINDS: Mapping[str, Kind] = {
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "tool_use": "call",
    "tool_result": "result",
}
_COMBINATIONS = ("allOf", "anyOf", "oneOf")


class _Thinking(Struct):
    budget_tokens: int = 0


_thinking = msgspec.json.Decoder(_Thinking)


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as one message of the wire, without whitespace."""
    return [encode({"role": carried.role, "content": [_block(block) for block in carried.blocks]})]


def _block(block: Block) -> Raw | dict[str, Any]:
    match block:
        case Text():
            return with_fields({"type": "text", "text": block.text}, provider_fields(block))
        case Document():
            return _document(block)
        case ToolUse():
            return with_input({"type": "tool_use", "id": block.id, "name": block.name}, block)
        case ToolResult():
            return _result(block)
        case Thinking(redacted=True):
            return with_fields({"type": "redacted_thinking", "data": block.signature}, provider_fields(block))
        case Thinking():
            said = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
            return with_fields(said, provider_fields(block))
        case Native():
            return native_block(block)


def _document(block: Document) -> dict[str, Any]:
    media_type = block.source.media_type.partition(";")[0].strip().lower()
    source = {"type": "base64", "media_type": media_type, "data": block.source.data}
    kind = "image" if media_type.startswith("image/") else "document"
    return with_fields({"type": kind, "source": source}, block.extra)


def _result(block: ToolResult) -> dict[str, Any]:
    if block.is_error and not block.content:  # the API refuses an error that says nothing
        block = error_in_text(block)
    content = block.content if isinstance(block.content, str) else [_block(inner) for inner in block.content]
    said = {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        **({"content": content} if content else {}),
        **({"is_error": True} if block.is_error else {}),
    }
    return with_fields(said, block.extra)


def server_part(block: Raw) -> ServerPart | None:
    """Return which call of a server tool or of an MCP server that the API asks, or which result of one, a block is.

    The types of calls end alike, and so do those of results (`web_search_tool_result`, `mcp_tool_result`, …). The API
    refuses a call without its result, but where its turn still goes on: Claude's documentation, "Server tools",
    `pause_turn`, and mixing server tools with client tools.
    """
    fields = fields_of(block) or {}
    kind = text_of(fields.get("type")) or ""
    is_result = kind.endswith("_tool_result")
    call_id = text_of(fields.get("tool_use_id" if is_result else "id"))
    if call_id is None or not (is_result or kind.endswith("_tool_use")):
        return None
    return ServerPart(call_id=call_id, is_result=is_result)


def kind_in_loop(block: Fields) -> Kind | None:
    """Return what of a loop of tools a block is."""
    return _KINDS.get(text_of(block.get("type")) or "")


def frame_body(given: FrameInput) -> Frame:
    """Return the body around its messages, which stand last in it.

    Raises:
        UnsupportedContentError: a choice of tools that the wire does not take, where it may not be lost.
        ContentError: a parameter would overwrite a part of the body, or is not JSON.
    """
    params = {
        name: plain_json(value, f"params.{name}", ContentError)
        for name, value in given.params.items()
        if value is not None and name != "tool_choice"
    }
    before = {
        "model": given.model,
        "max_tokens": params.pop("max_tokens", MAX_TOKENS + _thinking_budget(params)),
        "stream": given.stream,
        **_system(given.system, cached=given.system_cached),
        "tools": [*(_tool(tool, given.losses) for tool in given.tools), *([WEB_SEARCH] if given.search else [])],
        **_tool_choice(given),
        **params,
    }
    return frame(before, "messages", {})


def _thinking_budget(params: Mapping[str, Any]) -> int:
    """Return how many tokens parameters give to thinking; 0 where they do not say."""
    try:
        return _thinking.decode(encode(params.get("thinking"))).budget_tokens
    except msgspec.DecodeError:
        return 0


def _system(texts: Sequence[str], *, cached: bool) -> dict[str, Any]:
    if not texts:
        return {}
    joined = SYSTEM_SEPARATOR.join(texts)
    return {"system": [{"type": "text", "text": joined, "cache_control": CACHE_CONTROL}] if cached else joined}


def _tool(tool: Tool, losses: Losses) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": _object_schema(tool, losses)}


def _object_schema(tool: Tool, losses: Losses) -> Raw | Fields:
    """Return a tool's schema as it is, or as one of an object, no combination at its top: the API takes no other."""
    keywords = fields_of(Raw(bytes(tool.input_schema).strip())) or {}  # `true` is a schema too
    removed = [name for name in _COMBINATIONS if keywords.pop(name, None) is not None]
    losses.lose_keywords(tool, removed)
    if not removed and "type" in keywords:
        return tool.input_schema
    return {"type": Raw(b'"object"'), **keywords}


def _tool_choice(given: FrameInput) -> dict[str, Any]:
    """Return `tool_choice` as the wire has it. A record is sent as it is."""
    choice = tool_choice(given, search_tool=WEB_SEARCH["name"])
    if choice is None:
        return {}
    if choice.mode == "own":
        return {"tool_choice": choice.record}
    named = {"name": choice.name} if choice.mode == "tool" else {}
    return {"tool_choice": {"type": "any" if choice.mode == "required" else choice.mode, **named}}
