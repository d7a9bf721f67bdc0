"""What goes around the model calls and the tool calls of a run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from tests.agent.running import contents, results, run, values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import ProviderError, RunError, TurnLog
from turnlog.agent.events import RunEvent, ToolFinished
from turnlog.agent.middleware import CallModel, CallTool, ModelCall, ToolCall
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import CallError, Response, Text, ToolUse
from turnlog.providers import RawEvent

BUSY = ProviderError("busy", provider="scripted", retryable=True)


def look() -> str:
    """Look."""
    return "Bolts."


def answer(text: str, *blocks: Any) -> Response:
    """Return a reply of a middleware's own."""
    content = (Text(text=text), *blocks)
    return Response(content=content, model="none", stop_reason="stop", provider="cache", api="memory")


def test_it_goes_around_each_model_call_outermost_first(log: TurnLog) -> None:
    """And sees what is asked, and what came."""
    seen: list[str] = []

    async def outer(asked: ModelCall, ask: CallModel) -> Response:
        seen.append(f"outer {asked.iteration} {asked.provider} {asked.model} {[tool.name for tool in asked.tools]}")
        response = await ask(asked)
        seen.append(f"outer {response.stop_reason}")
        return response

    async def inner(asked: ModelCall, ask: CallModel) -> Response:
        seen.append(f"inner {asked.turn.meta.role}")
        return await ask(asked)

    run(log, Scripted(call(("look", {})), say("Bolts.")), tools=look, around_model=[outer, inner])
    assert seen == [
        f"outer 1 scripted {MODEL} ['look']",
        "inner user",
        "outer tool_use",
        f"outer 2 scripted {MODEL} ['look']",
        "inner user",
        "outer stop",
    ]


def test_what_is_asked_can_be_changed(log: TurnLog) -> None:
    """Model, parameters and tools; the call records what was sent, so that it can be made again."""

    async def change(asked: ModelCall, ask: CallModel) -> Response:
        params = {**asked.params, "temperature": 0}
        return await ask(msgspec.structs.replace(asked, model="scripted-2", params=params, tools=()))

    adapter = Scripted(say("Yes."))
    result = run(log, adapter, tools=look, around_model=change)
    [body] = adapter.bodies
    assert (body["model"], body["params"], body["tools"]) == ("scripted-2", {"temperature": 0}, [])
    assert log.calls.get(result.calls[0]).meta.model == "scripted-2"
    [checked] = log.calls.check(result.head.id, adapter=lambda _name, _provider: adapter)
    assert (checked.difference, checked.reply_difference) == (None, None)


def test_a_tool_that_was_not_offered_is_not_called(log: TurnLog) -> None:
    """Though the run has it."""

    async def hide(asked: ModelCall, ask: CallModel) -> Response:
        return await ask(msgspec.structs.replace(asked, tools=()))

    run(log, Scripted(call(("look", {})), say("No.")), tools=look, around_model=hide, bookmark="main")
    [(_, text, is_error)] = results(log, "main")
    assert (text, is_error) == ("there is no tool 'look': none is offered", True)


def test_a_tool_that_was_not_offered_is_not_called_by_the_next_run(log: TurnLog) -> None:
    """Though that has it too, and the call waited for an answer: the recorded request says what was offered."""

    async def hide(asked: ModelCall, ask: CallModel) -> Response:
        return await ask(msgspec.structs.replace(asked, tools=tuple(t for t in asked.tools if t.name != "look")))

    def add(a: int) -> int:
        """Add."""
        return a + 1

    adapter = Scripted(call(("add", {"a": 1}), ("look", {})))
    settings: dict[str, Any] = {"tools": [look, add], "around_model": hide, "bookmark": "main"}
    assert run(log, adapter, approve="ask", **settings).stopped == "unanswered"
    assert run(log, Scripted(say("No.")), None, continues="main", **settings).stopped == "done"
    assert results(log, "main") == [("c1", "2", False), ("c2", "there is no tool 'look' (one of add)", True)]


