"""What runs and snapshots are in a log: turns, and notes that have what turns have no place for.

A Geppetto turn is a snapshot of a whole conversation, and the next one most often begins as it does. Blocks of one
speaker that follow each other are one turn of the log, whose id derives from the run, from what is before it and from
what it says: so what snapshots share is recorded once, a longer one goes on where the shorter one ends, and one that
begins otherwise forks. What turns of a log have no place for stands in events beside them:

- `geppetto.blocks`, for each turn: ids, roles and metadata of its blocks, and what of their payloads is no content;
- `geppetto.turn`, for each snapshot: its id, metadata and data;
- `geppetto.run`, each time that a run was recorded and was another one: its id, name, metadata and snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import cast

import msgspec
from msgspec import Struct

from turnlog.ids import derived_id
from turnlog.interop.geppetto_model.content import Kept, said, speaker
from turnlog.interop.geppetto_model.documents import read_run, read_turn, run_record, turn_record
from turnlog.interop.geppetto_model.keys import Data, Metadata, RunMetadata
from turnlog.interop.geppetto_model.types import Block, Run, Turn
from turnlog.interop.marked import in_pieces, unmarked_value
from turnlog.model import Block as ContentBlock
from turnlog.model import JSONValue, Origin, content_bytes
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


class SnapshotMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By what a snapshot is found: all that `TurnStore` lists by. `session` is the run's id."""

    session: str = ""
    conversation: str = ""
    phase: str = ""


class KeptBlocks(Struct, frozen=True, kw_only=True):
    blocks: list[Kept]


class KeptSnapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`turn_ids` are those of the blocks: one for all of them, or one each.

    `begins` is the turn of the log whose conversation it begins with, as `turn_of` gives it; empty for none.
    """

    id: str = ""
    run_id: str = ""
    metadata: dict[str, JSONValue] = {}
    data: dict[str, JSONValue] = {}
    turn_ids: list[str] = []
    begins: str = ""


class KeptRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = ""
    name: str = ""
    metadata: dict[str, JSONValue] = {}
    turns: list[str] = []


Begins = tuple[str, int] | None
"""The turn of the log whose conversation a snapshot begins with, and how many of its blocks that is; None for none."""

_encoder = msgspec.json.Encoder()


def _from_nothing(turn: Turn) -> Begins:  # noqa: ARG001 - others look
    return None


class Plan:
    """What is to be recorded of one run, each turn and note once, in an order in which each can be recorded.

    Payloads of blocks may have marks, and payloads of turns have them then.
    """

    def __init__(self, run: str) -> None:
        """Begin with nothing. `run` is the id of the run, which ids derive from."""
        self._run = run
        self._first: str | None = None
        self.items: dict[str, TurnDraft | Note] = {}

    def run(self, run: Run, begins: Callable[[Turn], Begins] = _from_nothing) -> tuple[str, tuple[RecordedTurn, ...]]:
        """Add a run, and return the id of its event, and its snapshots.

        Args:
            run: the run.
            begins: says with what of the log a snapshot begins.

        Raises:
            ContentError: a payload is not JSON, or has what no content block can hold, or a field is of another type.
            SecretError: name, metadata, data or a part of a payload that is no content looks like a secret.
        """
        run = read_run(run_record(run), "run")
        refuse_secrets({"name": run.name}, field="run")
        turns = tuple(self._snapshot(turn, SnapshotMeta(session=run.id), begins(turn)) for turn in run.turns)
        metadata = _values(run.metadata)
        refuse_secrets(metadata, field="run.metadata")
        kept = KeptRun(id=run.id, name=run.name, metadata=metadata, turns=[turn.id for turn in turns])
        return self.note(RUN, _encoder.encode(kept), SnapshotMeta(session=run.id), self._first), turns

    def snapshot(self, turn: Turn, meta: SnapshotMeta, begins: Begins = None) -> RecordedTurn:
        """Add a snapshot, which may begin with what the log has. Raises what `run` raises."""
        return self._snapshot(read_turn(turn_record(turn), "turn"), meta, begins)

    def _snapshot(self, turn: Turn, meta: SnapshotMeta, begins: Begins) -> RecordedTurn:
        head, known = (None, 0) if begins is None else begins
        for who, group in groupby(turn.blocks[known:], lambda block: speaker(block.kind)):
            head = self._turn(who, list(group), head)
        metadata, data = _values(turn.metadata), _values(turn.data)
        refuse_secrets(metadata, field="turn.metadata")
        refuse_secrets(data, field="turn.data")
        turn_ids = [block.turn_id for block in turn.blocks]
        one = turn_ids[:1] if len(set(turn_ids)) == 1 else turn_ids
        kept = KeptSnapshot(
            id=turn.id,
            run_id=turn.run_id,
            metadata=metadata,
            data=data,
            turn_ids=[] if one == [""] else one,
            begins="" if begins is None else begins[0],
        )
        return RecordedTurn(id=self.note(TURN, _encoder.encode(kept), meta, head), head=head)

    def note(self, topic: str, payload: bytes, meta: SnapshotMeta, turn: str | None = None) -> str:
        """Add a note, and return its id."""
        # `conversation` and `phase` are part of what it is: the same snapshot may be taken twice.
        note_id = derived_id(None, topic, turn or "", _encoder.encode(meta).decode(), payload.decode())
        given = {name: value for name, value in msgspec.structs.asdict(meta).items() if value}
        self.items[note_id] = Note(topic=topic, payload=payload, turn=turn, meta=given, id=note_id)
        return note_id

    def _turn(self, who: str, blocks: Sequence[Block], parent: str | None) -> str:
        content: list[ContentBlock] = []
        beside: list[Kept] = []
        for block in blocks:
            says, kept = said(block)
            content += says
            beside.append(kept)
            refuse_secrets({"metadata": kept.metadata, "payload": kept.payload}, field=f"block {block.id!r}")
        payload = _encoder.encode(KeptBlocks(blocks=beside))
        told = in_pieces(content_bytes(content))
        turn = derived_id(None, FORMAT, self._run, parent or "", who, told, (payload,))
        self._first = self._first or turn
        if turn not in self.items:
            self.items[turn] = turn_draft(
                content,
                role=_ROLES.get(who, "user"),
                continues=parent,
                bookmark=False,
                id=turn,
                origin=Origin(
                    format=FORMAT,
                    ids=[block.id for block in blocks if block.id],
                    session=self._run or None,
                ),
            )
            self.items[blocks_id(turn)] = Note(topic=BLOCKS, payload=payload, turn=turn, id=blocks_id(turn))
        return turn


def _values(store: RunMetadata | Metadata | Data) -> dict[str, JSONValue]:
    return cast("dict[str, JSONValue]", unmarked_value(dict(store.range())))


def blocks_id(turn: str) -> str:
    """Return the id of the note that has the blocks of a turn."""
    return derived_id(None, BLOCKS, turn)
