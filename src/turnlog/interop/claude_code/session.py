"""A session file as a source: what of it is in the log, and what is to be recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import Struct, field

from turnlog.errors import CorruptionError
from turnlog.events import Recorded
from turnlog.interop.claude_code.chains import Links, TurnRows, group, link
from turnlog.interop.claude_code.counted import Counted, Counts
from turnlog.interop.claude_code.drafts import event_draft, is_copy, turn_draft
from turnlog.interop.claude_code.going_on import started_elsewhere
from turnlog.interop.claude_code.lacking import lacking
from turnlog.interop.claude_code.lines import FORMAT, Row, SessionFile, is_of_session, read_session_file
from turnlog.interop.claude_code.report import LineMeta
from turnlog.interop.importing import Added, Importer, Place, Problem, Source, Step, TranscriptReport, Work
from turnlog.interop.marked import in_pieces
from turnlog.interop.texts import RECOGNIZED_LINES, split_lines
from turnlog.record import Redaction
from turnlog.store import ReadTransaction

_line_meta = msgspec.json.Decoder(LineMeta)


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What the log has of a session file.

    Attributes:
        lines: the turn of each line that is in the log, None for none, by index of its row.
        parents: what the turns of these lines continue.
        found: the turn of each uuid that the file lacks and another file brought, None for a row that has no turn.
        counted: the turns of each message, whatever file brought them, and what each has of its usage.
    """

    lines: Mapping[int, str | None]
    parents: Mapping[str, tuple[str, ...]]
    found: Mapping[str, str | None]
    counted: Counts


class Details(Struct, frozen=True, kw_only=True):
    """What a file is in the log: filled in while its steps are taken.

    Attributes:
        turns: what each turn of the file continues, by turn id, in file order.
        continued: ids of the turns that go on with an earlier one, of fragments of the same message.
        problems: results that are not where they are looked for.
    """

    turns: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    continued: list[str] = field(default_factory=list[str])
    problems: list[Problem] = field(default_factory=list[Problem])


class ClaudeCode(Importer):
    """Session files of Claude Code.

    Every line becomes an event of the topic `claude-code.<type>`, every user row a turn, and the rows of one assistant
    message together a turn. Importing a file again adds nothing, importing a longer version of it what is new.
    """

    name = FORMAT
    summary = "session files of Claude Code: all that is new of them"

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - the path says nothing
        """Tell whether one of the first lines is of a session."""
        return any(map(is_of_session, split_lines(beginning)[:RECOGNIZED_LINES]))

    def read(self, path: Path, redaction: Redaction) -> Session:
        """Read a session file, JSON lines.

        Raises:
            FormatError: it cannot be read, or no line of it is one of a Claude Code session.
            RedactionError: a redaction hook failed.
        """
        file = read_session_file(path, redaction)
        file = replace(file, rows=started_elsewhere(path, file.rows))
        return Session(path, file, link(file.rows))


