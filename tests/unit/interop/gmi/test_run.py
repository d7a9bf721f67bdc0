"""Inputs that a model answers: which turns, chunks and outputs come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.agent.running import values
from tests.agent.scripted import HANG, HERE, MODEL, Scripted, call, say
from tests.unit.interop.gmi import made

from turnlog import Ask, TurnLog
from turnlog.errors import MetaError, ProviderError, RunError
from turnlog.interop import gmi
from turnlog.interop.gmi import FinishReason, GMIOutput, GMIOutputChunk
from turnlog.model import LossEntry, ReplyFacts
from turnlog.providers import Connection

T = gmi.GMIOutputChunkType

NOWHERE = Connection(api_key="k", base_url="http://127.0.0.1:1/", retries_max=0)
"""An address where nobody listens."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> str:
    """Fail always."""
    raise ValueError("no disk")


def asked(
    log: TurnLog, given: dict[str, Any], adapter: Scripted | None, **settings: Any
) -> tuple[GMIOutput, list[GMIOutputChunk]]:
    """Run an input with a scripted provider, and return the output and the chunks."""
    chunks: list[GMIOutputChunk] = []
    settings = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto", **settings}
    output = gmi.run(log, given, on_chunk=chunks.append, **values(**settings))
    assert_ends_once(chunks, output)
    return output, chunks


def assert_ends_once(chunks: Sequence[GMIOutputChunk], output: GMIOutput) -> None:
    """Check that the final chunk came once and last, and has the output; and that each chunk has its own id."""
    final = chunks[-1]
    assert [chunk.type for chunk in chunks if chunk.is_final] == [T.FINAL_RESPONSE_MARKER]
    assert [chunk.type for chunk in chunks].count(T.FINAL_RESPONSE_MARKER) == 1
    assert (final.is_final, final.finish_reason, final.error_details) == (True, output.finish_reason, output.error)
    assert final.content == output.model_dump(mode="json", by_alias=True)
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks)
    assert {chunk.interaction_id for chunk in chunks} == {output.interaction_id}


def of_type(chunks: Sequence[GMIOutputChunk], kind: gmi.GMIOutputChunkType) -> list[Any]:
    """Return the contents of the chunks of a type."""
    return [chunk.content for chunk in chunks if chunk.type == kind]


def test_an_input_is_recorded_and_answered(log: TurnLog) -> None:
    """The reply continues it in its session; text comes in pieces, then usage, latency and the final chunk."""
    adapter = Scripted([{"text": "Hel"}, {"text": "lo."}, {"end": "stop", "tokens": 7}])
    output, chunks = asked(log, made.text(sessionId="s"), adapter)
    assert [chunk.type for chunk in chunks] == [
        T.TEXT_DELTA,
        T.TEXT_DELTA,
        T.USAGE_UPDATE,
        T.LATENCY_REPORT,
        T.FINAL_RESPONSE_MARKER,
    ]
    assert of_type(chunks, T.TEXT_DELTA) == ["Hel", "lo."]
    assert of_type(chunks, T.USAGE_UPDATE) == [{"promptTokens": 0, "completionTokens": 7, "totalTokens": 7}]
    [latency] = of_type(chunks, T.LATENCY_REPORT)
    assert (latency["phase"], latency["iteration"]) == ("model_call", 1)
    assert 0 <= latency["firstTokenMs"] <= latency["durationMs"]
    assert (output.response_text, output.finish_reason, output.is_final) == ("Hello.", FinishReason.STOP, True)
    assert output.usage.model_dump(by_alias=True, exclude_none=True) == {
        "promptTokens": 0,
        "completionTokens": 7,
        "totalTokens": 7,
        "breakdown": [
            {"providerId": "scripted", "modelId": MODEL, "tokens": 7, "promptTokens": 0, "completionTokens": 7}
        ],
    }
    assert output.turn_ids == [turn.id for turn in log.ancestry("s")]
    assert output.head_id == log.turn("s").id
    assert gmi.output_of(log, "s") == output == gmi.output_of(log, output.turn_ids[0])


