"""From carried messages to those of Chat Completions (OpenAI API reference, "Create chat completion")."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, assert_never

from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import (
    ARGUMENTS,
    MALFORMED,
    Block,
    Document,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    arguments_text,
)
from turnlog.model.plain import plain_json
from turnlog.providers.body import encode, frame, given_twice
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import (
    AUDIO,
    CALL_TYPE,
    custom_input,
    is_only_fields,
    message_fields,
    native_block,
    provider_fields,
    with_fields,
)
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.openai_chat.fields import DETAILS, OWN, PART, SENT_IN, THINKING_FIELDS
from turnlog.providers.raw_json import Fields, fields_of, items_of, text_of
from turnlog.providers.tool_choice import tool_choice

RESERVED = ("messages", "model", "stream", "tools")
"""The parts of the body that no parameter may set."""

_LEFT_OUT = (*OWN, ARGUMENTS, CALL_TYPE, MALFORMED)
"""What stands beside a block and not on the wire, or in another place there."""

FILE_NAME = "filename"
"""The field of a document with its name; on the wire it stands beside the bytes."""


def encode_message(carried: Carried, *, home: bool, fields: Collection[str]) -> list[bytes]:
    """Return a carried message as messages of the wire: one for each tool result, and one for all the rest, if any.

    Args:
        carried: the message.
        home: whether it goes to the endpoint that the wire is of, and to none that speaks it too.
        fields: the further fields of a message that go back. In `extra_content` Gemini has the signature of its
            thinking.
    """
    results = [block for block in carried.blocks if isinstance(block, ToolResult)]
    rest = [block for block in carried.blocks if not isinstance(block, ToolResult)]
    messages: list[dict[str, Any]] = [_tool_message(result) for result in results]
    if rest and carried.role == "assistant":
        messages += _assistant_messages(rest, home=home, fields=fields)
    elif rest:
        messages.append({"role": carried.role, "content": _content(rest)})
    return [encode(message) for message in messages]


def _tool_message(result: ToolResult) -> dict[str, Any]:
    content = result.content if isinstance(result.content, str) else _content(result.content)
    said = {"role": "tool", "tool_call_id": result.tool_use_id, "content": content}
    return with_fields(said, provider_fields(result, CALL_TYPE))


def _assistant_messages(blocks: Sequence[Block], *, home: bool, fields: Collection[str]) -> list[dict[str, Any]]:
    """Return blocks as one message, or as none where they are fields of one that do not go back."""
    said: list[Block] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[Thinking] = []
    beside: dict[str, Any] = {}
    for block in blocks:
        match block:
            case ToolUse():
                calls.append(_tool_call(block))
            case Thinking():
                thoughts.append(block)
                if "content" in _sent_in(block):
                    said.append(block)
            case Text() if home and (audio := _audio_id(block)):
                beside["audio"] = {"id": audio}
            case Native() if is_only_fields(block):
                pass
            case _:
                said.append(block)
        beside |= {name: value for name, value in message_fields(block).items() if name in fields}
    if not (said or calls or thoughts or beside):
        return []
    content = _content(said) if said else None if calls or "audio" in beside else ""
    message: dict[str, Any] = {"role": "assistant", "content": content} | _thinking(thoughts)
    return [message | ({"tool_calls": calls} if calls else {}) | beside]


def _audio_id(block: Text) -> str | None:
    return text_of((fields_of(block.extra.get(AUDIO)) or {}).get("id"))


def _thinking(thoughts: Sequence[Thinking]) -> dict[str, Any]:
    """Return thinking in the fields that it came in."""
    details = [record for block in thoughts for record in items_of(block.extra.get(DETAILS)) or ()]
    fields: dict[str, Any] = {}
    for name in THINKING_FIELDS[:2]:
        texts = [block.thinking for block in thoughts if name in _sent_in(block)]
        if texts and not (details and name == "reasoning"):
            fields[name] = "".join(texts)
    return fields | {DETAILS: details} if details else fields


def _sent_in(block: Thinking) -> list[str]:
    """Return the fields that thinking came in. Where nothing says so, it is the one that most have."""
    if SENT_IN not in block.extra and DETAILS not in block.extra:
        return ["reasoning_content"]
    return [text_of(name) or "" for name in items_of(block.extra.get(SENT_IN)) or ()]


def _tool_call(call: ToolUse) -> dict[str, Any]:
    """Return a tool call with the text of its arguments exactly as the model wrote it."""
    extra = _further(call)
    kind = text_of(call.extra.get(CALL_TYPE)) or "function"
    text = custom_input(call)
    inside, given = ("function", {"arguments": arguments_text(call)}) if text is None else ("custom", {"input": text})
    named = with_fields({"name": call.name, **given}, fields_of(extra.pop(inside, None)) or {})
    # A type that turnlog does not know has its own field, and perhaps no function.
    whose = {} if kind in extra else {inside: named}
    return with_fields({"id": call.id, "type": kind} | whose, extra)


def _further(block: Block) -> Fields:
    return provider_fields(block, *_LEFT_OUT)


def _content(blocks: Sequence[Block]) -> str | list[Any]:
    """Return text alone as one string, without anything between; else a list of parts."""
    texts = [block.text for block in blocks if isinstance(block, Text) and not _further(block)]
    return "".join(texts) if len(texts) == len(blocks) else [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return with_fields({"type": "text", "text": block.text}, _further(block))
        case Document():
            return with_fields(_document_part(block), provider_fields(block, FILE_NAME, *_LEFT_OUT))
        case Native():
            return native_block(block, *OWN)
        case Thinking():
            thinking = [{"type": "text", "text": block.thinking}]
            return with_fields({"type": "thinking", "thinking": thinking}, fields_of(block.extra.get(PART)) or {})
        case ToolUse() | ToolResult():
            raise AssertionError(f"{type(block).__name__} is no part of a content")
        case _:
            assert_never(block)


def _document_part(document: Document) -> dict[str, Any]:
    media_type = document.source.media_type.partition(";")[0].strip().lower()
    url = f"data:{media_type};base64,{document.source.data}"
    if media_type == "application/pdf":
        name = text_of(document.extra.get(FILE_NAME)) or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def frame_body(given: FrameInput, *, home: bool, schema: Callable[[Raw], tuple[Raw, Sequence[str]]]) -> Frame:
    """Return the body around its messages.

    Args:
        given: what the body says beside them.
        home: whether it goes to the endpoint that the wire is of, and to none that speaks it too.
        schema: returns the input schema of a tool as the endpoint takes it, and the keywords that it lost.

    Raises:
        ContentError: a parameter would overwrite a part of the body, is not JSON, or is given under two names.
        UnsupportedContentError: something cannot be carried, and may not be lost.
    """
    tools: list[dict[str, Any]] = []
    for tool in given.tools:
        parameters, removed = schema(tool.input_schema)
        given.losses.lose_keywords(tool, removed)
        function = {"name": tool.name, "description": tool.description, "parameters": parameters}
        tools.append({"type": "function", "function": function})
    # OpenAI takes an empty list of tools, and has been sent one from the first; others refuse it.
    offered = {"tools": tools} if tools or home else {}
    before = {"model": given.model, "stream": given.stream, **offered}
    return frame(before | _tool_choice(given) | _parameters(given, home=home), "messages", {})


def _tool_choice(given: FrameInput) -> dict[str, Any]:
    choice = tool_choice(given)
    if choice is None:
        return {}
    if choice.mode == "tool":
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    return {"tool_choice": choice.record if choice.mode == "own" else choice.mode}


def _parameters(given: FrameInput, *, home: bool) -> dict[str, Any]:
    """Return the parameters by their names on the wire, but for the tool choice."""
    # OpenAI's newer models refuse the old name of the limit, others may know no other.
    names = {"max_tokens": "max_completion_tokens" if home else "max_tokens", "stop_sequences": "stop"}
    body: dict[str, Any] = {}
    for name, value in given.params.items():
        wire_name = names.get(name, name)
        if wire_name in body:
            raise given_twice(name, wire_name)
        if name != "tool_choice" and (given.stream or name != "stream_options"):
            body[wire_name] = plain_json(value, f"params.{name}", ContentError)
    return body
