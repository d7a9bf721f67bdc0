"""From turns to canonical messages, and what these do not have of them.

A turn can be several messages: those of its tool results, and what else it says. A tool result that names no tool has
the name of its call, one that does not say whether it is an error is none, its text alone is one text block, and
thinking that names the provider, api and model of its turn names none: these are two spellings of one thing, no loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from turnlog.errors import ContentError
from turnlog.interop.canonical import types
from turnlog.interop.canonical.blocks import canonical_api, canonical_usage
from turnlog.model import (
    Block,
    Document,
    JSONValue,
    LossEntry,
    LossKind,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    TurnMeta,
    Usage,
    normal_stop_reason,
    spell_stop_reason,
)
from turnlog.model.json_values import decoded
from turnlog.model.long_strings import LongStrings
from turnlog.model.plain import plain_json
from turnlog.providers.documents import document_text

_OF_ASSISTANTS = ("model", "provider", "api", "stop_reason", "usage", "error")
_NO_PLACE = ("inherited", "options", "cache", "raw_stop_reason", "document_name")

_spelled: dict[str, types.StopReason] = {
    reason: reason for reason in ("stop", "length", "tool-use", "error", "aborted")
}


class Said(Struct, frozen=True, kw_only=True):
    """A turn to read: its id, what it says of itself, its blocks, and when it was said in milliseconds since 1970."""

    turn: str
    meta: TurnMeta
    blocks: Sequence[Block]
    timestamp: int | float


class MessageReader:
    """Reads the turns of one conversation, oldest first: results have the names and ids of the calls before them.

    Attributes:
        losses: what the messages do not have of the turns, in the order of the conversation.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._long = LongStrings()
        self.losses: list[LossEntry] = []
        self._names: dict[str, str] = {}
        self._without_id: dict[str, deque[str]] = {}

    def read(self, said: Said) -> list[types.Message]:
        """Return the messages of a turn: one for each tool result, and one for all the rest."""
        for name in _NO_PLACE:
            if getattr(said.meta, name) not in (None, False):
                self.lose("dropped", said, name, "messages have no place for it")
        match said.meta.role:
            case "assistant":
                return [self._assistant(said)]
            case "user":
                return self._user(said)
            case "system":
                self.lose("dropped", said, "system", "only a context has a system prompt, no message")
                return []

    def lose(self, kind: LossKind, said: Said, block: str, why: str, index: int | None = None) -> None:
        """Report something that a turn has and its messages have not."""
        self.losses.append(LossEntry(kind=kind, turn=said.turn, block=block, why=why, index=index))

    # Assistant turns

    def _assistant(self, said: Said) -> types.AssistantMessage:
        meta = said.meta
        content = [
            found for place, block in enumerate(said.blocks) if (found := self._block(block, said, place)) is not None
        ]
        stop_reason = self._stop_reason(said)
        error = meta.error
        if error is not None and stop_reason != "error":
            self.lose("dropped", said, "error", "only a message with the stop reason 'error' has an error message")
            error = None
        api = None if meta.api is None else canonical_api(meta.api)
        if api is None and isinstance(meta.api, str):
            self.lose("dropped", said, "api", f"the canonical types have no name for {meta.api!r}")
        return types.AssistantMessage(
            content=content,
            timestamp=said.timestamp,
            api=api,
            provider=meta.provider,
            model=meta.model,
            stop_reason=stop_reason,
            usage=self._usage(said),
            error_message=error,
        )

    def _stop_reason(self, said: Said) -> types.StopReason | None:
        spelled = said.meta.stop_reason
        failed = said.meta.error is not None
        if failed and spelled not in ("error", "aborted"):
            self.lose("synthesised", said, "stop_reason", "'error', because the turn has an error")
            return "error"
        if spelled is None:
            return None
        reason = normal_stop_reason(spelled)
        if reason is None:
            self.lose("dropped", said, "stop_reason", f"the canonical types have no word for {spelled!r}")
            return None
        word = spell_stop_reason(reason, "canonical")
        if reason == "refusal":
            self.lose("downgraded", said, "stop_reason", f"{word!r} for {reason!r}")
        elif reason != spelled:
            self.lose("renamed", said, "stop_reason", f"{word!r} for {spelled!r}")
        return _spelled[word]

    def _usage(self, said: Said) -> types.Usage | None:
        usage = said.meta.usage
        if not isinstance(usage, Usage):
            return None
        if usage.reasoning_tokens:
            self.lose("downgraded", said, "usage", "tokens of reasoning are counted as output")
        return canonical_usage(usage)

    def _block(
        self, block: Block, said: Said, place: int
    ) -> types.TextContent | types.ThinkingContent | types.ToolCall | None:
        match block:
            case Text():
                return self._text(block, said, place)
            case Thinking():
                return self._thinking(block, said, place)
            case ToolUse():
                return self._call(block, said, place)
            case Document():
                return self._document(block, said, place)
            case ToolResult():
                self.lose("dropped", said, "tool_result", "an assistant message has none", place)
            case Native():
                self._native(block, said, place)
        return None

    def _thinking(self, block: Thinking, said: Said, place: int) -> types.ThinkingContent:
        self._without_extra(block, said, place)
        for name in ("provider", "api", "model"):
            if getattr(block, name) not in (None, getattr(said.meta, name)):
                self.lose("dropped", said, f"thinking.{name}", "messages have it for all of their blocks alone", place)
        signature = block.signature
        return types.ThinkingContent(thinking=block.thinking, thinking_signature=signature, redacted=block.redacted)

    def _call(self, block: ToolUse, said: Said, place: int) -> types.ToolCall:
        self._without_extra(block, said, place)
        arguments = self._arguments(block, said, place)
        if block.id is None:
            call_id = f"{said.turn}-{place}"
            self._without_id.setdefault(block.name, deque()).append(call_id)
            self.lose("synthesised", said, "tool_id", f"{call_id!r} for a call without an id", place)
        else:
            call_id = block.id
        self._names[call_id] = block.name
        return types.ToolCall(id=call_id, name=block.name, arguments=arguments)

    def _arguments(self, block: ToolUse, said: Said, place: int) -> dict[str, JSONValue]:
        try:
            found = decoded(block.input)
            arguments = plain_json(found.value, "it", ContentError)
        except ContentError as error:
            self.lose("dropped", said, "tool_use.input", str(error), place)
            return {}
        if found.change is not None:
            self.lose("downgraded", said, "tool_use.input", f"decoded: {found.change}", place)
        return arguments

    # User turns

    def _user(self, said: Said) -> list[types.Message]:
        for name in _OF_ASSISTANTS:
            if getattr(said.meta, name) is not None:
                self.lose("dropped", said, name, "only assistant messages have it")
        messages: list[types.Message] = []
        texts: list[types.TextContent] = []
        for place, block in enumerate(said.blocks):
            match block:
                case ToolResult():
                    messages.append(self._result(block, said, place))
                case Text():
                    texts.append(self._text(block, said, place))
                case Document():
                    texts.append(self._document(block, said, place))
                case Native():
                    self._native(block, said, place)
                case Thinking():
                    self.lose("dropped", said, "thinking", "only assistant messages have it", place)
                case ToolUse():
                    self.lose("dropped", said, "tool_use", "only assistant messages have it", place)
        if texts or not messages:
            single = len(texts) == 1 and len(said.blocks) == 1
            messages.append(types.UserMessage(content=texts[0].text if single else texts, timestamp=said.timestamp))
        if len(messages) > 1:
            self.lose("moved", said, "turn", f"it is {len(messages)} messages, results first")
        return messages

    def _result(self, block: ToolResult, said: Said, place: int) -> types.ToolResultMessage:
        self._without_extra(block, said, place)
        call_id = self._answered(block, said, place) if block.tool_use_id is None else block.tool_use_id
        name = self._names.get(call_id) if block.name is None else block.name
        if name is None:
            self.lose("synthesised", said, "tool_name", "an empty one, for a result that names no tool", place)
        return types.ToolResultMessage(
            tool_call_id=call_id,
            tool_name=name or "",
            content=self._result_content(block, said, place),
            is_error=block.is_error is True,
            timestamp=said.timestamp,
        )

    def _answered(self, block: ToolResult, said: Said, place: int) -> str:
        """Return the id of the oldest call without one that a result without one answers."""
        waiting = self._without_id.get(block.name if isinstance(block.name, str) else "")
        call_id = waiting.popleft() if waiting else f"{said.turn}-{place}"
        self.lose("synthesised", said, "tool_id", f"{call_id!r} for a result without an id", place)
        return call_id

    def _result_content(self, block: ToolResult, said: Said, place: int) -> list[types.TextContent]:
        if isinstance(block.content, str):
            return [types.TextContent(text=block.content)]
        content: list[types.TextContent] = []
        for nested in block.content:
            match nested:
                case Text():
                    content.append(self._text(nested, said, place))
                case Document():
                    content.append(self._document(nested, said, place))
                case Native():
                    self._native(nested, said, place)
        return content

    # What both have

    def _text(self, block: Text, said: Said, place: int) -> types.TextContent:
        self._without_extra(block, said, place)
        return types.TextContent(text=block.text)

    def _document(self, block: Document, said: Said, place: int) -> types.TextContent:
        self._without_extra(block, said, place)
        media_type = block.source.media_type
        text = document_text(block, self._long)
        kind: Literal["downgraded", "dropped"] = "dropped" if text is None else "downgraded"
        why = f"{media_type} as plain text" if text is not None else f"a line of text in place of {media_type}"
        self.lose(kind, said, "document", why, place)
        size = self._long.bytes_of_base64(block.source.data)
        line = f"[a document of type {media_type}, {size:,} bytes, that cannot be shown here]"
        return types.TextContent(text=line if text is None else text)

    def _native(self, block: Native, said: Said, place: int) -> None:
        self.lose("dropped", said, "native", f"a block of {block.provider!r} without a normalized form", place)

    def _without_extra(self, block: Block, said: Said, place: int) -> None:
        for name in sorted(block.extra):
            self.lose("dropped", said, name, "canonical blocks have no such key", place)


def reader_with(long: LongStrings) -> MessageReader:
    """Return a reader for documents for whose base64 marks of long strings may stand, as then do for their text."""
    reader = MessageReader()
    reader._long = long  # pyright: ignore[reportPrivateUsage] - a parameter would be part of what is public
    return reader
