"""Letting a feed go on from another global position: over what its destination refuses, or back."""

from __future__ import annotations

from contextlib import closing

from turnlog.errors import ConflictError, MetaError
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.feeds.sinks.taking_back import sink_of
from turnlog.store import Store


def move(store: Store, states: FeedStates, name: str, position: int) -> FeedState | None:
    """Keep that a feed has come to a global position, and return its state; None if there is no such feed.

    Raises:
        MetaError: the log has no such position.
        ConflictError: the feed is running, is of another log, or fills a folder that has come further: a folder goes
            on where its files end.
        SinkError: the folder cannot be used.
    """
    with store.read() as transaction:
        end = transaction.log_end()
        at = transaction.at_global(position) if type(position) is int and 0 < position <= end else None
        genesis = transaction.genesis()
    if at is None and position != 0:
        raise MetaError(f"position is {position!r}: give a global position, from 0 to {end:,}", field="position")
    if states.load(name) is None:
        return None
    with states.held(name):
        state = states.load(name)
        if state is None:
            return None
        if genesis is not None and state.log not in (None, genesis.header.id):
            raise ConflictError(
                f"feed {name!r} is of log {state.log!r}, and this is log {genesis.header.id!r}: begin a feed of "
                "another name"
            )
        log = _log_of_folder(store, state, position)
        moved = state.changed(
            log=state.log or log,
            position=position,
            event_id=None if at is None else at.header.id,
            digest=None if at is None else at.digest,
            pending=None,
            # What was delivered does not tell any more whether the destination lacks something.
            delivered_to=0,
            error=None,
            error_time=None,
        )
        states.save(moved)
    return moved


def _log_of_folder(store: Store, state: FeedState, position: int) -> str | None:
    """Return the log of the files of a feed, None without any, and check that they do not go beyond a position."""
    sink = sink_of(state)
    if sink is None or sink.is_emptied():
        return None
    with closing(sink):
        place = sink.open(store)
    if place is not None and place.position > position:
        raise ConflictError(
            f"the files in {state.destination!r} go to global position {place.position:,}, and feed {state.name!r} "
            "goes on where they end: take them away, or begin a feed of another name that fills another folder"
        )
    return None if place is None else place.log
