"""Runs that are broken off: nothing that had happened is lost, and the cancellation goes on."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn

import anyio
import msgspec
import pytest
from tests.agent.running import results, run, values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import Ask, PluginError, ProviderError, RunError, TurnLog
from turnlog.agent.combined import CombinedTools, KeptTools
from turnlog.agent.deciding import NOT_STARTED
from turnlog.agent.events import RunEvent, ToolFinished, ToolInterrupted, ToolStarted, TurnRecorded
from turnlog.agent.execution import BROKEN_OFF, LEFT
from turnlog.agent.functions import Functions
from turnlog.agent.middleware import CallModel, CallTool, ModelCall, ToolCall
from turnlog.agent.toolbox import ToolOutcome
from turnlog.hurry import HURRY
from turnlog.model import ContextWindow, Response, Text, ToolUse
from turnlog.providers import Connection, PreparedRequest, ReplyReader


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def cancelled(log: TurnLog, adapter: Scripted, when: asyncio.Event, **settings: Any) -> None:
    """Run, and cancel the run when an event has come."""
    given = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto", "bookmark": "main", **settings}
    task = asyncio.create_task(log.arun("Go.", **values(**given)))
    await when.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_reply_is_recorded_as_far_as_it_came(log: TurnLog) -> None:
    """As an aborted turn that no window has; a run from there makes the same call again."""
    adapter = Scripted([{"text": "Half"}, HANG], say("Whole."))
    asyncio.run(cancelled(log, adapter, adapter.arrived))
    head = log.turn("main")
    assert (head.meta.stop_reason, head.meta.error) == ("aborted", "cancelled")
    assert log.payload(head.id) == b'[{"type":"text","text":"Half"}]'
    assert log.calls.events(head.id) == [b'{"text":"Half"}']
    assert adapter.closed == 1
    assert run(log, adapter, None, continues="main").text == "Whole."
    assert adapter.bodies[0] == adapter.bodies[1]


def test_a_call_that_is_cancelled_before_anything_came_is_recorded_too(log: TurnLog) -> None:
    """Each recorded call has a reply, if only an empty one."""
    adapter = Scripted([HANG])
    asyncio.run(cancelled(log, adapter, adapter.arrived))
    head = log.turn("main")
    assert (head.meta.stop_reason, log.payload(head.id), log.calls.events(head.id)) == ("aborted", b"[]", [])


def test_ctrl_c_records_an_aborted_turn_and_goes_on_as_keyboard_interrupt(log: TurnLog) -> None:
    """`TurnLog.run` in the main thread, as the command line has it."""
    adapter = Scripted([{"text": "Half"}, lambda: os.kill(os.getpid(), signal.SIGINT), HANG])
    with pytest.raises(KeyboardInterrupt):
        run(log, adapter, bookmark="main")
    assert (log.turn("main").meta.stop_reason, log.payload("main")) == ("aborted", b'[{"type":"text","text":"Half"}]')


def test_a_signal_that_does_not_wake_the_loop_is_not_lost(log: TurnLog) -> None:
    """It comes just before the loop begins to wait. So does here one that another thread is given: Python notes it."""
    strike = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(log, Scripted([{"text": "Half"}, strike.start, HANG]), bookmark="main")
    assert log.payload("main") == b'[{"type":"text","text":"Half"}]'
    assert signal.set_wakeup_fd(-1) == -1


def test_cancelled_tools_have_results_that_say_so(log: TurnLog) -> None:
    """What had finished keeps its result, what was at work may have had effects, and what waited did not begin."""
    working = asyncio.Event()

    async def work() -> None:
        working.set()
        await asyncio.Event().wait()

    adapter = Scripted(
        call(("add", {"a": 1, "b": 2}), ("nix", {}), ("work", {}), ("add", {"a": 3, "b": 4})), say("Done.")
    )
    asyncio.run(cancelled(log, adapter, working, tools=[add, work], parallel_max=1))
    assert results(log, "main") == [
        ("c1", "3", False),
        ("c2", "there is no tool 'nix' (one of add, work)", True),
        ("c3", BROKEN_OFF, True),
        ("c4", NOT_STARTED, True),
    ]
    assert run(log, adapter, None, continues="main", tools=[add, work]).text == "Done."


def test_what_a_signal_to_end_broke_off_is_asked_about(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a kill, by the next run: what had finished keeps its result, and what had not begun is made then."""
    working = asyncio.Event()

    async def work() -> str:
        if not working.is_set():
            working.set()
            await asyncio.Event().wait()
        return "worked"

    tools = [add, work]
    adapter = Scripted(call(("add", {"a": 1, "b": 2}), ("nix", {}), ("work", {}), ("add", {"a": 3, "b": 4})))
    with monkeypatch.context() as ending:
        ending.setattr(HURRY, "is_final", True)
        asyncio.run(cancelled(log, adapter, working, tools=tools, parallel_max=1))
    calls = log.tool_calls.of("main")
    assert [each.attempts[-1].ending if each.attempts else None for each in calls] == [
        "result",
        "not_called",
        "broken_off",
        None,
    ]
    assert log.verify().clean

    assert run(log, Scripted(), None, continues="main", tools=tools).stopped == "interrupted"
    asked: list[str] = []
    told: list[RunEvent] = []

    def allow(call: ToolUse) -> bool:
        asked.append(call.name)
        return True

    given: dict[str, Any] = {"tools": tools, "on_approval": allow, "on_event": told.append}
    done = run(log, Scripted(say("Done.")), None, continues="main", **given)
    assert (done.text, asked) == ("Done.", ["work"])
    assert [event.call.id for event in told if isinstance(event, ToolInterrupted)] == ["c3"]
    assert [(text, is_error) for _, text, is_error in results(log, done.turns[0].id)] == [
        ("3", False),
        ("there is no tool 'nix' (one of add, work)", True),
        ("worked", False),
        ("7", False),
    ]


