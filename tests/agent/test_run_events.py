"""A run as an iterator of events."""

import asyncio
from typing import Any

import pytest
from tests.agent.running import contents, values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import AsyncTurnLog, RunError, TurnLog, TurnlogError
from turnlog.agent.events import CallStarted, ToolFinished, ToolStarted, TurnRecorded
from turnlog.agent.run_events import ReplyPiece, RunEvents, RunFinished

SCRIPTED: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}


def look() -> str:
    """Look."""
    return "Bolts."


def events_of(log: TurnLog, *replies: Any, content: Any = "Go.", **settings: Any) -> RunEvents[Any]:
    """Return the events of a run with scripted replies."""
    return log.run_events(content, **values(**SCRIPTED, **settings, adapter=Scripted(*replies)))


def test_all_that_happens_comes_in_its_order(log: TurnLog) -> None:
    """The last event has the result; `events.result` too."""

    async def follow() -> None:
        events = events_of(log, call(("look", {}), text="I look."), say("Bolts."), tools=look)
        assert events.result is None
        kinds = [event.kind async for event in events]
        assert kinds == [
            "turn",
            "call",
            "delta",
            "delta",
            "turn",
            "tool_started",
            "tool_finished",
            "turn",
            "call",
            "delta",
            "turn",
            "result",
        ]
        assert events.result is not None
        assert (events.result.stopped, events.result.text) == ("done", "Bolts.")

    asyncio.run(follow())


def test_callbacks_are_called_as_well(log: TurnLog) -> None:
    """Both are told the same."""
    told: list[object] = []

    async def follow() -> list[object]:
        events = events_of(log, say("Yes."), on_event=told.append, on_delta=told.append)
        return [event.delta if isinstance(event, ReplyPiece) else event async for event in events]

    followed = asyncio.run(follow())
    assert told == followed[:-1]
    assert isinstance(followed[-1], RunFinished)


@pytest.mark.parametrize("left_at", ["turn", "call", "delta"])
def test_who_leaves_the_loop_cancels_the_run(log: TurnLog, left_at: str) -> None:
    """Wherever it is: what had arrived is an aborted turn when `async with` ends."""

    async def leave() -> None:
        async with events_of(log, [{"text": "Once"}, HANG], bookmark="main") as events:
            async for event in events:
                if event.kind == left_at:
                    break

    asyncio.run(leave())
    said = [turn.meta.stop_reason for turn in log.ancestry("main") if turn.meta.role == "assistant"]
    assert said in (["aborted"], []) if left_at == "turn" else said == ["aborted"]


def test_a_tool_at_work_is_broken_off(log: TurnLog) -> None:
    """Its result says so, and it is told to end."""
    ended = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    async def leave() -> None:
        async with events_of(log, call(("wait", {})), tools=wait, bookmark="main") as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    break
        assert ended.is_set()

    asyncio.run(leave())
    assert "The run was stopped while this tool was at work" in contents(log, "main")[-1][1]


def test_a_loop_that_is_left_without_with_ends_the_run_too(log: TurnLog) -> None:
    """As soon as the event loop comes to it."""

    async def leave() -> None:
        async for event in events_of(log, [{"text": "Once"}, HANG], bookmark="main"):
            if isinstance(event, ReplyPiece):
                break
        await asyncio.sleep(0)
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(leave())
    assert log.turn("main").meta.stop_reason == "aborted"


def test_another_task_ends_the_run(log: TurnLog) -> None:
    """As a stop button does, twice at once: the tool is broken off, and the loop ends where it waits."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "late"

    async def stop() -> list[str]:
        events = events_of(log, call(("wait", {})), tools=wait, bookmark="main")

        async def follow() -> list[str]:
            return [event.kind async for event in events]

        following = asyncio.create_task(follow())
        await started.wait()
        await asyncio.gather(events.aclose(), events.aclose())
        assert ended.is_set()
        assert events.result is None
        seen = await asyncio.wait_for(following, 5)
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        return seen

    seen = asyncio.run(stop())
    assert "result" not in seen
    assert "The run was stopped while this tool was at work" in contents(log, "main")[-1][1]


def test_a_second_reader_is_refused(log: TurnLog) -> None:
    """With what to do; the first one has all of the run."""

    async def read() -> list[str]:
        events = events_of(log, say("Yes."))
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        with pytest.raises(RunError, match="another task waits for the next event of this run: read its events in one"):
            await anext(events)
        return [(await first).kind, *[event.kind async for event in events]]

    assert asyncio.run(read()) == ["turn", "call", "delta", "turn", "result"]


def test_who_never_asks_for_an_event_begins_nothing(log: TurnLog) -> None:
    """Nothing is recorded."""

    async def ask_nothing() -> None:
        events = events_of(log, say("Yes."))
        await events.aclose()

    asyncio.run(ask_nothing())
    assert log.threads() == []


def test_a_run_that_cannot_begin_raises_at_the_first_event(log: TurnLog) -> None:
    """As `run` does."""

    async def begin() -> None:
        await anext(events_of(log, content=None))

    with pytest.raises(RunError, match="there is nothing to run"):
        asyncio.run(begin())


def test_what_a_cancelled_run_could_not_record_is_raised(log: TurnLog) -> None:
    """Who closes it is told."""

    async def close() -> None:
        events = events_of(log, [{"text": "Once"}, HANG])
        async for event in events:
            if isinstance(event, CallStarted):
                break
        log.close()
        await events.aclose()

    with pytest.raises(TurnlogError):
        asyncio.run(close())


def test_the_async_log_has_it() -> None:
    """With the same arguments."""

    async def follow() -> list[str]:
        async with await AsyncTurnLog.open("memory://") as log:
            events = log.run_events(
                "Go.", tools=look, **values(**SCRIPTED, adapter=Scripted(call(("look", {})), say("Yes.")))
            )
            return [event.kind async for event in events if isinstance(event, TurnRecorded | ToolFinished)]

    assert asyncio.run(follow()) == ["turn", "turn", "tool_finished", "turn", "turn"]


def test_events_are_not_closed_from_another_event_loop(log: TurnLog) -> None:
    """Who tries it is told how, and the run goes on until it is closed in its own."""

    async def follow() -> None:
        events = events_of(log, [{"text": "Once"}, HANG], bookmark="main")
        while (await anext(events)).kind != "delta":
            pass
        with pytest.raises(RunError, match=r"asyncio\.run_coroutine_threadsafe\(events\.aclose\(\), loop\)"):
            await asyncio.to_thread(asyncio.run, events.aclose())
        assert log.turn("main").meta.role == "user"
        loop = asyncio.get_running_loop()
        closing = asyncio.run_coroutine_threadsafe(events.aclose(), loop)
        await asyncio.wrap_future(closing)

    asyncio.run(follow())
    assert log.turn("main").meta.stop_reason == "aborted"
