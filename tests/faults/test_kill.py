"""A process that is killed at any moment loses no turn that it acknowledged, and leaves a store that verifies clean."""

import itertools
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.model import content_bytes
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import WriteTransaction
from turnlog.store.sqlite.transactions import SQLiteWrite
from turnlog.testing.faults import Acknowledged, ProcessFailedError, run_and_kill, run_process

STORES = 10 if SOAK else 3
ROUNDS = 500 if SOAK else 22


def _check(log: TurnLog, acknowledged: list[Acknowledged]) -> None:
    for turn in acknowledged:
        assert log.payload(turn.id) == turn.payload, f"{turn} was acknowledged"
    report = log.verify()
    assert report.damage == ()
    assert report.events >= len(acknowledged) + bool(acknowledged)
    assert [recorded.global_position for recorded in log.events(topics=["log.genesis"])] == [1][: report.events]


@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("number", range(STORES))
def test_killed_process_loses_no_acknowledged_turn(tmp_path: Path, number: int) -> None:
    """After each of many kills at random moments, every acknowledged turn is there with its payload."""
    url = f"sqlite:///{tmp_path}/log.db"
    source = random.Random(number)
    acknowledged: list[Acknowledged] = []
    pace_s = 0.03
    for seed in itertools.count():
        if seed >= ROUNDS and len(acknowledged) > ROUNDS:
            break
        # The first rounds fall into the making of the store, later ones into appends and reopening.
        delay_s = source.uniform(0, 0.004) if seed < 5 else source.expovariate(1 / pace_s)
        fresh = run_and_kill(url, seed=seed, threads=source.choice([1, 1, 2, 5]), delay_s=delay_s, folder=tmp_path)
        acknowledged += fresh
        pace_s *= 1 if fresh else 1.05  # on a slow machine opening alone may take that long
        # Not every time: a store that was left by a killed process is then opened, and left, by the next one.
        if source.random() < 0.7:
            with TurnLog.open(url) as log:
                _check(log, fresh)
    with TurnLog.open(url) as log:
        _check(log, acknowledged)
        turn = log.add_turn("still at work", continues="thread 0")
        assert log.turn("thread 0") == turn
        _check(log, acknowledged)


@pytest.mark.timeout(7200 if SOAK else 300)
def test_processes_killed_in_checkpoints_lose_no_acknowledged_turn(tmp_path: Path) -> None:
    """While another process has the store open, killed ones fill its write-ahead log, and lose nothing."""
    url = f"sqlite:///{tmp_path}/log.db"
    source = random.Random(0)
    acknowledged: list[Acknowledged] = []
    with TurnLog.open(url) as log:
        log.add_turn("held open")
        for seed in itertools.count():
            # The database grows only when a full write-ahead log is copied into it.
            if seed >= ROUNDS and (tmp_path / "log.db").stat().st_size > (1 << 20):
                break
            delay_s = source.uniform(0.02, 0.2)
            acknowledged += run_and_kill(url, seed=seed, threads=4, delay_s=delay_s, folder=tmp_path)
            for turn in acknowledged[-50:]:
                assert log.payload(turn.id) == turn.payload, f"{turn} was acknowledged"
        _check(log, acknowledged)


def _die_in_the_plan(log: TurnLog, text: str) -> None:
    draft = turn_draft(text)
    placed = log.store.place(draft.payload)

    def plan(transaction: WriteTransaction) -> None:
        plan_turn(transaction, draft, placed, Sources())
        os.kill(os.getpid(), signal.SIGKILL)

    log.store.write(plan)


def _die_before_the_commit(log: TurnLog, text: str) -> None:
    publish = SQLiteWrite.publish_payloads

    def publish_and_die(transaction: SQLiteWrite) -> None:
        publish(transaction)
        os.kill(os.getpid(), signal.SIGKILL)

    SQLiteWrite.publish_payloads = publish_and_die
    log.add_turn(text)


def _die_after_the_commit(log: TurnLog, text: str) -> None:
    def die(_: SQLiteWrite) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    SQLiteWrite.release_payloads = die
    log.add_turn(text)


def _open_and_die(url: str, die: Callable[[TurnLog, str], None], text: str) -> None:
    die(TurnLog.open(url), text)


def _files(folder: Path) -> list[Path]:
    """Return all files in the payload folder of a store, but the locks of processes that live."""
    return sorted(path for path in (folder / "log.db-payloads").rglob("*") if path.is_file() and path.name != "lock")


@pytest.mark.parametrize(("die", "files"), [(_die_in_the_plan, 0), (_die_before_the_commit, 1)])
def test_process_killed_around_a_payload_file_does_no_harm(
    tmp_path: Path, die: Callable[[TurnLog, str], None], files: int
) -> None:
    """A crash before the commit leaves no event; at worst a payload file that nothing needs, until it is collected."""
    url = f"sqlite:///{tmp_path}/log.db"
    text = "x" * 100_000
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_open_and_die, url, die, text)
        assert log.stats().file_count == files
        assert [recorded.global_position for recorded in log.events()] == [1, 2]
        TurnLog.open(url).close()
        assert _files(tmp_path) == []
        assert log.verify().damage == ()
        turn = log.add_turn(text, continues="main")
        assert turn.global_position == 3
        assert log.payload(turn.id) == content_bytes(text)
        assert log.stats().file_count == 1
        assert log.verify().damage == ()
    assert len(_files(tmp_path)) == 1


def test_process_killed_after_the_commit_leaves_its_file(tmp_path: Path) -> None:
    """A file whose event was committed is not collected, though its process died before it could say so."""
    url = f"sqlite:///{tmp_path}/log.db"
    text = "x" * 100_000
    with pytest.raises(ProcessFailedError, match="-9"):
        run_process(_open_and_die, url, _die_after_the_commit, text)
    assert len(_files(tmp_path)) == 2
    with TurnLog.open(url) as log:
        [turn] = log.events(topics=["gpt.turn"])
        assert len(_files(tmp_path)) == log.stats().file_count == 1
        assert log.payload(turn.header.id) == content_bytes(text)
        assert log.verify().damage == ()


def test_file_that_another_process_needs_by_now_is_kept(tmp_path: Path) -> None:
    """A file that a killed process left, and that another one has recorded since, stays when the rest is collected."""
    url = f"sqlite:///{tmp_path}/log.db"
    text = "x" * 100_000
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_open_and_die, url, _die_before_the_commit, text)
        turn = log.add_turn(text, continues="main")
        with TurnLog.open(url) as other:
            assert other.payload(turn.id) == content_bytes(text)
            assert other.verify().damage == ()
        assert len(_files(tmp_path)) == log.stats().file_count == 1


def _first_append_and_die(url: str) -> None:
    log = TurnLog.open(url)
    publish = SQLiteWrite.publish_payloads

    def publish_and_die(transaction: SQLiteWrite) -> None:
        publish(transaction)
        os.kill(os.getpid(), signal.SIGKILL)

    SQLiteWrite.publish_payloads = publish_and_die
    log.add_turn("first")


def test_process_killed_in_the_first_append_leaves_an_empty_log(tmp_path: Path) -> None:
    """A log begins with its genesis and what is recorded first together, or not at all: one identity, not two."""
    url = f"sqlite:///{tmp_path}/log.db"
    with pytest.raises(ProcessFailedError, match="-9"):
        run_process(_first_append_and_die, url)
    with TurnLog.open(url) as log:
        assert (log.id, list(log.events())) == (None, [])
        log.add_turn("first")
        assert [recorded.header.topic for recorded in log.events()] == ["log.genesis", "gpt.turn"]
        assert log.verify().damage == ()
