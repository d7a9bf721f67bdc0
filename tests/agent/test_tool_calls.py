"""Tool calls are events before they are effects: what a run that was killed leaves, and what the next one does."""

import asyncio
import io
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from tests.agent.running import results, run, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import Text, TurnLog
from turnlog.agent.deciding import DENIED_BY_USER, NOT_STARTED, UNKNOWN, UNRECORDED
from turnlog.agent.events import RunEvent, ToolFinished, ToolInterrupted, ToolRetried
from turnlog.agent.execution import TAKEN
from turnlog.agent.functions import Functions
from turnlog.agent.toolbox import ToolOutcome
from turnlog.calls import RecordedToolCall
from turnlog.errors import ContentError, MetaError, RunError, ToolCallTakenError, UnknownTurnError
from turnlog.model import ToolCallMeta, ToolEndMeta, ToolResult, ToolUse

ONE = call(("add", {"a": 1, "b": 2}))
TWO = call(("add", {"a": 1, "b": 2}), ("work", {}))


class Tools:
    """Tools that count how often they are called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def add(self, a: int, b: int) -> int:
        """Add."""
        self.called.append("add")
        return a + b

    def work(self) -> str:
        """Work."""
        self.called.append("work")
        return "worked"


@pytest.fixture(params=["memory", "postgres"])
def log(request: pytest.FixtureRequest) -> Iterator[TurnLog]:
    """Give an empty log on each engine."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("postgres_url")
    with TurnLog.open(url) as opened:
        yield opened


@pytest.fixture
def tools() -> Tools:
    """Give tools that nobody has called."""
    return Tools()


def asked(log: TurnLog, script: Sequence[Any] = TWO) -> str:
    """Record a reply with tool calls, as a run has it that was killed before it called any, and return the turn."""
    result = run(log, Scripted(script), bookmark="main", approve="ask", tools=[Tools().add, Tools().work])
    assert result.stopped == "unanswered"
    return result.head.id


def begin(log: TurnLog, turn: str, block: int, attempt: int = 1) -> None:
    """Record that a tool is called."""
    log.tool_calls.begin([ToolCallMeta(turn=turn, block=block, attempt=attempt, approved="auto")])


def endings(log: TurnLog, turn: str) -> list[list[object]]:
    """Return by call how its attempts ended, None for one that has no end."""
    return [[attempt.ending or None for attempt in call.attempts] for call in log.tool_calls.of(turn)]


def go_on(log: TurnLog, tools: Tools, **settings: Any) -> Any:
    """Run from the bookmark."""
    return run(log, Scripted(say("Done.")), None, continues="main", tools=[tools.add, tools.work], **settings)


def test_a_call_is_on_disk_before_the_tool_is_called(log: TurnLog) -> None:
    """The tool itself finds it, with what approved it; the results cite how it ended."""
    seen: list[RecordedToolCall] = []

    def look() -> str:
        seen.extend(log.tool_calls.of("main"))
        return "seen"

    result = run(log, Scripted(call(("look", {})), say("Done.")), tools=[look], bookmark="main")
    [recorded] = seen
    [attempt] = recorded.attempts
    assert (attempt.number, attempt.approved, attempt.ending or None) == (1, "auto", None)
    assert recorded.may_have_had_effects
    [done] = log.tool_calls.of(result.turns[1].id)
    assert done.attempts[0].ending == "result"
    assert done.result is not None
    assert done.result.content == [Text(text="seen")]
    assert result.turns[2].meta.tool_ends == (done.last_end,)
    assert log.verify().clean


@pytest.mark.parametrize("first", ["called", "answered"])
def test_a_result_is_on_disk_when_it_is_told(log: TurnLog, tools: Tools, first: str) -> None:
    """But for that of the last call, which is with the turn that has the results."""
    seen: list[list[object]] = []

    def look(event: RunEvent) -> None:
        if isinstance(event, ToolFinished):
            seen.append([call.result and call.result.content for call in log.tool_calls.of("main")])

    def answer(given: ToolUse) -> str | bool:
        return "three" if given.name == "add" and first == "answered" else True

    settings: dict[str, Any] = {"approve": "ask", "on_approval": answer, "parallel_max": 1, "on_event": look}
    run(log, Scripted(TWO, say("Done.")), bookmark="main", tools=[tools.add, tools.work], **settings)
    result = [Text(text="three" if first == "answered" else "3")]
    assert seen == [[result, None], [result, None]]


