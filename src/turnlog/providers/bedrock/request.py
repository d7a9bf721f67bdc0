"""Requests of the Converse API: messages as it has them, and the body around them. The model is in the URL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, cast

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import (
    Block,
    Document,
    Native,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from turnlog.model.chunked import Chunked
from turnlog.model.pieces import PIECE
from turnlog.model.plain import plain_json
from turnlog.providers.body import encode, frame, given_twice
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import native_block, provider_fields, with_fields, with_input
from turnlog.providers.interface import Frame, FrameInput, PreparedRequest
from turnlog.providers.losses import Losses
from turnlog.providers.raw_json import Fields, fields_of, text_of
from turnlog.providers.schemas import plain_object
from turnlog.providers.server_calls import ServerPart
from turnlog.providers.tool_choice import tool_choice
from turnlog.providers.tool_loops import Kind

MEDIA: Mapping[str, tuple[str, str]] = {
    "image/png": ("image", "png"),
    "image/jpeg": ("image", "jpeg"),
    "image/jpg": ("image", "jpeg"),
    "image/gif": ("image", "gif"),
    "image/webp": ("image", "webp"),
    "application/pdf": ("document", "pdf"),
    "application/msword": ("document", "doc"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("document", "docx"),
    "application/vnd.ms-excel": ("document", "xls"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
    "video/mp4": ("video", "mp4"),
    "video/quicktime": ("video", "mov"),
    "video/x-matroska": ("video", "mkv"),
    "video/webm": ("video", "webm"),
    "video/x-flv": ("video", "flv"),
    "video/mpeg": ("video", "mpeg"),
    "video/x-ms-wmv": ("video", "wmv"),
    "video/3gpp": ("video", "three_gp"),
    "audio/mpeg": ("audio", "mp3"),
    "audio/mp3": ("audio", "mp3"),
    "audio/wav": ("audio", "wav"),
    "audio/x-wav": ("audio", "wav"),
    "audio/aac": ("audio", "aac"),
    "audio/flac": ("audio", "flac"),
    "audio/ogg": ("audio", "ogg"),
    "audio/opus": ("audio", "opus"),
    "audio/mp4": ("audio", "m4a"),
    "audio/webm": ("audio", "webm"),
}
"""Media types, each with its kind of block and its format there. What is text goes as text."""

CITATIONS = "citations"
"""The extra key of a text block with the citations in it, a list of objects as the wire has them."""

CACHE_POINT = {"cachePoint": {"type": "default"}}

STAND_IN = "no_tool"
"""The tool that stands in where a conversation has calls, and no tools are offered."""

_INFERENCE = {
    "max_tokens": "maxTokens",
    "maxTokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "topP": "topP",
    "stop_sequences": "stopSequences",
    "stopSequences": "stopSequences",
}
_TOP_LEVEL = (
    "additionalModelResponseFieldPaths",
    "guardrailConfig",
    "outputConfig",
    "performanceConfig",
    "promptVariables",
    "requestMetadata",
    "serviceTier",
)
FURTHER = "additionalModelRequestFields"
"""The parameter with those that are a model's own."""

_KINDS: Mapping[str, Kind] = {"reasoningContent": "thinking", "toolUse": "call", "toolResult": "result"}
RESERVED = ("model", "modelId", "messages", "stream", "system", "toolConfig", "tools")

