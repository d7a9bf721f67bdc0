"""Items of the Responses API and content blocks, in both directions.

An output item becomes blocks; what of it has no place in a block is kept in the block's extra key `item`, as a JSON
object. A message is one block a part: its parts have the same `item`, and their own further fields (`annotations`,
`logprobs`) beside it. From these the very same item is put together again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from msgspec import Raw, Struct

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
    parse_arguments,
)
from turnlog.providers.body import encode
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import (
    CALL_TYPE,
    custom_call,
    custom_input,
    extras,
    leave_out,
    native_block,
    provider_fields,
    with_fields,
)
from turnlog.providers.raw_json import Fields, fields_of, objects_of, read_object, text_of, text_or_json

ITEM = "item"
"""The extra key of a block with the fields of the item that it is of, or is a part of."""

REFUSAL = "refusal"
"""The extra key of a text block that is a refusal: `true`."""

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Media types of images that the API takes (OpenAI, Images and vision: input requirements)."""

PDF = "application/pdf"

_OFFICE = "application/vnd.openxmlformats-officedocument"
FILE_NAMES = {
    PDF: "document.pdf",
    "application/msword": "document.doc",
    f"{_OFFICE}.wordprocessingml.document": "document.docx",
    "application/rtf": "document.rtf",
    "application/vnd.oasis.opendocument.text": "document.odt",
    "application/vnd.ms-powerpoint": "document.ppt",
    f"{_OFFICE}.presentationml.presentation": "document.pptx",
    "application/vnd.ms-excel": "document.xls",
    f"{_OFFICE}.spreadsheetml.sheet": "document.xlsx",
}
"""Media types of files that the API takes (OpenAI, File inputs), and the names to send them under: they have none."""

_THOUGHTS = ("content", "summary")
_TRUE = Raw(b"true")


class Owner(Struct, frozen=True, kw_only=True):
    """Whose thinking and native blocks are: only this model gets them back."""

    provider: str
    api: str
    model: str


# From output items to blocks


def blocks_of(item: Fields, owner: Owner, *, whole: bool = True) -> list[Block]:
    """Return the blocks of an output item.

    Args:
        item: the item, as the API sent it, without whitespace outside strings.
        owner: the model that wrote it.
        whole: whether it came to its end. The encrypted content of one that did not is not complete.
    """
    found: list[Block] | None = None
    match text_of(item.get("type")):
        case "message":
            found = _parts(item, owner, whole=whole)
        case "reasoning":
            found = _thinking(item, owner, whole=whole)
        case "function_call":
            found = _call(item)
        case "custom_tool_call":
            found = _custom_call(item)
        case _:
            pass
    return [_native(item, owner)] if found is None else found


def _parts(item: Fields, owner: Owner, *, whole: bool) -> list[Block] | None:
    """Return the parts of a message; None where it has none that are JSON objects."""
    parts = objects_of(item.get("content"))
    if parts is None:
        return None
    known = ("type", "content", "role") if text_of(item.get("role")) == "assistant" else ("type", "content")
    kept = _kept(item, *known)
    blocks = [_part(part, kept, owner) for part in parts]
    return blocks if blocks or not whole else [Text(text="", extra=kept)]


def _part(part: Fields, kept: Fields, owner: Owner) -> Block:
    kind = text_of(part.get("type"))
    name = {"output_text": "text", "refusal": "refusal"}.get(kind or "")
    text = None if name is None else text_of(part.get(name))
    further = {key: value for key, value in part.items() if key not in ("type", name)}
    if text is None:
        return _native(part, owner, kept)
    marked = {REFUSAL: _TRUE} if kind == "refusal" else {}
    return Text(text=text, extra=marked | extras(Text, further, (REFUSAL, ITEM)) | kept)


def _thinking(item: Fields, owner: Owner, *, whole: bool) -> list[Block]:
    texts = _thoughts(item)
    if not (whole or texts):
        return []
    encrypted = text_of(item.get("encrypted_content")) if whole else None
    thinking = Thinking(
        thinking="\n\n".join(texts),
        signature=encrypted or None,
        provider=owner.provider,
        api=owner.api,
        model=owner.model,
        extra=_kept(item, "type", "encrypted_content") if encrypted else _kept(item, "type"),
    )
    return [thinking]


def _thoughts(item: Fields) -> list[str]:
    """Return the texts of what was thought, or of summaries of it where there are none."""
    of_content, of_summary = (
        [text_of(part.get("text")) or "" for part in objects_of(item.get(name)) or ()] for name in _THOUGHTS
    )
    return of_content or of_summary


def _call(item: Fields) -> list[Block]:
    """Return a function call. Some endpoints send arguments as an object, not as text."""
    name, told = text_or_json(item.get("name")), item.get("arguments", Raw(b'""'))
    text = bytes(told).decode() if bytes(told)[:1] == b"{" else text_of(told)
    arguments, extra = parse_arguments(text or "", as_spelled=True)
    kept = _kept(item, "type", "call_id", "name", "arguments")
    return [ToolUse(id=text_or_json(item.get("call_id")) or None, name=name, input=arguments, extra=extra | kept)]


def _custom_call(item: Fields) -> list[Block]:
    """Return the call of a custom tool."""
    name, text, call_id = (text_or_json(item.get(field)) for field in ("name", "input", "call_id"))
    return [custom_call(name, text, call_id, _kept(item, "type", "call_id", "name", "input"))]