async def stubborn() -> None:
    """Work, and pass over all that is to end it."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


def endings(log: TurnLog) -> list[tuple[object, bool]]:
    """Return how the calls ended that the head has results of, and whether they may have had effects."""
    calls = log.tool_calls.of(log.turn("main").meta.continues[0])
    return [(each.attempts[-1].ending, each.may_have_had_effects) for each in calls]


def test_a_tool_that_passes_over_its_cancellation_is_left_at_work(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run ends, and the event loop too; the call may have had effects, and a record names the tool."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.1)
    working = asyncio.Event()

    async def work() -> None:
        working.set()
        await stubborn()

    adapter = Scripted(call(("add", {"a": 1, "b": 2}), ("work", {})), say("Done."))
    asyncio.run(cancelled(log, adapter, working, tools=[add, work], parallel_max=1))
    assert results(log, "main") == [("c1", "3", False), ("c2", LEFT, True)]
    assert endings(log) == [("result", False), ("given_up", True)]
    records = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert records == ["tool 'work' goes on 1.5 s after it was cancelled: it is left at work"]
    assert run(log, adapter, None, continues="main", tools=[add, work]).text == "Done."


def test_closing_the_events_of_a_run_does_not_wait_for_a_stubborn_tool(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it for further cancellations, which the tool gets too."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.1)

    async def go() -> None:
        given = {"model": MODEL, "adapter": Scripted(call(("stubborn", {}))), "connection": HERE, "approve": "auto"}
        async with log.run_events("Go.", bookmark="main", tools=stubborn, **values(**given)) as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    break

    asyncio.run(go())
    assert results(log, "main") == [("c1", LEFT, True)]


def test_a_stubborn_tool_that_takes_too_long_is_given_up(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of time holds for a tool that does not let itself be ended too: the run goes on."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.1)
    adapter = Scripted(call(("stubborn", {})), say("Done."))
    result = run(log, adapter, bookmark="main", tools=stubborn, tool_timeout_s=0.1)
    assert result.text == "Done."
    asked = result.turns[1].id
    assert [attempt.ending for attempt in log.tool_calls.of(asked)[0].attempts] == ["given_up"]


def test_ctrl_c_does_not_wait_for_a_stubborn_tool(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TurnLog.run` in the main thread, whose event loop is closed behind it; further Ctrl-C change nothing."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.3)

    async def work() -> None:
        for wait_s in (0, 0.1):
            asyncio.get_running_loop().call_later(wait_s, os.kill, os.getpid(), signal.SIGINT)
        await stubborn()

    with pytest.raises(KeyboardInterrupt):
        run(log, Scripted(call(("work", {}))), bookmark="main", tools=work)
    assert results(log, "main") == [("c1", LEFT, True)]


def test_an_adapter_that_takes_a_cancellation_for_a_failure_is_not_asked_again(log: TurnLog) -> None:
    """As of a connection that may be tried again."""

    class Odd(Scripted):
        """An adapter that says so."""

        @asynccontextmanager
        async def _aopen(self, request: PreparedRequest, connection: Connection) -> AsyncIterator[Any]:
            self.bodies.append({})
            self.arrived.set()
            try:
                await asyncio.Event().wait()
                yield
            except asyncio.CancelledError as error:
                raise ProviderError("reset", provider="scripted", retryable=True) from error

    adapter = Odd()
    asyncio.run(cancelled(log, adapter, adapter.arrived, connection=Connection(retries_max=3)))
    assert (len(adapter.bodies), log.turn("main").meta.error) == (1, "reset (retryable)")
    assert run(log, Scripted(say("Whole.")), None, continues="main").text == "Whole."


def test_ctrl_c_ends_a_run_that_its_limit_of_time_is_ending(log: TurnLog) -> None:
    """A tool needs a moment to end: the program that asked is not to go on behind it."""

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)
        return ""

    with pytest.raises(KeyboardInterrupt):
        run(log, Scripted(call(("work", {}))), bookmark="main", tools=work, time_max_s=1.0)
    assert results(log, "main") == [("c1", BROKEN_OFF, True)]


def test_the_limit_of_time_of_a_run_does_not_wait_for_a_thread(log: TurnLog) -> None:
    """A plain function cannot be ended: it goes on in its thread."""
    began, end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        end.wait()

    try:
        for time_max_s in (0.2, 2, 20):  # it may be over before the tool is called
            result = run(log, Scripted(call(("work", {}))), bookmark="main", tools=work, time_max_s=time_max_s)
            assert result.stopped == "time"
            if began.is_set():
                break
    finally:
        end.set()
    assert results(log, "main") == [("c1", BROKEN_OFF, True)]


def test_what_a_tool_returns_when_it_is_cancelled_is_its_result(log: TurnLog) -> None:
    """It has ended, in the time that it has for that."""
    working = asyncio.Event()

    async def work() -> str:
        working.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "half of it"

    asyncio.run(cancelled(log, Scripted(call(("work", {}))), working, tools=work))
    assert results(log, "main") == [("c1", "half of it", False)]
    assert endings(log) == [("result", False)]


def test_a_cancelled_approval_leaves_the_calls_unanswered(log: TurnLog) -> None:
    """Nothing ran: a run from there asks again."""
    asked = asyncio.Event()

    async def never(_: object) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    asyncio.run(cancelled(log, adapter, asked, tools=[add], approve="ask", on_approval=never))
    assert log.turn("main").meta.role == "assistant"
    assert run(log, adapter, None, continues="main", tools=[add]).stopped == "done"
    assert results(log, "main") == [("c1", "3", False)]


@pytest.mark.parametrize("number", range(7))
def test_a_cancellation_at_any_recording_loses_nothing(log: TurnLog, number: int) -> None:
    """What is being recorded at that moment is recorded, and the run stops before the next step."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    store = log.store
    count = 0

    async def go() -> None:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any]
        write = store.write

        def cancelling(plan: Callable[..., Any]) -> Any:
            nonlocal count
            count += 1
            if count == number + 1:
                delivered = threading.Event()
                loop.call_soon_threadsafe(lambda: (task.cancel(), loop.call_soon(delivered.set)))
                assert delivered.wait(30)
            return write(plan)

        store.write = cancelling  # type: ignore[method-assign]
        try:
            given = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto", "tools": [add]}
            task = asyncio.create_task(log.arun("Go.", bookmark="main", **values(**given)))
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            store.write = write  # type: ignore[method-assign]

    asyncio.run(go())
    calls = log.stats().topics.get("gpt.call", 0)
    replies = log.stats().topics.get("gpt.reply", 0)
    assert calls == replies
    kinds = [(turn.meta.role, turn.meta.stop_reason or None) for turn in log.ancestry("main")]
    whole = [("user", None), ("assistant", "tool_use"), ("user", None), ("assistant", "stop")]
    aborted = ("assistant", "aborted")
    assert (
        kinds
        == [
            whole[:1],
            [*whole[:1], aborted],
            whole[:2],
            whole[:3],
            whole[:3],
            [*whole[:3], aborted],
            whole,
        ][number]
    )
    if number == 3:  # the call was begun on disk, and not made
        assert results(log, "main") == [("c1", NOT_STARTED, True)]
    if number < 6:
        assert run(log, Scripted(*adapter.replies), None, continues="main", tools=[add]).stopped == "done"