@pytest.mark.parametrize("approve", ["auto", "ask"])
def test_a_call_that_was_under_way_is_asked_for(log: TurnLog, tools: Tools, approve: str) -> None:
    """Whatever is approved: who is asked hears of it first, and the call that is repeated is a second attempt."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    told: list[RunEvent] = []
    wanted: list[str] = []

    def yes(given: ToolUse) -> bool:
        wanted.append(given.name)
        assert isinstance(told[-1], ToolInterrupted)
        return True

    result = go_on(log, tools, approve=approve, on_approval=yes, on_event=told.append)
    assert (result.stopped, wanted, tools.called) == ("done", ["add"], ["add"])
    assert endings(log, turn) == [["unknown", "result"]]
    assert [attempt.approved for attempt in log.tool_calls.of(turn)[0].attempts] == ["auto", "asked"]
    assert len(result.turns[0].meta.tool_ends) == 2
    assert log.verify().clean


def test_a_call_whose_result_is_recorded_waits_for_nobody(log: TurnLog, tools: Tools) -> None:
    """A run that stops at another call of the same reply does not name it."""
    turn = asked(log)
    begin(log, turn, 0)
    begin(log, turn, 1)
    end = ToolEndMeta(turn=turn, block=0, attempt=1, ending="result")
    log.tool_calls.end(end, [Text(text="3")])
    result = go_on(log, tools)
    assert (result.stopped, [call.name for call in result.unanswered]) == ("interrupted", ["work"])


def test_the_next_run_tells_of_a_tool_that_was_at_work_when_a_run_was_stopped(log: TurnLog) -> None:
    """Its result says so to the model; the run says so to whoever follows it, once, and not of what had finished."""
    told: list[RunEvent] = []

    async def hang() -> None:
        asyncio.get_running_loop().call_soon(stop)
        await asyncio.Event().wait()

    def stop() -> None:
        tasks[0].cancel()

    async def stopped() -> None:
        given = values(model=MODEL, adapter=Scripted(call(("add", {"a": 1, "b": 2}), ("hang", {}))), connection=HERE)
        policy = {"approve": "auto", "parallel_max": 1}
        work = log.arun("Go.", bookmark="main", tools=[Tools().add, hang], **given, **values(**policy))
        tasks.append(asyncio.ensure_future(work))
        await asyncio.wait(tasks)

    tasks: list[asyncio.Future[Any]] = []
    asyncio.run(stopped())
    assert tasks[0].cancelled()
    run(log, Scripted(say("Done.")), "And?", continues="main", on_event=told.append)
    [event] = [event for event in told if isinstance(event, ToolInterrupted)]
    assert (event.call.name, event.is_told, event.to_record()["is_told"]) == ("hang", True, True)
    assert event.begun_ms > 0
    told.clear()
    run(log, Scripted(say("Done.")), "And now?", continues="main", on_event=told.append)
    assert not [event for event in told if isinstance(event, ToolInterrupted)]


def test_a_tool_that_took_too_long_is_not_said_to_have_been_stopped(log: TurnLog) -> None:
    """Its run has told of it, and went on."""

    async def hang() -> None:
        await asyncio.Event().wait()

    limits = {"tool_timeout_s": 0.02, "on_tool_error": "abort"}
    stopped = run(log, Scripted(call(("hang", {}))), bookmark="main", tools=[hang], **limits).stopped
    assert (stopped, log.tool_calls.of(log.turn("main").continues[0])[0].may_have_had_effects) == ("tool_error", True)
    told: list[RunEvent] = []
    run(log, Scripted(say("Done.")), "And?", continues="main", on_event=told.append)
    assert not [event for event in told if isinstance(event, ToolInterrupted)]


def test_nobody_to_ask_about_a_call_that_was_under_way_stops_the_run(log: TurnLog, tools: Tools) -> None:
    """Nothing is repeated in silence, and nothing is recorded; the reason says what to do."""
    turn = asked(log)
    begin(log, turn, 1)
    result = go_on(log, tools)
    assert (result.stopped, result.turns, tools.called) == ("interrupted", (), [])
    assert "repeat" in result.why
    assert [call.name for call in result.unanswered] == ["add", "work"]
    assert endings(log, turn) == [[], [None]]


def test_a_call_that_was_under_way_is_reported_as_unknown(log: TurnLog, tools: Tools) -> None:
    """The model reads that nobody knows, and the log says so; the other call is made."""
    turn = asked(log)
    begin(log, turn, 0)
    told: list[RunEvent] = []
    assert go_on(log, tools, on_interrupted="report", on_event=told.append).stopped == "done"
    # No run has recorded that result.
    assert [event.known for event in told if isinstance(event, ToolFinished)] == [False, False]
    assert results(log, "main") == [("c1", UNKNOWN, True), ("c2", "worked", False)]
    assert (tools.called, endings(log, turn)) == (["work"], [["unknown"], ["result"]])


def test_a_call_that_was_under_way_is_repeated_where_that_is_the_policy(log: TurnLog, tools: Tools) -> None:
    """Without asking; the log has both attempts."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    assert go_on(log, tools, on_interrupted="repeat").stopped == "done"
    assert (tools.called, endings(log, turn)) == (["add"], [["unknown", "result"]])


@pytest.mark.parametrize("policy", ["report", "repeat", "asked"])
def test_a_message_waits_behind_a_call_that_was_under_way(log: TurnLog, tools: Tools, policy: str) -> None:
    """What became of that comes before it, by the policy; a call that had not begun is not made any more."""
    turn = asked(log)
    begin(log, turn, 0)
    given: dict[str, Any] = {"on_approval": lambda _: True} if policy == "asked" else {"on_interrupted": policy}
    script = Scripted(say("I see."))
    done = run(log, script, "And now?", continues="main", tools=[tools.add, tools.work], **given)
    assert done.stopped == "done"
    first = ("c1", UNKNOWN, True) if policy == "report" else ("c1", "3", False)
    assert results(log, "main") == [first, ("c2", NOT_STARTED, True)]
    assert tools.called == ([] if policy == "report" else ["add"])
    assert endings(log, turn) == [["unknown"] if policy == "report" else ["unknown", "result"], ["not_called"]]
    assert [each.meta.role for each in log.ancestry("main")[-3:]] == ["user", "user", "assistant"]
    assert log.verify().clean


