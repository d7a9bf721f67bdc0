"""What is wrong with an event as such, apart from all others and from its payload."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec import Raw, Struct

from turnlog.digest import sri_bytes
from turnlog.errors import CorruptionError
from turnlog.events.form import FORMAT, NO_META, SALT_BYTES, Event, Header, Private
from turnlog.events.meta import meta_of
from turnlog.events.sealing import NONCE_BYTES, TAG_BYTES, Sealed
from turnlog.events.topics import BOOKMARK, PARENT, SHAPES, TAGGED, TARGET, TURN, Shape
from turnlog.ids import ID_CHARACTERS, ID_LAST, is_id
from turnlog.model import BookmarkMeta
from turnlog.model.json_text import UNREADABLE

TIME_MS_MAX = (1 << 53) - 1
"""The largest `time`. JSON readers everywhere read whole numbers up to here exactly."""

_META_BYTES_KEPT = 512
"""Metadata of at most this size is remembered once it is found sound: most events say of themselves what others say."""

_MANY = (PARENT, TARGET, "tool_end")
"""What an event can cite more than one event as."""

_IDS = re.compile("[0-9a-z]*")
_KEY_ID = re.compile("[0-9A-Za-z_-]{22}")
_SHOWN = 40
_encoder = msgspec.json.Encoder(order="sorted")
_record = msgspec.json.Decoder(dict[str, Any])


def flaw(event: Event) -> str | None:
    """Return what is wrong with an event, or None if nothing is.

    Raises:
        CorruptionError: its metadata cannot be read.
    """
    private = event.private
    common = (
        private is not None and event.sealed is None and are_common((event.header,), (private,)) and _is_encoded(event)
    )
    return None if common else next(_flaws(event), None)


def general_flaw(event: Event) -> str | None:
    """Return what is wrong with an event whatever its topic is, or None if nothing is.

    That is how its header and its private part are spelled, and the fields that every event has.
    """
    return next(_general_flaws(event), None)


def are_common(headers: Sequence[Header], privates: Sequence[Private]) -> bool:
    """Tell whether events are turns with a payload and at most one parent, and nothing is wrong with what they say.

    A short way to say so of nearly all events: false says nothing. Whether their parts, encoded again, are the bytes
    that are stored, is not looked at.
    """
    for header, private in zip(headers, privates, strict=True):
        citations, position = header.citations, header.position
        if citations:
            if len(citations) > 1 or citations[0].relation != PARENT:
                return False
        elif position:
            return False
        if (
            header.topic != TURN
            or header.format != FORMAT
            or not 0 <= header.time <= TIME_MS_MAX
            or position < 0
            or (position == 0) != (header.stream == header.id)
            or private.hash is None
            or private.size is None
            or private.size < 0
            or len(private.salt) != SALT_BYTES
            or (private.meta is not NO_META and bytes(private.meta) == b"{}")
        ):
            return False
    ids = [header.id for header in headers]
    return (
        _IDS.fullmatch("".join(ids)) is not None
        and {*map(len, ids)} == {ID_CHARACTERS}
        and max(ids) <= ID_LAST
        and all(_is_stored_id(header.stream) for header in headers)
        and all(_has_plain_meta(TURN, True, meta) for meta in {bytes(header.meta) for header in headers})
        and all(_has_plain_meta(TURN, False, meta) for meta in {bytes(private.meta) for private in privates})
    )


def _general_flaws(event: Event, *, plain: bool = False) -> Iterator[str]:
    """Yield what is wrong with an event whatever its topic is. `plain`: both parts are known to be well spelled."""
    if not plain and not _is_canonical(event.state):
        yield "its header is not in the form of the log"
    yield from _header_flaws(event.header)
    private, sealed = event.private, event.sealed
    if sealed is not None:
        state = event.private_state or b""
        if not (_is_canonical(state) and all(b64encode(part) in state for part in (sealed.nonce, sealed.sealed))):
            yield "its private part is not in the form of the log"
        yield from _sealed_flaws(sealed)
        if private is not None:
            yield from _private_flaws(private)
    elif private is not None and event.private_state is not None:
        if not plain and not (_is_canonical(event.private_state) and b64encode(private.salt) in event.private_state):
            yield "its private part is not in the form of the log"
        yield from _private_flaws(private)


def _flaws(event: Event) -> Iterator[str]:
    header = event.header
    plain = _is_plain(event)
    yield from _general_flaws(event, plain=plain)
    shape = SHAPES.get(header.topic)
    if shape is None:
        if header.position or header.parents:
            yield "only turns have parents and positions after 0"
        return
    yield from _shape_flaws(event, shape)
    if not plain:
        yield from _meta_flaws(event, shape)
    if event.sealed is not None:
        yield from _tag_flaws(event, event.sealed)


def _is_plain(event: Event) -> bool:
    """Tell whether both parts are in the form of the log, with metadata that has all fields in place.

    A short way to say so of nearly all events: false says nothing.
    """
    topic, private = event.header.topic, event.private
    if not _is_encoded(event) or not _has_plain_meta(topic, True, bytes(event.header.meta)):
        return False
    if event.unreadable:
        return True
    return _has_plain_meta(topic, False, b"{}" if private is None else bytes(private.meta))


def _is_encoded(event: Event) -> bool:
    if _encoder.encode(event.header) != event.state:
        return False
    private = event.private if event.sealed is None else event.sealed
    return private is None or _encoder.encode(private) == event.private_state


def _has_plain_meta(topic: str, public: bool, meta: bytes) -> bool:
    return (_is_plain_meta if len(meta) <= _META_BYTES_KEPT else _is_plain_meta.__wrapped__)(topic, public, meta)


@lru_cache(maxsize=4096)
def _is_plain_meta(topic: str, public: bool, meta: bytes) -> bool:
    if topic == BOOKMARK or b"null" in meta:
        return False  # what is right in one part depends on the other, and null on where it stands
    try:
        record = _record.decode(meta)
        if _encoder.encode(record) != meta:
            return False
        if topic in SHAPES:
            fields = _parts(topic)[0 if public else 1]
            if not fields.foreign.isdisjoint(record):
                return False
            fields.decoder.decode(meta)
    except UNREADABLE:
        return False
    return True


def forget() -> None:
    """Drop what is kept in memory of metadata that was looked at: it may have been erased since."""
    _is_plain_meta.cache_clear()


class _Fields(NamedTuple):
    """The fields of a topic's metadata that stand in one part, and the names of those that must not."""

    decoder: msgspec.json.Decoder[Any]
    foreign: frozenset[str]


