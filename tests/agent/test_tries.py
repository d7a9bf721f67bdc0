"""Model calls that fail in a way that may pass: tried again where nothing was shown, and each try is in the log."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import msgspec
import pytest
from tests.agent.running import run
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say

from turnlog import TurnLog
from turnlog.agent.events import CallRetried, RunEvent
from turnlog.agent.functions import Functions
from turnlog.agent.middleware import CallModel, ModelCall
from turnlog.errors import ProviderError, RunError
from turnlog.model import Response, Tool, ToolUse, Usage
from turnlog.providers import Connection, PreparedRequest
from turnlog.providers.wire import pause_s

PASSES = ProviderError("Slow down.", provider="scripted", retryable=True, status=429, retry_after_s=0.0)
STAYS = ProviderError("No.", provider="scripted", retryable=False, status=400)
TRIES = Connection(retries_max=2)


def asked_again(log: TurnLog, *script: Any, **settings: Any) -> tuple[Any, list[CallRetried]]:
    """Run, and return the result and what was told of tries."""
    told: list[RunEvent] = []
    given: dict[str, Any] = {"bookmark": "main", "connection": TRIES, "on_event": told.append, **settings}
    result = run(log, Scripted(*script), **given)
    return result, [event for event in told if isinstance(event, CallRetried)]


def reasons(log: TurnLog) -> list[str | None]:
    """Return the stop reasons of the replies in the log."""
    return [turn.meta.stop_reason or None for turn in log.ancestry("main") if turn.meta.role == "assistant"]


def test_each_try_is_a_call_in_the_log(log: TurnLog) -> None:
    """With the error that it had; all are the same request, and the last reply is the answer."""
    result, told = asked_again(log, [PASSES], [PASSES], say("Well."))
    assert (result.stopped, result.text) == ("done", "Well.")
    assert reasons(log) == ["error", "error", "stop"]
    assert len({log.calls.request(each) for each in result.calls}) == 1
    assert [(event.call, event.tries, event.wait_s) for event in told] == [
        (result.calls[0], 1, 0.0),
        (result.calls[1], 2, 0.0),
    ]
    assert log.verify().clean


@pytest.mark.parametrize(("settings", "calls"), [({}, 3), ({"tries_max": 1}, 1), ({"tries_max": 2}, 2)])
def test_tries_have_an_end(log: TurnLog, settings: dict[str, Any], calls: int) -> None:
    """By default one more than the connection's retries; the error is then that of the run."""
    result, _ = asked_again(log, [PASSES], [PASSES], [PASSES], [PASSES], **settings)
    assert (result.stopped, len(result.calls), reasons(log)) == ("error", calls, ["error"] * calls)


def test_errors_of_calls_and_runs_are_json(log: TurnLog) -> None:
    """As records of what is known of them."""
    result, [retried] = asked_again(log, [PASSES], [STAYS])
    told, said = (json.loads(json.dumps(each.to_record()))["error"] for each in (retried, result))
    assert told == {"message": retried.error.message, "retryable": True, "status": 429, "retry_after_s": 0.0}
    assert said == {"message": result.error.message, "status": 400}


def test_what_does_not_pass_is_not_tried_again(log: TurnLog) -> None:
    """A refusal of the request stays one."""
    result, told = asked_again(log, [STAYS], say("Well."))
    assert (result.stopped, len(result.calls), told) == ("error", 1, [])


def test_what_was_shown_is_not_asked_for_again(log: TurnLog) -> None:
    """A reply that breaks off after somebody has read of it ends the run; one that said nothing yet does not."""
    result, told = asked_again(log, [{"text": "Half"}, PASSES], say("Whole."))
    assert (result.stopped, told, log.payload("main")) == ("error", [], b'[{"type":"text","text":"Half"}]')


def test_a_text_that_only_began_was_not_shown(log: TurnLog) -> None:
    """A provider that says a text begins, and breaks off, has shown nothing. One that names a tool has."""
    result, told = asked_again(log, [{"text": ""}, PASSES], say("Whole."))
    assert (result.text, len(told)) == ("Whole.", 1)


