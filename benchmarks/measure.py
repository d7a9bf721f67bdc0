"""How things are measured: interleaved rounds, ratios of one run, and the machine that it ran on."""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import zstandard
from msgspec import Struct

System = Callable[[], float]
"""Does one block of work and returns the seconds that one operation took."""

Samples = Mapping[str, Sequence[float]]
"""Seconds an operation, a sample each round, by name of the system."""

FSYNCS = 200


class Settings(Struct, frozen=True, kw_only=True):
    """What a benchmark is told: where its stores go, whether it is to be small, the seed of its data.

    `store` is the URL of a store to use, for those that can use any; None for a SQLite file in the folder.
    """

    folder: Path
    quick: bool
    seed: int
    store: str | None = None

    def pick(self, *, quick: int, full: int) -> int:
        """Return the one of two sizes that was asked for."""
        return quick if self.quick else full


class Target(Struct, frozen=True, kw_only=True):
    """What a ratio is to reach."""

    at: Literal["least", "most"]
    value: float

    def reached(self, ratio: float) -> bool:
        """Tell whether a ratio reaches it."""
        return ratio >= self.value if self.at == "least" else ratio <= self.value

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{'≥' if self.at == 'least' else '≤'} {self.value:g}"


class Figure(Struct, frozen=True, kw_only=True):
    """One ratio against one baseline, measured in one run.

    Attributes:
        what: what was measured, and what the ratio is of.
        baseline: what it is compared with.
        ratio: the median of the rounds' ratios.
        low: their first quartile; None for sizes, which have no rounds.
        high: their third quartile; None likewise.
        target: what the ratio is to reach, or None for a figure that is only told.
        reached: whether it does; None where there is no target.
    """

    what: str
    baseline: str
    ratio: float
    low: float | None
    high: float | None
    target: Target | None
    reached: bool | None


class Report(Struct, frozen=True, kw_only=True):
    """What a benchmark found.

    Attributes:
        question: what it asks.
        figures: the ratios.
        measured: medians behind the ratios, in the unit that the name ends with.
        shape: what was measured on: counts and sizes.
    """

    question: str
    figures: tuple[Figure, ...]
    measured: dict[str, float]
    shape: dict[str, int | str]


def at_least(value: float) -> Target:
    """Return a target that the ratio must not be below."""
    return Target(at="least", value=value)


def at_most(value: float) -> Target:
    """Return a target that the ratio must not be above."""
    return Target(at="most", value=value)


def interleave(systems: Mapping[str, System], *, rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Run one block of each system a round, and return the samples of each.

    The order turns by one each round, so that no system is always the one after another. The rounds of the warm-up
    come first and are not counted.
    """
    names = list(systems)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm_up + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            gc.collect()
            seconds = systems[name]()
            if number >= warm_up:
                samples[name].append(seconds)
    return samples


def cost(samples: Samples, ours: str, other: str, *, what: str, baseline: str, target: Target | None = None) -> Figure:
    """Return how many times as long `ours` takes as the other: lower is better."""
    ratios = [a / b for a, b in zip(samples[ours], samples[other], strict=True)]
    return _figure(ratios, what=what, baseline=baseline, target=target)


def rate(samples: Samples, ours: str, other: str, *, what: str, baseline: str, target: Target | None = None) -> Figure:
    """Return the rate of `ours` as a part of the other's: higher is better."""
    ratios = [b / a for a, b in zip(samples[ours], samples[other], strict=True)]
    return _figure(ratios, what=what, baseline=baseline, target=target)


def size_ratio(ours: int, other: int, *, what: str, baseline: str, target: Target | None = None) -> Figure:
    """Return bytes against bytes."""
    return _figure([ours / other], what=what, baseline=baseline, target=target)


def _figure(ratios: Sequence[float], *, what: str, baseline: str, target: Target | None) -> Figure:
    median = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (None, None, None)
    return Figure(
        what=what,
        baseline=baseline,
        ratio=median,
        low=low,
        high=high,
        target=target,
        reached=None if target is None else target.reached(median),
    )


def medians_us(samples: Samples) -> dict[str, float]:
    """Return the median of each system, in microseconds an operation."""
    return {f"{name}, µs": round(statistics.median(values) * 1e6, 2) for name, values in samples.items()}


def seconds_each(work: Callable[[], object], count: int) -> float:
    """Call `work` `count` times and return the seconds that one call took."""
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def timed(work: Callable[[], object]) -> float:
    """Call `work` once and return the seconds that it took. What it returns lives until after the clock has stopped."""
    start = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - start
    del kept
    return seconds


def fsync_us(folder: Path) -> float:
    """Return the median cost of appending 4 KiB to a file and syncing it, in microseconds."""
    path = folder / "fsync"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        samples: list[float] = []
        for _ in range(FSYNCS):
            start = time.perf_counter()
            os.write(handle, bytes(4096))
            os.fsync(handle)
            samples.append(time.perf_counter() - start)
    finally:
        os.close(handle)
        path.unlink()
    return round(statistics.median(samples) * 1e6, 1)


def machine(folder: Path) -> dict[str, str | int | float]:
    """Return what the figures depend on beside the code."""
    return {
        "cpu": _cpu(),
        "cpus": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.machine()}",
        "file_system": _file_system(folder),
        "fsync_us": fsync_us(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": msgspec.__version__,
        "zstandard": zstandard.__version__,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    above = [(place, kind) for place, kind in found if folder.resolve().is_relative_to(place)]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else "unknown"
