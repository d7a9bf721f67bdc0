"""The run loop: what is recorded, what the model is sent, and who may run tools."""

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.agent.running import contents, results, run, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import Ask, AsyncTurnLog, Policy, RunError, TurnLog
from turnlog.agent.events import CallStarted, RunEvent, ToolFinished, ToolRetried, ToolStarted, TurnRecorded
from turnlog.agent.policy import Answer
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import MetaError
from turnlog.model import Delta, Document, ReplyFacts, Source, Text, Tool, ToolResult, ToolUse, Usage
from turnlog.providers import PreparedRequest
from turnlog.providers.replay import RecordedReply


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_run_records_question_reply_results_and_answer(log: TurnLog) -> None:
    """Each is one turn, continues the one before, and moves the bookmark; the content is there exactly once."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2}), text="I add."), say("It is 3."))
    result = run(log, adapter, "1 + 2?", bookmark="main", tools=add)
    assert contents(log, "main") == [
        ("user", '[{"type":"text","text":"1 + 2?"}]'),
        (
            "assistant",
            '[{"type":"text","text":"I add."},{"type":"tool_use","name":"add","input":{"a":1,"b":2},"id":"c1"}]',
        ),
        (
            "user",
            '[{"type":"tool_result","content":[{"type":"text","text":"3"}],"tool_use_id":"c1","name":"add"}]',
        ),
        ("assistant", '[{"type":"text","text":"It is 3."}]'),
    ]
    assert [turn.id for turn in log.ancestry("main")] == [turn.id for turn in result.turns]
    assert [turn.meta.head for turn in result.turns] == ["main"] * 4
    assert (result.stopped, result.text, result.head) == ("done", "It is 3.", log.turn("main"))
    assert (result.usage, result.unanswered, result.error) == (Usage(output_tokens=20), (), None)


def test_a_call_is_recorded_when_what_it_needs_is_imported(log: TurnLog) -> None:
    """So the time from it to its reply is the model's alone."""
    behind: list[list[str]] = []

    class Slow(Scripted):
        def load(self) -> None:
            asked = next(event for event in log.events(follow=True) if event.header.topic == "gpt.turn").global_position
            log.wait(asked, 0.5)
            behind.append([event.header.topic for event in log.events(asked)])

    run(log, Slow(say("Hello.")), "Hi.")
    assert behind == [[]]
    assert [event.header.topic for event in log.events()][-3:] == ["gpt.call", "gpt.reply", "gpt.turn"]


def test_replies_are_recorded_with_their_calls(log: TurnLog) -> None:
    """Provider, model, stop reason, usage and call are on the turn; the request and the raw events are kept."""
    adapter = Scripted(say("Hello.", tokens=7))
    result = run(log, adapter, "Hi.", params={"temperature": 0.5})
    meta = result.head.meta
    assert (meta.provider, meta.api, meta.model, meta.stop_reason) == ("scripted", "script", MODEL, "stop")
    assert (meta.usage, meta.call) == (Usage(output_tokens=7), result.calls[0])
    assert log.calls.events(result.head.id) == [b'{"text":"Hello."}', b'{"end":"stop","tokens":7}']
    assert log.calls.get(result.calls[0]).meta.parameters == {"temperature": 0.5}
    assert [check.difference for check in log.calls.check(result.head.id, adapter=lambda *_: Scripted())] == [None]


def test_parameters_are_recorded_so_that_the_same_bytes_can_be_prepared_again(log: TurnLog) -> None:
    """Whatever the order in which they were given, at any depth."""
    result = run(log, Scripted(say("Hello.")), params={"z": 1, "a": {"y": 1.0, "b": [2]}})
    assert [check.difference for check in log.calls.check(result.head.id, adapter=lambda *_: Scripted())] == [None]


def test_parameters_that_json_cannot_carry_are_refused(log: TurnLog) -> None:
    """NaN would become null in silence."""
    with pytest.raises(Exception, match=r"params\.temperature: JSON has no NaN"):
        run(log, Scripted(say("Hello.")), params={"temperature": float("nan")})


