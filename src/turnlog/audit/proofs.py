"""Proof files: that events are in a log that somebody has signed. They need no store to be checked.

An inclusion proof is a C2SP tlog-proof (version 1) of one event. Its `extra` line carries JSON: the event itself, and
further events, each of which one before it cites with its digest. So one inclusion proof and one signature hold for all
of them. A private part, a payload, a request or a loss report may be withheld: the rest holds without it. A sealed
event is shown with its event secret, which opens it and no other, or as the sealed bytes alone.

A consistency proof is a file of turnlog's own: the hashes of RFC 6962 §2.1.2 between two signed checkpoints.

Both are spelled in one way only. `tools/verify_turnlog.py` checks them without turnlog: what it accepts and what is
accepted here is the same, so that one cannot be led to another answer than the other.
"""

from __future__ import annotations

import io
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnlog.audit.arrivals import is_of_one_log
from turnlog.audit.checkpoints import SignedCheckpoint, open_checkpoint, parse_hash, parse_size, written_hash
from turnlog.audit.merkle import verify_consistency, verify_inclusion
from turnlog.audit.notes import NOTE_BYTES_MAX, Verifier
from turnlog.audit.report import shown
from turnlog.digest import leaf_hash, payload_hash, sri
from turnlog.errors import CorruptionError, ProofError, TurnlogError
from turnlog.events import CALL, Event, Private, decode
from turnlog.events.flaws import general_flaw
from turnlog.events.form import DEPTH_MAX, PLAIN, is_deeper
from turnlog.events.sealing import SECRET_BYTES, open_private
from turnlog.model import BytesRef
from turnlog.model.long_strings import PIECE, base64_pieces, byte_pieces

PROOF = "c2sp.org/tlog-proof@v1"
CONSISTENCY = "turnlog-consistency-proof@v1"
EXTRA = "turnlog-proof-1"
HASHES_MAX = 63
PROOF_BYTES_MAX = 1024 * 1024 * 1024
PART_BYTES_MAX = 16 * 1024 * 1024
"""Of a header, and of a private part: what is taken apart takes many times as much memory."""
_ROOM_FRAMES = DEPTH_MAX + 64
"""What is taken apart needs so many frames of Python's stack, with room to spare."""
_REST_BYTES_MAX = 4 * NOTE_BYTES_MAX
"""More than a proof has beside its events."""
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


class Proof(Struct, frozen=True, kw_only=True):
    """The proof that events are in a log.

    Attributes:
        index: the leaf index of the first event: its global position less 1.
        hashes: the inclusion proof of the first event, 32 bytes each, from the leaf upwards.
        note: the signed checkpoint.
        events: the events. Each but the first is cited by one before it.
    """

    index: int
    hashes: tuple[bytes, ...]
    note: str
    events: tuple[ProvedEvent, ...]


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


class ProofReport(Struct, frozen=True, kw_only=True):
    """What a proof proves.

    Attributes:
        signed: the checkpoint, and who signed it.
        index: the leaf index of the first event.
        events: the events, in the order of the file.
        not_shown: the ids of events that these cite, and that are not among them.
        guests_possible: whether events of other logs, which this one only took in, can be among them. A proof does not
            tell which: of such an event the place in the log says when it was taken in, and its time is what the other
            log said.
    """

    signed: SignedCheckpoint
    index: int
    events: tuple[ShownEvent, ...]
    not_shown: tuple[str, ...]
    guests_possible: bool


class ConsistencyReport(Struct, frozen=True, kw_only=True):
    """Two checkpoints of a log that only grew from one to the other."""

    old: SignedCheckpoint
    new: SignedCheckpoint


# --------------------------------------------------------------------------------------------------------------- write


def write_proof(proof: Proof) -> str:
    """Return the text of a proof file. Raises what `proof_pieces` raises."""
    return b"".join(proof_pieces(proof)).decode()


