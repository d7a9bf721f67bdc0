"""Feeds: what does it cost to read a whole log, to fold it into a projection, and how soon does a follower know?

`python -m benchmarks.bench_feeds URL AFTER COUNT` is the follower in another process.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import quote

import msgspec
import psycopg

from benchmarks.data import Texts
from benchmarks.material import build
from benchmarks.measure import (
    Figure,
    Report,
    Samples,
    Settings,
    System,
    at_least,
    cost,
    interleave,
    medians_us,
    rate,
    timed,
)
from turnlog import TurnLog
from turnlog.digest import leaf_hash, sri
from turnlog.events import Header, Private
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection, State, projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.store import parse_url
from turnlog.store.rows import RECORDED

TEXTS = 20_000
"""Different texts that a log is built from."""

TURNS_EACH = 1_000
POSTGRES_ROWS = 1_000
"""Rows that raw reading of a PostgreSQL store fetches at a time, as many as a page has."""

PAUSE_S = (0.005, 0.03)
"""How long the follower is left to wait before an append: at random, so that it falls anywhere between two polls."""

READ, RAW, RAW_CHECKED = "events()", "raw SELECT and decode", "raw SELECT, decode and both hashes"
BATCHES, BESIDE = "projection", "projection, built beside and swapped in"
ONE_SYNCED, ONE = "one commit an event, synced", "one commit an event, not synced"
APPEND, HERE, ELSEWHERE = "append", "follower in the same process", "follower in another process"

Row = tuple[int, bytes, bytes, bytes | None, int, int]
"""The columns of a `Recorded`."""

Latencies = list[tuple[float, float]]
"""Of each append: the seconds until it returned, and until the follower had the event; both from when it was called."""

_header = msgspec.json.Decoder(Header)
_private = msgspec.json.Decoder(Private)


def run(settings: Settings) -> Report:
    """Read a large log by turns with its floors, fold it, and then follow it while turns are appended."""
    wanted = settings.pick(quick=20_000, full=1_000_000)
    rounds = settings.pick(quick=3, full=5)
    singles = settings.pick(quick=500, full=5_000)
    appends = settings.pick(quick=30, full=200)
    url = settings.store or f"sqlite:///{quote(str(settings.folder / 'feeds.db'))}"
    with TurnLog.open(url) as log:
        if log_end(log) == 0:
            build(log, cycle(Texts(settings.seed).take(TEXTS)), threads=wanted // TURNS_EACH, turns_each=TURNS_EACH)
        count = log_end(log)
    folds = Folds(settings.folder, url, count)
    one_by_one = partial(_one_by_one, settings.folder / "single.db", url, singles)
    systems: dict[str, System] = {
        READ: lambda: timed(lambda: _read(url)) / count,
        RAW: lambda: timed(lambda: _decode(url)) / count,
        RAW_CHECKED: lambda: timed(lambda: _decode_and_check(url)) / count,
        BATCHES: folds.catch_up,
        BESIDE: folds.build,
        ONE_SYNCED: lambda: one_by_one("FULL"),
        ONE: lambda: one_by_one("NORMAL"),
    }
    samples = interleave(systems, rounds=rounds)
    latencies: dict[str, list[Latencies]] = {HERE: [], ELSEWHERE: []}
    rng = random.Random(settings.seed)
    for _ in range(rounds):
        latencies[HERE].append(_latencies(url, appends, rng, _thread))
        latencies[ELSEWHERE].append(_latencies(url, appends, rng, _process))
    return Report(
        question="What does it cost to read a log, to fold it, and how soon does a follower know?",
        figures=(*_rates(samples, count), *(_delay(where, blocks) for where, blocks in latencies.items())),
        measured=medians_us(samples) | _percentiles(latencies),
        shape={"events": count, "rounds": rounds, "commits of one event": singles, "appends followed": appends},
    )


def _rates(samples: Samples, count: int) -> list[Figure]:
    catch_up = f"catch-up read of {count:,} events: rate"
    batches = "projection, in batches: rate"
    return [
        rate(samples, READ, RAW, what=catch_up, baseline=RAW, target=at_least(0.7)),
        rate(samples, READ, RAW_CHECKED, what=catch_up, baseline=RAW_CHECKED),
        rate(
            samples,
            BATCHES,
            READ,
            what="projection that inserts one row an event: rate",
            baseline="the catch-up read",
            target=at_least(0.6),
        ),
        rate(samples, BESIDE, READ, what="the same, built beside and swapped in: rate", baseline="the catch-up read"),
        rate(
            samples,
            BATCHES,
            ONE_SYNCED,
            what=batches,
            baseline="raw sqlite3, one commit an event, synchronous=FULL, reading not counted",
            target=at_least(20),
        ),
        rate(samples, BATCHES, ONE, what=batches, baseline="the same, synchronous=NORMAL as the projection has it"),
    ]


def _delay(where: str, blocks: Sequence[Latencies]) -> Figure:
    medians = {
        APPEND: [statistics.median(returned for returned, _ in block) for block in blocks],
        where: [statistics.median(had for _, had in block) for block in blocks],
    }
    what = f"from the call of an append until a {where} has it: median time"
    return cost(medians, where, APPEND, what=what, baseline="until the append returns")


def _percentiles(latencies: Mapping[str, Sequence[Latencies]]) -> dict[str, float]:
    told: dict[str, float] = {}
    for where, blocks in latencies.items():
        for begin, values in (
            ("the call", [had for block in blocks for _, had in block]),
            ("the return", [had - returned for block in blocks for returned, had in block]),
        ):
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            for percent in (50, 99):
                told[f"{where}, from {begin} of the append, p{percent}, µs"] = round(cuts[percent - 1] * 1e6, 1)
    return told


def log_end(log: TurnLog) -> int:
    """Return the global position of the last event."""
    with log.store.read() as transaction:
        return transaction.log_end()


# Reading


def _read(url: str) -> None:
    with TurnLog.open(url) as log:
        deque(log.events(), maxlen=0)


def _decode(url: str) -> None:
    """Decode the header and the private part of each event, and check nothing."""
    for _, state, _, private, _, _ in raw_rows(url):
        _header.decode(state)
        if private is not None:
            _private.decode(private)


def _decode_and_check(url: str) -> None:
    """Decode, and check the two hashes of each event that `events()` checks."""
    for _, state, leaf, private, _, _ in raw_rows(url):
        header = _header.decode(state)
        if private is not None:
            _private.decode(private)
            if header.private != sri(sha256(private).digest()):
                raise AssertionError("a private part is not the one that its header commits to")
        if leaf_hash(state) != leaf:
            raise AssertionError("a header is not what was recorded")


def raw_rows(url: str) -> Iterator[Row]:
    """Iterate over the rows of all events in global order, as the database's own driver gives them.

    Raises:
        ValueError: there is no such reader for the engine of this store.
    """
    scheme = url.partition(":")[0]
    if scheme not in RAW_READERS:
        raise ValueError(f"no raw reader for {scheme!r} (one of {', '.join(RAW_READERS)}): it would be the baseline")
    return RAW_READERS[scheme](url)


def _sqlite_rows(url: str) -> Iterator[Row]:
    with closing(sqlite3.connect(parse_url(url) or ":memory:")) as connection:
        yield from connection.execute(f"SELECT {RECORDED} FROM stored_events ORDER BY notification_id")


def _postgres_rows(url: str) -> Iterator[Row]:
    with closing(psycopg.connect(url)) as connection, connection.cursor("rows", binary=True) as cursor:
        cursor.itersize = POSTGRES_ROWS
        yield from cursor.execute(f"SELECT {RECORDED} FROM turnlog.log_events ORDER BY notification_id".encode())


RAW_READERS: dict[str, Callable[[str], Iterator[Row]]] = {"sqlite": _sqlite_rows, "postgresql": _postgres_rows}
"""By the scheme of the store's URL. Another engine needs an entry here, and nothing else."""


