"""A run that is cancelled while its store does not answer: it ends all the same, and holds up no event loop."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.agent.running import values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say
from tests.servers.postgres import PostgresServer

from turnlog import AsyncTurnLog, StoreBusyError, StoreLostError, TurnLog
from turnlog.hurry import HURRY

STOP_S = 5.0
BLOCK_S = 0.5
"""A loop that waits for the store is held up for seconds; other work of a machine holds it up for less than this."""

Stall = Callable[[], object]


@pytest.fixture(params=["sqlite", "postgres"])
def stuck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Stall, Stall]]:
    """Give the URL of a store, what has it answer no append any more, and what has it answer again."""
    if request.param == "sqlite":
        path = tmp_path / "log.db"
        with TurnLog.open(f"sqlite:///{path}"), closing(sqlite3.connect(path, isolation_level=None)) as other:
            yield f"sqlite:///{path}", partial(other.executescript, "BEGIN IMMEDIATE"), other.rollback
        return
    server: PostgresServer = request.getfixturevalue("own_postgres")
    try:
        yield server.create_database(), server.stall, server.go_on
    finally:
        server.go_on()


async def longest_block_s(until: asyncio.Event) -> float:
    """Return how long the event loop was held up at most."""
    longest_s, before_s = 0.0, time.monotonic()
    while not until.is_set():
        await asyncio.sleep(0.01)
        before_s, last_s = time.monotonic(), before_s
        longest_s = max(longest_s, before_s - last_s)
    return longest_s


async def cancelled(log: AsyncTurnLog, stall: Stall, where: str) -> tuple[BaseException | None, float, float]:
    """Cancel a run in a reply, a tool or a question; return what came of it, after how long, and the longest block."""
    there, over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        there.set()
        await asyncio.Event().wait()

    async def ask(_: object) -> bool:
        await work()
        return True

    adapter = Scripted([{"text": "Half"}, HANG] if where == "reply" else call(("work", {})), say("Done."))
    given = {"model": MODEL, "adapter": adapter, "connection": HERE, "tools": [work], "bookmark": "main"}
    given |= {"approve": "ask", "on_approval": ask} if where == "question" else {"approve": "auto"}
    run = asyncio.create_task(log.run("Go.", **values(**given)))
    await (adapter.arrived if where == "reply" else there).wait()
    stall()
    block = asyncio.create_task(longest_block_s(over))
    began_s = time.monotonic()
    run.cancel()
    await asyncio.wait([run])
    took_s = time.monotonic() - began_s
    over.set()
    return (None if run.cancelled() else run.exception()), took_s, await block


@pytest.mark.parametrize("where", ["reply", "tool", "question"])
def test_a_cancelled_run_ends(stuck: tuple[str, Stall, Stall], where: str) -> None:
    """It says that what there was could not be recorded, and does not hold up the event loop."""
    url, stall, go_on = stuck

    async def stop() -> None:
        log = await AsyncTurnLog.open(url)
        error, took_s, block_s = await cancelled(log, stall, where)
        assert (took_s < STOP_S, block_s < BLOCK_S) == (True, True), (took_s, block_s)
        if where == "question":
            assert error is None  # there was nothing to record
        else:
            assert isinstance(error, StoreBusyError | StoreLostError), error
        assert HURRY.since_s is None  # others of this process wait as they do
        go_on()
        assert (await log.add_turn("Still there.")).position == 0
        await log.close()

    asyncio.run(stop())


def test_a_log_that_a_cancelled_task_leaves_is_closed(own_postgres: PostgresServer) -> None:
    """What it had asked for is not waited for."""
    url = own_postgres.create_database()

    async def read(asked: asyncio.Event) -> None:
        async with await AsyncTurnLog.open(url) as log:
            own_postgres.stall()
            asyncio.get_running_loop().call_soon(asked.set)
            await log.threads()

    async def stop() -> None:
        asked = asyncio.Event()
        task = asyncio.create_task(read(asked))
        await asked.wait()
        began_s = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), time.monotonic() - began_s < STOP_S) == (True, True)

    try:
        asyncio.run(stop())
    finally:
        own_postgres.go_on()
