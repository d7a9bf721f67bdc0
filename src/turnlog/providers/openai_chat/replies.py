"""What the events of Chat Completions add up to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from turnlog.model import (
    Block,
    CallError,
    Native,
    Response,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
    content_bytes,
    normal_stop_reason,
    parse_arguments,
)
from turnlog.providers.body import encode
from turnlog.providers.interface import RawEvent
from turnlog.providers.openai_chat.events import (
    UNREADABLE,
    CallPiece,
    ChoicePiece,
    Fields,
    Piece,
    error_of,
    is_null,
    read_calls,
    read_choices,
    read_event,
    read_message,
    text_field,
)


class Sender(Struct, frozen=True, kw_only=True):
    """Whose reply it is. `model` is the one that was asked, if that is known."""

    adapter: str
    provider: str
    api: str
    model: str | None


def aggregate(events: Iterable[RawEvent], sender: Sender) -> Response:
    """Return what events add up to; see `Provider.aggregate`."""
    reply = _Reply(sender)
    for event in events:
        reply.add(event)
    return reply.response()


class _Reply:
    """A reply as it comes."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._id = ""
        self._model = ""
        self._choices: dict[int, _Choice] = {}
        self._usage: Raw | None = None
        self._extra: Fields = {}
        self._error: CallError | None = None
        self._counted = False
        """Whether tokens came in an event of their own, as they do behind the last piece of a whole stream."""

    def add(self, event: RawEvent) -> None:
        try:
            self._add(read_event(event))
        except UNREADABLE:
            shown = event[:80].decode(errors="replace")
            message = f"{self._sender.adapter} sent an event that cannot be read: {shown!r}"
            self._error = self._error or CallError(message=message, retryable=True)

    def _add(self, fields: Fields) -> None:
        self._error = self._error or error_of(fields, self._sender.adapter)
        self._id = self._id or text_field(fields, "id")
        self._model = self._model or text_field(fields, "model")
        for name, raw in fields.items():
            if name not in _NOT_EXTRA and not is_null(raw):
                self._extra[name] = raw
        usage = fields.get("usage")
        if usage is not None and not is_null(usage):
            self._usage = usage
            self._counted |= bytes(fields.get("choices", b"")).split() in ([b"[]"], [b"[", b"]"])
        for piece in read_choices(fields):
            if piece.index not in self._choices:
                self._choices[piece.index] = _Choice()
            self._choices[piece.index].add(piece)

    def response(self) -> Response:
        first = min(self._choices, default=0)
        choice = self._choices.get(first) or _Choice()
        model = self._model or self._sender.model or ""
        content = choice.content(self._sender, self._sender.model or model)
        others = [
            choice.record(index, self._sender, model)
            for index, choice in sorted(self._choices.items())
            if index != first
        ]
        extra = _saying({name: _minified(raw) for name, raw in self._extra.items()}) | choice.extra()
        stop_reason, error = self._end(choice, content)
        return Response(
            content=tuple(content),
            model=model,
            stop_reason=stop_reason,
            provider=self._sender.provider,
            api=self._sender.api,
            raw_stop_reason=choice.finish_reason or None,
            usage=None if self._usage is None else usage_of(self._usage),
            raw_usage=None if self._usage is None else _minified(self._usage),
            id=self._id or None,
            error=error,
            extra=extra | {"choices": Raw(encode(others))} if others else extra,
        )

    def _end(self, choice: _Choice, content: list[Block]) -> tuple[StopReason, CallError | None]:
        if self._error is not None:
            return "error", self._error
        if not choice.ended and not (self._counted and self._choices):
            message = f"the reply of {self._sender.adapter} ended without its finish reason"
            return "error", CallError(message=message, retryable=True)
        reason = stop_reason_of(choice.finish_reason)
        if reason == "error":
            message = f"{self._sender.adapter} broke its reply off: {choice.finish_reason}"
            return "error", CallError(message=message, retryable=True)
        if reason in ("stop", "tool_use"):
            calls = any(isinstance(block, ToolUse) for block in content)
            reason = "tool_use" if calls else "refusal" if choice.refused else "stop"
        return reason, None


