"""The contract of importers, and the one loop that runs them.

An importer reads a file of somebody else's into a `Source`: all that can be said of it without the log. What is new of
it depends on the log, and payloads are placed before the transaction. So the loop looks up what the log has, lets the
source say what is to be recorded, and records it in groups, so that others can append meanwhile. Where somebody else
brought some of it in between, all starts over from what is there by then; what stops in the middle is completed by the
same import again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from turnlog.errors import tell_what_went_in
from turnlog.events import cite
from turnlog.record import EventDraft, Redaction, TurnDraft, general_key, placed, plan_event, plan_turn
from turnlog.record.sealing import key_after
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, NewPayload, Payload, ReadTransaction, Store, WriteTransaction, payloads

GROUP_STEPS_MAX = 500
GROUP_BYTES_MAX = 8 * 1024 * 1024
"""How much is recorded in one transaction, so that no other append waits for long."""

ESCAPED_BYTES_MAX = 6
"""How many bytes one of a text can be in JSON, and about how large a payload can be for one byte of a file."""

K = TypeVar("K")
D = TypeVar("D")
Place = Callable[[Payload], NewPayload]
Progress = Callable[[int, int], None]
"""Called now and then with lines done and lines in all."""


class Step(Struct, frozen=True, kw_only=True):
    """One thing to record, with its payload placed.

    Attributes:
        draft: a turn, or an event of the format's own topic. Both have an id.
        payload: its payload.
        line: the line that it comes from, for progress.
        turn: of an event, the turn that it cites, if it is of one.
        whole: whether the import may be left after this step, so that it can go on from there another time.
    """

    draft: TurnDraft | EventDraft
    payload: NewPayload
    line: int
    turn: str | None = None
    whole: bool = True


class Work(Struct, Generic[D], frozen=True, kw_only=True):
    """All that is to be recorded, in order, and what the report will say of it.

    Attributes:
        steps: they are taken once, a group at a time, so that what was recorded need not be held: a payload is best
            placed when its step is taken.
        details: they need be complete only when all steps were taken.
    """

    steps: Iterable[Step]
    details: D


class Added(Struct, frozen=True, kw_only=True):
    """What an import has recorded."""

    turns: int = 0
    events: int = 0


class Problem(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be in a file.

    Attributes:
        place: number of the line, document or row, from 1; 0 for the file as a whole.
        what: one line that says what is wrong and what was done about it.
    """

    place: int
    what: str


class TranscriptReport(Struct, frozen=True, kw_only=True):
    """What an import of a transcript found and did.

    Attributes:
        path: the file or folder.
        format: its format.
        sessions: ids of its sessions, in the order in which they begin.
        places: number of its lines, documents or rows: each is in `pieces`, blank, damaged, or says nothing new.
        blank: those without anything, which are not kept.
        damaged: those that could not be read, which are not kept; `problems` names each.
        pieces: number of pieces by type, sorted by type. Each is an event of the log.
        events_added: events of pieces that were new, turns not counted.
        turns_added: turns that were new.
        turns_known: turns of the file that the log had already.
        continued: turns that go on with one that was imported when the file ended in the middle of it.
        roots: ids of the turns of the file that continue nothing, in file order.
        heads: ids of the turns of the file that no other turn of the file continues, in file order.
        problems: what is wrong with the file, by place.
        redacted: how many of which kind redaction hooks took out of the file, whether it was new or known.
    """

    path: str
    format: str
    sessions: tuple[str, ...]
    places: int
    blank: int
    damaged: int
    pieces: dict[str, int]
    events_added: int
    turns_added: int
    turns_known: int
    continued: tuple[str, ...]
    roots: tuple[str, ...]
    heads: tuple[str, ...]
    problems: tuple[Problem, ...]
    redacted: dict[str, int] | None = None


class Source(ABC, Generic[K, D]):
    """A file that was read, whatever is in the log.

    Attributes:
        lines: how many lines it has.
        text_bytes: how many bytes they have. Where these may make a payload that is too large, all is prepared once
            before any of it is recorded.
    """

    lines: int
    text_bytes: int = 0

    @abstractmethod
    def look_up(self, transaction: ReadTransaction) -> K:
        """Return what the log has of the file. Two of these are equal if the same is left to do."""

    @abstractmethod
    def prepare(self, place: Place, known: K) -> Work[D]:
        """Say what is to be recorded, given what the log has."""

    @abstractmethod
    def report(self, known: K, works: Sequence[Work[D]], added: Added) -> TranscriptReport:
        """Return what the import found and did. A format that has more to say returns a subclass.

        Args:
            known: what the log had of the file when the last of `works` was prepared.
            works: what was prepared, each time from what the log had by then.
            added: what was recorded in all.
        """


