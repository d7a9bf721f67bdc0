"""Replies of the Responses API: what its events add up to, and what to show of each.

The stream says everything up to three times: in deltas, in `done` events, and in the whole response at its end. The
last of these that came counts, so that a streamed reply equals the same reply unstreamed, and a stream that broke off
gives what had arrived. Some endpoints leave the output out of the response at the end, or an item's texts: then the
events before it count.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.model import (
    Block,
    CallError,
    Delta,
    Native,
    Response,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
    arguments_text,
)
from turnlog.providers.extras import custom_input, says_nothing
from turnlog.providers.openai_responses.items import REFUSAL, Owner, blocks_of
from turnlog.providers.openai_responses.pieces import Item, Items, Node, keeping
from turnlog.providers.raw_json import Fields, fields_of, minified, objects_of, raw, text_of
from turnlog.providers.reader import EventReader, RawEvent, Sender
from turnlog.providers.usage import Counts, count_of, usage_of

_NOTHING = Raw(b"")


class _Event(Struct):
    """One event of a stream, or one whole response, which has no `type`. Fields of no use here are not looked at."""

    type: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    annotation_index: int | None = None
    item_id: str | None = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    code: Any = None
    message: Any = None
    item: Raw = _NOTHING
    part: Raw = _NOTHING
    annotation: Raw = _NOTHING
    response: Raw = _NOTHING
    error: Raw = _NOTHING


_events = msgspec.json.Decoder(_Event)


class _Place(Struct, frozen=True):
    """Where the text of deltas belongs: the type of the item, its list of parts, the type of the part, the key."""

    item: str
    parts: str
    part: str
    key: str


_TEXTS = {
    "response.output_text": _Place("message", "content", "output_text", "text"),
    "response.refusal": _Place("message", "content", "refusal", "refusal"),
    "response.reasoning_text": _Place("reasoning", "content", "reasoning_text", "text"),
    "response.reasoning_summary_text": _Place("reasoning", "summary", "summary_text", "text"),
    "response.function_call_arguments": _Place("function_call", "", "", "arguments"),
    "response.custom_tool_call_input": _Place("custom_tool_call", "", "", "input"),
    "response.mcp_call_arguments": _Place("mcp_call", "", "", "arguments"),
    "response.code_interpreter_call_code": _Place("code_interpreter_call", "", "", "code"),
}
_PARTS = {
    "response.content_part": ("message", "content"),
    "response.reasoning_summary_part": ("reasoning", "summary"),
    "response.reasoning_part": ("reasoning", "content"),
}
ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The types of the last event of a stream, each with the status of the response."""

_SHOWN = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
}
_INPUTS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_FURTHER = ("response.reasoning_summary_part.added", "response.reasoning_part.added")
"""Events that begin a part of thinking, which is shown apart from one before it."""

_INCOMPLETE: dict[str | None, StopReason] = {"content_filter": "refusal", "steered": "stop"}
"""Stop reasons of incomplete responses. Any other reason is a limit of some kind."""

_RETRYABLE = frozenset(
    {"server_error", "rate_limit_exceeded", "vector_store_timeout", "server_is_overloaded", "overloaded_error"}
)
"""Codes and types of errors after which the same request may succeed later."""

