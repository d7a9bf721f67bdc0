"""The events of a proof: what is shown of each, and what it is checked for against its header and the others.

What can be large is a `Part`, which need not be held: it is read when it is wanted.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

import msgspec
from msgspec import Struct

from turnlog.audit.report import shown
from turnlog.digest import leaf_hash, sri
from turnlog.errors import CorruptionError, ProofError, TurnlogError
from turnlog.events import CALL, Event, Private, decode
from turnlog.events.flaws import general_flaw
from turnlog.events.form import DEPTH_MAX, PLAIN
from turnlog.events.sealing import SECRET_BYTES, open_private
from turnlog.model import BytesRef
from turnlog.model.depth import is_deeper
from turnlog.model.json_text import UNREADABLE
from turnlog.model.pieces import byte_pieces, joined

HELD_BYTES_MAX = 1024 * 1024
"""A part of at most so many bytes is held, and not read again."""

_ROOM_FRAMES = DEPTH_MAX + 64
"""What is taken apart needs so many frames of Python's stack, with room to spare."""
_REASON_CHARACTERS_MAX = 200


class ProvedEvent(Struct, frozen=True, kw_only=True):
    """What a proof shows of an event: exact bytes, None for what there is not, or what is withheld.

    Attributes:
        header: its header.
        private: its private part, as it is stored: of a sealed event sealed.
        payload: its payload; only together with the private part, which has its hash. Of a sealed event without its
            secret it is the sealed payload.
        request: of a call the exact body of the request; only where the private part can be read.
        loss: of a call the loss report, JSON lines; only where the private part can be read.
        secret: of a sealed event the event secret, 32 bytes: with it the private part is read.
    """

    header: bytes
    private: bytes | None = None
    payload: bytes | None = None
    request: bytes | None = None
    loss: bytes | None = None
    secret: bytes | None = None


