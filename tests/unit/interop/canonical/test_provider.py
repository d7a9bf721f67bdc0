"""A provider that is one function, in the run loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from turnlog import Ask, Policy, TurnLog
from turnlog.errors import UnsupportedContentError
from turnlog.interop import canonical
from turnlog.interop.canonical import (
    AgentContext,
    AgentTool,
    AgentToolResult,
    AgentTools,
    AssistantMessage,
    CompleteProvider,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    provider_of,
)
from turnlog.interop.canonical import Usage as CanonicalUsage
from turnlog.model import Delta, Text, Thinking, ToolUse, Usage, decode_content, parse_tools, parse_window
from turnlog.providers import Connection, OnLoss, Reply

CALLS = AssistantMessage(
    content=[
        ThinkingContent(thinking="hm", thinking_signature="s=="),
        ToolCall(id="call|1", name="add", arguments={"a": 1, "b": 2}),
    ],
    timestamp=5,
    stop_reason="tool-use",
    usage=CanonicalUsage(input=10, output=4, cache_read=4, total_tokens=14),
)
ANSWERS = AssistantMessage(content=[TextContent(text="It is 3.")], timestamp=6, stop_reason="stop")


class Scripted:
    """A provider as a function: gives its replies in order, and keeps the contexts that it was given."""

    def __init__(self, *replies: AssistantMessage | Exception | object) -> None:
        """Take the replies; an exception is raised."""
        self.replies = list(replies)
        self.contexts: list[AgentContext] = []

    def complete(self, context: AgentContext) -> AssistantMessage:
        """Give the next reply."""
        self.contexts.append(context)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply  # type: ignore[return-value]

    async def acomplete(self, context: AgentContext) -> AssistantMessage:
        """Give the next reply, in the event loop."""
        await asyncio.sleep(0)
        return self.complete(context)

    def later(self, context: AgentContext) -> object:
        """Give what the next reply can be awaited of."""
        return self.acomplete(context)


def adding() -> AgentTools:
    """Return a tool that adds."""

    def execute(given: dict[str, int], _tell: object) -> AgentToolResult:
        return AgentToolResult(content=[TextContent(text=str(given["a"] + given["b"]))], is_error=False)

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    return AgentTools([AgentTool(name="add", description="Add.", parameters=schema, execute=execute)])


@pytest.mark.parametrize("way", ["complete", "acomplete", "later"])
def test_function_is_asked_by_a_run(log: TurnLog, way: str) -> None:
    """A plain function, an async one and one that returns an awaitable are asked until there is no call left."""
    scripted = Scripted(CALLS, ANSWERS)
    result = log.run(
        "1 + 2?",
        model="m-1",
        tools=adding(),
        policy=Policy(approve="auto"),
        ask=Ask(adapter=provider_of(getattr(scripted, way), provider="mine"), params={"max_tokens": 99}),
    )
    assert result.stopped == "done"
    first, second = scripted.contexts
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    assert first == AgentContext(
        max_tokens=99,
        messages=[UserMessage(content="1 + 2?", timestamp=0)],
        tools=[Tool(name="add", description="Add.", parameters=schema)],
    )
    assert second.messages[1:] == [
        AssistantMessage(content=CALLS.content, timestamp=0, provider="mine", model="m-1"),
        ToolResultMessage(
            tool_call_id="call|1",
            tool_name="add",
            content=[TextContent(text="3")],
            is_error=False,
            timestamp=0,
        ),
    ]


def test_request_and_reply_are_recorded_exactly(log: TurnLog) -> None:
    """The recorded request is the context as JSON, the raw event of the reply the message with all that it says."""
    scripted = Scripted(CALLS)
    adapter = provider_of(scripted.complete, provider="mine", api="anthropic-messages")
    result = log.run("hi", model="m-1", policy=Policy(iterations_max=1), ask=Ask(adapter=adapter))
    assert log.calls.request(result.calls[0]) == canonical.to_json(scripted.contexts[0])
    assert log.calls.events(result.head.id) == [canonical.to_json(CALLS)]
    meta = result.head.meta
    assert (meta.provider, meta.api, meta.model, meta.stop_reason) == ("mine", "messages", "m-1", "tool_use")
    assert meta.usage == Usage(input_tokens=6, output_tokens=4, cache_read_input_tokens=4)
    blocks = decode_content(log.payload(result.head.id))
    assert [type(block) for block in blocks] == [Thinking, ToolUse]


def test_turns_of_a_run_are_messages_again(log: TurnLog) -> None:
    """What the function said comes back from the log, with the time at which it was recorded."""
    scripted = Scripted(CALLS, ANSWERS)
    adapter = provider_of(scripted.complete, provider="mine", api="anthropic-messages")
    ran = log.run("1 + 2?", model="m", tools=adding(), policy=Policy(approve="auto"), ask=Ask(adapter=adapter))
    found, report = canonical.messages(log, ran.head.id)
    assert [type(message).__name__ for message in found] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResultMessage",
        "AssistantMessage",
    ]
    assert [found[1].content, found[3].content] == [CALLS.content, ANSWERS.content]
    assert [message.timestamp for message in found] == [turn.time_ms for turn in ran.turns]
    assert {entry.block for entry in report.entries} == {"raw_stop_reason"}


def test_cancelled_call_is_an_aborted_turn(log: TurnLog) -> None:
    """Who cancels a run finds an aborted turn; the function is cancelled with it."""
    called = asyncio.Event()

    async def hanging(_context: AgentContext) -> AssistantMessage:
        called.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def cancel() -> None:
        run = asyncio.ensure_future(log.arun("hi", bookmark="main", model="m", ask=Ask(adapter=provider_of(hanging))))
        await called.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancel())
    assert log.turn("main").meta.stop_reason == "aborted"


def test_recorded_run_can_be_replayed(log: TurnLog) -> None:
    """The same run over the recorded replies asks nobody, and comes to the same turns."""
    scripted = Scripted(CALLS, ANSWERS)
    adapter = provider_of(scripted.complete)
    ran = log.run("1 + 2?", model="m", tools=adding(), policy=Policy(approve="auto"), ask=Ask(adapter=adapter))
    replies = log.calls.replies()
    again = log.run(
        "1 + 2?", model="m", tools=adding(), policy=Policy(approve="auto"), ask=Ask(adapter=adapter, replay=replies)
    )
    assert [turn.hash for turn in again.turns] == [turn.hash for turn in ran.turns]
    assert scripted.replies == []


def test_system_turns_are_the_system_prompt(log: TurnLog) -> None:
    """System turns are joined to one text."""
    scripted = Scripted(ANSWERS)
    log.add_turn("Be brief.", role="system", bookmark="main")
    log.add_turn("Be kind.", role="system", continues="main")
    log.run("hi", continues="main", model="m", ask=Ask(adapter=provider_of(scripted.complete)))
    assert scripted.contexts[0].system_prompt == "Be brief.\n\nBe kind."


def test_thinking_of_others_is_dropped_and_reported(log: TurnLog) -> None:
    """Thinking goes to the provider, api and model that it is of, and to no other; the call says so."""
    scripted = Scripted(CALLS, ANSWERS, ANSWERS)
    adapter = provider_of(scripted.complete, provider="mine")
    asked = log.run("hi", model="m-1", policy=Policy(iterations_max=1), ask=Ask(adapter=adapter))
    log.run("go on", continues=asked.head.id, model="m-1", ask=Ask(adapter=adapter))
    other = log.run("go on", continues=asked.head.id, model="m-2", ask=Ask(adapter=adapter))
    own, others = (context.messages[1] for context in scripted.contexts[1:])
    assert isinstance(own, AssistantMessage)
    assert isinstance(others, AssistantMessage)
    assert own.content == CALLS.content
    assert others.content == CALLS.content[1:]
    entries = log.calls.get(other.calls[0]).loss_report.entries
    assert [(entry.kind, entry.turn, entry.block) for entry in entries] == [
        ("dropped", asked.head.id, "thinking"),
        ("synthesised", asked.head.id, "tool_result"),
    ]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ValueError("no such model"), "canonical failed: ValueError: no such model"),
        ("text", "canonical returned str: return an AssistantMessage"),
        (StopIteration(), "canonical failed: RuntimeError: coroutine raised StopIteration"),
        (
            AssistantMessage(content=[], timestamp=1, stop_reason="error", error_message="overloaded"),
            "overloaded",
        ),
        (AssistantMessage(content=[], timestamp=1, stop_reason="error"), "the provider says no more"),
        (
            AssistantMessage(content=[], timestamp=float("nan")),
            "canonical gave a reply that JSON cannot carry: AssistantMessage.timestamp: JSON has no NaN and no "
            "infinity",
        ),
    ],
)
@pytest.mark.parametrize("way", ["complete", "acomplete"])
def test_failures_are_failed_turns(log: TurnLog, reply: object, error: str, way: str) -> None:
    """What the function raises, and a message that tells of an error, ends the run with a failed turn."""
    scripted = Scripted(reply)
    adapter = provider_of(getattr(scripted, way))
    result = log.run("hi", model="m", ask=Ask(adapter=adapter))
    assert result.stopped == "error"
    assert (result.head.meta.stop_reason, result.head.meta.error) == ("error", error)


def test_context_that_cannot_be_read_is_a_failed_turn(log: TurnLog) -> None:
    """A budget that is no number is told as a failure of the call, and the function is not asked."""
    scripted = Scripted()
    params = {"max_tokens": "many"}
    result = log.run("hi", model="m", ask=Ask(adapter=provider_of(scripted.complete), params=params))
    assert result.stopped == "error"
    assert scripted.contexts == []
    assert str(result.head.meta.error).startswith("canonical failed: ContentError: context.max-tokens: expected")


def test_aborted_reply_is_an_aborted_turn(log: TurnLog) -> None:
    """What had arrived of a reply that the provider aborted is kept."""
    scripted = Scripted(AssistantMessage(content=[TextContent(text="I w")], timestamp=1, stop_reason="aborted"))
    result = log.run("hi", model="m", ask=Ask(adapter=provider_of(scripted.complete)))
    assert result.stopped == "aborted"
    assert decode_content(log.payload(result.head.id)) == [Text(text="I w")]


def test_missing_stop_reason_is_told_by_the_calls(log: TurnLog) -> None:
    """A message that does not say why it stopped stopped for its calls, where it has some."""
    scripted = Scripted(msgspec.structs.replace(CALLS, stop_reason=None), AssistantMessage(content=[], timestamp=1))
    adapter = provider_of(scripted.complete)
    result = log.run("hi", model="m", tools=adding(), policy=Policy(approve="auto"), ask=Ask(adapter=adapter))
    replied = [turn.meta.stop_reason for turn in result.turns if turn.meta.role == "assistant"]
    assert replied == ["tool_use", "stop"]


def test_calls_and_results_are_paired_by_id() -> None:
    """Results stand behind their calls whatever came between, ids used twice are told apart, and each has its name."""

    def call(number: int) -> str:
        return f'{{"type":"tool_use","id":"a","name":"f","input":{{"n":{number}}}}}'

    def answer(text: str) -> str:
        return f'{{"type":"tool_result","tool_use_id":"a","content":"{text}"}}'

    window = parse_window(
        f'{{"messages":[{{"role":"assistant","content":[{call(1)}]}},{{"role":"user","content":[{answer("r1")}]}},'
        f'{{"role":"assistant","content":[{call(2)}]}},{{"role":"user","content":"wait"}},'
        f'{{"role":"user","content":[{answer("r2")}]}},{{"role":"user","content":[{answer("orphan")}]}}]}}'
    )
    request = provider_of(Scripted().complete).prepare_request(window, model="m")
    messages = canonical.context_of(request).messages
    first = AssistantMessage(content=[ToolCall(id="a", name="f", arguments={"n": 1})], timestamp=0)
    second = AssistantMessage(content=[ToolCall(id="a_2", name="f", arguments={"n": 2})], timestamp=0)
    assert messages == [
        first,
        answered("a", "r1"),
        second,
        answered("a_2", "r2"),
        UserMessage(content="wait", timestamp=0),
    ]
    assert [(entry.kind, entry.block) for entry in request.loss_report.entries] == [
        ("renamed", "tool_id"),
        ("moved", "tool_result"),
        ("dropped", "tool_result"),
    ]


def answered(call_id: str, text: str) -> ToolResultMessage:
    """Return a result of one text."""
    content = [TextContent(text=text)]
    return ToolResultMessage(tool_call_id=call_id, tool_name="f", content=content, is_error=False, timestamp=0)


@pytest.mark.parametrize("way", ["complete", "later"])
def test_function_is_called_without_an_event_loop(way: str) -> None:
    """The adapter can be used by itself too, plain or async function alike."""
    scripted = Scripted(CALLS)
    adapter = provider_of(getattr(scripted, way))
    window = parse_window('{"messages":[{"role":"user","content":"hi"}]}')
    request = adapter.prepare_request(window, model="m", stream=False)
    pieces: list[Delta] = []
    reply = adapter.call(request, Connection(), on_delta=pieces.append)
    assert canonical.context_of(request) == scripted.contexts[0]
    assert reply.events == (canonical.to_json(CALLS),)
    assert [piece.type for piece in pieces] == ["thinking", "tool_use"]
    assert adapter.models(Connection()) == []


def test_async_function_is_not_called_plainly_inside_an_event_loop() -> None:
    """There it has to be awaited; the failed reply says how."""
    adapter = provider_of(Scripted(CALLS).acomplete)
    request = adapter.prepare_request(
        parse_window('{"messages":[{"role":"user","content":"hi"}]}'), model="m", stream=False
    )

    async def called() -> Reply:
        return adapter.call(request, Connection())

    error = asyncio.run(called()).response.error
    assert error is not None
    assert error.message == "canonical failed: RunError: an event loop runs in this thread: await `acall` there"


@pytest.mark.parametrize(
    ("params", "options", "block"),
    [
        ({"temperature": 0.5}, {}, "parameter"),
        ({"tool_choice": "required"}, {}, "tool_choice"),
        ({}, {"search": True}, "search"),
    ],
)
def test_what_a_context_has_no_field_for_is_refused_or_reported(
    params: dict[str, object], options: dict[str, object], block: str
) -> None:
    """A parameter or search is refused, and dropped with an entry in the report where losses are allowed."""
    adapter = provider_of(Scripted().complete)
    window = msgspec.structs.replace(parse_window('{"messages":[{"role":"user","content":"hi"}]}'), options=options)

    def entries(on_loss: OnLoss | None) -> list[tuple[str, str]]:
        request = adapter.prepare_request(window, model="m", params=params, on_loss=on_loss)
        return [(entry.kind, entry.block) for entry in request.loss_report.entries]

    with pytest.raises(UnsupportedContentError, match="canonical cannot carry"):
        entries(None)
    assert entries("report") == [("dropped", block)]


@pytest.mark.parametrize(
    ("mode", "tools", "lost"), [("none", 0, []), ("auto", 1, []), ("required", 1, ["tool_choice"])]
)
def test_tool_mode_none_offers_no_tools(mode: str, tools: int, lost: list[str]) -> None:
    """A context can say that no tool may be called: by offering none. What it cannot say is reported."""
    adapter = provider_of(Scripted().complete)
    window = msgspec.structs.replace(
        parse_window('{"messages":[{"role":"user","content":"hi"}]}'), options={"tool_mode": mode}
    )
    request = adapter.prepare_request(window, parse_tools('[{"name":"ls","inputSchema":{"type":"object"}}]'), model="m")
    assert len(canonical.context_of(request).tools) == tools
    assert [entry.block for entry in request.loss_report.entries] == lost


def test_keys_that_a_block_cannot_have_are_refused() -> None:
    """A key that another adapter of the same provider, api and model recorded is refused, and not left out."""
    adapter = provider_of(Scripted().complete, provider="openai", api="openai-completions")
    window = parse_window(
        '{"messages":[{"role":"assistant","provider":"openai","api":"chat_completions","model":"m",'
        '"content":[{"type":"text","text":"a","annotations":[1]}],"turn":"t1"}]}'
    )
    with pytest.raises(UnsupportedContentError, match="'annotations' of a block of turn 't1'"):
        adapter.prepare_request(window, model="m")


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], "canonical: no message came"),
        ([b"{}", b"{}"], "canonical: 2 messages came in place of one"),
        (
            [b"{}"],
            "canonical gave a reply that cannot be read: message: object missing required field 'role'",
        ),
        (
            [b'{"role":"user","content":"a","timestamp":1}'],
            "canonical gave a reply that is no assistant message",
        ),
    ],
)
def test_what_is_no_message_is_a_failed_response(events: list[bytes], error: str) -> None:
    """Reading a reply never raises."""
    response = provider_of(Scripted().complete).aggregate(events, model="m")
    assert response.error is not None
    assert (response.stop_reason, response.error.message) == ("error", error)


def test_subclass_is_made_like_any_registered_adapter() -> None:
    """A subclass that hands over its function takes what the registry gives to adapters of other names."""

    class Mine(CompleteProvider):
        name = provider = "mine"

        def __init__(self, *, provider: str | None = None, key_variable: str | None = None) -> None:
            super().__init__(Scripted(ANSWERS).complete, provider=provider, key_variable=key_variable)

    make: Callable[..., CompleteProvider] = Mine
    assert (make().provider, make().key_variable) == ("mine", "")
    assert make(provider="theirs", key_variable="THEIRS_API_KEY").provider == "theirs"
