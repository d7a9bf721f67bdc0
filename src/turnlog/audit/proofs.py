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

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from typing import BinaryIO

from msgspec import Struct

from turnlog.audit.arrivals import is_of_one_log
from turnlog.audit.base64_reading import Base64, FileSource, decoded
from turnlog.audit.checkpoints import SignedCheckpoint, open_checkpoint, parse_hash, parse_size, written_hash
from turnlog.audit.merkle import verify_consistency, verify_inclusion
from turnlog.audit.notes import DASH, NOTE_BYTES_MAX, Verifier
from turnlog.audit.proof_events import (
    HELD_BYTES_MAX,
    EventParts,
    Part,
    ProvedEvent,
    ShownEvent,
    check_depth,
    check_events,
)
from turnlog.audit.report import shown
from turnlog.errors import ProofError
from turnlog.model.pieces import PIECE, base64_pieces

PROOF = "c2sp.org/tlog-proof@v1"
CONSISTENCY = "turnlog-consistency-proof@v1"
EXTRA = "turnlog-proof-1"
HASHES_MAX = 63
PROOF_BYTES_MAX = 1024 * 1024 * 1024
PART_BYTES_MAX = 16 * 1024 * 1024
"""Of a header, and of a private part: what is taken apart takes many times as much memory."""
REST_BYTES_MAX = 4 * NOTE_BYTES_MAX
"""More than a proof has beside its events, and than a consistency proof has."""


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


class ProofParts(Struct, frozen=True, kw_only=True):
    """A proof of which what can be large is read when it is wanted. See `Proof`."""

    index: int
    hashes: tuple[bytes, ...]
    note: str
    events: tuple[EventParts, ...]

    @classmethod
    def of(cls, proof: Proof) -> ProofParts:
        """Return the parts of a proof that is held."""
        return cls(
            index=proof.index, hashes=proof.hashes, note=proof.note, events=tuple(map(EventParts.of, proof.events))
        )

    def whole(self) -> Proof:
        """Read all of it. Raises what `Part.pieces` raises."""
        events = tuple(event.whole() for event in self.events)
        return Proof(index=self.index, hashes=self.hashes, note=self.note, events=events)


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
    return b"".join(proof_pieces(ProofParts.of(proof))).decode()


def proof_pieces(proof: ProofParts) -> Iterator[bytes]:
    """Iterate over the bytes of a proof file, in pieces: a large payload is not held as text.

    Raises:
        ProofError: it would be larger than a proof can be, or have an event that is. Nothing is given then. Or, later,
            a part of it is not what it was.
        StoreError: as what reads a part raises it.
    """
    for event in proof.events:
        check_depth(event)
    events = list(map(_parts_of, proof.events))
    for event in events:
        if any(name in event and event[name].size > PART_BYTES_MAX for name in _BOUNDED):
            raise ProofError(f"an event has a header or a private part of more than {PART_BYTES_MAX:,} bytes")
    # As `_spelled` gives it: each part with six characters of punctuation, each event with two.
    parts = sum(len(name) + 6 + _base64_size(part.size) for event in events for name, part in event.items())
    if _base64_size(len(_START) + parts + 2 * len(events) - 1 + len(_END)) > PROOF_BYTES_MAX - REST_BYTES_MAX:
        raise ProofError(
            f"the proof would have more than {PROOF_BYTES_MAX:,} bytes: prove fewer events, or withhold payloads"
        )
    hashes = "".join(f"{written_hash(found)}\n" for found in proof.hashes)
    return chain(
        (f"{PROOF}\n{_EXTRA}".encode(),),
        base64_pieces(_spelled(events)),
        (f"\nindex {proof.index}\n{hashes}\n{proof.note}".encode(),),
    )


def _parts_of(event: EventParts) -> dict[str, Part]:
    """Return what is shown of an event, by name."""
    parts = ((name, getattr(event, name)) for name in _PARTS)
    return {name: Part.of(part) if isinstance(part, bytes) else part for name, part in parts if part is not None}


def _spelled(events: Iterable[Mapping[str, Part]]) -> Iterator[bytes]:
    """Iterate over events as the line `extra` has them, in pieces."""
    yield _START
    for number, event in enumerate(events):
        between = b",{" if number else b"{"
        for name, part in event.items():
            yield b'%b"%b":"' % (between, name.encode())
            yield from base64_pieces(part.pieces())
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


