"""What does it cost to prepare a request of a long conversation, and to add up a long reply?"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from itertools import islice

from benchmarks.data import Texts
from benchmarks.measure import (
    Figure,
    Report,
    Samples,
    Settings,
    at_most,
    cost,
    interleave,
    medians_us,
    timed,
)
from benchmarks.wires import TURNS_EACH, WIRES, conversation, plain, stream
from turnlog.model import ContextWindow, Message
from turnlog.model.chunked import Chunked
from turnlog.providers import Provider
from turnlog.providers.registry import adapter_class

NEW_TURNS = 2
GROWTHS = 10
"""Requests a round, each of a window that is longer by the new turns."""

DUMPS, LOADS = "json.dumps of the messages", "json.loads of the events"


def run(settings: Settings) -> Report:
    """Prepare a long window on every wire, cold and going on, and add up a long stream of every wire."""
    rounds = settings.pick(quick=3, full=15)
    turns = settings.pick(quick=1_000, full=10_000)
    events = settings.pick(quick=1_000, full=5_000)
    messages = list(islice(conversation(Texts(settings.seed)), turns))
    values = plain(messages)
    systems: dict[str, Callable[[], float]] = {DUMPS: lambda: _each(lambda: json.dumps(values).encode(), turns)}
    for wire in WIRES:
        systems[f"{wire}, cold"] = _cold(wire, messages)
    samples: Samples = interleave(systems, rounds=rounds)
    later = {wire: _later(wire, settings.seed, turns, rounds) for wire in WIRES}
    replies = {wire: _replies(wire, events, settings.seed, rounds) for wire in WIRES}
    figures = [_cold_figure(samples, wire, turns) for wire in WIRES]
    figures += [_later_figure(later[wire], wire, turns) for wire in WIRES]
    figures.append(_body_figure(later[WIRES[0]], samples, WIRES[0], turns))
    figures += [_reply_figure(replies[wire], wire, events) for wire in WIRES]
    measured = medians_us(samples)
    for one in (*later.values(), *replies.values()):
        measured |= medians_us(one)
    return Report(
        question="What does it cost to prepare a request of a long conversation, and to add up a long reply?",
        figures=tuple(figures),
        measured=measured,
        shape={"rounds": rounds, "turns of the window": turns, "events of the stream": events, "new turns": NEW_TURNS},
    )


def _cold_figure(samples: Samples, wire: str, turns: int) -> Figure:
    return cost(
        samples,
        f"{wire}, cold",
        DUMPS,
        what=f"{wire}: prepare_request and body, window of {turns:,} turns, cold: time a turn",
        baseline="json.dumps of the same messages as plain values",
    )


def _later_figure(samples: Samples, wire: str, turns: int) -> Figure:
    return cost(
        samples,
        f"{wire}, going on",
        f"{wire}, new turns alone",
        what=f"{wire}: prepare_request of {turns:,} turns and {NEW_TURNS} new ones, going on: time",
        baseline=f"prepare_request of the {NEW_TURNS} new turns alone",
        target=at_most(2),
    )


def _body_figure(later: Samples, samples: Samples, wire: str, turns: int) -> Figure:
    whole = [seconds * turns for seconds in samples[DUMPS]]
    together = {"body": later[f"{wire}, body put together"], "dumps": whole}
    return cost(
        together,
        "body",
        "dumps",
        what=f"{wire}: the body of {turns:,} turns put together from its parts: time",
        baseline="json.dumps of the same messages as plain values",
    )


def _reply_figure(samples: Samples, wire: str, events: int) -> Figure:
    return cost(
        samples,
        f"{wire}, read",
        f"{wire}, {LOADS}",
        what=f"{wire}: what to show of {events:,} events and what they add up to, in one pass: time an event",
        baseline="json.loads of the same events",
    )


def _cold(wire: str, messages: list[Message]) -> Callable[[], float]:
    """Return a system that prepares all messages on an adapter that knows none of them, and puts the body together."""
    window = ContextWindow(messages=Chunked(messages), options={})
    return lambda: _each(lambda adapter: prepare(adapter, window), len(messages), fresh(wire))


def fresh(wire: str) -> Provider:
    """Return an adapter that keeps no conversation yet."""
    return adapter_class(wire)()


def prepare(adapter: Provider, window: ContextWindow) -> bytes:
    """Return the body of a window."""
    return adapter.prepare_request(window, model="m").body


def _each(work: Callable[..., object], count: int, *given: object) -> float:
    start = time.perf_counter()
    kept = work(*given)
    seconds = (time.perf_counter() - start) / count
    del kept
    return seconds


def _later(wire: str, seed: int, turns: int, rounds: int) -> dict[str, list[float]]:
    """Time requests of a conversation that goes on, and those of its new turns alone, in one round after the other.

    The new turns are a result and the reply to it, so that the conversation before them ends with an open call, or a
    question and the reply to that, by turns.
    """
    source = conversation(Texts(seed + 1))
    adapter = fresh(wire)
    messages = Chunked(islice(source, turns))
    prepare(adapter, ContextWindow(messages=messages, options={}))
    going_on, alone, body = f"{wire}, going on", f"{wire}, new turns alone", f"{wire}, body put together"
    samples: dict[str, list[float]] = {going_on: [], alone: [], body: []}
    for _ in range(rounds):
        windows, parts = [], []
        for _ in range(GROWTHS * TURNS_EACH // NEW_TURNS):
            new = list(islice(source, NEW_TURNS))
            messages = messages.extended(new)
            windows.append(ContextWindow(messages=messages, options={}))
            parts.append((fresh(wire), ContextWindow(messages=Chunked(new), options={})))
        gc.collect()
        start = time.perf_counter()
        requests = [adapter.prepare_request(window, model="m") for window in windows]
        samples[going_on].append((time.perf_counter() - start) / len(windows))
        samples[body].append(timed(lambda: requests[-1].body))  # noqa: B023 - called at once
        gc.collect()
        start = time.perf_counter()
        for other, part in parts:
            other.prepare_request(part, model="m")
        samples[alone].append((time.perf_counter() - start) / len(parts))
    return samples


def _read(adapter: Provider, events: Sequence[bytes]) -> None:
    """Read a stream as a call does: what to show of each event, and what all add up to."""
    reader = adapter.reader(model="m")
    for event in events:
        reader.add(event)
    reader.response()


def _replies(wire: str, count: int, seed: int, rounds: int) -> dict[str, list[float]]:
    events = stream(wire, count, Texts(seed + 2))
    adapter = fresh(wire)
    if adapter.aggregate(events, model="m").stop_reason != "stop":
        raise AssertionError(f"the stream of {wire} is not whole")
    return interleave(
        {
            f"{wire}, read": lambda: _each(lambda: _read(adapter, events), count),
            f"{wire}, {LOADS}": lambda: _each(lambda: [json.loads(event) for event in events], count),
        },
        rounds=rounds,
    )