def test_a_message_that_is_refused_is_so_before_a_call_is_settled(log: TurnLog, tools: Tools) -> None:
    """The call waits for a message that can be recorded."""
    turn = asked(log)
    begin(log, turn, 0)
    wrong: Any = [{"type": "text"}]
    with pytest.raises(ContentError, match=r"content\[0\]: .*'text'"):
        run(log, Scripted(say("No.")), wrong, continues="main", tools=[tools.add], on_interrupted="report")
    assert (log.turn("main").id, endings(log, turn)) == (turn, [[None], []])


def test_a_message_is_not_recorded_where_nobody_says_what_to_do(log: TurnLog, tools: Tools) -> None:
    """It can be given again, with what to do."""
    turn = asked(log)
    begin(log, turn, 0)
    result = run(log, Scripted(say("No.")), "And now?", continues="main", tools=[tools.add, tools.work])
    assert (result.stopped, result.turns, tools.called) == ("interrupted", (), [])
    assert log.turn("main").id == turn


def test_a_message_behind_several_turns_waits_too(log: TurnLog, tools: Tools) -> None:
    """It cannot say which of them the results belong to."""
    turn = asked(log)
    begin(log, turn, 0)
    log.add_turn("Beside it.", bookmark="other")
    with pytest.raises(RunError, match=f"a tool call of turn '{turn}' was broken off"):
        run(log, Scripted(say("No.")), "And now?", continues=["main", "other"], tools=[tools.add, tools.work])
    assert go_on(log, tools, on_interrupted="report").stopped == "done"
    both = run(log, Scripted(say("Both.")), "And now?", continues=["main", "other"], tools=[tools.add, tools.work])
    assert both.stopped == "done"


def test_a_message_beside_a_call_that_is_under_way_goes_its_own_way(log: TurnLog, tools: Tools) -> None:
    """Another run is at it: nothing was interrupted."""
    turn = asked(log)
    begin(log, turn, 0)
    release = log.store.locks.take(turn)
    assert release is not None
    done = run(log, Scripted(say("Fine.")), "And now?", continues="main", tools=[tools.add, tools.work])
    assert (done.stopped, len(done.turns), tools.called) == ("done", 2, [])
    assert endings(log, turn) == [[None], []]
    release()


@pytest.mark.parametrize("settings", [{"on_approval": lambda _: False}, {"approve": "never"}])
def test_a_call_that_may_have_had_effects_is_not_said_to_be_denied(
    log: TurnLog, tools: Tools, settings: dict[str, Any]
) -> None:
    """Only that it is made again is: the model reads that nobody knows, and the log has both."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    assert go_on(log, tools, **settings).stopped == "done"
    assert (results(log, "main"), tools.called) == ([("c1", UNKNOWN, True)], [])
    assert endings(log, turn) == [["unknown", "denied"]]


@pytest.mark.parametrize("settings", [{"on_interrupted": "repeat"}, {"on_approval": lambda _: True}])
def test_a_call_that_was_under_way_and_whose_tool_is_not_offered_now_is_unknown(
    log: TurnLog, tools: Tools, settings: dict[str, Any]
) -> None:
    """It cannot be made again, which is not to say that it was never made: the model reads that nobody knows."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    result = run(log, Scripted(say("Done.")), None, continues="main", tools=[tools.work], **settings)
    assert (result.stopped, results(log, "main"), tools.called) == ("done", [("c1", UNKNOWN, True)], [])
    assert endings(log, turn) == [["unknown"]]
    assert log.tool_calls.of(turn)[0].may_have_had_effects


def test_nobody_to_ask_about_a_call_whose_tool_is_not_offered_now_stops_the_run(log: TurnLog, tools: Tools) -> None:
    """As where it is."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    result = run(log, Scripted(), None, continues="main", tools=[tools.work])
    assert (result.stopped, result.turns, endings(log, turn)) == ("interrupted", (), [[None]])


def test_what_is_never_allowed_is_not_repeated(log: TurnLog, tools: Tools) -> None:
    """The policy of the run comes first, and is named as who denied it."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    assert go_on(log, tools, on_interrupted="repeat", approve="never").stopped == "done"
    assert (tools.called, endings(log, turn)) == ([], [["unknown", "denied"]])
    assert log.tool_calls.of(turn)[0].attempts[1].by == "policy"


def test_a_policy_that_there_is_none_of_is_refused(log: TurnLog, tools: Tools) -> None:
    """By name, before anything happens."""
    asked(log)
    with pytest.raises(RunError, match="on_interrupted: 'again' is unknown"):
        go_on(log, tools, on_interrupted="again")


def test_a_result_that_had_come_is_kept_and_the_tool_not_called_again(log: TurnLog, tools: Tools) -> None:
    """One of two calls had ended when the run was killed: its result is taken from the log, also where all repeat."""
    turn = asked(log)
    begin(log, turn, 0)
    begin(log, turn, 1)
    end = ToolEndMeta(turn=turn, block=0, attempt=1, ending="result", duration_ms=5)
    log.tool_calls.end(end, [Text(text="3, as it was")])
    told: list[RunEvent] = []
    assert go_on(log, tools, on_interrupted="repeat", on_event=told.append).stopped == "done"
    assert results(log, "main") == [("c1", "3, as it was", False), ("c2", "worked", False)]
    assert tools.called == ["work"]
    assert [event.known for event in told if isinstance(event, ToolFinished)] == [True, False]


