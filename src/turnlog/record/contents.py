"""What the payload of an event has to be, by topic: said once, for what is taken over and for what is verified.

A request is more than its payload says: what earlier ones have of it is put together where the log is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.events import REPLY, SUMMARY, TOOL_END, TOOLS, TURN, Event, meta_of, turn_meta
from turnlog.model import ReplyMeta, ToolsMeta, parse_tools
from turnlog.model.blocks import is_in_form
from turnlog.model.json_text import UNREADABLE
from turnlog.model.tools import TOOLS_MAX
from turnlog.record.calls import reply_flaw

_list = msgspec.json.Decoder(list[Raw])


def payload_flaw(event: Event, payload: bytes | None) -> str | None:
    """Return what is wrong with the payload of an event, or None if nothing is, or nobody can tell.

    Args:
        event: the event, with which as such nothing is wrong.
        payload: its payload; None where it has none, or one that is too large to be looked into.
    """
    check = PAYLOADS.get(event.header.topic)
    return None if check is None or event.unreadable else check(event, payload)


def may_be_document(event: Event) -> bool:
    """Tell whether a turn may be a document: false says that it is none. Cheap."""
    # Only a document has a `type`.
    return b'"type":' in event.state


def is_document(event: Event) -> bool:
    """Tell whether a turn is a document, whose payload is a file and no content blocks.

    Raises:
        CorruptionError: its metadata cannot be read.
    """
    return may_be_document(event) and turn_meta(event).type is not None


def _turn(event: Event, payload: bytes | None) -> str | None:
    if not is_document(event):
        return _content(event, payload)
    size = turn_meta(event).file_size
    if size is not None and size != event.size:
        return f"its file_size is {size}, and its payload has {event.size} bytes"
    return None


def _content(_: Event, payload: bytes | None) -> str | None:
    if payload is None:
        return None
    try:
        return None if is_in_form(payload) else "its content is not in the form of the log"
    except (ContentError, *UNREADABLE) as error:
        return f"its content is malformed: {error}"


def _reply(event: Event, payload: bytes | None) -> str | None:
    if payload is None and event.hash is not None:
        return None
    return reply_flaw(payload or b"", meta_of(event, ReplyMeta))


def _tools(event: Event, payload: bytes | None) -> str | None:
    if payload is None:
        return None
    with suppress(*UNREADABLE):  # said below
        count = len(_list.decode(payload))
        if count > TOOLS_MAX:
            return f"it lists {count:,} tools: more than anybody can offer"
    try:
        count = len(parse_tools(payload))
    except (ContentError, *UNREADABLE) as error:
        return f"its tools cannot be read: {error}"
    said = meta_of(event, ToolsMeta).tools
    return None if count == said else f"it lists {count} tools, and says {said}"


PAYLOADS: Mapping[str, Callable[[Event, bytes | None], str | None]] = {
    TURN: _turn,
    REPLY: _reply,
    TOOLS: _tools,
    SUMMARY: _content,
    TOOL_END: _content,
}
"""By topic what checks a payload by itself: all topics of turnlog's that have one, but for calls."""
