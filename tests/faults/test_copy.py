"""A copy that is killed at any moment leaves the beginning of the log, and the same copy again completes it."""

import os
import random
import signal
import threading
from itertools import count
from pathlib import Path

import pytest
from tests.faults.rich_store import build
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.audit import copying
from turnlog.audit.notes import Signer
from turnlog.testing.faults import ProcessFailedError, facts, run_process, workload_content

ROUNDS = 100 if SOAK else 2
"""How often a log is copied from its beginning to its end, with kills meanwhile."""
KILLS_MIN = 6
TURNS = 150
GROUP_EVENTS = 8
ERASED_ON_NOBODYS_WORD = "its private part and payload are gone, and no gpt.erasure event names it"


def _fill(url: str, path: Path) -> None:
    """Make a log that has one of everything, then turns and documents, and what was erased, under a checkpoint."""
    build(path)
    with TurnLog.open(url) as log:
        for number in range(TURNS):
            content = workload_content(1, 1, number)
            if isinstance(content, bytes):
                document = path.parent / "document.bin"
                document.write_bytes(content)
                log.add_document(document, continues="main")
            else:
                log.add_turn(content, continues="main")
        erased = log.add_turn("to be erased " * 8000, bookmark="erased")
        log.erase(turn=erased.id, reason="asked")
        log.audit.checkpoint(Signer.generate("example.com/log"))


def _copy(source: str, target: str, kill_after_s: float | None) -> int:
    """Copy a store, and be killed meanwhile or not. Return how many events were added."""
    copying.GROUP_EVENTS_MAX = GROUP_EVENTS
    with TurnLog.open(source, create=False) as log:
        if kill_after_s is not None:
            timer = threading.Timer(kill_after_s, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
        return log.copy_to(target).added


def _check_beginning(source: str, target: str) -> None:
    """Check that a target is whole as far as it goes."""
    with TurnLog.open(source) as log, TurnLog.open(target) as copy:
        with log.store.read() as ours, copy.store.read() as theirs:
            end = theirs.log_end()
            assert not end or theirs.leaves(0, end) == ours.leaves(0, end)
        # What was erased long after it was recorded is copied erased, and the event that says so long after it.
        assert {damage.what for damage in copy.verify().damage} <= {ERASED_ON_NOBODYS_WORD}


@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("direction", ["to postgres", "to sqlite"])
def test_killed_copy_goes_on(tmp_path: Path, postgres_url: str, direction: str) -> None:
    """At every kill the target is the beginning of the log, undamaged; at the end both are the same."""
    path = tmp_path / "source.db"
    source = f"sqlite:///{path}"
    _fill(source, path)
    if direction == "to sqlite":
        with TurnLog.open(source) as log:
            log.copy_to(postgres_url)
        source = postgres_url
    chance = random.Random(direction)
    kills = 0
    pace_s = 0.05
    for number in count():
        if number >= ROUNDS and kills >= KILLS_MIN:
            break
        target = f"sqlite:///{tmp_path}/target-{number}/log.db"
        if direction == "to postgres":
            target = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=copy_{number}"
        while True:
            try:
                run_process(_copy, source, target, chance.expovariate(1 / pace_s))
                break
            except ProcessFailedError as error:
                assert "-9" in str(error)  # noqa: PT017 - the other outcome is that it came to its end
            kills += 1
            pace_s *= 1.02 if SOAK else 1.2  # on a slow machine opening alone may take that long
            if chance.random() < 0.3:
                _check_beginning(source, target)
        assert run_process(_copy, source, target, None) == 0
        with TurnLog.open(source) as log, TurnLog.open(target, create=False) as copy:
            assert facts(copy) == facts(log)
            assert [event.arrival for event in copy.events()] == [event.arrival for event in log.events()]
            assert copy.audit.checkpoints() == log.audit.checkpoints()
            report = copy.verify()
            assert (report.damage, report.erased) == ((), 3)
