"""Legal holds: what must not be erased, as events of the log (`gpt.hold`)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnlog.audit.targets import Scope, Targets, Wanted, cited_targets
from turnlog.events import HOLD, Arrival, Recorded, meta_of, unreadable
from turnlog.model import HoldMeta
from turnlog.store import ReadTransaction


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
