"""Geppetto's blocks as content blocks of turns, and back.

What a content block says of a block's payload is read back from it; the rest is kept beside it, so that a block comes
back equal. A block whose payload is not what its kind has becomes a native block, verbatim.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError, MetaError
from turnlog.interop.geppetto_model import types
from turnlog.interop.geppetto_model.keys import KEY_BLOCK_PROVIDER_HINTS, BlockMetadata
from turnlog.interop.geppetto_model.types import BlockKind
from turnlog.interop.marked import (
    is_mark,
    json_as_text,
    json_in,
    respelled_value,
    said_pieces,
    same_text,
    unmarked_value,
)
from turnlog.model import MALFORMED, Document, JSONValue, Native, Source, Text, Thinking, ToolResult, ToolUse
from turnlog.model import Block as ContentBlock
from turnlog.model.blocks import content_bytes, decode_content
from turnlog.model.json_text import minify
from turnlog.model.json_values import decoded
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import is_base64
from turnlog.model.plain import plain_json

PROVIDER = "geppetto"
"""The provider of native blocks that are Geppetto's."""

NO_MARKS = LongStrings()
"""The long strings of what has no marks."""


class _OfFiles(LongStrings):
    """The long strings of files, whose marks know themselves what they stand for."""

    def json_as_text(self, text: bytes, *, indent: int | None = None) -> str:
        """Return JSON as a text, or where marks stand in it a mark for that."""
        return json_as_text(Raw(text if indent is None else msgspec.json.format(text, indent=indent)))


_OF_FILES = _OfFiles()