def test_longer_requests_start_with_the_shorter_ones(log: TurnLog) -> None:
    """So that providers' prompt caches hit."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), call(("add", {"a": 3, "b": 4})), say("Done."))
    result = run(log, adapter, tools=[add])
    first, second, third = (log.calls.request(call_id) for call_id in result.calls)
    assert second.startswith(first.removesuffix(b"]}"))
    assert third.startswith(second.removesuffix(b"]}"))


def test_all_calls_of_a_reply_run_at_the_same_time(log: TurnLog) -> None:
    """Two tools that wait for each other both come to their end; results stand in the order of the calls."""
    meet = threading.Barrier(2, timeout=30)

    def slow(n: int) -> str:
        meet.wait()
        return f"result {n}"

    adapter = Scripted(call(("slow", {"n": 1}), ("slow", {"n": 2})), say("Done."))
    result = run(log, adapter, tools=[slow])
    assert results(log, result.head.id) == [("c1", "result 1", False), ("c2", "result 2", False)]


def test_no_more_tools_run_at_once_than_allowed(log: TurnLog) -> None:
    """`parallel_max` is the limit; all run in the end."""
    running, most = 0, 0
    too_many = asyncio.Event()

    async def tool() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running > 3:
            too_many.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(too_many.wait(), 0.1)
        running -= 1

    adapter = Scripted(call(*[("tool", {})] * 7), say("Done."))
    result = run(log, adapter, tools=[tool], parallel_max=3)
    assert (most, len(results(log, result.head.id))) == (3, 7)


def test_calls_that_cannot_be_made_get_an_error_that_says_why(log: TurnLog) -> None:
    """An unknown tool, malformed arguments, arguments that do not fit, and an exception: the model reads about each."""

    def boom() -> None:
        raise ValueError("no")

    adapter = Scripted(
        call(("nix", {}), ("add", "{broken"), ("add", {"a": "x", "b": 1}), ("boom", {}), ("add", {"a": 1, "b": 1})),
        say("Done."),
    )
    result = run(log, adapter, tools=[add, boom])
    assert results(log, result.head.id) == [
        ("c1", "there is no tool 'nix' (one of add, boom)", True),
        ("c2", "the arguments are not a JSON object, so the tool was not called: {broken", True),
        ("c3", "the arguments do not fit 'add': Expected `int`, got `str` - at `$.a`", True),
        ("c4", "ValueError: no", True),
        ("c5", "2", False),
    ]


def test_tool_results_keep_images(log: TurnLog) -> None:
    """Blocks that a tool returns are recorded as they are."""
    image = Document(source=Source(media_type="image/png", data="iVBORw0KGgo="))

    def draw() -> list[Any]:
        return [Text(text="Here:"), image]

    result = run(log, Scripted(call(("draw", {})), say("Nice.")), tools=[draw])
    [block] = log.context(result.turns[2].id).messages[-1].content
    assert isinstance(block, ToolResult)
    assert block.content == [Text(text="Here:"), image]


# Approval


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, ("c1", "3", False)),
        (False, ("c1", "The user did not allow this tool call.", True)),
        ("", ("c1", "The user did not allow this tool call.", True)),
        ("It is 3, trust me.", ("c1", "It is 3, trust me.", False)),
    ],
)
def test_approval_runs_denies_or_answers(log: TurnLog, answer: Answer, expected: tuple[str, str, bool]) -> None:
    """Yes runs the tool, no is an error result, a text is the result."""
    asked: list[ToolUse] = []

    def approve(call_: ToolUse) -> Answer:
        asked.append(call_)
        return answer

    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    result = run(log, adapter, tools=[add], approve="ask", on_approval=approve)
    assert results(log, result.head.id) == [expected]
    assert [(call_.name, bytes(call_.input)) for call_ in asked] == [("add", b'{"a":1,"b":2}')]


def test_approval_may_be_a_coroutine_function_and_is_asked_in_order(log: TurnLog) -> None:
    """One call after the other, so that a person can follow; each gets its own answer."""

    async def approve(call_: ToolUse) -> Answer:
        await asyncio.sleep(0)
        return bytes(call_.input) == b'{"a":1,"b":1}'

    adapter = Scripted(call(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), say("Done."))
    result = run(log, adapter, tools=[add], approve="ask", on_approval=approve)
    assert [is_error for _, _, is_error in results(log, result.head.id)] == [False, True]


def test_nothing_runs_when_nobody_is_there_to_ask(log: TurnLog) -> None:
    """The run stops with all calls of the reply unanswered, those that are allowed too, and can be resumed."""
    ran: list[int] = []

    def note(n: int) -> None:
        ran.append(n)

    adapter = Scripted(call(("note", {"n": 1}), ("add", {"a": 1, "b": 2})), say("Done."))
    stopped = run(log, adapter, tools=[note, add], approve="ask", allow=["note"])
    assert (stopped.stopped, [call_.name for call_ in stopped.unanswered], ran) == ("unanswered", ["note", "add"], [])
    assert stopped.why == "a tool call needs approval, and nobody gave it (waiting: note, add)"
    resumed = run(log, adapter, None, continues=stopped.head.id, tools=[note, add])
    assert (resumed.stopped, resumed.text, ran) == ("done", "Done.", [1])
    assert results(log, resumed.head.id) == [("c1", "null", False), ("c2", "3", False)]


def test_never_refuses_what_no_pattern_allows(log: TurnLog) -> None:
    """The allow list wins over the policy, and the run goes on."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2}), ("nothing", {})), say("Done."))

    def nothing() -> None:
        raise AssertionError("it must not run")

    result = run(log, adapter, tools=[add, nothing], approve="never", allow=["a*"], on_approval=lambda _: True)
    assert results(log, result.head.id) == [("c1", "3", False), ("c2", "This tool call is not allowed here.", True)]


