"""The import of a session file: everything that is new of it, in one transaction.

What is new depends on the log, and payloads are placed before the transaction. So the log is read first, and the plan
looks again if the log has grown since: if that made a difference, all starts over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import Event
from turnlog.interop.claude_code.chains import Links, TurnRows, group, link
from turnlog.interop.claude_code.drafts import event_draft, turn_draft
from turnlog.interop.claude_code.lines import FORMAT, SessionFile, read_session_file
from turnlog.interop.claude_code.report import ImportReport, LineMeta, Problem
from turnlog.record import EventDraft, TurnDraft, plan_event, plan_turn
from turnlog.store import NewPayload, ReadTransaction, Store, WriteTransaction

Progress = Callable[[int, int], None]
_line_meta = msgspec.json.Decoder(LineMeta)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    """A session file and how its rows hang together, whatever is in the log."""

    file: SessionFile
    links: Links


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What the log has of a session file.

    Attributes:
        lines: the turn of each line that is in the log, None for none, by index of its row.
        parents: what the turns of these lines continue.
        found: the turn of each uuid that the file lacks and another file brought, None for a row that has no turn.
    """

    lines: Mapping[int, str | None]
    parents: Mapping[str, tuple[str, ...]]
    found: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    """One thing to record, with its payload placed: a turn, or the event of a line."""

    draft: TurnDraft | EventDraft
    payload: NewPayload
    line: int
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    """All that is to be recorded, in order, and what the file then is in the log.

    Attributes:
        steps: what to record. A turn that another file brought meanwhile is skipped.
        turns: what each turn of the file continues, by turn id, in file order.
        continued_messages: ids of the messages that go on.
    """

    steps: list[_Step]
    turns: Mapping[str, tuple[str, ...]]
    continued_messages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Added:
    turns: int
    events: int


def import_session(store: Store, path: Path, *, progress: Progress | None = None) -> ImportReport:
    """Import a session file of Claude Code: all that is new of it, in one transaction. On return it is on disk.

    Every line becomes an event of the topic `claude-code.<type>`, every user row a turn, and the rows of one assistant
    message together a turn. Importing a file again adds nothing, importing a longer version of it what is new.

    Args:
        store: where to record it.
        path: the session file, JSON lines.
        progress: called with lines done and lines in all.

    Raises:
        FormatError: the file cannot be read, or no line of it is one of a Claude Code session. Nothing was written.
        StoreError: the store cannot do its work. Nothing was written.
    """
    file = read_session_file(path)
    session = _Session(file=file, links=link(file.rows))
    while True:
        with store.read() as transaction:
            end, known = _end(transaction), _look_up(transaction, session)
        work = _prepare(store, session, known)
        plan = partial(_record, session=session, end=end, known=known, work=work, progress=progress)
        added = store.write(plan)
        if added is not None:
            return _report(path, session, known, work, added)


def _end(transaction: ReadTransaction) -> int:
    [(end,)] = transaction.rows("SELECT COALESCE(MAX(notification_id), 0) FROM stored_events")
    return end


def _look_up(transaction: ReadTransaction, session: _Session) -> _Known:
    """Read what the log has of a session file: its lines, and the rows of other files that it refers to."""
    lines: dict[int, str | None] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for index, row in enumerate(session.file.rows):
        recorded = transaction.event(row.event_id)
        if recorded is None:
            continue
        turn = _turn_of(recorded.event)
        if turn is not None and turn not in parents:
            event = transaction.event(turn)
            if event is None:
                raise CorruptionError(f"event {row.event_id!r} names the turn {turn!r}, which the log does not have")
            parents[turn] = tuple(parent.id for parent in event.event.parents)
        lines[index] = turn
    return _Known(lines=lines, parents=parents, found=_find(transaction, set(session.links.missing.values())))


def _find(transaction: ReadTransaction, uuids: set[str]) -> dict[str, str | None]:
    """Return the turns of rows that other files brought, by uuid; the latest where there are several."""
    found: dict[str, str | None] = {}
    if not uuids:
        return found
    topics = transaction.rows("SELECT DISTINCT topic FROM stored_events WHERE topic LIKE ?", (f"{FORMAT}.%",))
    if not topics:
        return found
    for recorded in transaction.log(topics=[topic for (topic,) in topics]):
        meta = _meta(recorded.event)
        if isinstance(meta.uuid, str) and meta.uuid in uuids:
            found[meta.uuid] = meta.turn if isinstance(meta.turn, str) else None
    return found


