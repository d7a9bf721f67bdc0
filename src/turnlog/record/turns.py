"""Plans that record turns and other events: they run inside a write transaction, at the end of the log."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from turnlog import events
from turnlog.errors import HeadConflictError, IdConflictError, MetaError, PositionTakenError, UnknownTurnError
from turnlog.events import TURN, Event, Parent, Recorded, turn_meta
from turnlog.ids import is_id
from turnlog.projections import bookmarks
from turnlog.record.drafts import EventDraft, TurnDraft
from turnlog.record.lookup import find_turn, head_before
from turnlog.store import NewPayload, WriteTransaction

META_BYTES_MAX = 1 << 20
"""The largest metadata of an event, in bytes of JSON: 1 MiB. What is larger belongs into the payload."""


def plan_turn(transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, fresh_id: str) -> Recorded:
    """Record a turn, or return the stored one if the same turn has this id already.

    Raises:
        UnknownTurnError: a parent is unknown.
        HeadConflictError: the bookmark is not where it was expected.
        IdConflictError: another event has this id.
        MetaError: the metadata is too large.
    """
    if draft.id is not None and (stored := transaction.event(draft.id)) is not None:
        return _same_turn(transaction, draft, payload, stored)
    parents = [find_turn(transaction, headish) for headish in draft.continues]
    if draft.respond:
        parents = [_last_turn(transaction)]
    parents = _without_repeats(parents)
    bookmark = _bookmark(transaction, draft, parents)
    check_head(transaction, bookmark, draft.expected_head)
    event_id = draft.id or fresh_id
    meta = events.encode_meta(msgspec.structs.replace(draft.meta, head=UNSET if bookmark is None else bookmark))

    def record(stream: str, position: int) -> Recorded:
        event = Event(
            format=events.FORMAT,
            id=event_id,
            topic=TURN,
            stream=stream,
            position=position,
            hash=payload.hash,
            size=payload.size,
            parents=[Parent(id=parent.event.id, digest=parent.digest) for parent in parents],
            meta=meta,
        )
        return _append(transaction, event, payload)

    if parents:
        # The key of the log settles whether the first parent is the last turn of its stream.
        try:
            return record(parents[0].event.stream, parents[0].event.position + 1)
        except PositionTakenError:
            pass
    return record(event_id, 0)


def plan_event(transaction: WriteTransaction, draft: EventDraft, payload: NewPayload, fresh_id: str) -> Recorded:
    """Record an event of another topic as a stream of its own, or return the stored one if it is the same.

    Raises:
        IdConflictError: another event has this id.
        MetaError: the metadata is too large.
    """
    event_id = draft.id or fresh_id
    meta = draft.meta if isinstance(draft.meta, msgspec.Struct) else dict(draft.meta)
    event = Event(
        format=events.FORMAT,
        id=event_id,
        topic=draft.topic,
        stream=event_id,
        position=0,
        hash=payload.hash,
        size=payload.size,
        parents=[],
        meta=events.encode_meta(meta),
    )
    if draft.id is not None and (stored := transaction.event(draft.id)) is not None:
        if stored.state != events.encode(event):
            raise _id_conflict(stored, "content or metadata")
        return stored
    return _append(transaction, event, payload)


def _append(transaction: WriteTransaction, event: Event, payload: NewPayload) -> Recorded:
    if len(bytes(event.meta)) > META_BYTES_MAX:
        raise MetaError(
            f"meta: {len(bytes(event.meta)):,} bytes are more than the limit of {META_BYTES_MAX:,}", field="meta"
        )
    return transaction.append(events.encode(event), event, payload)


def _last_turn(transaction: WriteTransaction, *, before: int | None = None) -> Recorded:
    last = transaction.last(TURN, before=before)
    if last is None:
        raise UnknownTurnError("there is no turn yet to respond to", headish="respond")
    return last


def _without_repeats(parents: list[Recorded]) -> list[Recorded]:
    """A turn named twice, say by id and by bookmark, is one parent."""
    return list({parent.event.id: parent for parent in parents}.values())


def _bookmark(transaction: WriteTransaction, draft: TurnDraft, parents: list[Recorded]) -> str | None:
    """Return the bookmark that the turn moves: the one it names, or that of its first parent.

    Where several bookmarks point at the parent: the one that the caller continued by name, else the one that the
    parent itself moved, else the one that was moved last.
    """
    named = draft.bookmark
    if not isinstance(named, UnsetType):
        return named
    if not parents:
        return None
    parent = parents[0].event
    by_name = draft.continues[0] if draft.continues and not is_id(draft.continues[0]) else None
    return by_name or bookmarks.bookmark_at(transaction, parent)


def check_head(transaction: WriteTransaction, bookmark: str | None, expected: str | UnsetType | None) -> None:
    """Check that a bookmark is where a caller expects it; UNSET expects nothing.

    Raises:
        HeadConflictError: it is elsewhere, or there is no bookmark to move.
    """
    if isinstance(expected, UnsetType):
        return
    actual = None if bookmark is None else bookmarks.head(transaction, bookmark)
    if bookmark is not None and actual == expected:
        return
    if bookmark is None:
        message = f"this turn would move no bookmark, expected one at {expected!r}: it has moved on, or name it"
    else:
        message = f"bookmark {bookmark!r} is at {actual!r}, expected {expected!r}: read what is new and try again"
    raise HeadConflictError(message, bookmark=bookmark, expected=expected, actual=actual)


def _same_turn(transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, stored: Recorded) -> Recorded:
    """Return the stored turn if it is what the draft asks for, seen from where it was recorded.

    Raises:
        IdConflictError: it is not.
    """
    if stored.event.topic != TURN:
        raise _id_conflict(stored, f"topic ({stored.event.topic})")
    meta = turn_meta(stored.event)
    if payload.hash != stored.event.hash:
        raise _id_conflict(stored, "content")
    given = msgspec.structs.replace(draft.meta, head=meta.head)
    if bytes(events.encode_meta(given)) != bytes(events.encode_meta(meta)):
        raise _id_conflict(stored, "metadata")
    if not isinstance(draft.bookmark, UnsetType) and draft.bookmark != (meta.head or None):
        raise _id_conflict(stored, "bookmark")
    parents = [_resolve_before(transaction, headish, stored.global_position) for headish in draft.continues]
    if draft.respond:
        parents = [_last_turn(transaction, before=stored.global_position).event.id]
    if list(dict.fromkeys(parents)) != [parent.id for parent in stored.event.parents]:
        raise _id_conflict(stored, "continues")
    return stored


def _resolve_before(transaction: WriteTransaction, headish: str, global_position: int) -> str | None:
    return headish.lower() if is_id(headish) else head_before(transaction, headish, global_position)


def _id_conflict(stored: Recorded, what: str) -> IdConflictError:
    event_id = stored.event.id
    return IdConflictError(
        f"id {event_id!r} is taken by an event with other {what}: use another id, or none for a fresh one",
        event_id=event_id,
    )
