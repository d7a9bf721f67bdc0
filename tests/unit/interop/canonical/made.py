"""Canonical messages for tests: examples, and strategies for any of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from turnlog.interop.canonical import (
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from turnlog.testing.strategies import json_objects, json_values, texts

NOON = 1_700_000_000_123


def conversation() -> list[Message]:
    """Return a conversation with a message of each kind, and a value in every field."""
    return [
        UserMessage(content="What is in a.txt?", timestamp=NOON),
        AssistantMessage(
            content=[
                ThinkingContent(thinking="I read it.", thinking_signature="s1=="),
                ThinkingContent(thinking="", thinking_signature="s2==", redacted=True),
                TextContent(text="I look."),
                ToolCall(id="call|1", name="read", arguments={"path": "a.txt", "from": 1.5, "all": None}),
            ],
            timestamp=NOON + 1,
            api="anthropic-messages",
            provider="anthropic",
            model="claude-sonnet-4-5",
            stop_reason="tool-use",
            usage=Usage(input=10, output=20, cache_read=30, cache_write=40, total_tokens=100),
        ),
        ToolResultMessage(
            tool_call_id="call|1",
            tool_name="read",
            content=[TextContent(text="no such file"), TextContent(text="")],
            is_error=True,
            timestamp=NOON + 2,
            details={"shown": ["red", None], "z": {"a": 1}},
        ),
        UserMessage(content=[TextContent(text="And b.txt?")], timestamp=NOON + 3),
        AssistantMessage(
            content=[],
            timestamp=NOON + 4,
            api="openai-codex",
            provider="openai",
            model="gpt-5",
            stop_reason="error",
            usage=Usage(),
            error_message="overloaded",
        ),
    ]


def timestamps() -> st.SearchStrategy[int | float]:
    """Return times as numbers: most often whole milliseconds of our days."""
    usual = st.integers(0, 4_000_000_000_000)
    return usual | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False, allow_infinity=False)


def text_lists() -> st.SearchStrategy[list[TextContent]]:
    """Return lists of text blocks, empty ones too."""
    return st.lists(st.builds(TextContent, text=texts()), max_size=3)


def usages() -> st.SearchStrategy[Usage]:
    """Return token counts, any of them absent."""
    count = st.none() | st.integers(0, 200) | st.integers(0, 1 << 53)
    return st.builds(Usage, input=count, output=count, cache_read=count, cache_write=count, total_tokens=count)


@st.composite
def assistant_messages(draw: st.DrawFn) -> AssistantMessage:
    """Return assistant messages; only those with the stop reason `error` have an error message."""
    thinking = st.builds(
        ThinkingContent, thinking=texts(), thinking_signature=st.none() | texts(), redacted=st.booleans()
    )
    call = st.builds(ToolCall, id=texts(), name=texts(), arguments=json_objects())
    stop_reason: Any = draw(st.sampled_from([None, "stop", "length", "tool-use", "error", "aborted"]))
    api: Any = draw(
        st.sampled_from([None, "openai-completions", "openai-responses", "anthropic-messages", "openai-codex"])
    )
    return AssistantMessage(
        content=draw(st.lists(st.builds(TextContent, text=texts()) | thinking | call, max_size=4)),
        timestamp=draw(timestamps()),
        api=api,
        provider=draw(st.none() | texts()),
        model=draw(st.none() | texts()),
        stop_reason=stop_reason,
        usage=draw(st.none() | usages()),
        error_message=draw(st.none() | texts()) if stop_reason == "error" else None,
    )


def messages() -> st.SearchStrategy[Message]:
    """Return messages of all kinds."""
    user = st.builds(UserMessage, content=texts() | text_lists(), timestamp=timestamps())
    result = st.builds(
        ToolResultMessage,
        tool_call_id=texts(),
        tool_name=texts(),
        content=text_lists(),
        is_error=st.booleans(),
        timestamp=timestamps(),
        details=json_values(),
    )
    return user | result | assistant_messages()
