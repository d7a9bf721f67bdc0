"""Requests of the Messages API: messages as it has them, and the body around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import MALFORMED, Block, Document, LossEntry, Native, Text, Thinking, Tool, ToolResult, ToolUse
from turnlog.model.plain import plain_json
from turnlog.providers.anthropic.breakpoints import CACHE_CONTROL
from turnlog.providers.body import check_parameters, encode, frame
from turnlog.providers.carriage import Carried
from turnlog.providers.interface import Frame, FrameInput

MAX_TOKENS = 8192
"""`max_tokens` where no parameter sets it: the API asks for one."""

SYSTEM_SEPARATOR = "\n\n----\n\n"
"""What stands between the texts of system turns."""

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
"""The search tool, which the provider runs itself."""

_RESERVED = ("model", "messages", "stream", "system", "tools")
_TOOL_CHOICES = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_tool_name = re.compile("[a-zA-Z0-9_-]{1,128}")
_schema = msgspec.json.Decoder(dict[str, Raw])


def encode_message(carried: Carried) -> bytes:
    """Return a carried message as a message of the wire, without whitespace."""
    return encode({"role": carried.role, "content": [_block(block) for block in carried.blocks]})


def _block(block: Block) -> Raw | dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text, **block.extra}
        case Document():
            return _document(block)
        case ToolUse():
            return {"type": "tool_use", "id": block.id, "name": block.name, **_input(block)}
        case ToolResult():
            return _result(block)
        case Thinking(redacted=True):
            return {"type": "redacted_thinking", "data": block.signature, **block.extra}
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.signature, **block.extra}
        case Native():
            return block.block


def _document(block: Document) -> dict[str, Any]:
    media_type = block.source.media_type.partition(";")[0].strip().lower()
    source = {"type": "base64", "media_type": media_type, "data": block.source.data}
    kind = "image" if media_type.startswith("image/") else "document"
    return {"type": kind, "source": source, **block.extra}


def _input(block: ToolUse) -> dict[str, Any]:
    """Return a call's input and its extra keys. What was no JSON object is put into one, so that the model sees it."""
    extra = dict(block.extra)
    malformed = extra.pop(MALFORMED, None)
    return {"input": block.input if malformed is None else {MALFORMED: malformed}, **extra}


def _result(block: ToolResult) -> dict[str, Any]:
    content = block.content if isinstance(block.content, str) else [_block(inner) for inner in block.content]
    return {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        **({"content": content} if content else {}),
        **({"is_error": True} if block.is_error else {}),
        **block.extra,
    }


def request_frame(adapter: str, given: FrameInput) -> Frame:
    """Return the body around its messages, which stand last in it.

    Raises:
        UnsupportedContentError: a tool has a name that the wire does not take, or a tool must be called and none is
            there.
        ContentError: a parameter would overwrite a part of the body, or is not JSON.
    """
    check_parameters(given.params, _RESERVED)
    params = {
        name: plain_json(value, f"params.{name}", ContentError)
        for name, value in given.params.items()
        if value is not None
    }
    losses: list[LossEntry] = []
    tools = [_tool(adapter, tool, losses) for tool in given.tools]
    if given.search:
        tools.append(WEB_SEARCH)
    choice = params.pop("tool_choice", given.tool_mode)
    before = {
        "model": given.model,
        "max_tokens": params.pop("max_tokens", MAX_TOKENS),
        "stream": given.stream,
        **_system(given.system, cached=given.system_cached),
        "tools": tools,
        **(_tool_choice(choice) if tools else _no_tool_choice(adapter, given, choice, losses)),
        **params,
    }
    return frame(before, "messages", {}, losses)


def _system(texts: Sequence[str], *, cached: bool) -> dict[str, Any]:
    if not texts:
        return {}
    joined = SYSTEM_SEPARATOR.join(texts)
    return {"system": [{"type": "text", "text": joined, "cache_control": CACHE_CONTROL}] if cached else joined}


def _tool(adapter: str, tool: Tool, losses: list[LossEntry]) -> dict[str, Any]:
    if not _tool_name.fullmatch(tool.name):
        raise UnsupportedContentError(
            f"{adapter} cannot carry a tool called {tool.name!r}: 1 to 128 letters, digits, '_' and '-' make a name",
            provider=adapter,
            block="tools",
        )
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": _object_schema(tool, losses)}


def _object_schema(tool: Tool, losses: list[LossEntry]) -> Raw | dict[str, Raw]:
    """Return a tool's schema as it is, or as one of an object, no combination at its top: the API takes no other."""
    text = bytes(tool.input_schema).strip()
    keywords = _schema.decode(text) if text[:1] == b"{" else {}  # `true` is a schema too
    removed = [name for name in _COMBINATIONS if keywords.pop(name, None) is not None]
    if removed:
        why = f"the schema of {tool.name!r} without the keywords {', '.join(removed)}"
        losses.append(LossEntry(kind="downgraded", turn="", block="tool", why=why))
    elif "type" in keywords:
        return tool.input_schema
    return {"type": Raw(b'"object"'), **keywords}


def _tool_choice(choice: object) -> dict[str, Any]:
    """Return `tool_choice` as the wire has it, where tools are offered. A record is sent as it is."""
    match choice:
        case None:
            return {}
        case str():
            return {"tool_choice": _TOOL_CHOICES.get(choice, {"type": "tool", "name": choice})}
        case dict():
            return {"tool_choice": choice}
        case _:
            expected = "auto, none, required, the name of a tool, or a record"
            message = f"params.tool_choice: expected {expected}, got {type(choice).__name__}"
            raise ContentError(message, field="params.tool_choice")


def _no_tool_choice(adapter: str, given: FrameInput, choice: object, losses: list[LossEntry]) -> dict[str, Any]:
    """Return no `tool_choice`: the API takes none where no tool is offered. What asks for a call cannot be had."""
    if choice in (None, "auto", "none"):
        return {}
    if given.on_loss != "report":
        raise UnsupportedContentError(
            f"{adapter} cannot carry the tool choice {choice!r} where no tool is offered: offer one, or leave it out",
            provider=adapter,
            block="tool_choice",
        )
    why = f"{choice!r} where no tool is offered"
    losses.append(LossEntry(kind="dropped", turn="", block="tool_choice", why=why))
    return {}
