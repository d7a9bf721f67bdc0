"""Legal holds: what must not be erased, as events of the log (`gpt.hold`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.audit.targets import Scope, Targets, Wanted, cited_targets
from turnlog.events import HOLD, TURN, Arrival, Recorded, meta_of, metadata, unreadable
from turnlog.model import HoldMeta
from turnlog.store import ReadTransaction, past_damage


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
        damaged: whether what it says is damaged: `name` is the id of its event then, and `scope` the widest that it
            may have. Where that is a subject nobody can tell which, and it refuses everything.
    """

    name: str
    scope: Scope
    turns: tuple[str, ...] = ()
    subject: str | None = None
    reason: str | None = None
    by: str | None = None
    time_ms: int
    damaged: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the hold as plain values."""
        return msgspec.to_builtins(self)


def holds(transaction: ReadTransaction) -> dict[str, tuple[Hold, Recorded]]:
    """Return the holds that are set, by name, each with its event. Those that came with another log hold nothing.

    Damaged ones are among them: see `Hold.damaged`. What releases a hold cites it.

    Raises:
        SealedError: one is sealed, and its key is not here.
    """
    found: dict[str, tuple[Hold, Recorded]] = {}
    with past_damage(transaction):
        said = [*transaction.log(topics=[HOLD])]
    for recorded in said:
        if recorded.erased or recorded.arrival == Arrival.GUEST:
            continue
        if recorded.damaged:
            _take_damaged(found, recorded)
            continue
        if recorded.unreadable:
            raise unreadable(recorded, f"a legal hold (event {recorded.header.id!r}), which may refuse this,")
        meta = meta_of(recorded, HoldMeta)
        if meta.action == "release" or meta.scope is None:
            found.pop(meta.name, None)
            _drop(found, recorded)
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


def _take_damaged(found: dict[str, tuple[Hold, Recorded]], recorded: Recorded) -> None:
    """Take in what the header of an event says that sets a hold or releases one."""
    if metadata(recorded).get("action") == "release":
        _drop(found, recorded)
        return
    turns = tuple(cited_targets(recorded))
    hold = Hold(
        name=recorded.header.id,
        scope="thread" if turns else "subject",
        turns=turns,
        time_ms=recorded.header.time,
        damaged=True,
    )
    found[hold.name] = hold, recorded


def _drop(found: dict[str, tuple[Hold, Recorded]], release: Recorded) -> None:
    """Drop the holds that an event cites, which releases them."""
    cited = {*cited_targets(release)}
    for name, (_, recorded) in [*found.items()]:
        if recorded.header.id in cited:
            del found[name]


def released_by(transaction: ReadTransaction, event: Recorded) -> str | None:
    """Return the id of the event that has set the hold which an event releases; None where it is no such event."""
    if event.header.topic != HOLD or event.arrival == Arrival.GUEST or metadata(event).get("action") != "release":
        return None
    said = (transaction.event(hold) for hold in cited_targets(event))
    return next((hold.header.id for hold in said if hold is not None and not hold.erased), None)


def held(transaction: ReadTransaction) -> list[tuple[Hold, Targets]]:
    """Return the holds that are set, each with what will say which events it holds."""
    found: list[tuple[Hold, Targets]] = []
    for hold, _ in holds(transaction).values():
        events = [transaction.event(turn) for turn in hold.turns]
        turns = [event for event in events if event is not None]
        found.append((hold, Targets(Wanted(scope=hold.scope, turns=turns, subject=hold.subject))))
    return found


def doubt(transaction: ReadTransaction, hold: Hold, targets: Targets, chosen: set[str]) -> str | None:
    """Return why nobody can tell whether a hold refuses to erase events, one line; None where that can be told."""
    if not chosen or hold.scope != "subject":
        return None
    untold = f"whether the legal hold {hold.name!r} refuses it cannot be told, and nothing was erased"
    if hold.damaged:
        return f"{untold}, for it is damaged: restore it from a copy, or release it, `turnlog hold release {hold.name}`"
    turns = [event for event in targets.damaged.values() if event.header.topic == TURN]
    if not turns or not _carry(transaction, turns, chosen):
        return None
    named = next((turn for turn in turns if _carry(transaction, [turn], chosen)), turns[0])
    return f"{untold}, for turn {named.header.id!r} is damaged: restore it from a copy, or release the hold"


def _carry(transaction: ReadTransaction, turns: Sequence[Recorded], chosen: set[str]) -> bool:
    """Tell whether some of the chosen events are of some turns."""
    found = Targets(Wanted(scope="turn", turns=turns))
    found.find(transaction)
    return not chosen.isdisjoint(event.header.id for event in found.all)
