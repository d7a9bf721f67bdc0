"""A transcript as a source: what of it is in the log, and what is to be recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct, field

from turnlog.digest import pieces_digest
from turnlog.events import turn_meta
from turnlog.ids import derived_id
from turnlog.interop.importing import Added, Place, Problem, Source, Step, TranscriptReport, Work
from turnlog.interop.marked import in_pieces
from turnlog.interop.texts import topic_name
from turnlog.interop.transcripts.blocks import beyond
from turnlog.interop.transcripts.report import PieceMeta
from turnlog.interop.transcripts.transcript import Entry, Part, Piece, Transcript
from turnlog.interop.usage import not_counted
from turnlog.model import Origin, TurnMeta, Usage
from turnlog.projections.bookmarks import head as find_head
from turnlog.record import EventDraft, TurnDraft
from turnlog.store import Payload, ReadTransaction

ERROR_CHARACTERS_MAX = 2000
"""Longer error texts are cut in the metadata of a turn."""

_TOO_LATE = "the usage of a reply that was recorded before it was written: kept as an event, it counts nowhere"

_blocks = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What the log has of a transcript.

    Attributes:
        pieces: the turn of each piece that it has, None for none, by index.
        taken: bookmarks of the transcript that stand at turns that are not of it.
        parents: what each of these turns continues.
        usage: what each of them took.
        blocks: digests of the blocks of those that the transcript has more of.
    """

    pieces: Mapping[int, str | None]
    taken: frozenset[str]
    parents: Mapping[str, tuple[str, ...]]
    usage: Mapping[str, Usage | None]
    blocks: Mapping[str, Counter[bytes]]


class Details(Struct, frozen=True, kw_only=True):
    """What a transcript is in the log: filled in while its steps are taken.

    Attributes:
        turns: what each of its turns continues, by turn id, in order.
        continued: ids of the turns that go on with an earlier one.
        problems: what came too late for the turn that it is of.
    """

    turns: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    continued: list[str] = field(default_factory=list[str])
    problems: list[Problem] = field(default_factory=list[Problem])


