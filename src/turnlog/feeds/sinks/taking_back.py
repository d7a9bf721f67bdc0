"""Erasures in what feeds have delivered: carried out where the sink can do that, and told where it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic

from turnlog.errors import ConflictError, StoreError, TurnlogError
from turnlog.events import ERASURE, TARGET
from turnlog.feeds.erasures import Due, erasures_due
from turnlog.feeds.sinks.feed import Feed
from turnlog.feeds.sinks.interface import Sink
from turnlog.feeds.sinks.jsonl import JSONLines
from turnlog.feeds.sinks.parquet import ParquetFiles
from turnlog.feeds.sinks.reading import LogReader
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.store import ReadTransaction, Store, past_damage

PATIENCE_S = 5.0
"""How long a feed that runs elsewhere is waited for."""

_POLL_S = 0.05

_OTHERS = (
    "its sink is none of turnlog's, and takes back when the feed runs: run it; else `turnlog feeds remove` forgets it"
)
_EMPTIED = "its folder is empty or not there, and its files may come back; else `turnlog feeds remove` forgets it"


def take_back(store: Store, states: FeedStates) -> str | None:
    """Carry out erasures where feeds have delivered to, in each that can be reached.

    A sink of another's is made by whoever runs its feed, and by nobody here.

    Returns:
        Which feeds were not reached, each with its destination and what keeps it, one line; None if all were.
    """
    left: list[str] = []
    try:
        known = states.all()
    except StoreError as error:
        return f"what was erased may still be where feeds have delivered it: {error}"
    for state in known:
        due = _due(store, state)
        if due is not None and state.error is not None:
            states.forget_error(state.name)
        if due is None or not state.takes_back or not state.may_have_delivered:
            continue
        sink = sink_of(state)
        why = _taken_back(store, states, state, sink, due) if sink else _left_to_its_run(store, states, state, due)
        if why is not None:
            left.append(f"in {state.destination!r} (feed {state.name!r}: {why})")
    return f"what was erased may still be {', and '.join(left)}: `turnlog erase --finish`" if left else None


def delivered_to(store: Store, states: FeedStates, events: Iterable[str]) -> list[FeedState]:
    """Return the feeds that have delivered content of some events, those that take it back too.

    Args:
        store: the log.
        states: its feeds.
        events: ids of events; a `gpt.erasure` event stands for what it names.
    """
    feeds = [state for state in states.all() if state.sent]
    if not feeds:
        return []
    with store.read() as transaction, past_damage(transaction):
        first = min(_positions(transaction, events), default=None)
    return [] if first is None else [state for state in feeds if state.sent >= first]


def _positions(transaction: ReadTransaction, events: Iterable[str]) -> Iterator[int]:
    for recorded in filter(None, map(transaction.event, events)):
        if recorded.header.topic == ERASURE:
            named = (citation.id for citation in recorded.header.citations if citation.relation == TARGET)
            yield from (target.global_position for target in filter(None, map(transaction.event, named)))
        else:
            yield recorded.global_position


def sink_of(state: FeedState) -> Sink | None:
    """Return the sink of a feed that fills a folder; None for a feed of another kind."""
    kinds = {JSONLines.kind: JSONLines, ParquetFiles.kind: ParquetFiles}
    kind = kinds.get(state.kind)
    return None if kind is None else kind(state.destination)


def _due(store: Store, state: FeedState) -> Due | None:
    with store.read() as transaction:
        return erasures_due(transaction, state)


def _taken_back(store: Store, states: FeedStates, state: FeedState, sink: Sink, due: Due) -> str | None:
    until = monotonic() + PATIENCE_S
    while True:
        try:
            if sink.is_emptied():
                return _EMPTIED if _has_content(store, state, due) else None
            Feed(store, sink, states, name=state.name).take_back()
        except ConflictError as error:
            if _is_carried_out(store, states, state, due):
                return None
            if monotonic() >= until:
                return str(error)
            store.wait(due.last, _POLL_S)
        except TurnlogError as error:
            return str(error)
        else:
            return None


def _left_to_its_run(store: Store, states: FeedStates, state: FeedState, due: Due) -> str | None:
    """Return that a feed has to run, where what it delivered is erased and nobody who runs it carries that out."""
    if not _has_content(store, state, due):
        return None
    until = monotonic() + PATIENCE_S
    while not _is_carried_out(store, states, state, due):
        if not states.is_held(state.name) or monotonic() >= until:
            return _OTHERS
        store.wait(due.last, _POLL_S)
    return None


def _has_content(store: Store, state: FeedState, due: Due) -> bool:
    """Tell whether content of what is erased may have been delivered."""
    return bool(state.sent) and LogReader(store, state.choice).is_erased(state, due)


def _is_carried_out(store: Store, states: FeedStates, state: FeedState, due: Due) -> bool:
    """Tell whether who runs a feed has carried out erasures, which it does as soon as it sees them."""
    now = states.load(state.name)
    return now is None or (still := _due(store, now)) is None or still.after >= due.last
