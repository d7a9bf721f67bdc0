"""Cursor's agent transcripts: JSON lines of a `role` and a `message` with content blocks.

A line is a turn. Lines have neither ids nor times: what tells them apart is all that comes before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Raw

from turnlog.interop.marked import begins, is_text, text_of
from turnlog.interop.transcripts.blocks import text_block
from turnlog.interop.transcripts.documents import Chain
from turnlog.interop.transcripts.fields import fields, items
from turnlog.interop.transcripts.lines import JsonLines
from turnlog.interop.transcripts.message_blocks import block_of, is_whole
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript

PROVIDER = "cursor"
_ROLES: Mapping[str | None, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "user"}


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
            moved = [("item", "message", "content")] if is_whole(content) else []
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
    return [block_of(each, PROVIDER) for each in items(content)]
