"""Content blocks of messages as Anthropic's Messages API has them, which other tools write too."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from turnlog.interop.marked import begins, is_text, json_as_text, text_of
from turnlog.interop.transcripts.blocks import (
    native_part,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import data_block
from turnlog.interop.transcripts.fields import Fields, fields, items

_KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source"}),
}
"""What blocks have that content blocks have too."""

_encoder = msgspec.json.Encoder()


def block_of(raw: Raw, provider: str) -> bytes:
    """Return a block. What has no normalized form stays as it is, a native block of `provider`."""
    block = fields(raw)
    kind = text_of(block.get("type"))
    text, told = block.get("text"), block.get("thinking")
    if kind == "text" and is_text(text):
        return text_block(text)
    if kind == "thinking" and is_text(told):
        return thinking_block(told, signature=_text(block, "signature"))
    if kind == "tool_use" and text_of(block.get("name")):
        given = block.get("input", Raw(b"{}"))
        given = given if begins(given, b"{") else Raw(_encoder.encode({"input": given}))
        return tool_use_block(block["name"], given, id=_text(block, "id"))
    if kind == "tool_result" and text_of(block.get("tool_use_id")) is not None:
        content = block.get("content", Raw(b'""'))
        nested = [Raw(block_of(each, provider)) for each in items(content)]
        told = nested if begins(content, b"[") else content if is_text(content) else json_as_text(content)
        return tool_result_block(told, id=block["tool_use_id"], is_error=block.get("is_error") == Raw(b"true"))
    if kind in ("image", "document"):
        source = fields(block.get("source"))
        document = data_block(text_of(source.get("media_type")), source.get("data"))
        if document is not None:
            return document
    return native_part(provider, raw)


def is_whole(content: Raw | None) -> bool:
    """Tell whether blocks have all that content says: else it stays in the event too."""
    return all(_is_whole_block(fields(raw)) for raw in items(content))


def _is_whole_block(block: Fields) -> bool:
    kind = text_of(block.get("type")) or ""
    known = _KEYS.get(kind)
    if known is None:
        return True  # it is a native block
    if kind in ("image", "document"):
        source = fields(block.get("source"))
        return block.keys() <= known and source.keys() <= {"type", "media_type", "data"}
    texts = (name for name in ("id", "signature") if name in block)
    is_flag = bytes(block.get("is_error", b"true")) in (b"true", b"false")
    return block.keys() <= known and is_flag and is_whole(block.get("content")) and all(_text(block, n) for n in texts)


def _text(block: Mapping[str, Raw], name: str) -> Raw | None:
    raw = block.get(name)
    return raw if is_text(raw) else None