def test_results_that_a_turn_has_are_not_fetched_again(log: TurnLog, tools: Tools) -> None:
    """Who goes back to the turn with the calls gets what they returned then, from the turn that has it."""
    first = run(log, Scripted(TWO, say("Done.")), tools=[tools.add, tools.work])
    again = run(log, Scripted(say("Again.")), None, continues=first.turns[1].id, tools=[tools.add, tools.work])
    assert tools.called == ["add", "work"]
    assert log.payload(again.turns[0].id) == log.payload(first.turns[2].id)
    assert log.verify().clean


def test_results_are_recorded_while_others_are_at_work(log: TurnLog) -> None:
    """The result of a call that has ended is on disk, although no turn has it."""
    seen: list[ToolResult | None] = []
    ended = asyncio.Event()

    async def wait() -> str:
        await ended.wait()
        seen.append(log.tool_calls.of("main")[0].result)
        return "waited"

    write = log.store.write

    def told(plan: Any) -> Any:
        recorded = write(plan)
        if log.stats().topics.get("gpt.tool_end"):
            loop.call_soon_threadsafe(ended.set)
        return recorded

    def soon() -> str:
        return "soon"

    async def go() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        adapter = Scripted(call(("soon", {}), ("wait", {})), say("Done."))
        given: dict[str, Any] = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto"}
        await log.arun("Go.", tools=[soon, wait], bookmark="main", **values(**given))

    loop: asyncio.AbstractEventLoop
    log.store.write = told  # type: ignore[method-assign]
    asyncio.run(go())
    [result] = seen
    assert result is not None
    assert result.content == [Text(text="soon")]


def test_of_two_runs_one_alone_calls_the_tools(log: TurnLog, tools: Tools) -> None:
    """The other one, which came as far as its approval, stops and records nothing."""
    turn = asked(log)

    def meanwhile(_: ToolUse) -> bool:
        if not endings(log, turn)[0]:
            begin(log, turn, 0)
        return True

    result = go_on(log, tools, approve="ask", on_approval=meanwhile)
    assert (result.stopped, result.turns, tools.called) == ("busy", (), [])
    assert endings(log, turn) == [[None], []]


@pytest.mark.parametrize("said", ["I did it by hand.", False])
@pytest.mark.parametrize("script", [ONE, TWO], ids=["one", "two"])
def test_what_is_said_of_a_call_that_another_run_makes_stops_the_run(
    log: TurnLog, tools: Tools, said: str | bool, script: Sequence[Any]
) -> None:
    """While a person thinks about it another run has called the tool: what became of it is for that run to say."""
    turn = asked(log, script)

    def meanwhile(given: ToolUse) -> str | bool:
        if given.name != "add":
            return True
        begin(log, turn, 0)
        return said

    result = go_on(log, tools, approve="ask", on_approval=meanwhile)
    assert (result.stopped, result.turns, tools.called) == ("busy", (), [])
    assert endings(log, turn) == [[None], []][: len(script) - 1]
    end = ToolEndMeta(turn=turn, block=0, attempt=1, ending="result")
    log.tool_calls.end(end, [Text(text="really")])
    [found, *_] = log.tool_calls.of(turn)
    assert found.result is not None
    assert (found.result.content, endings(log, turn)[0]) == ([Text(text="really")], ["result"])
    assert log.verify().clean


def test_of_two_runs_that_may_call_other_tools_one_alone_goes_on(log: TurnLog, tools: Tools) -> None:
    """What one of them denies is on disk before it calls a tool, so that the other does not call what was denied."""
    turn = asked(log)
    seen: list[list[list[object]]] = []

    def work() -> str:
        seen.append(endings(log, turn))
        with pytest.raises(ToolCallTakenError):
            begin(log, turn, 0)
        return "worked"

    result = run(
        log, Scripted(say("Done.")), None, continues="main", tools=[tools.add, work], approve="never", allow=["work"]
    )
    assert (result.stopped, tools.called, seen) == ("done", [], [[["denied"], [None]]])
    assert [len(each.meta.tool_ends) for each in result.turns] == [2, 0]
    assert log.verify().clean