def proof_pieces(proof: Proof) -> Iterator[bytes]:
    """Iterate over the bytes of a proof file, in pieces: a large payload is not held as text.

    Raises:
        ProofError: it would be larger than a proof can be, or have an event that is. Nothing is given then.
    """
    for event in proof.events:
        check_depth(event)
    events = [{name: value for name in _PARTS if (value := getattr(event, name)) is not None} for event in proof.events]
    for event in events:
        if any(len(event.get(name, b"")) > PART_BYTES_MAX for name in _BOUNDED):
            raise ProofError(f"an event has a header or a private part of more than {PART_BYTES_MAX:,} bytes")
    # As `_spelled` gives it: each part with six characters of punctuation, each event with two.
    parts = sum(len(name) + 6 + _base64_size(len(value)) for event in events for name, value in event.items())
    if _base64_size(len(_START) + parts + 2 * len(events) - 1 + len(_END)) > PROOF_BYTES_MAX - _REST_BYTES_MAX:
        raise ProofError(
            f"the proof would have more than {PROOF_BYTES_MAX:,} bytes: prove fewer events, or withhold payloads"
        )
    hashes = "".join(f"{written_hash(found)}\n" for found in proof.hashes)
    return chain(
        (f"{PROOF}\n{_EXTRA}".encode(),),
        base64_pieces(_spelled(events)),
        (f"\nindex {proof.index}\n{hashes}\n{proof.note}".encode(),),
    )


def _spelled(events: Iterable[Mapping[str, bytes]]) -> Iterator[bytes]:
    """Iterate over events as the line `extra` has them, in pieces."""
    yield _START
    for number, event in enumerate(events):
        between = b",{" if number else b"{"
        for name, value in event.items():
            yield b'%b"%b":"' % (between, name.encode())
            yield from base64_pieces(byte_pieces(value))
            between = b'",'
        yield b'"}'
    yield _END


def _base64_size(size: int) -> int:
    return (size + 2) // 3 * 4


def write_consistency(old_note: str, new_note: str, hashes: Sequence[bytes]) -> str:
    """Return the text of a consistency proof file."""
    lines = "".join(f"{written_hash(found)}\n" for found in hashes)
    return f"{CONSISTENCY}\n{lines}\n{old_note}\n{new_note}"


# ---------------------------------------------------------------------------------------------------------------- read


def open_proof(text: str | BinaryIO, verifiers: Iterable[Verifier]) -> tuple[Proof, ProofReport]:
    """Read a proof file and check it, and return what it proves.

    Nothing is taken apart before what is in front of it holds: the signature, the place of the first event, and of each
    further one that it is cited. So a file that does not hold takes no more memory than its size, a few times over.

    Args:
        text: the text of the file; or the file, which can be read more than once, and is read in pieces.
        verifiers: the keys to believe. One key of the log must have signed the checkpoint.

    Raises:
        ProofError: it is no proof, or does not hold. Nothing of it is to be believed then.
    """
    index, hashes, note, extra = _parse(_file_of(text) if isinstance(text, str) else text)
    signed = open_checkpoint(note, verifiers)
    events: list[ProvedEvent] = []

    def keeping() -> Iterator[ProvedEvent]:
        for event in _read_events(extra):
            events.append(event)
            yield event

    report = _checked(signed, index, hashes, keeping())
    return Proof(index=index, hashes=hashes, note=note, events=tuple(events)), report


def parse_proof(text: str) -> Proof:
    """Read a proof file. Nothing of it is checked.

    Raises:
        ProofError: it is none.
    """
    index, hashes, note, extra = _parse(_file_of(text))
    return Proof(index=index, hashes=hashes, note=note, events=tuple(_read_events(extra)))


def check_proof(proof: Proof, verifiers: Iterable[Verifier]) -> ProofReport:
    """Check a proof, and return what it proves.

    Args:
        proof: the proof.
        verifiers: the keys to believe. One key of the log must have signed the checkpoint.

    Raises:
        ProofError: it does not hold. Nothing of it is to be believed then.
    """
    return _checked(open_checkpoint(proof.note, verifiers), proof.index, proof.hashes, proof.events)


