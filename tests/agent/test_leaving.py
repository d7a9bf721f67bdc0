"""What leaves an event loop at once, SystemExit and KeyboardInterrupt, leaves a run in order."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.running import results, run, values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say
from tests.agent.test_cancelling import add, endings, stubborn
from tests.soak import SOAK

from turnlog import RunError, TurnLog
from turnlog.agent.deciding import NOT_STARTED
from turnlog.agent.events import (
    CallStarted,
    RunEvent,
    ToolFinished,
    ToolInterrupted,
    ToolProgress,
    ToolStarted,
    TurnRecorded,
)
from turnlog.agent.execution import BROKEN_OFF
from turnlog.agent.functions import Functions
from turnlog.agent.middleware import CallTool, ToolCall
from turnlog.agent.progress import report_progress
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Delta, ToolUse

BOTH = (SystemExit(3), KeyboardInterrupt())


class OddError(BaseException):
    """An exception that is none of Python's."""


def is_free(log: TurnLog) -> bool:
    """Tell whether no run is at work on a turn of the thread."""
    return not any(log.store.locks.is_taken(turn.id) for turn in log.ancestry("main"))


def goes_on(log: TurnLog, *, tools: Any = (), text: str | None = None) -> tuple[str, list[tuple[bool, str]]]:
    """Go on from there in the same process; return why that stopped, and which broken off calls it told of."""
    told: list[RunEvent] = []
    result = run(log, Scripted(say("Done.")), text, continues="main", tools=tools, on_event=told.append)
    return result.stopped, [(event.is_told, event.call.name) for event in told if isinstance(event, ToolInterrupted)]


async def slow() -> str:
    """Work for long."""
    await asyncio.sleep(600)
    return "worked"


@pytest.mark.parametrize("error", [SystemExit(3), OddError("odd")])
@pytest.mark.parametrize("is_async", [True, False])
def test_whatever_a_tool_raises_the_model_is_told(log: TurnLog, error: BaseException, *, is_async: bool) -> None:
    """An `async` function and a plain one are alike: the run goes on, and so does the tool beside it."""

    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    def leave_plainly() -> None:
        raise error

    leave_plainly.__name__ = "leave"
    tools = [leave if is_async else leave_plainly, add]
    result = run(log, Scripted(call(("leave", {}), ("add", {"a": 1, "b": 2})), say("Done.")), tools=tools)
    assert (result.stopped, results(log, result.head.id)) == (
        "done",
        [("c1", f"{type(error).__name__}: {error}", True), ("c2", "3", False)],
    )


@pytest.mark.parametrize("is_async", [True, False])
def test_an_error_without_a_message_to_show_is_told_by_its_class(log: TurnLog, *, is_async: bool) -> None:
    """A plain function does not keep the run waiting until its time is over: an error is what it has raised."""

    class StatusError(Exception):
        def __str__(self) -> str:
            raise TypeError("a text and a number")

    async def leave() -> None:
        raise StatusError

    def leave_plainly() -> None:
        raise StatusError

    leave_plainly.__name__ = "leave"
    tool = leave if is_async else leave_plainly
    result = run(log, Scripted(call(("leave", {})), say("Done.")), tools=tool, tool_timeout_s=5)
    said = "StatusError: (its message cannot be shown: TypeError)"
    assert (result.stopped, results(log, result.head.id)) == ("done", [("c1", said, True)])


def test_what_a_toolbox_leaves_by_the_model_is_told(log: TurnLog) -> None:
    """It breaks its contract, as with any other exception."""

    class Leaving(Functions):
        async def call(self, name: str, arguments: Raw) -> ToolOutcome:
            raise SystemExit(3)

    result = run(log, Scripted(call(("add", {"a": 1, "b": 2})), say("Done.")), tools=Leaving([add]))
    assert results(log, result.head.id) == [("c1", "the tool failed: SystemExit: 3", True)]


