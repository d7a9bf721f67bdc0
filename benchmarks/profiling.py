"""Where the time goes: cProfile on one operation."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from benchmarks.bench_append import one_writer
from benchmarks.bench_providers import fresh, prepare
from benchmarks.bench_replay import cold
from benchmarks.data import Texts
from benchmarks.material import build, open_log, turns
from benchmarks.parts import print_parts
from benchmarks.wires import WIRES, conversation, stream
from turnlog.model import ContextWindow
from turnlog.model.chunked import Chunked

APPENDS = 2000
WINDOW_TURNS = 10_000
EVENTS = 5000
LINES = 35


def profile_append(folder: Path, seed: int) -> None:
    """Print the parts of single appends to one thread, and profile them."""
    print_parts(folder, seed)
    material = turns(seed, APPENDS)
    with open_log(folder / "profile.db") as log:
        append = one_writer(log, material)
        for _ in range(100):
            append()
        _profile(lambda: [append() for _ in range(APPENDS)])


def profile_replay(folder: Path, seed: int) -> None:
    """Profile one cold window, with the content of every message decoded."""
    with open_log(folder / "profile.db") as log:
        [head] = build(log, Texts(seed), threads=1, turns_each=WINDOW_TURNS)
        _profile(lambda: [message.content for message in cold(log).context(head).messages])


def profile_prepare(folder: Path, seed: int) -> None:  # noqa: ARG001 - the signature of every profile
    """Profile one cold request of a long window, on each wire."""
    messages = Chunked(islice(conversation(Texts(seed)), WINDOW_TURNS))
    for wire in WIRES:
        print(wire)
        adapter = fresh(wire)
        _profile(lambda: prepare(adapter, ContextWindow(messages=messages, options={})))  # noqa: B023 - called at once


def profile_aggregate(folder: Path, seed: int) -> None:  # noqa: ARG001
    """Profile one long streamed reply of each wire."""
    for wire in WIRES:
        print(wire)
        adapter, events = fresh(wire), stream(wire, EVENTS, Texts(seed))
        _profile(lambda: adapter.aggregate(events, model="m"))  # noqa: B023


PROFILES: dict[str, Callable[[Path, int], None]] = {
    "append": profile_append,
    "replay": profile_replay,
    "prepare": profile_prepare,
    "aggregate": profile_aggregate,
}


def _profile(work: Callable[[], object]) -> None:
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(LINES)
