"""A projection that is killed again and again while others write ends as the log says: each event folded once."""

import os
import random
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.events import metadata
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_target import PostgresTarget
from turnlog.feeds.projection import Projection, projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.store.urls import is_postgres
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

WRITERS = 4
TURNS = 5000 if SOAK else 60
KILLS = 200 if SOAK else 7


def _sums(mark: str) -> Projection:
    """Count and add up what each writer says: folding an event twice, or not at all, shows.

    Args:
        mark: what stands for a parameter in the database's SQL.
    """

    @projection(
        "acme.sums",
        topics=["acme.number"],
        schema=["CREATE TABLE sums (writer text PRIMARY KEY, turns bigint, numbers bigint, last bigint)"],
        tables=["sums"],
    )
    def fold(db: Any, event: LogEvent) -> None:
        db.execute(
            f"INSERT INTO sums VALUES ({mark}, 1, {mark}, {mark}) ON CONFLICT (writer) DO UPDATE SET"
            " turns = sums.turns + 1, numbers = sums.numbers + excluded.numbers, last = excluded.last",
            (event.meta["writer"], event.meta["number"], event.global_position),
        )

    return fold


def _write(url: str, writer: int) -> None:
    with TurnLog.open(url) as log:
        for number in range(TURNS):
            log.add_event("acme.number", private={"writer": str(writer), "number": number})


def _fold(url: str, view: str, delay_s: float | None) -> None:
    """Follow the log until killed; without a delay, fold what there is and end."""
    target, sums = (PostgresTarget(view), _sums("%s")) if is_postgres(view) else (SQLiteTarget(view), _sums("?"))
    with TurnLog.open(url) as log:
        runner = Runner(log.store, target, [sums])
        if delay_s is None:
            runner.run()
        else:
            threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            runner.follow()
    target.close()


def _rows(view: str) -> list[tuple[Any, ...]]:
    """Return what was folded. What was being built when a runner was killed is gone."""
    if is_postgres(view):
        with psycopg.connect(view) as connection:
            schemas = connection.execute("SELECT COUNT(*) FROM pg_namespace WHERE nspname ~ '^turnlog'").fetchall()
            assert schemas == [(2,)]
            return connection.execute("SELECT * FROM turnlog_projections.sums ORDER BY writer").fetchall()
    with closing(sqlite3.connect(view)) as connection:
        return connection.execute("SELECT * FROM sums ORDER BY writer").fetchall()


def _kill_runners_while_others_write(url: str, view: str) -> None:
    TurnLog.open(url).close()
    writing = threading.Thread(target=run_processes, args=([(_write, (url, writer)) for writer in range(WRITERS)],))
    writing.start()
    source = random.Random(9)
    for _ in range(KILLS):
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_fold, url, view, source.uniform(0.0, 0.3))
    writing.join()
    run_process(_fold, url, view, None)
    with TurnLog.open(url) as log:
        last: dict[str, int] = {}
        for event in log.events(topics=["acme.number"]):
            last[metadata(event)["writer"]] = event.global_position
    total = TURNS * (TURNS - 1) // 2
    assert _rows(view) == [(str(writer), TURNS, total, last[str(writer)]) for writer in range(WRITERS)]


@pytest.mark.timeout(7200 if SOAK else 300)
def test_projection_that_is_killed_folds_each_event_once(log_url: str, tmp_path: Path) -> None:
    """Whatever it was at: reading, folding, committing, building."""
    _kill_runners_while_others_write(log_url, str(tmp_path / "view.db"))


@pytest.mark.timeout(7200 if SOAK else 300)
def test_projection_beside_the_log_that_is_killed_folds_each_event_once(postgres_url: str) -> None:
    """In the same PostgreSQL database."""
    _kill_runners_while_others_write(postgres_url, postgres_url)


def test_two_runners_do_the_work_of_one(log_url: str, tmp_path: Path) -> None:
    """In two processes, while others write."""
    url, view = log_url, str(tmp_path / "view.db")
    _write(url, 0)
    run_processes([*[(_fold, (url, view, None))] * 3, (_write, (url, 1))])
    run_process(_fold, url, view, None)
    total = TURNS * (TURNS - 1) // 2
    assert [row[:3] for row in _rows(view)] == [(str(writer), TURNS, total) for writer in range(2)]


def _build_and_be_killed(url: str) -> None:
    def kill(position: int, end: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with TurnLog.open(url) as log:
        log.feeds.rebuild("search", progress=kill)


@pytest.mark.parametrize("is_removed", [False, True], ids=["", "removed"])
def test_erasure_reaches_what_a_killed_rebuild_left(tmp_path: Path, is_removed: bool) -> None:
    """Also where the file of the projections was removed since, as it may be."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        turn = log.add_turn("the secret of the river")
    with pytest.raises(ProcessFailedError, match="-9"):
        run_process(_build_and_be_killed, url)
    assert any(b"secret" in path.read_bytes() for path in tmp_path.glob("log.db-projections-search-*"))
    if is_removed:
        for ending in ("", "-wal", "-shm"):
            (tmp_path / f"log.db-projections{ending}").unlink()
    with TurnLog.open(url) as log:
        assert log.erase(turn=turn.id, reason="asked").remains is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db"] + ["log.db-projections"] * (not is_removed)
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