def test_calls_that_cannot_be_made_are_not_asked_about(log: TurnLog) -> None:
    """There is nothing to approve about a tool that does not exist."""
    adapter = Scripted(call(("nix", {})), say("Done."))
    assert run(log, adapter, tools=[add], approve="ask", on_approval=lambda _: None).stopped == "done"


@pytest.mark.parametrize("answer", [1, 0, {"approved": True}, b"yes"])
def test_what_is_no_answer_is_an_error_and_nothing_runs(log: TurnLog, answer: Any) -> None:
    """It is nobody's refusal; the calls wait for an answer."""
    called: list[int] = []

    def note(a: int) -> None:
        called.append(a)

    settings: dict[str, Any] = {"tools": [note], "approve": "ask", "bookmark": "main"}
    with pytest.raises(RunError, match="on_approval: expected True, False, a text or None for an answer, got"):
        run(log, Scripted(call(("note", {"a": 1}))), on_approval=lambda _: answer, **settings)
    assert (called, log.turn("main").meta.role) == ([], "assistant")


def test_one_pattern_is_one_pattern(log: TurnLog) -> None:
    """Given as a text it is not taken letter by letter: its star alone would allow everything."""
    result = run(log, Scripted(call(("add", {"a": 1, "b": 2}))), tools=[add], approve="ask", allow="x*")
    assert result.stopped == "unanswered"


# What is offered, and what is said of the model


def test_toolboxes_are_entered_left_and_offered_in_order(log: TurnLog) -> None:
    """Toolboxes come first, then functions; what a toolbox raises against its contract is an error result."""
    seen: list[str] = []

    class Box(Toolbox):
        async def __aenter__(self):
            seen.append("entered")
            return self

        async def __aexit__(self, *_: object) -> None:
            seen.append("left")

        async def tools(self) -> list[Tool]:
            return [Tool(name="box")]

        async def call(self, name: str, arguments: Raw) -> ToolOutcome:
            raise KeyError(name)

    adapter = Scripted(call(("box", {})), say("Done."))
    result = run(log, adapter, tools=[add, Box()])
    assert (adapter.bodies[0]["tools"], seen) == (["box", "add"], ["entered", "left"])
    assert results(log, result.head.id) == [("c1", "the tool failed: KeyError: 'box'", True)]
    assert [tool.name for tool in log.calls.tools(result.calls[0])] == ["box", "add"]


def test_two_tools_of_one_name_are_refused(log: TurnLog) -> None:
    """Nothing is recorded."""

    class Box(Toolbox):
        async def tools(self) -> list[Tool]:
            return [Tool(name="add")]

        async def call(self, name: str, arguments: Raw) -> ToolOutcome:
            raise NotImplementedError

    with pytest.raises(RunError, match="two tools are called 'add'"):
        run(log, Scripted(), tools=[Box(), add])
    assert log.threads() == []


