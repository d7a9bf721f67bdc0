"""The topics, and where each field of their metadata stands: in the header, in the private part, or as a citation.

The header stays for ever, so nothing that can name or describe a person is in it. What is not listed as public here is
private.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from turnlog.events.sealing import Tagged
from turnlog.model import (
    BookmarkMeta,
    CallMeta,
    ErasureMeta,
    GenesisMeta,
    HoldMeta,
    PointerMeta,
    ProviderMeta,
    ReplyMeta,
    SealMeta,
    ServerMeta,
    SummaryMeta,
    ToolCallMeta,
    ToolEndMeta,
    ToolsMeta,
    TrustMeta,
    TurnMeta,
)

GENESIS = "log.genesis"
TURN = "gpt.turn"
BOOKMARK = "gpt.bookmark"
CALL = "gpt.call"
REPLY = "gpt.reply"
POINTER = "gpt.pointer"
PROVIDER = "gpt.provider"
SERVER = "mcp.server"
TOOLS = "mcp.tools"
TRUST = "log.trust"
ERASURE = "gpt.erasure"
HOLD = "gpt.hold"
SUMMARY = "gpt.summary"
TOOL_CALL = "gpt.tool_call"
TOOL_END = "gpt.tool_end"
SEAL = "log.seal"

FORMATS = (
    "anthropic-export",
    "atif",
    "canonical",
    "chat-messages",
    "claude-code",
    "codex",
    "cursor",
    "gemini-cli",
    "geppetto",
    "gmi",
    "llm-logs",
    "openai-export",
    "opencode",
    "xs",
)
"""What the topics begin with of what turns have no place for: lines of transcripts, and parts of others' models.

These events cite the turn that they are of as `turn`.
"""

FREQUENT_TOPICS = (TURN, CALL, REPLY)
"""Topics of which a log may have millions. All others are rare."""

REGISTERS = (POINTER, PROVIDER, SERVER)
"""Topics of what a run would call, start or send keys to."""

TAGGED: Mapping[str, Mapping[str, Tagged]] = {
    TURN: {"head": "bookmark", "subject": "subject"},
    BOOKMARK: {"name": "bookmark", "to": "bookmark"},
}
"""By topic the private fields for each of which a sealed event shows a tag: what indexes and erasing need.

With each what it is the name of.
"""

PARENT = "parent"
BASE = "base"
TARGET = "target"


def format_of(topic: str) -> str:
    """Return what a topic begins with, which is a format's name where it is of lines of transcripts."""
    return topic.partition(".")[0]


def is_of_format(topic: str, others: Collection[str] = ()) -> bool:
    """Tell whether a topic is one of somebody else's format: of those that turnlog knows, or of some others."""
    return format_of(topic) in FORMATS or format_of(topic) in others


class Shape(Struct, frozen=True, kw_only=True):
    """Where the fields of a topic's metadata stand.

    Attributes:
        kind: the metadata as one value.
        public: names of the fields that stand in the header. All others but the cited ones are private.
        cited: fields that are citations, with what each is cited as. A field that is a tuple can be cited many times.
        requires: what an event of this topic must cite.
        payload: whether it has a payload: always, never, or either (None).
    """

    kind: type[Struct]
    public: frozenset[str] = frozenset()
    cited: Mapping[str, str] = {}
    requires: frozenset[str] = frozenset()
    payload: bool | None = None


_ACTION = frozenset({"action"})

SHAPES: Mapping[str, Shape] = {
    GENESIS: Shape(kind=GenesisMeta, payload=False),
    TURN: Shape(
        kind=TurnMeta,
        public=frozenset(
            {
                "role",
                "content_type",
                "type",
                "cache",
                "model",
                "model_asked",
                "provider",
                "api",
                "stop_reason",
                "raw_stop_reason",
                "usage",
            }
        ),
        cited={
            "continues": PARENT,
            "call": "call",
            "reply": "reply",
            "summary": "summary",
            "tool_ends": "tool_end",
        },
        payload=True,
    ),
    CALL: Shape(
        kind=CallMeta,
        public=frozenset({"provider", "api", "model", "adapter", "adapter_version", "stream", "on_loss"}),
        cited={"turn": "turn", "base": BASE, "tools": "tools"},
        requires=frozenset({"turn"}),
        payload=True,
    ),
    REPLY: Shape(kind=ReplyMeta, cited={"call": "call"}, requires=frozenset({"call"})),
    TOOLS: Shape(kind=ToolsMeta, payload=True),
    SUMMARY: Shape(
        kind=SummaryMeta,
        public=frozenset({"kind", "turns", "model", "provider"}),
        cited={"from": "from", "to": "to", "summary": "summary", "turn": "turn", "call": "call"},
        requires=frozenset({"from", "to"}),
        payload=True,
    ),
    TOOL_CALL: Shape(
        kind=ToolCallMeta,
        public=frozenset({"block", "attempt", "approved"}),
        cited={"turn": "turn"},
        requires=frozenset({"turn"}),
        payload=False,
    ),
    TOOL_END: Shape(
        kind=ToolEndMeta,
        public=frozenset({"block", "attempt", "ending", "by", "duration_ms"}),
        cited={"turn": "turn", "tool_call": "tool_call"},
        requires=frozenset({"turn"}),
    ),
    BOOKMARK: Shape(kind=BookmarkMeta, public=_ACTION, cited={"turn": "turn"}, payload=False),
    POINTER: Shape(kind=PointerMeta, public=_ACTION, payload=False),
    PROVIDER: Shape(kind=ProviderMeta, public=_ACTION, payload=False),
    SERVER: Shape(kind=ServerMeta, public=_ACTION, payload=False),
    TRUST: Shape(kind=TrustMeta, cited={"targets": TARGET}, requires=frozenset({TARGET}), payload=False),
    ERASURE: Shape(kind=ErasureMeta, cited={"targets": TARGET}, requires=frozenset({TARGET}), payload=False),
    SEAL: Shape(kind=SealMeta, public=frozenset({"scope", "keys", "tag"}), payload=False),
    HOLD: Shape(kind=HoldMeta, public=_ACTION, cited={"targets": TARGET}, payload=False),
}
"""By topic. Topics that are not here are of others: their metadata is what they say it is."""
