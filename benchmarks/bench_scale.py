"""Scale: does an append to a log of a million turns cost more than to one of ten thousand?"""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from benchmarks.baseline import JSONLines, RawSQLite
from benchmarks.data import Texts
from benchmarks.material import Turn, build, open_log, turns
from benchmarks.measure import Report, Settings, System, at_least, interleave, medians_us, rate, seconds_each

TEXTS = 20_000
"""Different texts that a log is built from. Each is compressed alone, so that repeats save nothing."""

WARM_UP = 50
RAW, LINES = "raw sqlite3", "JSON lines"


def run(settings: Settings) -> Report:
    """Build a small and a large log of the same shape, and append to both by turns, each opened anew for a block."""
    small = settings.pick(quick=2_000, full=10_000)
    large = settings.pick(quick=50_000, full=1_000_000)
    each = settings.pick(quick=200, full=1_000)
    rounds = settings.pick(quick=7, full=21)
    block = settings.pick(quick=100, full=500)
    here, there = f"turnlog at {large:,}", f"turnlog at {small:,}"
    texts = Texts(settings.seed).take(min(TEXTS, large))
    material = turns(settings.seed + 1, 1000)
    built, few = settings.folder / "small.db", settings.folder / "copy.db"
    many = settings.folder / "large.db"
    shape: dict[str, int | str] = {"rounds": rounds, "appends a round": block, "turns a thread": each}
    heads: dict[Path, list[str]] = {}
    for path, size in ((built, small), (many, large)):
        start = time.perf_counter()
        with open_log(path) as log:
            heads[path] = build(log, cycle(texts), threads=size // each, turns_each=each)
        shape[f"log of {size:,} turns, bytes"] = path.stat().st_size
        shape[f"log of {size:,} turns, turns a second while it was built"] = round(size / (time.perf_counter() - start))
    with ExitStack() as stack:
        raw = stack.enter_context(RawSQLite(settings.folder / "raw.db"))
        lines = stack.enter_context(JSONLines(settings.folder / "lines.jsonl"))
        source = cycle(material)
        appends = Appends(material, block, settings.seed)

        def at_small() -> float:
            # A fresh copy each round: the small log must not grow by what is measured on it.
            _copy(built, few)
            return appends.measure(few, list(heads[built]))

        systems: dict[str, System] = {
            here: lambda: appends.measure(many, heads[many]),
            there: at_small,
            RAW: lambda: seconds_each(lambda: raw.append(*next(source).row), block),
            LINES: lambda: seconds_each(lambda: lines.append(next(source).line), block),
        }
        samples = interleave(systems, rounds=rounds)
    what = f"append to any thread at {large:,} turns: rate"
    return Report(
        question=f"Does an append to a log of {large:,} turns cost more than to one of {small:,}?",
        figures=(
            rate(samples, here, there, what=what, baseline=there, target=at_least(0.8)),
            rate(samples, here, RAW, what=what, baseline=RAW + ", a table that starts empty"),
            rate(samples, here, LINES, what=what, baseline="JSON lines + fsync"),
        ),
        measured=medians_us(samples),
        shape=shape,
    )


class Appends:
    """Blocks of appends to threads that are drawn at random, so that their pages are seldom the ones just used."""

    def __init__(self, material: list[Turn], block: int, seed: int) -> None:
        """Take the turns to append, how many a block has, and the seed of the draw."""
        self._source = cycle(material)
        self._block = block
        self._random = random.Random(seed)

    def measure(self, path: Path, heads: list[str]) -> float:
        """Open a log, append a few turns untimed and a block timed; return the seconds of one. Moves `heads` along."""
        with open_log(path) as log:

            def append() -> None:
                thread, turn = self._random.randrange(len(heads)), next(self._source)
                heads[thread] = log.add_turn(turn.text, role=turn.role, continues=heads[thread]).id

            seconds_each(append, WARM_UP)
            return seconds_each(append, self._block)


def _copy(source: Path, target: Path) -> None:
    """Copy a closed log, and sync the copy, so that its writing back is not measured."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
