"""Runs and turns of Geppetto as turns of a log, and back, equal.

A Geppetto turn is a snapshot of a whole conversation, and the next one most often begins as it does. Blocks of one
speaker that follow each other are one turn of the log, whose id derives from the run, from what is before it and from
what it says: so what snapshots share is recorded once, a longer one goes on where the shorter one ends, and one that
begins otherwise forks. What turns of a log have no place for stands in events beside them:

- `geppetto.blocks`, for each turn: ids, roles and metadata of its blocks, and what of their payloads is no content;
- `geppetto.turn`, for each snapshot: its id, metadata and data;
- `geppetto.run`, each time that a run was recorded and was another one: its id, name, metadata and snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from turnlog.errors import CorruptionError, IdConflictError, NotFoundError, UnknownTurnError
from turnlog.events import Recorded, unreadable
from turnlog.ids import derived_id
from turnlog.interop.geppetto.content import Kept, block_of, said, speaker
from turnlog.interop.geppetto.keys import Data, Metadata, RunMetadata
from turnlog.interop.geppetto.types import Block, Run, Turn
from turnlog.log import TurnLog
from turnlog.model import Block as ContentBlock
from turnlog.model import JSONValue, Origin, content_bytes, decode_content
from turnlog.record import Note, TurnDraft, turn_draft
from turnlog.record.secrets import refuse_secrets

FORMAT = "geppetto"
BLOCKS = "geppetto.blocks"
TURN = "geppetto.turn"
RUN = "geppetto.run"

_ROLES = {"assistant": "assistant", "system": "system"}


class RecordedTurn(Struct, frozen=True, kw_only=True):
    """A snapshot in the log.

    Attributes:
        id: the id of its `geppetto.turn` event.
        head: the turn of the log that it ends with, None for a snapshot without blocks.
    """

    id: str
    head: str | None


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


class SnapshotMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By what a snapshot is found: all that `TurnStore` lists by. `session` is the run's id."""

    session: str = ""
    conversation: str = ""
    phase: str = ""


class _Blocks(Struct, frozen=True, kw_only=True):
    blocks: list[Kept]