class Session(Source[Known, Details]):
    """A transcript, whatever is in the log."""

    def __init__(self, path: Path, format: str, prefix: str, transcript: Transcript) -> None:
        """Take what was read, the name of its format, and what its topics begin with."""
        self.path = path
        self.format = format
        self.transcript = transcript
        self.lines = transcript.places
        self.text_bytes = transcript.text_bytes
        self._prefix = prefix
        self._ids = [_event_id(prefix, piece) for piece in transcript.pieces]

    def look_up(self, transaction: ReadTransaction) -> Known:
        """Read what the log has of the pieces."""
        found = ((index, transaction.event(event_id)) for index, event_id in enumerate(self._ids))
        pieces = {index: event.header.cited("turn") for index, event in found if event is not None}
        turns = {turn: transaction.event(turn) for turn in pieces.values() if turn is not None}
        own = {entry.id for entry in self.transcript.entries} | set(pieces.values())
        heads = {
            entry.bookmark: find_head(transaction, entry.bookmark)
            for entry in self.transcript.entries
            if entry.bookmark is not None
        }
        taken = frozenset(name for name, head in heads.items() if head is not None and head not in own)
        return Known(
            pieces=pieces,
            taken=taken,
            parents={turn: tuple(each.id for each in event.header.parents) for turn, event in turns.items() if event},
            usage={turn: turn_meta(event).usage for turn, event in turns.items() if event},
            blocks={
                turn: _said(transaction.payload(event))
                for entry in self.transcript.entries
                if entry.document is None and any(part.piece not in pieces for part in entry.parts)
                for turn in {pieces.get(part.piece) for part in entry.parts}
                if turn is not None and (event := turns[turn]) is not None
            },
        )

    def prepare(self, place: Place, known: Known) -> Work[Details]:
        """Settle what is to be recorded, each payload placed when its step is taken.

        A turn is recorded before the first of its pieces. A recorded turn does not change: where the log has some
        pieces of one, what the others say that it does not is a turn that continues it.
        """
        details = Details()
        return Work(steps=self._steps(place, known, details), details=details)

    def _steps(self, place: Place, known: Known, details: Details) -> Iterator[Step]:
        """Give all that is to be recorded, and fill in the details."""
        made: list[tuple[str, ...]] = []  # by entry: its id, or where nothing was said the ids of what it continues
        open_until = -1
        entries = iter(self._settled(known, made, details))
        done = 0
        for index, piece in enumerate(self.transcript.pieces):
            while piece.turn is not None and done <= piece.turn:
                new, last = next(entries)
                done += 1
                if new is not None:
                    draft, payload = new
                    yield Step(draft=draft, payload=place(payload), line=piece.place, whole=False)
                    open_until = max(open_until, last)
            if index in known.pieces:
                continue
            own = None if piece.turn is None else made[piece.turn]
            yield Step(
                draft=self._event(index, piece),
                payload=place(in_pieces(piece.payload)),
                line=piece.place,
                turn=own[0] if own else None,
                whole=index >= open_until,
            )

    def _settled(
        self, known: Known, made: list[tuple[str, ...]], details: Details
    ) -> Iterable[tuple[tuple[TurnDraft, Payload] | None, int]]:
        """Give for each entry its draft and payload, if it is new, and the index of its last piece."""
        for entry in self.transcript.entries:
            parents = tuple(dict.fromkeys(turn for parent in entry.parents for turn in made[parent]))
            before = dict.fromkeys(turn for part in entry.parts if (turn := known.pieces.get(part.piece)) is not None)
            parts = _new(entry, known, before)
            last = max((part.piece for part in entry.parts), default=-1)
            for turn in before:
                details.turns.setdefault(turn, known.parents.get(turn, parents))
                parents = (turn,)
            usage = not_counted(entry.usage, [known.usage.get(turn) for turn in before])
            if not parts:
                # Said before, or nothing was said at all.
                counted = last if entry.counted is None else entry.counted
                if before and usage is not None and counted not in known.pieces:
                    place = self.transcript.pieces[counted].place
                    details.problems.append(Problem(place=place, what=_TOO_LATE))
                made.append(parents)
                yield None, last
                continue
            draft, payload = self._turn(entry, parts, parents, known.taken, usage)
            if before:
                details.continued.append(draft.id or "")
            details.turns[draft.id or ""] = parents
            made.append((draft.id or "",))
            yield (draft, payload), last

    def report(self, known: Known, works: Sequence[Work[Details]], added: Added) -> TranscriptReport:
        """Return what the import found and did."""
        transcript = self.transcript
        turns = works[-1].details.turns
        continued = {parent for parents in turns.values() for parent in parents}
        late = dict.fromkeys(problem for work in works for problem in work.details.problems)
        redacted: Counter[str] = Counter()
        for each in (*transcript.pieces, *transcript.entries):
            redacted.update(each.redacted)
        sessions = (each.session for each in (*transcript.entries, *transcript.pieces))
        return TranscriptReport(
            path=str(self.path).encode(errors="backslashreplace").decode(),
            format=self.format,
            sessions=tuple(dict.fromkeys(session for session in sessions if session is not None)),
            places=transcript.places,
            blank=transcript.blank,
            damaged=transcript.damaged,
            pieces=dict(sorted(Counter(piece.type for piece in transcript.pieces).items())),
            events_added=added.events,
            turns_added=added.turns,
            turns_known=len(turns) - added.turns,
            continued=tuple(dict.fromkeys(turn for work in works for turn in work.details.continued)),
            roots=tuple(turn for turn, parents in turns.items() if not parents),
            heads=tuple(turn for turn in turns if turn not in continued),
            problems=tuple(sorted((*transcript.problems, *late, *map(_kept, sorted(known.taken))), key=_place)),
            redacted=dict(sorted(redacted.items())) or None,
        )

    def _turn(
        self,
        entry: Entry,
        parts: Sequence[Part],
        parents: tuple[str, ...],
        taken: frozenset[str],
        usage: Usage | None,
    ) -> tuple[TurnDraft, Payload]:
        if entry.document is not None:
            payload = (entry.document,)
        else:
            payload = in_pieces(b"[" + b",".join(block for part in parts for block in part.blocks) + b"]")
        names = (self.format, *entry.key, entry.role, pieces_digest(payload).hex(), *parents)
        draft = TurnDraft(
            id=entry.id or derived_id(entry.time, *names),
            payload=b"",
            continues=parents,
            bookmark=False if entry.bookmark is None or entry.bookmark in taken else entry.bookmark,
            meta=TurnMeta(
                **entry.fields,
                role=entry.role,
                model=entry.model,
                provider=entry.provider,
                api=entry.api,
                usage=usage,
                stop_reason=entry.stop_reason,
                raw_stop_reason=entry.raw_stop_reason,
                error=None if entry.error is None else entry.error[:ERROR_CHARACTERS_MAX],
                origin=Origin(
                    format=self.format,
                    ids=list(entry.ids),
                    session=entry.session,
                    timestamp=entry.timestamp,
                    message_id=entry.message_id,
                    sidechain=entry.sidechain,
                ),
                redacted=dict(sorted(entry.redacted.items())) or None,
            ),
        )
        return draft, payload

    def _event(self, index: int, piece: Piece) -> EventDraft:
        name = topic_name(piece.type)
        return EventDraft(
            id=self._ids[index],
            topic=f"{self._prefix}.{name}",
            meta=PieceMeta(
                id=piece.id,
                session=piece.session,
                type=None if name == piece.type else piece.type,
                redacted=dict(sorted(piece.redacted.items())) or None,
            ),
        )


def _new(entry: Entry, known: Known, turns: Collection[str]) -> Sequence[Part]:
    """Return what the turns of an entry that the log has do not say. A piece that changed can repeat what they do."""
    parts = [part for part in entry.parts if part.piece not in known.pieces]
    if not parts or not turns:
        return parts
    said = sum((known.blocks.get(turn, Counter()) for turn in turns), Counter[bytes]())
    for part in entry.parts:
        if part.piece in known.pieces:
            said.subtract(map(_digest, part.blocks))
    new: list[Part] = []
    for part in parts:
        if blocks := beyond(part.blocks, said, _digest):
            new.append(Part(piece=part.piece, blocks=blocks))
    return new


def _said(payload: bytes | None) -> Counter[bytes]:
    """Return the digests of the blocks of a recorded turn; none where it cannot be read, or has no blocks."""
    if payload is None or payload[:1] != b"[":
        return Counter()
    return Counter(sha256(block).digest() for block in _blocks.decode(payload))


def _digest(block: bytes) -> bytes:
    return pieces_digest(in_pieces(block))


def _event_id(prefix: str, piece: Piece) -> str:
    return derived_id(piece.time, prefix, piece.type, piece.digest, str(piece.ordinal))


def _kept(bookmark: str) -> Problem:
    return Problem(place=0, what=f"bookmark {bookmark!r} stands at another turn here, and stays there")


def _place(problem: Problem) -> int:
    return problem.place