def _kept(item: Fields, *known: str) -> Fields:
    """Return the extra key that holds the fields of an item that have no place in its block."""
    kept = {key: value for key, value in item.items() if key not in known}
    return {ITEM: Raw(encode(kept))} if kept else {}


def _native(block: Fields, owner: Owner, extra: Fields | None = None) -> Native:
    return Native(
        provider=owner.provider, api=owner.api, model=owner.model, block=Raw(encode(block)), extra=extra or {}
    )


# From blocks to input items


def encode_message(carried: Carried) -> list[bytes]:
    """Return the input items of a carried message.

    Texts and documents of users and systems that follow each other are the parts of one message. Texts of assistants
    are messages with text for content, unless they are of the model that gets them: then they are parts of the message
    that they came in.
    """
    items: list[dict[str, Any]] = []
    for message, blocks in groupby(carried.blocks, key=lambda block: _message_of(block, carried.role)):
        if message is None:
            items += [_item(block) for block in blocks]
        else:
            content = [_own_part(block) if carried.role == "assistant" else _input_part(block) for block in blocks]
            fields = read_object(message)
            if fields.pop("content", None) is not None:
                leave_out(["content"])
            items.append(with_fields({"type": "message", "role": carried.role}, fields) | {"content": content})
    return [encode(item) for item in items]


def _message_of(block: Block, role: str) -> bytes | None:
    """Return the fields of the message that a block is a part of, as JSON; None for an item of its own."""
    if role != "assistant":
        return b"{}" if isinstance(block, Text | Document) else None
    if isinstance(block, Text | Native) and fields_of(block.extra.get(ITEM)) is not None:
        return bytes(block.extra[ITEM])
    return b"{}" if isinstance(block, Text) and block.extra else None


def _own_part(block: Block) -> dict[str, Any] | Raw:
    if not isinstance(block, Text):
        return _input_part(block)
    further = provider_fields(block, ITEM, REFUSAL)
    if bytes(block.extra.get(REFUSAL, b"")) == b"true":
        return with_fields({"type": "refusal", "refusal": block.text}, further)
    said = {"type": "output_text", "text": block.text, "annotations": further.get("annotations", [])}
    return with_fields(said, further)


def _input_part(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return with_fields({"type": "input_text", "text": block.text}, block.extra)
        case Document():
            media_type = block.source.media_type.partition(";")[0].strip().lower()
            data = f"data:{media_type};base64,{block.source.data}"
            if media_type in IMAGES:
                image = {"type": "input_image", "image_url": data, "detail": block.extra.get("detail", "auto")}
                return with_fields(image, block.extra)
            name = block.extra.get("filename", FILE_NAMES[media_type])
            return with_fields({"type": "input_file", "filename": name, "file_data": data}, block.extra)
        case Native():
            return native_block(block, ITEM)
        case Thinking() | ToolUse() | ToolResult():
            raise AssertionError(f"{type(block).__name__} is an item of its own")


def _item(block: Block) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "message", "role": "assistant", "content": block.text}
        case Document():
            raise AssertionError("documents stand in messages of users and systems")  # `Capabilities` sees to it
        case Native():
            return read_object(bytes(native_block(block)))
        case Thinking():
            return _reasoning(block)
        case ToolUse():
            item: dict[str, Any] = {"type": "function_call", "call_id": block.id, "name": block.name}
            given = {"arguments": arguments_text(block)}
            if (text := custom_input(block)) is not None:
                item, given = item | {"type": "custom_tool_call"}, {"input": text}
            return with_fields(item | given, _further(block, ARGUMENTS, CALL_TYPE, MALFORMED))
        case ToolResult():
            kind = "custom_tool_call_output" if CALL_TYPE in block.extra else "function_call_output"
            item = {"type": kind, "call_id": block.tool_use_id, "output": _output(block.content)}
            return with_fields(item, provider_fields(block, CALL_TYPE))


def _reasoning(block: Thinking) -> dict[str, Any]:
    """Return the item of thinking. For thinking that came in none, one is made, with an id made from what it holds."""
    made_from = block.signature or block.thinking
    item: dict[str, Any] = {
        "type": "reasoning",
        "id": f"rs_{hashlib.sha256(made_from.encode()).hexdigest()[:48]}",
        "summary": [{"type": "summary_text", "text": block.thinking}] if block.thinking else [],
    }
    further = {name: value for name, value in _further(block).items() if name != "type"}
    if not block.signature and "\n\n".join(_thoughts(further)) != block.thinking:  # else the model reads only that
        leave_out((name for name in _THOUGHTS if name in further), "what the block says itself stands there")
        further = {name: value for name, value in further.items() if name not in _THOUGHTS}
    return item | further | ({"encrypted_content": block.signature} if block.signature else {})


def _further(block: Thinking | ToolUse, *left_out: str) -> Fields:
    """Return the fields of an item that have no place in its block, from where they were kept."""
    item = fields_of(block.extra.get(ITEM))
    known = left_out if item is None else (*left_out, ITEM)
    return {key: value for key, value in block.extra.items() if key not in known} | (item or {})


def _output(content: str | Sequence[Text | Document | Native]) -> str | list[dict[str, Any] | Raw]:
    """Return the output of a function: text where it is text alone."""
    if isinstance(content, str):
        return content
    if not content:
        return ""
    first = content[0]
    if len(content) == 1 and isinstance(first, Text) and not first.extra:
        return first.text
    return [_input_part(block) for block in content]
