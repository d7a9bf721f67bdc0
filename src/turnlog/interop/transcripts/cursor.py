"""Cursor's agent transcripts: JSON lines of a `role` and a `message` with content blocks.

A line is a turn. Lines have neither ids nor times: what tells them apart is all that comes before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from turnlog.interop.marked import begins, is_text, json_as_text, text_of
from turnlog.interop.transcripts.blocks import (
    native_block,
    text_block,
    thinking_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.documents import Chain, data_block
from turnlog.interop.transcripts.fields import Fields, fields, items
from turnlog.interop.transcripts.lines import JsonLines
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript

PROVIDER = "cursor"
_ROLES: Mapping[str | None, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "user"}
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


class Cursor(JsonLines):
    """Transcripts of Cursor's agent."""

    name = "cursor"
    summary = "transcripts of Cursor's agent (agent-transcripts/….jsonl)"

    def is_line(self, record: Mapping[str, Raw]) -> bool:
        """Tell whether a line is one of this format."""
        is_said = "content" in fields(record.get("message")) and "type" not in record
        return is_said and text_of(record.get("role")) in _ROLES

    def transcript(self, lines: Iterable[Given], builder: Builder, *, places: int, blank: int) -> Transcript:
        """Make pieces and turns of lines."""
        chain = Chain()
        last: int | None = None
        for line in lines:
            record = line.record()
            given = chain.take(line)
            role = _ROLES.get(text_of(record.get("role")))
            content = fields(record.get("message")).get("content")
            blocks = _said(content)
            if role is None or blocks is None:
                builder.problem(line.place, "a line of no known role or content: kept as an event, it became no turn")
                builder.piece(given, "line", turn=last)
                continue
            last = builder.entry(Entry(role=role, parents=() if last is None else (last,), key=_key(given)))
            moved = [("item", "message", "content")] if _is_whole(content) else []
            builder.piece(given, role, turn=last, blocks=blocks, moved=moved)
        return builder.done(places=places, blank=blank)


def _key(given: Given) -> tuple[str, ...]:
    return (text_of(given.record()["before"]) or "",)


def _said(content: Raw | None) -> list[bytes] | None:
    """Return the blocks of a message; None where it has no usable content."""
    if is_text(content):
        return [text_block(content)]
    if not begins(content, b"["):
        return None
    return [_block(each) for each in items(content)]


def _block(raw: Raw) -> bytes:
    """Return a block. What has no normalized form stays as it is."""
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
        nested = [Raw(_block(each)) for each in items(content)]
        told = nested if begins(content, b"[") else content if is_text(content) else json_as_text(content)
        return tool_result_block(told, id=block["tool_use_id"], is_error=block.get("is_error") == Raw(b"true"))
    if kind in ("image", "document"):
        source = fields(block.get("source"))
        document = data_block(text_of(source.get("media_type")), source.get("data"))
        if document is not None:
            return document
    return native_block(PROVIDER, raw if block else Raw(_encoder.encode({"part": raw})))


def _is_whole(content: Raw | None) -> bool:
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
    return block.keys() <= known and is_flag and _is_whole(block.get("content")) and all(_text(block, n) for n in texts)


def _text(block: Mapping[str, Raw], name: str) -> Raw | None:
    raw = block.get(name)
    return raw if is_text(raw) else None