# Folding


@projection(
    "bench.events",
    schema=("CREATE TABLE bench_events (position INTEGER PRIMARY KEY, id TEXT NOT NULL, time INTEGER NOT NULL)",),
    tables=("bench_events",),
)
def events_table(db: sqlite3.Cursor, event: LogEvent) -> None:
    """Keep a row of each event."""
    db.execute(INSERT, (event.global_position, event.id, event.header.time))


INSERT = "INSERT INTO bench_events VALUES (?, ?, ?)"


class Folds:
    """Folds a whole log, each time into a new database."""

    def __init__(self, folder: Path, url: str, count: int) -> None:
        """Take where databases go, the store, and how many events it has."""
        self._path = folder / "target.db"
        self._url = url
        self._count = count
        self._given: Projection = events_table

    def catch_up(self) -> float:
        """Fold into tables that are there and empty, and return the seconds of one event."""
        return self._fold(self._made)

    def build(self) -> float:
        """Build the tables beside, swap them in, and return the seconds of one event."""
        return self._fold(lambda _: None)

    def _fold(self, prepare: Callable[[SQLiteTarget], None]) -> float:
        _remove(self._path)
        with TurnLog.open(self._url) as log, closing(SQLiteTarget(self._path)) as target:
            prepare(target)
            seconds = timed(Runner(log.store, target, [self._given]).run) / self._count
            with target.reader() as db:
                [(found,)] = db.execute("SELECT count(*) FROM bench_events").fetchall()
        if found != self._count:
            raise AssertionError(f"{found:,} of {self._count:,} events were folded")
        return seconds

    def _made(self, target: SQLiteTarget) -> None:
        with target.transaction() as db:
            target.make(db, self._given)
            target.save(db, self._given, State(name=self._given.name, version=self._given.version, log=None))