def test_a_limit_of_time_around_a_run_is_a_time_out(log: TurnLog) -> None:
    """`asyncio.timeout` finds its own cancellation again, and the turn is recorded."""
    adapter = Scripted([{"text": "Half"}, HANG])

    async def go() -> None:
        async with asyncio.timeout(2):
            await log.arun("Go.", bookmark="main", model=MODEL, ask=Ask(adapter=adapter, connection=HERE))

    with pytest.raises(TimeoutError):
        asyncio.run(go())
    assert log.turn("main").meta.stop_reason == "aborted"


def test_a_cancelled_run_leaves_no_cancellation_behind(log: TurnLog) -> None:
    """What is awaited behind a scope of anyio's, which cancels again and again, is not cancelled."""
    adapter = Scripted([{"text": "Half"}, HANG])

    async def go() -> str:
        with anyio.CancelScope() as scope:
            arrived = asyncio.create_task(adapter.arrived.wait())
            arrived.add_done_callback(lambda _: scope.cancel())
            await log.arun("Go.", bookmark="main", model=MODEL, ask=Ask(adapter=adapter, connection=HERE))
        for _ in range(3):
            await asyncio.sleep(0)
        return "went on"

    assert asyncio.run(go()) == "went on"
    assert log.turn("main").meta.stop_reason == "aborted"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_scope_around_a_run_with_middleware_knows_its_own_cancellation(log: TurnLog, *, leaves: bool) -> None:
    """By the message of it, also where the middleware has left its request to a task of its own."""
    adapter = Scripted([{"text": "Half"}, HANG])

    async def around(asked: ModelCall, ask: CallModel) -> Response:
        if not leaves:
            return await ask(asked)
        left.append(asyncio.ensure_future(ask(asked)))
        await adapter.arrived.wait()
        raise KeyError("mistaken")

    left: list[asyncio.Future[Response]] = []
    given = {"adapter": adapter, "connection": HERE, "model": MODEL, "around_model": around, "bookmark": "main"}

    async def go() -> bool:
        with anyio.CancelScope() as scope:
            arrived = asyncio.create_task(adapter.arrived.wait())
            arrived.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(scope.cancel))
            await log.arun("Go.", **values(**given))
        return scope.cancelled_caught

    assert asyncio.run(go())
    assert log.turn("main").meta.stop_reason == "aborted"


