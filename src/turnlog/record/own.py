"""Events of topics that are not turnlog's: for those who build on a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from turnlog.errors import MetaError, NotFoundError
from turnlog.events import FORMATS, PARENT, Citation, DataKey, Recorded, cite, format_of
from turnlog.ids import parse_id
from turnlog.model.kinds import check_list, check_record, check_type, check_values
from turnlog.record.append import plan_event
from turnlog.record.drafts import EventDraft
from turnlog.record.sealing import key_beside
from turnlog.record.secrets import refuse_secrets
from turnlog.sources import Sources
from turnlog.store import NewPayload, ReadTransaction, WriteTransaction

_OWN = ("log", "gpt", "mcp")
RESERVED = (*_OWN, *FORMATS)
"""What topics of turnlog begin with."""

_TOPIC = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")
_TOPIC_CHARACTERS_MAX = 200
_PAIRS = "pairs of a word and an id"
_RELATION = re.compile(r"[a-z][a-z0-9_-]{0,59}")


class OwnEventDraft(Struct, frozen=True, kw_only=True):
    """An event to record, and what it cites: as what, and the id of each."""

    event: EventDraft
    cites: tuple[tuple[str, str], ...]


def own_event_draft(
    topic: str,
    payload: bytes | None,
    *,
    private: Mapping[str, Any] | None,
    public: Mapping[str, Any] | None,
    cites: Sequence[tuple[str, str]],
    id: str | None,
) -> OwnEventDraft:
    """Check what a caller gave for an event. See `TurnLog.add_event` for the meaning of each argument."""
    name = check_own_topic(topic)
    if payload is not None:
        check_type(payload, bytes, "payload")
    return OwnEventDraft(
        event=EventDraft(
            topic=name,
            meta=_meta(private, "private"),
            public=_meta(public, "public"),
            id=None if id is None else parse_id(check_type(id, str, "id")),
        ),
        cites=tuple(map(_citation, check_list(cites, "cites", _PAIRS))),
    )


def check_own_topic(topic: str, *, of_formats: bool = False) -> str:
    """Return a topic that is not one of turnlog's.

    Args:
        topic: the topic.
        of_formats: take those of formats too, which are turnlog's for all but its own parts.

    Raises:
        MetaError: it is one of turnlog's, or none.
    """
    name = check_type(topic, str, "topic")
    if not _TOPIC.fullmatch(name) or len(name) > _TOPIC_CHARACTERS_MAX:
        raise MetaError(f"topic: {name!r} is not of the form acme.review (a-z, 0-9, - and dots)", field="topic")
    if format_of(name) in (_OWN if of_formats else RESERVED):
        raise MetaError(f"topic: {name!r} is one of turnlog's own, choose another name", field="topic")
    return name


def _meta(given: Mapping[str, Any] | None, field: str) -> dict[str, Any]:
    plain: dict[str, Any] = check_values(check_record(given, field), field)
    refuse_secrets(plain, field=field)
    return plain


def _citation(given: object) -> tuple[str, str]:
    pair = check_list(cast("Sequence[object]", given), "cites", _PAIRS)
    if len(pair) != 2:
        raise MetaError(f"cites: expected {_PAIRS}, got {len(pair)} in one", field="cites")
    relation, event_id = pair
    relation = check_type(relation, str, "cites")
    if not _RELATION.fullmatch(relation) or relation == PARENT:
        raise MetaError(f"cites: {relation!r} is not what an event can be cited as", field="cites")
    return relation, parse_id(check_type(event_id, str, "cites"), field="cites")


def plan_own_event(
    transaction: WriteTransaction, draft: OwnEventDraft, payload: NewPayload, sources: Sources
) -> Recorded:
    """Record an event with its citations.

    Raises:
        NotFoundError: no event has an id that is to be cited.
        IdConflictError: another event has this id.
    """
    citations: list[Citation] = []
    rests_on: list[Recorded] = []
    for relation, event_id in dict.fromkeys(draft.cites):
        cited = transaction.event(event_id)
        if cited is None:
            raise NotFoundError(f"no event {event_id!r} to cite as {relation!r}")
        citations.append(cite(cited, relation))
        rests_on.append(cited)
    key = key_beside(transaction, rests_on)
    return plan_event(transaction, draft.event, payload, sources, citations, key=key)


def own_event_key(transaction: ReadTransaction, draft: OwnEventDraft) -> DataKey | None:
    """Return the key that an event would be sealed under if it were recorded now; None where it would not be.

    Raises:
        SealError: it would be sealed, and the keys are not here.
    """
    cited = (transaction.event(event_id) for _, event_id in draft.cites)
    return key_beside(transaction, [event for event in cited if event is not None])