def test_tries_are_within_it(log: TurnLog) -> None:
    """It sees one call; the log has each."""
    seen: list[CallError | None] = []

    async def watch(asked: ModelCall, ask: CallModel) -> Response:
        response = await ask(asked)
        seen.append(response.error)
        return response

    adapter = Scripted([BUSY], say("Yes."))
    result = run(log, adapter, around_model=watch, tries_max=2)
    assert (seen, len(result.calls), result.text) == ([None], 2, "Yes.")


def test_it_may_ask_again_where_a_call_failed(log: TurnLog) -> None:
    """With another model, say; both are in the log."""

    async def fall_back(asked: ModelCall, ask: CallModel) -> Response:
        response = await ask(asked)
        return response if response.error is None else await ask(msgspec.structs.replace(asked, model="scripted-2"))

    result = run(log, Scripted([BUSY], say("Yes.")), around_model=fall_back, tries_max=1)
    models = [log.calls.get(made).meta.model for made in result.calls]
    assert (models, result.stopped, result.text) == ([MODEL, "scripted-2"], "done", "Yes.")


def test_an_answer_in_place_of_asking_is_a_turn_without_a_call(log: TurnLog) -> None:
    """It says whose it is."""

    async def cached(asked: ModelCall, ask: CallModel) -> Response:
        del asked, ask
        return answer("From the cache.")

    result = run(log, Scripted(), around_model=cached, bookmark="main")
    meta = log.turn("main").meta
    assert (result.stopped, result.text, result.calls) == ("done", "From the cache.", ())
    assert (meta.role, meta.provider, meta.model) == ("assistant", "cache", "none")
    assert contents(log, "main")[-1] == ("assistant", '[{"type":"text","text":"From the cache."}]')


def test_an_answer_may_call_tools(log: TurnLog) -> None:
    """They run as those of a model."""
    asked_of: list[int] = []

    async def plan(asked: ModelCall, ask: CallModel) -> Response:
        asked_of.append(asked.iteration)
        if asked.iteration == 1:
            return answer("First this.", ToolUse(id="p1", name="look", input=msgspec.Raw(b"{}")))
        return await ask(asked)

    result = run(log, Scripted(say("Bolts.")), tools=look, around_model=plan, bookmark="main")
    assert (asked_of, result.text) == ([1, 2], "Bolts.")
    assert results(log, "main") == [("p1", "Bolts.", False)]


def changed(**fields: Any) -> Callable[[ModelCall], Any]:
    """Return what changes fields of a call."""
    return lambda asked: msgspec.structs.replace(asked, **fields)


def with_tool(**fields: Any) -> Callable[[ModelCall], Any]:
    """Return what changes fields of the tool that a call offers."""
    return lambda asked: msgspec.structs.replace(asked, tools=(msgspec.structs.replace(asked.tools[0], **fields),))


