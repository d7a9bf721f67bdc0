"""What a transcript of somebody else's is, whatever its format: pieces of a file, and the turns that they are.

A reader of a format makes a `Transcript` with a `Builder`, without the log. A piece is a JSON text of the file (a line,
a message, a part of one, a row of a table) that becomes an event; what of it is content becomes blocks of a turn, and
is left out of the event. So each piece belongs to one turn at most: what goes to two turns is two pieces.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw

from turnlog.digest import pieces_digest
from turnlog.errors import ContentError
from turnlog.events.times import parse_time
from turnlog.interop.importing import Problem
from turnlog.interop.marked import Marks, begins, in_pieces, is_base64_text
from turnlog.interop.texts import NOT_BASE64, DamagedError, parsed
from turnlog.interop.transcripts.blocks import checked_block, native_block
from turnlog.model import TurnMeta, Usage
from turnlog.record import Redaction, TurnDraft

Role = Literal["user", "assistant", "system"]
Path = tuple[str, ...]
"""The names of the keys that lead to something in a JSON object."""

_record = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_LAST = "\U0010ffff"
"""The last character of all: what a place is followed by, such as a dot, is before it."""

_TIME_CHARACTERS_MAX = 40
"""How much is shown of what stands where a time is expected."""

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A JSON text of the file, without what of it is content of a turn.

    Attributes:
        place: number of the line, document or row that it stands in, from 1; what `Problem.place` means.
        type: what kind of piece it is, in the format's own word.
        digest: SHA-256 of the whole text, hexadecimal: with `ordinal` what tells it from others.
        ordinal: how many pieces of the same type and text come before it.
        payload: JSON text, with marks.
        time: when it was written.
        id: the id that it has in the format.
        session: the session that it is of.
        turn: index of the entry that it is of; None for none.
        redacted: how many of which kind redaction hooks took out of the payload.
    """

    place: int
    type: str
    digest: str
    ordinal: int
    payload: bytes
    time: datetime | None
    id: str | None
    session: str | None
    turn: int | None
    redacted: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The blocks that a piece gives to its turn, as JSON texts of content blocks of the log, with marks."""

    piece: int
    blocks: Sequence[bytes]


@dataclass(kw_only=True, slots=True)
class Entry:
    """A turn of the transcript.

    Attributes:
        role: who speaks.
        parents: indexes of the entries that it continues, each smaller than its own.
        key: names that are the same each time that the file is read, and in each copy of it; they need not tell turns
            of different content or parents apart.
        time: when it was said.
        timestamp: the same as the file spells it.
        session: the session that it is of.
        message_id: the provider's id of the message.
        ids: the ids that its pieces have in the format, as keys.
        sidechain: it was said to a sub-agent.
        redacted: how many of which kind redaction hooks took out of its content.
        id: the id to record it under, where it is to keep its own.
        bookmark: the bookmark that it moves, if that does not stand at a turn of somebody else's.
        counted: index of the piece that says the usage, where that can come later than what was said.
        document: a file's bytes, where it is a document and no content blocks.
        fields: further metadata of the turn, as `TurnMeta` has it.
    """

    role: Role
    parents: Sequence[int] = ()
    key: Sequence[str] = ()
    parts: list[Part] = field(default_factory=list[Part])
    time: datetime | None = None
    timestamp: str | None = None
    session: str | None = None
    message_id: str | None = None
    ids: dict[str, None] = field(default_factory=dict[str, None])
    sidechain: bool = False
    model: str | None = None
    provider: str | None = None
    api: str | None = None
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    counted: int | None = None
    error: str | None = None
    redacted: Counter[str] = field(default_factory=Counter[str])
    id: str | None = None
    bookmark: str | None = None
    document: bytes | None = None
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """A file that was read.

    Attributes:
        pieces: all that it has, in the order in which it is recorded.
        entries: the turns, parents first.
        problems: what is damaged or unknown.
        places: how many lines, documents or rows it has.
        blank: how many of these have nothing in them, and are not kept.
        damaged: how many could not be read, and are not kept.
        text_bytes: how many bytes of text were read.
        marks: what the marks in it stand for.
    """

    pieces: Sequence[Piece]
    entries: Sequence[Entry]
    problems: Sequence[Problem]
    places: int
    blank: int
    damaged: int
    text_bytes: int
    marks: Marks


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A JSON text as it stands in the file, after redaction.

    Attributes:
        place: where it stands.
        text: JSON text without whitespace outside strings, with marks for long ones.
        findings: what redaction hooks took out of it: field and kind of each, sorted.
    """

    place: int
    text: bytes
    findings: Sequence[tuple[str, str]] = ()

    def record(self) -> dict[str, Raw]:
        """Return its fields; none where it is no object."""
        return _record.decode(self.text) if self.text[:1] == b"{" else {}

    def findings_in(self, at: str) -> list[tuple[str, str]]:
        """Return the findings in a part of it, by their fields in that. `at` is where it stands.

        The others are not gone through: a text can have as many of them as it has parts.
        """
        first, end = (bisect_left(self.findings, (each,)) for each in (at, at + _LAST))
        return sorted(
            (field[len(at) :].lstrip("."), kind) for field, kind in self.findings[first:end] if _is_in(field, at)
        )


