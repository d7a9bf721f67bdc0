"""How a feed is doing, for whoever asks."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

from msgspec import Struct

from turnlog.errors import CorruptionError, StoreCutError
from turnlog.events import ERASURE
from turnlog.events.times import time_of
from turnlog.feeds.erasures import erasures_due
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.record.lookup import erased_by
from turnlog.store import ReadTransaction, Store
from turnlog.store.pages import check_seen


class FeedStatus(Struct, frozen=True, kw_only=True):
    """How a feed is doing.

    Attributes:
        name: its name.
        kind: the kind of its sink.
        destination: where it delivers to.
        position: the global position up to which all was delivered, or is not wanted.
        lag: number of events of the log behind that.
        lag_s: how long ago the first of these was recorded, in seconds; 0 without any.
        delivered: number of events that the destination has acknowledged to the feed: without those in a folder that it
            was killed before it could count, and again with those that were delivered again.
        delivered_time: when it last did, ISO 8601 in UTC; None if it never did.
        error: why it does not go on, one line; None if it does. Also where the log is not the one, or not as long, any
            more, and it was not run since.
        error_time: since when, ISO 8601 in UTC.
        takes_back: whether what it delivered of events that are erased is taken back.
        owes: whether it has delivered content, and has not taken back yet what was erased since.
        running: whether somebody runs it.
    """

    name: str
    kind: str
    destination: str
    position: int
    lag: int
    lag_s: float
    delivered: int
    delivered_time: str | None
    error: str | None
    error_time: str | None
    takes_back: bool
    owes: bool
    running: bool


def status_of(
    store: Store, states: FeedStates, state: FeedState, *, now: Callable[[], float] = time.time
) -> FeedStatus:
    """Return how a feed is doing."""
    with store.read() as transaction:
        end = transaction.log_end()
        genesis = transaction.genesis()
        error = state.error
        try:
            check_log(transaction, state)
        except StoreCutError as cut:
            keeps = state.takes_back and state.may_have_delivered
            hint = way_on(state, None if genesis is None else genesis.header.id, keeps=keeps)
            error = f"{cut}; {hint}"
        except CorruptionError as damage:
            error = str(damage)
        owes = _owes(transaction, state)
        due = transaction.at_global(state.position + 1) if end > state.position else None
    lag_s = 0.0 if due is None else max(0.0, now() - time_of(due.header.time).timestamp())
    return FeedStatus(
        name=state.name,
        kind=state.kind,
        destination=state.destination,
        position=state.position,
        lag=max(0, end - state.position),
        lag_s=round(lag_s, 3),
        delivered=state.delivered,
        delivered_time=state.delivered_time,
        error=error,
        error_time=state.error_time,
        takes_back=state.takes_back,
        owes=owes,
        running=states.is_held(state.name),
    )


def _owes(transaction: ReadTransaction, state: FeedState) -> bool:
    """Tell whether something that was erased may still be where a feed has delivered it, and is to be taken back."""
    due = erasures_due(transaction, state) if state.takes_back and state.sent else None
    return due is not None and any(
        target.global_position <= state.sent
        for erasure in transaction.log(due.after, topics=(ERASURE,))
        for target in erased_by(transaction, erasure)
    )


def check_log(transaction: ReadTransaction, state: FeedState) -> None:
    """Check that the log is the one that a feed has delivered, as far as it has come.

    Raises:
        StoreCutError: it is not.
    """
    after, genesis, end = state.position, transaction.genesis(), transaction.log_end()
    if state.log is not None and genesis is not None and genesis.header.id != state.log:
        raise StoreCutError(
            f"the feed is of log {state.log!r}, and this is log {genesis.header.id!r}", position=after, end=end
        )
    if end < after:
        raise StoreCutError(
            f"the log ends at global position {end:,}, and the feed had come to {after:,}: it was cut or rolled "
            "back, or is another log",
            position=after,
            end=end,
        )
    if state.event_id is not None:
        check_seen(transaction, after, state.event_id, digest=state.digest)


def way_on(state: FeedState, log: str | None, *, keeps: bool) -> str:
    """Return what can be done with a feed of a log that was cut or rolled back, or is another one.

    Args:
        state: how far it has come.
        log: the id of the log.
        keeps: whether its destination keeps what it has, and goes on behind that.
    """
    if keeps:
        return f"{state.destination!r} keeps what it has: begin a feed of another name that delivers elsewhere"
    if state.log in (None, log):
        return (
            f"`turnlog feeds move {shlex.quote(state.name)} --to POSITION` says where it is to go on, at the last "
            "event that its receiver has as the log has it; what the receiver has from above that is lost in the "
            "log, and it is to put that away"
        )
    return "begin a feed of another name"