def _one_by_one(path: Path, url: str, count: int, synchronous: str) -> float:
    """Fold events that were read before, each with the position that was reached, in a transaction of its own."""
    with TurnLog.open(url) as log:
        events = list(islice(log.events(), count))
    _remove(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        for statement in events_table.schema:
            connection.execute(statement)
        connection.execute("CREATE TABLE reached (position INTEGER NOT NULL)")
        connection.execute("INSERT INTO reached VALUES (0)")

        def fold() -> None:
            for event in events:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(INSERT, (event.global_position, event.header.id, event.header.time))
                connection.execute("UPDATE reached SET position = ?", (event.global_position,))
                connection.execute("COMMIT")

        return timed(fold) / len(events)


# Following

Having = Callable[[], dict[int, float]]
"""Waits for a follower, and returns when it had each event, by global position."""

Follower = Callable[[TurnLog, int, int], AbstractContextManager[Having]]
"""Follows a log after a global position, for so many events."""


def _latencies(url: str, count: int, rng: random.Random, follower: Follower) -> Latencies:
    """Append turns while somebody follows, with pauses in which the follower comes to wait."""
    called: dict[int, tuple[float, float]] = {}
    texts = Texts(rng.randrange(1 << 30)).take(count + 1)
    with TurnLog.open(url) as log:
        head = log.add_turn(texts[0]).id
        after = log_end(log)
        with follower(log, after, count) as having:
            for number, text in enumerate(texts[1:], after + 1):
                time.sleep(rng.uniform(*PAUSE_S))
                begin = time.perf_counter()
                head = log.add_turn(text, continues=head).id
                called[number] = begin, time.perf_counter()
            had = having()
    return [(returned - begin, had[number] - begin) for number, (begin, returned) in called.items()]


@contextmanager
def _thread(log: TurnLog, after: int, count: int) -> Generator[Having]:
    had: dict[int, float] = {}
    thread = threading.Thread(target=lambda: had.update(_follow(log, after, count)), daemon=True)
    thread.start()

    def having() -> dict[int, float]:
        thread.join()
        return had

    yield having


@contextmanager
def _process(log: TurnLog, after: int, count: int) -> Generator[Having]:
    command = [sys.executable, "-m", "benchmarks.bench_feeds", log.store.url, str(after), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as child:
        assert child.stdout is not None
        output = child.stdout
        output.readline()  # it has begun

        yield lambda: msgspec.json.decode(output.read(), type=dict[int, float])


def _follow(log: TurnLog, after: int, count: int) -> dict[int, float]:
    """Return when each event came. The clock is the same in all processes of a machine."""
    with log.events(after, follow=True) as events:
        return {event.global_position: time.perf_counter() for event in islice(events, count)}


def main(url: str, after: str, count: str) -> None:
    """Follow a log, and print when each event came."""
    with TurnLog.open(url) as log:
        print(flush=True)
        sys.stdout.buffer.write(msgspec.json.encode(_follow(log, int(after), int(count))))


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