# Messages


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as one message of the wire. `alternating` puts it together with its neighbours."""
    content = [_block(block, f"{carried.turn}/{place}") for place, block in enumerate(carried.blocks)]
    documents = sum(isinstance(block, dict) and "document" in block for block in content)
    if documents and not any(isinstance(block, Text) for block in carried.blocks):
        # The API refuses documents in a message without text.
        content.append({"text": f"({documents} document{'s' if documents > 1 else ''})"})
    return [encode({"role": carried.role, "content": content})]


def _block(block: Block, place: str) -> dict[str, Any] | Raw:
    match block:
        case Text() if not block.extra:
            return {"text": block.text}
        case Text():
            said = {"content": [{"text": block.text}]}
            return {"citationsContent": with_fields(said, provider_fields(block))}
        case Document():
            return _document(block, place)
        case ToolUse():
            return {"toolUse": with_input({"toolUseId": block.id, "name": block.name}, block)}
        case ToolResult():
            return _result(block, place)
        case Thinking(redacted=True):
            return {"reasoningContent": with_fields({"redactedContent": block.signature}, provider_fields(block))}
        case Thinking():
            thought = {"text": block.thinking, "signature": block.signature}
            return {"reasoningContent": {"reasoningText": with_fields(thought, provider_fields(block))}}
        case Native():
            return native_block(block)


def _document(block: Document, place: str) -> dict[str, Any]:
    """Return a document. The API wants each to have another name, of few characters, that says nothing to the model."""
    kind, form = MEDIA[block.source.media_type.partition(";")[0].strip().lower()]
    named = {"name": f"document-{sha256(place.encode()).hexdigest()[:12]}"} if kind == "document" else {}
    return {kind: with_fields({"format": form, **named, "source": {"bytes": block.source.data}}, block.extra)}


def _result(block: ToolResult, place: str) -> dict[str, Any]:
    nested = block.content
    if isinstance(nested, str):
        nested = [Text(text=nested)] if nested else []
    content = [_block(inner, f"{place}/{number}") for number, inner in enumerate(nested)]
    # Not all models know a status, and success is what is meant without one.
    status = {"status": "error"} if block.is_error else {}
    said = {"toolUseId": block.tool_use_id, "content": content, **status}
    return {"toolResult": with_fields(said, block.extra)}


def server_part(block: Raw) -> ServerPart | None:
    """Return which call of a tool that the API runs itself, or which result of one, a native block is.

    Their fields are those of tools that are not, with a `type` (`server_tool_use`, `nova_grounding_result`, …).
    """
    fields = fields_of(block) or {}
    is_result = "toolResult" in fields
    call_id = text_of((fields_of(fields.get("toolResult" if is_result else "toolUse")) or {}).get("toolUseId"))
    return None if call_id is None else ServerPart(call_id=call_id, is_result=is_result)


def kind_in_loop(block: Fields) -> Kind | None:
    """Return what of a loop of tools a block is."""
    return next((kind for name, kind in _KINDS.items() if name in block), None)


# Messages together

_END = b"]}"
_HEADS = {role: b',{"role":"' + role + b'","content":[' for role in (b"user", b"assistant")}
_MARK = b"," + encode(CACHE_POINT) + _END


def with_cache_points(given: Sequence[bytes], cached: Sequence[int], points_max: int) -> Sequence[bytes]:
    """Return messages with a cache point at the end of the last few that are to be cached.

    Args:
        given: the fragments of a body.
        cached: indexes of those to cache up to, ascending.
        points_max: how many may have a point, from 1: the last ones have.
    """
    if not cached:
        return given
    messages = list(given)
    for index in cached[-points_max:]:
        messages[index] = messages[index].removesuffix(_END) + _MARK
    return messages


def alternating(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Return messages with those of one role in a row as one: the API takes no other conversation.

    Args:
        messages: the fragments of a body, all but the first one with the comma before it.
    """
    roles = [_role(text) for text in messages]
    if all(one != other for one, other in pairwise(roles)):
        return messages
    in_a_row = groupby(zip(roles, messages, strict=True), key=itemgetter(0))
    return Chunked(part for role, texts in in_a_row for part in _as_one([text for _, text in texts], _HEADS[role]))


def _as_one(texts: Sequence[bytes], head: bytes) -> Sequence[bytes]:
    """Return messages of one role as one: a large one in parts, which are no copies."""
    if len(texts) == 1:
        return texts
    first, *rest = map(memoryview, texts)
    parts: list[bytes | memoryview] = [first[: -len(_END)]]
    for text in rest:
        parts += (b",", text[len(head) : -len(_END)])
    parts.append(_END)
    # A view does for all that is done with a part of a body.
    return [b"".join(parts)] if sum(map(len, parts)) <= PIECE else cast("list[bytes]", parts)


