"""Keep the same conversation with each library, and compare what that takes.

`PEERS_PYTHON=… BEFORE_PYTHON=… python -m benchmarks.peers.compare [--quick] [--write] [--rounds N] [--folder PATH]`.

Other libraries need an environment of their own, whose Python is PEERS_PYTHON; without it turnlog and the two floors
alone are measured. BEFORE_PYTHON is that of an environment with another version of turnlog. Each library is a process
of its own, and they take turns. What is found is written to `benchmarks/results/peers.json` with `--write`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import results
from benchmarks.commands import named
from benchmarks.data import Texts
from benchmarks.measure import Report, Settings, at_least, cost, machine, rate
from benchmarks.peers.keep import LIBRARIES

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "peers"
OURS, BEFORE, FLOORS = "turnlog", "turnlog, before", ("raw sqlite3", "JSON lines")
MEASURED = {
    "append_ms": "append, ms a turn",
    "append_cpu_us": "append, µs of processor time a turn",
    "cold_us": "open and load, µs a turn",
    "more_ms": "one more turn and load again, ms",
    "bytes": "bytes on disk a turn, write-ahead logs included",
}
PACKAGES = ("eventsourcing", "openai-agents", "llm", "langgraph", "langgraph-checkpoint-sqlite")


def main() -> int:
    """Measure, print the tables, and keep them with --write."""
    arguments = _parsed()
    settings = Settings(folder=arguments.folder.absolute(), quick=arguments.quick, seed=1)
    turns = settings.pick(quick=60, full=1000)
    rounds = arguments.rounds or settings.pick(quick=1, full=5)
    peers, before = os.environ.get("PEERS_PYTHON"), os.environ.get("BEFORE_PYTHON")
    if peers is None:
        print("PEERS_PYTHON names no Python: other libraries are left out", file=sys.stderr)
    pythons = dict.fromkeys((OURS, *FLOORS), sys.executable)
    pythons |= {BEFORE: before} if before else {}
    pythons |= {name: peers for name in LIBRARIES if name not in pythons} if peers else {}
    names = list(pythons)
    shutil.rmtree(settings.folder, ignore_errors=True)
    settings.folder.mkdir(parents=True)
    texts = settings.folder / "texts.json"
    texts.write_text(json.dumps(Texts(settings.seed).take(turns)))
    start = time.perf_counter()
    samples: dict[str, dict[str, list[float]]] = {key: {name: [] for name in names} for key in MEASURED}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for key, value in _kept(pythons[name], name, settings.folder, texts).items():
                if key in samples:
                    samples[key][name].append(value)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    others = [name for name in names if name != OURS]
    appends, cpu, cold, more = (samples[key] for key in ("append_ms", "append_cpu_us", "cold_us", "more_ms"))
    report = Report(
        question=f"What does a conversation of {turns:,} turns cost, kept with other libraries?",
        figures=(
            *(
                rate(
                    appends,
                    OURS,
                    name,
                    what="append: rate",
                    baseline=name,
                    target=None if name in FLOORS or name == BEFORE else at_least(1),
                )
                for name in others
            ),
            *(cost(cpu, OURS, name, what="append: processor time", baseline=name) for name in others),
            *(cost(cold, OURS, name, what="open and load: time", baseline=name) for name in others),
            *(cost(more, OURS, name, what="one more turn and load again: time", baseline=name) for name in others),
        ),
        measured={
            f"{name}: {said}": round(statistics.median(samples[key][name]), 2)
            for key, said in MEASURED.items()
            for name in names
        },
        shape={
            "turns": turns,
            "rounds": rounds,
            **({BEFORE: named(before)} if before else {}),
            **_versions(peers),
        },
    )
    result = results.result("peers", report, settings, machine(settings.folder), time.perf_counter() - start)
    print(results.show(result))
    if arguments.write:
        results.write(result)
    shutil.rmtree(settings.folder)
    return 0


def _kept(python: str, name: str, above: Path, texts: Path) -> dict[str, float]:
    """Run one library, and return what it says that it took."""
    folder = above / "kept"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # Away from here, so that what is imported is what is installed.
    command = [python, "-P", str(HERE / "keep.py"), OURS if name == BEFORE else name, str(folder), str(texts)]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LLM_USER_PATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _versions(python: str | None) -> dict[str, str]:
    """Return the versions of the other libraries."""
    if python is None:
        return {}
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {PACKAGES!r}}}))"
    said = subprocess.run([python, "-P", "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(said)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.compare", description="Compare with peers.")
    parser.add_argument("--quick", action="store_true", help="few turns and one round, to see that it works")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--rounds", type=int, metavar="N", help="runs of each (default: 5)")
    parser.add_argument("--folder", type=Path, default=BUILD, help="where the stores go (default: build/peers)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