def test_a_tool_that_raises_keyboard_interrupt_ends_the_run_as_a_cancellation(log: TurnLog) -> None:
    """What had ended keeps its result, and what was at work may have had effects. The next run says so."""
    ended = asyncio.Event()

    async def interrupt() -> None:
        await ended.wait()
        raise KeyboardInterrupt

    def note(event: RunEvent) -> None:
        if isinstance(event, ToolFinished):
            ended.set()

    tools = [interrupt, add, slow]
    adapter = Scripted(call(("interrupt", {}), ("add", {"a": 1, "b": 2}), ("slow", {})))
    with pytest.raises(KeyboardInterrupt):
        run(log, adapter, bookmark="main", tools=tools, on_event=note)
    assert results(log, "main") == [("c1", BROKEN_OFF, True), ("c2", "3", False), ("c3", BROKEN_OFF, True)]
    assert is_free(log)
    assert goes_on(log, tools=tools, text="Did you?") == ("done", [(True, "interrupt"), (True, "slow")])


@pytest.mark.parametrize("error", BOTH)
@pytest.mark.parametrize("where", ["before the tool", "behind the tool", "in a task of the tool"])
def test_what_leaves_a_run_from_within_leaves_it_in_order(log: TurnLog, error: BaseException, where: str) -> None:
    """What a middleware raises ends the run, as documented, and what leaves the loop from a task of nobody's."""

    async def around(asked: ToolCall, make: CallTool) -> ToolOutcome:
        if where == "before the tool":
            raise error
        outcome = await make(asked)
        if where == "behind the tool":
            raise error
        return outcome

    async def leave() -> None:
        raise error

    async def work() -> str:
        if where == "in a task of the tool":
            beside = asyncio.create_task(leave())
            await asyncio.wait([beside])
            beside.exception()
            await slow()
        return "worked"

    adapter = Scripted(call(("work", {}), ("slow", {})))
    with pytest.raises(type(error)):
        run(log, adapter, bookmark="main", tools=[work, slow], around_tool=around, parallel_max=1)
    result = {
        "before the tool": ("c1", NOT_STARTED, True),
        "behind the tool": ("c1", "worked", False),
        "in a task of the tool": ("c1", BROKEN_OFF, True),
    }
    assert results(log, "main") == [result[where], ("c2", NOT_STARTED, True)]
    assert is_free(log)
    assert goes_on(log)[0] == "done"


def test_of_a_tool_that_raises_generator_exit_the_model_is_told(log: TurnLog) -> None:
    """It is not taken for the end of the event loop, at which nothing can be recorded."""

    async def leave() -> None:
        raise GeneratorExit

    result = run(log, Scripted(call(("leave", {}), ("add", {"a": 1, "b": 2})), say("Done.")), tools=[leave, add])
    said = "the tool failed: RunError: GeneratorExit was raised where nothing is being closed"
    assert (result.stopped, results(log, result.head.id)) == ("done", [("c1", said, True), ("c2", "3", False)])


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("kind", [ToolStarted, ToolFinished, TurnRecorded])
def test_a_follower_that_says_that_a_run_is_ended_ends_it(log: TurnLog, error: BaseException, kind: type) -> None:
    """Wherever it is told; by an error, as nobody has cancelled or closed anything."""

    def leave(event: RunEvent) -> None:
        if isinstance(event, kind):
            raise error

    with pytest.raises(RunError, match=f"on_event raised {type(error).__name__}: to end a run, cancel its task"):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), bookmark="main", tools=add, on_event=leave)
    said = {ToolStarted: [("c1", NOT_STARTED, True)], ToolFinished: [("c1", "3", False)], TurnRecorded: []}
    assert (results(log, "main"), is_free(log)) == (said[kind], True)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
def test_a_display_that_says_that_a_run_is_ended_ends_it(log: TurnLog, error: BaseException) -> None:
    """By an error, and what had come of the reply is recorded."""

    def leave(_: Delta) -> None:
        raise error

    with pytest.raises(RunError, match=f"on_delta raised {type(error).__name__}: to end a run, cancel its task"):
        run(log, Scripted(say("Half")), bookmark="main", on_delta=leave)
    assert (log.turn("main").meta.stop_reason, log.payload("main")) == ("aborted", b'[{"type":"text","text":"Half"}]')
    assert goes_on(log)[0] == "done"


@pytest.mark.parametrize("who", ["on_approval", "on_window", "around_model"])
@pytest.mark.parametrize("is_async", [False, True])
def test_who_is_asked_and_says_that_a_run_is_cancelled_that_is_not_ends_it(
    log: TurnLog, who: str, *, is_async: bool
) -> None:
    """By an error: in a group of tasks a cancellation that nobody has made would end this one without a word."""

    def leave(*_: Any) -> Any:
        raise asyncio.CancelledError

    async def aleave(*_: Any) -> Any:
        leave()

    given: dict[str, Any] = {who: aleave if is_async else leave}
    named = "a middleware of model calls" if who == "around_model" else who
    with pytest.raises(RunError, match=f"{named} raised CancelledError in a run that goes on"):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), bookmark="main", tools=add, approve="ask", **given)
    assert is_free(log)
    assert goes_on(log, tools=add)[0] == "done"