class _Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`turn_ids` are those of the blocks: one for all of them, or one each."""

    id: str = ""
    run_id: str = ""
    metadata: dict[str, JSONValue] = {}
    data: dict[str, JSONValue] = {}
    turn_ids: list[str] = []


class _Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = ""
    name: str = ""
    metadata: dict[str, JSONValue] = {}
    turns: list[str] = []


_encoder = msgspec.json.Encoder()


def record_run(log: TurnLog, run: Run) -> RecordedRun:
    """Record a run with all its turns: what is not in the log yet, all of it or nothing. On return it is on disk.

    Args:
        log: the log.
        run: the run. The same one again adds nothing, and one that has grown what is new.

    Raises:
        ContentError: a payload is not JSON, or has what no content block can hold.
        SecretError: metadata, data or a part of a payload that is no content looks like a secret.
        RedactionError: a redaction hook failed.
        IdConflictError: part of it was erased.
    """
    plan = _Plan(run.id)
    turns = [plan.snapshot(turn, SnapshotMeta(session=run.id)) for turn in run.turns]
    metadata = dict(run.metadata.range())
    refuse_secrets(metadata, field="run.metadata")
    payload = _encoder.encode(_Run(id=run.id, name=run.name, metadata=metadata, turns=[turn.id for turn in turns]))
    run_id = plan.note(RUN, payload, SnapshotMeta(session=run.id))
    return RecordedRun(id=run_id, turns=tuple(turns), added=plan.record(log))


def record_turn(log: TurnLog, turn: Turn, *, conversation: str = "", phase: str = "") -> RecordedTurn:
    """Record a snapshot: what is not in the log yet, all of it or nothing. On return it is on disk.

    Args:
        log: the log.
        turn: the snapshot. The same one again, in the same conversation and phase, adds nothing.
        conversation: the conversation that it is of, any text.
        phase: where in its making it was taken, such as `final`.

    Raises:
        ContentError, SecretError, RedactionError, IdConflictError: as for `record_run`.
    """
    plan = _Plan(turn.run_id)
    recorded = plan.snapshot(turn, SnapshotMeta(session=turn.run_id, conversation=conversation, phase=phase))
    plan.record(log)
    return recorded


def load_run(log: TurnLog, run: str) -> Run:
    """Return a run as it was recorded last.

    Args:
        log: the log.
        run: the run's id, or the id of a `geppetto.run` event.

    Raises:
        NotFoundError: there is no such run.
        ErasedError: part of it was erased, or is sealed and its key is not here.
        CorruptionError: what was recorded cannot be read.
    """
    found = None
    for recorded in log.events(topics=RUN):
        if recorded.header.id == run or (not recorded.unreadable and snapshot_meta(recorded).session == run):
            found = recorded
    if found is None:
        raise NotFoundError(f"no run {run!r} of Geppetto is in the log (`runs` lists them)")
    kept = _read(log, found, _Run)
    reader = _Reader(log)
    return Run(
        id=kept.id,
        name=kept.name,
        metadata=RunMetadata(kept.metadata),
        turns=[reader.turn(log.event(turn)) for turn in kept.turns],
    )


def runs(log: TurnLog) -> list[str]:
    """Return the ids of the runs that are in the log, in the order in which they were first recorded."""
    readable = (recorded for recorded in log.events(topics=RUN) if not recorded.unreadable)
    return list(dict.fromkeys(snapshot_meta(recorded).session for recorded in readable))


def load_turn(log: TurnLog, turn: str) -> Turn:
    """Return a snapshot by the id of its `geppetto.turn` event. Raises what `load_run` raises."""
    recorded = log.event(turn)
    if recorded.header.topic != TURN:
        raise NotFoundError(f"event {turn!r} is no turn of Geppetto: it is of the topic {recorded.header.topic}")
    return _Reader(log).turn(recorded)


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


class _Plan:
    """What is to be recorded of one run, each turn and note once, in an order in which each can be recorded."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._items: dict[str, TurnDraft | Note] = {}

    def snapshot(self, turn: Turn, meta: SnapshotMeta) -> RecordedTurn:
        """Add a snapshot."""
        head: str | None = None
        for who, group in groupby(turn.blocks, lambda block: speaker(block.kind)):
            head = self._turn(who, list(group), head)
        metadata, data = dict(turn.metadata.range()), dict(turn.data.range())
        refuse_secrets(metadata, field="turn.metadata")
        refuse_secrets(data, field="turn.data")
        turn_ids = [block.turn_id for block in turn.blocks]
        one = turn_ids[:1] if len(set(turn_ids)) == 1 else turn_ids
        kept = _Snapshot(
            id=turn.id, run_id=turn.run_id, metadata=metadata, data=data, turn_ids=[] if one == [""] else one
        )
        return RecordedTurn(id=self.note(TURN, _encoder.encode(kept), meta, head), head=head)

    def note(self, topic: str, payload: bytes, meta: SnapshotMeta, turn: str | None = None) -> str:
        """Add a note, and return its id."""
        # `conversation` and `phase` are part of what it is: the same snapshot may be taken twice.
        note_id = derived_id(None, topic, turn or "", _encoder.encode(meta).decode(), payload.decode())
        given = {name: value for name, value in msgspec.structs.asdict(meta).items() if value}
        self._items[note_id] = Note(topic=topic, payload=payload, turn=turn, meta=given, id=note_id)
        return note_id

    def _turn(self, who: str, blocks: Sequence[Block], parent: str | None) -> str:
        content: list[ContentBlock] = []
        beside: list[Kept] = []
        for block in blocks:
            says, kept = said(block)
            content += says
            beside.append(kept)
            refuse_secrets({"metadata": kept.metadata, "payload": kept.payload}, field=f"block {block.id!r}")
        payload = _encoder.encode(_Blocks(blocks=beside))
        turn = derived_id(None, FORMAT, self._run, parent or "", who, content_bytes(content).decode(), payload.decode())
        if turn not in self._items:
            self._items[turn] = turn_draft(
                content,
                role=_ROLES.get(who, "user"),
                continues=parent,
                bookmark=None,
                id=turn,
                origin=Origin(
                    format=FORMAT,
                    ids=[block.id for block in blocks if block.id],
                    session=self._run or UNSET,
                ),
            )
            self._items[blocks_id(turn)] = Note(topic=BLOCKS, payload=payload, turn=turn, id=blocks_id(turn))
        return turn

    def record(self, log: TurnLog) -> int:
        """Record what is not there yet, and return how many events that were.

        Raises:
            IdConflictError: what is there of it is something else, or was erased.
        """
        while True:
            missing = {item: draft for item, draft in self._items.items() if not _is_there(log, item)}
            if not missing:
                return 0
            try:
                return len(log.add_group(list(missing.values())))
            except IdConflictError:
                # Somebody else recorded a part of it meanwhile, or something of it cannot be recorded again.
                if all(not _is_there(log, item) for item in missing):
                    raise


def blocks_id(turn: str) -> str:
    """Return the id of the note that has the blocks of a turn."""
    return derived_id(None, BLOCKS, turn)


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

    def __init__(self, log: TurnLog) -> None:
        self._log = log
        self._known: dict[str, list[Block]] = {}

    def turn(self, recorded: Recorded) -> Turn:
        """Return a snapshot."""
        kept = _read(self._log, recorded, _Snapshot)
        head = recorded.header.cited("turn")
        blocks = [] if head is None else [deepcopy(block) for block in self._blocks(head)]
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

    def _blocks(self, head: str) -> Iterator[Block]:
        for turn in self._log.ancestry(head):
            if turn.id not in self._known:
                self._known[turn.id] = self._read_blocks(turn.id)
            yield from self._known[turn.id]

    def _read_blocks(self, turn: str) -> list[Block]:
        note = self._log.event(blocks_id(turn))
        beside = _read(self._log, note, _Blocks).blocks
        content = decode_content(self._log.payload(turn))
        blocks: list[Block] = []
        at = 0
        try:
            for kept in beside:
                blocks.append(block_of(kept, content[at : at + kept.says]))
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(
            f"{recorded.header.topic} {recorded.header.id!r} cannot be read: {error}",
            global_position=recorded.global_position,
        ) from error