def test_a_forced_tool_choice_holds_for_the_first_call(log: TurnLog) -> None:
    """Else the model would have to call tools for ever; a free choice holds for all."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    run(log, adapter, tools=[add], tool_choice="required")
    assert [body["params"] for body in adapter.bodies] == [{"tool_choice": "required"}, {"tool_choice": "auto"}]
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    run(log, adapter, tools=[add], tool_mode="add")
    assert [body["params"] for body in adapter.bodies] == [{}, {"tool_choice": "auto"}]
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    run(log, adapter, tools=[add], tool_choice="none")
    assert [body["params"] for body in adapter.bodies] == [{"tool_choice": "none"}] * 2
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("Done."))
    run(log, adapter, tools=[add], tool_choice={"type": "tool", "name": "add", "disable_parallel_tool_use": True})
    assert adapter.bodies[1]["params"] == {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}


def test_options_are_written_into_the_turn_and_hold_from_there_on(log: TurnLog) -> None:
    """The window says what was asked, so that the request can be prepared from it again."""
    log.pointers.set("kilo", "scripted", MODEL)
    adapter = Scripted(say("One."), say("Two."))
    given = {"adapter": adapter, "connection": HERE}
    first = log.run(
        "Go.", bookmark="main", pointer="kilo", search=True, tool_mode="auto", servers=[], **values(**given)
    )
    assert first.turns[0].meta.inherited == {
        "provider_ptr": "kilo",
        "search": True,
        "tool_mode": "auto",
        "servers": [],
    }
    log.run("And on.", continues="main", **values(**given))
    assert [body["search"] for body in adapter.bodies] == [True, True]


def test_a_reply_can_be_asked_for_in_one_piece(log: TurnLog) -> None:
    """Without `stream`; the call says so."""
    adapter = Scripted(say("One."))
    result = run(log, adapter, stream=False)
    assert (adapter.bodies[0]["stream"], log.calls.get(result.calls[0]).meta.stream) == (False, False)


def test_a_reply_that_pauses_is_sent_back_as_it_is(log: TurnLog) -> None:
    """Anthropic's `pause_turn`: the model goes on with its own turn."""
    adapter = Scripted(say("Searching", end="pause_turn"), say("Found."))
    result = run(log, adapter)
    assert [turn.meta.role for turn in result.turns] == ["user", "assistant", "assistant"]
    assert adapter.bodies[1]["messages"][-1]["content"] == [{"type": "text", "text": "Searching"}]


def test_the_text_of_a_run_has_what_was_said_before_a_pause(log: TurnLog) -> None:
    """It is one reply of the model. What it said before a tool was called is another one."""
    replies = [say("One, ", end="pause_turn"), call(("add", {"a": 1, "b": 2})), say("Two, ", end="pause_turn")]
    result = run(log, Scripted(*replies, say("three, ", end="pause_turn"), say("four.")), tools=[add])
    assert (result.text, [response.raw_stop_reason for response in result.paused]) == (
        "Two, three, four.",
        ["pause_turn"] * 2,
    )


# Following a run


