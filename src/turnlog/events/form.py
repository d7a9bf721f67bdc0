"""The parts of an event, and the codec between values and bytes.

```
header       stays for ever; commits to the private part by its hash
private part may be erased; has a salt, commits to the payload by its hash
payload      the content, addressed by its hash
```

Header and private part are JSON in UTF-8 with sorted keys and without whitespace. A private part says in its first
bytes what form it has: the plain one begins with `{"hash":`, one in another form with `{"form":` and its name, such as
the sealed one. See `turnlog.events.sealing`.
"""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from turnlog.digest import LEAF, PREFIX, leaf_hash, payload_hash, sri
from turnlog.errors import CorruptionError, MetaError
from turnlog.events.sealing import (
    SEALED,
    DataKey,
    Sealed,
    Seals,
    event_secret_of,
    new_nonce,
    open_private,
    read_sealed,
    seal_private,
    secret_hash,
)
from turnlog.events.topics import GENESIS, PARENT, SHAPES
from turnlog.model.depth import is_deeper
from turnlog.model.json_text import UNREADABLE
from turnlog.model.shown import shown

FORMAT = 2
"""The version of the event format. Version 1 was never released."""

SALT_BYTES = 16
PLAIN = b'{"hash":'
"""What a private part in plain form begins with."""

DEPTH_MAX = 128
"""How deep the JSON of a header, and of a private part, is nested at most: what reads it may have little room."""

NO_META = Raw(b"{}")
"""No metadata. A private part that has none leaves it out."""


class Arrival(IntEnum):
    """How an event came into its store. Numbers are part of the store: never re-used."""

    RECORDED = 0
    """It was recorded here."""
    RESTORED = 1
    """It is of this log, and came from an export of it."""
    GUEST = 2
    """It is of another log."""


_OWN = {int(arrival): arrival for arrival in (Arrival.RECORDED, Arrival.RESTORED)}


class Citation(Struct, frozen=True, kw_only=True, gc=False):
    """An earlier event that an event rests on: its id, its digest, and as what it is cited (`as` in the bytes)."""

    relation: str = msgspec.field(name="as")
    digest: str
    id: str


class Header(Struct, frozen=True, kw_only=True, gc=False):
    """What stays of an event for ever.

    `time` is milliseconds since 1970 UTC, `private` the hash of the private part as it is stored.
    """

    citations: list[Citation]
    format: int
    id: str
    meta: Raw
    position: int
    private: str | None
    stream: str
    time: int
    topic: str

    __repr__ = shown

    @property
    def parents(self) -> list[Citation]:
        """The turns that a turn continues, in listed order."""
        return [citation for citation in self.citations if citation.relation == PARENT]

    def cited(self, relation: str) -> str | None:
        """Return the id of the first event that is cited as something; None if there is none."""
        return next((citation.id for citation in self.citations if citation.relation == relation), None)


