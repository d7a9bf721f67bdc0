"""Pure values: content blocks, turn metadata, messages, the context window, options. No storage, no providers."""

from turnlog.model.blocks import (
    Block,
    Document,
    Native,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    content_bytes,
    decode_content,
    document_content,
    parse_content,
)
from turnlog.model.meta import ERROR_STOP_REASONS, ROLES, BookmarkMeta, Origin, TurnMeta, Usage
from turnlog.model.options import JSONValue, Options, Sources, merge_options, merge_sources
from turnlog.model.window import ContextWindow, Explanation, LeftOut, Message

__all__ = [
    "ERROR_STOP_REASONS",
    "ROLES",
    "Block",
    "BookmarkMeta",
    "ContextWindow",
    "Document",
    "Explanation",
    "JSONValue",
    "LeftOut",
    "Message",
    "Native",
    "Options",
    "Origin",
    "Source",
    "Sources",
    "Text",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "TurnMeta",
    "Usage",
    "content_bytes",
    "decode_content",
    "document_content",
    "merge_options",
    "merge_sources",
    "parse_content",
]