CHANGES: dict[str, Callable[[ModelCall], Any]] = {
    "turn": changed(provider="other"),
    "tools": with_tool(name="dig"),
    "other tool": with_tool(description="Something else."),
    "again": lambda asked: msgspec.structs.replace(asked, tools=asked.tools * 2),
    "model": changed(model=None),
    "params": changed(params=[]),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("turn", "has changed turn, iteration or provider"),
        ("tools", "offers 'dig', which the run does not have"),
        ("twice", "asks again though a reply is recorded"),
        ("reply", "has changed a reply"),
        ("model", "asks the model None"),
        ("params", "gives list for parameters"),
        ("again", "offers a tool twice"),
        ("other tool", "offers 'look', which the run does not have so"),
        ("nothing", "asks with NoneType"),
        ("both", "asks while its request is under way"),
        ("returns nothing", "returned NoneType in place of a Response"),
        ("leaves", "returned while its request was under way"),
    ],
)
def test_what_would_not_be_exact_is_refused(log: TurnLog, fault: str, why: str) -> None:
    """What was recorded before stays."""
    waiting: list[asyncio.Future[Response]] = []

    async def wrong(asked: ModelCall, ask: CallModel) -> Response:
        if fault in CHANGES:
            changed: Any = CHANGES[fault](asked)
            return await ask(changed)
        if fault == "leaves":
            waiting.append(asyncio.ensure_future(ask(asked)))
            await asyncio.sleep(0)
            return answer("Mine.")
        if fault == "both":
            await asyncio.gather(ask(asked), ask(asked))
        said = await ask(asked)
        if fault == "twice":
            await ask(asked)
        untyped: Any = None if fault == "returns nothing" else msgspec.structs.replace(said, stop_reason="refusal")
        return untyped

    with pytest.raises(RunError, match=why):
        run(log, Scripted(say("Yes."), say("Yes.")), tools=look, around_model=wrong, bookmark="main")
    assert log.turn("main").meta.role == ("assistant" if fault in ("twice", "reply", "returns nothing") else "user")
    assert log.verify().clean


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_request_that_is_left_is_cancelled_before_the_run_ends(log: TurnLog, ends: str) -> None:
    """What came of it is recorded by then, and nothing later."""
    adapter = Scripted([{"text": "Half"}, HANG])
    waiting: list[asyncio.Future[Response]] = []

    async def leave(asked: ModelCall, ask: CallModel) -> Response:
        waiting.append(asyncio.ensure_future(ask(asked)))
        await adapter.arrived.wait()
        if ends == "raises":
            raise KeyError("mistaken")
        return answer("Mine.")

    given: dict[str, Any] = {"model": MODEL, "connection": HERE, "around_model": leave, "bookmark": "main"}

    async def left() -> bytes:
        with pytest.raises(RunError if ends == "returns" else KeyError):
            await log.arun("Go.", **values(adapter=adapter, **given))
        return log.payload("main")

    assert asyncio.run(left()) == b'[{"type":"text","text":"Half"}]'
    assert (log.turn("main").meta.stop_reason, waiting[0].cancelled(), adapter.closed) == ("aborted", True, 1)


def test_a_run_that_is_stopped_waits_for_a_request_that_is_left(log: TurnLog) -> None:
    """Also where it is stopped while it waits: its reply is recorded by the time that the run ends."""
    closing = asyncio.Event()

    class Slow(Scripted):
        @asynccontextmanager
        async def _aopen(self, request: Any, connection: Any) -> AsyncIterator[AsyncIterator[RawEvent]]:
            async with super()._aopen(request, connection) as events:
                try:
                    yield events
                finally:
                    closing.set()
                    await asyncio.sleep(60)

    adapter = Slow([{"text": "Half"}, HANG])
    waiting: list[asyncio.Future[Response]] = []

    async def leave(asked: ModelCall, ask: CallModel) -> Response:
        waiting.append(asyncio.ensure_future(ask(asked)))
        await adapter.arrived.wait()
        return answer("Mine.")

    given: dict[str, Any] = {"model": MODEL, "connection": HERE, "around_model": leave, "bookmark": "main"}

    async def stopped() -> bytes:
        running = asyncio.create_task(log.arun("Go.", **values(adapter=adapter, **given)))
        await closing.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert waiting[0].done()
        return log.payload("main")

    assert asyncio.run(stopped()) == b'[{"type":"text","text":"Half"}]'


def test_a_call_that_is_over_asks_nothing_more(log: TurnLog) -> None:
    """Its reply would stand between a tool call and its result."""
    kept: list[tuple[ModelCall, CallModel]] = []

    async def keep(asked: ModelCall, ask: CallModel) -> Response:
        kept.append((asked, ask))
        return await ask(asked)

    async def look() -> str:
        """Look."""
        asked, ask = kept[0]
        with pytest.raises(RunError, match="asks after its call was over"):
            await ask(asked)
        return "Bolts."

    result = run(log, Scripted(call(("look", {})), say("Bolts.")), tools=look, around_model=keep, bookmark="main")
    assert (result.stopped, len(result.calls), results(log, "main")) == ("done", 2, [("c1", "Bolts.", False)])