class Session(Source[Known, Details]):
    """A session file and how its rows hang together, whatever is in the log."""

    def __init__(self, path: Path, file: SessionFile, links: Links) -> None:
        """Take what was read."""
        self.path = path
        self.file = file
        self.links = links
        self.lines = file.lines
        self.text_bytes = file.text_bytes

    def look_up(self, transaction: ReadTransaction) -> Known:
        """Read what the log has of the file: its lines, and the rows of other files that it refers to."""
        lines: dict[int, str | None] = {}
        parents: dict[str, tuple[str, ...]] = {}
        counted = Counted()
        for index, row in enumerate(self.file.rows):
            recorded = transaction.event(row.event_id)
            if recorded is None:
                continue
            turn = recorded.header.cited("turn")
            if turn is not None and turn not in parents:
                event = transaction.event(turn)
                if event is None:
                    raise CorruptionError(
                        f"event {row.event_id!r} names the turn {turn!r}, which the log does not have"
                    )
                parents[turn] = tuple(parent.id for parent in event.header.parents)
                counted.add(event)
            lines[index] = turn
        messages = [None if row.message is None else row.message.id for row in self.file.rows]
        # Another turn of a message was said when any of its rows was, also one that the log has.
        new = {message for index, message in enumerate(messages) if index not in lines}
        for row, message in zip(self.file.rows, messages, strict=True):
            if message in new:
                counted.find(transaction, row)
        return Known(lines=lines, parents=parents, found=self._found(transaction), counted=counted.turns)

    def _found(self, transaction: ReadTransaction) -> dict[str, str | None]:
        """Return the turns of the rows of other files that the file refers to, by uuid: see `Known`."""
        found: dict[str, str | None] = {}
        missing = self.links.missing
        for index, uuid in missing.items():
            event_id = self.file.rows[index].parent_event
            recorded = None if event_id is None else transaction.event(event_id)
            if recorded is not None and _meta(recorded).uuid == uuid:
                found[uuid] = recorded.header.cited("turn")
        return found | _find(transaction, set(missing.values()) - found.keys())

    def prepare(self, place: Place, known: Known) -> Work[Details]:
        """Settle what is to be recorded, each payload placed when its step is taken."""
        details = Details()
        return Work(steps=self._steps(place, known, details), details=details)

    def _steps(self, place: Place, known: Known, details: Details) -> Iterator[Step]:
        """Give all that is to be recorded, and fill in the details."""
        rows = self.file.rows
        in_log = {
            turn: TurnRows(turn_id=turn, known=True)
            for turn in (*known.parents, *known.found.values())
            if turn is not None
        }
        turn_rows = group(
            rows,
            self.links,
            {i: in_log[turn] for i, turn in known.lines.items() if turn is not None and rows[i].message is not None},
            {uuid: in_log[turn] if turn is not None else None for uuid, turn in known.found.items()},
        )
        counted = {message: dict(turns) for message, turns in known.counted.items()}
        had = {turn for turns in counted.values() for turn in turns}
        copies = 0
        open_until = -1  # the last row of the turns that are begun: the log must not be left with a part of one
        for index, row in enumerate(rows):
            own = turn_rows[index]
            for turn in _without_id(own):
                draft, payload = turn_draft(rows, turn, counted)
                copies += turn.goes_on is None and draft.id not in had and is_copy(rows, turn, draft)
                turn.turn_id = turn_id = draft.id or ""
                details.turns[turn_id] = draft.continues
                yield Step(draft=draft, payload=place(payload), line=row.number, whole=False)
                open_until = max(open_until, *turn.rows)
                if turn.goes_on is not None:
                    details.continued.append(turn_id)
            own_id = None if own is None else own.turn_id
            if own is not None and own.rows and own_id is not None and own_id in known.parents:
                details.turns.setdefault(own_id, known.parents[own_id])
            if index not in known.lines:
                yield Step(
                    draft=event_draft(row),
                    payload=place(in_pieces(row.payload)),
                    line=row.number,
                    turn=own_id,
                    whole=index >= open_until,
                )
        if copies:
            details.problems.append(Problem(place=0, what=_copied(copies)))
        details.problems.extend(lacking(rows, self.links.answers, turn_rows, details.turns))

    def report(self, known: Known, works: Sequence[Work[Details]], added: Added) -> TranscriptReport:
        """Return what the import found and did."""
        file = self.file
        details = works[-1].details
        types = Counter(row.type for row in file.rows)
        continued = {parent for parents in details.turns.values() for parent in parents}
        problems = [*file.problems, *self.links.problems, *details.problems]
        problems += [
            Problem(place=file.rows[index].number, what=_orphan(uuid, is_turn=file.rows[index].message is not None))
            for index, uuid in self.links.missing.items()
            if uuid not in known.found
        ]
        if unfinished := _unfinished(file.rows):
            problems.append(Problem(place=0, what=_partial(unfinished)))
        return TranscriptReport(
            path=str(self.path).encode(errors="backslashreplace").decode(),
            format=FORMAT,
            sessions=tuple(dict.fromkeys(row.session for row in file.rows if row.session is not None)),
            places=file.lines,
            blank=file.blank_lines,
            damaged=file.damaged_lines,
            pieces=dict(sorted(types.items())),
            events_added=added.events,
            turns_added=added.turns,
            turns_known=len(details.turns) - added.turns,
            continued=tuple(dict.fromkeys(turn for work in works for turn in work.details.continued)),
            roots=tuple(turn for turn, parents in details.turns.items() if not parents),
            heads=tuple(turn for turn in details.turns if turn not in continued),
            problems=tuple(sorted(problems, key=lambda problem: problem.place)),
            redacted=dict(
                sorted(_sum(found for row in file.rows for found in (row.redacted, row.redacted_content)).items())
            )
            or None,
        )


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _find(transaction: ReadTransaction, uuids: set[str]) -> dict[str, str | None]:
    """Return the turns of rows that other files brought, by uuid; the latest where there are several."""
    found: dict[str, str | None] = {}
    if not uuids:
        return found
    topics = [topic for topic in transaction.rare_topics() if topic.startswith(f"{FORMAT}.")]
    for recorded in transaction.log(topics=topics) if topics else ():
        uuid = _meta(recorded).uuid
        if isinstance(uuid, str) and uuid in uuids:
            found[uuid] = recorded.header.cited("turn")
    return found


def _meta(recorded: Recorded) -> LineMeta:
    if recorded.private is None:
        return LineMeta()
    try:
        return _line_meta.decode(recorded.private.meta)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"metadata of event {recorded.header.id!r} cannot be read: {error}") from error


def _without_id(turn: TurnRows | None) -> Iterable[TurnRows]:
    """Return a turn and what it continues, oldest first, as far as they have no id yet."""
    path: list[TurnRows] = []
    while turn is not None and turn.turn_id is None:
        path.append(turn)
        turn = turn.parent
    return reversed(path)


def _unfinished(rows: Sequence[Row]) -> int:
    """Return how many messages of a model say what they took, and in none of their rows why they stopped."""
    ended: dict[str | int, bool] = {}
    for row in rows:
        if row.type == "assistant" and row.message is not None and row.message.usage is not None:
            name = row.number if row.message.id is None else row.message.id
            ended[name] = ended.get(name, False) or row.message.stop_reason is not None
    return len(ended) - sum(ended.values())


def _partial(replies: int) -> str:
    one = "1 reply says what it took, and not why it"
    said = one if replies == 1 else f"{replies:,} replies say what they took, and not why they"
    return f"{said} stopped: the output tokens can be those of the beginning, and too few"


def _copied(replies: int) -> str:
    one = "1 reply is a copy of one that was counted"
    said = one if replies == 1 else f"{replies:,} replies are copies of ones that were counted"
    return f"{said}, by their ids: without the usage that was copied with it"


def _orphan(uuid: str, *, is_turn: bool) -> str:
    done = "its turn starts a thread" if is_turn else "it belongs to no turn"
    return f"parentUuid {uuid!r} is neither in the file nor in the log: {done}"
