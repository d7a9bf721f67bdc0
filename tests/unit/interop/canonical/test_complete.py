"""A model of the run loop as one function."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from tests.agent.scripted import HERE, MODEL, Scripted, call, say
from tests.unit.interop.canonical import made

from turnlog.agent.target import Target
from turnlog.errors import ProviderError
from turnlog.interop.canonical import (
    AgentContext,
    AssistantMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    acomplete_of,
    complete_of,
    message_of,
    provider_of,
    window_of,
)
from turnlog.model import LossReport, Native, Response, Text
from turnlog.providers import get


def target(adapter: Any, model: str = MODEL) -> Target:
    """Return the way to a model."""
    return Target(adapter=adapter, connection=HERE, model=model, params={"temperature": 0.5})


def context(*messages: Any, system: str | None = None) -> AgentContext:
    """Return a context."""
    tools = [Tool(name="ls", description="List.", parameters={"type": "object"})]
    return AgentContext(max_tokens=77, messages=list(messages), tools=tools, system_prompt=system)


def ask(adapter: Any, given: AgentContext, **options: Any) -> AssistantMessage:
    """Ask a model with asyncio."""
    complete = acomplete_of(target(adapter), now_ms=lambda: 9, **options)

    async def asked() -> AssistantMessage:
        return await complete(given)

    return asyncio.run(asked())


def test_model_answers_a_context() -> None:
    """The reply is a message with the model's api, words and counts, and the time of the clock."""
    adapter = Scripted([{"thinking": "hm"}, *call(("ls", {"z": 1, "a": 2}), text="I look.")])
    message = ask(adapter, context(UserMessage(content="hi", timestamp=1), system="Be brief."))
    assert message == AssistantMessage(
        content=[
            ThinkingContent(thinking="hm", thinking_signature="signed"),
            TextContent(text="I look."),
            ToolCall(id="c1", name="ls", arguments={"z": 1, "a": 2}),
        ],
        timestamp=9,
        provider="scripted",
        model=MODEL,
        stop_reason="tool-use",
        usage=Usage(input=0, output=10, cache_read=0, cache_write=0, total_tokens=10),
    )


def test_model_is_sent_the_whole_context() -> None:
    """System prompt, messages, tools and budget are in the body, and so are the parameters of the target."""
    adapter = Scripted(say("hello"))
    ask(adapter, context(UserMessage(content="hi", timestamp=1), system="Be brief."))
    [body] = adapter.bodies
    assert body["params"] == {"temperature": 0.5, "max_tokens": 77}
    assert body["tools"] == ["ls"]
    assert body["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]


def test_history_goes_by_the_rules_of_adapters() -> None:
    """Failed and aborted messages are left out, thinking of others is dropped, calls without a result get one."""
    adapter = Scripted(say("hello"))
    aborted = AssistantMessage(content=[TextContent(text="I w")], timestamp=1, stop_reason="aborted")
    reports: list[LossReport] = []
    ask(adapter, context(*made.conversation()[:2], aborted, *made.conversation()[3:]), on_report=reports.append)
    [body] = adapter.bodies
    contents = [[block["type"] for block in message["content"]] for message in body["messages"]]
    assert contents == [["text"], ["text", "tool_use"], ["tool_result"], ["text"]]
    [report] = reports
    assert [(entry.kind, entry.turn, entry.block) for entry in report.entries] == [
        ("renamed", "messages[1]", "tool_id"),
        ("dropped", "messages[1]", "thinking"),
        ("dropped", "messages[1]", "thinking"),
        ("synthesised", "messages[1]", "tool_result"),
        ("dropped", "reply", "api"),
    ]


def test_results_that_follow_each_other_are_one_message() -> None:
    """Results of parallel calls stand together, so that none of them has to be moved."""
    calls = [ToolCall(id=name, name="ls", arguments={}) for name in "ab"]
    results = [
        ToolResultMessage(tool_call_id=name, tool_name="ls", content=[], is_error=False, timestamp=1) for name in "ab"
    ]
    window = window_of(context(AssistantMessage(content=[*calls], timestamp=1), *results))
    assert [message.role for message in window.messages] == ["assistant", "user"]
    assert not get("anthropic").prepare_request(window, model="m", params={"max_tokens": 1}).loss_report


def test_failed_call_is_a_message_with_an_error() -> None:
    """A failure is part of the reply: nothing is raised."""
    adapter = Scripted([ProviderError("overloaded", provider="scripted")])
    message = ask(adapter, context(UserMessage(content="hi", timestamp=1)))
    assert (message.stop_reason, message.error_message, message.content) == ("error", "overloaded", [])


def test_pieces_are_given_as_they_come() -> None:
    """Whoever asks can follow the reply."""
    pieces: list[Any] = []
    ask(Scripted(say("hello")), context(UserMessage(content="hi", timestamp=1)), on_delta=pieces.append)
    assert [piece.content for piece in pieces] == ["hello"]


def test_function_of_a_function_gives_what_that_gives() -> None:
    """A function as a provider and back as a function: the same context but for its times, the same reply."""
    given: list[AgentContext] = []
    answer = AssistantMessage(
        content=[TextContent(text="a"), ToolCall(id="c", name="ls", arguments={"k": [1.0]})],
        timestamp=9,
        provider="mine",
        api="anthropic-messages",
        model="m",
        stop_reason="tool-use",
        usage=Usage(input=1, output=2, cache_read=3, cache_write=4, total_tokens=10),
    )

    def inner(asked: AgentContext) -> AssistantMessage:
        given.append(asked)
        return answer

    adapter = provider_of(inner, provider="mine", api="anthropic-messages")
    way = Target(adapter=adapter, connection=HERE, model="m", params={})
    outer = complete_of(way, now_ms=lambda: 9)
    asked = context(
        UserMessage(content="hi", timestamp=0),
        AssistantMessage(content=answer.content, timestamp=0),
        ToolResultMessage(
            tool_call_id="c", tool_name="ls", content=[TextContent(text="x")], is_error=True, timestamp=0
        ),
        system="Be brief.",
    )
    assert outer(asked) == answer
    assert given == [asked]


def test_message_of_a_reply_names_what_it_lacks() -> None:
    """A block without a form of its own here, and a refusal, are in the report."""
    response = Response(
        content=(Native(provider="p", block=msgspec.Raw(b"{}")), Text(text="a")),
        model="m",
        stop_reason="refusal",
        provider="p",
        api="responses",
    )
    message, report = message_of(response, timestamp=1)
    assert message.content == [TextContent(text="a")]
    assert (message.api, message.stop_reason) == ("openai-responses", "stop")
    assert [(entry.kind, entry.block) for entry in report.entries] == [
        ("dropped", "native"),
        ("downgraded", "stop_reason"),
    ]
