"""Erasing: the private parts and the payloads of events are taken away, and an event says so, with who and why.

Most of the work is done in a snapshot, so that others can go on appending. In the write transaction only what came
since is looked at. Then one transaction appends the `gpt.erasure` events and takes everything away, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice

import msgspec

from turnlog.audit.asking import BESIDE, Request
from turnlog.audit.erasure_report import ErasureReport
from turnlog.audit.holds import Hold, doubt, held, released_by
from turnlog.audit.targets import Targets
from turnlog.audit.unerased import unerased
from turnlog.errors import (
    ConflictError,
    CorruptionError,
    HoldError,
    MetaError,
    SealError,
    StoreError,
    TurnlogError,
    UncertainError,
)
from turnlog.events import (
    BOOKMARK,
    CALL,
    ERASURE,
    HOLD,
    REPLY,
    SEAL,
    SUMMARY,
    TARGET,
    TOOL_CALL,
    TOOL_END,
    TURN,
    Arrival,
    Recorded,
    Seals,
    cite,
)
from turnlog.events.sealing import find_key
from turnlog.model import ErasureMeta
from turnlog.model.kinds import check_type
from turnlog.projections.bookmarks import MovedBookmark, all_bookmarks
from turnlog.record import EventDraft, plan_event
from turnlog.record.sealing import key_about
from turnlog.record.subjects import changes_subject
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ErasedFiles, ReadTransaction, Store, WriteTransaction, past_damage
from turnlog.store.folding import PAGE_EVENTS
from turnlog.store.sealing import checked_seals

TARGETS_MAX = 1000
"""How many events one `gpt.erasure` event names. Where there are more, several are appended in one transaction."""

INTERRUPTED = (
    "it is erased, and that is recorded; traces can still be in files of the store, and `turnlog erase --finish` "
    "removes them"
)
"""What an interrupt says in a note when it comes behind the commit."""

_AGAIN = "an earlier erasure names it, and it was there"

_ROUNDS_MAX = 10

Plan = Callable[[WriteTransaction], Sequence[Recorded]]


def erase(
    store: Store,
    asked: Request,
    *,
    reason: str,
    by: str | None = None,
    dry_run: bool = False,
    sources: Sources,
    seen: int | None = None,
) -> ErasureReport:
    """Erase turns and all that carries their content. See `TurnLog.erase`.

    Args:
        store: the log.
        asked: what to erase.
        reason: why.
        by: who wants it.
        dry_run: whether nothing is done.
        sources: where ids and times come from.
        seen: up to which global position whoever asks has seen turns; None where that is no matter.

    Raises:
        GoneOnError: a turn that came later would be erased too. Nothing was.
    """
    if not check_type(reason, str, "reason").strip():
        raise MetaError("reason: say why: it is all that will be left to tell", field="reason")
    if seen is not None:
        check_type(seen, int, "seen")
    meta = ErasureMeta(reason=reason, by=None if by is None else check_type(by, str, "by"))
    with damage_told():
        return _erased(store, asked, meta, sources, seen=seen, dry_run=dry_run)


def _erased(
    store: Store, asked: Request, meta: ErasureMeta, sources: Sources, *, seen: int | None, dry_run: bool
) -> ErasureReport:
    for _ in range(_ROUNDS_MAX):
        with store.read() as transaction, past_damage(transaction):
            search = Search(transaction, asked, seen)
            seals = _keys_of(transaction, asked)
            moving = _bookmarks_at(transaction, search.foreseen) if dry_run else ()
        if dry_run:
            _read_all(store, search.foreseen)
            keys = () if seals is None or asked.subject is None else seals.ids_of(asked.subject)
            return search.report(
                keys=keys, moving=tuple(moving), at_work=_at_work(store, search.foreseen), dry_run=True
            )
        try:
            return _erase(store, search, asked, meta, sources)
        except _HoldsChangedError:
            continue
    raise ConflictError("holds are set and released all the time: try again")


def _read_all(store: Store, chosen: Sequence[Recorded]) -> None:
    """Read all of a log of which tables have to be made anew without events that are erased, as that does.

    Raises:
        CorruptionError: a header cannot be read.
    """
    after = 0 if any(each.reads_private(event) for each in store.projections for event in chosen) else None
    while after is not None:
        with store.read() as transaction, past_damage(transaction):
            page = islice(transaction.log(after), PAGE_EVENTS)
            after = max((event.global_position for event in page), default=None)


def erase_again(store: Store, sources: Sources) -> None:
    """Erase what erasures of the log name and is there, if there is anything, with what carries it now.

    Raises:
        HoldError, SealError, ConflictError: as `erase` does.
    """
    with store.read() as transaction, past_damage(transaction):
        if next(unerased(transaction), None) is None:
            return
    erase(store, Request(), reason=_AGAIN, sources=sources)


def _refusal(hold: Hold) -> HoldError:
    why = f" ({hold.reason})" if hold.reason else ""
    return HoldError(f"the legal hold {hold.name!r}{why} refuses it: nothing was erased")


def _keys_of(transaction: ReadTransaction, asked: Request) -> Seals | None:
    """Return the keys that have that of the subject which is to be erased; None where nothing is sealed.

    Raises:
        SealError: those of the log are not here.
    """
    if asked.subject is None or transaction.seal_policy() is None:
        return None
    return checked_seals(transaction)


class GoneOnError(ConflictError):
    """Say that what is to be erased has turns that whoever asks for it has not seen."""


class _HoldsChangedError(Exception):
    """Say that holds were set or released since the snapshot."""


class Search:
    """What is to be erased, and what is held: first in a snapshot, and then with what came since."""

    def __init__(self, transaction: ReadTransaction, asked: Request, seen: int | None = None) -> None:
        """Look at a snapshot. `seen` is as for `erase`."""
        self._seen = seen
        self._subject = asked.subject
        self._seals = transaction.seals
        self._targets = Targets(asked.wanted(transaction))
        self._held: list[tuple[Hold, Targets]] = held(transaction)
        self._end = 0
        self.find(transaction)
        self.until = self._end
        self.foreseen = self._targets.all

    def find(self, transaction: ReadTransaction) -> None:
        """Look at what came since the last time.

        Raises:
            HoldError: something of it is held.
            SealError: what it is about is sealed, and the log was opened without keys.
        """
        after, self._end = self._end, transaction.log_end()
        self._targets.find(transaction, after)
        if any(turn.arrival != Arrival.GUEST for turn in self._targets.unseen.values()):
            raise SealError(
                f"whose turns are sealed cannot be seen, and nothing was erased: {_why_closed(transaction)}"
            )
        chosen = {event.header.id for event in self._targets.all}
        for hold, targets in self._held:
            if hold.subject is not None and hold.subject == self._subject:
                raise _refusal(hold)
            targets.find(transaction, after)
            if not chosen.isdisjoint(targets.unseen):
                raise SealError(
                    f"whether the legal hold {hold.name!r} refuses it cannot be seen, and nothing was erased: "
                    f"{_why_closed(transaction)}"
                )
            if hold.damaged and hold.name in chosen:
                raise HoldError(f"{hold.name!r} is a legal hold, and nothing was erased: release it first")
            if not chosen.isdisjoint(event.header.id for event in targets.all):
                raise _refusal(hold)
            if (untold := doubt(transaction, hold, targets, chosen)) is not None:
                raise HoldError(untold)
        for event in self._targets.all:
            if (hold_id := released_by(transaction, event)) is not None and hold_id not in chosen:
                raise HoldError(
                    f"event {event.header.id!r} releases the legal hold that event {hold_id!r} set, which would be set "
                    "again, and nothing was erased"
                )

    def find_since(self, transaction: ReadTransaction) -> list[Recorded]:
        """Look at what came since the snapshot, and return all that is to be erased.

        Raises:
            HoldError: something of it is held.
            GoneOnError: turns of it came later than whoever asks has seen.
            _HoldsChangedError: holds were set or released since.
        """
        if next(iter(transaction.log(self._end, topics=[HOLD])), None) is not None:
            raise _HoldsChangedError
        self.find(transaction)
        seen = self._seen
        if seen is not None and any(turn.global_position > seen for turn in self._targets.turns.values()):
            raise GoneOnError("turns of it came since you have looked, and nothing was erased: look again")
        # What somebody else has erased meanwhile is erased. Nothing else of an event changes: one is in memory once.
        return [event for event in self._targets.all if not _is_gone(transaction, event)]

    def report(
        self,
        chosen: Sequence[Recorded] | None = None,
        *,
        erasures: Sequence[str] = (),
        keys: Sequence[str] = (),
        files: ErasedFiles | None = None,
        moved: Sequence[MovedBookmark] = (),
        moving: Sequence[str] = (),
        at_work: Sequence[str] = (),
        dry_run: bool = False,
    ) -> ErasureReport:
        """Return what was erased, or would be."""
        targets = self._targets
        found = targets.all if chosen is None else chosen
        goes = {event.header.id for event in found}
        sealed = [
            event.sealed for event in found if event.sealed is not None and set(keys).isdisjoint(event.sealed.keys)
        ]
        is_here = {each.key: _is_here(self._seals, each.key) for each in sealed}
        named = {topic: tuple(event.header.id for event in found if event.header.topic == topic) for topic in BESIDE}
        turns = tuple(event.header.id for event in found if event.header.topic == TURN)
        known = {*turns, *chain.from_iterable(named.values())}
        return ErasureReport(
            erasures=tuple(erasures),
            turns=turns,
            calls=named[CALL],
            replies=named[REPLY],
            lines=tuple(event.header.id for event in found if event.header.id not in known),
            bookmarks=named[BOOKMARK],
            holds=named[HOLD],
            summaries=named[SUMMARY],
            tool_calls=(*named[TOOL_CALL], *named[TOOL_END]),
            moved_bookmarks=tuple(moved),
            moving_bookmarks=tuple(moving),
            already=sum(event.erased for event in (*targets.turns.values(), *targets.carrying.values())),
            others=tuple(dict.fromkeys(targets.others)),
            alike=tuple(sorted(targets.alike)),
            undecided=tuple(targets.undecided),
            unseen=tuple(targets.unseen),
            damaged=tuple(event_id for event_id in targets.damaged if event_id not in goes),
            payload_bytes=sum(event.size or event.stored_size or 0 for event in found),
            files_removed=0 if files is None else files.removed,
            files_shared=0 if files is None else files.shared,
            remains=None if files is None else files.remains,
            keys=tuple(keys),
            never_sealed=sum(event.sealed is None for event in found) if keys or sealed else 0,
            still_sealed=sum(is_here[each.key] for each in sealed),
            key_missing=sum(not is_here[each.key] for each in sealed),
            at_work=tuple(at_work),
            seen=self.until if dry_run else 0,
            dry_run=dry_run,
        )


def _is_gone(transaction: ReadTransaction, event: Recorded) -> bool:
    now = transaction.at_global(event.global_position)
    return now is None or now.erased


def _at_work(store: Store, chosen: Sequence[Recorded]) -> list[str]:
    """Return the ids of turns that a run is at work on, in global order: it takes the next one before it leaves one."""
    with suppress(StoreError):  # where there are no locks, there are no runs
        return store.locks.taken(event.header.id for event in chosen if event.header.topic == TURN)
    return []


def _bookmarks_at(transaction: ReadTransaction, chosen: Sequence[Recorded]) -> dict[str, str]:
    """Return the bookmarks that are at one of some events, by name, each with its turn."""
    gone = {event.header.id for event in chosen}
    return {found.name: found.turn for found in all_bookmarks(transaction) if found.turn in gone}


def _why_closed(transaction: ReadTransaction) -> str:
    try:
        checked_seals(transaction)
    except SealError as error:
        return str(error)
    return "the keys are here only now"


def _is_here(seals: Seals | None, key: str) -> bool:
    """Tell whether a key is here, or cannot be looked for."""
    with suppress(SealError):
        return seals is not None and find_key(seals, key) is not None
    return True


def _erase(store: Store, search: Search, asked: Request, meta: ErasureMeta, sources: Sources) -> ErasureReport:
    chosen: list[Recorded] = []
    erasures: list[str] = []
    keys: list[str] = []
    at_work: list[str] = []
    heads: dict[str, str] = {}

    def plan(transaction: WriteTransaction) -> Sequence[Recorded]:
        chosen.extend(search.find_since(transaction))
        at_work.extend(_at_work(store, chosen))
        heads.update(_bookmarks_at(transaction, chosen))
        key = key_about(transaction, chosen, asked.subject)
        targets = chosen
        seals = _keys_of(transaction, asked)
        if seals is not None and asked.subject is not None:
            # While nobody can record for the subject. Should this come to no end, erasing it again finds its turns by
            # their tags.
            keys.extend(seals.destroy(asked.subject))
            if keys and not chosen:
                # Who asked for it and why is to be told, though nothing of the subject is in the log.
                targets = [said for said in [transaction.last(SEAL)] if said is not None]
        among = {event.header.id: event for event in chosen}
        for start in range(0, len(targets), TARGETS_MAX):
            named = targets[start : start + TARGETS_MAX]
            changes = tuple(
                event.header.id
                for event in named
                if event.header.topic == TURN and changes_subject(transaction, event, among)
            )
            citations = [cite(event, TARGET) for event in named]
            draft = EventDraft(topic=ERASURE, meta=msgspec.structs.replace(meta, subject_changes=changes))
            erasures.append(plan_event(transaction, draft, NO_PAYLOAD, sources, citations, key=key).header.id)
        return chosen

    try:
        files = store.erase(_past_damage(plan), foreseen=search.foreseen, until=search.until)
        with store.read() as transaction, past_damage(transaction):
            now = {found.name: found.turn for found in all_bookmarks(transaction)}
    except KeyboardInterrupt as stop:
        if erasures and _is_recorded(store, erasures[0]):
            stop.add_note(INTERRUPTED)
        elif keys:
            stop.add_note(f"{_destroyed(keys, asked)}: erase it again, to have recorded who asked for it and why")
        raise
    except UncertainError as error:
        said = f"{_destroyed(keys, asked)}, and {error}" if keys else str(error)
        raise UncertainError(said) from error
    except TurnlogError as error:
        if erasures and _is_recorded(store, erasures[0]):
            error.add_note(INTERRUPTED)
        elif keys:
            raise UncertainError(
                f"{_destroyed(keys, asked)}, and that is not recorded ({error}): erase it again, to have recorded who "
                "asked for it and why"
            ) from error
        raise
    moved = [
        MovedBookmark(name=name, before=turn, after=now.get(name))
        for name, turn in heads.items()
        if now.get(name) != turn
    ]
    return search.report(chosen, erasures=erasures, keys=keys, files=files, moved=moved, at_work=at_work)


def _past_damage(plan: Plan) -> Plan:
    def run(transaction: WriteTransaction) -> Sequence[Recorded]:
        with past_damage(transaction):
            return plan(transaction)

    return run


def _destroyed(keys: Sequence[str], asked: Request) -> str:
    are = "is" if len(keys) == 1 else "are"
    return f"what was sealed of subject {asked.subject!r} is gone: {', '.join(map(repr, keys))} {are} destroyed"


@contextmanager
def damage_told() -> Generator[None]:
    """Let an error about what is damaged say that nothing was erased, unless it says that something was."""
    try:
        yield
    except CorruptionError as error:
        if getattr(error, "__notes__", ()):
            raise
        raise CorruptionError(
            f"{error}; nothing was erased, for nobody can tell what that was: restore the store from a copy",
            global_position=error.global_position,
        ) from error


@contextmanager
def interrupts_told(report: ErasureReport) -> Generator[None]:
    """Let an interrupt say that an erasure is recorded, while what it has left beside the log is removed."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if report.erasures:
            stop.add_note(INTERRUPTED)
        raise


def _is_recorded(store: Store, event_id: str) -> bool:
    with suppress(TurnlogError), store.read() as transaction:
        return transaction.event(event_id) is not None
    return False
