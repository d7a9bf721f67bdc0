"""Plans that record turns: they run inside a write transaction, at the end of the log."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnlog.errors import IdConflictError, UnknownCallError, UnknownTurnError
from turnlog.events import (
    CALL,
    PARENT,
    REPLY,
    TOOL_END,
    TURN,
    Citation,
    DataKey,
    Recorded,
    asked_model,
    cite,
    parts_of,
    turn_meta,
)
from turnlog.model import TurnMeta
from turnlog.projections import bookmarks
from turnlog.record.append import append, id_conflict, parts
from turnlog.record.bookmarks import check_head, give_up_name
from turnlog.record.compaction import pending_summary
from turnlog.record.drafts import TurnDraft
from turnlog.record.lookup import find_before, find_turn, is_bookmark
from turnlog.record.sealing import key_of_sealed, sealed_under, turn_key
from turnlog.record.subjects import subject_behind
from turnlog.sources import Sources
from turnlog.store import NewPayload, ReadTransaction, Taken, WriteTransaction

_encoder = msgspec.json.Encoder(order="sorted")


def plan_turn(transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, sources: Sources) -> Recorded:
    """Record a turn, or return the stored one if the same turn has this id already. See `plan_turn_told`.

    Raises:
        As `plan_turn_told` does.
    """
    return plan_turn_told(transaction, draft, payload, sources)[0]


def plan_turn_told(
    transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, sources: Sources
) -> tuple[Recorded, TurnMeta]:
    """Record a turn, or find the stored one if the same turn has this id already. Return it with its metadata.

    Raises:
        UnknownTurnError: a parent is unknown.
        UnknownCallError: the call or the reply that it names is unknown.
        HeadConflictError: the bookmark is not where it was expected.
        IdConflictError: another event has this id.
        MetaError: the metadata is too large; or it continues an erased turn, and has to say whose it is.
        SealError: it is to be sealed, and the keys are not here.
    """
    given = draft.meta
    if draft.id is not None and (stored := transaction.event(draft.id)) is not None:
        return _same_turn(transaction, draft, payload, stored), turn_meta(stored)
    parents = _recent_parent(transaction, draft) or _parents(transaction, draft, transaction.heads)
    bookmark = _bookmark(transaction, draft, parents)
    if draft.expected_head is not None:
        check_head(transaction, bookmark, draft.expected_head)
    citations = [cite(parent, PARENT) for parent in parents]
    cited: dict[str, Recorded] = {}
    if given.call is not None or given.reply is not None or given.tool_ends:
        cited = _cited(transaction, given)
        citations += [cite(event, relation) for relation, event in cited.items()]
        citations += [cite_event(transaction, end, "tool_end", TOOL_END) for end in given.tool_ends]
    summary = None
    if parents and not transaction.is_quiet_since(parents[0]):
        # What a thread was summarized to since its last turn takes effect with the next one.
        summary = pending_summary(transaction, parents[0])
        citations += [] if summary is None else [cite(summary, "summary")]
    subject = _subject(transaction, draft, parents)
    meta = msgspec.structs.replace(
        given,
        head=bookmark,
        continues=tuple([citation.id for citation in citations[: len(parents)]]),
        summary=None if summary is None else summary.header.id,
        subject=subject,
        model_asked=_model_asked(given, cited.get("call")),
    )
    payload = sealed_under(transaction, payload, turn_key(transaction, subject, [*parents, *cited.values()]))
    made = parts(TURN, draft.id, *parts_of(TURN, meta), payload, citations, sources, transaction.seals)
    if bookmark is not None:
        give_up_name(transaction, bookmark, sources, is_sealed=made.sealed is not None)
    recorded: Recorded | Taken = Taken.POSITION
    if parents:
        # The key of the log settles whether the first parent is the last turn of its stream.
        last = parents[0].header
        recorded = transaction.append(made.at(last.stream, last.position + 1), payload)
    if isinstance(recorded, Taken):
        recorded = append(transaction, made.at(made.id, 0), payload, sources)
    if isinstance(recorded, Taken):
        raise IdConflictError(f"id {made.id!r} is taken by another event", event_id=made.id)
    if bookmark is not None and recorded.sealed is None:
        transaction.heads[bookmark] = recorded
    return recorded, meta


def foreseen_key(transaction: ReadTransaction, draft: TurnDraft) -> DataKey | None:
    """Return the key that a turn would be sealed under if it were recorded now; None where it would not be.

    Raises:
        UnknownTurnError: a parent is unknown.
        UnknownCallError: the call or the reply that it names is unknown.
        IdConflictError: an event that cannot be read has its id.
        MetaError: it continues an erased turn, and has to say whose it is.
        SealError: it would be sealed, and the keys are not here.
    """
    if draft.id is not None and (stored := transaction.event(draft.id)) is not None:
        if stored.unreadable:
            raise id_conflict(stored, "content")
        return key_of_sealed(transaction, [stored])
    parents = _parents(transaction, draft, {})
    rests_on = [*parents, *_cited(transaction, draft.meta).values()]
    return turn_key(transaction, _subject(transaction, draft, parents), rests_on)


def _recent_parent(transaction: WriteTransaction, draft: TurnDraft) -> list[Recorded] | None:
    """Return the one turn that a turn continues, as nearly all do, if it is known; else None."""
    if len(draft.continues) != 1:
        return None
    headish = draft.continues[0]
    parent = transaction.heads.get(headish) or transaction.recent.get(headish)
    return None if parent is None or parent.header.topic != TURN else [parent]


def _parents(transaction: ReadTransaction, draft: TurnDraft, heads: Mapping[str, Recorded]) -> list[Recorded]:
    parents = [heads.get(headish) or find_turn(transaction, headish) for headish in draft.continues]
    if draft.respond:
        parents = [_last_turn(transaction)]
    return _without_repeats(parents)


def cite_event(transaction: ReadTransaction, event_id: str, relation: str, topic: str) -> Citation:
    """Return the citation of an event of a topic by its id.

    Raises:
        UnknownCallError: there is none.
    """
    return cite(_named_event(transaction, event_id, relation, topic), relation)


def _cited(transaction: ReadTransaction, meta: TurnMeta) -> dict[str, Recorded]:
    """Return the call and the reply that a turn names, by what it cites them as."""
    named = (("call", CALL, meta.call), ("reply", REPLY, meta.reply))
    return {
        relation: _named_event(transaction, event_id, relation, topic)
        for relation, topic, event_id in named
        if isinstance(event_id, str)
    }


def _model_asked(meta: TurnMeta, call: Recorded | None) -> str | None:
    """Return the model that a call asked, where another name answered."""
    if call is None or meta.model is None:
        return None
    asked = asked_model(call)
    return None if asked == meta.model else asked


def _named_event(transaction: ReadTransaction, event_id: str, relation: str, topic: str) -> Recorded:
    found = transaction.event(event_id)
    if found is None or found.header.topic != topic:
        raise UnknownCallError(f"{relation}: there is no {topic} event {event_id!r}", call=event_id)
    return found


def _last_turn(transaction: ReadTransaction, *, before: int | None = None) -> Recorded:
    last = transaction.last(TURN, before=before)
    if last is None:
        raise UnknownTurnError("there is no turn yet to respond to", headish="respond")
    return last


def _without_repeats(parents: list[Recorded]) -> list[Recorded]:
    """A turn named twice, say by id and by bookmark, is one parent."""
    if len(parents) < 2:
        return parents
    return list({parent.header.id: parent for parent in parents}.values())


def _bookmark(transaction: WriteTransaction, draft: TurnDraft, parents: list[Recorded]) -> str | None:
    """Return the bookmark that the turn moves: the one it names, or that of its first parent.

    Where several bookmarks point at the parent: the one that the caller continued by name, else the one that the
    parent itself moved, else the one that was moved last.
    """
    named = draft.bookmark
    if named is not None:
        return named or None
    if not parents:
        return None
    parent = parents[0]
    first = draft.continues[0] if draft.continues else None
    if first is None or first == parent.header.id:
        return bookmarks.bookmark_at(transaction, parent)
    if first in transaction.heads or is_bookmark(transaction, first):
        return first
    return bookmarks.bookmark_at(transaction, parent)


def _subject(transaction: ReadTransaction, draft: TurnDraft, parents: list[Recorded]) -> str | None:
    """Return the subject of the turn: its own, or that of its first parent."""
    if draft.subject is not None:
        return draft.subject or None
    parent = parents[0] if parents else None
    if draft.parent_subject is not None and parent is not None and parent.unreadable:
        return draft.parent_subject or None
    return subject_behind(transaction, parent)


def _same_turn(transaction: WriteTransaction, draft: TurnDraft, payload: NewPayload, stored: Recorded) -> Recorded:
    """Return the stored turn if it is what the draft asks for, seen from where it was recorded.

    Raises:
        IdConflictError: it is not.
    """
    if stored.header.topic != TURN:
        raise id_conflict(stored, f"topic ({stored.header.topic})")
    meta = turn_meta(stored)
    if payload.content_hash != stored.hash:
        raise id_conflict(stored, "content")
    # What was redacted on the way here says nothing of what the turn is: it may come as it was given, or as it is.
    redacted = {"redacted": meta.redacted, "passed_over": meta.passed_over}
    given = msgspec.structs.replace(
        draft.meta,
        head=meta.head,
        continues=meta.continues,
        subject=meta.subject,
        summary=meta.summary,
        model_asked=meta.model_asked,
        **redacted,
    )
    if _encoder.encode(given) != _encoder.encode(meta):
        raise id_conflict(stored, "metadata")
    if draft.bookmark is not None and (draft.bookmark or None) != meta.head:
        raise id_conflict(stored, "bookmark")
    if draft.subject is not None and (draft.subject or None) != meta.subject:
        raise id_conflict(stored, "subject")
    parents = [find_before(transaction, headish, stored.global_position) for headish in draft.continues]
    if draft.respond:
        parents = [_last_turn(transaction, before=stored.global_position).header.id]
    if list(dict.fromkeys(parents)) != [parent.id for parent in stored.header.parents]:
        raise id_conflict(stored, "continues")
    return stored