@pytest.mark.parametrize("given", ["around_model", "around_tool"])
def test_what_is_no_async_function_is_named(log: TurnLog, given: str) -> None:
    """In one line."""

    def plain(asked: Any, make: Any) -> str:
        del asked, make
        return "no"

    untyped: dict[str, Any] = {given: plain}
    with pytest.raises(RunError, match=r"the middleware .*plain is no async function: it returned str"):
        run(log, Scripted(call(("look", {}))), tools=look, bookmark="main", **untyped)


def test_it_goes_around_each_tool_call(log: TurnLog) -> None:
    """What it returns is what is recorded, and what the model is told."""
    seen: list[ToolCall] = []

    async def upper(asked: ToolCall, make: CallTool) -> ToolOutcome:
        seen.append(asked)
        outcome = await make(asked)
        return ToolOutcome(content=tuple(Text(text=b.text.upper()) for b in outcome.content if isinstance(b, Text)))

    run(log, Scripted(call(("look", {})), say("Yes.")), tools=look, around_tool=upper, bookmark="main")
    [asked] = seen
    assert (asked.call.name, asked.attempt, asked.approved, asked.server) == ("look", 1, "auto", None)
    assert results(log, "main") == [("c1", "BOLTS.", False)]


def test_it_sees_each_attempt(log: TurnLog) -> None:
    """An attempt is recorded before it goes around it."""
    attempts: list[int] = []

    async def fail_once(asked: ToolCall, make: CallTool) -> ToolOutcome:
        attempts.append(asked.attempt)
        return ToolOutcome.error("not yet") if asked.attempt == 1 else await make(asked)

    script = Scripted(call(("look", {})), say("Yes."))
    retry: dict[str, Any] = {"on_tool_error": "retry", "tool_retry_wait_s": 0}
    run(log, script, tools=look, around_tool=fail_once, bookmark="main", **retry)
    turn = next(turn for turn in log.ancestry("main") if turn.meta.role == "assistant")
    [recorded] = log.tool_calls.of(turn.id)
    assert attempts == [1, 2]
    assert [attempt.ending for attempt in recorded.attempts] == ["not_called", "result"]


def test_the_time_of_a_tool_is_the_tools_own(log: TurnLog) -> None:
    """A middleware may take longer."""

    async def slow(asked: ToolCall, make: CallTool) -> ToolOutcome:
        await asyncio.sleep(0.1)
        return await make(asked)

    run(log, Scripted(call(("look", {})), say("Yes.")), tools=look, around_tool=slow, tool_timeout_s=0.05, bookmark="m")
    assert results(log, "m") == [("c1", "Bolts.", False)]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("twice", "calls 'look' a second time"),
        ("other", "changed the call of"),
        ("text", "what cannot be the outcome of 'look': content: expected a tuple of blocks, got str"),
        ("none", "what cannot be the outcome of 'look': expected a ToolOutcome, got NoneType"),
    ],
)
def test_a_tool_call_that_is_not_the_recorded_one_is_refused(log: TurnLog, fault: str, why: str) -> None:
    """An attempt that is recorded is made once."""
    made: list[str] = []

    def look() -> str:
        """Look."""
        made.append("look")
        return "Bolts."

    async def wrong(asked: ToolCall, make: CallTool) -> ToolOutcome:
        if fault == "twice":
            await make(asked)
            return await make(asked)
        if fault in ("text", "none"):
            untyped: Any = ToolOutcome(content="Bolts.") if fault == "text" else None  # pyright: ignore[reportArgumentType]
            return untyped
        other = msgspec.structs.replace(asked.call, input=msgspec.Raw(b'{"x":1}'))
        return await make(msgspec.structs.replace(asked, call=other))

    with pytest.raises(RunError, match=why):
        run(log, Scripted(call(("look", {}))), tools=look, around_tool=wrong, bookmark="main")
    assert len(made) == (1 if fault == "twice" else 0)


