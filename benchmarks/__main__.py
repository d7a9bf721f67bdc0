"""Run the benchmarks: `python -m benchmarks [NAMES…] [--quick] [--write]`, or `python -m benchmarks profile append`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import (
    bench_append,
    bench_audit,
    bench_feeds,
    bench_fork,
    bench_postgres,
    bench_providers,
    bench_replay,
    bench_scale,
    bench_seal,
    bench_size,
    bench_verify,
    results,
)
from benchmarks.measure import Report, Settings, machine
from benchmarks.profiling import PROFILES

BENCHMARKS: dict[str, Callable[[Settings], Report]] = {
    "append": bench_append.run,
    "replay": bench_replay.run,
    "fork": bench_fork.run,
    "scale": bench_scale.run,
    "size": bench_size.run,
    "verify": bench_verify.run,
    "audit": bench_audit.run,
    "seal": bench_seal.run,
    "feeds": bench_feeds.run,
    "postgres": bench_postgres.run,
    "providers": bench_providers.run,
}
BUILD = Path(__file__).parents[1] / "build"
FSYNC_US_DOUBTFUL = 10
"""Below this no disk is behind a sync."""


def main() -> int:
    """Run what was asked for, and print it."""
    arguments = _arguments()
    with _folder(arguments.folder) as folder:
        if arguments.profile:
            for name in arguments.names:
                with _part(folder, name) as part:
                    PROFILES[name](part, arguments.seed)
            return 0
        found = machine(folder)
        print("; ".join(f"{name} {value}" for name, value in found.items()))
        if float(found["fsync_us"]) < FSYNC_US_DOUBTFUL:
            print(
                "fsync costs next to nothing here: appends are not durable and their ratios mean little, use --folder"
            )
        for name in arguments.names:
            with _part(folder, name) as part:
                settings = Settings(folder=part, quick=arguments.quick, seed=arguments.seed, store=arguments.store)
                start = time.perf_counter()
                report = BENCHMARKS[name](settings)
                result = results.result(name, report, settings, found, time.perf_counter() - start)
            print(results.show(result), flush=True)
            if arguments.write:
                results.write(result)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure turnlog against named baselines."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAMES", help=f"{', '.join(BENCHMARKS)}: by default all; `profile append` profiles"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it works")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--folder", type=Path, default=BUILD, help="where the stores go (default: build/)")
    parser.add_argument(
        "--store", metavar="URL", help="store of `feeds`: empty, or of an earlier run (default: a file)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the data (default: 1)")
    arguments = parser.parse_args()
    arguments.profile = arguments.names[:1] == ["profile"]
    known = PROFILES if arguments.profile else BENCHMARKS
    arguments.names = arguments.names[1:] if arguments.profile else arguments.names
    arguments.names = arguments.names or list(known)
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)} (one of {', '.join(known)})")
    return arguments


@contextmanager
def _folder(above: Path) -> Generator[Path]:
    """Make a folder of our own, on the disk that is to be measured, and remove it at the end."""
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=above) as name:
        yield Path(name)


@contextmanager
def _part(folder: Path, name: str) -> Generator[Path]:
    part = folder / name
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part)


if __name__ == "__main__":
    sys.exit(main())