_NOT_EXTRA = {"id", "model", "object", "choices", "usage", "error", "obfuscation"}
"""The fields of an event that the response has elsewhere, that tell chunks from replies, and that are mere padding."""

_STOP_REASONS: dict[str, StopReason] = {
    "": "stop",
    "function_call": "tool_use",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "safety": "refusal",
    "abort": "error",
    "cancelled": "error",
    "insufficient_system_resource": "error",
    "network_error": "error",
}


def stop_reason_of(finish_reason: str) -> StopReason:
    """Return the stop reason behind a finish reason. Words that no one knows mean that the reply came to its end."""
    word = finish_reason.lower()
    reason = _STOP_REASONS.get(word) or normal_stop_reason(word) or "stop"
    return "error" if reason == "aborted" else reason  # it was not aborted on our side


class _Choice:
    """One choice of a reply as it comes."""

    def __init__(self) -> None:
        self.finish_reason = ""
        self.ended = False
        self.refused = False
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thinking: list[str] = []
        self._natives: list[Raw] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._extra: dict[str, list[Raw]] = {}

    def add(self, choice: ChoicePiece) -> None:
        for name, raw in choice.fields.items():
            if is_null(raw):
                continue
            if name == "finish_reason":
                self.finish_reason = text_field(choice.fields, name) or self.finish_reason
            else:
                self._extra.setdefault(name, []).append(raw)
        self.ended = self.ended or choice.whole or bool(self.finish_reason)
        for piece in read_message(choice.message):
            self._add(piece, whole=choice.whole)

    def _add(self, piece: Piece, *, whole: bool) -> None:
        match piece.kind:
            case "text":
                self._text.append(piece.text)
            case "thinking":
                self._thinking.append(piece.text)
            case "refusal":
                self.refused = True
                self._refusal.append(piece.text)
            case "native":
                self._natives.append(piece.raw)
            case "call":
                for call in read_calls(piece):
                    self._add_call(call, whole=whole)
            case _:
                self._extra.setdefault(piece.name, []).append(piece.raw)

    def _add_call(self, piece: CallPiece, *, whole: bool) -> None:
        last = self._calls[-1] if self._calls else None
        call = last if piece.index is None else self._by_index.get(piece.index)
        if call is None or whole or not call.goes_on_with(piece):
            call = _Call()
            self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        call.add(piece)

    def content(self, sender: Sender, model: str) -> list[Block]:
        """Return the content in the one order that a streamed reply and a whole one share."""
        of: dict[str, Any] = {"provider": sender.provider, "api": sender.api, "model": model}
        blocks: list[Block] = []
        if self._thinking:
            blocks.append(Thinking(thinking="".join(self._thinking), **of))
        blocks += [Text(text="".join(texts)) for texts in (self._text, self._refusal) if texts]
        blocks += [Native(block=_minified(raw), **of) for raw in self._natives]
        return blocks + [call.block() for call in self._calls]

    def extra(self) -> Fields:
        """Return all further fields of the choice and its message."""
        return _saying({name: _minified(_folded(raws, name)) for name, raws in self._extra.items()})

    def record(self, index: int, sender: Sender, model: str) -> dict[str, Any]:
        """Return one of several choices as what `extra` keeps of it."""
        content = Raw(content_bytes(self.content(sender, model)))
        return {"index": index, "content": content, "finish_reason": self.finish_reason or None} | self.extra()


