"""From carried messages to those of Chat Completions (OpenAI API reference, "Create chat completion")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import (
    MALFORMED,
    Block,
    Document,
    LossEntry,
    Native,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from turnlog.model.plain import plain_json
from turnlog.providers.body import check_parameters, encode
from turnlog.providers.carriage import Carried
from turnlog.providers.interface import FrameInput

RESERVED = ("messages", "model", "stream", "tools")
"""The parts of the body that no parameter may set."""

_TOOL_CHOICES = ("auto", "none", "required")


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as messages of the wire: one for each tool result, and one for all the rest."""
    results = [block for block in carried.blocks if isinstance(block, ToolResult)]
    rest = [block for block in carried.blocks if not isinstance(block, ToolResult)]
    messages: list[dict[str, Any]] = [_tool_message(result) for result in results]
    if rest and carried.role == "assistant":
        messages.append(_assistant_message(rest))
    elif rest:
        messages.append({"role": carried.role, "content": _content(rest)})
    return [encode(message) for message in messages]


def _tool_message(result: ToolResult) -> dict[str, Any]:
    content = result.content if isinstance(result.content, str) else _content(result.content)
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": content} | result.extra


def _assistant_message(blocks: Sequence[Block]) -> dict[str, Any]:
    said = [block for block in blocks if not isinstance(block, ToolUse)]
    calls = [_tool_call(block) for block in blocks if isinstance(block, ToolUse)]
    message: dict[str, Any] = {"role": "assistant", "content": _content(said) if said else None}
    return message | {"tool_calls": calls} if calls else message


def _tool_call(call: ToolUse) -> dict[str, Any]:
    """Return a tool call with the text of its arguments exactly as the model wrote it."""
    extra = dict(call.extra)
    malformed = extra.pop(MALFORMED, None)
    arguments = bytes(call.input).decode() if malformed is None else msgspec.json.decode(malformed, type=str)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function} | extra


def _content(blocks: Sequence[Block]) -> str | list[Any]:
    """Return text alone as one string, without anything between; else a list of parts."""
    texts = [block.text for block in blocks if isinstance(block, Text) and not block.extra]
    return "".join(texts) if len(texts) == len(blocks) else [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return {"type": "text", "text": block.text} | block.extra
        case Document():
            return _document_part(block) | block.extra
        case Native():
            return block.block
        case Thinking() | ToolUse() | ToolResult():
            raise AssertionError(
                f"{type(block).__name__} is no part of a content"
            )  # `Capabilities` lets none come here
        case _:
            assert_never(block)


def _document_part(document: Document) -> dict[str, Any]:
    media_type = document.source.media_type.partition(";")[0].strip().lower()
    url = f"data:{media_type};base64,{document.source.data}"
    if media_type == "application/pdf":
        return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def tool_definition(tool: Tool, schema: Raw) -> dict[str, Any]:
    """Return a tool as the wire offers it."""
    function = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


def wire_parameters(given: FrameInput, *, max_tokens: str) -> dict[str, Any]:
    """Return the parameters by their names on the wire, but for the tool choice.

    Args:
        given: the request.
        max_tokens: the wire's name for `max_tokens`.

    Raises:
        ContentError: a parameter would overwrite a part of the body, is not JSON, or is given under two names.
    """
    check_parameters(given.params, RESERVED)
    names = {"max_tokens": max_tokens, "stop_sequences": "stop"}
    body: dict[str, Any] = {}
    for name, value in given.params.items():
        wire_name = names.get(name, name)
        if wire_name in body:
            raise ContentError(f"params.{name}: {wire_name!r} is given twice: leave one out", field=f"params.{name}")
        if name != "tool_choice" and (given.stream or name != "stream_options"):
            body[wire_name] = plain_json(value, f"params.{name}", ContentError)
    return body


def tool_choice(given: FrameInput) -> tuple[dict[str, Any], list[LossEntry]]:
    """Return the field `tool_choice` of the body, if there is to be one, and what is lost of it.

    Without tools there is nothing to choose, and the wire refuses the field. A window's tool mode that is no choice of
    this wire is left out and reported.

    Raises:
        ContentError: `params.tool_choice` names a tool that is not offered.
    """
    names = [tool.name for tool in given.tools]
    chosen: object = given.params.get("tool_choice", given.tool_mode)
    if chosen is None or (not names and chosen in ("auto", "none")):
        return {}, []
    if not names:
        return {}, [_dropped("tool_choice", chosen, "no tools are offered")]
    if not isinstance(chosen, str):
        return {"tool_choice": plain_json(chosen, "params.tool_choice", ContentError)}, []
    if chosen in _TOOL_CHOICES:
        return {"tool_choice": chosen}, []
    if chosen in names:
        return {"tool_choice": {"type": "function", "function": {"name": chosen}}}, []
    if "tool_choice" not in given.params:
        return {}, [_dropped("tool_mode", chosen, "it is neither a choice of the wire nor a tool that is offered")]
    raise ContentError(
        f"params.tool_choice: {chosen!r} is none of {', '.join(_TOOL_CHOICES)}, and no tool that is offered",
        field="params.tool_choice",
    )


def _dropped(name: str, value: object, why: str) -> LossEntry:
    return LossEntry(kind="dropped", turn="", block="parameter", why=f"{name} {value!r}: {why}")
