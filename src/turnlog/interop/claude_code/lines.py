"""From the bytes of a session file to rows: one a line, checked as far as a line can be on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw

from turnlog.errors import FormatError
from turnlog.events.times import parse_time
from turnlog.ids import derived_id
from turnlog.interop.claude_code.content import has_damaged_document
from turnlog.interop.importing import Problem
from turnlog.interop.marked import Marks, begins, text_of
from turnlog.interop.texts import NOT_BASE64, UNKNOWN_TYPE, DamagedError, file_lines, parsed, topic_name
from turnlog.model import ROLES, Usage
from turnlog.record.redaction import NOTHING, Redaction

FORMAT = "claude-code"
"""The name of the format, in origins and before the dot in topics."""

_NAME_CHARACTERS_MAX = 500
"""Names (uuids, ids, models, …) that are longer are taken for damage: metadata is no place for content."""

_TOKENS_MAX = 1 << 53
_TOKENS_DIGITS_MAX = 16

_CONTENT = ("message", "content")
_QUEUED = ("attachment", "prompt")
"""Where content stands in a line: that of a message, and what a person typed while the agent worked."""

_SESSION_NAMES = ("uuid", "sessionId", "leafUuid", "messageId")

_record = msgspec.json.Decoder(dict[str, Raw])
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageRow:
    """The `message` of a user or assistant row, or a prompt that waited until the agent could take it.

    `content` is JSON without whitespace outside strings, with marks.
    """

    role: Literal["user", "assistant", "system"]
    content: bytes
    id: str | None
    model: str | None
    stop_reason: str | None
    usage: Usage | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the file that is a JSON object.

    Attributes:
        number: number of the line, from 1.
        event_id: id of the line's event: the same line of the same file always has the same.
        topic: topic of the line's event.
        payload: payload of the line's event, with marks.
        message: what becomes a turn, or part of one; None for every other row.
        agent: the sub-agent that says it, or is told it.
        started: of a result, the sub-agent that the call started.
        is_meta: the tool said it to the model, and shows it to nobody.
        is_error: the row tells of a failed call of the model.
        redacted: how many of which kind redaction hooks took out of the payload.
        redacted_content: how many of which kind they took out of the content of the message.
        parent_event: the event of the row that it continues, as it was imported if no hook took something out of it,
            where that row was looked up in another file.
    """

    number: int
    event_id: str
    topic: str
    type: str
    payload: bytes
    uuid: str | None
    parent_uuid: str | None
    session: str | None
    timestamp: str | None
    time: datetime | None
    request_id: str | None
    sidechain: bool
    agent: str | None
    started: str | None
    is_meta: bool
    is_error: bool
    message: MessageRow | None
    redacted: Mapping[str, int]
    redacted_content: Mapping[str, int]
    parent_event: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFile:
    """A session file as it was read. `marks` has what the marks in it stand for, `text_bytes` is how much was read."""

    rows: list[Row]
    problems: list[Problem]
    lines: int
    blank_lines: int
    damaged_lines: int
    text_bytes: int
    marks: Marks


def read_session_file(path: Path, redaction: Redaction = NOTHING) -> SessionFile:
    """Read a session file. Redaction hooks see each line before anything else is made of it.

    Raises:
        FormatError: it cannot be read, or no line of it is one of a Claude Code session.
        RedactionError: a redaction hook failed.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    marks = Marks()
    seen: Counter[bytes] = Counter()
    number = blank = damaged = 0
    session_rows = text_bytes = 0
    for number, line in enumerate(file_lines(path), 1):
        if not line.strip():
            blank += 1
            continue
        line, findings = redaction.line(line, FORMAT)  # noqa: PLW2901 - the line as it was is not used any more
        text_bytes += len(line)
        digest = sha256(line).digest()
        ordinal = seen[digest]
        seen[digest] += 1
        try:
            reader = _LineReader(number, line, findings, marks)
        except DamagedError as error:
            damaged += 1
            problems.append(Problem(place=number, what=f"{error}; the line was left out"))
            continue
        rows.append(reader.row(digest.hex(), ordinal))
        problems += reader.problems
        session_rows += reader.of_session
    if not session_rows:
        first = f" (line {problems[0].place}: {problems[0].what.partition(';')[0]})" if damaged else ""
        what = "is empty" if number == blank else f"is not a Claude Code session file: no line of it is one{first}"
        raise FormatError(f"{str(path)!r} {what}; nothing was imported")
    return SessionFile(
        rows=rows,
        problems=problems,
        lines=number,
        blank_lines=blank,
        damaged_lines=damaged,
        text_bytes=text_bytes,
        marks=marks,
    )


def event_id_of(time: datetime | None, digest: str, ordinal: int = 0) -> str:
    """Return the id of a line's event, given its time, the digest of its bytes and how often these came before."""
    return derived_id(time, FORMAT, digest, str(ordinal))