def test_a_stream_that_breaks_off_before_it_says_anything_is_tried_again(log: TurnLog) -> None:
    """Also where the connection had been made."""
    result, told = asked_again(log, [], say("Well."))
    assert (result.text, len(told)) == ("Well.", 1)


def test_a_provider_that_asks_for_too_long_is_not_waited_for(log: TurnLog) -> None:
    """The run ends at once, with the time to come back in its reason."""
    slow = ProviderError("Slow down.", provider="scripted", retryable=True, status=429, retry_after_s=3600.0)
    begin = time.monotonic()
    result, told = asked_again(log, [slow], say("Well."))
    assert (result.stopped, told, time.monotonic() - begin < 30) == ("error", [], True)
    assert "after 3600 s" in result.why
    result, told = asked_again(log, [PASSES], say("Well."), retry_wait_max_s=0.0)
    assert (result.stopped, len(told)) == ("done", 1)


def test_a_provider_that_does_not_say_how_long_to_wait_is_tried_again(log: TurnLog) -> None:
    """The limit is for what it asks for; turnlog's own pauses are short."""
    busy = ProviderError("Slow down.", provider="scripted", retryable=True, status=503)
    result, told = asked_again(log, [busy], say("Well."), retry_wait_max_s=0.0)
    assert (result.stopped, [event.wait_s > 0 for event in told]) == ("done", [True])


@pytest.mark.parametrize("asks", ["the run", "a middleware"])
def test_tries_are_within_the_limit_of_tokens(log: TurnLog, asks: str) -> None:
    """A reply that goes beyond it is the last one, also where it failed."""

    async def again(asked: ModelCall, ask: CallModel) -> Response:
        response = await ask(asked)
        return response if response.error is None else await ask(asked)

    def counted(*script: Any) -> Scripted:
        adapter = Scripted(*script)
        reader = adapter.reader

        def broken(**given: Any) -> Any:
            read = reader(**given)
            response = read.response
            read.response = lambda: msgspec.structs.replace(response(), usage=Usage(output_tokens=1000))
            return read

        adapter.reader = broken  # type: ignore[method-assign]
        return adapter

    adapter = counted([PASSES], [PASSES], say("Well."))
    settings: dict[str, Any] = {"connection": TRIES, "total_tokens_max": 500, "bookmark": "main"}
    if asks == "a middleware":
        with pytest.raises(RunError, match="asks again, and the limit of tokens is reached"):
            run(log, adapter, around_model=again, **settings)
    else:
        assert run(log, adapter, **settings).stopped == "error"
    assert (len(adapter.bodies), reasons(log)) == (1, ["error"])
    assert run(log, counted(say("Well.")), "Again.", continues="main", connection=TRIES).text == "Well."


def test_waits_grow_where_the_provider_does_not_say() -> None:
    """Half a second, then twice as long each time, to 8 seconds, and never all at the same moment."""
    waits = [pause_s(tries) for tries in (*range(1, 8), 100_000)]
    for waited, most in zip(waits, [0.5, 1, 2, 4, 8, 8, 8, 8], strict=True):
        assert 0.75 * most <= waited <= most


def test_tries_are_no_iterations(log: TurnLog) -> None:
    """A limit of model calls counts replies, and a forced tool is forced in each try of the first one."""
    adapter = Scripted([PASSES], call(("add", {})), say("Done."))

    def add() -> str:
        return "added"

    given: dict[str, Any] = {"connection": TRIES, "tools": [add], "iterations_max": 2, "tool_choice": "required"}
    assert run(log, adapter, **given).stopped == "done"
    assert [body["params"].get("tool_choice") for body in adapter.bodies] == ["required", "required", "auto"]


