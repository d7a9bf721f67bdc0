"""Fork: what does it cost to go on from the middle of a long thread?"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from benchmarks.baseline import JSONLines, RawSQLite
from benchmarks.data import Texts
from benchmarks.material import Turn, build, open_log, stored_lines, turns
from benchmarks.measure import Report, Settings, at_most, cost, interleave, medians_us, seconds_each
from turnlog import TurnLog

DEPTH = 10_000
PLAIN, FORK, ANYWHERE = "append", "fork at the depth", "fork anywhere"
RAW, LINES, COPY = "raw sqlite3", "JSON lines", "JSON lines, copied to fork"


def run(settings: Settings) -> Report:
    """Append to the end of a long thread and fork it, in turn, on one log."""
    rounds = settings.pick(quick=7, full=21)
    block = settings.pick(quick=100, full=1000)
    copies = settings.pick(quick=1, full=3)
    material = turns(settings.seed, 1000)
    lines_path = settings.folder / "thread.jsonl"
    with ExitStack() as stack:
        log = stack.enter_context(open_log(settings.folder / "fork.db"))
        [head] = build(log, Texts(settings.seed + 1), threads=1, turns_each=DEPTH)
        raw = stack.enter_context(RawSQLite(settings.folder / "raw.db"))
        lines = stack.enter_context(JSONLines(settings.folder / "lines.jsonl"))
        lines_path.write_bytes(b"".join(stored_lines(log)))
        ids = [turn.id for turn in log.ancestry(head)]
        source = cycle(material)
        append, fork, anywhere, copy = (
            plain(log, head, source),
            forking(log, source, cycle([ids[-2]])),
            forking(log, source, _anywhere(ids, settings.seed)),
            copying(lines_path, source),
        )
        systems = {
            PLAIN: lambda: seconds_each(append, block),
            FORK: lambda: seconds_each(fork, block),
            RAW: lambda: seconds_each(lambda: raw.append(*next(source).row), block),
            ANYWHERE: lambda: seconds_each(anywhere, block),
            LINES: lambda: seconds_each(lambda: lines.append(next(source).line), block),
            COPY: lambda: seconds_each(copy, copies),
        }
        samples = interleave(systems, rounds=rounds)
    what = f"fork at depth {DEPTH:,}: time"
    return Report(
        question="What does it cost to go on from the middle of a long thread?",
        figures=(
            cost(
                samples, FORK, PLAIN, what=what, baseline="turnlog, plain append to the same thread", target=at_most(2)
            ),
            cost(
                samples,
                ANYWHERE,
                PLAIN,
                what=f"fork at any depth below {DEPTH:,}: time",
                baseline="turnlog, plain append",
            ),
            cost(samples, FORK, RAW, what=what, baseline=RAW + ", append of one row"),
            cost(samples, FORK, LINES, what=what, baseline="JSON lines + fsync, append of one line"),
            cost(samples, FORK, COPY, what=what, baseline="JSON lines, the file copied and synced with one more line"),
        ),
        measured=medians_us(samples),
        shape={"rounds": rounds, "operations a round": block, "turns of the thread": DEPTH},
    )


def plain(log: TurnLog, head: str, source: Iterator[Turn]) -> Callable[[], object]:
    """Return what appends to the end of a thread."""

    def append() -> None:
        nonlocal head
        turn = next(source)
        head = log.add_turn(turn.text, role=turn.role, continues=head).id

    return append


def forking(log: TurnLog, source: Iterator[Turn], parents: Iterator[str]) -> Callable[[], object]:
    """Return what continues a turn that was continued before."""

    def fork() -> None:
        turn = next(source)
        log.add_turn(turn.text, role=turn.role, continues=next(parents))

    return fork


def copying(path: Path, source: Iterator[Turn]) -> Callable[[], object]:
    """Return what forks a conversation that is a file: a copy with one more line, synced, and removed again."""
    copied = path.with_suffix(".copy")

    def copy() -> None:
        shutil.copyfile(path, copied)
        with copied.open("ab") as file:
            file.write(next(source).line)
            file.flush()
            os.fsync(file.fileno())
        copied.unlink()

    return copy


def _anywhere(ids: Sequence[str], seed: int) -> Iterator[str]:
    """Iterate over turns, drawn at random, that were continued before."""
    draw = random.Random(seed)
    while True:
        yield ids[draw.randrange(len(ids) - 1)]
