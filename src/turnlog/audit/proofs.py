"""Proof files: that events are in a log that somebody has signed. They need no store to be checked.

An inclusion proof is a C2SP tlog-proof (version 1) of one event. Its `extra` line carries JSON: the event itself, and
further events, each of which one before it cites with its digest. So one inclusion proof and one signature hold for all
of them. A private part, a payload, a request or a loss report may be withheld: the rest holds without it.

A consistency proof is a file of turnlog's own: the hashes of RFC 6962 §2.1.2 between two signed checkpoints.

Both are spelled in one way only. `tools/verify_turnlog.py` checks them without turnlog: what it accepts and what is
accepted here is the same, so that one cannot be led to another answer than the other.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from turnlog.audit.checkpoints import SignedCheckpoint, open_checkpoint, parse_hash, parse_size, written_hash
from turnlog.audit.merkle import verify_consistency, verify_inclusion
from turnlog.audit.notes import NOTE_BYTES_MAX, Verifier
from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError, ProofError
from turnlog.events import CALL, Event, decode
from turnlog.events.flaws import general_flaw
from turnlog.model import BytesRef

PROOF = "c2sp.org/tlog-proof@v1"
CONSISTENCY = "turnlog-consistency-proof@v1"
EXTRA = "turnlog-proof-1"
HASHES_MAX = 63
PROOF_BYTES_MAX = 1024 * 1024 * 1024
_REST_BYTES_MAX = 4 * NOTE_BYTES_MAX
"""More than a proof has beside its events."""


class ProvedEvent(Struct, frozen=True, kw_only=True):
    """What a proof shows of an event: exact bytes, None for what there is not, or what is withheld.

    Attributes:
        header: its header.
        private: its private part.
        payload: its payload; only together with the private part, which has its hash.
        request: of a call the exact body of the request; only together with the private part.
        loss: of a call the loss report, JSON lines; only together with the private part.
    """

    header: bytes
    private: bytes | None = None
    payload: bytes | None = None
    request: bytes | None = None
    loss: bytes | None = None


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
        event: its header, and its private part if that is shown.
        shown: what of it is shown and holds, of `private`, `payload`, `request` and `loss`.
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
    """

    signed: SignedCheckpoint
    index: int
    events: tuple[ShownEvent, ...]


class ConsistencyReport(Struct, frozen=True, kw_only=True):
    """Two checkpoints of a log that only grew from one to the other."""

    old: SignedCheckpoint
    new: SignedCheckpoint


# --------------------------------------------------------------------------------------------------------------- write


def write_proof(proof: Proof) -> str:
    """Return the text of a proof file.

    Raises:
        ProofError: it would be larger than a proof can be.
    """
    events = [
        {name: b64encode(value).decode() for name, value in msgspec.structs.asdict(event).items() if value is not None}
        for event in proof.events
    ]
    extra = b64encode(_extra.encode(_Extra(events=events, format=EXTRA))).decode()
    if len(extra) > PROOF_BYTES_MAX - _REST_BYTES_MAX:
        raise ProofError(
            f"the proof would have more than {PROOF_BYTES_MAX:,} bytes: prove fewer events, or withhold payloads"
        )
    hashes = "".join(f"{written_hash(found)}\n" for found in proof.hashes)
    return f"{PROOF}\nextra {extra}\nindex {proof.index}\n{hashes}\n{proof.note}"


def write_consistency(old_note: str, new_note: str, hashes: Sequence[bytes]) -> str:
    """Return the text of a consistency proof file."""
    lines = "".join(f"{written_hash(found)}\n" for found in hashes)
    return f"{CONSISTENCY}\n{lines}\n{old_note}\n{new_note}"


# ---------------------------------------------------------------------------------------------------------------- read


def parse_proof(text: str) -> Proof:
    """Read a proof file.

    Raises:
        ProofError: it is none.
    """
    _check_size(text)
    head, blank, note = text.partition("\n\n")
    first, *lines = head.split("\n")
    if first != PROOF:
        raise ProofError(f"it is no proof: the first line is not {PROOF!r}")
    if not blank or len(lines) < 2 or not lines[0].startswith("extra ") or not lines[1].startswith("index "):
        raise ProofError("the proof lacks its events, its index or its checkpoint")
    return Proof(
        index=parse_size(lines[1].removeprefix("index ")),
        hashes=_hashes(lines[2:]),
        note=note,
        events=_events(lines[0].removeprefix("extra ")),
    )