def _checked(
    signed: SignedCheckpoint, index: int, hashes: Sequence[bytes], events: Iterable[ProvedEvent]
) -> ProofReport:
    checkpoint = signed.checkpoint

    def at_its_place(first: bytes) -> None:
        verify_inclusion(index, checkpoint.size, first, hashes, checkpoint.root)

    found = tuple(check_events(events, at_its_place))
    ids = {event.id for event in found}
    cited = dict.fromkeys(citation.id for event in found for citation in event.event.header.citations)
    return ProofReport(
        signed=signed,
        index=index,
        events=found,
        not_shown=tuple(id for id in cited if id not in ids),
        guests_possible=not is_of_one_log(checkpoint),
    )


def check_consistency(text: str, verifiers: Iterable[Verifier]) -> ConsistencyReport:
    """Check a consistency proof file: that a log has only grown from one checkpoint to the other.

    Raises:
        ProofError: it does not hold, or is none.
    """
    _check_size(text)
    # Neither a checkpoint nor its signatures have an empty line in them.
    head, *notes = text.split("\n\n", 5)
    first, *lines = head.split("\n", HASHES_MAX + 2)
    if first != CONSISTENCY:
        raise ProofError(f"it is no consistency proof: the first line is not {CONSISTENCY!r}")
    if len(notes) != 4:
        raise ProofError("a consistency proof has two checkpoints with their signatures, and empty lines between all")
    verifiers = list(verifiers)
    old = open_checkpoint(f"{notes[0]}\n\n{notes[1]}\n", verifiers)
    new = open_checkpoint(f"{notes[2]}\n\n{notes[3]}", verifiers)
    if old.checkpoint.origin != new.checkpoint.origin:
        raise ProofError("the checkpoints are of different logs")
    verify_consistency(
        old.checkpoint.size, new.checkpoint.size, _hashes(lines), old.checkpoint.root, new.checkpoint.root
    )
    return ConsistencyReport(old=old, new=new)


_NOTE_END = re.compile("^(— .*\n)(?!— )\n?", re.MULTILINE)


def split_notes(text: str) -> list[str]:
    """Return the signed notes of a text that has one after the other, with or without an empty line between them."""
    notes: list[str] = []
    start = 0
    for found in _NOTE_END.finditer(text):
        notes.append(text[start : found.end(1)])
        start = found.end()
    if text[start:]:
        notes.append(text[start:])
    return notes


def _check_size(text: str) -> None:
    # What is ASCII has as many bytes as characters, and all but hostile files are.
    if len(text) > PROOF_BYTES_MAX or (not text.isascii() and len(text.encode(errors="replace")) > PROOF_BYTES_MAX):
        raise ProofError(f"a proof has at most {PROOF_BYTES_MAX:,} bytes")


def _file_of(text: str) -> BinaryIO:
    return io.BytesIO(text.encode(errors="surrogatepass"))


def _parse(file: BinaryIO) -> tuple[int, tuple[bytes, ...], str, Iterable[bytes]]:
    """Return the index, the hashes and the note of a proof file, and its line `extra`, which is not read yet."""
    if file.seek(0, os.SEEK_END) > PROOF_BYTES_MAX:
        raise ProofError(f"a proof has at most {PROOF_BYTES_MAX:,} bytes")
    file.seek(0)
    if file.readline(len(PROOF) + 1).removesuffix(b"\n") != PROOF.encode():
        raise ProofError(f"it is no proof: the first line is not {PROOF!r}")
    is_extra = file.read(len(_EXTRA)) == _EXTRA.encode()
    start, end = file.tell(), _line_end(file)
    try:
        head, blank, note = file.read().decode().partition("\n\n")
    except UnicodeDecodeError as error:
        raise ProofError("the proof is not UTF-8") from error
    index, *hashes = head.split("\n", HASHES_MAX + 2)
    if not blank or not is_extra or not index.startswith("index "):
        raise ProofError("the proof lacks its events, its index or its checkpoint")
    return parse_size(index.removeprefix("index ")), _hashes(hashes), note, _decoded(file, start, end)


def _line_end(file: BinaryIO) -> int:
    """Return where the line of a file ends, and leave the file behind it."""
    while (piece := file.readline(PIECE)) and not piece.endswith(b"\n"):
        pass
    return file.tell() - len(piece[-1:])