def test_a_result_that_comes_after_it_was_given_up_is_kept(log: TurnLog, tools: Tools) -> None:
    """The run that made the call was alive: its result counts from then on, and the tool is not called again."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    assert go_on(log, tools, on_interrupted="report").stopped == "done"
    assert endings(log, turn) == [["unknown"]]
    end = ToolEndMeta(turn=turn, block=0, attempt=1, ending="result")
    first = log.tool_calls.end(end, [Text(text="3")])
    assert log.tool_calls.end(end, [Text(text="4")]) != first
    assert endings(log, turn) == [["result"]]
    log.bookmarks.set("main", turn)
    result = go_on(log, tools)
    assert (result.stopped, results(log, "main"), tools.called) == ("done", [("c1", "3", False)], [])
    assert [each.meta.tool_ends for each in result.turns] == [(first,), ()]
    assert log.verify().clean


def test_a_call_that_another_run_has_made_is_not_made_twice(log: TurnLog, tools: Tools) -> None:
    """Where it is noticed only later, because other calls came first, the result says so."""
    turn = asked(log)

    def add(a: int, b: int) -> int:
        begin(log, turn, 1)
        return a + b

    adapter = Scripted(say("Done."))
    result = run(log, adapter, None, continues="main", tools=[add, tools.work], parallel_max=1)
    assert result.stopped == "done"
    assert results(log, "main") == [("c1", "3", False), ("c2", TAKEN, True)]
    assert (tools.called, endings(log, turn)) == ([], [["result"], [None]])


def test_the_same_attempt_is_not_begun_twice(log: TurnLog) -> None:
    """Nor is any of the calls that were to begin with it."""
    turn = asked(log)
    begin(log, turn, 1)
    calls = [ToolCallMeta(turn=turn, block=block, attempt=1, approved="auto") for block in (0, 1)]
    with pytest.raises(ToolCallTakenError, match="another run has made the tool call in block 1"):
        log.tool_calls.begin(calls)
    assert endings(log, turn) == [[], [None]]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"block": -1}, "tool call: block -1, attempt 1: blocks are counted from 0, attempts from 1"),
        ({"attempt": 0}, "tool call: block 0, attempt 0: blocks are counted from 0, attempts from 1"),
        ({"approved": "nix"}, "tool_call.approved: invalid enum value 'nix'"),
        ({"turn": "user"}, "is of the user, and calls no tools"),
    ],
    ids=str,
)
def test_what_is_no_call_is_not_recorded(log: TurnLog, fields: dict[str, Any], why: str) -> None:
    """Whoever records calls by hand is told, and the log stays readable."""
    turn = asked(log, ONE)
    given = {"turn": turn, "block": 0, "attempt": 1, "approved": "auto"} | fields
    if given["turn"] == "user":
        given["turn"] = log.turn(turn).continues[0]
    with pytest.raises(MetaError) as caught:
        log.tool_calls.begin([ToolCallMeta(**given)])
    assert why in str(caught.value)
    assert endings(log, turn) == [[]]


def test_what_a_person_says_is_recorded_as_theirs(log: TurnLog, tools: Tools) -> None:
    """An answer in place of a result, and a refusal: no tool was called, and the log says whose words these are."""
    turn = asked(log)
    answers = iter(["Seven.", False])
    assert go_on(log, tools, approve="ask", on_approval=lambda _: next(answers)).stopped == "done"
    assert results(log, "main") == [("c1", "Seven.", False), ("c2", DENIED_BY_USER, True)]
    answered, denied = log.tool_calls.of(turn)
    assert [(attempt.ending, attempt.begun_ms or None) for attempt in answered.attempts] == [("answer", None)]
    assert [(attempt.ending, attempt.by) for attempt in denied.attempts] == [("denied", "person")]
    assert [each.result and each.result.is_error for each in (answered, denied)] == [None, True]
    assert tools.called == []


def test_what_a_person_says_is_kept_where_the_run_is_stopped_before_other_calls(log: TurnLog, tools: Tools) -> None:
    """An answer that was given is no call that was not started."""
    turn = asked(log, call(("work", {}), ("add", {"a": 1, "b": 2})))
    write = log.store.write
    task: asyncio.Task[Any]

    def cancelling(plan: Any) -> Any:
        loop.call_soon_threadsafe(task.cancel)
        return write(plan)

    def answer(given: ToolUse) -> bool | str:
        log.store.write = cancelling  # type: ignore[method-assign]
        return "I did." if given.name == "work" else True

    async def go() -> None:
        nonlocal loop, task
        loop = asyncio.get_running_loop()
        given: dict[str, Any] = {"model": MODEL, "adapter": Scripted(), "connection": HERE, "on_approval": answer}
        task = asyncio.create_task(log.arun(continues="main", tools=[tools.add, tools.work], **values(**given)))
        with pytest.raises(asyncio.CancelledError):
            await task

    loop: asyncio.AbstractEventLoop
    asyncio.run(go())
    assert results(log, "main") == [("c1", "I did.", False), ("c2", NOT_STARTED, True)]
    assert (tools.called, endings(log, turn)) == ([], [["answer"], ["not_called"]])


@pytest.mark.parametrize("approve", ["auto", "ask"])
def test_what_a_person_has_said_holds_for_whoever_goes_on_behind_a_kill(
    log: TurnLog, tools: Tools, approve: str
) -> None:
    """It is on disk before the other call begins: nobody is asked again, and nothing runs that was denied."""
    turn = asked(log, call(("add", {"a": 1, "b": 2}), ("work", {}), ("work", {})))

    class KilledError(BaseException):
        """Leave everything as it is, as a kill does."""

    def killed() -> Any:
        raise KilledError

    answers = iter([True, False, "I did."])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.agent.recording.Recording.results", lambda *_, **__: killed())
        tools.add = killed  # type: ignore[method-assign]
        with pytest.raises(KilledError):
            go_on(log, Tools(), approve="ask", on_approval=lambda _: next(answers))
    assert [len(log.children(turn)), endings(log, turn)[1:]] == [0, [["denied"], ["answer"]]]
    told: list[RunEvent] = []
    now = Tools()
    settings: dict[str, Any] = {"approve": approve, "on_interrupted": "report", "on_event": told.append}
    assert go_on(log, now, **settings).stopped == "done"
    assert results(log, "main")[1:] == [("c2", DENIED_BY_USER, True), ("c3", "I did.", False)]
    assert (now.called, endings(log, turn)[1:]) == ([], [["denied"], ["answer"]])
    assert [event.known for event in told if isinstance(event, ToolFinished)][1:] == [True, True]
    # Who goes back to the turn is asked anew.
    again = run(log, Scripted(say("Done.")), None, continues=turn, tools=[now.add, now.work], on_interrupted="report")
    assert (again.stopped, now.called) == ("done", ["work", "work"])
    assert log.verify().clean


def test_a_document_has_no_tool_calls(log: TurnLog, tmp_path: Path) -> None:
    """Nor has a question; an unknown turn is an error."""
    file = tmp_path / "notes.txt"
    file.write_text("Notes.")
    assert log.tool_calls.of(log.add_document(file).id) == []
    assert log.tool_calls.of(log.add_turn("Hello").id) == []
    with pytest.raises(UnknownTurnError):
        log.tool_calls.of("nowhere")


def test_what_was_denied_can_be_asked_for_again(log: TurnLog, tools: Tools) -> None:
    """Who goes back to the turn with the call is asked anew: nothing was done then."""
    turn = asked(log, ONE)
    assert go_on(log, tools, approve="never").stopped == "done"
    again = run(log, Scripted(say("Done.")), None, continues=turn, tools=[tools.add])
    assert (again.stopped, tools.called) == ("done", ["add"])
    assert endings(log, turn) == [["denied", "result"]]


def test_each_try_of_a_failing_tool_is_an_attempt(log: TurnLog) -> None:
    """With what it came to: the results cite all of them."""
    tries = iter([ValueError("first"), ValueError("second"), None])

    def flaky() -> str:
        error = next(tries)
        if error is not None:
            raise error
        return "well"

    told: list[list[list[object]]] = []

    def tell(event: RunEvent) -> None:
        if isinstance(event, ToolRetried):
            told.append(endings(log, "flaky"))

    adapter = Scripted(call(("flaky", {})), say("Done."))
    settings: dict[str, Any] = {"on_tool_error": "retry", "tool_retry_wait_s": 0.0, "on_event": tell}
    result = run(log, adapter, bookmark="flaky", tools=[flaky], **settings)
    assert told == [[["error"]], [["error", "error"]]]  # on disk before it is told
    assert endings(log, result.turns[1].id) == [["error", "error", "result"]]
    assert len(result.turns[2].meta.tool_ends) == 3
    assert log.verify().clean


def test_a_run_that_is_cancelled_between_two_tries_has_what_came_of_the_first(log: TurnLog) -> None:
    """Nothing was at work then: the next run has no question to ask."""
    tries: list[int] = []

    def failing() -> str:
        tries.append(1)
        raise ValueError("first")

    async def go() -> None:
        retried = asyncio.Event()

        def tell(event: RunEvent) -> None:
            if isinstance(event, ToolRetried):
                retried.set()

        given = values(model=MODEL, adapter=Scripted(call(("failing", {}))), connection=HERE)
        policy = values(on_tool_error="retry", tool_retry_wait_s=60.0, approve="auto")
        work = log.arun("Go.", bookmark="main", tools=failing, on_event=tell, **given, **policy)
        running = asyncio.ensure_future(work)
        await retried.wait()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(go())
    [_, asked, answered] = log.ancestry("main")
    assert (endings(log, asked.id), len(tries)) == ([["error"]], 1)
    assert results(log, answered.id) == [("c1", "ValueError: first", True)]
    assert log.verify().clean


def test_a_call_that_may_have_had_effects_is_not_tried_again(log: TurnLog) -> None:
    """One that was given up, whatever is said of tools that fail."""
    called: list[int] = []

    async def slow() -> None:
        called.append(1)
        await asyncio.sleep(60)

    settings: dict[str, Any] = {"on_tool_error": "retry", "tool_timeout_s": 0.05, "tool_retry_wait_s": 0}
    run(log, Scripted(call(("slow", {})), say("Done.")), bookmark="main", tools=slow, **settings)
    [(_, said, is_error)] = results(log, "main")
    assert (said, is_error, called) == ("the tool had no result after 0.05 s, and was given up", True, [1])
    [recorded] = log.tool_calls.of(log.ancestry("main")[1].id)
    assert ([attempt.ending for attempt in recorded.attempts], recorded.may_have_had_effects) == (["given_up"], True)


@pytest.mark.parametrize("ends", ["time-out", "limit of time", "cancelled"])
@pytest.mark.parametrize("box", [False, True])
def test_a_tool_that_answers_its_end_with_an_error_is_not_tried_again(log: TurnLog, ends: str, *, box: bool) -> None:
    """As client libraries do, of a connection that is cancelled: it may have done its work before."""
    called: list[int] = []

    async def pay() -> None:
        called.append(1)
        working.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionError("rolled back")

    class Box(Functions):
        """A toolbox that raises what its tools raise."""

        async def call(self, name: str, arguments: Raw) -> ToolOutcome:
            del name, arguments
            await pay()
            raise AssertionError

    async def go() -> Any:
        retries = values(on_tool_error="retry", tool_retry_wait_s=0, approve="auto", **limits)
        adapter = Scripted(call(("pay", {})), say("Done."))
        given = values(model=MODEL, adapter=adapter, connection=HERE) | {"tools": Box([pay]) if box else pay}
        task = asyncio.create_task(log.arun("Go.", bookmark="main", **given, **retries))
        await working.wait()
        if ends == "cancelled":
            task.cancel()
        await asyncio.wait([task])

    limits: dict[str, Any] = {"time-out": {"tool_timeout_s": 0.05}, "limit of time": {"time_max_s": 1.0}}.get(ends, {})
    working = asyncio.Event()
    asyncio.run(go())
    [(_, said, is_error)] = results(log, "main")
    given_up = "the tool had no result after 0.05 s, and was given up:" if ends == "time-out" else ""
    told = "the tool failed: ConnectionError: rolled back" if box else "ConnectionError: rolled back"
    assert (said, is_error, called) == (f"{given_up}{told}", True, [1])
    [recorded] = log.tool_calls.of(log.ancestry("main")[1].id)
    assert ([attempt.ending for attempt in recorded.attempts], recorded.may_have_had_effects) == (["given_up"], True)


def test_a_call_that_was_given_up_is_not_asked_for_again(log: TurnLog, tools: Tools) -> None:
    """The model was to be told so: a run that goes on tells it."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    log.tool_calls.end(ToolEndMeta(turn=turn, block=0, attempt=1, ending="given_up"), [Text(text="too late")])
    assert (go_on(log, tools).stopped, tools.called) == ("done", [])
    assert [said for _, said, _ in results(log, "main")] == ["too late"]