def open_parts(file: BinaryIO, verifiers: Iterable[Verifier]) -> tuple[ProofParts, ProofReport]:
    """Read a proof file and check it, and return what it proves, of which what is large is read when it is wanted.

    Nothing is taken apart before what is in front of it holds: the signature, the place of the first event, and of each
    further one that it is cited. No large part is held.

    Args:
        file: the file, which can be read more than once. It stays open for as long as parts of the proof are read.
        verifiers: the keys to believe. One key of the log must have signed the checkpoint.

    Raises:
        ProofError: it is no proof, or does not hold. Nothing of it is to be believed then.
    """
    index, hashes, note, extra = _parse(file)
    signed = open_checkpoint(note, verifiers)
    events: list[EventParts] = []

    def keeping() -> Iterator[EventParts]:
        for event in _read_events(extra):
            events.append(event)
            yield event

    report = _checked(signed, index, hashes, keeping())
    return ProofParts(index=index, hashes=hashes, note=note, events=tuple(events)), report


def check_parts(proof: ProofParts, verifiers: Iterable[Verifier]) -> ProofReport:
    """Check a proof, and return what it proves.

    Args:
        proof: the proof.
        verifiers: the keys to believe. One key of the log must have signed the checkpoint.

    Raises:
        ProofError: it does not hold. Nothing of it is to be believed then.
    """
    return _checked(open_checkpoint(proof.note, verifiers), proof.index, proof.hashes, proof.events)