def test_what_it_raises_ends_the_run(log: TurnLog) -> None:
    """The call has a result all the same."""

    async def fail(asked: ToolCall, make: CallTool) -> ToolOutcome:
        del asked, make
        raise KeyError("mistaken")

    with pytest.raises(KeyError):
        run(log, Scripted(call(("look", {}))), tools=look, around_tool=fail, bookmark="main")
    [(_, text, is_error)] = results(log, "main")
    assert is_error
    assert text == "The run was stopped before this tool call was started."


def test_who_says_that_a_run_is_cancelled_that_is_not_ends_it(log: TurnLog) -> None:
    """A middleware: the call is not taken for one that a stop broke off, in a run that goes on."""

    async def odd(_asked: ToolCall, _make: CallTool) -> ToolOutcome:
        raise asyncio.CancelledError

    with pytest.raises(RunError, match="raised CancelledError in a run that goes on"):
        run(log, Scripted(call(("look", {})), say("Bolts.")), tools=look, around_tool=odd, bookmark="main")
    assert results(log, "main")[0][1:] == ("The run was stopped before this tool call was started.", True)
    [recorded] = log.tool_calls.of(log.ancestry("main")[1].id)
    assert [attempt.ending for attempt in recorded.attempts] == ["not_called"]


def test_a_tool_that_is_cancelled_from_within_may_have_had_effects(log: TurnLog) -> None:
    """The model is told, and the run goes on."""

    async def odd() -> str:
        raise asyncio.CancelledError

    adapter = Scripted(call(("odd", {})), say("Bolts."))
    assert run(log, adapter, tools=odd, bookmark="main").stopped == "done"
    assert results(log, "main")[0][1:] == ("the tool was cancelled from within", True)
    assert log.tool_calls.of(log.ancestry("main")[1].id)[0].may_have_had_effects


def endings(log: TurnLog) -> list[str | None]:
    """Return how the attempts of the one call ended."""
    turn = next(turn for turn in log.ancestry("main") if turn.meta.role == "assistant")
    [recorded] = log.tool_calls.of(turn.id)
    return [attempt.ending for attempt in recorded.attempts]


def test_it_does_not_return_while_the_tool_is_at_work(log: TurnLog) -> None:
    """The tool is broken off, and the log says so."""

    async def leave(asked: ToolCall, make: CallTool) -> ToolOutcome:
        left.append(asyncio.ensure_future(make(asked)))
        await asyncio.sleep(0.01)
        return ToolOutcome(content=(Text(text="early"),))

    async def work() -> str:
        await asyncio.sleep(60)
        return "worked"

    left: list[asyncio.Future[ToolOutcome]] = []
    with pytest.raises(RunError, match="returned while the tool 'work' was at work"):
        run(log, Scripted(call(("work", {}))), tools=work, around_tool=leave, bookmark="main")
    assert left[0].cancelled()
    assert endings(log) == ["broken_off"]