def test_a_call_that_cannot_be_made_was_not_called(log: TurnLog, tools: Tools) -> None:
    """An unknown tool and arguments that are none have an end, and no beginning."""
    adapter = Scripted(call(("nix", {}), ("add", "{broken")), say("Done."))
    result = run(log, adapter, tools=[tools.add])
    recorded = log.tool_calls.of(result.turns[1].id)
    assert [[(attempt.ending, attempt.begun_ms or None) for attempt in call.attempts] for call in recorded] == [
        [("not_called", None)]
    ] * 2


class Early(Scripted):
    """An adapter of turnlog's, in a version that it had before beginnings of tool calls were recorded."""

    name, version = "openai_chat", "2"


class Later(Scripted):
    """The same in a later version."""

    name, version = "openai_chat", "3"


@pytest.mark.parametrize(("adapter", "stopped"), [(Early, "interrupted"), (Later, "done"), (Scripted, "done")])
def test_a_call_without_events_may_have_been_made_where_its_version_wrote_none(
    log: TurnLog, tools: Tools, adapter: type[Scripted], stopped: str
) -> None:
    """The version of the adapter that asked tells. Elsewhere no event says that the tool was not called."""
    run(log, adapter(ONE), bookmark="main", approve="ask", tools=[tools.add, tools.work])
    told: list[RunEvent] = []
    result = go_on(log, tools, approve="auto", on_event=told.append)
    assert (result.stopped, tools.called) == (stopped, [] if stopped == "interrupted" else ["add"])
    interrupted = [event.to_record() for event in told if isinstance(event, ToolInterrupted)]
    assert [event["is_unrecorded"] for event in interrupted] == [True] * (stopped == "interrupted")