class Importer(ABC):
    """A format that can be imported.

    Attributes:
        name: its name, as on the command line.
        summary: one line for people.
    """

    name: str
    summary: str

    def recognizes(self, path: Path, beginning: bytes) -> bool:  # noqa: ARG002 - others look
        """Tell whether a file or folder is of this format, given the first 64 KiB of a file."""
        return False

    @abstractmethod
    def read(self, path: Path, redaction: Redaction) -> Source[Any, Any]:
        """Read a file. The redaction hooks see all of it before anything is made of it, ids and hashes too.

        Raises:
            RedactionError: a hook failed. Nothing was imported.
            FormatError: it is not of this format, or cannot be read. The message ends with "nothing was imported".
        """


def run_import(
    store: Store, source: Source[K, D], sources: Sources, *, progress: Progress | None = None
) -> TranscriptReport:
    """Record all that is new of a file, and return its report. On return it is on disk.

    Raises:
        InputError: a payload is too large. Nothing was imported.
        StoreError: the store cannot do its work. What is recorded by then stays, and the same import goes on from it:
            a note of the error (`__notes__`) says how much that is, as of an interrupt.
    """
    if source.text_bytes * ESCAPED_BYTES_MAX > payloads.PAYLOAD_BYTES_MAX:
        with store.read() as transaction:
            known = source.look_up(transaction)
        for _ in source.prepare(_measured, known).steps:
            pass
    recording = _Recording(store, source, sources, progress)
    try:
        return recording.run()
    except BaseException as error:
        if recording.added or not isinstance(error, Exception):  # an interrupt may fall behind a commit
            went_in = f"at least {recording.added:,} events of the file are in"
            tell_what_went_in(error, f"{went_in}: the same import again adds the rest")
        raise


class _Recording(Generic[K, D]):
    """One import, as far as it has come."""

    def __init__(self, store: Store, source: Source[K, D], sources: Sources, progress: Progress | None) -> None:
        self._store = store
        self._source = source
        self._sources = sources
        self._progress = progress
        self._turns = self._events = 0

    @property
    def added(self) -> int:
        """How many events were recorded, turns among them."""
        return self._turns + self._events

    def run(self) -> TranscriptReport:
        """Record what is new, as often as the log gets more of the file meanwhile."""
        store, source = self._store, self._source
        works: list[Work[D]] = []
        while True:
            with store.read() as transaction:
                end, known = transaction.log_end(), source.look_up(transaction)
            # What a turn continues may be sealed, and so it is.
            work = source.prepare(lambda payload: placed(store, payload, general_key, is_certain=False), known)
            works.append(work)
            if self._record(work, end, known):
                if not self.added:
                    store.confirm()
                self._tell(source.lines)
                return source.report(known, works, Added(turns=self._turns, events=self._events))

    def _record(self, work: Work[D], end: int, known: K) -> bool:
        """Record all of it in groups; return whether that could be done before the log got more of the file."""
        for number, group in enumerate(_groups(work.steps)):
            plan = _plan(group, self._source, self._sources, end, known if number == 0 else None)
            outcome = self._store.write(plan)
            if outcome is None:
                return False
            end, added = outcome
            self._turns += added.turns
            self._events += added.events
            self._tell(group[-1].line)
        return True

    def _tell(self, line: int) -> None:
        if self._progress is not None:
            self._progress(line, self._source.lines)


def _measured(payload: Payload) -> NewPayload:
    payloads.refuse_too_large(payloads.payload_size(payload))
    return NO_PAYLOAD


def _groups(steps: Iterable[Step]) -> Iterator[Sequence[Step]]:
    """Give steps in groups that end where the import may be left."""
    group: list[Step] = []
    size = 0
    for step in steps:
        group.append(step)
        size += step.payload.content_size or 0
        if step.whole and (len(group) >= GROUP_STEPS_MAX or size >= GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
    if group:
        yield group


def _plan(
    group: Sequence[Step], source: Source[K, D], sources: Sources, end: int, known: K | None
) -> Callable[[WriteTransaction], tuple[int, Added] | None]:
    """Return the plan that records a group, and returns where the log then ends.

    It records nothing and returns None if the log has got more of the file since it ended at `end`. `known` is what the
    log had of the file then, where that is known.
    """

    def plan(transaction: WriteTransaction) -> tuple[int, Added] | None:
        if transaction.log_end() != end and (known is None or source.look_up(transaction) != known):
            return None
        turns = events = 0
        for step in group:
            if isinstance(step.draft, EventDraft):
                turn = None if step.turn is None else transaction.event(step.turn)
                citations = () if turn is None else [cite(turn, "turn")]
                key = key_after(transaction, [] if turn is None else [turn])
                plan_event(transaction, step.draft, step.payload, sources, citations, key=key)
                events += 1
            elif transaction.event(step.draft.id or "") is None:  # else a copy of the file brought it
                plan_turn(transaction, step.draft, step.payload, sources)
                turns += 1
        return transaction.log_end(), Added(turns=turns, events=events)

    return plan