def _checked(
    signed: SignedCheckpoint, index: int, hashes: Sequence[bytes], events: Iterable[EventParts]
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
    # What is ASCII has as many bytes as characters, and all but hostile files are.
    if len(text) > REST_BYTES_MAX or (not text.isascii() and len(text.encode(errors="replace")) > REST_BYTES_MAX):
        raise ProofError(f"a consistency proof has at most {REST_BYTES_MAX:,} bytes")
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


def split_notes(text: str) -> list[str]:
    """Return the signed notes of a text that has one after the other, with or without an empty line between them.

    A checkpoint has no empty line in it but the one before its signatures: so what was torn is a note of its own, that
    cannot be read, and takes none with it.
    """
    notes: list[str] = []
    said: list[str] = []
    signatures: list[str] = []

    def end() -> None:
        if said or signatures:
            notes.append("".join((*said, "\n" if said and signatures else "", *signatures)))
        said.clear()
        signatures.clear()

    blank = False
    for line in StringIO(text, newline="\n"):
        if line == "\n":
            blank = True
            continue
        if line.startswith(DASH):
            signatures.append(line)
        else:
            if signatures or blank:
                end()
            said.append(line)
        blank = False
    end()
    return notes


def _parse(file: BinaryIO) -> tuple[int, tuple[bytes, ...], str, Base64]:
    """Return the index, the hashes and the note of a proof file, and its line `extra`, which is not read yet."""
    if file.seek(0, os.SEEK_END) > PROOF_BYTES_MAX:
        raise ProofError(f"a proof has at most {PROOF_BYTES_MAX:,} bytes")
    file.seek(0)
    if file.readline(len(PROOF) + 1).removesuffix(b"\n") != PROOF.encode():
        raise ProofError(f"it is no proof: the first line is not {PROOF!r}")
    is_extra = file.read(len(_EXTRA)) == _EXTRA.encode()
    start, end = file.tell(), _line_end(file)
    rest = file.read(REST_BYTES_MAX + 1)
    if len(rest) > REST_BYTES_MAX:
        raise ProofError(f"a proof has at most {REST_BYTES_MAX:,} bytes behind its events")
    try:
        head, blank, note = rest.decode().partition("\n\n")
    except UnicodeDecodeError as error:
        raise ProofError("the proof is not UTF-8") from error
    index, *hashes = head.split("\n", HASHES_MAX + 2)
    if not blank or not is_extra or not index.startswith("index "):
        raise ProofError("the proof lacks its events, its index or its checkpoint")
    return parse_size(index.removeprefix("index ")), _hashes(hashes), note, Base64(FileSource(file), start, end)


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
_START, _END = b'{"events":[', f'],"format":"{EXTRA}"}}'.encode()
_OTHER_FORM = re.compile(rb'"format":"([^"\\]*)"\}$')
_OTHER_FORM_BYTES_MAX = 1000
_RUN = re.compile(rb"[A-Za-z0-9+/=]*")


def _read_events(extra: Base64) -> Iterator[EventParts]:
    """Yield the events of a line `extra`, each once it is asked for."""
    end = b"".join(extra.pieces(max(0, extra.size - _OTHER_FORM_BYTES_MAX)))
    if not end.endswith(_END) and (found := _OTHER_FORM.search(end)) is not None:
        form = shown(found[1].decode(errors="replace"))
        raise ProofError(f"the events of the proof are of the form {form}, which this turnlog does not know")
    start, stop = len(_START), extra.size - len(_END)
    is_spelled = end.endswith(_END) and b"".join(extra.pieces(0, start)) == _START and start <= stop
    if is_spelled and start == stop:
        raise ProofError("the proof has no event")
    text = _Text(extra.pieces(start, stop) if is_spelled else iter(()), start)
    while True:
        yield _read_event(text, extra)
        if text.is_at_end():
            return
        text.require(text.takes(b","))


def _read_event(text: _Text, extra: Base64) -> EventParts:
    """Read the next event, in its one spelling. What is large of it is read when it is wanted."""
    found: dict[str, tuple[int, int, bytes | None]] = {}
    for name in _PARTS:
        before = b'%b"%b":"' % (b"," if found else b"{", name.encode())
        if text.takes(before):
            found[name] = text.takes_base64()
            text.require(text.takes(b'"'))
        else:
            text.require(bool(found))
    text.require(text.takes(b"}"))
    for name in _BOUNDED:
        start, stop, _ = found.get(name, (0, 0, None))
        if stop - start > PART_BYTES_MAX // 3 * 4 + 4:
            raise ProofError(f"a header or a private part in a proof has at most {PART_BYTES_MAX:,} bytes")
    parts = {name: _part(extra, *place) for name, place in found.items()}
    return EventParts(
        header=parts["header"].whole(),
        private=parts["private"].whole() if "private" in parts else None,
        payload=parts.get("payload"),
        request=parts.get("request"),
        loss=parts.get("loss"),
        secret=parts["secret"].whole() if "secret" in parts else None,
    )


def _part(source: Base64, start: int, stop: int, text: bytes | None) -> Part:
    if text is not None:
        return Part.of(decoded(text))
    there = Base64(source, start, stop)
    return Part(there.size, there.pieces)


class _Text:
    """Text that comes in pieces, taken from its beginning on."""

    def __init__(self, pieces: Iterator[bytes], place: int) -> None:
        self._pieces = pieces
        self._piece = b""
        self._at = 0
        self._place = place

    def is_at_end(self) -> bool:
        return not self._has(1)

    def takes(self, text: bytes) -> bool:
        """Pass over a text; return whether it is what comes next."""
        found = self._has(len(text)) and self._piece.startswith(text, self._at)
        if found:
            self._pass(len(text))
        return found

    def takes_base64(self) -> tuple[int, int, bytes | None]:
        """Pass over characters of base64; return from which place to which they stand, and what is to be held."""
        start, held = self._place, list[bytes]()
        while self._has(1):
            run = _RUN.match(self._piece, self._at)
            found = b"" if run is None else run[0]
            self._pass(len(found))
            held = [*held, found] if self._place - start <= HELD_BYTES_MAX // 3 * 4 else []
            if self._at < len(self._piece):
                break
        size = self._place - start
        return start, self._place, b"".join(held) if size <= HELD_BYTES_MAX // 3 * 4 else None

    def require(self, is_so: bool) -> None:
        """Raise the error for events that are spelled in another way, unless something is so."""
        if not is_so:
            raise ProofError(
                "the events of the proof are not spelled as they should be, or have what this turnlog does not know"
            )

    def _has(self, count: int) -> bool:
        while len(self._piece) - self._at < count:
            more = next(self._pieces, None)
            if more is None:
                return False
            self._piece, self._at = self._piece[self._at :] + more, 0
        return True

    def _pass(self, count: int) -> None:
        self._at += count
        self._place += count