def test_a_run_has_a_limit_of_time(log: TurnLog) -> None:
    """What is at work is broken off and recorded, and the result says why."""
    result = run(log, Scripted([{"text": "Half"}, HANG]), bookmark="main", time_max_s=2)
    assert (result.stopped, result.why, log.turn("main").id) == ("time", "the limit of time is reached", result.head.id)
    assert (reasons(log), log.payload("main")) == (["aborted"], b'[{"type":"text","text":"Half"}]')

    async def work() -> str:
        await asyncio.Event().wait()
        return ""

    adapter = Scripted(call(("work", {})))
    result = run(log, adapter, "Work.", bookmark="main", tools=[work], time_max_s=1)
    assert (result.stopped, log.tool_calls.of(result.turns[1].id)[0].attempts[-1].ending) == ("time", "broken_off")
    assert result.unanswered == ()

    async def think(_: ToolUse) -> bool:
        return await asyncio.Event().wait()

    given: dict[str, Any] = {"tools": [work], "approve": "ask", "on_approval": think, "time_max_s": 1}
    result = run(log, Scripted(call(("work", {}))), "Work.", bookmark="main", **given)
    assert (result.stopped, [call_.name for call_ in result.unanswered]) == ("time", ["work"])


def test_the_limit_of_time_holds_for_what_comes_before_the_first_turn(log: TurnLog) -> None:
    """Waiting for another run, and for tools; nothing is recorded then."""
    log.store.locks.take(log.add_turn("Another one asks.", bookmark="main").id)
    begin = time.monotonic()
    with pytest.raises(RunError, match="another run is still at work"):
        run(log, Scripted(say("Hi")), continues="main", wait_s=60, time_max_s=0.2)

    class Slow(Functions):
        async def tools(self) -> Sequence[Tool]:
            await asyncio.sleep(60)
            return await super().tools()

    with pytest.raises(RunError, match=r"the tools were not there within .* s, the limit of time"):
        run(log, Scripted(say("Hi")), tools=Slow([]), time_max_s=0.2)

    left: list[str] = []

    class Entered(Functions):
        async def __aexit__(self, *_: object) -> None:
            left.append("left")

    class SlowToEnter(Functions):
        async def __aenter__(self) -> Self:
            await asyncio.sleep(60)
            return self

    with pytest.raises(RunError, match=r"the tools were not there within .* s, the limit of time"):
        run(log, Scripted(say("Hi")), tools=[Entered([]), SlowToEnter([])], time_max_s=0.2)
    assert left == ["left"]
    assert time.monotonic() - begin < 10
    assert len(log.ancestry("main")) == 1


def test_a_time_out_of_somebody_else_is_not_that_of_the_run(log: TurnLog) -> None:
    """A limit around the run, and one that a callback raises, are not taken for its own."""

    def late(_: object) -> Any:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(log, Scripted(say("Hi")), time_max_s=60, on_window=late)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tries_max": 0}, "tries_max: 0 is less than 1"),
        ({"time_max_s": 0}, "time_max_s: 0 is not more than 0"),
        ({"call_timeout_s": 0}, "call_timeout_s: 0 is not more than 0"),
        ({"wait_s": -1}, "wait_s: -1 is not more than 0"),
        ({"retry_wait_max_s": -1}, "retry_wait_max_s: -1 is less than 0"),
    ],
)
def test_limits_that_are_none_are_refused(log: TurnLog, settings: dict[str, Any], why: str) -> None:
    """By name, before anything happens."""
    with pytest.raises(RunError, match=why):
        run(log, Scripted(say("Hi")), model=MODEL, **settings)


class _Watching(Scripted):
    """Keeps the time-outs that it was asked with."""

    timeouts: ClassVar[list[float]] = []

    def _aopen(self, request: PreparedRequest, connection: Connection) -> Any:
        self.timeouts.append(connection.timeout_s)
        return super()._aopen(request, connection)


def test_a_call_has_the_time_that_the_run_gives_it(log: TurnLog) -> None:
    """Else that of the connection."""
    for given in ({"call_timeout_s": 5.0}, {}):
        run(log, _Watching(say("Yes.")), **given)
    assert _Watching.timeouts == [5.0, HERE.timeout_s]
