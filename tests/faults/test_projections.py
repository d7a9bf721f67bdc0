"""A projection that is killed again and again while others write ends as the log says: each event folded once."""

import os
import random
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.events import metadata
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.targets import SQLiteTarget
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

SOAK = os.environ.get("TURNLOG_SOAK") == "1"
WRITERS = 4
TURNS = 5000 if SOAK else 60
KILLS = 200 if SOAK else 12


@projection(
    "acme.sums",
    topics=["acme.number"],
    schema=["CREATE TABLE sums (writer TEXT PRIMARY KEY, turns INTEGER, numbers INTEGER, last INTEGER)"],
    tables=["sums"],
)
def sums(db: sqlite3.Cursor, event: LogEvent) -> None:
    """Count and add up what each writer says: folding an event twice, or not at all, shows."""
    db.execute(
        "INSERT INTO sums VALUES (?, 1, ?, ?) ON CONFLICT (writer) DO UPDATE SET turns = turns + 1,"
        " numbers = numbers + excluded.numbers, last = excluded.last",
        (event.meta["writer"], event.meta["number"], event.global_position),
    )


def _write(url: str, writer: int) -> None:
    with TurnLog.open(url) as log:
        for number in range(TURNS):
            log.add_event("acme.number", private={"writer": str(writer), "number": number})


def _fold(url: str, view: str, delay_s: float | None) -> None:
    """Follow the log until killed; without a delay, fold what there is and end."""
    target = SQLiteTarget(view)
    with TurnLog.open(url) as log:
        runner = Runner(log.store, target, [sums])
        if delay_s is None:
            runner.run()
        else:
            threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            runner.follow()
    target.close()


@pytest.mark.timeout(7200 if SOAK else 300)
def test_projection_that_is_killed_folds_each_event_once(log_url: str, tmp_path: Path) -> None:
    """Whatever it was at: reading, folding, committing, building."""
    url, view = log_url, str(tmp_path / "view.db")
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
    with sqlite3.connect(view) as connection:
        found = connection.execute("SELECT * FROM sums ORDER BY writer").fetchall()
    total = TURNS * (TURNS - 1) // 2
    assert found == [(str(writer), TURNS, total, last[str(writer)]) for writer in range(WRITERS)]


def test_two_runners_do_the_work_of_one(log_url: str, tmp_path: Path) -> None:
    """In two processes, while others write."""
    url, view = log_url, str(tmp_path / "view.db")
    _write(url, 0)
    run_processes([*[(_fold, (url, view, None))] * 3, (_write, (url, 1))])
    run_process(_fold, url, view, None)
    with sqlite3.connect(view) as connection:
        found = connection.execute("SELECT writer, turns, numbers FROM sums ORDER BY writer").fetchall()
    assert found == [(str(writer), TURNS, TURNS * (TURNS - 1) // 2) for writer in range(2)]
