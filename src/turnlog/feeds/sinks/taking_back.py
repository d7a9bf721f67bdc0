"""Erasures in what feeds have delivered: carried out where the sink can do that, and told where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from turnlog.errors import ConflictError, TurnlogError
from turnlog.events import TARGET
from turnlog.feeds.sinks.feed import Feed
from turnlog.feeds.sinks.interface import Sink
from turnlog.feeds.sinks.jsonl import JSONLines
from turnlog.feeds.sinks.parquet import ParquetFiles
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.store import Store

PATIENCE_S = 5.0
"""How long a feed that runs elsewhere is waited for."""

_POLL_S = 0.05


def take_back(store: Store, states: FeedStates) -> str | None:
    """Carry out erasures where feeds have delivered to, and say what keeps that from being done, one line."""
    with store.read() as transaction:
        last = transaction.last_erasure()
    for state in states.all():
        if not state.takes_back or state.erased_to >= last:
            continue
        sink = _sink_of(state)
        if sink is None:
            continue
        why = _taken_back(store, states, state, sink, last)
        if why is not None:
            return f"what was erased may still be in {state.destination!r} ({why}): `turnlog erase --finish`"
    return None


def beyond_reach(store: Store, states: FeedStates, erasures: Sequence[str]) -> list[FeedState]:
    """Return the feeds that have delivered content of what some erasures name, and cannot take it back.

    Args:
        store: the log.
        states: its feeds.
        erasures: ids of `gpt.erasure` events.
    """
    # A batch that is being delivered may be there already.
    reached = [(state, max(state.position if state.delivered else 0, state.pending or 0)) for state in states.all()]
    feeds = [(state, to) for state, to in reached if to and not state.takes_back and not state.choice.public]
    if not feeds:
        return []
    first: int | None = None
    with store.read() as transaction:
        for erasure in erasures:
            recorded = transaction.event(erasure)
            for citation in () if recorded is None else recorded.header.citations:
                target = transaction.event(citation.id) if citation.relation == TARGET else None
                if target is not None and (first is None or target.global_position < first):
                    first = target.global_position
    return [] if first is None else [state for state, to in feeds if to >= first]


def _sink_of(state: FeedState) -> Sink | None:
    """Return the sink of a feed; None where its folder is gone, or it is none of turnlog's own."""
    folder = Path(state.destination)
    if not folder.is_dir():
        return None
    match state.kind:
        case JSONLines.kind:
            return JSONLines(folder)
        case ParquetFiles.kind:
            return ParquetFiles(folder)
        case _:
            return None


def _taken_back(store: Store, states: FeedStates, state: FeedState, sink: Sink, last: int) -> str | None:
    until = monotonic() + PATIENCE_S
    while True:
        try:
            Feed(store, sink, states, name=state.name).take_back()
        except ConflictError as error:
            # Who runs it carries out the erasure as soon as it sees it.
            now = states.load(state.name)
            if now is None or now.erased_to >= last:
                return None
            if monotonic() >= until:
                return str(error)
            store.wait(last, _POLL_S)
        except TurnlogError as error:
            return str(error)
        else:
            return None
