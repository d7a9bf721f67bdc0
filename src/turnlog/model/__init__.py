"""Pure values: content blocks, turn metadata, messages, the context window, options. No storage, no providers."""

from turnlog.model.blocks import (
    Block,
    Document,
    Erased,
    Native,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    WindowBlock,
    content_bytes,
    decode_content,
    document_content,
    parse_content,
)
from turnlog.model.calls import BytesRef, CallMeta, ReplyMeta, ToolsMeta
from turnlog.model.compaction import SummaryMeta
from turnlog.model.log_events import ErasureMeta, GenesisMeta, HoldMeta, SealMeta, TrustMeta
from turnlog.model.loss import LossEntry, LossKind, LossReport
from turnlog.model.meta import CONTENT_TYPE, ERROR_STOP_REASONS, ROLES, BookmarkMeta, Origin, TurnMeta, Usage
from turnlog.model.options import JSONValue, Options, Sources, merge_options, merge_sources
from turnlog.model.registers import PointerMeta, ProviderMeta, ServerMeta
from turnlog.model.replies import MALFORMED, CallError, Delta, Response, parse_arguments
from turnlog.model.stop_reasons import STOP_REASONS, Spelling, StopReason, normal_stop_reason, spell_stop_reason
from turnlog.model.tools import Tool, parse_tools, tools_bytes
from turnlog.model.window import ContextWindow, Explanation, LeftOut, Message, Summarized, parse_window

__all__ = [
    "CONTENT_TYPE",
    "ERROR_STOP_REASONS",
    "MALFORMED",
    "ROLES",
    "STOP_REASONS",
    "Block",
    "BookmarkMeta",
    "BytesRef",
    "CallError",
    "CallMeta",
    "ContextWindow",
    "Delta",
    "Document",
    "Erased",
    "ErasureMeta",
    "Explanation",
    "GenesisMeta",
    "HoldMeta",
    "JSONValue",
    "LeftOut",
    "LossEntry",
    "LossKind",
    "LossReport",
    "Message",
    "Native",
    "Options",
    "Origin",
    "PointerMeta",
    "ProviderMeta",
    "ReplyMeta",
    "Response",
    "SealMeta",
    "ServerMeta",
    "Source",
    "Sources",
    "Spelling",
    "StopReason",
    "Summarized",
    "SummaryMeta",
    "Text",
    "Thinking",
    "Tool",
    "ToolResult",
    "ToolUse",
    "ToolsMeta",
    "TrustMeta",
    "TurnMeta",
    "Usage",
    "WindowBlock",
    "content_bytes",
    "decode_content",
    "document_content",
    "merge_options",
    "merge_sources",
    "normal_stop_reason",
    "parse_arguments",
    "parse_content",
    "parse_tools",
    "parse_window",
    "spell_stop_reason",
    "tools_bytes",
]
