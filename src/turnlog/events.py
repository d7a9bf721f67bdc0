"""The event: one stored fact, and its codec between values and bytes.

Stored bytes are JSON in UTF-8 with sorted keys and without whitespace. They are written once: what is hashed or
verified is always the bytes on disk, never a re-encoding. `docs/reference/log-format.md` is the specification.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from turnlog.digest import event_digest
from turnlog.errors import CorruptionError
from turnlog.ids import is_id
from turnlog.model import (
    BookmarkMeta,
    CallMeta,
    PointerMeta,
    ProviderMeta,
    ReplyMeta,
    ServerMeta,
    ToolsMeta,
    TurnMeta,
)

FORMAT = 1
"""The version of the event format that is written. Readers know every version up to it."""

TURN = "gpt.turn"
BOOKMARK = "gpt.bookmark"
CALL = "gpt.call"
REPLY = "gpt.reply"
POINTER = "gpt.pointer"
PROVIDER = "gpt.provider"
SERVER = "mcp.server"
TOOLS = "mcp.tools"

FREQUENT_TOPICS = (TURN, CALL, REPLY)
"""Topics of which a log may have millions. All others are rare."""


class Parent(Struct, frozen=True, kw_only=True, gc=False):
    """A turn that an event continues, cited with its digest, so that a digest commits to the whole ancestry."""

    id: str
    digest: str


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One stored fact. `hash` and `size` (bytes) are of the payload, and None where there is none."""

    format: int
    id: str
    topic: str
    stream: str
    position: int
    hash: str | None
    size: int | None
    parents: list[Parent]
    meta: Raw


class Recorded(Struct, frozen=True, kw_only=True, gc=False):
    """An event as it stands in a store: its place in the log, its exact bytes, its decoded form."""

    global_position: int
    state: bytes
    event: Event

    @property
    def digest(self) -> str:
        """The digest of the event, as children cite it."""
        return event_digest(self.state)


_M = TypeVar("_M", bound=Struct)

_encoder = msgspec.json.Encoder(order="sorted")
_event = msgspec.json.Decoder(Event)
_turn_meta = msgspec.json.Decoder(TurnMeta)
_decoders: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (BookmarkMeta, CallMeta, ReplyMeta, PointerMeta, ProviderMeta, ServerMeta, ToolsMeta)
}


def encode(event: Event) -> bytes:
    """Return the bytes to store."""
    return _encoder.encode(event)


def encode_meta(meta: Struct | dict[str, Any]) -> Raw:
    """Return metadata as the JSON text that stands in the event's bytes."""
    return Raw(_encoder.encode(meta))


def decode(state: bytes, *, global_position: int | None = None) -> Event:
    """Return the event behind stored bytes.

    Raises:
        CorruptionError: the bytes are not an event, or of a format version that this turnlog does not know.
    """
    try:
        event = _event.decode(state)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(
            f"event at global position {global_position} cannot be read: {error}", global_position=global_position
        ) from error
    if not 1 <= event.format <= FORMAT:
        raise CorruptionError(
            f"event {event.id!r} has format version {event.format}, this turnlog knows 1 to {FORMAT}: upgrade turnlog",
            global_position=global_position,
        )
    return event


def flaw(event: Event, state: bytes) -> str | None:
    """Return what is wrong with an event as such, apart from all others, or None if nothing is.

    Raises:
        CorruptionError: the metadata cannot be read.
    """
    if encode(event) != state or _encoder.encode(msgspec.json.decode(event.meta)) != bytes(event.meta):
        return "its bytes are not in the form of the log"
    if not is_id(event.id) or event.id != event.id.lower():
        return f"{event.id!r} is not an id in stored form"
    if event.position < 0 or (event.position == 0) != (event.stream == event.id):
        return f"position {event.position} does not fit stream {event.stream!r}"
    if (event.hash is None) != (event.size is None) or (event.hash is None and event.topic == TURN):
        return "it lacks the hash or the size of its payload"
    if len({parent.id for parent in event.parents}) != len(event.parents):
        return "it names a parent twice"
    if event.position > 0 and not event.parents:
        return "it extends a stream without a parent"
    if event.topic != TURN and (event.parents or event.position):
        return "only turns have parents and positions after 0"
    if event.topic == TURN:
        turn_meta(event)
    elif event.topic == BOOKMARK:
        bookmark_meta(event)
    return None


def meta_of(event: Event, kind: type[_M]) -> _M:
    """Return the metadata of an event of a known topic.

    Raises:
        CorruptionError: it is not of this kind.
    """
    return _meta(_decoders[kind], event)


def turn_meta(event: Event) -> TurnMeta:
    """Return the metadata of a turn.

    Raises:
        CorruptionError: the metadata is not that of a turn.
    """
    return _meta(_turn_meta, event)


def bookmark_meta(event: Event) -> BookmarkMeta:
    """Return the metadata of a bookmark event.

    Raises:
        CorruptionError: the metadata is not that of a bookmark event.
    """
    return meta_of(event, BookmarkMeta)


def _meta(decoder: msgspec.json.Decoder[_M], event: Event) -> _M:
    try:
        return decoder.decode(event.meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"metadata of event {event.id!r} cannot be read: {error}") from error
