"""PostgreSQL: what does a durable event cost, with one writer and with many in several processes?

The writers are `PROCESSES` processes with as many threads each as are needed. All systems write the same rows, made
before the clock starts, into the same database of a server of this run, which syncs to disk.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import quote

import psycopg
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg.conninfo import conninfo_to_dict
from tests.servers.postgres import PostgresServer

from benchmarks.data import Texts
from benchmarks.material import build as build_log
from benchmarks.measure import Report, Settings, System, at_least, interleave, medians_us, rate, timed
from turnlog import TurnLog
from turnlog.events import CALL, Arrival, Event, build, meta_text, private_part
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_target import PostgresTarget
from turnlog.feeds.projection import projection
from turnlog.feeds.runner import Runner
from turnlog.ids import new_id
from turnlog.projections import synchronous
from turnlog.store import NO_PAYLOAD, NewPayload, WriteTransaction, open_store

PROCESSES = 4
WRITERS = (1, 4, 16)
PAYLOAD_BYTES = 600

BATCHES, ONE = "projection", "one commit an event"
INSERT = b"INSERT INTO bench_events VALUES (%s, %s, %s)"
OURS, RAW, STOCK = "turnlog", "raw INSERT", "eventsourcing's recorder"

RAW_TABLE = """\
CREATE TABLE raw_events (
  order_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  originator_id text COLLATE "C" NOT NULL, originator_version bigint NOT NULL, topic text NOT NULL,
  state bytea NOT NULL, event_id text COLLATE "C" NOT NULL UNIQUE, leaf_hash bytea NOT NULL,
  arrival smallint NOT NULL, private bytea, payload_placement smallint NOT NULL, payload bytea,
  UNIQUE (originator_id, originator_version))"""
RAW_INSERT = (
    "INSERT INTO raw_events (originator_id, originator_version, topic, state, event_id, leaf_hash, arrival, private,"
    " payload_placement, payload) VALUES (%b, %b, %b, %b, %b, %b, %b, %b, %b, %b)"
)

Row = tuple[Event, NewPayload]
Append = Callable[[Row], object]


def run(settings: Settings) -> Report:
    """Append in blocks with each number of writers, one system after the other, in turns."""
    rounds = settings.pick(quick=3, full=9)
    each = {1: settings.pick(quick=100, full=800), 4: settings.pick(quick=50, full=500)}
    each[16] = settings.pick(quick=20, full=250)
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(fsync=True, shared_buffers="256MB", max_wal_size="4GB"))
        url = server.create_database()
        with TurnLog.open(url) as log:
            log.add_turn("The log begins.")
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute(RAW_TABLE)
        with closing(_datastore(url, 1)) as datastore:
            PostgresApplicationRecorder(datastore, events_table_name="stock_events").create_table()
        workers = [stack.enter_context(_Worker(url)) for _ in range(PROCESSES)]
        systems: dict[str, System] = {
            _named(system, writers): partial(_block, workers, system, writers, each[writers])
            for writers in WRITERS
            for system in (RAW, OURS, STOCK)
        }
        samples = interleave(systems, rounds=rounds)
        folds = interleave(_folds(settings, url), rounds=3)
    figures = [
        rate(
            samples,
            _named(OURS, writers),
            _named(RAW, writers),
            what=f"append, {_many(writers)}: rate",
            baseline="concurrent INSERTs of the same rows",
            target=at_least(0.5),
        )
        for writers in WRITERS
    ]
    figures += [
        rate(
            samples,
            _named(OURS, writers),
            _named(STOCK, writers),
            what=f"append, {_many(writers)}: rate",
            baseline="eventsourcing's PostgreSQL recorder",
            target=at_least(3) if writers == WRITERS[-1] else None,
        )
        for writers in WRITERS
    ]
    figures.append(
        rate(
            folds,
            BATCHES,
            ONE,
            what="projection of a SQLite log, built in batches and swapped in: rate",
            baseline="raw psycopg, one commit an event, reading not counted",
            target=at_least(20),
        )
    )
    return Report(
        question="What does a durable event cost on PostgreSQL, with one writer and with many, and what a projection?",
        figures=tuple(figures),
        measured=medians_us(samples) | medians_us(folds),
        shape={"processes": PROCESSES, "rounds": rounds, **{f"events each, {_many(n)}": each[n] for n in WRITERS}},
    )


def _folds(settings: Settings, server: str) -> dict[str, System]:
    """Fold a log into a row of each event, in batches and with one commit for each."""
    source = f"sqlite:///{quote(str(settings.folder / 'folded.db'))}"
    with TurnLog.open(source) as log:
        wanted = settings.pick(quick=5_000, full=50_000)
        build_log(log, cycle(Texts(settings.seed).take(1_000)), threads=wanted // 1_000, turns_each=1_000)
        events = list(islice(log.events(), settings.pick(quick=300, full=2_000)))
        with log.store.read() as transaction:
            count = transaction.log_end()
    [schema] = events_table.schema
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        for statement in (schema, "CREATE TABLE reached (position bigint)", "INSERT INTO reached VALUES (0)"):
            connection.execute(statement.encode())

    def batches() -> float:
        with TurnLog.open(source) as log, closing(PostgresTarget(server)) as target:
            return timed(partial(Runner(log.store, target, [events_table]).rebuild, events_table.name)) / count

    def one_by_one() -> float:
        with closing(psycopg.connect(server, autocommit=True)) as connection:
            connection.execute("TRUNCATE bench_events")

            def fold() -> None:
                for event in events:
                    connection.execute("BEGIN")
                    connection.execute(INSERT, (event.global_position, event.header.id, event.header.time))
                    connection.execute("UPDATE reached SET position = %s", (event.global_position,))
                    connection.execute("COMMIT")

            return timed(fold) / len(events)

    return {BATCHES: batches, ONE: one_by_one}


@projection(
    "bench.events",
    schema=("CREATE TABLE bench_events (position integer PRIMARY KEY, id text NOT NULL, time bigint NOT NULL)",),
    tables=("bench_events",),
)
def events_table(db: psycopg.Cursor[Any], event: LogEvent) -> None:
    """Keep a row of each event."""
    db.execute(INSERT, (event.global_position, event.id, event.header.time))


def _named(system: str, writers: int) -> str:
    return f"{system}, {_many(writers)}"


def _many(writers: int) -> str:
    return "1 writer" if writers == 1 else f"{writers} writers"


def _block(workers: Sequence[_Worker], system: str, writers: int, each: int) -> float:
    """Have writers append, and return the seconds that one event took, all writers together."""
    used = workers[: min(writers, len(workers))]
    threads = writers // len(used)
    for worker in used:
        worker.pipe.send((system, threads, each))
    for worker in used:
        worker.pipe.recv()  # it has made its rows
    start = time.perf_counter()
    for worker in used:
        worker.pipe.send(None)
    for worker in used:
        worker.pipe.recv()
    return (time.perf_counter() - start) / (writers * each)


class _Worker:
    """A process that appends when it is told to."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(url, theirs), daemon=True)
        self._process.start()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        self._process.join(10)