@pytest.mark.parametrize("kind", [TurnRecorded, ToolStarted, ToolFinished])
def test_a_follower_that_raises_breaks_the_run_off(log: TurnLog, kind: type) -> None:
    """Its own error is raised; what had happened is recorded, with a result for each call."""

    class OddError(Exception):
        pass

    def follow(event: RunEvent) -> None:
        if isinstance(event, kind) and not (isinstance(event, TurnRecorded) and len(log.ancestry("main")) < 2):
            raise OddError

    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    with pytest.raises(OddError):
        run(log, adapter, bookmark="main", tools=[add], on_event=follow)
    expected = {TurnRecorded: [], ToolStarted: [("c1", NOT_STARTED, True)], ToolFinished: [("c1", "3", False)]}
    assert results(log, "main") == expected[kind]
    assert run(log, adapter, None, continues="main", tools=[add]).text == "Done."


def test_a_display_that_raises_leaves_an_aborted_turn(log: TurnLog) -> None:
    """The reply is broken off there: nobody wants to see the rest."""

    def show(_: object) -> None:
        raise BrokenPipeError("gone")

    with pytest.raises(BrokenPipeError):
        run(log, Scripted(say("Hello.")), bookmark="main", on_delta=show)
    head = log.turn("main")
    assert (head.meta.stop_reason, head.meta.error) == ("aborted", "broken off by BrokenPipeError: gone")
    assert log.payload(head.id) == b'[{"type":"text","text":"Hello."}]'


