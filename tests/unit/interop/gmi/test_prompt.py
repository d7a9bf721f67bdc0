"""The window that a model is asked with for an input."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.interop.gmi import made

from turnlog import TurnLog
from turnlog.interop.gmi import record, window_of
from turnlog.interop.gmi.history import history_notes
from turnlog.model import ContextWindow, Document, Text, Thinking, ToolResult, ToolUse


def said(window: ContextWindow) -> list[tuple[str, str]]:
    """Return the roles and the texts of a window."""
    return [
        (message.role, "".join(block.text for block in message.content if isinstance(block, Text)))
        for message in window.messages
    ]


def with_history(*history: Any, content: str = "And now?", **fields: Any) -> dict[str, Any]:
    """Return an input that brings a conversation."""
    metadata = {"conversationHistoryForPrompt": list(history)} | fields
    return made.text("i2", content, sessionId="s", metadata=metadata)


def test_parts_of_the_system_prompt_have_an_order(log: TurnLog) -> None:
    """System turns, profile, user, task, capabilities, summary; then the conversation and the input."""
    record(log, made.text("i0", "You are kind.", kind="system_message", sessionId="chat-1"))
    record(log, made.text("i1", "Before.", sessionId="chat-1", userContextOverride={"name": "Ada"}))
    log.add_turn("Indeed.", role="assistant", continues="chat-1")
    record(log, made.text("i2", "user left", kind="lifecycle_event", sessionId="chat-1"))
    given = made.full()
    del given["metadata"]["conversationHistoryForPrompt"]
    turn = record(log, given)
    assert said(window_of(log, turn.id)) == [
        ("system", "You are kind."),
        ("system", "user left"),
        ("system", "Be brief."),
        ("system", 'User context (JSON):\n{"name":"Ada","preferences":{"tone":"dry"},"skillLevel":"expert"}'),
        ("system", 'Task context (JSON):\n{"goal":"ship","progress":0.5}'),
        ("system", "You can add."),
        ("system", "Summary of the conversation so far:\nThey greet."),
        ("system", 'Summary of the conversation so far (JSON):\n{"facts":["greeted"]}'),
        ("user", "Before."),
        ("assistant", "Indeed."),
        ("user", "And now?"),
    ]


def test_only_contexts_hold_for_later_turns(log: TurnLog) -> None:
    """Profile, capabilities and summary are for their own input."""
    record(log, made.full())
    turn = record(log, made.text("i2", "Later.", sessionId="chat-1"))
    assert [text.partition("\n")[0] for _, text in said(window_of(log, turn.id))] == [
        "User context (JSON):",
        "Task context (JSON):",
        "And now?",
        "Later.",
    ]
    assert said(log.context(turn.id)) == [("user", "And now?"), ("user", "Later.")]


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ({"text": "A."}, ["Summary of the conversation so far:\nA."]),
        ({"json": [1]}, ["Summary of the conversation so far (JSON):\n[1]"]),
        ({"json": False}, ["Summary of the conversation so far (JSON):\nfalse"]),
        ({"text": "", "json": None}, []),
        ({}, []),
        (None, []),
    ],
)
def test_summary_is_text_or_json(log: TurnLog, summary: Any, shown: list[str]) -> None:
    """Or both, or neither."""
    turn = record(log, made.text(metadata={"rollingSummary": summary}))
    assert [text for role, text in said(window_of(log, turn.id)) if role == "system"] == shown


def test_input_without_anything_of_its_own_has_the_window_of_its_turn(log: TurnLog) -> None:
    """And so have turns that are none."""
    turn = record(log, made.text(sessionId="s"))
    assert window_of(log, turn.id) == log.context(turn.id)
    other = log.add_turn("On.", continues="s")
    assert window_of(log, other.id) == log.context(other.id)


def test_window_of_a_reply_is_that_of_its_run(log: TurnLog) -> None:
    """What the run has added stands behind the input, whatever is in place of the turns before it."""
    turn = record(log, with_history({"role": "user", "content": "Once."}))
    call = log.add_turn(
        [{"type": "tool_use", "id": "c1", "name": "add", "input": {}}], role="assistant", continues=turn.id
    )
    result = log.add_turn([{"type": "tool_result", "tool_use_id": "c1", "content": "3"}], continues=call.id)
    window = window_of(log, result.id)
    assert [message.turn for message in window.messages] == ["", turn.id, call.id, result.id]
    asked = log.add_turn("On my own.", continues=result.id)
    assert window_of(log, asked.id) == log.context(asked.id)


# The conversation in place of the turns before


def test_history_replaces_the_turns_before(log: TurnLog) -> None:
    """But not the system turns, and only for this input."""
    record(log, made.text("i0", "You are kind.", kind="system_message", sessionId="s"))
    record(log, made.text("i1", "Before.", sessionId="s"))
    history = ({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."})
    turn = record(log, with_history(*history))
    assert said(window_of(log, turn.id)) == [
        ("system", "You are kind."),
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "And now?"),
    ]
    later = record(log, made.text("i3", "Later.", sessionId="s"))
    assert [text for _, text in said(window_of(log, later.id))] == ["You are kind.", "Before.", "And now?", "Later."]


@pytest.mark.parametrize("history", [None, []])
def test_empty_history_replaces_nothing(log: TurnLog, history: Any) -> None:
    """The turns before are the conversation then."""
    record(log, made.text("i1", "Before.", sessionId="s"))
    turn = record(log, made.text("i2", "Now.", sessionId="s", metadata={"conversationHistoryForPrompt": history}))
    assert [text for _, text in said(window_of(log, turn.id))] == ["Before.", "Now."]


def test_trailing_message_that_is_the_input_is_not_doubled(log: TurnLog) -> None:
    """In any spelling; the same words of somebody else, or earlier, stay."""
    same = {"role": "user", "content": [{"type": "text", "text": "And now?"}]}
    turn = record(log, with_history(same, {"role": "assistant", "content": "And now?"}, same))
    assert said(window_of(log, turn.id)) == [("user", "And now?"), ("assistant", "And now?"), ("user", "And now?")]


def test_trailing_message_that_is_another_stays(log: TurnLog) -> None:
    """It is part of the conversation."""
    turn = record(log, with_history({"role": "user", "content": "And then?"}))
    assert said(window_of(log, turn.id)) == [("user", "And then?"), ("user", "And now?")]


def test_system_message_of_the_history_that_is_there_is_not_doubled(log: TurnLog) -> None:
    """Others stay where they are."""
    record(log, made.text("i0", "You are kind.", kind="system_message", sessionId="s"))
    history = [{"role": "system", "content": text} for text in ("You are kind.", "You are brief.")]
    turn = record(log, with_history(*history))
    assert said(window_of(log, turn.id)) == [
        ("system", "You are kind."),
        ("system", "You are brief."),
        ("user", "And now?"),
    ]


CALL = ToolUse(id="c1", name="add", input=msgspec.Raw(b'{"a":1}'))


@pytest.mark.parametrize(
    "history",
    [
        [
            {
                "role": "assistant",
                "content": "I add.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
        ],
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I add."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "name": "add", "content": "3"}]},
        ],
        [
            {
                "role": "assistant",
                "content": "I add.",
                "toolCalls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}],
            },
            {"role": "tool", "toolCallId": "c1", "name": "add", "content": [{"type": "text", "text": "3"}]},
        ],
        [
            {
                "role": "assistant",
                "content": "I add.",
                "toolCalls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}],
            },
            {"role": "tool", "content": {"toolCallId": "c1", "toolName": "add", "output": "3"}},
        ],
    ],
    ids=["openai", "anthropic", "agentos", "agentos-result"],
)
def test_messages_are_read_in_each_spelling(log: TurnLog, history: list[Any]) -> None:
    """Tool calls and results of OpenAI, Anthropic and AgentOS are the same blocks."""
    turn = record(log, with_history(*history))
    asked, answered, _ = window_of(log, turn.id).messages
    assert asked.content == [Text(text="I add."), CALL]
    [result] = answered.content
    assert isinstance(result, ToolResult)
    assert (answered.role, result.tool_use_id, result.name) == ("user", "c1", "add")
    assert result.content in ("3", [Text(text="3")])


def test_results_that_follow_each_other_are_one_message(log: TurnLog) -> None:
    """As providers ask for after calls side by side."""
    calls = [{"id": f"c{n}", "name": "add", "arguments": {}} for n in (1, 2)]
    history = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": {"sum": 1}},
        {"role": "tool", "tool_call_id": "c2", "content": None, "isError": True},
        {"role": "developer", "content": "Go on."},
    ]
    messages = window_of(log, record(log, with_history(*history)).id).messages
    assert [(message.role, len(message.content)) for message in messages] == [
        ("assistant", 2),
        ("user", 2),
        ("system", 1),
        ("user", 1),
    ]
    assert messages[1].content == [
        ToolResult(tool_use_id="c1", content=[Text(text='{"sum":1}')]),
        ToolResult(tool_use_id="c2", content=[], is_error=True),
    ]


def test_other_parts_of_a_history_are_read_too(log: TurnLog) -> None:
    """Thinking, bytes, records, the older form of calls, and calls whose arguments are broken."""
    history = [
        {
            "role": "user",
            "content": [
                "Look:",
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{made.PIXEL}"}},
                {"type": "place", "at": [1, 2]},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "A dot."}],
            "function_call": {"name": "add", "arguments": "{broken"},
        },
        {"role": "function", "name": "add", "content": "3"},
    ]
    user, assistant, function, _ = window_of(log, record(log, with_history(*history)).id).messages
    text, document, place = user.content
    assert (text, place) == (Text(text="Look:"), Text(text='{"type":"place","at":[1,2]}'))
    assert isinstance(document, Document)
    thinking, answer, call = assistant.content
    assert (thinking, answer) == (Thinking(thinking="Hm."), Text(text="A dot."))
    assert isinstance(call, ToolUse)
    assert (call.name, bytes(call.input)) == ("add", b"{}")
    assert bytes(call.extra["malformed_arguments"]) == b'"{broken"'
    assert function.content == [ToolResult(name="add", content=[Text(text="3")])]


def test_messages_without_content_are_left_out(log: TurnLog) -> None:
    """Whichever way they say nothing; a reply that only calls a tool says something."""
    record(log, made.text("i1", "Before.", sessionId="s"))
    empty = [
        {"role": "user"},
        {"role": "assistant", "content": None},
        {"role": "system", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": "", "tool_calls": []},
    ]
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "add", "arguments": {}}]}
    window = window_of(log, record(log, with_history(*empty, {"role": "user", "content": "Hi."}, calls)).id)
    assert [message.role for message in window.messages] == ["user", "assistant", "user"]
    assert said(window)[0] == ("user", "Hi.")


def test_history_of_messages_without_content_is_an_empty_one(log: TurnLog) -> None:
    """The turns before are the conversation then."""
    record(log, made.text("i1", "Before.", sessionId="s"))
    turn = record(log, with_history({"role": "user", "content": ""}))
    assert [text for _, text in said(window_of(log, turn.id))] == ["Before.", "And now?"]


def test_what_no_prompt_has_of_a_history_is_told() -> None:
    """One line each, with the place of the first."""
    field = "metadata.conversationHistoryForPrompt"
    history = [
        {"role": "user", "content": "Hi.", "name": "bob", "timestamp": None},
        {"role": "user", "content": [{"type": "text", "text": "Ho.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "name": "eve"},
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
        {"role": "assistant", "content": "", "x" * 10_000: 1},
        {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "https://x"}, "detail": "low"}]},
    ]
    assert history_notes(history) == [
        f"{field}[0].name is not carried: a prompt has no place for it (and so of 1 more)",
        f"{field}[1].content[0].cache_control is not carried: a prompt has no place for it",
        f"{field}[2] is left out: it has no content (and so of 1 more)",
        f"{field}[4].{'x' * 40}… is not carried: a prompt has no place for it",
    ]
    assert history_notes(None) == []
