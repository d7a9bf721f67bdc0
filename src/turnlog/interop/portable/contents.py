"""What an event of an export says, by the rules that recording has: names, content blocks, documents, counts."""

from __future__ import annotations

from msgspec import UNSET

from turnlog.events import BOOKMARK, REGISTERS, SHAPES, TURN, Event, meta_of, turn_meta
from turnlog.model import BookmarkMeta
from turnlog.record.contents import payload_flaw
from turnlog.record.fields import check_bookmark_name


def content_flaw(event: Event, payload: bytes | None) -> str | None:
    """Return what is wrong with what an event says, or None. Requests, and what is sealed, are not looked into.

    Raises:
        CorruptionError: its metadata cannot be read.
        InputError: a name is malformed.
    """
    if event.unreadable:
        return None
    topic = event.header.topic
    if topic == TURN:
        _check_names(turn_meta(event).head)
    elif topic == BOOKMARK:
        bookmark = meta_of(event, BookmarkMeta)
        _check_names(bookmark.name, bookmark.to)
    elif topic in REGISTERS:
        _check_names(getattr(meta_of(event, SHAPES[topic].kind), "name", None))
    return payload_flaw(event, payload)


def _check_names(*names: object) -> None:
    for name in names:
        if name is not None and name is not UNSET:
            check_bookmark_name(name, field="name")