Payload = dict[str, JSONValue]


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a block has beside the content blocks that say it.

    Attributes:
        kind: its kind.
        id: its id.
        role: its role.
        metadata: its metadata.
        says: how many content blocks say it.
        payload: what of its payload they do not say, or say otherwise.
        without: what they say and its payload does not have.
        spelled: what they say as JSON text, and is a value in its payload; or the other way round.
        order: the keys of its payload, where they would come back in another order.
    """

    kind: BlockKind
    id: str = ""
    role: str = ""
    metadata: dict[str, JSONValue] = {}
    says: int = 1
    payload: Payload = {}
    without: list[str] = []
    spelled: list[str] = []
    order: list[str] = []


def speaker(kind: BlockKind) -> str:
    """Return who says blocks of a kind. Those of one speaker that follow each other are one turn."""
    match kind:
        case BlockKind.LLM_TEXT | BlockKind.REASONING | BlockKind.TOOL_CALL:
            return "assistant"
        case BlockKind.SYSTEM:
            return "system"
        case BlockKind.TOOL_USE:
            return "tool"
        case BlockKind.USER:
            return "user"
        case BlockKind.OTHER:
            return "other"


def said(block: types.Block) -> tuple[list[ContentBlock], Kept]:
    """Return the content blocks that say a block, and what it has beside them.

    Raises:
        ContentError: its payload is not JSON.
    """
    payload = cast("Payload", plain_json(block.payload, "payload", ContentError))
    content = _content(block.kind, payload, _hints(block.metadata)) or [_native(block.kind, payload)]
    told = _told(block.kind, content, _OF_FILES)
    spelled = [name for name in told if name in payload and _spelled(told[name], payload[name])]
    differs = {
        name: value
        for name, value in payload.items()
        if name not in spelled and (name not in told or not _equal(told[name], value))
    }
    kept = Kept(
        kind=block.kind,
        id=block.id,
        role=block.role,
        metadata=cast("Payload", unmarked_value(dict(block.metadata.range()))),
        says=len(content),
        payload=cast("Payload", unmarked_value(differs)),
        without=[name for name in told if name not in payload],
        spelled=spelled,
    )
    # What is told comes first, and then what is kept.
    if [*dict.fromkeys((*(name for name in told if name in payload), *differs))] != [*payload]:
        kept = msgspec.structs.replace(kept, order=[*payload])
    return content, kept


def block_of(kept: Kept, content: Sequence[ContentBlock], long: LongStrings = NO_MARKS) -> types.Block:
    """Return a block, of what says it and what it has beside that. What says it may have marks of long strings."""
    told = _told(kept.kind, content, long)
    payload = {name: value for name, value in told.items() if name not in kept.without}
    for name in kept.spelled:
        value = payload[name]
        is_text = isinstance(value, str)
        payload[name] = (
            msgspec.json.decode(long.into(value)) if is_text else long.json_as_text(_json_text(value).encode())
        )
    payload |= kept.payload
    return types.Block(
        kind=kept.kind,
        id=kept.id,
        role=kept.role,
        payload={name: payload[name] for name in kept.order} if kept.order else payload,
        metadata=BlockMetadata(kept.metadata),
    )


# From payloads to content


def _content(kind: BlockKind, payload: Payload, hints: dict[str, str]) -> list[ContentBlock]:
    """Return what says a payload; nothing where it is not what its kind has."""
    text = payload.get(types.PAYLOAD_KEY_TEXT)
    match kind:
        case BlockKind.USER:
            images = payload.get(types.PAYLOAD_KEY_IMAGES)
            shown = [_image(image) for image in cast("list[JSONValue]", images)] if isinstance(images, list) else []
            return [*([Text(text=text)] if isinstance(text, str) else []), *shown]
        case BlockKind.LLM_TEXT | BlockKind.SYSTEM:
            return [Text(text=text)] if isinstance(text, str) else []
        case BlockKind.REASONING:
            return _thinking(payload, hints)
        case BlockKind.TOOL_CALL:
            return _tool_use(payload)
        case BlockKind.TOOL_USE:
            return [_tool_result(payload)]
        case BlockKind.OTHER:
            return _other(payload)


def _other(payload: Payload) -> list[ContentBlock]:
    """Return the document or the native block that a payload is, as `reading` makes them; nothing for another."""
    media_type, data, provider = (payload.get(key) for key in ("media_type", "content", "provider"))
    if set(payload) == {"media_type", "content"} and isinstance(media_type, str) and isinstance(data, str):
        return [Document(source=Source(media_type=media_type, data=data))] if _is_bytes(data) else []
    whose = {name: payload[name] for name in ("api", "model") if name in payload}
    if set(payload) != {"provider", "block", *whose} or not all(isinstance(value, str) for value in whose.values()):
        return []
    if not isinstance(provider, str) or provider in ("", PROVIDER) or not isinstance(payload["block"], dict):
        return []
    api, model = (str(whose[name]) if name in whose else None for name in ("api", "model"))
    return [Native(provider=provider, api=api, model=model, block=Raw(msgspec.json.encode(payload["block"])))]


def _thinking(payload: Payload, hints: dict[str, str]) -> list[ContentBlock]:
    text, signature = payload.get(types.PAYLOAD_KEY_TEXT), payload.get(types.PAYLOAD_KEY_ENCRYPTED_CONTENT)
    if not isinstance(text, str) and not isinstance(signature, str):
        return []
    thinking = Thinking(
        thinking=text if isinstance(text, str) else "",
        signature=signature if isinstance(signature, str) else None,
        provider=hints.get("provider"),
        api=hints.get("api"),
        model=hints.get("model"),
    )
    return [thinking]


def _tool_use(payload: Payload) -> list[ContentBlock]:
    call_id, name, args = (
        payload.get(key) for key in (types.PAYLOAD_KEY_ID, types.PAYLOAD_KEY_NAME, types.PAYLOAD_KEY_ARGS)
    )
    if not isinstance(name, str):
        return []
    given, extra = Raw(b"{}"), {}
    if isinstance(args, dict):
        given = Raw(msgspec.json.encode(args))
    elif isinstance(args, str):
        given, extra = _arguments(args)
    elif args is not None:
        return []
    return [ToolUse(id=call_id if isinstance(call_id, str) else None, name=name, input=given, extra=extra)]


def _arguments(text: str) -> tuple[Raw, dict[str, Raw]]:
    """Return arguments that are a text: what it spells, where that is a JSON object, else it is malformed."""
    spelled = b""
    if (long := json_in(text)) is not None:
        spelled, _ = long
    elif not is_mark(text):
        with suppress(ContentError):
            spelled = minify(text, field="args")
    if not spelled.startswith(b"{"):
        return Raw(b"{}"), {MALFORMED: Raw(msgspec.json.encode(text))}
    value, change = told_json(spelled, _OF_FILES)
    return Raw(spelled if change else msgspec.json.encode(respelled_value(value))), {}


def _tool_result(payload: Payload) -> ToolResult:
    call_id, error = payload.get(types.PAYLOAD_KEY_ID), payload.get(types.PAYLOAD_KEY_ERROR)
    content: list[Text | Document | Native] = []
    if types.PAYLOAD_KEY_RESULT in payload:
        content += _result(payload[types.PAYLOAD_KEY_RESULT])
    if isinstance(error, str) and error:
        content.append(Text(text=error))
    return ToolResult(
        tool_use_id=call_id if isinstance(call_id, str) else None,
        content=content,
        is_error=True if isinstance(error, str) else None,
    )


def _result(value: JSONValue) -> list[Text | Document | Native]:
    if isinstance(value, str):
        return [Text(text=value)]
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if items and all(isinstance(item, dict) and "type" in item for item in items):
        try:
            blocks = decode_content(content_bytes(items))
        except ContentError:
            blocks = []
        nested = [block for block in blocks if isinstance(block, Text | Document | Native)]
        # One text alone is told as a text.
        if len(nested) == len(items) and not (len(nested) == 1 and isinstance(nested[0], Text)):
            return nested
    return [Text(text=_json_text(value))]


def _image(image: JSONValue) -> ContentBlock:
    record = cast("Payload", image) if isinstance(image, dict) else {}
    media_type, data = record.get("media_type"), record.get("content")
    if isinstance(media_type, str) and media_type.startswith("image/") and isinstance(data, str) and _is_bytes(data):
        return Document(source=Source(media_type=media_type, data=data))
    return Native(provider=PROVIDER, block=Raw(msgspec.json.encode({"type": "image", "image": image})))


def _is_bytes(data: str) -> bool:
    return bool(data) and is_base64(said_pieces(data))


def _native(kind: BlockKind, payload: Payload) -> Native:
    return Native(provider=PROVIDER, block=Raw(msgspec.json.encode({"type": str(kind), "payload": payload})))


def _hints(metadata: BlockMetadata) -> dict[str, str]:
    """Return provider, api and model that a block's reasoning is of, where its hints name them."""
    try:
        hints = KEY_BLOCK_PROVIDER_HINTS.get(metadata) or {}
    except MetaError:
        return {}
    return {name: value for name in ("provider", "api", "model") if isinstance(value := hints.get(name), str)}


