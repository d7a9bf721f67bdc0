"""Erasures in what projections keep beside their tables, and in the tables of those that are paused.

A projection that goes on comes to an erasure in its order. What it has said when it failed may repeat what was erased
all the same, and one that is paused, or that damage of the log keeps from going on, does not come to it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from turnlog.errors import SchemaError, StoreBusyError, StoreClosedError, StoreCutError, StoreFullError
from turnlog.events import Recorded
from turnlog.feeds.erasures import FORGOTTEN, Due, due_erasures, erasures_due
from turnlog.feeds.log_events import LogEvent, log_event
from turnlog.feeds.projection import Projection, State
from turnlog.feeds.statuses import check_log, going_on
from turnlog.feeds.targets import Target, check_open
from turnlog.model.plain import check_done
from turnlog.record.lookup import erased_by
from turnlog.store import Store, past_damage
from turnlog.store.telling import logger

_log = logger("turnlog.feeds")


def begun(store: Store, state: State) -> State:
    """Return the state of a projection that begins: it keeps nothing that erasures have to reach."""
    with store.read() as transaction:
        due = erasures_due(transaction, state)
    return state if due is None else _reached(state, due)


def forget_errors(store: Store, target: Target, db: Any, given: Projection, state: State) -> State:
    """Put a text that says so in the place of errors that may repeat what was erased, and return the state as it is.

    A projection that is paused at an event that was erased goes on: there is nothing left that it cannot fold.
    """
    due = _due(store, given, state)
    if due is None:
        return state
    told = [skip for skip in target.skips(db, given.name) if skip.error not in (None, FORGOTTEN)]
    for skip in told:
        target.skip(db, msgspec.structs.replace(skip, error=FORGOTTEN))
    changed = state
    if _is_erased(store, state.paused_at):
        changed = going_on(changed)
    elif changed.error is not None:
        changed = msgspec.structs.replace(changed, error=FORGOTTEN)
    if told or changed.error != state.error:
        changed = msgspec.structs.replace(changed, has_traces=True)
    if changed.paused_at is None:
        changed = _reached(changed, due)
    if changed != state:
        target.save(db, given, changed)
    return changed


def forget_paused(store: Store, target: Target, given: Projection) -> None:
    """Take away from a projection that is paused what was erased of the events that it has folded.

    Where it cannot do that it stays as it is, and the next run tries again: its status has traces until then.
    """
    with _failures_told(target, given, "is paused"), target.transaction() as db:
        state = target.load(db, given.name)
        if state is None or state.paused_at is None or state.version != given.version:
            return
        due = _due(store, given, state)
        if due is None:
            return
        state = _forgotten(store, target, db, given, state, due)
        target.save(db, given, _reached(state, due))


def forget_ahead(store: Store, target: Target, given: Projection) -> bool:
    """Take away what was erased from a projection that damage of the log keeps from coming to the erasure.

    What is erased of events that it has not folded it will find erased.

    Returns:
        Whether nothing of it is left in the tables: not where they are of another version, or it cannot forget.
    """
    with store.read() as transaction:
        last = transaction.last_erasure()
    with _failures_told(target, given, "damage keeps from going on"), target.transaction() as db:
        state = target.load(db, given.name)
        if state is not None:
            if state.version != given.version:
                return False
            state = forget_errors(store, target, db, given, state)
            due = Due(after=state.position, last=last, last_id="")
            target.save(db, given, _forgotten(store, target, db, given, state, due))
        return True
    return False


@contextmanager
def _failures_told(target: Target, given: Projection, which: str) -> Generator[None]:
    """Log that a projection cannot forget what was erased, whatever its code raises. What may pass is raised."""
    try:
        yield
    except (SchemaError, StoreClosedError, StoreBusyError):
        raise
    except Exception as error:
        if target.is_transient(error):
            raise
        _log.warning("projection %s, which %s, cannot forget what was erased", given.name, which)


def scrub(target: Target, given: Projection) -> None:
    """Remove traces of what was forgotten. Where somebody reads them, or builds, a later run does."""
    if target.is_read_only:
        return
    with target.transaction() as db:
        state = target.load(db, given.name)
    # A build that is under way, or was killed, has what was forgotten too.
    if state is None or not state.has_traces or target.sweep(given) is not None:
        return
    try:
        target.scrub(given)
    except (StoreBusyError, StoreFullError):
        return
    with target.transaction() as db:
        now = target.load(db, given.name)
        if now == state:
            target.save(db, given, msgspec.structs.replace(state, has_traces=False))


def _forgotten(store: Store, target: Target, db: Any, given: Projection, state: State, due: Due) -> State:
    """Take away what was erased of the events that a projection has folded, and return its state."""
    for erasure in due_erasures(store, due) if given.forgets else ():
        events = erased_events(store, erasure)
        folded = [event for event in events if event.global_position <= state.position]
        if folded:
            check_done(given.forget(db, folded), "forget", f"projection {given.name!r}")
            state = msgspec.structs.replace(state, has_traces=True)
        target.check(db)
        check_open(target, db, given, erasure)
    return state


def erased_events(store: Store, erasure: Recorded) -> list[LogEvent]:
    """Return the events that an erasure names and that are erased here."""
    with store.read() as transaction:
        found = list(erased_by(transaction, erasure))
    return [log_event(event, store) for event in found]


def _due(store: Store, given: Projection, state: State) -> Due | None:
    """Return the erasures that are due; None without any, and in a log that is not the one that was folded."""
    with store.read() as transaction, past_damage(transaction), suppress(StoreCutError):
        check_log(transaction, given, state)
        return erasures_due(transaction, state)
    return None


def _is_erased(store: Store, position: int | None) -> bool:
    with store.read() as transaction, past_damage(transaction):
        event = None if position is None else transaction.at_global(position)
    return event is not None and event.erased


def _reached(state: State, due: Due) -> State:
    return msgspec.structs.replace(state, erased_to=due.last, erased_id=due.last_id)