def test_what_a_tool_has_returned_is_recorded_whatever_who_is_told_of_progress_raises(log: TurnLog) -> None:
    """The tool has done its work."""

    def pay() -> str:
        report_progress(1, 2)
        return "receipt"

    def leave(event: RunEvent) -> None:
        if isinstance(event, ToolProgress):
            raise OddError("display gone")

    with pytest.raises(OddError):
        run(log, Scripted(call(("pay", {}))), bookmark="main", tools=pay, on_event=leave)
    assert (results(log, "main"), endings(log)) == ([("c1", "receipt", False)], [("result", False)])


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit(), OddError("odd")])
def test_what_a_tool_has_returned_is_recorded_whatever_a_middleware_raises(log: TurnLog, error: BaseException) -> None:
    """As where it awaits something that was cancelled before, in a run that goes on."""

    async def around(asked: ToolCall, make: CallTool) -> ToolOutcome:
        await make(asked)
        raise error

    told: list[RunEvent] = []
    settings: Any = {"bookmark": "main", "tools": add, "around_tool": around, "on_event": told.append}
    with pytest.raises(OddError if isinstance(error, OddError) else RunError):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), **settings)
    assert (results(log, "main"), endings(log)) == ([("c1", "3", False)], [("result", False)])
    assert [event.outcome.is_error for event in told if isinstance(event, ToolFinished)] == [False]


@pytest.mark.parametrize("error", BOTH)
@pytest.mark.parametrize("kind", [ToolStarted, ToolFinished])
def test_a_follower_that_leaves_a_run_leaves_it_in_order(log: TurnLog, error: BaseException, kind: type) -> None:
    """It is told of tools in the tasks that call them."""

    def leave(event: RunEvent) -> None:
        if isinstance(event, kind):
            raise error

    with pytest.raises(type(error)):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), bookmark="main", tools=add, on_event=leave)
    said = ("c1", NOT_STARTED, True) if kind is ToolStarted else ("c1", "3", False)
    assert (results(log, "main"), is_free(log)) == ([said], True)


@pytest.mark.parametrize("error", BOTH)
def test_who_is_asked_and_leaves_lets_nothing_run(log: TurnLog, error: BaseException) -> None:
    """The calls wait, and the turn is free."""

    async def leave(_: ToolUse) -> bool:
        raise error

    adapter = Scripted(call(("add", {"a": 1, "b": 2})))
    with pytest.raises(type(error)):
        run(log, adapter, bookmark="main", tools=add, approve="ask", on_approval=leave)
    assert is_free(log)
    assert goes_on(log, tools=add)[0] == "done"
    assert results(log, "main") == [("c1", "3", False)]