def _turn_of(event: Event) -> str | None:
    turn = _meta(event).turn
    return turn if isinstance(turn, str) else None


def _meta(event: Event) -> LineMeta:
    try:
        return _line_meta.decode(event.meta)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"metadata of event {event.id!r} cannot be read: {error}") from error


def _prepare(store: Store, session: _Session, known: _Known) -> _Work:
    """Settle what is to be recorded, with all payloads placed."""
    rows = session.file.rows
    in_log = {
        turn: TurnRows(turn_id=turn, known=True) for turn in (*known.parents, *known.found.values()) if turn is not None
    }
    turn_rows = group(
        rows,
        session.links,
        {i: in_log[turn] for i, turn in known.lines.items() if turn is not None and rows[i].message is not None},
        {uuid: in_log[turn] if turn is not None else None for uuid, turn in known.found.items()},
    )
    steps: list[_Step] = []
    turns: dict[str, tuple[str, ...]] = {}
    continued: dict[str, None] = {}
    for index, row in enumerate(rows):
        own = turn_rows[index]
        for turn in _without_id(own):
            draft = turn_draft(rows, turn)
            turn.turn_id = turn_id = draft.id or ""
            turns[turn_id] = draft.continues
            steps.append(_Step(draft=draft, payload=store.place(draft.payload), line=row.number, id=turn_id))
            message = rows[turn.rows[0]].message
            if turn.goes_on and message is not None and message.id is not None:
                continued[message.id] = None
        own_id = None if own is None else own.turn_id
        if own is not None and own.rows and own_id is not None and own_id in known.parents:
            turns.setdefault(own_id, known.parents[own_id])
        if index not in known.lines:
            draft = event_draft(row, own_id)
            steps.append(_Step(draft=draft, payload=store.place(row.payload), line=row.number, id=row.event_id))
    return _Work(steps=steps, turns=turns, continued_messages=tuple(continued))


def _without_id(turn: TurnRows | None) -> Iterable[TurnRows]:
    """Return a turn and what it continues, oldest first, as far as they have no id yet."""
    path: list[TurnRows] = []
    while turn is not None and turn.turn_id is None:
        path.append(turn)
        turn = turn.parent
    return reversed(path)


def _record(
    transaction: WriteTransaction,
    *,
    session: _Session,
    end: int,
    known: _Known,
    work: _Work,
    progress: Progress | None,
) -> _Added | None:
    """Record all that is new. Return None, and record nothing, if the log has got more of the file meanwhile."""
    if _end(transaction) != end and _look_up(transaction, session) != known:
        return None
    turns = events = 0
    for step in work.steps:
        if isinstance(step.draft, EventDraft):
            plan_event(transaction, step.draft, step.payload, step.id)
            events += 1
        elif transaction.event(step.id) is None:  # else a copy of the session brought it
            plan_turn(transaction, step.draft, step.payload, step.id)
            turns += 1
        if progress is not None:
            progress(step.line, session.file.lines)
    if progress is not None:
        progress(session.file.lines, session.file.lines)
    return _Added(turns=turns, events=events)


def _report(path: Path, session: _Session, known: _Known, work: _Work, added: _Added) -> ImportReport:
    file = session.file
    types = Counter(row.type for row in file.rows)
    continued = {parent for parents in work.turns.values() for parent in parents}
    problems = [*file.problems, *session.links.problems]
    problems += [
        Problem(line=file.rows[index].number, what=_orphan(uuid, is_turn=file.rows[index].message is not None))
        for index, uuid in session.links.missing.items()
        if uuid not in known.found
    ]
    return ImportReport(
        path=str(path).encode(errors="backslashreplace").decode(),
        sessions=tuple(dict.fromkeys(row.session for row in file.rows if row.session is not None)),
        lines=file.lines,
        blank_lines=file.blank_lines,
        damaged_lines=file.damaged_lines,
        line_types=dict(sorted(types.items())),
        events_added=added.events,
        turns_added=added.turns,
        turns_known=len(work.turns) - added.turns,
        continued_messages=work.continued_messages,
        roots=tuple(turn for turn, parents in work.turns.items() if not parents),
        heads=tuple(turn for turn in work.turns if turn not in continued),
        problems=tuple(sorted(problems, key=lambda problem: problem.line)),
    )


def _orphan(uuid: str, *, is_turn: bool) -> str:
    done = "its turn starts a thread" if is_turn else "it belongs to no turn"
    return f"parentUuid {uuid!r} is neither in the file nor in the log: {done}"
