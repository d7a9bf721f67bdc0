"""A projection on PostgreSQL that is killed again and again while others write ends as the log says."""

import os
import random
import signal
import threading
from typing import Any

import psycopg
import pytest

from turnlog import TurnLog
from turnlog.events import metadata
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_target import PostgresTarget
from turnlog.feeds.projection import projection
from turnlog.feeds.runner import Runner
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

SOAK = os.environ.get("TURNLOG_SOAK") == "1"
WRITERS = 4
TURNS = 5000 if SOAK else 60
KILLS = 200 if SOAK else 8


@projection(
    "acme.sums",
    topics=["acme.number"],
    schema=["CREATE TABLE sums (writer text PRIMARY KEY, turns bigint, numbers bigint, last bigint)"],
    tables=["sums"],
)
def sums(db: psycopg.Cursor[Any], event: LogEvent) -> None:
    """Count and add up what each writer says: folding an event twice, or not at all, shows."""
    db.execute(
        "INSERT INTO sums VALUES (%s, 1, %s, %s) ON CONFLICT (writer) DO UPDATE SET turns = sums.turns + 1,"
        " numbers = sums.numbers + excluded.numbers, last = excluded.last",
        (event.meta["writer"], event.meta["number"], event.global_position),
    )


def _write(url: str, writer: int) -> None:
    with TurnLog.open(url) as log:
        for number in range(TURNS):
            log.add_event("acme.number", private={"writer": str(writer), "number": number})


def _fold(url: str, delay_s: float | None) -> None:
    """Follow the log until killed; without a delay, fold what there is and end."""
    target = PostgresTarget(url)
    with TurnLog.open(url) as log:
        runner = Runner(log.store, target, [sums])
        if delay_s is None:
            runner.run()
        else:
            threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            runner.follow()
    target.close()


@pytest.mark.timeout(7200 if SOAK else 300)
def test_projection_that_is_killed_folds_each_event_once(postgres_url: str) -> None:
    """Whatever it was at: reading, folding, committing, building. Nothing is left of what it was building in."""
    TurnLog.open(postgres_url).close()
    writing = threading.Thread(
        target=run_processes, args=([(_write, (postgres_url, writer)) for writer in range(WRITERS)],)
    )
    writing.start()
    source = random.Random(9)
    for _ in range(KILLS):
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_fold, postgres_url, source.uniform(0.0, 0.3))
    writing.join()
    run_process(_fold, postgres_url, None)
    with TurnLog.open(postgres_url) as log:
        last: dict[str, int] = {}
        for event in log.events(topics=["acme.number"]):
            last[metadata(event)["writer"]] = event.global_position
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT * FROM turnlog_projections.sums ORDER BY writer").fetchall()
        schemas = connection.execute("SELECT COUNT(*) FROM pg_namespace WHERE nspname ~ '^turnlog'").fetchall()
    total = TURNS * (TURNS - 1) // 2
    assert found == [(str(writer), TURNS, total, last[str(writer)]) for writer in range(WRITERS)]
    assert schemas == [(2,)]
