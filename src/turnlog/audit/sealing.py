"""Sealing: from now on a log, or what is of a subject, is recorded sealed.

What was recorded before stays as it is: events never change. It can be erased.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnlog.errors import SealError
from turnlog.events import SEAL, TURN, named_subject
from turnlog.model import SealMeta
from turnlog.model.kinds import check_type
from turnlog.record import EventDraft, plan_event
from turnlog.record.fields import check_name
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, SealPolicy, Store, WriteTransaction
from turnlog.store.sealing import checked_seals


class SealReport(Struct, frozen=True, kw_only=True):
    """What is sealed from now on.

    Attributes:
        scope: all of the log, or what is of the subject.
        subject: the subject.
        key: id of the data key: of what is of no subject, or of the subject.
        event: id of the `log.seal` event; None where it was sealed already.
        before: number of events that were recorded before, and are not sealed: of all events those with a private part,
            of a subject its turns.
    """

    scope: Literal["store", "subject"]
    subject: str | None
    key: str
    event: str | None
    before: int

    def to_record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return msgspec.to_builtins(self)


def seal(store: Store, sources: Sources, subject: str | None = None, *, by: str | None = None) -> SealReport:
    """Have a log, or what is of a subject, recorded sealed from now on. See `TurnLog.seal`."""
    subject = None if subject is None else check_name(subject, field="subject")
    with store.read() as transaction:
        seals = transaction.seals if transaction.seal_policy() is None else checked_seals(transaction)
    if seals is None:
        raise SealError("there are no keys to seal with: open the log with `seals=`")
    key = seals.make(subject)
    tag = None if subject is None else seals.tag("subject", subject)
    meta = SealMeta(
        scope="store" if subject is None else "subject",
        keys=seals.tag("keys", ""),
        tag=tag,
        subject=subject,
        by=None if by is None else check_type(by, str, "by"),
    )

    def plan(transaction: WriteTransaction) -> str | None:
        checked_seals(transaction)  # somebody else may have sealed it meanwhile
        if _is_sealed(transaction.seal_policy(), tag):
            return None
        return plan_event(transaction, EventDraft(topic=SEAL, meta=meta), NO_PAYLOAD, sources, key=key).header.id

    event = store.write(plan)
    with store.read() as transaction:
        before = _count_before(transaction, subject)
    return SealReport(scope=meta.scope, subject=subject, key=key.id, event=event, before=before)


def _is_sealed(policy: SealPolicy | None, tag: str | None) -> bool:
    return policy is not None and (policy.store if tag is None else tag in policy.subjects)


def _count_before(transaction: ReadTransaction, subject: str | None) -> int:
    if subject is None:
        return sum(event.private is not None and event.sealed is None for event in transaction.log())
    turns = (turn for turn in transaction.log(topics=[TURN]) if turn.sealed is None)
    return sum(named_subject(turn) == subject for turn in turns)
