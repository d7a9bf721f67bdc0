"""Legal holds: what must not be erased, as events of the log (`gpt.hold`)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnlog.audit.targets import Scope, Targets, Wanted, cited_targets
from turnlog.errors import HoldError, MetaError
from turnlog.events import HOLD, TARGET, Arrival, Recorded, cite, meta_of, unreadable
from turnlog.model import HoldMeta
from turnlog.record import EventDraft, find_turn, plan_event
from turnlog.record.fields import check_name, check_type
from turnlog.record.sealing import key_about, key_beside
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction


class Hold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A legal hold that was not released.

    Attributes:
        name: the hold.
        scope: what is held: turns, all turns of their threads, or all turns of a subject; those to come too.
        turns: ids of the turns that were named.
        subject: the subject.
        reason: why.
        by: who asked for it.
        time_ms: when it was set, in milliseconds since 1970 UTC.
    """

    name: str
    scope: Scope
    turns: tuple[str, ...] = ()
    subject: str | None = None
    reason: str | None = None
    by: str | None = None
    time_ms: int

    def to_record(self) -> dict[str, Any]:
        """Return the hold as plain values."""
        return msgspec.to_builtins(self)


def holds(transaction: ReadTransaction) -> dict[str, tuple[Hold, Recorded]]:
    """Return the holds that are set, by name, each with its event. Those that came with another log hold nothing."""
    found: dict[str, tuple[Hold, Recorded]] = {}
    for recorded in transaction.log(topics=[HOLD]):
        if recorded.erased or recorded.arrival == Arrival.GUEST:
            continue
        if recorded.unreadable:
            raise unreadable(recorded, f"a legal hold (event {recorded.header.id!r}), which may refuse this,")
        meta = meta_of(recorded, HoldMeta)
        if meta.action == "release" or meta.scope is None:
            found.pop(meta.name, None)
            continue
        hold = Hold(
            name=meta.name,
            scope=meta.scope,
            turns=tuple(cited_targets(recorded)),
            subject=meta.subject or None,
            reason=meta.reason or None,
            by=meta.by or None,
            time_ms=recorded.header.time,
        )
        found[meta.name] = hold, recorded
    return found


def held(transaction: ReadTransaction) -> list[tuple[Hold, Targets]]:
    """Return the holds that are set, each with what will say which events it holds."""
    found: list[tuple[Hold, Targets]] = []
    for hold, _ in holds(transaction).values():
        events = [transaction.event(turn) for turn in hold.turns]
        turns = [event for event in events if event is not None]
        found.append((hold, Targets(Wanted(scope=hold.scope, turns=turns, subject=hold.subject))))
    return found


def set_hold(
    store: Store,
    sources: Sources,
    name: str,
    *,
    scope: Scope,
    turns: tuple[str, ...] = (),
    subject: str | None = None,
    reason: str | None = None,
    by: str | None = None,
) -> Hold:
    """Set a hold. On return it is on disk.

    Raises:
        MetaError: a name is malformed.
        UnknownTurnError: there is no such turn.
        HoldError: there is a hold of this name.
    """
    meta = HoldMeta(
        action="set",
        name=check_name(name, field="name"),
        scope=scope,
        subject=None if subject is None else check_name(subject, field="subject"),
        reason=None if reason is None else check_type(reason, str, "reason"),
        by=None if by is None else check_type(by, str, "by"),
    )
    if (subject is None) == (scope == "subject") or bool(turns) == (scope == "subject"):
        raise MetaError("scope: a hold is on turns, on threads or on a subject: give one of them", field="scope")

    def plan(transaction: WriteTransaction) -> Hold:
        if name in holds(transaction):
            raise HoldError(f"there is a hold {name!r} already: release it first, or choose another name")
        found = {turn.header.id: turn for turn in (find_turn(transaction, headish) for headish in turns)}
        citations = [cite(turn, TARGET) for turn in found.values()]
        key = key_about(transaction, [*found.values()], subject)
        plan_event(transaction, EventDraft(topic=HOLD, meta=meta), NO_PAYLOAD, sources, citations, key=key)
        return holds(transaction)[name][0]

    return store.write(plan)


def release_hold(
    store: Store, sources: Sources, name: str, *, reason: str | None = None, by: str | None = None
) -> None:
    """Release a hold. On return it is on disk.

    Raises:
        HoldError: there is no such hold.
    """
    meta = HoldMeta(
        action="release",
        name=name,
        reason=None if reason is None else check_type(reason, str, "reason"),
        by=None if by is None else check_type(by, str, "by"),
    )

    def plan(transaction: WriteTransaction) -> None:
        found = holds(transaction)
        if name not in found:
            raise HoldError(f"there is no hold {name!r}: `turnlog hold list` lists them")
        # Which one is released is in what is signed: the event cites what it releases.
        released = found[name][1]
        key = key_beside(transaction, [released])
        plan_event(
            transaction, EventDraft(topic=HOLD, meta=meta), NO_PAYLOAD, sources, [cite(released, TARGET)], key=key
        )

    store.write(plan)
