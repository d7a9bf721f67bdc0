"""Replies of the Messages API: its events (https://docs.anthropic.com/en/api/messages-streaming), and whole messages.

What of them goes back to the provider (tool inputs, native blocks, citations) stays JSON text all the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from turnlog.model import CallError, Delta, Response, StopReason, ToolUse, Usage, normal_stop_reason
from turnlog.providers.anthropic.blocks import ReplyBlock, block_delta, plain_step
from turnlog.providers.extras import Told
from turnlog.providers.raw_json import (
    NULL,
    Fields,
    fields_of,
    further,
    is_null,
    items_of,
    minified,
    raw,
    read_object,
    text_of,
)
from turnlog.providers.reader import EventReader, RawEvent, Sender
from turnlog.providers.usage import count_of

RETRYABLE_ERRORS = frozenset({"rate_limit_error", "timeout_error", "api_error", "overloaded_error"})
"""Types of errors after which the same request may succeed later (https://docs.anthropic.com/en/api/errors)."""

_EVENTS = frozenset(
    {"content_block_delta", "content_block_start", "content_block_stop", "message_start", "message_stop"}
)
_EVENT_FIELDS = frozenset({"type", "index", "delta", "content_block", "message"})
_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
_TEXT: Fields = {"type": Raw(b'"text"')}
_THINKING: Fields = {"type": Raw(b'"thinking"')}
_BEGINNINGS: dict[str, Fields] = {
    "text_delta": _TEXT,
    "citations_delta": _TEXT,
    "thinking_delta": _THINKING,
    "signature_delta": _THINKING,
    "input_json_delta": {"type": Raw(b'"tool_use"')},
}
"""The block that a piece is of, where the event that began the block could not be read."""


_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_UNCOUNTED = frozenset({"advisor_message", "compaction"})
"""Iterations of a call whose tokens are billed, and are not in its own counts
(https://platform.claude.com/docs/en/build-with-claude/compaction,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool)."""

_kind = msgspec.json.Decoder(str)
_index = msgspec.json.Decoder(int | None)
_object = msgspec.json.Decoder(Fields)
_objects = msgspec.json.Decoder(list[Fields])


class Reader(EventReader):
    """Reads one reply of the Messages API."""

    def __init__(self, sender: Sender) -> None:
        """Begin with no event."""
        super().__init__(sender)
        self._blocks: list[ReplyBlock] = []
        self._by_index: dict[int | None, ReplyBlock] = {}
        self._id = ""
        self._model = sender.model or ""
        self._stop_reason = ""
        self._usage: Fields = {}
        self._extra: Fields = {}
        self._beside = Told()
        """What the events of a stream have beside the pieces of the message."""
        self._ended = False

    def add(self, event: RawEvent) -> Sequence[Delta]:
        """Take the next event, or a whole reply, and return what to show of it: see `ReplyReader.add`."""
        step = plain_step(event)
        return super().add(event) if step is None else self._grow(*step)

    def _read(self, event: RawEvent) -> Sequence[Delta]:
        return self._add(read_object(event))

    def _add(self, event: Fields) -> Sequence[Delta]:
        kind = _kind.decode(event.get("type", b'""'))
        if kind in _EVENTS and not _EVENT_FIELDS.issuperset(event):
            self._beside.add({name: minified(value) for name, value in further(event, _EVENT_FIELDS).items()})
        match kind:
            case "content_block_delta":
                piece = _object.decode(event.get("delta", NULL))
                of_type = _kind.decode(piece.get("type", b'""'))
                return self._grow(_index.decode(event.get("index", NULL)), of_type, piece)
            case "content_block_start":
                record = _object.decode(event.get("content_block", NULL))
                self._begin(_index.decode(event.get("index", NULL)), ReplyBlock(record))
                return (block_delta(record, whole=False),)
            case "message_start":
                return self._message(_object.decode(event.get("message", NULL)))
            case "message_delta":
                delta = _object.decode(event.get("delta", NULL))
                self._stop_reason = text_of(delta.get("stop_reason")) or self._stop_reason
                self._add_usage(event.get("usage"))
                self._add_extra(further(delta, {"stop_reason"}) | further(event, {"type", "delta", "usage"}))
            case "message_stop":
                self._ended = True
            case "message":
                deltas = self._message(event)
                self._ended = True
                return deltas
            case "error":
                self._add_error(event.get("error"))
            case "" if not is_null(event.get("error")):
                self._add_error(event["error"])
            case _:
                pass
        return ()

    def _begin(self, index: int | None, block: ReplyBlock) -> None:
        self._by_index[index] = block
        self._blocks.append(block)

    def _grow(self, index: int | None, kind: str, piece: str | Fields) -> Sequence[Delta]:
        """Add a piece to its block. A block whose beginning did not arrive begins with it."""
        begun = self._by_index.get(index)
        block = begun or ReplyBlock(_BEGINNINGS.get(kind, {}))
        text = block.add(kind, piece)
        if begun is None:
            self._begin(index, block)
        return () if text is None else (Delta(content=text),)

    def _message(self, record: Fields) -> Sequence[Delta]:
        """Take a message, whole or as it is when it begins."""
        blocks = [] if is_null(record.get("content")) else _objects.decode(record["content"])
        for block in blocks:
            self._begin(None, ReplyBlock(block))
        self._id = text_of(record.get("id")) or self._id
        self._model = text_of(record.get("model")) or self._model
        self._stop_reason = text_of(record.get("stop_reason")) or self._stop_reason
        self._add_usage(record.get("usage"))
        self._add_extra(further(record, _MESSAGE_FIELDS))
        return [block_delta(block, whole=True) for block in blocks]

    def _add_extra(self, fields: Fields) -> None:
        self._extra |= {name: minified(value) for name, value in fields.items()}

    def _add_usage(self, usage: Raw | None) -> None:
        """Merge usage: later counts are totals and win, what is only in earlier ones stays."""
        for name, value in (fields_of(usage) or {}).items():
            if not is_null(value) or name not in self._usage:
                self._usage[name] = minified(value)

    def _add_error(self, error: Raw | None) -> None:
        fields = fields_of(error) or {}
        kind = text_of(fields.get("type")) or ""
        message = text_of(fields.get("message")) or text_of(error)
        said = " ".join((message or kind or "an error, and no more").split())
        of_kind = f" ({kind})" if message and kind else ""
        self._fail(f"{self.sender.provider} broke off: {said}{of_kind}", retryable=kind in RETRYABLE_ERRORS)

    def response(self) -> Response:
        """Return what has come so far as a response: see `ReplyReader.response`."""
        error = self._error
        if error is None and not self._ended:
            message = f"{self.sender.provider}: the stream ended without its message_stop event"
            error = CallError(message=message, retryable=True)
        origin = msgspec.structs.replace(self.sender, model=self._model)
        content = tuple(block.content(origin) for block in self._blocks)
        calls = any(isinstance(block, ToolUse) for block in content)
        return Response(
            content=content,
            model=self._model,
            stop_reason="error" if error else _normal(self._stop_reason, calls=calls),
            provider=origin.provider,
            api=origin.api,
            raw_stop_reason=self._stop_reason or None,
            usage=_tokens(self._usage),
            raw_usage=raw(self._usage) if self._usage else None,
            id=self._id or None,
            error=error,
            extra=self._beside.fields() | self._extra,
        )


def _normal(spelled: str, *, calls: bool) -> StopReason:
    reason = normal_stop_reason(spelled)
    return "tool_use" if calls and reason in (None, "stop") else reason or "stop"


def _tokens(usage: Fields) -> Usage | None:
    """Return the usage. The API counts what is cached beside the input, thinking as output, and gives no total."""
    iterations = (fields_of(iteration) or {} for iteration in items_of(usage.get("iterations")) or ())
    told = [usage, *(each for each in iterations if text_of(each.get("type")) in _UNCOUNTED)]
    counts = [[count_of(each.get(name)) for name in _COUNTS] for each in told]
    if all(count is None for each in counts for count in each):
        return None
    given, output, written, read = (sum(count or 0 for count in column) for column in zip(*counts, strict=True))
    details = fields_of(usage.get("output_tokens_details")) or {}
    reasoning = min(count_of(details.get("thinking_tokens")) or 0, output)
    return Usage(
        input_tokens=given,
        output_tokens=output - reasoning,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
        reasoning_tokens=reasoning,
    )