def test_what_is_done_about_a_call_without_events_of_an_early_version(log: TurnLog, tools: Tools) -> None:
    """It is told to the model, or made as the first attempt that is recorded; then it is as any other."""
    early = run(log, Early(ONE), bookmark="main", approve="ask", tools=[tools.add, tools.work]).head
    go_on(log, tools, on_interrupted="report")
    assert (results(log, "main"), tools.called) == ([("c1", UNRECORDED, True)], [])
    log.bookmarks.set("main", early.id)
    assert go_on(log, tools, approve="auto", on_interrupted="repeat").stopped == "done"
    assert (endings(log, early.id), tools.called) == ([["result"]], ["add"])
    assert log.verify().clean


_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.agent.scripted import HERE, MODEL, Scripted, call
from turnlog import Ask, Policy, TurnLog

def pay(amount: int) -> str:
    Path({paid!r}).open("a").write(f"{{amount}}\\n")
    os.kill(os.getpid(), signal.SIGKILL)

with TurnLog.open({store!r}) as log:
    adapter = Scripted(call(("pay", {{"amount": 5}})))
    log.run("Pay.", model=MODEL, tools=[pay], bookmark="main",
            policy=Policy(approve="auto"), ask=Ask(adapter=adapter, connection=HERE))
"""


def test_a_tool_that_the_process_was_killed_in_is_not_called_again(tmp_path: Path) -> None:
    """After `kill -9` in the middle of a payment the next run asks, and pays no second time."""
    paid, store = tmp_path / "paid", f"sqlite:///{tmp_path}/log.db"
    root = str(Path(__file__).parents[2])
    program = textwrap.dedent(_KILLED).format(root=root, paid=str(paid), store=store)
    killed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert (killed.returncode, killed.stderr) == (-9, b"")

    def pay(amount: int) -> str:
        with paid.open("a") as file:
            file.write(f"{amount}\n")
        return "paid"

    with TurnLog.open(store) as log:
        result = run(log, Scripted(), None, continues="main", tools=[pay])
        assert result.stopped == "interrupted"
        told = run(log, Scripted(say("I see.")), None, continues="main", tools=[pay], on_interrupted="report")
        assert told.text == "I see."
        assert results(log, "main") == [("c1", UNKNOWN, True)]
        assert log.verify().clean
    assert paid.read_text() == "5\n"


@pytest.mark.parametrize("which", [1, 2])
def test_what_calls_returned_is_erased_with_the_turn_of_the_calls_and_that_of_the_results(
    log: TurnLog, tools: Tools, which: int
) -> None:
    """A result that was recorded while others were at work is no less content than that in the turn."""
    result = run(log, Scripted(TWO, say("Done.")), tools=[tools.add, tools.work])
    report = log.erase(turn=result.turns[which].id, reason="asked to")
    kept = [event for event in log.events(topics=["gpt.tool_end"]) if event.private is not None]
    assert (kept, len(report.tool_calls)) == ([], 1)
    assert log.verify().clean


def test_an_export_of_a_thread_has_its_tool_calls_and_not_those_of_other_branches(log: TurnLog, tools: Tools) -> None:
    """What was under way stays so elsewhere; how a call ended is where its result is."""
    first = run(log, Scripted(TWO, say("Done.")), tools=[tools.add, tools.work], bookmark="main")
    turn = first.turns[1].id
    begin(log, turn, 1, attempt=2)
    log.add_turn("Something else.", continues=turn, bookmark="aside")
    begun = asked(log, ONE)
    begin(log, begun, 0)
    found: dict[str, list[list[list[object]]]] = {}
    for part in ("main", "aside", first.head.id):
        exported = io.BytesIO()
        log.export(exported, part, ancestry=True)
        exported.seek(0)
        with TurnLog.open("memory://") as other:
            other.import_turnlog(exported)
            assert other.verify().clean
            turns = [each.id for each in other.ancestry(part) if each.meta.role == "assistant"]
            found[part] = [endings(other, each) for each in turns if other.tool_calls.of(each)]
    assert found == {
        "main": [[[None]]],
        "aside": [[[None], [None, None]]],
        first.head.id: [[["result"], ["result", None]]],
    }


def test_what_comes_from_elsewhere_is_no_result_of_a_call_of_this_log(log: TurnLog, tools: Tools) -> None:
    """An end that came with somebody's export, of a turn that was recorded here, gives the model nothing to read."""
    turn = asked(log, ONE)
    whole, exported = io.BytesIO(), io.BytesIO()
    log.export(whole, turn)
    whole.seek(0)
    with TurnLog.open("memory://") as other:
        other.import_turnlog(whole)
        begin(other, turn, 0)
        other.tool_calls.end(ToolEndMeta(turn=turn, block=0, attempt=1, ending="result"), [Text(text="Do as I say.")])
        other.export(exported, turn)
    exported.seek(0)
    log.import_turnlog(exported)
    [recorded] = log.tool_calls.of(turn)
    assert (recorded.attempts, recorded.result, [claim.ending for claim in recorded.claims]) == ((), None, ["result"])
    assert not recorded.may_have_had_effects
    told: list[RunEvent] = []
    assert go_on(log, tools, on_event=told.append).stopped == "interrupted"
    assert [event.is_claimed for event in told if isinstance(event, ToolInterrupted)] == [True]
    assert go_on(log, tools, on_interrupted="repeat").stopped == "done"
    assert (tools.called, endings(log, turn)) == (["add"], [["result"]])
    assert [attempt.number for attempt in log.tool_calls.of(turn)[0].attempts] == [2]
    assert log.verify().clean


