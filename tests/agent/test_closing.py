"""A log that is closed while a run is at work on it."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from tests.agent.running import results, values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import StoreClosedError, TurnLog
from turnlog.agent.events import RunEvent, ToolStarted
from turnlog.agent.execution import BROKEN_OFF

SETTINGS: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto", "bookmark": "main"}
MESSAGE = "the log was closed while a run was at work"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return where a log is that is opened again."""
    return f"sqlite:///{tmp_path}/a.db"


def test_a_reply_that_comes_is_recorded_as_far_as_it_came(url: str) -> None:
    """The run says that the log was closed, and the task that awaits it is not cancelled."""
    adapter = Scripted([{"text": "Half"}, HANG])

    async def go() -> int:
        log = TurnLog.open(url)
        running = asyncio.create_task(log.arun("Go.", **values(**SETTINGS, adapter=adapter)))
        await adapter.arrived.wait()
        await asyncio.to_thread(log.close)
        with pytest.raises(StoreClosedError, match=MESSAGE):
            await running
        return running.cancelling()

    assert asyncio.run(go()) == 0
    with TurnLog.open(url) as log:
        assert log.turn("main").meta.stop_reason == "aborted"
        assert log.text("main") == "Half"


def test_a_tool_that_is_at_work_is_broken_off(url: str) -> None:
    """Its result says so, and that it may have had effects."""

    async def go() -> None:
        log, begun = TurnLog.open(url), asyncio.Event()

        async def work() -> str:
            """Work."""
            begun.set()
            await asyncio.Event().wait()
            return "never"

        given = {**SETTINGS, "adapter": Scripted(call(("work", {}))), "tools": work}
        running = asyncio.create_task(log.arun("Go.", **values(**given)))
        await begun.wait()
        await asyncio.to_thread(log.close)
        with pytest.raises(StoreClosedError, match=MESSAGE):
            await running

    asyncio.run(go())
    with TurnLog.open(url) as log:
        assert results(log, "main") == [("c1", BROKEN_OFF, True)]


@pytest.mark.parametrize("where", ["callback", "tool", "thread of a tool"])
def test_what_a_run_calls_can_close_the_log(url: str, where: str) -> None:
    """It does not wait for the run, which waits for it."""
    log = TurnLog.open(url)

    def told(event: RunEvent) -> None:
        if where == "callback" and isinstance(event, ToolStarted):
            log.close()

    async def in_the_loop() -> str:
        """Work."""
        if where == "tool":
            log.close()
        return "done"

    def in_a_thread() -> str:
        """Work."""
        log.close()
        return "done"

    work = in_a_thread if where == "thread of a tool" else in_the_loop
    adapter = Scripted(call((work.__name__, {})), say("Done."))
    with pytest.raises(StoreClosedError):
        log.run("Go.", **values(**SETTINGS, adapter=adapter, tools=work, on_event=told))
    with TurnLog.open(url) as again:
        assert again.verify().clean


def test_a_run_begins_in_no_log_that_is_closed(url: str) -> None:
    """No model is asked."""
    log, adapter = TurnLog.open(url), Scripted(say("Done."))
    log.close()
    with pytest.raises(StoreClosedError, match="closed"):
        log.run("Go.", **values(**SETTINGS, adapter=adapter))
    assert adapter.bodies == []


def test_events_that_nobody_reads_on_say_nothing_of_a_log_that_is_closed(url: str) -> None:
    """Also where they are still there: only who asks for the next one is told."""
    told: list[dict[str, Any]] = []

    async def go() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        log, adapter = TurnLog.open(url), Scripted([{"text": "Half"}, HANG], [{"text": "Half"}, HANG])
        left, read = (log.run_events("Go.", **values(**SETTINGS, adapter=adapter)) for _ in range(2))
        await anext(left)
        async for event in read:
            if event.kind == "delta":
                break
        await asyncio.to_thread(log.close)
        with pytest.raises(StoreClosedError, match=MESSAGE):
            async for _ in read:
                pass

    asyncio.run(go())
    gc.collect()
    assert told == []
