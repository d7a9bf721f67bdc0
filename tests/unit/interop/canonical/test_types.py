"""The canonical types as JSON, and against the tables of the document that they are from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.interop.canonical import made

from turnlog.errors import ContentError
from turnlog.interop import canonical
from turnlog.interop.canonical import (
    AgentContext,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    parse_context,
    parse_message,
    parse_messages,
    to_json,
)

UNIONS = {"Message", "StopReason"}


def tables(text: str) -> dict[str, dict[str, bool]]:
    """Return the fields of each type in the document, and whether it requires them."""
    found: dict[str, dict[str, bool]] = {}
    current: dict[str, bool] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"([A-Z]\w+) #", line.strip()):
            current = found.setdefault(heading.group(1), {})
        elif row := re.match(r":?([\w?-]+) # \|", line.strip()):
            current[row.group(1)] = "| yes |" in line
    return found


@pytest.fixture
def document(shared: Path) -> dict[str, dict[str, bool]]:
    """Give the tables of the document."""
    [path] = (shared / "seeds").glob("004*.txt")
    return tables(path.read_text())


def keys_of(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Return the keys of a type as JSON has them, and whether it requires them."""
    config: Any = kind.__struct_config__
    keys = {field.encode_name: field.required for field in msgspec.structs.fields(kind)}
    return keys if config.tag_field is None else {config.tag_field: True, **keys}


def test_document_has_no_other_types(document: dict[str, dict[str, bool]]) -> None:
    """All types of the document are here by their names."""
    assert len(document) == 13
    assert set(document) <= set(canonical.__all__)


def test_fields_are_those_of_the_document(document: dict[str, dict[str, bool]]) -> None:
    """Each type has the keys of its table, and requires the same ones."""
    for name, keys in document.items():
        if name not in UNIONS:
            assert keys_of(getattr(canonical, name)) == keys, name


def test_unions_are_those_of_the_document(document: dict[str, dict[str, bool]]) -> None:
    """The message union and the stop reasons have the members of their tables."""
    assert {kind.__name__ for kind in canonical.Message.__args__} == set(document["Message"])
    assert set(canonical.StopReason.__args__) == set(document["StopReason"])


def test_messages_are_spelled_as_in_the_types() -> None:
    """Keys, roles and block types are the document's, and what is absent has no key."""
    assert msgspec.json.decode(to_json(made.conversation()[1:3])) == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I read it.", "thinking-signature": "s1=="},
                {"type": "thinking", "thinking": "", "thinking-signature": "s2==", "redacted?": True},
                {"type": "text", "text": "I look."},
                {
                    "type": "tool-call",
                    "id": "call|1",
                    "name": "read",
                    "arguments": {"path": "a.txt", "from": 1.5, "all": None},
                },
            ],
            "timestamp": made.NOON + 1,
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": "claude-sonnet-4-5",
            "stop-reason": "tool-use",
            "usage": {"input": 10, "output": 20, "cache-read": 30, "cache-write": 40, "total-tokens": 100},
        },
        {
            "role": "tool-result",
            "tool-call-id": "call|1",
            "tool-name": "read",
            "content": [{"type": "text", "text": "no such file"}, {"type": "text", "text": ""}],
            "is-error?": True,
            "timestamp": made.NOON + 2,
            "details": {"shown": ["red", None], "z": {"a": 1}},
        },
    ]


def test_empty_content_is_written() -> None:
    """An assistant message without blocks has an empty list, not no content."""
    assert to_json(AssistantMessage(content=[], timestamp=1)) == b'{"role":"assistant","content":[],"timestamp":1}'


@given(st.lists(made.messages(), max_size=4))
def test_messages_come_back_from_json(messages: list[canonical.Message]) -> None:
    """JSON of any messages is read as the same messages."""
    assert parse_messages(to_json(messages)) == messages


def test_arguments_keep_the_order_of_their_keys() -> None:
    """Arguments are written in the order that they were read in."""
    text = b'{"role":"assistant","content":[{"type":"tool-call","id":"c","name":"n","arguments":{"z":1,"a":{"y":2,"b":3}}}],"timestamp":1}'  # noqa: E501 - one line of JSON
    assert to_json(parse_message(text)) == text


def test_context_comes_back_from_json() -> None:
    """An agent context has a budget, messages, tools and perhaps a system prompt."""
    context = AgentContext(
        max_tokens=100,
        messages=made.conversation(),
        tools=[Tool(name="read", description="Read.", parameters={"type": "object", "properties": {}})],
        system_prompt="Be brief.",
    )
    assert parse_context(to_json(context)) == context
    assert msgspec.json.decode(to_json(context)).keys() == {"max-tokens", "messages", "tools", "system-prompt"}