# From content to payloads


def _told(kind: BlockKind, content: Sequence[ContentBlock], long: LongStrings) -> Payload:
    """Return the payload that content blocks say."""
    if len(content) == 1 and (verbatim := _verbatim(kind, content[0])) is not None:
        return verbatim
    if kind is BlockKind.OTHER:
        return _told_other(content[0], long) if content else {}
    payload: Payload = {}
    images: list[JSONValue] = []
    for block in content:
        match block:
            case Text():
                payload[types.PAYLOAD_KEY_TEXT] = block.text
            case Thinking():
                payload[types.PAYLOAD_KEY_TEXT] = block.thinking
                if isinstance(block.signature, str):
                    payload[types.PAYLOAD_KEY_ENCRYPTED_CONTENT] = block.signature
            case ToolUse():
                payload |= told_call(block, long)
            case ToolResult():
                payload |= told_result(block, long)
            case Document():
                images.append({"media_type": block.source.media_type, "content": block.source.data})
            case Native():
                images.append(_native_record(block).get("image"))
    return payload | ({types.PAYLOAD_KEY_IMAGES: images} if images else {})


def _verbatim(kind: BlockKind, block: ContentBlock) -> Payload | None:
    """Return the payload that a native block is verbatim, None for another block."""
    if not isinstance(block, Native) or block.provider != PROVIDER:
        return None
    record = _native_record(block)
    payload = record.get("payload")
    return cast("Payload", payload) if record.get("type") == str(kind) and isinstance(payload, dict) else None


def _native_record(block: Native) -> Payload:
    """Return what a native block has; nothing where that is no record, or none that JSON values can say."""
    value, _ = told_json(block.block, NO_MARKS)  # a text is nothing here
    return cast("Payload", value) if isinstance(value, dict) else {}


