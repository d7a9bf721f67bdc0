"""The canonical message and tool types, and the way between them and JSON.

Keys are spelled as the types are (`tool-call-id`, `is-error?`), and a message says its `role`, a block its `type`. An
optional field that is absent is None here; null is read as absent. `redacted?` is false where it is absent. A key that
the types do not have is refused by its name, so that nothing goes missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model import JSONValue
from turnlog.model.json_text import content_error, marked_json
from turnlog.model.json_values import check_unique
from turnlog.model.plain import plain_json

Api = Literal["openai-completions", "openai-responses", "anthropic-messages", "openai-codex"]
"""The wire that a reply came over."""

StopReason = Literal["stop", "length", "tool-use", "error", "aborted"]
"""Why the assistant stopped."""

_T = TypeVar("_T")


class _Record(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="kebab"):
    """What all types share: keys with hyphens, and no others than their own."""


class TextContent(_Record, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Plain visible text."""

    text: str


class ThinkingContent(_Record, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """Reasoning, with the signature that its provider wants back, and whether the provider redacted its text."""

    thinking: str
    thinking_signature: str | None = None
    redacted: bool = msgspec.field(name="redacted?", default=False)


class ToolCall(_Record, frozen=True, kw_only=True, tag_field="type", tag="tool-call"):
    """A request to call a tool. Arguments are decoded, their keys in the order of the model."""

    id: str
    name: str
    arguments: Mapping[str, JSONValue]


class Usage(_Record, frozen=True, kw_only=True):
    """Tokens of one reply, as far as the provider told them; None where it did not."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    total_tokens: int | None = None


class UserMessage(_Record, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """What a user says: one text, or a list of text blocks. `timestamp` is in milliseconds since 1970 UTC."""

    content: str | list[TextContent]
    timestamp: int | float


class AssistantMessage(_Record, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """One reply of a model. `content` is a list also where it is empty; `error_message` is only of stop reason `error`.

    `timestamp` is when it was recorded, in milliseconds since 1970 UTC.
    """

    content: list[TextContent | ThinkingContent | ToolCall]
    timestamp: int | float
    api: Api | None = None
    provider: str | None = None
    model: str | None = None
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error_message: str | None = None


class ToolResultMessage(_Record, frozen=True, kw_only=True, tag_field="role", tag="tool-result"):
    """The result of one tool call. `details` is for whoever shows it, and never goes to a provider.

    `timestamp` is when it was recorded, in milliseconds since 1970 UTC.
    """

    tool_call_id: str
    tool_name: str
    content: list[TextContent]
    is_error: bool = msgspec.field(name="is-error?")
    timestamp: int | float
    details: JSONValue = None


Message = UserMessage | AssistantMessage | ToolResultMessage
"""Any message of a conversation."""


class Tool(_Record, frozen=True, kw_only=True):
    """A tool as a provider sees it. `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, JSONValue]


class AgentContext(_Record, frozen=True, kw_only=True):
    """What a provider is given for one call. `max_tokens` is the budget of the reply."""

    max_tokens: int | float
    messages: list[Message]
    tools: list[Tool]
    system_prompt: str | None = None


class AgentToolResult(_Record, frozen=True, kw_only=True):
    """What a call of a tool came to. `details` is for whoever shows it, and never goes to a provider."""

    content: list[TextContent]
    is_error: bool = msgspec.field(name="is-error?")
    details: JSONValue = None


YieldFunction = Callable[[JSONValue], None]
"""Called by a tool with what it has to tell of its progress."""

Execute = Callable[[dict[str, JSONValue], YieldFunction | None], AgentToolResult | Awaitable[AgentToolResult]]
"""Runs a tool, given its decoded arguments and the function that it can tell its progress with, if there is one."""


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool with what runs it, plain or async, and a label for whoever shows it."""

    name: str
    description: str
    parameters: Mapping[str, JSONValue]
    execute: Execute
    label: str | None = None

    @property
    def tool(self) -> Tool:
        """The tool as a provider sees it."""
        return Tool(name=self.name, description=self.description, parameters=self.parameters)


_messages = msgspec.json.Decoder(list[Message])
_message = msgspec.json.Decoder(Message)
_context = msgspec.json.Decoder(AgentContext)
_encoder = msgspec.json.Encoder()


def parse_messages(text: str | bytes) -> list[Message]:
    """Return the messages of a JSON list.

    Raises:
        ContentError: not JSON, not messages, or a record has a key twice; names the place, such as
            `messages[0].timestamp`.
    """
    messages = _decoded(text, _messages, "messages")
    for index, message in enumerate(messages):
        check_message(message, f"messages[{index}]")
    return messages


def parse_message(text: str | bytes, *, field: str = "message") -> Message:
    """Return one message from JSON.

    Raises:
        ContentError: not JSON, not a message, or a record has a key twice; names the place.
    """
    message = _decoded(text, _message, field)
    check_message(message, field)
    return message


def parse_context(text: str | bytes) -> AgentContext:
    """Return an agent context from JSON.

    Raises:
        ContentError: not JSON, not an agent context, or a record has a key twice; names the place.
    """
    context = _decoded(text, _context, "context")
    for index, message in enumerate(context.messages):
        check_message(message, f"context.messages[{index}]")
    return context


def check_message(message: Message, field: str) -> None:
    """Check what the types say of a message beyond its fields, and that JSON can carry it.

    Raises:
        ContentError: an error message without the stop reason `error`, a count below 0, or a value that JSON does not
            have.
    """
    plain_json(message, field, ContentError)
    if not isinstance(message, AssistantMessage):
        return
    if message.error_message is not None and message.stop_reason != "error":
        place = f"{field}.error-message"
        raise ContentError(f"{place}: only a message with the stop reason 'error' has one: leave it out", field=place)
    counts: dict[str, int | None] = {} if message.usage is None else msgspec.structs.asdict(message.usage)
    for name, count in counts.items():
        if count is not None and count < 0:
            place = f"{field}.usage.{name.replace('_', '-')}"
            raise ContentError(f"{place}: a count of tokens is 0 or more, got {count}", field=place)


def to_json(value: Message | Sequence[Message] | AgentContext | AgentToolResult | Tool | Usage) -> bytes:
    """Return a value of the canonical types, or a list of messages, as JSON.

    Raises:
        ContentError: it has a value that JSON does not have.
    """
    if isinstance(value, Sequence):
        return _encoder.encode(plain_json(list(value), "messages", ContentError))
    return _encoder.encode(plain_json(value, type(value).__name__, ContentError))


def tool_json(name: str, description: str, parameters: Raw) -> bytes:
    """Return a tool as JSON, with its schema as it is spelled."""
    return _encoder.encode({"name": name, "description": description, "parameters": parameters})


def _decoded(text: str | bytes, decoder: msgspec.json.Decoder[_T], field: str) -> _T:
    marked, long = marked_json(text, field=field)
    check_unique(marked, field)
    try:
        return decoder.decode(long.into_json(marked))
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error
    except RecursionError as error:
        raise ContentError(f"{field}: nested too deeply", field=field) from error