class _Call:
    """A tool call as it comes."""

    def __init__(self) -> None:
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._extra: Fields = {}

    def goes_on_with(self, piece: CallPiece) -> bool:
        """Return whether a piece under the same index, or the next one without an index, is of this call.

        A new name and a new id are a new call: some endpoints give all calls the same index, or none. A new id alone is
        not: others make one up for each piece.
        """
        if not piece.name:
            return True
        if piece.id and self._id and piece.id != self._id:
            return False
        return piece.index is not None or bool(piece.id and piece.id == self._id)

    def add(self, piece: CallPiece) -> None:
        self._id = self._id or piece.id
        if piece.name != self._name:  # some endpoints repeat the whole name with each piece
            self._name += piece.name
        self._arguments.append(piece.arguments)
        self._extra |= piece.extra

    def block(self) -> ToolUse:
        input_, malformed = parse_arguments("".join(self._arguments))
        extra = malformed | {name: _minified(raw) for name, raw in self._extra.items()}
        return ToolUse(name=self._name, input=input_, id=self._id or UNSET, extra=extra)


_JOINED = ("audio.data", "audio.transcript")
"""The texts in further fields of a message that come in pieces."""

_raws = msgspec.json.Decoder(list[Raw])
_object = msgspec.json.Decoder(Fields)


def _folded(pieces: list[Raw], path: str) -> Raw:
    """Return what the pieces of a further field add up to: lists joined, objects key by key, of others the last."""
    if len(pieces) == 1:
        return pieces[0]
    kinds = {bytes(piece)[:1] for piece in pieces}
    if kinds == {b"["}:
        return Raw(encode([item for piece in pieces for item in _raws.decode(piece)]))
    if kinds == {b"{"}:
        found: dict[str, list[Raw]] = {}
        for piece in pieces:
            for name, raw in _object.decode(piece).items():
                known = found.setdefault(name, [])
                if not is_null(raw):
                    known.append(raw)
        return Raw(
            encode({name: _folded(raws, f"{path}.{name}") if raws else None for name, raws in found.items()}),
        )
    if path in _JOINED and kinds == {b'"'}:
        return Raw(encode("".join(msgspec.json.decode(piece, type=str) for piece in pieces)))
    return pieces[-1]


def _saying(fields: Fields) -> Fields:
    """Return the fields that say something: whole replies have empty ones (`annotations`) that streams leave out."""
    return {name: raw for name, raw in fields.items() if bytes(raw) not in (b"null", b"[]", b"{}", b'""')}


def _minified(raw: Raw) -> Raw:
    return Raw(msgspec.json.format(bytes(raw), indent=-1))


# Usage


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    audio_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None


_usage = msgspec.json.Decoder(_Usage)


def usage_of(raw: Raw) -> Usage | None:
    """Return the usage behind what an endpoint reported, or None where that cannot be read.

    The wire counts cached tokens into those of the prompt, and reasoning tokens into those of the completion. Endpoints
    that count otherwise are known by their total: reasoning, or audio of the prompt, may stand beside, and cached
    tokens may be more than the prompt that they are of. What only the total has is reasoning that is not told apart.
    """
    try:
        usage = _usage.decode(raw)
    except msgspec.DecodeError:
        return None
    details = usage.prompt_tokens_details or _PromptDetails()
    prompt, completion = _count(usage.prompt_tokens), _count(usage.completion_tokens)
    total, audio = _count(usage.total_tokens), _count(details.audio_tokens)
    if audio and total == prompt + completion + audio:
        prompt += audio
    cached, written = _count(details.cached_tokens or usage.prompt_cache_hit_tokens), _count(details.cache_write_tokens)
    reasoning = _count((usage.completion_tokens_details or _CompletionDetails()).reasoning_tokens)
    if total and total == prompt + completion:
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
        reasoning = min(reasoning, completion)
    elif not reasoning and total > prompt + completion:
        reasoning = total - prompt - completion
    beside = reasoning > completion or (reasoning > 0 and total == prompt + completion + reasoning)
    return Usage(
        input_tokens=max(0, prompt - cached - written),
        output_tokens=completion if beside else completion - reasoning,
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
        reasoning_tokens=reasoning,
    )


def _count(tokens: int | None) -> int:
    return max(0, tokens or 0)
