"""Programs that close a log while it is used in every way, again and again, for `test_close` to run each by itself.

They write down what they saw as JSON. What matters as much is that each comes to its end: a connection that is closed
in the middle of a statement takes the interpreter with it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventsourcing.persistence import ConnectionPoolClosedError, Tracking

from turnlog import AsyncTurnLog, TurnLog
from turnlog.errors import StoreClosedError

THREADS = 16


class Seen:
    """What became of all that was tried."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.ended: Counter[str] = Counter()
        self.turns: set[str] = set()

    def end(self, error: BaseException) -> None:
        """Note why somebody stopped."""
        with self.mutex:
            told = f"{type(error).__name__}: {error}"
            self.ended[type(error).__name__ if isinstance(error, StoreClosedError) else told] += 1

    def turn(self, turn_id: str) -> None:
        """Note a turn that was acknowledged."""
        with self.mutex:
            self.turns.add(turn_id)

    def report(self, url: str) -> dict[str, Any]:
        """Say what was seen, and what is in the log."""
        with TurnLog.open(url) as log:
            recorded = {found.header.id for found in log.events(topics=["gpt.turn"])}
            damage = [damage.what for damage in log.verify().damage]
        return {
            "ended": dict(self.ended),
            "acknowledged": len(self.turns),
            "lost": len(self.turns - recorded),
            "damage": damage,
        }


# Threads


def _append(log: TurnLog, seen: Seen, source: random.Random) -> None:
    seen.turn(log.add_turn(source.randbytes(source.randrange(1, 500)).hex(), continues="main").id)


def _append_large(log: TurnLog, seen: Seen, source: random.Random) -> None:
    seen.turn(log.add_turn(source.randbytes(40_000).hex(), bookmark=False).id)


def _read(log: TurnLog, seen: Seen, source: random.Random) -> None:
    log.context("main")
    log.threads()


def _follow(log: TurnLog, seen: Seen, source: random.Random) -> None:
    end = 0
    for _ in range(50):
        end = log.wait(end)
        for recorded in log.events(max(end - 20, 0)):
            log.event(recorded.header.id)


def _stay_inside(log: TurnLog, seen: Seen, source: random.Random) -> None:
    with log.store.read() as transaction:
        for recorded in transaction.log():
            transaction.payload(recorded)


def _measure(log: TurnLog, seen: Seen, source: random.Random) -> None:
    log.stats()
    log.store.check_schema()
    list(log.store.check())


def _rebuild(log: TurnLog, seen: Seen, source: random.Random) -> None:
    log.store.rebuild(["bookmark heads"])


def _record(log: TurnLog, seen: Seen, source: random.Random) -> None:
    try:
        recorder = log.store.factory.application_recorder()
        recorder.select_notifications(1, 50)
        recorder.max_notification_id()
        recorder.select_events("nobody")
    except ConnectionPoolClosedError as error:
        raise StoreClosedError("as eventsourcing says it") from error


def _track(log: TurnLog, seen: Seen, source: random.Random) -> None:
    try:
        recorder = log.store.factory.tracking_recorder()
        at = recorder.max_tracking_id("here") or 0
        recorder.insert_tracking(Tracking("here", at + 1))
        assert recorder.has_tracking_id("here", at + 1)
    except ConnectionPoolClosedError as error:
        raise StoreClosedError("as eventsourcing says it") from error


_WAYS: list[Callable[[TurnLog, Seen, random.Random], None]] = [
    *[_append] * 3,
    _append_large,
    *[_read] * 2,
    *[_follow] * 2,
    *[_stay_inside] * 2,
    _measure,
    _rebuild,
    _record,
    _track,
]


def threads(url: str, rounds: int) -> dict[str, Any]:
    """Close a log from two of sixteen threads, while the others use it, so many times."""
    seen = Seen()
    with TurnLog.open(url) as log:
        seen.turn(log.add_turn("root", bookmark="main").id)
    for number in range(rounds):
        log = TurnLog.open(url)
        begin = threading.Barrier(THREADS)

        def use(way: Callable[..., None], seed: int, log: TurnLog = log, begin: threading.Barrier = begin) -> None:
            source = random.Random(seed)
            begin.wait()
            try:
                while True:
                    way(log, seen, source)
            except Exception as error:  # noqa: BLE001 - it is reported
                seen.end(error)

        def close(seed: int, log: TurnLog = log, begin: threading.Barrier = begin) -> None:
            source = random.Random(seed)
            begin.wait()
            for _ in range(source.randrange(4)):
                _append(log, seen, source)
            log.close()

        def close_too(seed: int) -> None:
            try:
                close(seed)
            except StoreClosedError as error:
                seen.end(error)

        running = [threading.Thread(target=use, args=(way, number * 100 + n)) for n, way in enumerate(_WAYS)]
        running += [threading.Thread(target=close_too, args=(number * 100 + 50 + n,)) for n in range(2)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        log.close()
    return seen.report(url)


# Tasks


async def _use(log: AsyncTurnLog, seen: Seen, way: int, source: random.Random) -> None:
    while True:
        match way % 5:
            case 0 | 1:
                turn = await log.add_turn(source.randbytes(source.randrange(1, 500)).hex(), continues="main")
                seen.turn(turn.id)
            case 2:
                await log.context("main")
            case 3:
                async for recorded in log.events():
                    if source.random() < 0.1:
                        await log.turn("main")
                    assert recorded.global_position > 0
            case _:
                await log.wait(0)
                await log.stats()


async def _tasks(url: str, rounds: int, seen: Seen) -> None:
    async with await AsyncTurnLog.open(url) as log:
        seen.turn((await log.add_turn("root", bookmark="main")).id)
    for number in range(rounds):
        source = random.Random(number)
        log = await AsyncTurnLog.open(url)
        tasks = [asyncio.create_task(_use(log, seen, n, random.Random(number * 100 + n))) for n in range(THREADS)]
        # Until something has happened, and then at any moment of what goes on.
        for _ in range(source.randrange(5)):
            await log.turn("main")
        for task in source.sample(tasks, source.randrange(THREADS)):
            task.cancel()
        await log.close()
        for task in tasks:
            try:
                await task
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is reported
                seen.end(error)


def tasks(url: str, rounds: int) -> dict[str, Any]:
    """Close a log while sixteen tasks use it, some of which are cancelled, so many times."""
    seen = Seen()
    asyncio.run(_tasks(url, rounds, seen), debug=False)
    return seen.report(url)


async def _abandon(url: str, seen: Seen) -> None:
    log = await AsyncTurnLog.open(url)
    seen.turn((await log.add_turn("root", bookmark="main")).id)
    running = [asyncio.create_task(_use(log, seen, n, random.Random(n))) for n in range(THREADS)]
    for _ in range(5):
        await log.turn("main")
    for task in running[::2]:
        task.cancel()
    # The event loop cancels the others, and nobody closes the log.


def abandon(url: str, rounds: int) -> dict[str, Any]:
    """End an event loop in which a log is open and in use, so many times; the process ends so, too."""
    seen = Seen()
    for _ in range(rounds):
        asyncio.run(_abandon(url, seen))
    log = TurnLog.open(url)
    for _ in range(4):
        threading.Thread(target=lambda: [log.add_turn("at the end") for _ in range(1000)], daemon=True).start()
    log.wait(log.stats().events)
    return seen.report(url)


if __name__ == "__main__":
    program, url, rounds, answer = sys.argv[1:]
    Path(answer).write_text(json.dumps(globals()[program](url, int(rounds))))
