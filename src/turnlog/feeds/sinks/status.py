"""How a feed is doing, for whoever asks."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from turnlog.events.times import time_of
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.store import Store


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
        error: why it does not go on, one line; None if it does.
        error_time: since when, ISO 8601 in UTC.
        takes_back: whether what it delivered of events that are erased is taken back.
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
    running: bool


def status_of(
    store: Store, states: FeedStates, state: FeedState, *, now: Callable[[], float] = time.time
) -> FeedStatus:
    """Return how a feed is doing."""
    with store.read() as transaction:
        end = transaction.log_end()
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
        error=state.error,
        error_time=state.error_time,
        takes_back=state.takes_back,
        running=states.is_held(state.name),
    )