def test_deltas_and_events_tell_what_happens_as_it_happens(log: TurnLog) -> None:
    """In order: the question, the call, the reply, the tool, its result, and so on."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2}), text="I add."), say("Done."))
    events: list[RunEvent] = []
    deltas: list[Delta] = []
    result = run(log, adapter, tools=[add], on_event=events.append, on_delta=deltas.append)
    assert [type(event) for event in events] == [
        TurnRecorded,
        CallStarted,
        TurnRecorded,
        ToolStarted,
        ToolFinished,
        TurnRecorded,
        CallStarted,
        TurnRecorded,
    ]
    recorded = [event for event in events if isinstance(event, TurnRecorded)]
    assert [event.turn for event in recorded] == list(result.turns)
    assert [event.response is not None and list(event.response.content) for event in recorded] == [
        turn.meta.role == "assistant" and log.content(turn) for turn in result.turns
    ]
    assert recorded[-1].response == result.response
    assert [(event.call, event.iteration) for event in events if isinstance(event, CallStarted)] == [
        (result.calls[0], 1),
        (result.calls[1], 2),
    ]
    assert [delta.content for delta in deltas if delta.type == "text"] == ["I add.", "Done."]


def test_events_and_results_are_json(log: TurnLog) -> None:
    """For `json.dumps`, numbers as they were; with extra keys of blocks, and calls that have no result."""
    events: list[RunEvent] = []
    adapter = Scripted(call(("add", {"a": 1.5, "b": 2}), ("add", "{broken")), call(("add", {"z": [1.0]})))
    settings = {"on_tool_error": "retry", "tool_retry_wait_s": 0, "tool_retries_max": 1, "iterations_max": 2}
    result = run(log, adapter, tools=[add], on_event=events.append, **settings)
    records = [json.loads(json.dumps({"event": e.kind, **e.to_record()})) for e in events]
    started = next(record for record in records if record["event"] == "tool_started")
    assert repr(started["input"]) == "{'a': 1.5, 'b': 2}"
    assert {record["event"] for record in records} == {"turn", "call", "tool_started", "tool_retried", "tool_finished"}
    [retried] = [record for record in records if record["event"] == "tool_retried"]
    assert (retried["name"], retried["id"], retried["attempt"]) == ("add", "c1", 1)
    record = json.loads(json.dumps(result.to_record()))
    assert repr(record["unanswered"][0]["input"]) == "{'z': [1.0]}"
    assert record["unanswered"] == [{"type": "tool_use", "name": "add", "input": {"z": [1.0]}, "id": "c1"}]
    assert (record["stopped"], record["head"], record["usage"]["total_tokens"]) == ("iterations", result.head.id, 20)


def test_losses_are_told_before_the_call_is_made(log: TurnLog) -> None:
    """What the request does not carry: here thinking of another provider."""
    log.add_turn("Hi.", bookmark="main")
    log.add_turn(
        [{"type": "thinking", "thinking": "hm"}, "Hello."],
        role="assistant",
        continues="main",
        reply=ReplyFacts(provider="other", api="x", model="y"),
    )
    events: list[RunEvent] = []
    run(log, Scripted(say("Done.")), continues="main", on_event=events.append)
    [started] = [event for event in events if isinstance(event, CallStarted)]
    assert [(entry.kind, entry.block) for entry in started.loss_report.entries] == [("dropped", "thinking")]
    assert started.to_record()["loss_report"][0]["kind"] == "dropped"


def test_a_failing_tool_is_tried_again_where_the_policy_says_so(log: TurnLog) -> None:
    """With longer and longer waits, up to a number of times; each is told."""
    outcomes = iter([ValueError("one"), ValueError("two"), None])

    def flaky() -> str:
        if error := next(outcomes):
            raise error
        return "fine"

    events: list[RunEvent] = []
    adapter = Scripted(call(("flaky", {})), say("Done."))
    settings = {"on_tool_error": "retry", "tool_retry_wait_s": 0.001, "on_event": events.append}
    result = run(log, adapter, tools=[flaky], **settings)
    assert results(log, result.head.id) == [("c1", "fine", False)]
    assert [(e.attempt, e.wait_s) for e in events if isinstance(e, ToolRetried)] == [(1, 0.001), (2, 0.002)]


def test_a_tool_that_goes_on_failing_is_an_error_in_the_end(log: TurnLog) -> None:
    """After the last retry the model gets the error, and the run goes on."""
    tries: list[int] = []

    def failing() -> None:
        tries.append(1)
        raise ValueError("never")

    adapter = Scripted(call(("failing", {})), say("Done."))
    settings = {"on_tool_error": "retry", "tool_retry_wait_s": 0, "tool_retries_max": 2}
    result = run(log, adapter, tools=[failing], **settings)
    assert (len(tries), results(log, result.head.id)) == (3, [("c1", "ValueError: never", True)])
    assert result.stopped == "done"


# Ways to run


def test_async_log_runs_in_the_loop_of_the_caller() -> None:
    """`run` and `arun` of AsyncTurnLog are the same."""

    async def go() -> tuple[str, str]:
        async with await AsyncTurnLog.open("memory://") as log:
            given = {"model": MODEL, "adapter": Scripted(say("One."), say("Two.")), "connection": HERE}
            first = await log.run("Go.", bookmark="main", **values(**given))
            second = await log.arun("On.", continues="main", **values(**given))
            return first.text, second.text

    assert asyncio.run(go()) == ("One.", "Two.")


def test_runs_go_on_at_the_same_time_in_one_loop() -> None:
    """Two that wait for each other both come to their end."""

    async def go() -> list[str]:
        meet = asyncio.Barrier(2)

        async def wait() -> str:
            """Wait for the other run."""
            await meet.wait()
            return "met"

        async with await AsyncTurnLog.open("memory://") as log:
            runs = [
                log.run(
                    "Go.",
                    model=MODEL,
                    tools=wait,
                    policy=Policy(approve="auto"),
                    ask=Ask(adapter=Scripted(call(("wait", {})), say(f"Run {n}.")), connection=HERE),
                )
                for n in range(2)
            ]
            return [result.text for result in await asyncio.gather(*runs)]

    assert asyncio.run(go()) == ["Run 0.", "Run 1."]


def test_run_in_a_running_loop_says_what_to_use(log: TurnLog) -> None:
    """`TurnLog.run` has a loop of its own."""

    async def go() -> None:
        run(log, Scripted())

    with pytest.raises(RunError, match=r"await `TurnLog\.arun` or `AsyncTurnLog\.run`"):
        asyncio.run(go())


def test_a_run_can_be_repeated_from_the_log_without_asking_anybody(log: TurnLog) -> None:
    """The same inputs make the same requests, byte for byte, and give the same turns."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), call(("nix", {})), say("Done."))
    recorded = run(log, adapter, "1 + 2?", tools=[add], params={"temperature": 0})
    with TurnLog.open("memory://") as again:
        repeated = run(again, Scripted(), "1 + 2?", tools=[add], params={"temperature": 0}, replay=log.calls.replies())
        assert contents(again, repeated.head.id) == contents(log, recorded.head.id)
        assert [again.calls.request(c) for c in repeated.calls] == [log.calls.request(c) for c in recorded.calls]