@cache
def _parts(topic: str) -> tuple[_Fields, _Fields]:
    """Return the fields of a topic, those in the header and those in the private part: made when first asked for."""
    shape = SHAPES[topic]
    known = {field.encode_name: field for field in msgspec.structs.fields(shape.kind)}
    private = known.keys() - shape.public - set(shape.cited)

    def fields(names: frozenset[str], foreign: frozenset[str]) -> _Fields:
        chosen = [
            (name, field.type) if field.required else (name, field.type, _default(field))
            for name, field in known.items()
            if name in names
        ]
        kind: type[Struct] = msgspec.defstruct("Part", chosen, kw_only=True)
        return _Fields(decoder=msgspec.json.Decoder(kind), foreign=foreign)

    return (
        fields(shape.public, frozenset(known.keys() - shape.public)),
        fields(frozenset(private), shape.public | set(shape.cited)),
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


_relations = {topic: frozenset(shape.cited.values()) for topic, shape in SHAPES.items()}


def _is_canonical(text: bytes) -> bool:
    try:
        return _encoder.encode(msgspec.json.decode(text)) == text
    except UNREADABLE:
        return False


def _header_flaws(header: Header) -> Iterator[str]:
    if header.format != FORMAT:
        yield f"its format is {header.format}"
    if not _is_stored_id(header.id):
        yield f"id {header.id!r} is not an id in stored form"
    if header.stream != header.id and not _is_stored_id(header.stream):
        yield f"stream {header.stream!r} is not an id in stored form"
    if header.position < 0 or (header.position == 0) != (header.stream == header.id):
        yield f"position {header.position} does not fit stream {header.stream!r}"
    if not 0 <= header.time <= TIME_MS_MAX:
        yield f"time {header.time} is not a time"
    if not bytes(header.meta).startswith(b"{"):
        yield "its public metadata is not an object"
    if len(header.citations) > 1:
        named = {(citation.relation, citation.id) for citation in header.citations}
        if len(named) != len(header.citations):
            yield "it cites an event twice as the same"


@lru_cache(maxsize=4096)
def _is_stored_id(text: str) -> bool:
    return is_id(text) and text == text.lower()


def _private_flaws(private: Private) -> Iterator[str]:
    if len(private.salt) != SALT_BYTES:
        yield f"its salt has {len(private.salt)} bytes"
    if (private.hash is None) != (private.size is None):
        yield "it lacks the hash or the size of its payload"
    if private.size is not None and private.size < 0:
        yield f"size {private.size} is not that of a payload"
    meta = bytes(private.meta)
    if not meta.startswith(b"{"):
        yield "its private metadata is not an object"
    elif private.hash is None and meta == b"{}":
        yield "its private part says nothing"
    elif meta == b"{}" and private.meta is not NO_META:
        yield "its private part has metadata that is empty, which is left out"


def _sealed_flaws(sealed: Sealed) -> Iterator[str]:
    if len(sealed.nonce) != NONCE_BYTES:
        yield f"its nonce has {len(sealed.nonce)} bytes"
    if len(sealed.sealed) <= TAG_BYTES:
        yield "nothing is sealed in its private part"
    keys = sealed.keys
    if not all(map(_KEY_ID.fullmatch, keys)) or keys != sorted(set(keys)):
        yield f"{sealed.key[:_SHOWN]!r} is not the id of a key"
    if not all(_KEY_ID.fullmatch(tag) for tag in sealed.tags.values()):
        yield "it has a tag that is none"
    if (sealed.hash is None) != (sealed.size is None):
        yield "it lacks the hash or the size of its payload"
    if sealed.size is not None and sealed.size <= TAG_BYTES:
        yield f"size {sealed.size} is not that of a sealed payload"
    for name, hash_ in (("secret_hash", sealed.secret_hash), ("hash", sealed.hash)):
        try:
            sri_bytes(sealed.secret_hash if hash_ is None else hash_)
        except ValueError:
            yield f"its {name} is none"


def _shape_flaws(event: Event, shape: Shape) -> Iterator[str]:
    header = event.header
    relations = [citation.relation for citation in header.citations]
    if relations:
        if foreign := set(relations) - _relations[header.topic]:
            yield f"a {header.topic} event cites nothing as {', '.join(map(repr, sorted(foreign)))}"
        for relation in shape.cited.values():
            if relation not in _MANY and relations.count(relation) > 1:
                yield f"it cites more than one {relation}"
    if missing := shape.requires - set(relations):
        yield f"it cites no {', '.join(sorted(missing))}"
    if header.position:
        if header.topic != TURN:
            yield "only turns have positions after 0"
        if PARENT not in relations:
            yield "it extends a stream without a parent"
    if shape.payload is True and event.stored_hash is None and not event.erased:
        yield "it has no payload"
    if shape.payload is False and event.stored_hash is not None:
        yield f"a {header.topic} event has no payload"


def _meta_flaws(event: Event, shape: Shape) -> Iterator[str]:
    known = {field.encode_name for field in msgspec.structs.fields(shape.kind)}
    for name in sorted(_keys(event.header.meta) & (known - shape.public)):
        yield f"{name!r} stands in its header, where it could never be erased"
    if event.private is not None:
        for name in sorted(_keys(event.private.meta) & (shape.public | set(shape.cited))):
            yield f"{name!r} stands in its private part"
    for part in (event.header.meta, None if event.private is None else event.private.meta):
        if part is not None and b"null" in bytes(part):
            yield from (f"{name!r} is null, and not absent" for name in _nulls(shape.kind, _record.decode(part)))
    if event.unreadable:
        _check_public(event)
        return
    meta = meta_of(event, shape.kind)
    if isinstance(meta, BookmarkMeta):
        yield from _bookmark_flaws(meta)


def _nulls(kind: type[Struct], value: object) -> Iterator[str]:
    """Yield the names of fields that are null and can only be absent: of a record, of records in it, or of a list."""
    if isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _nulls(kind, each)
    if not isinstance(value, dict):
        return
    record = cast("dict[str, object]", value)
    for field in msgspec.structs.fields(kind):
        if field.encode_name in record:
            given = record[field.encode_name]
            if given is None and field.default is None:
                yield field.encode_name
            for nested in _records_of(field.type):
                yield from _nulls(nested, given)


def _records_of(kind: object) -> Iterator[type[Struct]]:
    """Yield the kinds of records that a field can have. Blocks of content are none: they are as they were given."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        if kind.__struct_config__.tag is None:
            yield kind
    else:
        for each in get_args(kind):
            yield from _records_of(each)


def _check_public(event: Event) -> None:
    """Check what there is of the metadata of an event whose private part cannot be read."""
    try:
        _parts(event.header.topic)[0].decoder.decode(event.header.meta)
    except UNREADABLE as error:
        raise CorruptionError(f"metadata of event {event.header.id!r} cannot be read: {error}") from error


def _bookmark_flaws(meta: BookmarkMeta) -> Iterator[str]:
    wanted = {"set": {"turn"}, "rename": {"to"}, "delete": set[str]()}[meta.action]
    given = {name for name in ("turn", "to") if isinstance(getattr(meta, name), str)}
    if given != wanted:
        yield f"a bookmark event that is to {meta.action} has {', '.join(sorted(given)) or 'nothing'} beside its name"


def _tag_flaws(event: Event, sealed: Sealed) -> Iterator[str]:
    """Yield what is wrong with the tags of an event: they stand for the names that it has, and for nothing else."""
    header, tags = event.header, sealed.tags.keys()
    can_be = TAGGED.get(header.topic, {}).keys()
    if event.private is not None:
        wrong = tags != _keys(event.private.meta) & can_be
    elif header.topic == BOOKMARK:
        action = _record.decode(header.meta).get("action")
        wrong = tags != ({"name", "to"} if action == "rename" else {"name"})
        if (header.cited("turn") is None) == (action == "set"):
            yield f"a bookmark event that is to {action} cites a turn if it sets one, and not else"
    else:
        wrong = not tags <= can_be
    if wrong:
        yield "its tags are not those of the names that it has"


def _keys(meta: Raw) -> set[str]:
    try:
        return set(_record.decode(meta))
    except UNREADABLE as error:
        raise CorruptionError(f"metadata cannot be read: {error}") from error
