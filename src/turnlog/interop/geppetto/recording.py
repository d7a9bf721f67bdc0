"""Runs and turns of Geppetto as turns of a log, and back, equal. `planning` says what they are in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError, IdConflictError, MetaError, NotFoundError, UnknownTurnError
from turnlog.events import Recorded, unreadable
from turnlog.ids import derived_id
from turnlog.interop.geppetto.reading import KEY_BLOCK_TURN, turn_of, turn_with
from turnlog.interop.geppetto_model.checking import check_run, check_turn
from turnlog.interop.geppetto_model.content import NO_MARKS, block_of
from turnlog.interop.geppetto_model.keys import Data, Metadata, RunMetadata
from turnlog.interop.geppetto_model.planning import (
    FORMAT,
    RUN,
    TURN,
    Begins,
    KeptBlocks,
    KeptRun,
    KeptSnapshot,
    Plan,
    RecordedTurn,
    SnapshotMeta,
    blocks_id,
)
from turnlog.interop.geppetto_model.types import Block, Run, Turn
from turnlog.log import TurnLog
from turnlog.model import LossReport, Origin, decode_content
from turnlog.model.json_text import UNREADABLE
from turnlog.model.long_strings import LongStrings
from turnlog.record import Note, TurnDraft

_WHICH_ID = "give the id that `record_turn` or `TurnStore.save` returned, or that `TurnStore.list` lists"


class RecordedRun(Struct, frozen=True, kw_only=True):
    """A run in the log.

    Attributes:
        id: the id of its `geppetto.run` event.
        turns: its snapshots, in order.
        added: how many events were recorded; 0 where all of it was there.
    """

    id: str
    turns: tuple[RecordedTurn, ...]
    added: int


def record_run(log: TurnLog, run: Run) -> RecordedRun:
    """Record a run with all its turns: what is not in the log yet, all of it or nothing. On return it is on disk.

    Args:
        log: the log.
        run: the run. The same one again adds nothing, and one that has grown what is new.

    Raises:
        ContentError: a payload is not JSON, or has what no content block can hold; or something is no run, turn or
            block; names the place.
        SecretError: metadata, data or a part of a payload that is no content looks like a secret.
        RedactionError: a redaction hook failed.
        IdConflictError: part of it was erased.
    """
    check_run(run)
    plan = Plan(run.id)
    planned, turns = plan.run(run, lambda turn: _begins(log, turn))
    run_id = _newest(log, plan, planned, run.id)
    return RecordedRun(id=run_id, turns=turns, added=_record(log, plan.items))


def record_turn(log: TurnLog, turn: Turn, *, conversation: str = "", phase: str = "") -> RecordedTurn:
    """Record a snapshot: what is not in the log yet, all of it or nothing. On return it is on disk.

    A snapshot that begins as `turn_of` gave it, or as a workflow did, goes on from the turns that it was made of.

    Args:
        log: the log.
        turn: the snapshot. The same one again, in the same conversation and phase, adds nothing.
        conversation: the conversation that it is of, any text.
        phase: where in its making it was taken, such as `final`.

    Raises:
        ContentError, SecretError, RedactionError, IdConflictError: as for `record_run`.
    """
    check_turn(turn)
    plan = Plan(turn.run_id)
    meta = SnapshotMeta(session=turn.run_id, conversation=conversation, phase=phase)
    recorded = plan.snapshot(turn, meta, _begins(log, turn))
    _record(log, plan.items)
    return recorded


def load_run(log: TurnLog, run: str) -> Run:
    """Return a run as it was recorded last.

    That is by `record_run`, to which the same again is news where another state was recorded meanwhile. Importing a
    file whose state of the run is in the log adds nothing, and so does not make it the last one: it is found by the id
    of its event.

    Args:
        log: the log.
        run: the run's id, or the id of a `geppetto.run` event, or a turn of the run, by id or bookmark.

    Raises:
        NotFoundError: there is no such run.
        ErasedError: part of it was erased, or is sealed and its key is not here.
        CorruptionError: what was recorded cannot be read.
    """
    found = _recorded_last(log, run)
    if found is None and (session := _session(log, run)) is not None:
        found = _recorded_last(log, session)
    if found is None:
        raise NotFoundError(f"no run {run!r} of Geppetto is in the log (`runs` lists them)")
    kept = _read(log, found, KeptRun)
    reader = _Reader(log)
    return Run(
        id=kept.id,
        name=kept.name,
        metadata=RunMetadata(kept.metadata),
        turns=[reader.turn(log.event(turn)) for turn in kept.turns],
    )


def _recorded_last(log: TurnLog, run: str) -> Recorded | None:
    """Return the last event of a run, by the run's id or the event's own."""
    found = None
    for recorded in log.events(topics=RUN):
        if recorded.header.id == run or (not recorded.unreadable and snapshot_meta(recorded).session == run):
            found = recorded
    return found


def _session(log: TurnLog, headish: str) -> str | None:
    """Return the run that a turn of the log was recorded for, None where there is none."""
    try:
        origin = log.turn(headish).meta.origin
    except UnknownTurnError:
        return None
    if not isinstance(origin, Origin) or origin.format != FORMAT:
        return None
    return origin.session if isinstance(origin.session, str) else None


def runs(log: TurnLog) -> list[str]:
    """Return the ids of the runs that are in the log, in the order in which they were first recorded."""
    readable = (recorded for recorded in log.events(topics=RUN) if not recorded.unreadable)
    return list(dict.fromkeys(snapshot_meta(recorded).session for recorded in readable))


def load_turn(log: TurnLog, turn: str) -> Turn:
    """Return a snapshot by the id of its `geppetto.turn` event: the one that `record_turn` returned.

    Raises:
        NotFoundError: nothing, or something else, has this id. `Turn.id` is none: many snapshots may have the same.
        ErasedError: part of it was erased, or is sealed and its key is not here.
        CorruptionError: what was recorded cannot be read.
    """
    recorded = recorded_snapshot(log, turn)
    if recorded.header.topic != TURN:
        raise NotFoundError(
            f"event {turn!r} is no turn of Geppetto: it is of the topic {recorded.header.topic} ({_WHICH_ID})"
        )
    return _Reader(log).turn(recorded)


def recorded_snapshot(log: TurnLog, snapshot: str) -> Recorded:
    """Return an event by the id that somebody has of a snapshot.

    Raises:
        NotFoundError: there is none.
    """
    try:
        return log.event(snapshot)
    except (MetaError, NotFoundError) as error:
        raise NotFoundError(f"no snapshot {snapshot!r} is in the log ({_WHICH_ID})") from error


def snapshot_of(log: TurnLog, headish: str) -> tuple[Turn, LossReport]:
    """Return the snapshot that ends with a turn: the one that was recorded last, equal; else what `turn_of` gives.

    Raises:
        UnknownTurnError: there is no such turn.
        ErasedError: part of the recorded one was erased, or is sealed and its key is not here.
        CorruptionError: what was recorded cannot be read.
    """
    return snapshot_with(log, headish, NO_MARKS)


def snapshot_with(log: TurnLog, headish: str, long: LongStrings) -> tuple[Turn, LossReport]:
    """Return what `snapshot_of` does, of a log in whose turns marks of long strings may stand, and raise that."""
    ancestry = log.ancestry(headish)
    found = None
    for recorded in log.events(topics=TURN, thread=ancestry[0].id):
        if recorded.header.cited("turn") == ancestry[-1].id and not recorded.unreadable:
            found = recorded
    if found is None:
        return turn_with(log, ancestry[-1].id, long)
    return _Reader(log, long).turn(found), LossReport()


def snapshot_meta(recorded: Recorded) -> SnapshotMeta:
    """Return by what a snapshot or a run is found.

    Raises:
        ErasedError: it was erased, or is sealed and its key is not here.
        CorruptionError: it cannot be read.
    """
    if recorded.unreadable or recorded.private is None:
        raise unreadable(recorded, f"{recorded.header.topic} {recorded.header.id!r}")
    return _decoded(recorded, recorded.private.meta, SnapshotMeta)


# Recording


def _begins(log: TurnLog, turn: Turn) -> Begins:
    """Return the last turn of the log whose conversation a snapshot begins with, as `turn_of` gives it."""
    named: dict[str, None] = {}
    for block in turn.blocks:
        if not (of := _log_turn(block)):
            break
        named[of] = None
    for last in reversed(named):
        try:
            blocks = turn_of(log, last)[0].blocks
            break
        except UnknownTurnError:
            continue
    else:
        return None
    same = next((at for at, pair in enumerate(zip(blocks, turn.blocks, strict=False)) if pair[0] != pair[1]), None)
    shared = min(len(blocks), len(turn.blocks)) if same is None else same
    while 0 < shared < len(blocks) and _log_turn(blocks[shared - 1]) == _log_turn(blocks[shared]):
        shared -= 1  # a part of what a turn says is not that turn
    if not shared:
        return None
    head = _log_turn(blocks[shared - 1])
    # Where several turns are continued, what is before one of them need not be the beginning of the whole.
    return (head, shared) if turn_of(log, head)[0].blocks == blocks[:shared] else None


def _log_turn(block: Block) -> str:
    of = block.metadata.raw(KEY_BLOCK_TURN.identity)
    return of if isinstance(of, str) else ""


def _newest(log: TurnLog, plan: Plan, run_id: str, session: str) -> str:
    """Return the id that a run gets: its own, or a new one where others of its id were recorded behind it."""
    known = [
        recorded.header.id
        for recorded in log.events(topics=RUN)
        if not recorded.unreadable and snapshot_meta(recorded).session == session
    ]
    if run_id not in known or known[-1] == run_id:
        return run_id
    note = plan.items.pop(run_id)
    if known[-1] == derived_id(None, RUN, run_id, known[-2]):
        return known[-1]
    again = derived_id(None, RUN, run_id, known[-1])
    plan.items[again] = msgspec.structs.replace(note, id=again)
    return again


def _record(log: TurnLog, items: Mapping[str, TurnDraft | Note]) -> int:
    """Record what is not there yet, and return how many events that were.

    Raises:
        IdConflictError: what is there of it is something else, or was erased.
    """
    while True:
        missing = {item: draft for item, draft in items.items() if not _is_there(log, item)}
        if not missing:
            return 0
        try:
            return len(log.add_group(list(missing.values())))
        except IdConflictError:
            # Somebody else recorded a part of it meanwhile, or something of it cannot be recorded again.
            if all(not _is_there(log, item) for item in missing):
                raise


def _is_there(log: TurnLog, event_id: str) -> bool:
    try:
        recorded = log.event(event_id)
    except (NotFoundError, UnknownTurnError):
        return False
    if recorded.erased:
        raise IdConflictError(f"event {event_id!r} of the run was erased: nothing was recorded", event_id=event_id)
    return True


# Reading


class _Reader:
    """Reads snapshots, and the turns that they share once."""

    def __init__(self, log: TurnLog, long: LongStrings = NO_MARKS) -> None:
        self._log = log
        self._long = long
        self._known: dict[str, list[Block]] = {}

    def turn(self, recorded: Recorded) -> Turn:
        """Return a snapshot."""
        kept = _read(self._log, recorded, KeptSnapshot)
        head = recorded.header.cited("turn")
        blocks = [] if head is None else [deepcopy(block) for block in self._blocks(head, kept.begins)]
        turn_ids = kept.turn_ids * len(blocks) if len(kept.turn_ids) == 1 else kept.turn_ids or [""] * len(blocks)
        if len(turn_ids) != len(blocks):
            raise CorruptionError(
                f"snapshot {recorded.header.id!r} is of {len(turn_ids)} blocks, and its turns have {len(blocks)}",
                global_position=recorded.global_position,
            )
        for block, turn_id in zip(blocks, turn_ids, strict=True):
            block.turn_id = turn_id
        return Turn(
            id=kept.id, run_id=kept.run_id, metadata=Metadata(kept.metadata), data=Data(kept.data), blocks=blocks
        )

    def _blocks(self, head: str, begins: str) -> Iterator[Block]:
        ancestry = self._log.ancestry(head)
        before = next((at for at, turn in enumerate(ancestry, 1) if turn.id == begins), 0)
        for turn in ancestry[:before]:
            if turn.erased or turn.closed:
                raise unreadable(self._log.event(turn.id), f"turn {turn.id!r}")
        if before:
            yield from turn_with(self._log, begins, self._long)[0].blocks
        for turn in ancestry[before:]:
            if turn.id not in self._known:
                self._known[turn.id] = self._read_blocks(turn.id)
            yield from self._known[turn.id]

    def _read_blocks(self, turn: str) -> list[Block]:
        note = self._log.event(blocks_id(turn))
        beside = _read(self._log, note, KeptBlocks).blocks
        content = decode_content(self._log.payload(turn))
        blocks: list[Block] = []
        at = 0
        try:
            for kept in beside:
                blocks.append(block_of(kept, content[at : at + kept.says], self._long))
                at += kept.says
        except (msgspec.DecodeError, KeyError) as error:
            raise CorruptionError(
                f"the blocks of turn {turn!r} cannot be read: {error}", global_position=note.global_position
            ) from error
        return blocks


def _read(log: TurnLog, recorded: Recorded, kind: type[Any]) -> Any:
    if recorded.unreadable:
        raise unreadable(recorded, f"{recorded.header.topic} {recorded.header.id!r}")
    return _decoded(recorded, log.payload(recorded.header.id), kind)


def _decoded(recorded: Recorded, text: bytes | msgspec.Raw, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        raise CorruptionError(
            f"{recorded.header.topic} {recorded.header.id!r} cannot be read: {error}",
            global_position=recorded.global_position,
        ) from error
