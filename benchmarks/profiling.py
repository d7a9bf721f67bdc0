"""Where the time goes: cProfile on one operation."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_append import one_writer
from benchmarks.bench_replay import cold
from benchmarks.data import Texts
from benchmarks.material import build, open_log, turns

APPENDS = 2000
WINDOW_TURNS = 10_000
LINES = 35


def profile_append(folder: Path, seed: int) -> None:
    """Profile single appends to one thread."""
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


PROFILES: dict[str, Callable[[Path, int], None]] = {"append": profile_append, "replay": profile_replay}


def _profile(work: Callable[[], object]) -> None:
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(LINES)
