"""Plans that record turns: they run inside a write transaction, at the end of the log."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from turnlog.errors import HeadConflictError, IdConflictError, UnknownCallError, UnknownTurnError
from turnlog.events import CALL, PARENT, REPLY, TURN, Citation, Recorded, cite, named_subject, turn_meta
from turnlog.ids import is_id
from turnlog.projections import bookmarks
from turnlog.record.append import append, id_conflict, parts
from turnlog.record.drafts import EventDraft, TurnDraft
from turnlog.record.lookup import find_turn, head_before
from turnlog.sources import Sources
from turnlog.store import NewPayload, ReadTransaction, Taken, WriteTransaction

_encoder = msgspec.json.Encoder(order="sorted")


def plan_turn(transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, sources: Sources) -> Recorded:
    """Record a turn, or return the stored one if the same turn has this id already.

    Raises:
        UnknownTurnError: a parent is unknown.
        UnknownCallError: the call or the reply that it names is unknown.
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
    citations = [cite(parent, PARENT) for parent in parents]
    for relation, topic, named in (("call", CALL, draft.meta.call), ("reply", REPLY, draft.meta.reply)):
        if isinstance(named, str):
            citations.append(cite_event(transaction, named, relation, topic))
    subject = _subject(transaction, draft, parents)
    meta = msgspec.structs.replace(
        draft.meta,
        head=UNSET if bookmark is None else bookmark,
        subject=UNSET if subject is None else subject,
    )
    made = parts(EventDraft(topic=TURN, meta=meta, id=draft.id), payload, citations, sources)
    if parents:
        # The key of the log settles whether the first parent is the last turn of its stream.
        last = parents[0].header
        recorded = append(transaction, made.at(last.stream, last.position + 1), payload, sources)
        if isinstance(recorded, Recorded):
            return recorded
    recorded = append(transaction, made.at(made.id, 0), payload, sources)
    if isinstance(recorded, Taken):
        raise IdConflictError(f"id {made.id!r} is taken by another event", event_id=made.id)
    return recorded


def cite_event(transaction: ReadTransaction, event_id: str, relation: str, topic: str) -> Citation:
    """Return the citation of an event of a topic by its id.

    Raises:
        UnknownCallError: there is none.
    """
    cited = transaction.event(event_id)
    if cited is None or cited.header.topic != topic:
        raise UnknownCallError(f"{relation}: there is no {topic} event {event_id!r}", call=event_id)
    return cite(cited, relation)


def _last_turn(transaction: WriteTransaction, *, before: int | None = None) -> Recorded:
    last = transaction.last(TURN, before=before)
    if last is None:
        raise UnknownTurnError("there is no turn yet to respond to", headish="respond")
    return last


def _without_repeats(parents: list[Recorded]) -> list[Recorded]:
    """A turn named twice, say by id and by bookmark, is one parent."""
    return list({parent.header.id: parent for parent in parents}.values())


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
    parent = parents[0]
    by_name = draft.continues[0] if draft.continues and not is_id(draft.continues[0]) else None
    return by_name or bookmarks.bookmark_at(transaction, parent)


def _subject(transaction: ReadTransaction, draft: TurnDraft, parents: list[Recorded]) -> str | None:
    """Return the subject of the turn: its own, or that of the nearest first parent that is not erased."""
    if not isinstance(draft.subject, UnsetType):
        return draft.subject
    parent = parents[0] if parents else None
    while parent is not None and parent.erased:
        first = parent.header.cited(PARENT)
        parent = None if first is None else transaction.event(first)
    return None if parent is None else named_subject(parent)


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
    if stored.header.topic != TURN:
        raise id_conflict(stored, f"topic ({stored.header.topic})")
    meta = turn_meta(stored)
    if payload.hash != stored.hash:
        raise id_conflict(stored, "content")
    # What was redacted on the way here says nothing of what the turn is: it may come as it was given, or as it is.
    redacted = {"redacted": meta.redacted, "passed_over": meta.passed_over}
    given = msgspec.structs.replace(
        draft.meta, head=meta.head, continues=meta.continues, subject=meta.subject, **redacted
    )
    if _encoder.encode(given) != _encoder.encode(meta):
        raise id_conflict(stored, "metadata")
    if not isinstance(draft.bookmark, UnsetType) and draft.bookmark != (meta.head or None):
        raise id_conflict(stored, "bookmark")
    if not isinstance(draft.subject, UnsetType) and draft.subject != (meta.subject or None):
        raise id_conflict(stored, "subject")
    parents = [_resolve_before(transaction, headish, stored.global_position) for headish in draft.continues]
    if draft.respond:
        parents = [_last_turn(transaction, before=stored.global_position).header.id]
    if list(dict.fromkeys(parents)) != [parent.id for parent in stored.header.parents]:
        raise id_conflict(stored, "continues")
    return stored


def _resolve_before(transaction: WriteTransaction, headish: str, global_position: int) -> str | None:
    return headish.lower() if is_id(headish) else head_before(transaction, headish, global_position)