def test_a_second_ctrl_c_ends_a_tool_that_holds_up_the_loop(log: TurnLog) -> None:
    """It comes out of the tool: what that did is unknown, and the next run in this process says so."""

    async def charge() -> None:
        for wait_s in (0.1, 0.3):
            threading.Timer(wait_s, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(30)  # noqa: ASYNC251 - it holds up the event loop

    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(log, Scripted(call(("charge", {}))), bookmark="main", tools=charge)
    assert time.monotonic() - begun_s < 20
    assert results(log, "main") == [("c1", BROKEN_OFF, True)]
    assert endings(log) == [("broken_off", True)]
    assert is_free(log)
    assert goes_on(log, text="Did you charge it?") == ("done", [(True, "charge")])


@contextmanager
def handled(number: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    """Have a signal handled."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def exit_now() -> None:
    """Do as the handlers of many programs do."""
    raise SystemExit(143)


def test_a_signal_handler_that_exits_ends_a_run_in_order(log: TurnLog) -> None:
    """The run is cancelled: a reply that had begun is recorded."""
    strike = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    with handled(signal.SIGUSR1, exit_now), pytest.raises(SystemExit) as caught:
        run(log, Scripted([{"text": "Half"}, strike.start, HANG]), bookmark="main")
    assert caught.value.code == 143
    assert (log.turn("main").meta.stop_reason, log.payload("main")) == ("aborted", b'[{"type":"text","text":"Half"}]')
    assert is_free(log)


@pytest.mark.parametrize("error", [SystemExit(143), KeyboardInterrupt("mine"), TimeoutError("the deadline")])
def test_what_a_signal_handler_raises_at_any_moment_comes_out_when_all_is_recorded(error: BaseException) -> None:
    """Also in the middle of what asyncio does for a task: nothing waits for ever, and nothing else comes out."""
    moments = 1000 if SOAK else 40
    came: list[BaseException] = []

    def strike() -> None:
        raise error

    with handled(signal.SIGVTALRM, strike), TurnLog.open("memory://") as log:
        for moment in range(moments):
            calls: list[str] = []
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005 + 0.0002 * (moment % 40))
            try:
                script = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
                run(log, script, bookmark=f"b{moment}", tools=add, on_event=partial(_note_call, calls))
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            except type(error) as raised:
                came.append(raised)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if calls:
                assert set(calls) <= {turn.meta.call for turn in log.ancestry(f"b{moment}")}
        assert signal.getsignal(signal.SIGVTALRM) is not signal.SIG_DFL
        assert log.verify().clean
    assert len(came) > moments // 4
    assert all(each is error for each in came)


def _note_call(calls: list[str], event: RunEvent) -> None:
    if isinstance(event, CallStarted):
        calls.append(event.call)


def test_what_a_signal_handler_raises_strikes_a_callback_that_holds_up_the_loop(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that asks a person: nothing else would end it."""
    monkeypatch.setattr("turnlog.agent.handlers.HELD_UP_S", 0.1)
    strike = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))

    def ask(event: RunEvent) -> None:
        if isinstance(event, ToolStarted):
            strike.start()
            time.sleep(60)

    began_s = time.monotonic()
    with handled(signal.SIGUSR1, exit_now), pytest.raises(SystemExit):
        run(log, Scripted(call(("add", {"a": 1, "b": 2}))), bookmark="main", tools=add, on_event=ask)
    assert time.monotonic() - began_s < 30
    assert results(log, "main") == [("c1", NOT_STARTED, True)]
    assert is_free(log)


def test_signal_handlers_are_given_back(log: TurnLog) -> None:
    """But for one that was replaced meanwhile."""

    def mine(number: int, frame: FrameType | None) -> None:
        pass

    def replace(event: RunEvent) -> None:
        signal.signal(signal.SIGUSR2, mine)

    with handled(signal.SIGUSR1, exit_now), handled(signal.SIGUSR2, exit_now):
        before = signal.getsignal(signal.SIGUSR1)
        run(log, Scripted(say("Done.")), on_event=replace)
        assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)] == [before, mine]
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGUSR1)


def test_who_does_not_wait_has_the_turn_free_all_the_same(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is closed before the run has ended: it is as behind a kill, and the call is asked about."""
    monkeypatch.setattr("turnlog.agent.own_loop.PATIENCE_S", 0)

    async def work() -> None:
        for wait_s in (0, 0.1, 0.2):  # cancels it; leaves the loop; leaves it while it is being closed
            asyncio.get_running_loop().call_later(wait_s, os.kill, os.getpid(), signal.SIGINT)
        await stubborn()

    with pytest.raises(KeyboardInterrupt):
        run(log, Scripted(call(("work", {}))), bookmark="main", tools=work)
    assert is_free(log)
    gc.collect()  # what was dropped with the loop says nothing, and records nothing
    assert goes_on(log, tools=work, text="Did you?") == ("interrupted", [(False, "work")])


def test_what_leaves_a_run_in_a_loop_of_the_caller_comes_out_of_what_the_caller_awaits(log: TurnLog) -> None:
    """With what there was on disk by then, and the turn free."""
    given = values(adapter=Scripted(call(("interrupt", {}))), model=MODEL, connection=HERE, approve="auto")
    caught: list[bool] = []

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def go() -> None:
        try:
            async for _ in log.run_events("Go.", bookmark="main", tools=interrupt, **given):
                pass
        except KeyboardInterrupt:
            caught.append(is_free(log))

    asyncio.run(go())
    assert caught == [True]
    assert results(log, "main") == [("c1", BROKEN_OFF, True)]
