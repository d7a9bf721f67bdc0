"""The canonical message and tool types of an agent: on the log, and in the run loop.

`types` has the types and their JSON. `record` makes turns of messages and `messages` makes messages of turns, equal to
what was recorded. `provider_of` takes a provider that is one function into the run loop, `complete_of` gives a model
that the run loop can ask as such a function, and `AgentTools` gives agent tools to a run.
"""

from turnlog.interop.canonical.complete import acomplete_of, complete_of, message_of, window_of
from turnlog.interop.canonical.provider import API, Complete, CompleteProvider, context_of, provider_of
from turnlog.interop.canonical.reading import MessageReader, Said
from turnlog.interop.canonical.tools import AgentTools
from turnlog.interop.canonical.turns import TOPIC, draft_of, kept_of, messages, record
from turnlog.interop.canonical.types import (
    AgentContext,
    AgentTool,
    AgentToolResult,
    Api,
    AssistantMessage,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    Tool,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    YieldFunction,
    parse_context,
    parse_message,
    parse_messages,
    to_json,
)

__all__ = [
    "API",
    "TOPIC",
    "AgentContext",
    "AgentTool",
    "AgentToolResult",
    "AgentTools",
    "Api",
    "AssistantMessage",
    "Complete",
    "CompleteProvider",
    "Message",
    "MessageReader",
    "Said",
    "StopReason",
    "TextContent",
    "ThinkingContent",
    "Tool",
    "ToolCall",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
    "YieldFunction",
    "acomplete_of",
    "complete_of",
    "context_of",
    "draft_of",
    "kept_of",
    "message_of",
    "messages",
    "parse_context",
    "parse_message",
    "parse_messages",
    "provider_of",
    "record",
    "to_json",
    "window_of",
]