def _work(url: str, pipe: Connection[Any, Any]) -> None:
    threads_max = max(WRITERS) // PROCESSES
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(url, projections=synchronous())))
        connections = [stack.enter_context(closing(_raw(url))) for _ in range(threads_max)]
        datastore = stack.enter_context(closing(_datastore(url, threads_max)))
        recorder = PostgresApplicationRecorder(datastore, events_table_name="stock_events")

        def append_ours(row: Row) -> None:
            def plan(transaction: WriteTransaction) -> object:
                return transaction.append(*row)

            store.write(plan)

        def append_stock(row: Row) -> None:
            event, payload = row
            header = event.header
            state = event.state + (event.private_state or b"") + (payload.stored or b"")
            recorder.insert_events([StoredEvent(header.stream, header.position, header.topic, state)])

        systems: dict[str, Sequence[Append]] = {
            OURS: [append_ours] * threads_max,
            RAW: [partial(_insert, connection.cursor(binary=True)) for connection in connections],
            STOCK: [append_stock] * threads_max,
        }
        while True:
            try:
                system, threads, each = pipe.recv()
            except EOFError:
                return
            rows = [[_row() for _ in range(each)] for _ in range(threads)]
            writers = [
                threading.Thread(target=_all, args=(append, mine))
                for append, mine in zip(systems[system], rows, strict=False)
            ]
            pipe.send("ready")
            pipe.recv()
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            pipe.send("done")


def _all(append: Append, rows: Sequence[Row]) -> None:
    for row in rows:
        append(row)


def _row() -> Row:
    event_id = new_id()
    private = private_part({"turn": new_id(), "text": "x" * PAYLOAD_BYTES}, hash=None, size=None, salt=os.urandom(16))
    event = build(
        topic=CALL, id=event_id, time=time.time_ns() // 1_000_000, meta=meta_text({"model": "m"}), private=private
    )
    return event, NO_PAYLOAD


def _insert(cursor: psycopg.Cursor[Any], row: Row) -> None:
    event, payload = row
    header = event.header
    cursor.execute(
        RAW_INSERT,
        (
            header.stream,
            header.position,
            header.topic,
            event.state,
            header.id,
            event.leaf_hash,
            int(Arrival.RECORDED),
            event.private_state,
            int(payload.placement),
            payload.stored,
        ),
    )


def _raw(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, prepare_threshold=0)


def _datastore(url: str, size: int) -> PostgresDatastore:
    given = conninfo_to_dict(url)
    return PostgresDatastore(
        str(given["dbname"]),
        str(given["host"]),
        str(given["port"]),
        str(given["user"]),
        "-",
        pool_size=size,
        originator_id_type="text",
    )