class Part:
    """Bytes that are read when they are wanted, in pieces, and as often as that is.

    They are the same each time, or that is said. Attribute: `size`, how many they are.
    """

    def __init__(self, size: int, read: Callable[[], Iterable[bytes | memoryview]]) -> None:
        """Take how many they are, and what reads them from the beginning on."""
        self.size = size
        self._read = read
        self._held: bytes | None = None
        self._digest: bytes | None = None

    @classmethod
    def of(cls, content: bytes) -> Part:
        """Return bytes that are held."""
        part = cls(len(content), lambda: byte_pieces(content))
        part._held = content
        return part

    @property
    def digest(self) -> bytes:
        """The SHA-256 of them, 32 bytes. They are read for that, unless they were before."""
        if self._digest is None:
            for _ in self._hashed():
                pass
        assert self._digest is not None
        return self._digest

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Iterate over them in pieces. Nothing is to be believed before the last one was taken.

        Raises:
            ProofError: they are not what they were when they were read before, or cannot be read.
            StoreError: as what reads them raises it.
        """
        return self._hashed() if self._held is None else byte_pieces(self._held)

    def whole(self) -> bytes:
        """Return them as a whole. Raises what `pieces` raises."""
        return joined(self.pieces()) if self._held is None else self._held

    def _hashed(self) -> Iterator[bytes | memoryview]:
        hasher, size = sha256(), 0
        for piece in self._read():
            hasher.update(piece)
            size += len(piece)
            yield piece
        digest = hasher.digest()
        if size != self.size or self._digest not in (None, digest):
            raise ProofError("what is shown was changed while it was read")
        self._digest = digest


class EventParts(Struct, frozen=True, kw_only=True):
    """What a proof shows of an event, of which what can be large is read when it is wanted. See `ProvedEvent`."""

    header: bytes
    private: bytes | None = None
    payload: Part | None = None
    request: Part | None = None
    loss: Part | None = None
    secret: bytes | None = None

    @classmethod
    def of(cls, proved: ProvedEvent) -> EventParts:
        """Return the parts of an event that is held."""
        parts = (proved.payload, proved.request, proved.loss)
        payload, request, loss = (None if part is None else Part.of(part) for part in parts)
        return cls(
            header=proved.header,
            private=proved.private,
            payload=payload,
            request=request,
            loss=loss,
            secret=proved.secret,
        )

    def whole(self) -> ProvedEvent:
        """Read all of it. Raises what `Part.pieces` raises."""
        parts = (self.payload, self.request, self.loss)
        payload, request, loss = (None if part is None else part.whole() for part in parts)
        return ProvedEvent(
            header=self.header,
            private=self.private,
            payload=payload,
            request=request,
            loss=loss,
            secret=self.secret,
        )


class ShownEvent(Struct, frozen=True, kw_only=True):
    """An event that a proof holds for.

    Attributes:
        id: its id.
        topic: its topic.
        time_ms: when it was recorded, milliseconds since 1970 UTC.
        event: its header, and its private part if that is shown and can be read.
        shown: what of it is shown and holds: `private`, `payload`, `request` and `loss`; or `sealed` and `sealed
            payload` where only what nobody can read without a key is.
        withheld: whether it has a private part that is not shown: withheld, or erased.
    """

    id: str
    topic: str
    time_ms: int
    event: Event
    shown: tuple[str, ...]
    withheld: bool


def _cut(reason: Exception | str) -> str:
    """Return a reason in which a file may be repeated, cut for a line."""
    text = str(reason)
    return text if len(text) <= _REASON_CHARACTERS_MAX else text[:_REASON_CHARACTERS_MAX] + "…"


def check_events(
    events: Iterable[EventParts], at_its_place: Callable[[bytes], None] | None = None
) -> Iterator[ShownEvent]:
    """Check events against each other, and what is shown of each against its header.

    Args:
        events: the events.
        at_its_place: is given the leaf hash of the first one before anything of it is read, and raises a `ProofError`
            where that is not in the tree.

    Raises:
        ProofError: something of it is not what the headers commit to.
        TurnlogError: the stack has no room to tell.
    """
    try:
        _require_room()
    except RecursionError as error:
        raise TurnlogError("there is no room on the stack to check a proof: check it nearer to its bottom") from error
    cited: set[tuple[str, str]] = set()
    digests: set[str] = set()
    seen: set[str] = set()
    for number, proved in enumerate(events, 1):
        leaf = leaf_hash(proved.header)
        if number == 1 and at_its_place is not None:
            at_its_place(leaf)
        if number > 1 and sri(leaf) not in digests:
            raise ProofError(f"event {number} of the proof is cited by none before it")
        event = _read_event(proved)
        header = event.header
        if number > 1 and (header.id, event.digest) not in cited:
            raise ProofError(f"event {header.id!r} of the proof is cited by none before it")
        if header.id in seen:
            raise ProofError(f"event {header.id!r} stands in the proof twice")
        seen.add(header.id)
        cited.update((citation.id, citation.digest) for citation in header.citations)
        digests.update(citation.digest for citation in header.citations)
        yield ShownEvent(
            id=header.id,
            topic=header.topic,
            time_ms=header.time,
            event=event,
            shown=tuple(_check_parts(proved, event)),
            withheld=event.erased,
        )


def _read_event(proved: EventParts) -> Event:
    """Return the event behind what is shown of it, opened if its secret is shown."""
    check_depth(proved)
    try:
        event = decode(proved.header, proved.private)
        _check_form(event)
        if event.sealed is not None:
            _check_base64(event, "nonce", "sealed")
        if proved.secret is not None:
            event = _opened(event, proved.secret)
        elif event.private is not None:
            _check_base64(event, "salt")
    except CorruptionError as error:
        raise ProofError(f"an event of the proof does not hold: {_cut(error)}") from error
    return event


def _check_form(event: Event) -> None:
    if (wrong := general_flaw(event)) is not None:
        raise ProofError(f"event {shown(event.header.id)} of the proof is not one of a log: {_cut(wrong)}")


def check_depth(proved: EventParts) -> None:
    """Check that header and private part are nested no deeper than every reader of a proof reads them.

    Raises:
        ProofError: one of them is.
    """
    _check_depth(proved.header)
    _check_depth(proved.private or b"")


def _check_depth(text: bytes) -> None:
    if is_deeper(text, DEPTH_MAX):
        raise ProofError(f"a header or a private part in a proof is nested {DEPTH_MAX} levels deep at most")


def _require_room(frames: int = _ROOM_FRAMES) -> None:
    """Raise a RecursionError unless there is room on the stack."""
    if frames:
        _require_room(frames - 1)


class _Encoded(Struct, frozen=True, kw_only=True):
    nonce: str = ""
    salt: str = ""
    sealed: str = ""


def _check_base64(event: Event, *names: str) -> None:
    """Check that parts of a private part are spelled in the one way that they should be, so that none hides a byte."""
    written = _encoded.decode(event.private_state or b"{}")
    part = event.private if event.sealed is None else event.sealed
    for name in names:
        if b64encode(getattr(part, name)).decode() != getattr(written, name):
            raise ProofError(f"the {name} of event {event.header.id!r} is not base64 as it should be written")


def _opened(event: Event, secret: bytes) -> Event:
    """Return a sealed event opened with its secret. What was sealed is checked as what is plain is."""
    event_id, sealed = event.header.id, event.sealed
    if sealed is None:
        raise ProofError(f"a secret is shown of event {event_id!r}, of which nothing sealed is")
    if len(secret) != SECRET_BYTES:
        raise ProofError(f"the secret of event {event_id!r} is not {SECRET_BYTES} bytes")
    try:
        plain = open_private(sealed, secret)
        _check_depth(plain)
        if not plain.startswith(PLAIN):
            raise ValueError("it is no private part in plain form")
        private = _private.decode(plain)
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError and UnicodeDecodeError are ValueErrors
        raise ProofError(f"what is sealed of event {event_id!r} cannot be read: {_cut(error)}") from error
    opened = msgspec.structs.replace(event, private_state=plain, private=private, sealed=None)
    _check_form(opened)
    _check_base64(opened, "salt")
    if (private.hash is None) != (sealed.hash is None):
        raise ProofError(f"the sealed private part of event {event_id!r} does not tell of its payload what it shows")
    return msgspec.structs.replace(event, private=private)


_encoded = msgspec.json.Decoder(_Encoded)
_private = msgspec.json.Decoder(Private)


def _check_parts(proved: EventParts, event: Event) -> Iterator[str]:
    """Check what is shown beside the header, and yield the names of it."""
    event_id, private = event.header.id, event.private
    if private is None and (proved.request, proved.loss) != (None, None):
        raise ProofError(f"what is shown of event {event_id!r} needs its private part, which is not shown")
    if private is None and event.sealed is None:
        if (proved.payload, proved.secret) != (None, None):
            raise ProofError(f"what is shown of event {event_id!r} needs its private part, which is not shown")
        return
    # What cannot be read is as it is stored, and so is its payload.
    hash_, size = (event.stored_hash, event.stored_size) if private is None else (private.hash, private.size)
    yield "sealed" if private is None else "private"
    if proved.payload is not None:
        _check_bytes(proved.payload, hash_, size, f"the payload of event {event_id!r}")
        yield "sealed payload" if private is None else "payload"
    for name, content in (("request", proved.request), ("loss", proved.loss)):
        if content is None:
            continue
        reference = _reference(event, name)
        _check_bytes(content, reference.hash, reference.size, f"the {name} of event {event_id!r}")
        yield name


class _CallMeta(Struct, frozen=True, kw_only=True):
    request: BytesRef | None = None
    loss: BytesRef | None = None


def _reference(event: Event, name: str) -> BytesRef:
    try:
        meta = b"{}" if event.private is None or event.header.topic != CALL else event.private.meta
        found = getattr(msgspec.json.decode(meta, type=_CallMeta), name)
    except UNREADABLE as error:
        raise ProofError(f"metadata of event {event.header.id!r} cannot be read: {_cut(error)}") from error
    if not isinstance(found, BytesRef):
        raise ProofError(f"event {event.header.id!r} says nothing of a {name}, and one is shown")
    return found


def _check_bytes(content: Part, hash_: object, size: object, what: str) -> None:
    if sri(content.digest) != hash_ or content.size != size:
        raise ProofError(f"{what} is not the one that was recorded")