def test_a_replay_that_goes_another_way_is_an_error(log: TurnLog) -> None:
    """A request that was not recorded has no reply."""
    run(log, Scripted(say("Done.")), "One.")
    replies: dict[str, list[RecordedReply]] = log.calls.replies()
    with TurnLog.open("memory://") as again:
        result = run(again, Scripted(), "Two.", replay=replies)
    assert result.stopped == "error"
    assert "the run has gone another way than the recorded one, another version of the adapter" in result.why
    assert "or the request names a turn" in result.why
    assert "(this one is scripted 1)" in result.why


@pytest.mark.parametrize("content", ["And now?", None])
def test_a_conversation_goes_on_behind_a_reply_that_is_erased(log: TurnLog, content: str | None) -> None:
    """The model is told that something was there. What the reply called is gone with it."""
    asked = log.add_turn("Well?", bookmark="main")
    called = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    reply = log.add_turn([called], role="assistant", continues=asked.id)
    log.erase(turn=reply.id, reason="asked")
    adapter = Scripted(say("Yes."))
    if content is None:
        with pytest.raises(RunError, match="is a finished reply: give content to go on from it"):
            run(log, adapter, None, continues=reply.id)
        return
    assert run(log, adapter, content, continues=reply.id).text == "Yes."
    assert b"[erased]" in msgspec.json.encode(adapter.bodies[0])


def test_what_is_erased_while_a_request_is_prepared_is_not_sent(log: TurnLog) -> None:
    """The window is read again: the model is asked with what is left."""
    first = log.add_turn("of Ada", bookmark="main")
    prepared: list[bytes] = []

    class Slow(Scripted):
        def prepare_request(self, *given: Any, **named: Any) -> PreparedRequest:
            request = super().prepare_request(*given, **named)
            prepared.append(request.body)
            if len(prepared) == 1:
                log.erase(turn=first.id, reason="asked")
            return request

    adapter = Slow(say("Yes."))
    result = run(log, adapter, "Still there?", bookmark="main", continues="main")
    assert result.stopped == "done"
    assert [b"of Ada" in body for body in prepared] == [True, False]
    [call_id] = result.calls
    assert log.calls.request(call_id) == prepared[1]
    assert [b"of Ada" in msgspec.json.encode(body) for body in adapter.bodies] == [False]


def test_reply_that_comes_after_its_subject_was_erased_has_that_subject(log: TurnLog) -> None:
    """Not that of the turn before, and not none: the next erasure of the subject finds it."""
    log.add_turn("of Bob", bookmark="main", subject="Bob")

    def erase(event: RunEvent) -> None:
        if isinstance(event, CallStarted):
            report = log.erase(subject="Ada", reason="asked")
            assert report.at_work == report.turns

    result = run(log, Scripted(say("Yes.")), "of Ada", continues="main", subject="Ada", on_event=erase)
    assert log.turn(result.head.id).meta.subject == "Ada"
    again = log.erase(subject="Ada", reason="asked")
    assert (again.turns, len(again.replies), again.at_work) == ((result.head.id,), 1, ())
    with pytest.raises(MetaError, match="is erased, and with it whose it was"):
        run(log, Scripted(say("No.")), continues=result.turns[0].id)