@pytest.mark.parametrize("method", ["add", "response"])
def test_what_arrived_of_a_reply_that_cannot_be_read_is_kept(log: TurnLog, method: str) -> None:
    """Its events, as they came, beside what went wrong; what an adapter raises comes out as it is."""

    class Odd(Scripted):
        def reader(self, *, model: str | None = None) -> ReplyReader:
            reader = super().reader(model=model)

            def fail(*_: object) -> NoReturn:
                raise ZeroDivisionError

            setattr(reader, method, fail)
            return reader

    with pytest.raises(ZeroDivisionError):
        run(log, Odd(say("Hello.")), bookmark="main")
    head = log.turn("main")
    assert (head.meta.stop_reason, head.meta.error) == ("aborted", "broken off by ZeroDivisionError: ")
    assert (
        log.calls.events(head.id)
        == [msgspec.json.encode(event) for event in say("Hello.")][: 1 if method == "add" else None]
    )
    assert log.verify().clean


@pytest.mark.parametrize(
    ("events", "response", "what"),
    [
        ([{"text": "a"}, "b"], None, "gave an event that is 'str': give bytes"),
        (say("a"), "none", "has a reader whose response is 'str': return a Response"),
    ],
)
def test_adapter_that_gives_what_is_none_of_a_reply_is_told(
    log: TurnLog, events: list[Any], response: str | None, what: str
) -> None:
    """What came before is kept."""

    class Odd(Scripted):
        @asynccontextmanager
        async def _aopen(self, request: PreparedRequest, connection: Connection) -> AsyncIterator[AsyncIterator[Any]]:
            async def given() -> AsyncIterator[Any]:
                for event in events:
                    yield event if isinstance(event, str) else msgspec.json.encode(event)

            yield given()

        def reader(self, *, model: str | None = None) -> ReplyReader:
            reader = super().reader(model=model)
            if response is not None:
                setattr(reader, "response", lambda: response)  # noqa: B010 - of another type
            return reader

    with pytest.raises(PluginError, match=f"^the adapter of provider 'scripted' {what}$"):
        run(log, Odd(), bookmark="main")
    head = log.turn("main")
    assert head.meta.stop_reason == "aborted"
    assert len(log.calls.events(head.id)) == (2 if response else 1)
    assert log.verify().clean


def test_kept_tools_stay_open_from_one_run_to_the_next(log: TurnLog) -> None:
    """Whoever made them leaves them."""
    seen: list[str] = []

    class Counted(Functions):
        servers = ("s",)

        async def __aexit__(self, *_: object) -> None:
            seen.append("left")

    async def go() -> None:
        async with CombinedTools([Counted([add])]) as tools:
            for _ in range(2):
                given = {"model": MODEL, "adapter": Scripted(say("Done.")), "connection": HERE}
                # The server is not registered: the run would fail if it were to start it itself.
                await log.arun("Go.", servers=["s"], tools=KeptTools(tools), **values(**given))
            assert seen == []

    asyncio.run(go())
    assert seen == ["left"]


PLACES = (
    "tool before",
    "tool within",
    "tool after",
    "tool apart",
    "model before",
    "model within",
    "window",
    "approval",
)
"""Where something passes over its cancellation: before, within or behind the call that it goes around."""

ENDINGS: dict[str, list[tuple[object, bool]]] = {
    "tool before": [("not_called", False)],
    "tool within": [("broken_off", True)],
    "tool after": [("result", False)],
    "tool apart": [("broken_off", True)],
}


def passing_over(where: str, working: asyncio.Event) -> dict[str, Any]:
    """Return what a run is given that passes over its cancellation, at a place."""

    async def look() -> str:
        """Look."""
        if where in ("tool within", "tool apart"):
            working.set()
            await asyncio.Event().wait()
        return "Bolts."

    async def around_tool(asked: ToolCall, make: CallTool) -> ToolOutcome:
        if where != "tool before":
            made = asyncio.ensure_future(make(asked))
            with suppress(asyncio.CancelledError):
                await (asyncio.shield(made) if where == "tool apart" else made)
        working.set()
        await stubborn()
        return ToolOutcome(content=())

    async def around_model(asked: ModelCall, make: CallModel) -> Response:
        if where == "model within":
            with suppress(asyncio.CancelledError):
                return await make(asked)
        else:
            working.set()
        await stubborn()
        return await make(asked)

    async def wait(_: Any) -> Any:
        working.set()
        await stubborn()

    given: dict[str, dict[str, Any]] = {
        "tool": {"around_tool": around_tool},
        "model": {"around_model": around_model},
        "window": {"on_window": wait},
        "approval": {"on_approval": wait, "approve": "ask"},
    }
    return {"tools": look, **given[where.split(maxsplit=1)[0]]}