def check_proof(proof: Proof, verifiers: Iterable[Verifier]) -> ProofReport:
    """Check a proof, and return what it proves.

    Args:
        proof: the proof.
        verifiers: the keys to believe. One key of the log must have signed the checkpoint.

    Raises:
        ProofError: it does not hold. Nothing of it is to be believed then.
    """
    signed = open_checkpoint(proof.note, verifiers)
    events = list(check_events(proof.events))
    verify_inclusion(
        proof.index, signed.checkpoint.size, events[0].event.leaf_hash, proof.hashes, signed.checkpoint.root
    )
    return ProofReport(signed=signed, index=proof.index, events=tuple(events))


def check_consistency(text: str, verifiers: Iterable[Verifier]) -> ConsistencyReport:
    """Check a consistency proof file: that a log has only grown from one checkpoint to the other.

    Raises:
        ProofError: it does not hold, or is none.
    """
    _check_size(text)
    # Neither a checkpoint nor its signatures have an empty line in them.
    head, *notes = text.split("\n\n")
    first, *lines = head.split("\n")
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
    if len(text) > PROOF_BYTES_MAX or len(text.encode(errors="replace")) > PROOF_BYTES_MAX:
        raise ProofError(f"a proof has at most {PROOF_BYTES_MAX:,} bytes")


def _hashes(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > HASHES_MAX:
        raise ProofError(f"a proof has at most {HASHES_MAX} hashes")
    return tuple(map(parse_hash, lines))


class _Extra(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    events: list[dict[str, str]]


_extra = msgspec.json.Encoder(order="sorted")


def _events(extra: str) -> tuple[ProvedEvent, ...]:
    try:
        text = _bytes(extra)
        decoded = msgspec.json.decode(text, type=_Extra)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProofError(f"the events of the proof cannot be read: {error}") from error
    if decoded.format != EXTRA:
        raise ProofError(
            f"the events of the proof are of the form {decoded.format!r}, which this turnlog does not know"
        )
    if _extra.encode(decoded) != text:
        raise ProofError("the events of the proof are not spelled as they should be")
    if not decoded.events:
        raise ProofError("the proof has no event")
    known = set(ProvedEvent.__struct_fields__)
    for event in decoded.events:
        if "header" not in event or not known >= event.keys():
            raise ProofError("an event of the proof lacks its header, or has what this turnlog does not know")
    return tuple(ProvedEvent(**{name: _bytes(value) for name, value in event.items()}) for event in decoded.events)


def _bytes(text: str) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except ValueError as error:
        raise ProofError("a part of the proof is not base64") from error
    if b64encode(found).decode() != text:
        raise ProofError("a part of the proof is not base64 as it should be written")
    return found


def check_events(events: Sequence[ProvedEvent]) -> Iterator[ShownEvent]:
    """Check events against each other, and what is shown of each against its header.

    Raises:
        ProofError: something of it is not what the headers commit to.
    """
    cited: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for proved in events:
        try:
            event = decode(proved.header, proved.private)
        except CorruptionError as error:
            raise ProofError(f"an event of the proof does not hold: {error}") from error
        header = event.header
        if (wrong := general_flaw(event)) is not None:
            raise ProofError(f"event {header.id!r} of the proof is not one of a log: {wrong}")
        if proved is not events[0] and (header.id, event.digest) not in cited:
            raise ProofError(f"event {header.id!r} of the proof is cited by none before it")
        if header.id in seen:
            raise ProofError(f"event {header.id!r} stands in the proof twice")
        seen.add(header.id)
        cited.update((citation.id, citation.digest) for citation in header.citations)
        yield ShownEvent(
            id=header.id,
            topic=header.topic,
            time_ms=header.time,
            event=event,
            shown=tuple(_check_parts(proved, event)),
            withheld=event.private_state is None and header.private is not None,
        )


def _check_parts(proved: ProvedEvent, event: Event) -> Iterator[str]:
    """Check what is shown beside the header, and yield the names of it."""
    event_id, private = event.header.id, event.private
    if private is None:
        if (proved.payload, proved.request, proved.loss) != (None, None, None):
            raise ProofError(f"what is shown of event {event_id!r} needs its private part, which is not shown")
        return
    yield "private"
    if proved.payload is not None:
        _check_bytes(proved.payload, private.hash, private.size, f"the payload of event {event_id!r}")
        yield "payload"
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
        raise ProofError(f"metadata of event {event.header.id!r} cannot be read: {error}") from error
    if not isinstance(found, BytesRef):
        raise ProofError(f"event {event.header.id!r} says nothing of a {name}, and one is shown")
    return found


def _check_bytes(content: bytes, hash_: object, size: object, what: str) -> None:
    if payload_hash(content) != hash_ or len(content) != size:
        raise ProofError(f"{what} is not the one that was recorded")