def _role(text: bytes) -> bytes:
    return b"user" if text.startswith((_HEADS[b"user"], _HEADS[b"user"][1:])) else b"assistant"


# The body around them


def frame_body(given: FrameInput) -> Frame:
    """Return the body around its messages, which stand last in it; `toolConfig` is first, where there is one.

    Raises:
        UnsupportedContentError: a choice of tools that the wire does not take, where it may not be lost.
        ContentError: a parameter would overwrite a part of the body, or is not what it should be.
    """
    return frame(_tools(given) | _system(given) | _parameters(given), "messages", {})


def _tools(given: FrameInput) -> dict[str, Any]:
    """Return the tools and the choice among them. The wire has no word for none: no tools are offered then."""
    choice = tool_choice(given)
    if not given.tools or (choice is not None and choice.mode == "none"):
        return {}
    offered = {"tools": [_tool(tool, given.losses) for tool in given.tools]}
    if choice is None:
        return {"toolConfig": offered}
    spelled: dict[str, Any] = {"auto": {"auto": {}}, "required": {"any": {}}, "tool": {"tool": {"name": choice.name}}}
    return {"toolConfig": offered | {"toolChoice": spelled.get(choice.mode, choice.record)}}


def _tool(tool: Tool, losses: Losses) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    given = bytes(tool.input_schema).strip()
    schema, removed = plain_object(given if given[:1] == b"{" else b"{}")  # `true` is a schema too
    losses.lose_keywords(tool, removed)
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": schema}}}


def _system(given: FrameInput) -> dict[str, Any]:
    if not given.system:
        return {}
    cached = [CACHE_POINT] if given.system_cached else []
    return {"system": [*({"text": text} for text in given.system), *cached]}


def _parameters(given: FrameInput) -> dict[str, Any]:
    """Return the parameters where the wire has them, sorted: the order in which they were given says nothing.

    Those of all models are in `inferenceConfig`, keys of the API at the top, and what is left is the model's own.
    """
    params = {
        name: plain_json(value, f"params.{name}", ContentError)
        for name, value in sorted(given.params.items())
        if value is not None and name != "tool_choice"
    }
    inference = _record(params, "inferenceConfig")
    further = _record(params, FURTHER)
    top: dict[str, Any] = {}
    for name, value in params.items():
        place, key = (top, name) if name in _TOP_LEVEL else (further, name)
        if name in _INFERENCE:
            place, key = inference, _INFERENCE[name]
        if key in place:
            raise given_twice(name, key)
        place[key] = value
    records = {"inferenceConfig": inference, FURTHER: further}
    return {name: record for name, record in records.items() if record} | top


def _record(params: dict[str, Any], name: str) -> dict[str, Any]:
    """Take a parameter that is a record out of all, and return it.

    Raises:
        ContentError: it is something else.
    """
    record = params.pop(name, {})
    if not isinstance(record, dict):
        raise ContentError(f"params.{name}: expected a record, got {type(record).__name__}", field=f"params.{name}")
    return dict(cast("dict[str, Any]", record))


_CALL = re.compile(rb'\{"toolUse":\{')
_STAND_IN: dict[str, Any] = {
    "toolSpec": {
        "name": STAND_IN,
        "description": "No tool can be called. Answer in text.",
        "inputSchema": {"json": {"type": "object", "properties": {}}},
    }
}


def with_stand_in(prepared: PreparedRequest) -> PreparedRequest:
    """Return a request whose conversation may have calls in it, also where it offers no tools.

    The API refuses calls and results in messages then. One tool stands in; nothing is lost by that.
    """
    if prepared.head.startswith(b'{"toolConfig":') or not any(map(_CALL.search, prepared.messages)):
        return prepared
    closing = prepared.closing.removesuffix(b"}") + b',"toolConfig":' + encode({"tools": [_STAND_IN]}) + b"}"
    return msgspec.structs.replace(prepared, closing=closing)