_NORMALIZED = frozenset({"id", "object", "model", "status", "output", "output_text", "usage", "incomplete_details"})
_OF_THE_REQUEST = frozenset(
    {
        "background",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "parallel_tool_calls",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""Fields of a response that repeat the request. The request is recorded, and so are the raw events."""


class Reader(EventReader):
    """Reads one reply: the last time that the stream says something is what counts."""

    damage_passes = False

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing."""
        super().__init__(sender)
        self._provider = sender.provider
        self._items = Items()
        self._response: Fields = {}
        self._end: str | None = None

    def _read(self, event: RawEvent) -> list[Delta]:
        text = bytes(minified(event))
        found = _events.decode(text)
        if found.type is None:
            return self._whole(text, found)
        if found.type == "error":
            error = _error_of(found) or {"code": raw(found.code), "message": raw(found.message)}
            self._error = self._error or self._told(error)
        elif found.type in ENDS:
            self._end = ENDS[found.type]
            self._response = fields_of(found.response) or self._response
        else:
            self._response = fields_of(found.response) or self._response
            self._add_piece(found.type, found)
            return _deltas_of(found.type, found)
        return []

    def _whole(self, text: bytes, found: _Event) -> list[Delta]:
        error = _error_of(found)
        response = fields_of(Raw(text)) or {}
        if error is not None and "output" not in response:
            self._error = self._error or self._told(error)
        elif "output" in response or "status" in response:
            self._end = text_of(response.get("status")) or "completed"
            self._response = response
            return _deltas_of_blocks(self._blocks())
        return []

    # Pieces

    def _add_piece(self, kind: str, found: _Event) -> None:
        name, _, what = kind.rpartition(".")
        if kind == "response.output_text.annotation.added":
            fields = fields_of(found.annotation)
            part = self._item(found, "message").part("content", found.content_index or 0, "output_text")
            if fields is not None:
                part.part("annotations", found.annotation_index or 0, "").is_now(fields)
        elif name == "response.output_item":
            fields = fields_of(found.item)
            if fields is not None:
                id = found.item_id or text_of(fields.get("id")) or text_of(fields.get("call_id"))
                type = text_of(fields.get("type")) or ""
                item = self._items.item(found.output_index, id, type, begins=what == "added")
                item.is_now(fields)
                item.whole = what == "done"
        elif name in _PARTS:
            fields = fields_of(found.part)
            kind, parts = _PARTS[name]
            if fields is not None:
                index = found.summary_index if parts == "summary" else found.content_index
                self._item(found, kind).part(parts, index or 0, "").is_now(fields)
        elif name in _TEXTS:
            self._add_text(_TEXTS[name], what, found)

    def _add_text(self, place: _Place, what: str, found: _Event) -> None:
        node: Node = self._item(found, place.item)
        if place.parts:
            index = found.summary_index if place.parts == "summary" else found.content_index
            node = node.part(place.parts, index or 0, place.part)
        text = found.delta if what == "delta" else getattr(found, place.key)
        if not isinstance(text, str):
            return
        if what == "delta":
            node.texts.setdefault(place.key, []).append(text)
        elif what == "done":
            node.texts[place.key] = [text] if text else node.texts.get(place.key, [])

    def _item(self, found: _Event, kind: str) -> Item:
        return self._items.item(found.output_index, found.item_id, kind)

    # Errors

    def _told(self, error: Fields) -> CallError:
        """Return the error that a record tells."""
        code, kind = text_of(error.get("code")), text_of(error.get("type"))
        said = text_of(error.get("message")) or "nothing more"
        named = code or kind
        return CallError(
            message=f"{self._provider} reported an error: {f'{named}: ' if named else ''}{' '.join(said.split())}",
            retryable=code in _RETRYABLE or kind in _RETRYABLE,
        )

    def _ending(self, status: str) -> CallError | None:
        """Return the error where the reply did not come to a good end so far."""
        if self._error is not None:
            return self._error
        if status == "failed":
            return self._told(fields_of(self._response.get("error")) or {})
        if self._end is None:
            why = "the stream ended without its `response.completed` event"
        elif status == "cancelled":
            why = "the response was cancelled"
        elif status not in ("completed", "incomplete"):
            why = f"the response is not there yet, but {status!r}"
        else:
            return None
        return CallError(message=f"{self._provider}: {why}", retryable=status != "cancelled")

    # The response

    def response(self) -> Response:
        """Return what the events so far add up to."""
        content = self._blocks()
        status = text_of(self._response.get("status")) or self._end or "in_progress"
        error = self._ending(status)
        reason = text_of((fields_of(self._response.get("incomplete_details")) or {}).get("reason"))
        usage = self._response.get("usage")
        return Response(
            content=tuple(content),
            model=self._model,
            provider=self.sender.provider,
            api=self.sender.api,
            stop_reason=_stop_reason(status, reason, content, error),
            raw_stop_reason=None if self._end is None else (reason or status),
            usage=_tokens(fields_of(usage)),
            raw_usage=None if fields_of(usage) is None else usage,
            id=text_of(self._response.get("id")),
            error=error,
            extra={
                name: value
                for name, value in self._response.items()
                if name not in _NORMALIZED and name not in _OF_THE_REQUEST and not says_nothing(value)
            },
        )

    @property
    def _model(self) -> str:
        return text_of(self._response.get("model")) or self.sender.model or ""

    def _blocks(self) -> list[Block]:
        owner = Owner(provider=self.sender.provider, api=self.sender.api, model=self._model)
        return [block for item, whole in self._output() for block in blocks_of(item, owner, whole=whole)]

    def _output(self) -> list[tuple[Fields, bool]]:
        """Return the output items, and whether each came to its end."""
        streamed = [(item.record(), item.whole) for item in self._items]
        told = (objects_of(self._response.get("output")) or []) if self._end is not None else []
        if len(told) < len(streamed):
            return streamed
        encrypted = {
            bytes(item["id"]): item["encrypted_content"]
            for item, whole in streamed
            if whole and "id" in item and text_of(item.get("encrypted_content"))
        }
        if len(told) == len(streamed):
            told = [keeping(item, before) for item, (before, _) in zip(told, streamed, strict=True)]
        return [(_with_encrypted(item, encrypted), True) for item in told]


def _stop_reason(status: str, reason: str | None, content: list[Block], error: CallError | None) -> StopReason:
    if error is not None:
        return "aborted" if status == "cancelled" else "error"
    if status == "incomplete":
        return _INCOMPLETE.get(reason, "length")
    if any(isinstance(block, ToolUse) for block in content):
        return "tool_use"
    refused = any(isinstance(block, Text) and REFUSAL in block.extra for block in content)
    return "refusal" if refused else "stop"


def _error_of(found: _Event) -> Fields | None:
    """Return the error that an event has a field for, in the one form; some endpoints have only a text there."""
    return {"message": found.error} if text_of(found.error) else fields_of(found.error)


def _with_encrypted(item: Fields, encrypted: dict[bytes, Raw]) -> Fields:
    """Return a reasoning item with the encrypted content that its `done` event had, where the response has it not."""
    if text_of(item.get("type")) != "reasoning" or text_of(item.get("encrypted_content")):
        return item
    content = encrypted.get(bytes(item.get("id", _NOTHING)))
    return item if content is None else item | {"encrypted_content": content}


def _tokens(usage: Fields | None) -> Usage | None:
    """Return the usage. The API counts cached tokens as input, and those of reasoning as output."""
    if usage is None:
        return None
    inside = fields_of(usage.get("input_tokens_details")) or {}
    outside = fields_of(usage.get("output_tokens_details")) or {}
    return usage_of(
        Counts(
            prompt=count_of(usage.get("input_tokens")),
            output=count_of(usage.get("output_tokens")),
            read=count_of(inside.get("cached_tokens")),
            written=count_of(inside.get("cache_write_tokens")),
            reasoning=count_of(outside.get("reasoning_tokens")),
            total=count_of(usage.get("total_tokens")),
        )
    )


# What to show


def _deltas_of(kind: str, found: _Event) -> list[Delta]:
    if kind == "response.output_item.added":
        return _deltas_of_item(fields_of(found.item) or {})
    if kind in _FURTHER and (found.summary_index or found.content_index):
        return [Delta(type="thinking", content="\n\n")]
    if not isinstance(found.delta, str) or not found.delta:
        return []
    if kind in _SHOWN:
        return [Delta(type=_SHOWN[kind], content=found.delta)]
    return [Delta(content=found.delta)] if kind in _INPUTS else []


def _deltas_of_item(item: Fields) -> list[Delta]:
    match text_of(item.get("type")):
        case "message" | "reasoning" | None:
            return []
        case "function_call" | "custom_tool_call":
            name, call_id = text_of(item.get("name")), text_of(item.get("call_id"))
            return [Delta(type="tool_use", name=name or "", id=call_id or None)]
        case native:
            return [Delta(type=native)]


def _deltas_of_blocks(blocks: list[Block]) -> list[Delta]:
    deltas: list[Delta] = []
    for block in blocks:
        match block:
            case Text(text=text) if text:
                deltas.append(Delta(type="text", content=text))
            case Thinking(thinking=text) if text:
                deltas.append(Delta(type="thinking", content=text))
            case ToolUse():
                deltas.append(Delta(type="tool_use", name=block.name, id=block.id))
                text = custom_input(block)
                deltas.append(Delta(content=arguments_text(block) if text is None else text))
            case Native():
                deltas.append(Delta(type=text_of((fields_of(block.block) or {}).get("type")) or "native"))
            case _:
                pass
    return deltas