def test_context_without_system_prompt_has_no_key_for_it() -> None:
    """A system prompt that is nil is left out; null is read as nil."""
    bare = AgentContext(max_tokens=1, messages=[], tools=[])
    assert to_json(bare) == b'{"max-tokens":1,"messages":[],"tools":[]}'
    assert parse_context(b'{"max-tokens":1,"messages":[],"tools":[],"system-prompt":null}') == bare


def test_tool_result_is_written_with_details() -> None:
    """The result of a tool has its details in JSON."""
    result = AgentToolResult(content=[TextContent(text="a")], is_error=False, details=[1])
    assert to_json(result) == b'{"content":[{"type":"text","text":"a"}],"is-error?":false,"details":[1]}'


def test_agent_tool_shows_the_tool_that_providers_see() -> None:
    """What runs a tool and its label are not part of what a provider sees."""
    tool = AgentTool(
        name="n",
        description="d",
        parameters={"type": "object"},
        label="L",
        execute=lambda _given, _tell: AgentToolResult(content=[], is_error=False),
    )
    assert to_json(tool.tool) == b'{"name":"n","description":"d","parameters":{"type":"object"}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"role":"user","content":"a"}]', "messages[0]: object missing required field 'timestamp'"),
        ('[{"role":"user","content":"a","timestamp":1,"x":2}]', "messages[0]: object contains unknown field 'x'"),
        ('[{"role":"nobody"}]', "messages[0].role: invalid value 'nobody'"),
        ('[{"content":"a","timestamp":1}]', "messages[0]: object missing required field 'role'"),
        (
            '[{"role":"assistant","content":[{"type":"image"}],"timestamp":1}]',
            "messages[0].content[0].type: invalid value 'image'",
        ),
        (
            '[{"role":"assistant","content":[],"timestamp":1,"stop-reason":"tool_use"}]',
            "messages[0].stop-reason: invalid enum value 'tool_use'",
        ),
        (
            '[{"role":"assistant","content":[],"timestamp":1,"error-message":"no"}]',
            "messages[0].error-message: only a message with the stop reason 'error' has one: leave it out",
        ),
        (
            '[{"role":"assistant","content":[],"timestamp":1,"usage":{"cache-read":-1}}]',
            "messages[0].usage.cache-read: a count of tokens is 0 or more, got -1",
        ),
        ('{"role":"user"}', "messages: expected 'array', got 'object'"),
        ("nope", "messages: not valid JSON: invalid character (byte 1)"),
    ],
)
def test_what_is_malformed_is_named(text: str, message: str) -> None:
    """What is not a message is refused, with its place."""
    with pytest.raises(ContentError) as raised:
        parse_messages(text)
    assert str(raised.value) == message


def test_what_json_cannot_carry_is_named() -> None:
    """A value that JSON does not have is refused, with its place."""
    call = ToolCall(id="c", name="n", arguments={"a": float("nan")})
    with pytest.raises(ContentError, match=r"messages\[0\]\.content\[0\]\.arguments\.a: JSON has no NaN"):
        to_json([AssistantMessage(content=[call], timestamp=1)])


def test_optional_fields_are_none_where_they_are_absent() -> None:
    """A message of required fields alone says nothing else."""
    assert parse_message('{"role":"assistant","content":[],"timestamp":1}') == AssistantMessage(content=[], timestamp=1)
    assert ThinkingContent(thinking="a").thinking_signature is None
    assert UserMessage(content="a", timestamp=1.5).timestamp == 1.5
    assert Usage().total_tokens is None
    assert ToolResultMessage(tool_call_id="", tool_name="", content=[], is_error=False, timestamp=1).details is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"role":"user","content":"a","content":"b","timestamp":1}]',
            r"messages\[0\]: a record has the key 'content'",
        ),
        (
            '[{"role":"tool-result","tool-call-id":"c","tool-name":"f","content":[],"is-error?":false,"timestamp":1,'
            '"details":{"a":[{"b":1,"b":1}]}}]',
            r"messages\[0\]\.details\.a\[0\]: a record has the key 'b' twice",
        ),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, message: str) -> None:
    """Else one of two values would be gone."""
    with pytest.raises(ContentError, match=message):
        parse_messages(text)


@pytest.mark.parametrize("text", [None, 5])
def test_what_is_no_text_is_refused(text: Any) -> None:
    """With what was expected."""
    with pytest.raises(ContentError, match=rf"messages: expected JSON text, got {type(text).__name__}"):
        parse_messages(text)
