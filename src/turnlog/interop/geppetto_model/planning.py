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

from collections.abc import Sequence
from itertools import groupby

import msgspec
from msgspec import UNSET, Struct

from turnlog.ids import derived_id
from turnlog.interop.geppetto_model.content import Kept, said, speaker
from turnlog.interop.geppetto_model.types import Block, Run, Turn
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
    """`turn_ids` are those of the blocks: one for all of them, or one each."""

    id: str = ""
    run_id: str = ""
    metadata: dict[str, JSONValue] = {}
    data: dict[str, JSONValue] = {}
    turn_ids: list[str] = []


class KeptRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = ""
    name: str = ""
    metadata: dict[str, JSONValue] = {}
    turns: list[str] = []


_encoder = msgspec.json.Encoder()


class Plan:
    """What is to be recorded of one run, each turn and note once, in an order in which each can be recorded."""

    def __init__(self, run: str) -> None:
        """Begin with nothing. `run` is the id of the run, which ids derive from."""
        self._run = run
        self.items: dict[str, TurnDraft | Note] = {}

    def run(self, run: Run) -> tuple[str, tuple[RecordedTurn, ...]]:
        """Add a run, and return the id of its event, and its snapshots.

        Raises:
            ContentError: a payload is not JSON, or has what no content block can hold.
            SecretError: metadata, data or a part of a payload that is no content looks like a secret.
        """
        turns = tuple(self.snapshot(turn, SnapshotMeta(session=run.id)) for turn in run.turns)
        metadata = dict(run.metadata.range())
        refuse_secrets(metadata, field="run.metadata")
        kept = KeptRun(id=run.id, name=run.name, metadata=metadata, turns=[turn.id for turn in turns])
        return self.note(RUN, _encoder.encode(kept), SnapshotMeta(session=run.id)), turns

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
        kept = KeptSnapshot(
            id=turn.id, run_id=turn.run_id, metadata=metadata, data=data, turn_ids=[] if one == [""] else one
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
        turn = derived_id(None, FORMAT, self._run, parent or "", who, content_bytes(content).decode(), payload.decode())
        if turn not in self.items:
            self.items[turn] = turn_draft(
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
            self.items[blocks_id(turn)] = Note(topic=BLOCKS, payload=payload, turn=turn, id=blocks_id(turn))
        return turn


def blocks_id(turn: str) -> str:
    """Return the id of the note that has the blocks of a turn."""
    return derived_id(None, BLOCKS, turn)