def test_chunks_and_outputs_are_camel_case_json() -> None:
    """As AgentOS writes them, and they are read again."""
    chunk = GMIOutputChunk.model_validate(
        {
            "interactionId": "i",
            "chunkId": "c",
            "type": "ui_command",
            "content": {"commandId": "u", "payload": {}},
            "timestamp": "2026-03-01T12:00:00Z",
            "isFinal": False,
            "finishReason": "stop",
            "usage": {"promptTokens": 1, "completionTokens": 2, "totalTokens": 3},
            "errorDetails": {"code": "c", "message": "m", "details": {"a": 1}},
            "metadata": {"x": 1},
        }
    )
    assert chunk.type == T.UI_COMMAND
    assert GMIOutputChunk.model_validate_json(chunk.model_dump_json(by_alias=True, exclude_none=True)) == chunk
    assert set(T) == {
        *("error", "final_response_marker", "latency_report", "reasoning_state_update", "system_message"),
        *("text_delta", "tool_call_request", "ui_command", "usage_update"),
    }
    output = GMIOutput(interaction_id="i", is_final=False)
    assert output.model_dump(by_alias=True)["turnIds"] == []


def test_thinking_is_told_as_reasoning(log: TurnLog) -> None:
    """And is no part of the text."""
    adapter = Scripted([{"thinking": "Hm."}, {"text": "Yes."}, {"end": "stop", "tokens": 1}])
    output, chunks = asked(log, made.text(), adapter)
    assert of_type(chunks, T.REASONING_STATE_UPDATE) == ["Hm."]
    assert output.response_text == "Yes."