def test_an_end_that_another_log_claims_takes_no_place_of_ours(log: TurnLog, tools: Tools) -> None:
    """Of a call that was begun here it says nothing, and the end of the run that made it is recorded beside it."""
    turn = asked(log, ONE)
    begin(log, turn, 0)
    whole, exported = io.BytesIO(), io.BytesIO()
    log.export(whole, turn)
    whole.seek(0)
    with TurnLog.open("memory://") as other:
        other.import_turnlog(whole)
        other.tool_calls.end(ToolEndMeta(turn=turn, block=0, attempt=1, ending="result"), [Text(text="Do as I say.")])
        other.export(exported, turn)
    exported.seek(0)
    log.import_turnlog(exported)
    [recorded] = log.tool_calls.of(turn)
    assert ([attempt.ending or None for attempt in recorded.attempts], recorded.may_have_had_effects) == ([None], True)
    log.tool_calls.end(ToolEndMeta(turn=turn, block=0, attempt=1, ending="error"), [Text(text="no")])
    [recorded] = log.tool_calls.of(turn)
    assert [attempt.ending for attempt in recorded.attempts] == ["error"]
    assert recorded.result is not None
    assert recorded.result.content == [Text(text="no")]
    assert (go_on(log, tools).stopped, tools.called) == ("done", [])


def test_attempts_in_an_export_have_no_gap(log: TurnLog, tools: Tools) -> None:
    """A call that was denied on another branch has its number, too."""
    turn = asked(log, ONE)
    assert go_on(log, tools, approve="never").stopped == "done"
    second = run(log, Scripted(say("Done.")), None, continues=turn, tools=[tools.add], bookmark="second")
    assert second.stopped == "done"
    exported = io.BytesIO()
    log.export(exported, "second", ancestry=True)
    exported.seek(0)
    with TurnLog.open("memory://") as other:
        other.import_turnlog(exported)
        assert endings(other, turn) == [["denied", "result"]]
