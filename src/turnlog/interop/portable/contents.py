"""What an event of an export says, by the rules that recording has: names, content blocks, documents, counts."""

from __future__ import annotations

from msgspec import UNSET

from turnlog.events import BOOKMARK, REGISTERS, REPLY, SHAPES, TOOLS, TURN, Event, meta_of, turn_meta
from turnlog.model import BookmarkMeta, ReplyMeta, ToolsMeta, parse_tools
from turnlog.model.blocks import is_in_form
from turnlog.model.tools import check_tools
from turnlog.record.calls import reply_flaw
from turnlog.record.fields import check_bookmark_name


def content_flaw(event: Event, payload: bytes | None) -> str | None:
    """Return what is wrong with what an event says, or None. Requests, and what is sealed, are not looked into.

    Raises:
        CorruptionError: its metadata cannot be read.
        InputError: a name or the content is malformed.
    """
    topic = event.header.topic
    if event.unreadable:
        return None
    if topic == TURN:
        return _turn_flaw(event, payload or b"")
    if topic == BOOKMARK:
        bookmark = meta_of(event, BookmarkMeta)
        _check_names(bookmark.name, bookmark.to)
    elif topic in REGISTERS:
        _check_names(getattr(meta_of(event, SHAPES[topic].kind), "name", None))
    elif topic == REPLY:
        return reply_flaw(payload or b"", meta_of(event, ReplyMeta))
    elif topic == TOOLS:
        tools = parse_tools(payload or b"")
        check_tools(tools)
        if len(tools) != meta_of(event, ToolsMeta).tools:
            return "its payload is not the tools that it tells of"
    return None


def _turn_flaw(event: Event, payload: bytes) -> str | None:
    meta = turn_meta(event)
    _check_names(meta.head)
    if meta.type == "document":
        if meta.file_size not in (None, event.size):
            return f"its file_size is {meta.file_size}, and it has {event.size} bytes"
    elif not is_in_form(payload):
        return "its content is not in the form of the log"
    return None


def _check_names(*names: object) -> None:
    for name in names:
        if name is not None and name is not UNSET:
            check_bookmark_name(name, field="name")