def test_tools_are_run_until_the_model_is_done(log: TurnLog) -> None:
    """Each call is told of, each request can be made again, and each has the same prompt."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2}), text="I add."), call(("add", {"a": 3, "b": 4})), say("It is 7."))
    given = made.text(sessionId="s", metadata={"promptProfile": {"id": "p", "systemInstructions": "Be brief."}})
    output, chunks = asked(log, given, adapter, tools=add)
    assert of_type(chunks, T.TOOL_CALL_REQUEST) == [
        [{"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}],
        [{"id": "c1", "name": "add", "arguments": {"a": 3, "b": 4}}],
    ]
    assert (output.response_text, output.tool_calls, output.usage.total_tokens) == ("It is 7.", [], 30)
    assert len(output.turn_ids) == 6
    bodies = [[message["role"] for message in body["messages"]] for body in adapter.bodies]
    assert bodies == [["system", "user"] + ["assistant", "user"] * n for n in range(3)]
    assert [check.difference for check in log.calls.check("s", adapter=lambda *_: Scripted())] == [None] * 3
    assert [latency["iteration"] for latency in of_type(chunks, T.LATENCY_REPORT)] == [1, 2, 3]
    assert not log.verify().damage


def test_history_is_what_every_call_of_the_run_sees(log: TurnLog) -> None:
    """In place of the turns before; what the run adds stands behind it."""
    gmi.record(log, made.text("i0", "Old.", sessionId="s"))
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("It is 3."), say("Later."))
    history = [{"role": "user", "content": "Hi."}, {"role": "user", "content": "hello"}]
    given = made.text(sessionId="s", metadata={"conversationHistoryForPrompt": history})
    asked(log, given, adapter, tools=add)
    asked(log, made.text("i2", "More.", sessionId="s"), adapter)
    texts = [[message["content"][0].get("text") for message in body["messages"]] for body in adapter.bodies]
    assert texts == [["Hi.", "hello"], ["Hi.", "hello", None, None], ["Old.", "hello", None, None, "It is 3.", "More."]]
    checks = log.calls.check("s", adapter=lambda *_: Scripted())
    assert [check.difference for check in checks] == [None] * 3
    assert gmi.window_of(log, "s") == log.context("s")


# Asking again


def test_final_reply_is_given_again_and_no_model_is_asked(log: TurnLog) -> None:
    """Also where the session has gone on since; nothing is recorded."""
    adapter = Scripted(say("Yes."), say("Indeed."))
    first, _ = asked(log, made.text("i1", sessionId="s"), adapter)
    asked(log, made.text("i2", sessionId="s"), adapter)
    turns = log.stats().turns
    again, chunks = asked(log, made.text("i1", sessionId="s"), None)
    assert again == first
    assert [(chunk.type, chunk.content) for chunk in chunks][:-1] == [(T.TEXT_DELTA, "Yes.")]
    assert chunks[0].metadata == {"recorded": True}
    assert log.stats().turns == turns


def test_failed_call_is_made_again_when_it_is_asked_again(log: TurnLog) -> None:
    """The failed turn stays in the log, and no window has it."""
    adapter = Scripted([ProviderError("overloaded", provider="scripted", retryable=True, status=529)], say("Yes."))
    failed, chunks = asked(log, made.text(sessionId="s"), adapter)
    assert failed.error == gmi.GMIError(
        code="ModelCallError", message="overloaded", details={"retryable": True, "status": 529}
    )
    assert (failed.finish_reason, failed.is_final, failed.response_text) == (FinishReason.ERROR, False, None)
    assert [chunk.type for chunk in chunks][-2:] == [T.ERROR, T.FINAL_RESPONSE_MARKER]
    assert of_type(chunks, T.ERROR) == ["overloaded"]
    output, _ = asked(log, made.text(sessionId="s"), adapter)
    assert (output.response_text, output.error, len(output.turn_ids)) == ("Yes.", None, 3)
    assert adapter.bodies[0] == adapter.bodies[1]


def test_run_that_was_broken_off_behind_its_tools_goes_on_there(log: TurnLog) -> None:
    """No tool is called twice."""
    calls: list[int] = []

    def count() -> int:
        """Count."""
        calls.append(1)
        return len(calls)

    adapter = Scripted(call(("count", {})), say("One."))
    stopped, _ = asked(log, made.text(), adapter, tools=count, iterations_max=1)
    assert (stopped.finish_reason, [each.name for each in stopped.tool_calls]) == (FinishReason.ITERATIONS, ["count"])
    output, _ = asked(log, made.text(), adapter, tools=count)
    assert (output.response_text, calls) == ("One.", [1])


def test_where_two_runs_went_side_by_side_the_one_that_finished_counts(log: TurnLog) -> None:
    """Each is a branch of the log."""
    turn = gmi.record(log, made.text())
    log.add_turn(
        "Half", role="assistant", continues=turn.id, reply=ReplyFacts(stop_reason="aborted", error="cancelled")
    )
    done = log.add_turn("Whole.", role="assistant", continues=turn.id, reply=ReplyFacts(stop_reason="stop"))
    log.add_turn(
        "Half", role="assistant", continues=turn.id, reply=ReplyFacts(stop_reason="aborted", error="cancelled")
    )
    assert gmi.output_of(log, turn.id).turn_ids == [turn.id, done.id]
    output, _ = asked(log, made.text(), None)
    assert output.response_text == "Whole."


def test_output_of_an_input_that_was_not_answered_says_so(log: TurnLog) -> None:
    """It has no reply and no reason; what is no turn of a GMI has no output."""
    turn = gmi.record(log, made.text())
    output = gmi.output_of(log, turn.id)
    assert (output.is_final, output.finish_reason, output.response_text) == (False, None, None)
    other = log.add_turn("x")
    with pytest.raises(MetaError, match="is neither an input nor of the run of one"):
        gmi.output_of(log, other.id)


# Tools that the caller runs


def test_calls_without_approval_are_the_callers_to_answer(log: TurnLog) -> None:
    """The output asks for them, and an input of type tool_response answers them."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("It is 3."))
    asking, chunks = asked(log, made.text("i1", sessionId="s"), adapter, tools=add, approve="ask")
    assert (asking.finish_reason, asking.is_final) == (FinishReason.TOOL_CALLS, False)
    assert [request.model_dump(exclude_none=True) for request in asking.tool_calls] == [
        {"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}
    ]
    assert of_type(chunks, T.TOOL_CALL_REQUEST) == [[{"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}]]
    result = {"toolCallId": "c1", "toolName": "add", "output": 3, "isError": False}
    answered, _ = asked(log, made.text("i2", result, kind="tool_response", sessionId="s"), adapter, tools=add)
    assert answered.response_text == "It is 3."
    assert adapter.bodies[1]["messages"][-1]["content"] == [
        {
            "type": "tool_result",
            "content": [{"type": "text", "text": "3"}],
            "tool_use_id": "c1",
            "name": "add",
            "is_error": False,
        }
    ]
    assert gmi.output_of(log, asking.turn_ids[0]) == asking
    again, _ = asked(log, made.text("i1", sessionId="s"), None, tools=add)
    assert again == asking  # its calls are answered, and nothing is asked or run again


@pytest.mark.parametrize("arguments", ['{"a":1e999}', "{broken"])
def test_arguments_that_cannot_be_read_are_given_as_text(log: TurnLog, arguments: str) -> None:
    """The call is told of all the same."""
    adapter = Scripted(call(("add", arguments)))
    _, chunks = asked(log, made.text(), adapter, tools=add, approve="ask")
    assert of_type(chunks, T.TOOL_CALL_REQUEST) == [
        [{"id": "c1", "name": "add", "arguments": {}, "malformedArguments": arguments}]
    ]


# Policies


def policy(mode: str | None = None, selection: str | None = None, **discovery: Any) -> dict[str, Any]:
    """Return metadata with an execution policy, and what was discovered."""
    return {
        "executionPolicy": {"toolFailureMode": mode, "toolSelectionMode": selection},
        "capabilityDiscovery": discovery or None,
    }


@pytest.mark.parametrize("mode", ["fail_open", None])
def test_fail_open_lets_the_model_see_the_failure(log: TurnLog, mode: str | None) -> None:
    """So does no policy. The failure is told of."""
    adapter = Scripted(call(("fail", {})), say("Sorry."))
    output, chunks = asked(log, made.text(metadata=policy(mode)), adapter, tools=fail)
    assert (output.response_text, output.finish_reason) == ("Sorry.", FinishReason.STOP)
    [told] = of_type(chunks, T.SYSTEM_MESSAGE)
    assert told.startswith("the tool 'fail' failed: ")
    assert "no disk" in told


def test_fail_closed_stops_at_the_failure(log: TurnLog) -> None:
    """The result is in the log, and the model is not asked again; the caller's own word does not count then."""
    adapter = Scripted(call(("fail", {})), say("Sorry."))
    given = made.text(metadata=policy("fail_closed"))
    output, chunks = asked(log, given, adapter, tools=fail, on_tool_error="continue")
    assert (output.finish_reason, output.is_final) == (FinishReason.TOOL_ERROR, False)
    assert output.error == gmi.GMIError(code="ToolError", message="a tool failed")
    assert of_type(chunks, T.ERROR) == ["a tool failed"]
    assert len(adapter.bodies) == 1


@pytest.mark.parametrize(
    ("metadata", "tools", "notes"),
    [
        (policy(selection="all", selectedToolNames=["add"]), ["add", "fail"], []),
        (policy(selectedToolNames=["add"]), ["add", "fail"], []),
        (policy(selection="discovered", selectedToolNames=["add"]), ["add"], []),
        (
            policy(selection="discovered", selectedToolNames=["add", "a*"]),
            ["add"],
            ["the selected tool 'a*' is not offered: there is none of this name"],
        ),
        (
            policy(selection="discovered", selectedToolNames=[], fallbackReason="no match"),
            ["add", "fail"],
            ["all tools are offered: no match"],
        ),
        (policy(selection="discovered"), ["add", "fail"], ["all tools are offered: none was discovered"]),
    ],
)
def test_discovered_tools_alone_are_offered(
    log: TurnLog, metadata: dict[str, Any], tools: list[str], notes: list[str]
) -> None:
    """All of them where none was, and the reason is told."""
    adapter = Scripted(say("Yes."))
    output, chunks = asked(log, made.text(metadata=metadata), adapter, tools=[add, fail])
    assert adapter.bodies[0]["tools"] == tools
    assert output.notes == of_type(chunks, T.SYSTEM_MESSAGE) == notes


# Which model


def pointers(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a pointer, and a provider of Chat Completions at an address where nobody listens."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for name in ("openai", "anthropic"):
        log.providers.set(name, base_url="http://127.0.0.1:1/")
    log.pointers.set("kilo", "openai", "model-1", params={"max_tokens": 5})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("openai", "model-1", 5)),
        ({"preferredModelId": "model-2"}, ("openai", "model-2", 5)),
        ({"modelId": "model-2"}, ("openai", "model-2", 5)),
        ({"preferredProviderId": "openai"}, ("openai", "model-1", 5)),
        ({"preferredProviderId": "openai", "preferredModelId": "model-1"}, ("openai", "model-1", 5)),
        ({"preferredProviderId": "openai", "preferredModelId": "model-2"}, ("openai", "model-2", 5)),
        ({"preferredProviderId": "anthropic", "preferredModelId": "model-3"}, ("anthropic", "model-3", None)),
    ],
)
def test_preferred_model_wins_over_the_pointer(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """Where only one of the two is given the pointer says the other; its parameters hold for its own provider."""
    pointers(log, monkeypatch)
    output = gmi.run(log, made.text(metadata={"options": options}), pointer="kilo", ask=Ask(connection=NOWHERE))
    [call_id] = [event.header.id for event in log.events(topics="gpt.call")]
    recorded = log.calls.get(call_id).meta
    assert (recorded.provider, recorded.model, recorded.parameters.get("max_tokens")) == expected
    assert output.finish_reason == FinishReason.ERROR  # nobody listens there


@pytest.mark.parametrize(
    ("options", "settings", "code", "message"),
    [
        ({}, {}, "RunError", "nothing says which model to ask"),
        ({}, {"pointer": "mega"}, "UnknownPointerError", "mega"),
        ({"preferredModelId": "m"}, {}, "RunError", "options.preferredModelId 'm' says no provider"),
        ({"preferredProviderId": "anthropic"}, {"pointer": "kilo"}, "RunError", "says no model"),
        ({"preferredProviderId": "nobody", "preferredModelId": "m"}, {}, "UnknownProviderError", "nobody"),
        (
            {"preferredProviderId": "x" * 10_000, "preferredModelId": "m"},
            {},
            "UnknownProviderError",
            "(10000 characters)",
        ),
        ({"preferredModelId": "x" * 10_000}, {}, "RunError", "(10000 characters)"),
        ({"toolChoice": "cut"}, {"pointer": "kilo", "tools": add}, "ContentError", "'cut'"),
    ],
)
def test_refused_start_is_told_and_not_raised(
    log: TurnLog,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    settings: dict[str, Any],
    code: str,
    message: str,
) -> None:
    """As an error and the final chunk; the input is recorded, and can be asked again."""
    pointers(log, monkeypatch)
    given = made.text(metadata={"options": options})
    chunks: list[GMIOutputChunk] = []
    output = gmi.run(log, given, on_chunk=chunks.append, **values(**settings))
    assert_ends_once(chunks, output)
    assert output.error is not None
    assert (output.error.code, output.finish_reason) == (code, FinishReason.ERROR)
    assert message in output.error.message
    assert len(output.error.message) < 300
    assert [chunk.type for chunk in chunks] == [T.ERROR, T.FINAL_RESPONSE_MARKER]
    assert output.turn_ids == [gmi.record(log, given).id]


def test_missing_key_is_told_and_not_raised(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither the input nor the environment has one."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    log.pointers.set("kilo", "openai", "model-1")
    output = gmi.run(log, made.text(), pointer="kilo")
    assert output.error is not None
    assert output.error.code == "MissingKeyError"


def test_input_that_cannot_be_recorded_is_told_and_not_raised(log: TurnLog) -> None:
    """Nothing was recorded then."""
    output, _ = asked(log, made.text(metadata={"options": {"apiKey": "abc"}}), Scripted(say("Yes.")))
    assert output.error is not None
    assert (output.error.code, output.turn_ids, output.head_id) == ("SecretError", [], None)
    assert log.id is None


def test_malformed_input_is_raised(log: TurnLog) -> None:
    """It has no interaction that could be answered."""
    chunks: list[GMIOutputChunk] = []
    with pytest.raises(MetaError):
        gmi.run(log, {"userId": "ada"}, on_chunk=chunks.append)

    async def streamed() -> None:
        async for chunk in gmi.stream(log, {"userId": "ada"}):
            chunks.append(chunk)

    with pytest.raises(MetaError):
        asyncio.run(streamed())
    assert chunks == []


def test_callers_model_wins_over_the_preferred_one(log: TurnLog) -> None:
    """What the input prefers is told as not asked."""
    options = {"preferredModelId": "m", "preferredProviderId": "scripted"}
    output, _ = asked(log, made.text(metadata={"options": options}), Scripted(say("Yes.")))
    assert output.notes == ["options.preferredModelId 'm' is not asked: the caller named another"]


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_error_of_another_kind_is_told_and_raised(log: TurnLog, kind: type[BaseException]) -> None:
    """The final chunk comes all the same."""
    chunks: list[GMIOutputChunk] = []

    def refuse(_: object) -> bool:
        raise kind

    with pytest.raises(kind):
        gmi.run(
            log,
            made.text(),
            tools=add,
            on_chunk=chunks.append,
            model=MODEL,
            on_approval=refuse,
            ask=Ask(adapter=Scripted(call(("add", {"a": 1, "b": 2}))), connection=HERE),
        )
    assert [chunk.type for chunk in chunks][-2:] == [T.ERROR, T.FINAL_RESPONSE_MARKER]


def test_run_inside_an_event_loop_is_refused(log: TurnLog) -> None:
    """There `arun` is to be awaited."""

    async def inside() -> None:
        gmi.run(log, made.text())

    with pytest.raises(RunError, match="await `arun` there"):
        asyncio.run(inside())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"continues": "s"}, r"^'continues' is not the caller's to set: "),
        ({"on_window": None}, r"^'on_window' is not the caller's to set: "),
        ({"offer": ["add"]}, r"^'policy.offer' is not the caller's to set: "),
        ({"tool_choice": "auto"}, r"^'ask.tool_choice' is not the caller's to set: "),
        ({"itterations_max": 3}, r"^there is no setting 'itterations_max' \(one of ask, "),
        ({"x" * 10_000: 3}, r"^there is no setting 'x{40}'… \(10000 characters\) "),
    ],
)
def test_setting_that_is_none_is_refused(log: TurnLog, settings: dict[str, Any], message: str) -> None:
    """By name, before anything is recorded or told."""
    chunks: list[GMIOutputChunk] = []
    with pytest.raises(RunError, match=message):
        gmi.run(
            log, made.text(), on_chunk=chunks.append, model=MODEL, **values(**settings, adapter=Scripted(say("Yes.")))
        )
    with pytest.raises(RunError, match=message):
        asyncio.run(streamed(log, made.text(), Scripted(say("Yes.")), **settings))
    assert chunks == []
    assert log.id is None