class Builder:
    """Gathers the pieces and turns of a file."""

    def __init__(self, format: str, redaction: Redaction) -> None:
        """Take the name of the format, which its topics begin with, and the hooks that see all before anything else."""
        self.format = format
        self._redaction = redaction
        self.entries: list[Entry] = []
        self._pieces: list[Piece] = []
        self._problems: list[Problem] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._damaged = 0
        self._clean: dict[str, str] = {}
        self._marks = Marks()
        self._text_bytes = 0
        self._dated: set[int] = set()

    def text(self, place: int, raw: bytes) -> Given | None:
        """Redact and parse a JSON text of the file; None, and a problem, where it is damaged.

        Raises:
            RedactionError: a redaction hook failed.
        """
        raw, findings = self._redaction.line(raw, self.format)
        self._text_bytes += len(raw)
        try:
            text, repaired = parsed(raw, self._marks)
        except DamagedError as error:
            self.damaged(place, f"{error}; it was left out")
            return None
        if repaired:
            self.problem(place, "an unpaired surrogate is not text: read as U+FFFD")
        return Given(place=place, text=text, findings=sorted(findings))

    def clean(self, name: str) -> str:
        """Redact a name that is taken from what was not redacted as a text of the file, or a line about it.

        Raises:
            RedactionError: a redaction hook failed.
        """
        if name not in self._clean:
            raw, _ = self._redaction.line(_encoder.encode(name), self.format)
            self._clean[name] = msgspec.json.decode(raw, type=str)
        return self._clean[name]

    def document(self, payload: bytes, meta: TurnMeta) -> tuple[bytes, TurnMeta]:
        """Redact a document, and return it with its metadata.

        Raises:
            RedactionError: a redaction hook failed.
        """
        draft = self._redaction.turn(TurnDraft(payload=payload, meta=meta))
        return draft.payload, draft.meta

    def piece(  # noqa: PLR0913 - one argument for each thing that can be said of a piece
        self,
        given: Given,
        type: str,
        *,
        at: Path = (),
        text: bytes | None = None,
        turn: int | None = None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[Path] = (),
        time: datetime | None = None,
        id: str | None = None,
        session: str | None = None,
    ) -> int:
        """Add a piece, and its blocks to its turn. Return its index.

        Args:
            given: the text that it is, or is a part of.
            type: what kind of piece it is.
            at: where in the text it stands; () for all of it, or where `text` is given.
            text: what it is, where that is not all of `given`.
            turn: index of the entry that it is of.
            blocks: what it gives to the turn, if it is a part of what that says; none for a document. What they are
                made of must be named in `moved`. Where they are empty, the turn is there, also if nothing else is said.
            moved: where in the piece that stands which is in the turn: it is left out of the event.
            time: when it was written.
            id: its id in the format.
            session: the session that it is of.
        """
        whole = given.text if text is None else text
        digest = pieces_digest(in_pieces(whole)).hex()
        ordinal = self._seen[type, digest]
        self._seen[type, digest] += 1
        here = ".".join(at)
        own = [(field.removeprefix(here).lstrip("."), kind) for field, kind in given.findings if _is_in(field, here)]
        in_turn = Counter(kind for field, kind in own if any(_is_in(field, ".".join(path)) for path in moved))
        index = len(self._pieces)
        self._pieces.append(
            Piece(
                place=given.place,
                type=type,
                digest=digest,
                ordinal=ordinal,
                payload=without(whole, moved),
                time=time,
                id=id,
                session=session,
                turn=turn,
                redacted=Counter(kind for _, kind in own) - in_turn,
            )
        )
        if turn is not None:
            entry = self.entries[turn]
            self._check_time(given.place, turn, entry)
            if blocks is not None:
                entry.parts.append(Part(piece=index, blocks=[self._checked(given.place, block) for block in blocks]))
            if id is not None:
                entry.ids[id] = None
            entry.redacted.update(in_turn)
        return index

    def _checked(self, place: int, block: bytes) -> bytes:
        """Return a block; one that has something else in it than a block can have as a native one."""
        try:
            checked = checked_block(block)
        except (ContentError, msgspec.DecodeError) as error:
            self.problem(place, f"{error}: kept as a native block")
            return native_block(self.format, Raw(block))
        return self._with_documents(place, checked) if b'"base64"' in checked else checked

    def _with_documents(self, place: int, block: bytes) -> bytes:
        """Return a block; where a document, or one in a result, has no base64, that is a native one."""
        record = _record.decode(block)
        kind = msgspec.json.decode(record["type"], type=str)
        if kind == "document" and not _is_base64(record["source"]):
            self.problem(place, NOT_BASE64)
            return native_block(self.format, Raw(block))
        if kind == "tool_result" and begins(record["content"], b"["):
            content = [self._with_documents(place, bytes(each)) for each in _list.decode(record["content"])]
            whole = b"[" + b",".join(content) + b"]"
            return block if whole == bytes(record["content"]) else _encoder.encode(record | {"content": Raw(whole)})
        return block

    def _check_time(self, place: int, turn: int, entry: Entry) -> None:
        """Say once where the time of a turn is none; its spelling is kept."""
        if turn not in self._dated:
            self._dated.add(turn)
            if entry.timestamp is not None and entry.time is None and parse_time(entry.timestamp) is None:
                shown = entry.timestamp[:_TIME_CHARACTERS_MAX]
                self.problem(place, f"{shown!r} is not a time: the turn is without one")

    def entry(self, entry: Entry) -> int:
        """Add a turn; what it says comes with its pieces. Return its index."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def damaged(self, place: int, what: str) -> None:
        """Say that what is at a place cannot be read."""
        self._damaged += 1
        self.problem(place, what)

    def problem(self, place: int, what: str) -> None:
        """Say what is wrong at a place, and what was done about it."""
        problem = Problem(place=place, what=self.clean(what))
        if problem not in self._problems[-20:]:
            self._problems.append(problem)

    def done(self, *, places: int, blank: int = 0) -> Transcript:
        """Return the transcript."""
        return Transcript(
            pieces=self._pieces,
            entries=self.entries,
            problems=self._problems,
            places=places,
            blank=blank,
            damaged=self._damaged,
            text_bytes=self._text_bytes,
            marks=self._marks,
        )


def without(text: bytes, paths: Sequence[Path]) -> bytes:
    """Return a JSON object without some of its fields, all else as it is spelled.

    Where a key comes twice, or is spelled with escapes, only the whole text keeps that, and is returned.
    """
    rest = _without(text, paths)
    return text if rest is None else rest


def _without(text: bytes | Raw, paths: Sequence[Path]) -> bytes | None:
    """Return a JSON object without some of its fields; None for all of it."""
    view = memoryview(text)
    if not paths or bytes(view[:1]) != b"{":
        return None
    record = _record.decode(text)
    if not _is_spelled(record, view):
        return None
    inside: dict[str, list[Path]] = {}
    for path in filter(None, paths):
        inside.setdefault(path[0], []).append(path[1:])
    for name, deeper in inside.items():
        if name not in record:
            continue
        if () in deeper:
            del record[name]
        elif (changed := _without(record[name], deeper)) is not None:
            record[name] = Raw(changed)
    return _encoder.encode(record)


def _is_spelled(record: Mapping[str, Raw], text: memoryview) -> bool:
    """Tell whether the fields of an object are all that its text has, spelled as the codec does."""
    place = 1
    for name, value in record.items():
        spelled = _encoder.encode(name) + b":"
        if bytes(text[place : place + len(spelled)]) != spelled:
            return False
        place += len(spelled) + len(memoryview(value)) + 1  # a comma, or the end
    return place == max(len(text), 2)


def _is_base64(source: Raw) -> bool:
    """Tell whether the source of a document has padded base64, as providers take it."""
    return is_base64_text(_record.decode(source)["data"])


def _is_in(field: str, place: str) -> bool:
    """Tell whether a field is at a place of a JSON text, or in it."""
    return not place or field == place or field.startswith((f"{place}.", f"{place}["))