@pytest.mark.parametrize("where", PLACES)
def test_what_passes_over_its_cancellation_keeps_no_run_from_ending(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """Middleware, and callbacks that are awaited: they are left, the log says what became of the call, and goes on."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.1)
    working = asyncio.Event()
    replies = [{"text": "Half"}, working.set, HANG] if where == "model within" else call(("look", {}))
    adapter = Scripted(replies, say("Done."))
    asyncio.run(asyncio.wait_for(cancelled(log, adapter, working, **passing_over(where, working)), 20))
    assert [record.getMessage() for record in caplog.records if "it is left" in record.getMessage()] != []
    turn = log.turn("main")
    if where in ENDINGS:
        assert endings(log) == ENDINGS[where]
        told = {"tool before": NOT_STARTED, "tool after": "Bolts."}.get(where, BROKEN_OFF)
        assert results(log, "main") == [("c1", told, where != "tool after")]
    elif where == "model within":
        assert (turn.meta.stop_reason, log.payload("main")) == ("aborted", b'[{"type":"text","text":"Half"}]')
    else:
        assert turn.meta.role == ("assistant" if where == "approval" else "user")
    assert log.verify().clean
    assert run(log, Scripted(say("Done.")), "Go on." if where == "approval" else None, continues="main").text == "Done."


@pytest.mark.parametrize("where", ["tool", "model", "own answer", "approval", "window"])
def test_what_passes_over_a_cancellation_and_returns_does_not_keep_the_run_going(log: TurnLog, where: str) -> None:
    """What it returned is recorded, and the run ends then: no further call is made."""
    working = asyncio.Event()

    async def wait() -> None:
        working.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def around_tool(asked: ToolCall, make: CallTool) -> ToolOutcome:
        await wait()
        return await make(asked)

    async def around_model(asked: ModelCall, make: CallModel) -> Response:
        response = await make(asked)
        await wait()
        return response

    async def answer(asked: ModelCall, make: CallModel) -> Response:
        del make
        await wait()
        return Response(
            content=(Text(text="Me."),), model=asked.model, stop_reason="stop", provider="scripted", api="x"
        )

    async def approve(_: Any) -> bool:
        await wait()
        return True

    async def window(given: ContextWindow) -> ContextWindow:
        await wait()
        return given

    given: dict[str, dict[str, Any]] = {
        "tool": {"around_tool": around_tool},
        "model": {"around_model": around_model},
        "own answer": {"around_model": answer},
        "approval": {"on_approval": approve, "approve": "ask"},
        "window": {"on_window": window},
    }
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    asyncio.run(cancelled(log, adapter, working, tools=[add], **given[where]))
    assert len(adapter.bodies) == (0 if where in ("own answer", "window") else 1)
    assert log.turn("main").meta.role == ("user" if where in ("tool", "window") else "assistant")
    assert (results(log, "main") == [("c1", "3", False)]) == (where == "tool")


def test_a_middleware_that_was_left_calls_nothing_any_more(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go on; a tool that it calls then would have effects that no log tells of."""
    monkeypatch.setattr("turnlog.agent.letting_go.GRACE_S", 0.05)
    working, ended, called, said = asyncio.Event(), asyncio.Event(), list[str](), list[str]()

    async def late(asked: ToolCall, make: CallTool) -> ToolOutcome:
        working.set()
        for _ in range(20):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        try:
            return await make(asked)
        except RunError as error:
            said.append(str(error))
            ended.set()
            raise

    def look() -> str:
        """Look."""
        called.append("look")
        return "Bolts."

    async def go() -> None:
        await cancelled(log, Scripted(call(("look", {}))), working, tools=look, around_tool=late)
        await ended.wait()

    asyncio.run(go())
    assert (called, endings(log)) == ([], [("not_called", False)])
    assert "calls 'look' after its end is recorded" in said[0]
