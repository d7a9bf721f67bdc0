"""Replies of the Messages API: its events (https://docs.anthropic.com/en/api/messages-streaming), and whole messages.

What of them goes back to the provider (tool inputs, native blocks, citations) stays JSON text all the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from turnlog.errors import ContentError, ProviderError
from turnlog.model import CallError, Delta, Response, StopReason, ToolUse, Usage, normal_stop_reason
from turnlog.providers.anthropic.blocks import Origin, Piece, ReplyBlock, block_delta, piece_text
from turnlog.providers.anthropic.records import Record, further, has, minified, record_of, records_of, text_of
from turnlog.providers.body import encode
from turnlog.providers.wire import decode_event

RETRYABLE_ERRORS = frozenset({"rate_limit_error", "timeout_error", "api_error", "overloaded_error"})
"""Types of errors after which the same request may succeed later (https://docs.anthropic.com/en/api/errors)."""

_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
_KNOWN = frozenset(
    {
        "message",
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "error",
    }
)
_BEGINNINGS: dict[str, Record] = {
    "text_delta": {"type": Raw(b'"text"')},
    "citations_delta": {"type": Raw(b'"text"')},
    "thinking_delta": {"type": Raw(b'"thinking"')},
    "signature_delta": {"type": Raw(b'"thinking"')},
    "input_json_delta": {"type": Raw(b'"tool_use"')},
}
"""The block that a piece is of, where the event that began the block could not be read."""


class _Event(Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: Piece = Piece()


class _Kind(Struct):
    type: str = ""


class _BlockStart(Struct):
    content_block: Record


class _MessageStart(Struct):
    message: Record


class _Error(Struct, frozen=True):
    type: str = ""
    message: str = ""


class _ErrorEvent(Struct):
    error: _Error = _Error()


class _OutputDetails(Struct):
    thinking_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


_event = msgspec.json.Decoder(_Event)
_kind = msgspec.json.Decoder(_Kind)
_block_start = msgspec.json.Decoder(_BlockStart)
_message_start = msgspec.json.Decoder(_MessageStart)
_error_event = msgspec.json.Decoder(_ErrorEvent)
_usage = msgspec.json.Decoder(_Usage)
_record = msgspec.json.Decoder(Record)

_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ContentError)


def event_deltas(adapter: str, event: bytes) -> Sequence[Delta]:
    """Return what to show of an event of a stream, or of a whole reply.

    Raises:
        ProviderError: the event is not JSON, or is malformed.
    """
    read = _read(adapter, event)
    try:
        match read.type:
            case "content_block_delta":
                text = piece_text(read.delta)
                return () if text is None else (Delta(content=text),)
            case "content_block_start":
                return (block_delta(_block_start.decode(event).content_block, whole=False),)
            case "message":
                return [block_delta(block, whole=True) for block in records_of(_record.decode(event), "content")]
            case _:
                return ()
    except _MALFORMED as error:
        raise _unreadable(adapter, event) from error


class Assembly:
    """Puts the events of one reply together. What cannot be read is left out, and makes the reply one that failed."""

    def __init__(self, adapter: str, provider: str, api: str, asked: str | None) -> None:
        """Begin with no event.

        Args:
            adapter: the adapter's name, for errors.
            provider: the provider, as blocks are to record it.
            api: its api, likewise.
            asked: the model that was asked, or None where that is not known.
        """
        self._adapter = adapter
        self._provider = provider
        self._api = api
        self._asked = asked
        self._blocks: list[ReplyBlock] = []
        self._by_index: dict[int | None, ReplyBlock] = {}
        self._id = ""
        self._model = ""
        self._stop_reason = ""
        self._usage: Record = {}
        self._extra: Record = {}
        self._ended = False
        self._error: CallError | None = None

    def add(self, event: bytes) -> None:
        """Take the next event, or a whole reply."""
        try:
            self._add(_read(self._adapter, event), event)
        except ProviderError as error:
            self._fail(str(error), retryable=True)
        except _MALFORMED:
            self._fail(str(_unreadable(self._adapter, event)), retryable=True)

    def _add(self, read: _Event, event: bytes) -> None:
        match read.type:
            case "content_block_delta":
                self._block_of(read).add(read.delta, event)
            case "content_block_start":
                self._begin(read.index, _block_start.decode(event).content_block)
            case "message_start":
                self._message(_message_start.decode(event).message)
            case "message_delta":
                self._message_delta(_record.decode(event))
            case "message_stop":
                self._ended = True
            case "message":
                self._message(_record.decode(event))
                self._ended = True
            case "error" | "":
                self._add_error(_error_event.decode(event).error, known=bool(read.type))
            case _:
                pass

    def _begin(self, index: int | None, record: Record) -> ReplyBlock:
        block = self._by_index[index] = ReplyBlock(record)
        self._blocks.append(block)
        return block

    def _block_of(self, read: _Event) -> ReplyBlock:
        """Return the block that a piece is of. One whose beginning did not arrive begins with it."""
        block = self._by_index.get(read.index)
        return block or self._begin(read.index, dict(_BEGINNINGS.get(read.delta.type, {})))

    def _message(self, record: Record) -> None:
        for block in records_of(record, "content"):
            self._begin(None, block)
        self._id = text_of(record, "id") or self._id
        self._model = text_of(record, "model") or self._model
        self._stop_reason = text_of(record, "stop_reason") or self._stop_reason
        self._add_usage(record)
        self._add_extra(further(record, _MESSAGE_FIELDS))

    def _message_delta(self, record: Record) -> None:
        delta = record_of(record, "delta")
        self._stop_reason = text_of(delta, "stop_reason") or self._stop_reason
        self._add_usage(record)
        self._add_extra(further(delta, {"stop_reason"}) | further(record, {"type", "delta", "usage"}))

    def _add_extra(self, fields: Record) -> None:
        self._extra |= {name: minified(value) for name, value in fields.items()}

    def _add_usage(self, record: Record) -> None:
        """Merge usage: later counts are totals and win, what is only in earlier ones stays."""
        usage = record_of(record, "usage")
        for name, value in usage.items():
            if has(usage, name) or name not in self._usage:
                self._usage[name] = minified(value)

    def _add_error(self, error: _Error, *, known: bool) -> None:
        if known or error.message:
            said = " ".join((error.message or error.type or "an error, and no more").split())
            kind = f" ({error.type})" if error.message and error.type else ""
            self._fail(f"{self._adapter} broke off: {said}{kind}", retryable=error.type in RETRYABLE_ERRORS)

    def _fail(self, message: str, *, retryable: bool) -> None:
        """Note an error. The first one counts: later ones follow from it."""
        self._error = self._error or CallError(message=message, retryable=retryable)

    def response(self) -> Response:
        """Return what has come so far as a response."""
        if not self._ended:
            self._fail(f"{self._adapter}: the stream ended without its message_stop event", retryable=True)
        origin = Origin(provider=self._provider, api=self._api, model=self._model or self._asked or UNSET)
        content = tuple(block.content(origin) for block in self._blocks)
        calls = any(isinstance(block, ToolUse) for block in content)
        return Response(
            content=content,
            model=self._model or self._asked or "",
            stop_reason="error" if self._error else _normal(self._stop_reason, calls=calls),
            provider=self._provider,
            api=self._api,
            raw_stop_reason=self._stop_reason or None,
            usage=_normal_usage(self._usage),
            raw_usage=Raw(encode(self._usage)) if self._usage else None,
            id=self._id or None,
            error=self._error,
            extra=self._extra,
        )


def _read(adapter: str, event: bytes) -> _Event:
    """Return an event, its block not looked into. Of a kind that is not known, it is the type alone.

    Raises:
        ProviderError: it is not JSON in UTF-8, or is malformed.
    """
    try:
        event.decode()  # msgspec does not look into what stays raw
        return _event.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        kind = decode_event(event, _kind, provider=adapter).type
        if kind in _KNOWN or not kind:
            raise _unreadable(adapter, event) from error
        return _Event(type=kind)


def _unreadable(adapter: str, event: bytes) -> ProviderError:
    shown = event[:80].decode(errors="replace")
    return ProviderError(f"{adapter} sent an event that cannot be read: {shown!r}", provider=adapter)


def _normal(raw: str, *, calls: bool) -> StopReason:
    reason = normal_stop_reason(raw)
    return "tool_use" if calls and reason in (None, "stop") else reason or "stop"


def _normal_usage(record: Record) -> Usage | None:
    if not record:
        return None
    try:
        usage = _usage.decode(encode(record))
    except msgspec.ValidationError:
        return None
    output = usage.output_tokens or 0
    details = usage.output_tokens_details
    reasoning = min(details.thinking_tokens or 0, output) if details else 0
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=output - reasoning,
        cache_creation_input_tokens=usage.cache_creation_input_tokens or 0,
        cache_read_input_tokens=usage.cache_read_input_tokens or 0,
        reasoning_tokens=reasoning,
    )
