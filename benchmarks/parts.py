"""Where the time of an append goes, part by part, as it is: between two syncs.

What runs after a sync runs cold: the processor has slept or done something else, and each function, each line of the
database and each page comes back from memory. So a part takes several times what it takes in a tight loop, and a
profiler, which keeps the interpreter busy, tells another story. Here each part is stopped at its two ends and nowhere
else, in appends that are really made.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any
from unittest.mock import patch

from benchmarks.baseline import RawSQLite
from benchmarks.bench_append import one_writer
from benchmarks.material import open_log, turns
from turnlog import TurnLog
from turnlog.store.sqlite.appending import Appender, Writer

APPENDS = 4000
WARM_UP = 300

WHOLE = "the call, and what is none of the parts"
RAW = "raw sqlite3: INSERT and commit of the same bytes, with the sync"
_FUNCTIONS = {
    "check the arguments, encode the content": "turnlog.log.record.turn_draft",
    "the plan: parent, bookmark, subject, metadata": "turnlog.log.record.plan_turn_told",
    "payload: compress": "turnlog.store.payloads.frames.compress",
    "payload: place, with its SHA-256": "turnlog.store.payloads.PayloadPlacer.place",
    "private part and metadata to bytes, salt, id": "turnlog.record.turns.parts",
    "header to bytes, with two SHA-256": "turnlog.record.append.build",
    "append: the row, and what is folded": "turnlog.store.sqlite.transactions.SQLiteWrite.append",
    "the transaction around it": "turnlog.store.sqlite.appending.Appender._attempt",
    "group commit, gate": "turnlog.store.sqlite.store.SQLiteStore.write",
    "the turn that is returned": "turnlog.log.turn_of",
}
"""Parts by name, each the function that it is, without the parts inside it."""

_STATEMENTS = {
    "BEGIN": "SQLite: BEGIN IMMEDIATE",
    "PRAGMA": "SQLite: PRAGMA data_version",
    "INSERT": "SQLite: INSERT, with two unique indexes",
    "COMMIT": "SQLite: COMMIT, with the sync",
}


class Stopwatch:
    """Adds up how long parts take, each without the parts inside it, in nanoseconds."""

    def __init__(self) -> None:
        """Make one at which nothing runs."""
        self._names: list[str] = []
        self._since = 0
        self.spent: defaultdict[str, int] = defaultdict(int)

    def begin(self, name: str) -> None:
        """Let a part begin: the one around it stands still."""
        now = perf_counter_ns()
        if self._names:
            self.spent[self._names[-1]] += now - self._since
        self._names.append(name)
        self._since = perf_counter_ns()

    def end(self) -> None:
        """Let the part end that began last."""
        self.spent[self._names.pop()] += perf_counter_ns() - self._since
        self._since = perf_counter_ns()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is a part."""

        @wraps(function)
        def part(*arguments: Any, **named: Any) -> Any:
            self.begin(name)
            try:
                return function(*arguments, **named)
            finally:
                self.end()

        return part


class _Cursor(sqlite3.Cursor):
    """A cursor whose statements are parts."""

    watch: Stopwatch

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.watch.begin(_STATEMENTS[statement.partition(" ")[0].upper()])
        try:
            return super().execute(statement, parameters)
        finally:
            self.watch.end()


def parts(folder: Path, seed: int) -> dict[str, float]:
    """Return how long each part of an append takes, by name, in microseconds: the median of all appends.

    Each is followed by an append to raw sqlite3, which is told as one part.
    """
    material = turns(seed, APPENDS)
    watch = Stopwatch()
    every: defaultdict[str, list[int]] = defaultdict(list)
    with (
        open_log(folder / "parts.db") as log,
        _stopped(log, watch),
        RawSQLite(folder / "raw.db") as raw,
    ):
        append = watch.around(WHOLE, one_writer(log, material))
        raw_append = watch.around(RAW, raw.append)
        for number in range(WARM_UP + APPENDS):
            watch.spent.clear()
            append()
            raw_append(*material[number % APPENDS].row)
            for name, spent in watch.spent.items():
                every[name].append(spent)
    return {name: median(each[WARM_UP:]) / 1000 for name, each in every.items()}


def print_parts(folder: Path, seed: int) -> None:
    """Print the parts, the longest first."""
    found = parts(folder, seed)
    raw = found.pop(RAW)
    whole = sum(found.values())
    for name, us in sorted(found.items(), key=lambda pair: -pair[1]):
        print(f"{us:7.1f} µs {us / whole:5.1%}  {name}")
    print(f"{whole:7.1f} µs         all of it, with what it takes to stop the parts")
    print(f"{raw:7.1f} µs         {RAW}\n")


@contextmanager
def _stopped(log: TurnLog, watch: Stopwatch) -> Iterator[None]:
    log.add_turn("Whoever writes for the first time connects.")
    appender = vars(log.store)["_appender"]
    assert isinstance(appender, Appender)
    writer = vars(appender)["_writer"]
    assert isinstance(writer, Writer)
    writer.cursor = _Cursor(writer.connection)
    _Cursor.watch = watch
    with ExitStack() as stack:
        for name, path in _FUNCTIONS.items():
            original, _ = patch(path).get_original()
            stack.enter_context(patch(path, watch.around(name, original)))
        yield
