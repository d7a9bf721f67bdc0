"""Append: what does a durable turn cost, alone and with 64 threads at once?"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from threading import Barrier

from benchmarks.baseline import JSONLines, RawSQLite, Statements
from benchmarks.material import ROLES, Turn, open_log, turns
from benchmarks.measure import (
    Report,
    Settings,
    System,
    at_least,
    cost,
    interleave,
    medians_us,
    rate,
    seconds_each,
)
from turnlog import TurnLog
from turnlog.ids import new_id

WRITERS = 64
OURS, BOOKMARK, THREADS = "turnlog", "turnlog with a bookmark", f"turnlog, {WRITERS} threads"
RAW, LINES, STATEMENTS = "raw sqlite3", "JSON lines", "its statements alone"


def run(settings: Settings) -> Report:
    """Append in blocks, each to a log that stays open and grows, and compare the blocks of a round."""
    rounds = settings.pick(quick=7, full=31)
    block = settings.pick(quick=200, full=1000)
    each = settings.pick(quick=5, full=30)
    material = turns(settings.seed, settings.pick(quick=1000, full=10_000))
    with ExitStack() as stack:
        ours, bookmarked, shared = (
            stack.enter_context(open_log(settings.folder / f"{name}.db")) for name in ("ours", "bookmarked", "shared")
        )
        raw = stack.enter_context(RawSQLite(settings.folder / "raw.db"))
        with open_log(settings.folder / "statements.db") as made:
            made.add_turn("The tables are there.")
        statements = stack.enter_context(Statements(settings.folder / "statements.db", new_id))
        lines = stack.enter_context(JSONLines(settings.folder / "lines.jsonl"))
        pool = stack.enter_context(ThreadPoolExecutor(WRITERS))
        rows, texts = cycle(material), cycle(material)
        blocks: dict[str, tuple[System, int]] = {
            RAW: (lambda: seconds_each(lambda: raw.append(*next(rows).row), block), block),
            STATEMENTS: (lambda: seconds_each(lambda: statements.append(*next(rows).row), block), block),
            OURS: (_blocks(one_writer(ours, material), block), block),
            LINES: (lambda: seconds_each(lambda: lines.append(next(texts).line), block), block),
            THREADS: (lambda: many_writers(pool, shared, material, each), each * WRITERS),
            BOOKMARK: (_blocks(one_writer(bookmarked, material, bookmark="main"), block), block),
        }
        cpu: dict[str, list[float]] = {name: [] for name in blocks}
        systems = {name: _counted(system, count, cpu[name]) for name, (system, count) in blocks.items()}
        samples = interleave(systems, rounds=rounds)
        cpu = {name: seconds[-rounds:] for name, seconds in cpu.items()}
    return Report(
        question="What does a durable turn cost, alone and with 64 threads at once?",
        figures=(
            rate(samples, OURS, RAW, what="append, one writer: rate", baseline=RAW, target=at_least(0.6)),
            rate(samples, STATEMENTS, RAW, what="its statements alone, one writer: rate", baseline=RAW),
            rate(samples, OURS, LINES, what="append, one writer: rate", baseline="JSON lines + fsync"),
            rate(samples, BOOKMARK, RAW, what="append that moves a bookmark, one writer: rate", baseline=RAW),
            rate(
                samples,
                THREADS,
                OURS,
                what="append, 64 threads: rate",
                baseline="turnlog, one writer",
                target=at_least(3),
            ),
            rate(samples, THREADS, RAW, what="append, 64 threads: rate", baseline="raw sqlite3, one writer"),
            cost(cpu, OURS, RAW, what="append, one writer: processor time", baseline=RAW),
            cost(cpu, BOOKMARK, RAW, what="append that moves a bookmark, one writer: processor time", baseline=RAW),
            cost(cpu, THREADS, RAW, what="append, 64 threads: processor time", baseline="raw sqlite3, one writer"),
        ),
        measured={**medians_us(samples), **medians_us({f"processor time, {name}": cpu[name] for name in cpu})},
        shape={"rounds": rounds, "appends a round": block, f"appends a round, {WRITERS} threads": each * WRITERS},
    )


def one_writer(
    log: TurnLog, material: list[Turn], *, bookmark: str | None = None, subject: str | None = None
) -> Callable[[], object]:
    """Return what appends the next turn to a thread of its own, by the id of the last turn or by a bookmark."""
    source = cycle(material)
    first = next(source)
    head = log.add_turn(first.text, bookmark=bookmark, subject=subject).id

    def append() -> None:
        nonlocal head
        turn = next(source)
        head = log.add_turn(turn.text, role=turn.role, continues=bookmark or head).id

    return append


def many_writers(pool: ThreadPoolExecutor, log: TurnLog, material: list[Turn], each: int) -> float:
    """Let every thread append a conversation of its own, all at once. Return the seconds for one append."""
    together = Barrier(WRITERS + 1)

    def converse(writer: int) -> None:
        together.wait()
        head: str | None = None
        for number in range(each):
            text = material[(writer * each + number) % len(material)].text
            head = log.add_turn(text, role=ROLES[number % 2], continues=head).id

    running = [pool.submit(converse, writer) for writer in range(WRITERS)]
    together.wait()
    start = time.perf_counter()
    for future in running:
        future.result()
    return (time.perf_counter() - start) / (WRITERS * each)


def _counted(system: System, count: int, cpu: list[float]) -> System:
    """Return a system that notes the processor time of one operation too, of all threads of this process."""

    def run() -> float:
        start = time.process_time()
        seconds = system()
        cpu.append((time.process_time() - start) / count)
        return seconds

    return run


def _blocks(work: Callable[[], object], count: int) -> System:
    return lambda: seconds_each(work, count)
