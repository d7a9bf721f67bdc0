"""Turns, and notes beside them that keep what a turn has no place for, recorded together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from turnlog.errors import InputError
from turnlog.events import Recorded
from turnlog.ids import parse_id
from turnlog.model.kinds import check_record, check_type, check_values
from turnlog.record.drafts import EventDraft, TurnDraft, checked_draft
from turnlog.record.own import OwnEventDraft, check_own_topic, plan_own_event
from turnlog.record.redaction import Redaction
from turnlog.record.turns import plan_turn
from turnlog.sources import Sources
from turnlog.store import WriteTransaction


class Note(Struct, frozen=True, kw_only=True):
    """An event of the topic of a format or of another system's model: what a turn has no place for.

    What is content of a turn is not in its note, so that an erasure of the turn reaches it.

    Attributes:
        topic: its topic, such as `geppetto.turn`.
        payload: JSON text.
        turn: the turn that it is of, which it cites; None for none.
        meta: its metadata, private.
        id: the id to record it under, or None for a fresh one.
    """

    topic: str
    payload: bytes
    turn: str | None = None
    meta: Mapping[str, Any] = {}
    id: str | None = None


def checked(item: TurnDraft | Note) -> TurnDraft | Note:
    """Return something that is to be recorded, checked: what nobody could read again is not recorded.

    Raises:
        InputError: it is neither a draft nor a note.
        ContentError, MetaError: something of it is malformed.
    """
    if isinstance(item, TurnDraft):
        return checked_draft(item)
    if not isinstance(item, Note):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = type(item).__name__
        raise InputError(f"a group is of turn drafts and notes, got {got}: turnlog.record.turn_draft makes them")
    return Note(
        topic=check_own_topic(item.topic, of_formats=True),
        payload=check_type(item.payload, bytes, "payload"),
        turn=None if item.turn is None else check_type(item.turn, str, "turn"),
        meta=check_values(check_record(item.meta, "meta"), "meta"),
        id=None if item.id is None else parse_id(check_type(item.id, str, "id")),
    )


def redacted(item: TurnDraft | Note, redaction: Redaction) -> TurnDraft | Note:
    """Return what redaction hooks make of something that is to be recorded.

    Raises:
        RedactionError: a hook failed.
    """
    if isinstance(item, TurnDraft):
        return redaction.turn(item)
    payload, findings = redaction.line(item.payload, item.topic)
    if not findings:
        return item
    counts = dict(sorted(Counter(kind for _, kind in findings).items()))
    return Note(topic=item.topic, payload=payload, turn=item.turn, meta={**item.meta, "redacted": counts}, id=item.id)


def plan_group(transaction: WriteTransaction, items: Sequence[TurnDraft | Note], sources: Sources) -> list[Recorded]:
    """Record turns and notes in order: all of them, or none.

    Raises:
        NotFoundError: a note is of a turn that is neither in the log nor earlier in the group.
        TurnlogError: what `plan_turn` raises.
    """
    recorded: list[Recorded] = []
    for item in items:
        payload = transaction.placed(item.payload)
        if isinstance(item, TurnDraft):
            recorded.append(plan_turn(transaction, item, payload, sources))
            continue
        event = EventDraft(topic=item.topic, meta=item.meta, id=item.id)
        cites = () if item.turn is None else (("turn", item.turn),)
        recorded.append(plan_own_event(transaction, OwnEventDraft(event=event, cites=cites), payload, sources))
    return recorded