class Private(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What may be erased of an event: `hash` and `size` (bytes) of the payload, None without one; metadata; salt."""

    hash: str | None
    meta: Raw = NO_META
    salt: bytes
    size: int | None

    __repr__ = shown


class _Size(Struct, frozen=True, gc=False):
    """What a private part says of the size of the payload."""

    size: int | None


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One stored fact: its exact bytes, decoded.

    Attributes:
        state: the stored bytes of the header.
        header: the header.
        private_state: the stored bytes of the private part; None where there is none, or it was erased. Empty where
            it is damaged, and was read past.
        private: the private part; None too where it is sealed and its key is not here.
        leaf_hash: SHA-256(0x00 ‖ `state`), 32 bytes.
        sealed: what a sealed private part shows without its key; None where it is not sealed.
    """

    state: bytes
    header: Header
    private_state: bytes | None
    private: Private | None
    leaf_hash: bytes
    sealed: Sealed | None = None

    def __hash__(self) -> int:
        """Hash what commits to the rest, so that events can be in sets."""
        return hash(self.leaf_hash)

    @property
    def digest(self) -> str:
        """The digest of the header, as it is cited."""
        return sri(self.leaf_hash)

    @property
    def hash(self) -> str | None:
        """The hash of the payload; None without one, and where it is not readable."""
        return None if self.private is None else self.private.hash

    @property
    def size(self) -> int | None:
        """Bytes of the payload; None without one, and where it is not readable."""
        return None if self.private is None else self.private.size

    @property
    def stored_hash(self) -> str | None:
        """The hash of the payload as it is kept: sealed, or as it was given. None without one, and once erased."""
        return self.hash if self.sealed is None else self.sealed.hash

    @property
    def stored_size(self) -> int | None:
        """Bytes of the payload as it is kept, before compression. None without one, and once erased."""
        return self.size if self.sealed is None else self.sealed.size

    @property
    def erased(self) -> bool:
        """Whether the event had a private part that is gone."""
        return self.private_state is None and self.header.private is not None

    @property
    def damaged(self) -> bool:
        """Whether the private part is not the one that was recorded.

        Only who reads past damage is given such an event.
        """
        return self.private_state == b""

    @property
    def unreadable(self) -> bool:
        """Whether the private part cannot be read: erased, sealed and its key is not here, or damaged."""
        return self.private is None and self.header.private is not None


class Recorded(Event, frozen=True, kw_only=True, gc=False):
    """An event as it stands in a store: with its place in the log, and how it came there."""

    global_position: int
    arrival: Arrival


_M = TypeVar("_M", bound=Struct)


class Seal(Struct, frozen=True, kw_only=True, gc=False):
    """What one event is sealed with.

    Attributes:
        key: id of the data key.
        nonce: 16 random bytes.
        secret: the event secret.
        hash: hash of the payload itself; None without one.
        size: its bytes.
    """

    key: str
    nonce: bytes
    secret: bytes
    hash: str | None = None
    size: int | None = None

    def __repr__(self) -> str:
        """Show the key's id, and no secret."""
        return f"Seal(key={self.key!r})"

    @classmethod
    def new(cls, key: DataKey) -> "Seal":
        """Return a seal for one event, which has no payload yet."""
        nonce = new_nonce()
        return cls(key=key.id, nonce=nonce, secret=key.event_secret(nonce))


_encoder = msgspec.json.Encoder(order="sorted")
_header = msgspec.json.Decoder(Header)
_private = msgspec.json.Decoder(Private)
_size = msgspec.json.Decoder(_Size)


# Write


def cite(event: Event, relation: str) -> Citation:
    """Return the citation of an event as something."""
    return Citation(relation=relation, digest=event.digest, id=event.header.id)


def parts_of(topic: str, meta: Struct) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the public and the private metadata of an event of a known topic. What is cited is in neither."""
    shape = SHAPES[topic]
    record: dict[str, Any] = msgspec.to_builtins(meta)
    public: dict[str, Any] = {}
    private: dict[str, Any] = {}
    for name, value in record.items():
        if name in shape.public:
            public[name] = value
        elif name not in shape.cited:
            private[name] = value
    return public, private


def private_part(meta: Mapping[str, Any], *, hash: str | None, size: int | None, salt: bytes) -> Private | None:
    """Return a private part in plain form; None where it would say nothing."""
    if hash is None and not meta:
        return None
    return Private(hash=hash, meta=meta_text(meta), salt=salt, size=size)


def meta_text(meta: Mapping[str, Any]) -> Raw:
    """Return metadata as the JSON text that stands in a part.

    Raises:
        MetaError: it is nested so deeply that the part would have more than `DEPTH_MAX` levels.
    """
    if not meta:
        return NO_META
    try:
        text = _encoder.encode(meta)
    except RecursionError as error:
        raise MetaError("meta: nested too deeply", field="meta") from error
    if is_deeper(text, DEPTH_MAX - 1):
        raise MetaError(f"meta: nested deeper than {DEPTH_MAX - 1} levels", field="meta")
    return Raw(text)


def build(  # noqa: PLR0913 - one argument for each part of it
    *,
    topic: str,
    id: str,
    time: int,
    meta: Raw,
    private: Private | None,
    citations: Sequence[Citation] = (),
    stream: str | None = None,
    position: int = 0,
    sealed: Sealed | None = None,
) -> Event:
    """Return a new event.

    Args:
        topic: its topic.
        id: its id, in stored form.
        time: milliseconds since 1970 UTC.
        meta: its public metadata, from `meta_text`.
        private: its private part.
        citations: what it rests on.
        stream: its stream; by default one of its own.
        position: its index in the stream.
        sealed: the private part in sealed form, from `sealed_part`: what is stored in its place.
    """
    private_state = None if private is None else _encoder.encode(private if sealed is None else sealed)
    header = Header(
        citations=list(citations),
        format=FORMAT,
        id=id,
        meta=meta,
        position=position,
        private=None if private_state is None else payload_hash(private_state),
        stream=stream or id,
        time=time,
        topic=topic,
    )
    state = _encoder.encode(header)
    return Event(
        state=state,
        header=header,
        private_state=private_state,
        private=private,
        leaf_hash=leaf_hash(state),
        sealed=sealed,
    )


def sealed_part(private: Private, seal: Seal, *, hash: str | None, size: int | None, tags: Mapping[str, str]) -> Sealed:
    """Return a private part in sealed form.

    Args:
        private: the private part.
        seal: what to seal it with.
        hash: hash of the sealed payload; None without one.
        size: its bytes.
        tags: what stands for names in it.
    """
    return Sealed(
        form="sealed-1",
        hash=hash,
        key=seal.key,
        nonce=seal.nonce,
        sealed=seal_private(seal.secret, _encoder.encode(private)),
        secret_hash=secret_hash(seal.secret),
        size=size,
        tags=dict(tags),
    )


def genesis(id: str, time: int) -> Event:
    """Return the first event of a log, whose id is the log's identity."""
    return build(topic=GENESIS, id=id, time=time, meta=NO_META, private=None)


# Read


def decode(
    state: bytes, private_state: bytes | None, *, global_position: int | None = None, seals: Seals | None = None
) -> Event:
    """Return the event behind stored bytes. The private part is checked against the header's hash of it.

    Args:
        state: the header.
        private_state: the private part; None where there is none.
        global_position: its place in the log, for messages.
        seals: the keys of what is sealed. What they do not open stays unread.

    Raises:
        CorruptionError: the bytes are not those of an event, or of a version or a form that this turnlog does not know.
        SealError: the keys cannot be read.
    """
    header, private, sealed = _decoded_parts(state, private_state, global_position, seals)
    return Event(
        state=state,
        header=header,
        private_state=private_state,
        private=private,
        leaf_hash=leaf_hash(state),
        sealed=sealed,
    )


def decode_recorded(
    state: bytes, private_state: bytes | None, global_position: int, arrival: Arrival, seals: Seals | None = None
) -> Recorded:
    """Return the event behind stored bytes with its place in a log. See `decode`."""
    header, private, sealed = _decoded_parts(state, private_state, global_position, seals)
    return Recorded(
        state=state,
        header=header,
        private_state=private_state,
        private=private,
        leaf_hash=leaf_hash(state),
        sealed=sealed,
        global_position=global_position,
        arrival=arrival,
    )


def plain_size(private_state: object) -> int | None:
    """Return the bytes that a payload has, 0 without one, as a private part says. Nothing is checked.

    Returns:
        None for a private part that is sealed or damaged; in a store that somebody edited it may be no bytes at all.
    """
    if not isinstance(private_state, bytes) or not private_state.startswith(PLAIN):
        return None
    try:
        return _size.decode(private_state).size or 0
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def decode_page(rows: Iterable[tuple[Any, ...]], *, erased: int, position_max: int) -> list[Recorded | None]:
    """Return the events of many rows, as `decode_recorded` does one by one, at two thirds of its cost.

    Args:
        rows: of each the global position, the header, the leaf hash stored with it, the private part, the arrival, and
            where its payload is.
        erased: what stands there for the place of an erased payload.
        position_max: the largest position in a stream that is possible.

    Returns:
        None for what is not as nearly all events are: sealed, erased, of a guest, or damaged. It is to be looked at by
        itself.
    """
    # What the loop calls is all of C: a window of ten thousand turns has as many rows.
    header_of, private_of, page = _header.decode, _private.decode, list[Recorded | None]()
    base64 = b2a_base64
    for position, state, leaf, private_state, arrival, placement in rows:
        try:
            header = header_of(state)
            private = None
            if private_state is not None:
                digest = base64(sha256(private_state).digest(), newline=False)
                if not private_state.startswith(PLAIN) or header.private != PREFIX + digest.decode():
                    page.append(None)
                    continue
                private = private_of(private_state)
            is_plain = (
                header.format == FORMAT
                and sha256(LEAF + state).digest() == leaf
                and arrival in _OWN
                and type(position) is int
                and (private is None) == (header.private is None)
                and header.position <= position_max
                and placement != erased
            )
        except (*UNREADABLE, AttributeError, TypeError):
            page.append(None)
            continue
        if not is_plain:
            page.append(None)
            continue
        page.append(
            Recorded(
                state=state,
                header=header,
                private_state=private_state,
                private=private,
                leaf_hash=leaf,
                global_position=position,
                arrival=_OWN[arrival],
            )
        )
    return page


def _decoded_parts(
    state: bytes, private_state: bytes | None, global_position: int | None, seals: Seals | None
) -> tuple[Header, Private | None, Sealed | None]:
    header = _decoded(_header, state, "event", global_position)
    if header.format != FORMAT:
        advice = ": upgrade turnlog" if header.format > FORMAT else ""
        raise CorruptionError(
            f"event {header.id!r} has format version {header.format}, this turnlog knows {FORMAT}{advice}",
            global_position=global_position,
        )
    private = sealed = None
    if private_state is not None:
        if header.private != payload_hash(private_state):
            raise CorruptionError(
                f"the private part of event {header.id!r} is not the one that its header commits to: "
                "run `turnlog verify`",
                global_position=global_position,
            )
        if private_state.startswith(PLAIN):
            private = _decoded(_private, private_state, f"private part of event {header.id!r}", global_position)
        elif private_state.startswith(SEALED):
            sealed = read_sealed(private_state, header.id, global_position)
            private = _opened(sealed, event_secret_of(sealed, seals), header.id, global_position)
        else:
            raise CorruptionError(
                f"the private part of event {header.id!r} has a form that this turnlog does not know: upgrade turnlog",
                global_position=global_position,
            )
    return header, private, sealed


def _opened(sealed: Sealed, secret: bytes | None, event_id: str, global_position: int | None) -> Private | None:
    if secret is None:
        return None
    try:
        plain = open_private(sealed, secret)
        if not plain.startswith(PLAIN):
            raise ValueError("what is sealed is no private part in plain form")
    except ValueError as error:
        raise CorruptionError(
            f"the sealed private part of event {event_id!r} cannot be read: {error}", global_position=global_position
        ) from error
    private = _decoded(_private, plain, f"sealed private part of event {event_id!r}", global_position)
    if (private.hash is None) != (sealed.hash is None):
        raise CorruptionError(
            f"the sealed private part of event {event_id!r} does not tell of its payload what it shows",
            global_position=global_position,
        )
    return private


def recorded(event: Event, global_position: int, arrival: Arrival) -> Recorded:
    """Return an event with its place in a log."""
    return Recorded(
        state=event.state,
        header=event.header,
        private_state=event.private_state,
        private=event.private,
        leaf_hash=event.leaf_hash,
        sealed=event.sealed,
        global_position=global_position,
        arrival=arrival,
    )


def _decoded(decoder: msgspec.json.Decoder[_M], state: bytes, what: str, global_position: int | None) -> _M:
    try:
        return decoder.decode(state)
    except UNREADABLE as error:
        place = "" if global_position is None else f" at global position {global_position}"
        raise CorruptionError(f"{what}{place} cannot be read: {error}", global_position=global_position) from error


def gap(stream: str, position: int) -> CorruptionError:
    """Return the error for a stream in which an event before a position is missing, or one there."""
    return CorruptionError(f"stream {stream!r} has a gap before its position {position}: run `turnlog verify`")


def check_cited(citing: Recorded, citation: Citation, cited: Recorded) -> None:
    """Check that an event is the one that another one cites.

    Raises:
        CorruptionError: it has another id or another digest: one of the two was changed.
    """
    if cited.header.id != citation.id or cited.digest != citation.digest:
        raise CorruptionError(
            f"event {citing.header.id!r} cites {citation.id!r} with another digest than it has: "
            "one of them was changed, run `turnlog verify`",
            global_position=citing.global_position,
        )
