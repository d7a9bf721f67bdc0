"""Followers in processes of their own, killed and started again while others write: each event once, in order."""

import os
import random
import signal
import threading
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.testing.faults import run_processes

WRITERS = 4
TURNS = 5000 if SOAK else 50
KILLS = 100 if SOAK else 8
EVENTS = WRITERS * TURNS + 1


def _write(url: str, writer: int) -> None:
    with TurnLog.open(url) as log:
        for number in range(TURNS):
            log.add_event("acme.number", private={"writer": writer, "number": number})


def _follow(url: str, file: str, delay_s: float | None) -> None:
    """Write down what comes, one line an event, from where the file ends; until killed, or all of it came."""
    path = Path(file)
    text = path.read_text() if path.exists() else ""
    # A line that was cut by the kill is not there yet.
    lines = text[: text.rfind("\n") + 1].splitlines()
    path.write_text("".join(f"{line}\n" for line in lines))
    position, event_id = lines[-1].split() if lines else ("0", None)
    if delay_s is None and int(position) == EVENTS:
        return
    if delay_s is not None:
        threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    with TurnLog.open(url) as log, path.open("a", buffering=1) as out:
        for event in log.events(int(position), after_id=event_id, follow=True):
            out.write(f"{event.global_position} {event.header.id}\n")
            if delay_s is None and event.global_position == EVENTS:
                return


def _follow_through_kills(url: str, file: str, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(KILLS):
        # This process has no threads and no log of its own yet.
        follower = os.fork()
        if follower == 0:
            _follow(url, file, source.uniform(0.0, 0.2))
            os._exit(1)
        _, status = os.waitpid(follower, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
    _follow(url, file, None)


@pytest.mark.timeout(7200 if SOAK else 300)
def test_follower_that_is_killed_gets_each_event_once(log_url: str, tmp_path: Path) -> None:
    """Three of them, while four processes write."""
    url = log_url
    TurnLog.open(url).close()
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    following = [(_follow_through_kills, (url, str(file), number)) for number, file in enumerate(files)]
    run_processes([*following, *[(_write, (url, writer)) for writer in range(WRITERS)]])
    with TurnLog.open(url) as log:
        expected = [f"{event.global_position} {event.header.id}" for event in log.events()]
    assert len(expected) == EVENTS
    assert [file.read_text().splitlines() for file in files] == [expected] * 3


def _seen(url: str, count: int) -> list[tuple[int, float]]:
    with TurnLog.open(url) as log:
        events = log.events(1, follow=True)
        return [(next(events).header.time, monotonic()) for _ in range(count)]


def _written(url: str, count: int) -> list[float]:
    times: list[float] = []
    with TurnLog.open(url) as log:
        wait = threading.Event()
        for _ in range(count):
            wait.wait(0.03)
            log.add_event("acme.tick")
            times.append(monotonic())
    return times


def test_events_of_other_processes_come_soon(log_url: str) -> None:
    """Within 50 ms, as the documents say, on a machine that does something else: most of them, and all in a second."""
    url = log_url
    with TurnLog.open(url) as log:
        log.add_event("acme.begin")
        log.add_event("acme.begin")
    seen, written = run_processes([(_seen, (url, 41)), (_written, (url, 40))])
    delays = sorted(came - made for (_, came), made in zip(seen[1:], written, strict=True))
    assert delays[len(delays) // 2] < 0.05
    assert delays[-1] < 1
    assert all(before <= after for (before, _), (after, _) in pairwise(seen))