# Keys


def test_interaction_without_a_key_is_asked_again_with_one(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same interaction."""
    monkeypatch.delenv("SCRIPTED_API_KEY", raising=False)
    settings: Any = {"model": MODEL, "connection": None}
    first, _ = asked(log, made.text(), Scripted(say("Yes.")), **settings)
    assert first.error is not None
    assert first.error.code == "MissingKeyError"
    again, _ = asked(
        log, made.text(metadata={"userApiKeys": {"scripted": made.KEY}}), Scripted(say("Yes.")), **settings
    )
    assert (again.response_text, again.turn_ids[0]) == ("Yes.", first.turn_ids[0])


def echo(key: str) -> str:
    """Fail, and say why."""
    raise ValueError(f"no {key}")


ECHOES: list[list[Any]] = [
    [RuntimeError(f"no {made.KEY}")],
    [ProviderError(f"no {made.KEY}", provider="scripted")],
    [{"text": "It is "}, *({"text": letter} for letter in made.KEY), {"text": "."}, {"end": "stop", "tokens": 1}],
    [{"thinking": made.KEY[:5]}, {"thinking": made.KEY[5:]}, {"text": "Yes."}, {"end": "stop", "tokens": 1}],
    [{"text": f"It is {made.KEY[:9]}"}, ProviderError(f"no {made.KEY}", provider="scripted")],
    call(("echo", {"key": made.KEY}), text=made.KEY),
    call((made.KEY, {})),
    call(("echo", f"{{broken {made.KEY}")),
]


@pytest.mark.parametrize("source", ["user", "connection", "environment"])
@pytest.mark.parametrize("reply", ECHOES)
def test_nothing_that_is_told_has_a_key(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, reply: list[Any], source: str
) -> None:
    """Whoever repeats it, in whatever pieces, and wherever it is from."""
    monkeypatch.setenv("SCRIPTED_API_KEY", made.KEY if source == "environment" else "the-key-of-the-house")
    metadata = {"userApiKeys": {"scripted": made.KEY}} if source == "user" else {}
    connection = Connection(api_key=made.KEY) if source == "connection" else None
    chunks: list[GMIOutputChunk] = []
    settings: Any = {"connection": connection, "tools": echo, "approve": "auto", "on_chunk": chunks.append}
    outputs: list[GMIOutput] = []
    adapter = Scripted(reply, say("Done."))
    with suppress(RuntimeError):  # it is the adapter's own, and is raised as it is
        outputs.append(gmi.run(log, made.text(metadata=metadata), model=MODEL, **values(**settings, adapter=adapter)))
    told = [*(chunk.model_dump_json() for chunk in chunks), *(output.model_dump_json() for output in outputs)]
    assert len(told) > 1
    assert not [line for line in told if made.KEY in line]
    texts = "".join(of_type(chunks, T.TEXT_DELTA) + of_type(chunks, T.REASONING_STATE_UPDATE))
    assert made.KEY not in texts
    assert chunks[-1].is_final


def test_text_that_only_begins_like_a_key_is_told_whole(log: TurnLog) -> None:
    """Also where the reply ends with it, and where another block follows."""
    half = made.KEY[:7]
    adapter = Scripted([{"thinking": half}, {"text": f"It is {half}"}, {"end": "stop", "tokens": 1}])
    given = made.text(metadata={"userApiKeys": {"scripted": made.KEY}})
    output, chunks = asked(log, given, adapter)
    assert of_type(chunks, T.REASONING_STATE_UPDATE) == [half]
    assert of_type(chunks, T.TEXT_DELTA) == ["It is ", half]
    assert output.response_text == f"It is {half}"


# Streams and cancellations


async def streamed(log: TurnLog, given: dict[str, Any], adapter: Scripted, **settings: Any) -> list[GMIOutputChunk]:
    """Return all chunks of a stream."""
    settings = {"model": MODEL, "adapter": adapter, "connection": HERE, "approve": "auto", **settings}
    return [chunk async for chunk in gmi.stream(log, given, **values(**settings))]


def test_stream_yields_the_chunks_of_the_run(log: TurnLog) -> None:
    """The final one is the last."""
    chunks = asyncio.run(streamed(log, made.text(sessionId="s"), Scripted(say("Yes."))))
    assert_ends_once(chunks, gmi.output_of(log, "s"))
    assert of_type(chunks, T.TEXT_DELTA) == ["Yes."]


def test_who_leaves_a_stream_cancels_the_run(log: TurnLog) -> None:
    """The log has the aborted turn; asked again, the call is made again."""
    adapter = Scripted([{"text": "Half"}, HANG], say("Whole."))

    async def leave() -> None:
        chunks = gmi.stream(log, made.text(sessionId="s"), model=MODEL, ask=Ask(adapter=adapter, connection=HERE))
        async for chunk in chunks:
            assert chunk.content == "Half"
            break
        await chunks.aclose()

    asyncio.run(leave())
    aborted = log.turn("s")
    assert (aborted.meta.stop_reason, log.payload(aborted.id)) == ("aborted", b'[{"type":"text","text":"Half"}]')
    assert gmi.output_of(log, "s").finish_reason == FinishReason.ABORTED
    output, _ = asked(log, made.text(sessionId="s"), adapter)
    assert output.response_text == "Whole."


def test_cancelled_run_tells_its_end_and_goes_on_as_cancelled(log: TurnLog) -> None:
    """The final chunk says so, and has what there was."""
    adapter = Scripted([{"text": "Half"}, HANG])
    chunks: list[GMIOutputChunk] = []

    async def cancel() -> None:
        task = asyncio.create_task(
            gmi.arun(
                log,
                made.text(sessionId="s"),
                on_chunk=chunks.append,
                model=MODEL,
                ask=Ask(adapter=adapter, connection=HERE),
            )
        )
        await adapter.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert chunks[-1].finish_reason == FinishReason.ABORTED
    assert_ends_once(chunks, GMIOutput.model_validate(chunks[-1].content))
    assert GMIOutput.model_validate(chunks[-1].content).response_text == "Half"
    assert log.turn("s").meta.stop_reason == "aborted"


@pytest.mark.parametrize("kind", [T.TEXT_DELTA, T.USAGE_UPDATE, T.LATENCY_REPORT])
@pytest.mark.parametrize(
    "raised", [ZeroDivisionError("mine"), MetaError("mine", field="x"), ProviderError("mine", provider="x")]
)
def test_who_fails_at_a_chunk_gets_no_more(log: TurnLog, kind: gmi.GMIOutputChunkType, raised: Exception) -> None:
    """But the final one, which says so; and what was raised is raised, of whatever kind it is."""
    chunks: list[GMIOutputChunk] = []

    def once(chunk: GMIOutputChunk) -> None:
        chunks.append(chunk)
        if chunk.type == kind:
            raise raised

    with pytest.raises(type(raised)) as caught:
        gmi.run(log, made.text(), on_chunk=once, model=MODEL, ask=Ask(adapter=Scripted(say("Yes.")), connection=HERE))
    assert caught.value is raised
    assert [chunk.type for chunk in chunks][-2:] == [kind, T.FINAL_RESPONSE_MARKER]
    told = GMIOutput.model_validate(chunks[-1].content)
    assert told.error is not None
    assert (told.error.code, told.finish_reason) == (type(raised).__name__, FinishReason.ERROR)
    assert told.error.message == "on_chunk failed at a chunk, and broke the run off"
    assert_ends_once(chunks, told)


def test_who_fails_at_every_chunk_is_told_of_the_first_failure(log: TurnLog) -> None:
    """That at the final chunk is a note of it; where the final one alone fails, that is raised."""
    count = 0

    def always(_: GMIOutputChunk) -> None:
        nonlocal count
        count += 1
        raise ValueError(f"number {count}")

    def last(chunk: GMIOutputChunk) -> None:
        if chunk.is_final:
            raise ValueError("at the end")

    settings: Any = {"model": MODEL, "connection": HERE}
    with pytest.raises(ValueError, match=r"^number 1\n") as caught:
        gmi.run(log, made.text("i1"), on_chunk=always, **values(**settings, adapter=Scripted(say("Yes."))))
    assert caught.value.__notes__ == ["on_chunk failed at the final chunk too: ValueError: number 2"]
    with pytest.raises(ValueError, match=r"^at the end$"):
        gmi.run(log, made.text("i2"), on_chunk=last, **values(**settings, adapter=Scripted(say("Yes."))))


def test_error_of_the_run_is_raised_before_that_of_who_was_told(log: TurnLog) -> None:
    """It has a note of each failure; an error that is told and not raised is in the final chunk."""
    chunks: list[GMIOutputChunk] = []

    def at_the_end(chunk: GMIOutputChunk) -> None:
        chunks.append(chunk)
        if chunk.type in (T.ERROR, T.FINAL_RESPONSE_MARKER):
            raise ValueError(chunk.type)

    settings: Any = {"model": MODEL, "connection": HERE, "on_chunk": at_the_end}
    with pytest.raises(ZeroDivisionError) as caught:
        gmi.run(log, made.text("i1"), **values(**settings, adapter=Scripted([ZeroDivisionError("adapter")])))
    assert caught.value.__notes__ == [
        "on_chunk failed at the chunk that tells of it: ValueError: error",
        "on_chunk failed at the final chunk too: ValueError: final_response_marker",
    ]
    assert [chunk.type for chunk in chunks][-2:] == [T.ERROR, T.FINAL_RESPONSE_MARKER]
    with pytest.raises(ValueError, match=r"^error\n"):
        gmi.run(log, made.text("i2"), **values(**settings, adapter=Scripted(say("Yes.")), pointer="kilo"))
    told = GMIOutput.model_validate(chunks[-1].content)
    assert told.error is not None
    assert told.error.code == "RunError"


def test_end_is_told_when_the_store_cannot_be_read() -> None:
    """Whatever has become of it; the error is that of the store."""
    log = TurnLog.open("memory://")
    adapter = Scripted([{"text": "Half"}, log.store.close, {"end": "stop", "tokens": 1}])
    output, chunks = asked(log, made.text(), adapter)
    assert output.error is not None
    assert output.error.code == "StoreClosedError"
    assert [chunk.type for chunk in chunks] == [T.TEXT_DELTA, T.ERROR, T.FINAL_RESPONSE_MARKER]


def test_who_leaves_a_stream_at_its_end_leaves_nothing_behind(log: TurnLog) -> None:
    """The reply is recorded."""

    async def leave() -> None:
        chunks = gmi.stream(
            log, made.text(sessionId="s"), model=MODEL, ask=Ask(adapter=Scripted(say("Yes.")), connection=HERE)
        )
        async for chunk in chunks:
            if chunk.is_final:
                break
        await chunks.aclose()

    asyncio.run(leave())
    assert gmi.output_of(log, "s").response_text == "Yes."


def test_two_interactions_of_a_session_at_the_same_time_are_both_answered(log: TurnLog) -> None:
    """Each by its own reply; the one that came later stands behind the other or beside it."""

    async def both() -> list[GMIOutput]:
        runs = [
            gmi.arun(
                log,
                made.text(f"i{n}", sessionId="s"),
                model=MODEL,
                ask=Ask(adapter=Scripted(say(f"{n}.")), connection=HERE),
            )
            for n in (1, 2)
        ]
        return list(await asyncio.gather(*runs))

    assert [output.response_text for output in asyncio.run(both())] == ["1.", "2."]
    assert not log.verify().damage


def test_what_the_api_cannot_carry_is_told_once(log: TurnLog) -> None:
    """In chunks and in the output, however many calls the run makes."""
    adapter = Scripted(call(("add", {"a": 1, "b": 2})), say("It is 3."))
    content = {"type": "base64", "data": made.PIXEL, "mimeType": "application/pdf"}
    output, chunks = asked(log, made.text(content=content, kind="multimodal_content"), adapter, tools=add)
    assert output.notes == of_type(chunks, T.SYSTEM_MESSAGE)
    [note] = output.notes
    turn = output.turn_ids[0]
    entry = log.calls.get(next(log.events(topics="gpt.call")).header.id).loss_report.entries[0]
    assert isinstance(entry, LossEntry)
    assert note == f"document of turn {turn!r} {entry.kind}: {entry.why}"


def test_what_no_prompt_has_of_a_history_is_told_by_the_run(log: TurnLog) -> None:
    """In chunks and in the output; the conversation has the rest."""
    history = [{"role": "user", "content": "Hi.", "name": "bob"}, {"role": "assistant"}]
    adapter = Scripted(say("Yes."))
    output, chunks = asked(log, made.text(metadata={"conversationHistoryForPrompt": history}), adapter)
    assert output.notes == of_type(chunks, T.SYSTEM_MESSAGE)
    assert [note.split(": ")[0] for note in output.notes] == [
        "metadata.conversationHistoryForPrompt[0].name is not carried",
        "metadata.conversationHistoryForPrompt[1] is left out",
    ]
    assert [message["role"] for message in adapter.bodies[0]["messages"]] == ["user", "user"]