def _hashes(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > HASHES_MAX:
        raise ProofError(f"a proof has at most {HASHES_MAX} hashes")
    return tuple(map(parse_hash, lines))


_EXTRA = "extra "
_PARTS = ("header", "loss", "payload", "private", "request", "secret")
_BOUNDED = ("header", "private")
_BASE64 = rb'"([A-Za-z0-9+/=]*)"'
_START, _END = b'{"events":[', f'],"format":"{EXTRA}"}}'.encode()
_EVENT = re.compile(
    rb'\{"header":' + _BASE64 + b"".join(rb'(?:,"%b":%b)?' % (name.encode(), _BASE64) for name in _PARTS[1:]) + rb"\}"
)
"""An event in its one spelling."""
_OTHER_FORM = re.compile(rb'"format":"([^"\\]*)"\}$')
_CHUNK_CHARACTERS = 1024 * 1024
"""Of base64 that is decoded at a time: four characters are three bytes."""


def _read_events(extra: Iterable[bytes]) -> Iterator[ProvedEvent]:
    """Yield the events of a line `extra`, each once it is asked for."""
    text = _joined(extra)
    if not text.endswith(_END) and (found := _OTHER_FORM.search(text, max(0, len(text) - 1000))) is not None:
        form = shown(found[1].decode(errors="replace"))
        raise ProofError(f"the events of the proof are of the form {form}, which this turnlog does not know")
    if text == _START + _END:
        raise ProofError("the proof has no event")
    at, end = len(_START) - 1, len(text) - len(_END)
    if not text.startswith(_START) or not text.endswith(_END):
        at = end
    while True:
        # In front of the first event is the bracket, in front of others a comma.
        found = _EVENT.match(text, at + 1, max(0, end))
        if found is None:
            raise ProofError(
                "the events of the proof are not spelled as they should be, or have what this turnlog does not know"
            )
        spans = {name: found.span(group) for group, name in enumerate(_PARTS, 1) if found.start(group) >= 0}
        for name in _BOUNDED:
            start, behind = spans.get(name, (0, 0))
            if behind - start > PART_BYTES_MAX // 3 * 4 + 4:
                raise ProofError(f"a header or a private part in a proof has at most {PART_BYTES_MAX:,} bytes")
        at = found.end()
        yield ProvedEvent(**{name: _joined(_decoded(io.BytesIO(text), *span)) for name, span in spans.items()})
        if at == end:
            return
        if text[at : at + 1] != b",":
            at = end


def _joined(pieces: Iterable[bytes]) -> bytes:
    file = io.BytesIO()
    file.writelines(pieces)
    return file.getvalue()  # the buffer itself, and not a copy of it


def _decoded(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Decode what stands between two places of a file in base64, a piece at a time."""
    file.seek(start)
    for at in range(start, end, _CHUNK_CHARACTERS):
        text = file.read(min(_CHUNK_CHARACTERS, end - at))
        try:
            found = b64decode(text, validate=True)
        except ValueError as error:
            raise ProofError("a part of the proof is not base64") from error
        if at + len(text) < end and len(found) * 4 != len(text) * 3:
            raise ProofError("a part of the proof is not base64")
        if b64encode(found) != text:
            raise ProofError("a part of the proof is not base64 as it should be written")
        yield found


def _cut(reason: Exception | str) -> str:
    """Return a reason in which a file may be repeated, cut for a line."""
    text = str(reason)
    return text if len(text) <= _REASON_CHARACTERS_MAX else text[:_REASON_CHARACTERS_MAX] + "…"


def check_events(
    events: Iterable[ProvedEvent], at_its_place: Callable[[bytes], None] | None = None
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


def _read_event(proved: ProvedEvent) -> Event:
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


def check_depth(proved: ProvedEvent) -> None:
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


def _check_parts(proved: ProvedEvent, event: Event) -> Iterator[str]:
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProofError(f"metadata of event {event.header.id!r} cannot be read: {_cut(error)}") from error
    if not isinstance(found, BytesRef):
        raise ProofError(f"event {event.header.id!r} says nothing of a {name}, and one is shown")
    return found


def _check_bytes(content: bytes, hash_: object, size: object, what: str) -> None:
    if payload_hash(content) != hash_ or len(content) != size:
        raise ProofError(f"{what} is not the one that was recorded")
