"""What the canonical types and turns have in common: content blocks, token counts, the names of wires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.interop.canonical import types
from turnlog.model import Block, Text, Thinking, ToolResult, ToolUse, Usage
from turnlog.model.names import APIS
from turnlog.model.plain import plain_json

_CANONICAL: Mapping[str, types.Api] = {APIS.get(name, name): name for name in get_args(types.Api)}


def turn_api(api: types.Api) -> str:
    """Return an api as turns name it. turnlog has no adapter of `openai-codex`, and so no other name for it."""
    return APIS.get(api, api)


def canonical_api(api: str) -> types.Api | None:
    """Return an api of a turn as the canonical types name it, None where they have no name for it."""
    return _CANONICAL.get(api)


def turn_usage(usage: types.Usage) -> Usage:
    """Return token counts with no token under two names.

    `input` is what was neither read from a cache nor written to one, unless the total says that it has these too.
    """
    given, output = usage.input or 0, usage.output or 0
    read, written = usage.cache_read or 0, usage.cache_write or 0
    if usage.total_tokens == given + output and given >= read + written:
        given -= read + written
    return Usage(
        input_tokens=given,
        output_tokens=output,
        cache_read_input_tokens=read,
        cache_creation_input_tokens=written,
    )


def canonical_usage(usage: Usage) -> types.Usage:
    """Return token counts as the canonical types have them: reasoning is output, and the total has all of them."""
    return types.Usage(
        input=usage.input_tokens,
        output=usage.output_tokens + usage.reasoning_tokens,
        cache_read=usage.cache_read_input_tokens,
        cache_write=usage.cache_creation_input_tokens,
        total_tokens=usage.total_tokens,
    )


def message_blocks(message: types.Message) -> list[Block]:
    """Return the content of a message as blocks of a turn.

    Raises:
        ContentError: arguments of a tool call that JSON cannot carry.
    """
    match message:
        case types.UserMessage():
            content = message.content
            return [Text(text=content)] if isinstance(content, str) else [*_texts(content)]
        case types.ToolResultMessage():
            result = ToolResult(
                tool_use_id=message.tool_call_id,
                name=message.tool_name,
                content=[*_texts(message.content)],
                is_error=message.is_error,
            )
            return [result]
        case types.AssistantMessage():
            return [_assistant_block(block) for block in message.content]


def _texts(content: Sequence[types.TextContent]) -> list[Text]:
    return [Text(text=block.text) for block in content]


def _assistant_block(block: types.TextContent | types.ThinkingContent | types.ToolCall) -> Block:
    match block:
        case types.TextContent():
            return Text(text=block.text)
        case types.ThinkingContent():
            signature = block.thinking_signature
            return Thinking(thinking=block.thinking, signature=signature, redacted=block.redacted)
        case types.ToolCall():
            arguments = plain_json(block.arguments, "arguments", ContentError)
            return ToolUse(id=block.id, name=block.name, input=Raw(msgspec.json.encode(arguments)))
