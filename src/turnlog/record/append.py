"""The one append path: from metadata, citations and a payload to an event in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from turnlog.errors import IdConflictError, MetaError
from turnlog.events import (
    SHAPES,
    Citation,
    DataKey,
    Event,
    Private,
    Recorded,
    Sealed,
    Seals,
    build,
    meta_text,
    parts_of,
    private_part,
    sealed_part,
)
from turnlog.model.kinds import check_fields
from turnlog.record.drafts import EventDraft
from turnlog.record.sealing import general_key, sealed_under, tags_of
from turnlog.sources import Sources
from turnlog.store import NewPayload, Taken, WriteTransaction
from turnlog.store.begin import begin

META_BYTES_MAX = 1 << 20
"""The largest metadata of an event, in bytes of JSON: 1 MiB. What is larger belongs into the payload."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What an event will be made of, but for its place."""

    topic: str
    id: str
    time: int
    public: msgspec.Raw
    private: Private | None
    citations: Sequence[Citation]
    sealed: Sealed | None = None

    def at(self, stream: str, position: int) -> Event:
        """Return the event for a place."""
        return build(
            topic=self.topic,
            id=self.id,
            time=self.time,
            meta=self.public,
            private=self.private,
            citations=self.citations,
            stream=stream,
            position=position,
            sealed=self.sealed,
        )


def parts(
    topic: str,
    own_id: str | None,
    public: Mapping[str, Any],
    private: Mapping[str, Any],
    payload: NewPayload,
    citations: Sequence[Citation],
    sources: Sources,
    seals: Seals | None = None,
) -> Parts:
    """Return what an event will be made of: sealed where its payload is.

    Args:
        topic: its topic.
        own_id: its id, or None for a fresh one.
        public: the metadata that stands in the header.
        private: the metadata of its private part.
        payload: its payload.
        citations: what it rests on.
        sources: where its id, time and salt come from.
        seals: the keys of what is sealed.

    Raises:
        MetaError: the metadata is too large.
    """
    private_half = private_part(private, hash=payload.content_hash, size=payload.content_size, salt=sources.salt())
    public_text = meta_text(public)
    if public or private:
        size = len(bytes(public_text)) + (0 if private_half is None else len(bytes(private_half.meta)))
        if size > META_BYTES_MAX:
            raise MetaError(f"meta: {size:,} bytes are more than the limit of {META_BYTES_MAX:,}", field="meta")
    sealed = None
    if payload.seal is not None and private_half is not None:
        tags = tags_of(topic, private, seals)
        sealed = sealed_part(private_half, payload.seal, hash=payload.hash, size=payload.size, tags=tags)
    return Parts(
        topic=topic,
        id=own_id or sources.new_id(),
        time=sources.time_ms(),
        public=public_text,
        private=private_half,
        citations=citations,
        sealed=sealed,
    )


def append(transaction: WriteTransaction, event: Event, payload: NewPayload, sources: Sources) -> Recorded | Taken:
    """Append an event that is recorded here; to an empty log, its genesis first."""
    begin(transaction, sources)
    return transaction.append(event, payload)


def plan_event(
    transaction: WriteTransaction,
    draft: EventDraft,
    payload: NewPayload,
    sources: Sources,
    citations: Sequence[Citation] = (),
    *,
    key: DataKey | Literal["log"] | None = "log",
) -> Recorded:
    """Record an event as a stream of its own, or return the stored one if it is the same.

    Args:
        transaction: where to record it.
        draft: the event.
        payload: its payload.
        sources: where its id, time and salt come from.
        citations: what it rests on.
        key: what to seal it under; None not to. By default it is sealed where all of the `log` is.

    Raises:
        IdConflictError: another event has this id.
        MetaError: the metadata is too large, or a field is not of its type.
        SealError: it is to be sealed, and the keys are not here.
    """
    if draft.id is not None and (stored := transaction.event(draft.id)) is not None:
        return _same_event(stored, draft, payload, citations, sources)
    if key == "log":
        key = general_key(transaction)
    payload = sealed_under(transaction, payload, key)
    made = parts(draft.topic, draft.id, *_halves(draft), payload, citations, sources, transaction.seals)
    recorded = append(transaction, made.at(made.id, 0), payload, sources)
    if isinstance(recorded, Taken):
        raise IdConflictError(f"id {made.id!r} is taken by another event", event_id=made.id)
    return recorded


def _same_event(
    stored: Recorded, draft: EventDraft, payload: NewPayload, citations: Sequence[Citation], sources: Sources
) -> Recorded:
    """Return the stored event if it says what the draft says. Its time and its salt are its own."""
    made = parts(draft.topic, draft.id, *_halves(draft), payload, citations, sources).at(stored.header.id, 0)
    said = (made.header.topic, made.header.citations, bytes(made.header.meta), made.hash, _private_meta(made))
    header = stored.header
    if (header.topic, header.citations, bytes(header.meta), stored.hash, _private_meta(stored)) != said:
        raise id_conflict(stored, "content or metadata")
    return stored


def _halves(draft: EventDraft) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the public and the private metadata of a draft."""
    if isinstance(draft.meta, msgspec.Struct) and draft.topic in SHAPES:
        return parts_of(draft.topic, check_fields(draft.meta, SHAPES[draft.topic].kind, "meta"))
    return draft.public, msgspec.to_builtins(draft.meta)


def _private_meta(event: Event) -> bytes:
    return b"{}" if event.private is None else bytes(event.private.meta)


def id_conflict(stored: Recorded, what: str) -> IdConflictError:
    """Return the error for an id that another event has."""
    event_id = stored.header.id
    if stored.unreadable:
        what = "what was erased since" if stored.erased else "what is sealed, and its key is not here"
    else:
        what = f"other {what}"
    return IdConflictError(
        f"id {event_id!r} is taken by an event with {what}: use another id, or none for a fresh one",
        event_id=event_id,
    )