def _told_other(block: ContentBlock, long: LongStrings) -> Payload:
    match block:
        case Document():
            return {"media_type": block.source.media_type, "content": block.source.data}
        case Native():
            named = {"provider": block.provider, "api": block.api, "model": block.model}
            whose: Payload = {name: value for name, value in named.items() if isinstance(value, str)}
            return whose | {"block": told_json(block.block, long)[0]}
        case _:
            return {}


def told_json(text: bytes | Raw, long: LongStrings, *, depth_max: int | None = None) -> tuple[JSONValue, str | None]:
    """Return the value of JSON text, and what it says otherwise; the text itself where no value can say it.

    Args:
        text: the text.
        long: the long strings whose marks stand in it.
        depth_max: so many records and lists may stand in each other.
    """
    try:
        found = decoded(text, depth_max=depth_max)
        return plain_json(found.value, "it", ContentError), found.change and f"decoded: {found.change}"
    except ContentError as error:
        return long.json_as_text(bytes(text)), f"as a text: {error}"


def told_call(block: ToolUse, long: LongStrings, *, depth_max: int | None = None) -> Payload:
    """Return the payload of a tool call. Arguments that a record cannot say exactly are a text, as the model wrote it.

    Args:
        block: the call.
        long: the long strings whose marks stand in it.
        depth_max: so deep may a record be.
    """
    payload: Payload = {types.PAYLOAD_KEY_NAME: block.name}
    if isinstance(block.id, str):
        payload[types.PAYLOAD_KEY_ID] = block.id
    malformed = block.extra.get(MALFORMED)
    given = block.input if malformed is None else malformed
    value, change = told_json(given, long, depth_max=depth_max)
    return payload | {types.PAYLOAD_KEY_ARGS: long.json_as_text(bytes(given)) if change else value}


def told_result(block: ToolResult, long: LongStrings, *, depth_max: int | None = None) -> Payload:
    """Return the payload of a tool's result: its one text, else its content blocks, and the last text of an error.

    Args:
        block: the result.
        long: the long strings whose marks stand in it.
        depth_max: so deep may a native block be that is no text.
    """
    payload: Payload = {}
    if isinstance(block.tool_use_id, str):
        payload[types.PAYLOAD_KEY_ID] = block.tool_use_id
    content = [Text(text=block.content)] if isinstance(block.content, str) else [*block.content]
    if block.is_error is True:
        last = content[-1] if content else None
        why = last.text if isinstance(last, Text) else ""
        payload[types.PAYLOAD_KEY_ERROR] = why
        content = content[:-1] if why else content
    match content:
        case []:
            pass
        case [Text(text=text)]:
            payload[types.PAYLOAD_KEY_RESULT] = text
        case _:
            payload[types.PAYLOAD_KEY_RESULT] = [told_nested(each, long, depth_max=depth_max)[0] for each in content]
    return payload


def told_nested(
    block: Text | Document | Native, long: LongStrings, *, depth_max: int | None = None
) -> tuple[dict[str, JSONValue], str | None]:
    """Return a content block of a result as a record, and what that says otherwise: it has the JSON text of a block
    that no value can say.
    """
    text = content_bytes([block])[1:-1]
    if not has_raw_json(block):
        return msgspec.json.decode(text), None
    value, change = told_json(text, long, depth_max=depth_max)
    if isinstance(value, dict):
        return cast("dict[str, JSONValue]", value), change
    return {"type": str(block.__struct_config__.tag), "json": value}, change


def has_raw_json(block: Text | Document | Native) -> bool:
    """Tell whether a block has JSON that is kept as it was spelled."""
    return isinstance(block, Native) or bool(block.extra)


def _json_text(value: JSONValue) -> str:
    """Return JSON as a text, or where a value has marks a mark for it."""
    return json_as_text(Raw(msgspec.json.encode(value)))


def _spelled(told: JSONValue, value: JSONValue) -> bool:
    """Tell whether one of two values is the other's JSON text."""
    if isinstance(told, str) == isinstance(value, str):
        return False
    text, other = (told, value) if isinstance(told, str) else (value, told)
    return same_text(text, _json_text(other))


def _equal(one: JSONValue, other: JSONValue) -> bool:
    """Tell whether two values are the same JSON in the same order: 1, 1.0 and true are not."""
    if isinstance(one, str) and isinstance(other, str):
        return same_text(one, other)
    return _json_text(one) == _json_text(other)