def is_of_session(line: bytes) -> bool:
    """Tell whether a line is one of a session file of Claude Code."""
    try:
        return _LineReader(0, line, (), Marks()).of_session
    except DamagedError:
        return False


_NULL = b"null"
_TIME_BYTES_MAX = 40
"""Of what is no time so much is shown."""


class _LineReader:
    """Reads one line. What is wrong with it, and does not keep it from being a row, is in `problems`."""

    def __init__(self, number: int, line: bytes, findings: Sequence[tuple[str, str]], marks: Marks) -> None:
        """Parse a line, given what was taken out of it: field and kind of each.

        Raises:
            DamagedError: it is not a JSON object in UTF-8.
        """
        self.problems: list[Problem] = []
        self._number = number
        self._findings = findings
        self._minified, repaired = parsed(line, marks)
        if self._minified[:1] != b"{":
            raise DamagedError("not a JSON object")
        self._record = _record.decode(self._minified)
        # An unpaired surrogate is no text. The turn gets a replacement character, the event keeps the line as it is.
        self._exact = line if repaired else None
        if repaired:
            self._report("an unpaired surrogate is not text: read as U+FFFD, the line is kept as it is")
        self.type = self._name(self._record, "type")
        self._attached = (_object(self._record.get("attachment")) or {}) if self.type == "attachment" else {}
        self._is_queued = text_of(self._attached.get("type")) == "queued_command"
        self.of_session = self.type is not None and any(
            self._name(self._record, name) is not None for name in _SESSION_NAMES
        )

    def row(self, digest: str, ordinal: int) -> Row:
        """Return the line as a row, given the digest of its bytes and how often these bytes came before."""
        record = self._record
        uuid = self._name(record, "uuid")
        message, payload = self._message(uuid)
        timestamp = self._name(record, "timestamp")
        time = parse_time(timestamp)
        if message is not None and time is None:
            self._report_time(timestamp)
        if message is not None and has_damaged_document(message.content):
            self._report(NOT_BASE64)
        place = ".".join(_QUEUED if self._is_queued else _CONTENT)
        of_content = [message is not None and field.startswith(place) for field, _ in self._findings]
        of_payload = [not own or payload == self._minified for own in of_content]
        return Row(
            number=self._number,
            event_id=event_id_of(time, digest, ordinal),
            topic=f"{FORMAT}.{topic_name(self.type)}",
            type=UNKNOWN_TYPE if self.type is None else self.type,
            payload=payload if self._exact is None else self._exact,
            uuid=uuid,
            parent_uuid=self._parent_uuid(),
            session=self._name(record, "sessionId"),
            timestamp=timestamp,
            time=time,
            request_id=self._name(record, "requestId"),
            sidechain=record.get("isSidechain") == Raw(b"true"),
            agent=self._name(record, "agentId"),
            started=self._name(_object(record.get("toolUseResult")) or {}, "agentId"),
            is_meta=record.get("isMeta") == Raw(b"true")
            or (self._is_queued and text_of(self._attached.get("commandMode")) not in (None, "prompt")),
            is_error=record.get("isApiErrorMessage") == Raw(b"true"),
            message=message,
            redacted=Counter(kind for (_, kind), is_so in zip(self._findings, of_payload, strict=True) if is_so),
            redacted_content=Counter(
                kind for (_, kind), is_so in zip(self._findings, of_content, strict=True) if is_so
            ),
        )

    def _report_time(self, timestamp: str | None) -> None:
        """Report a time that is none, unless none is given; one that is too long for a name is reported already."""
        given = bytes(self._record.get("timestamp", _NULL))
        if given != _NULL and (timestamp is not None or given[:1] != b'"'):
            said = given[:_TIME_BYTES_MAX].decode(errors="replace") if timestamp is None else repr(timestamp)
            self._report(f"{said} is not a time: the turn is without one")

    def _message(self, uuid: str | None) -> tuple[MessageRow | None, bytes]:
        """Return the message of a user or assistant row, or a prompt that waited, and the row without its content."""
        if self._is_queued:
            return self._queued(uuid)
        if self.type not in ("user", "assistant"):
            return None, self._minified
        message = _object(self._record.get("message"))
        content = bytes(message["content"]) if message and "content" in message else b""
        if uuid is None or message is None or content[:1] not in (b'"', b"["):
            lacks = "uuid" if uuid is None else "message" if message is None else "message.content"
            self._report(f"{self.type} row without a usable {lacks}: kept as an event, it became no turn")
            return None, self._minified
        role: Any = self._name(message, "role")
        if role not in ROLES:
            self._report(f"message.role: {role!r} is unknown, taken as {self.type!r}")
            role = self.type
        found = MessageRow(
            role=role,
            content=content,
            id=self._name(message, "id"),
            model=self._name(message, "model"),
            stop_reason=self._name(message, "stop_reason"),
            usage=_usage(message.get("usage")),
        )
        return found, self._without(message, *_CONTENT)

    def _queued(self, uuid: str | None) -> tuple[MessageRow | None, bytes]:
        """Return a prompt that waited as a message of the user, if it is one, and the row without it."""
        prompt = bytes(self._attached.get("prompt", b""))
        if uuid is None or prompt[:1] not in (b'"', b"["):
            return None, self._minified
        found = MessageRow(role="user", content=prompt, id=None, model=None, stop_reason=None, usage=None)
        return found, self._without(self._attached, *_QUEUED)

    def _without(self, part: Mapping[str, Raw], name: str, key: str) -> bytes:
        """Return the row without a key of a part of it, which is an object."""
        whole = _encoder.encode(self._record), _encoder.encode(part)
        if whole != (self._minified, bytes(self._record[name])):
            return self._minified  # a key comes twice, or is spelled with escapes: only the whole line keeps that
        rest = {own: raw for own, raw in part.items() if own != key}
        return _encoder.encode({**self._record, name: rest})

    def _parent_uuid(self) -> str | None:
        """Return what the row continues: the parent that it names, or behind a compaction the logical one."""
        raw = self._record.get("parentUuid")
        parent = self._name(self._record, "parentUuid")
        if raw is not None and parent is None and raw != Raw(b"null"):
            self._report("parentUuid is not a uuid: taken as null")
        return self._name(self._record, "logicalParentUuid") if parent is None else parent

    def _name(self, record: Mapping[str, Raw], key: str) -> str | None:
        """Return the text under a key, or None where there is none that can be a name."""
        text = text_of(record.get(key))
        if text is not None and len(text) > _NAME_CHARACTERS_MAX:
            self._report(f"{key} has {len(text):,} characters, more than {_NAME_CHARACTERS_MAX}: taken as absent")
            return None
        return text

    def _report(self, what: str) -> None:
        problem = Problem(place=self._number, what=what)
        if problem not in self.problems:
            self.problems.append(problem)


def _object(raw: Raw | None) -> dict[str, Raw] | None:
    return _record.decode(raw) if begins(raw, b"{") else None


def _usage(raw: Raw | None) -> Usage | None:
    """Return the counts of a usage snapshot that are counts; its other parts stay in the line's event."""
    record = _object(raw)
    if record is None:
        return None
    counts = dict(_counts(record))
    return Usage(**counts) if counts else None


def _counts(record: Mapping[str, Raw]) -> Iterator[tuple[str, int]]:
    for name in Usage.__struct_fields__:
        raw = bytes(record.get(name, b""))
        if raw.isdigit() and len(raw) <= _TOKENS_DIGITS_MAX and (value := int(raw)) <= _TOKENS_MAX:
            yield name, value