@pytest.mark.parametrize("ends", ["returns", "raises"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_tool_that_is_left_has_ended_when_the_run_has(log: TurnLog, ends: str, stops: bool) -> None:
    """Also where the run is stopped while it waits for that. What it returns when it is cancelled is its result."""
    working, closing = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Future[ToolOutcome]] = []

    async def leave(asked: ToolCall, make: CallTool) -> ToolOutcome:
        left.append(asyncio.ensure_future(make(asked)))
        await working.wait()
        if ends == "raises":
            raise KeyError("mistaken")
        return ToolOutcome(content=(Text(text="early"),))

    async def work() -> str:
        working.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            closing.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.3)
        return "half of it"

    given: dict[str, Any] = {"model": MODEL, "connection": HERE, "tools": work, "approve": "auto", "bookmark": "main"}

    async def ended() -> None:
        adapter = Scripted(call(("work", {})))
        running = asyncio.create_task(log.arun("Go.", **values(adapter=adapter, around_tool=leave, **given)))
        await closing.wait()
        if stops:
            running.cancel()
        with pytest.raises(asyncio.CancelledError if stops else RunError if ends == "returns" else KeyError):
            await running
        assert left[0].done()

    asyncio.run(ended())
    assert endings(log) == ["result"]
    assert results(log, "main") == [("c1", "half of it", False)]


def test_what_it_breaks_off_may_have_had_effects(log: TurnLog) -> None:
    """So it is not tried again."""

    async def limit(asked: ToolCall, make: CallTool) -> ToolOutcome:
        try:
            return await asyncio.wait_for(make(asked), 0.01)
        except TimeoutError:
            return ToolOutcome.error("too slow")

    async def work() -> str:
        called.append(1)
        await asyncio.sleep(60)
        return "worked"

    called: list[int] = []
    script = Scripted(call(("work", {})), say("Done."))
    run(log, script, tools=work, around_tool=limit, bookmark="main", on_tool_error="retry", tool_retry_wait_s=0)
    assert (called, endings(log), results(log, "main")) == ([1], ["given_up"], [("c1", "too slow", True)])


def test_an_answer_in_place_of_a_tool_is_told_from_its_result(log: TurnLog) -> None:
    """The log says that it was not called."""

    async def made_up(_asked: ToolCall, _make: CallTool) -> ToolOutcome:
        return ToolOutcome(content=(Text(text="made up"),))

    run(log, Scripted(call(("look", {})), say("Done.")), tools=look, around_tool=made_up, bookmark="main")
    assert (endings(log), results(log, "main")) == (["not_called"], [("c1", "made up", False)])


def test_what_a_tool_has_returned_is_recorded_where_it_raises(log: TurnLog) -> None:
    """Behind the call."""

    async def fail(asked: ToolCall, make: CallTool) -> ToolOutcome:
        await make(asked)
        raise KeyError("after")

    with pytest.raises(KeyError):
        run(log, Scripted(call(("look", {}))), tools=look, around_tool=fail, bookmark="main")
    assert (endings(log), results(log, "main")) == (["result"], [("c1", look(), False)])


def test_an_attempt_that_failed_is_told_where_the_next_one_is_not_made(log: TurnLog) -> None:
    """Its error is what the model reads."""

    async def fail_later(asked: ToolCall, make: CallTool) -> ToolOutcome:
        if asked.attempt > 1:
            raise KeyError("later")
        return await make(asked)

    def bad() -> str:
        raise ValueError("bad")

    given: dict[str, Any] = {"on_tool_error": "retry", "tool_retry_wait_s": 0}
    with pytest.raises(KeyError):
        run(log, Scripted(call(("bad", {}))), tools=bad, around_tool=fail_later, bookmark="main", **given)
    assert endings(log) == ["error", "not_called"]
    [(_, text, is_error)] = results(log, "main")
    assert (is_error, "bad" in text) == (True, True)


def test_a_tool_that_cancels_its_own_task_may_have_had_effects(log: TurnLog) -> None:
    """The model is told, whoever follows too, and the run goes on."""

    async def odd() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    told: list[RunEvent] = []
    script = Scripted(call(("odd", {})), say("Done."))
    assert run(log, script, tools=odd, bookmark="main", on_event=told.append).stopped == "done"
    assert (endings(log), results(log, "main")) == (["given_up"], [("c1", "the tool was cancelled from within", True)])
    assert [event.outcome.is_error for event in told if isinstance(event, ToolFinished)] == [True]
