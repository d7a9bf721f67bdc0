"""What the events of Chat Completions say: the chunks of a stream, or one whole reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Raw

from turnlog.model import (
    Block,
    CallError,
    Delta,
    Response,
    StopReason,
    ToolUse,
    content_bytes,
    normal_stop_reason,
)
from turnlog.providers.extras import says_nothing
from turnlog.providers.openai_chat.folding import folded
from turnlog.providers.openai_chat.message import MessageReader
from turnlog.providers.openai_chat.usage import tokens_of, told_in
from turnlog.providers.raw_json import (
    Fields,
    fields_of,
    further,
    integer_of,
    is_null,
    minified,
    objects_of,
    raw,
    read_object,
    text_of,
)
from turnlog.providers.reader import EventReader, RawEvent, Sender
from turnlog.providers.wire import RETRYABLE_STATUS, said_by, status_said_by

_NOT_EXTRA = {"id", "model", "object", "choices", "usage", "error", "obfuscation"}
"""The fields of an event that the response has elsewhere, that tell chunks from replies, and that are mere padding."""


class Reader(EventReader):
    """Reads a reply. What is shown of it, and what it says, is its first choice; `extra` has the others."""

    def __init__(self, sender: Sender, *, thinking_goes_back: bool = False) -> None:
        """Begin with nothing read. Where thinking goes back, it is kept with it which fields it came in."""
        super().__init__(sender)
        self._thinking_goes_back = thinking_goes_back
        self._id = ""
        self._model = ""
        self._choices: dict[int, _Choice] = {}
        self._usage: Raw | None = None
        self._extra: Fields = {}
        self._counted = False
        """Whether tokens came in an event of their own, as they do behind the last piece of a whole stream."""

    def _read(self, event: RawEvent) -> Iterator[Delta]:
        fields = read_object(event)
        self._error = self._error or _error_of(fields, self.sender.provider)
        self._id = self._id or text_of(fields.get("id")) or ""
        self._model = self._model or text_of(fields.get("model")) or ""
        self._extra |= {name: value for name, value in fields.items() if name not in _NOT_EXTRA and not is_null(value)}
        choices = objects_of(fields.get("choices"))
        if (usage := told_in(fields, choices or ())) is not None:
            self._usage = usage
            self._counted = self._counted or choices == []
        if choices is None and not is_null(fields.get("choices")):
            raise msgspec.ValidationError("the choices are no list of objects")
        # Some endpoints repeat all that has come so far, as a message beside each piece and behind the last one.
        in_pieces = text_of(fields.get("object")) in ("chat.completion.chunk", "chat.completion.done")
        for place, choice in enumerate(choices or ()):
            index = integer_of(choice.get("index"))
            index = place if index is None else index
            if index not in self._choices:
                self._choices[index] = _Choice(MessageReader(thinking_goes_back=self._thinking_goes_back))
            for delta in self._choices[index].add(choice, in_pieces=in_pieces):
                if index == 0:
                    yield delta

    def response(self) -> Response:
        """Return what the events so far add up to."""
        sender = self.sender
        model = self._model or sender.model or ""
        of: dict[str, Any] = {"provider": sender.provider, "api": sender.api, "model": sender.model or model}
        first = min(self._choices, default=0)
        choice = self._choices.get(first) or _Choice(MessageReader(thinking_goes_back=False))
        content, rest = choice.message.content(of)
        others = [
            other.record(index, of | {"model": model})
            for index, other in sorted(self._choices.items())
            if index != first
        ]
        extra = folded({name: [value] for name, value in self._extra.items()}) | rest | choice.extra()
        stop_reason, error = self._end(choice, content)
        return Response(
            content=tuple(content),
            model=model,
            stop_reason=stop_reason,
            provider=sender.provider,
            api=sender.api,
            raw_stop_reason=choice.finish_reason or None,
            usage=None if self._usage is None else tokens_of(self._usage),
            raw_usage=None if self._usage is None else minified(self._usage),
            id=self._id or None,
            error=error,
            extra=extra | {"choices": raw(others)} if others else extra,
        )

    def _end(self, choice: _Choice, content: list[Block]) -> tuple[StopReason, CallError | None]:
        if self._error is not None:
            return "error", self._error
        if not choice.ended and not (self._counted and self._choices):
            message = f"the reply of {self.sender.provider} ended without its finish reason"
            return "error", CallError(message=message, retryable=True)
        reason = _stop_reason_of(choice.finish_reason)
        if reason == "error":
            message = f"{self.sender.provider} broke its reply off: {choice.finish_reason}"
            return "error", CallError(message=message, retryable=True)
        if reason in ("stop", "tool_use"):
            calls = any(isinstance(block, ToolUse) for block in content)
            reason = "tool_use" if calls else "refusal" if choice.message.refused else "stop"
        return reason, None


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


def _stop_reason_of(finish_reason: str) -> StopReason:
    """Return the stop reason behind a finish reason. Words that no one knows mean that the reply came to its end."""
    word = finish_reason.lower()
    reason = _STOP_REASONS.get(word) or normal_stop_reason(word) or "stop"
    return "error" if reason == "aborted" else reason  # it was not aborted on our side


class _Choice:
    """One choice of a reply as it comes."""

    def __init__(self, message: MessageReader) -> None:
        self.message = message
        self.finish_reason = ""
        self.ended = False
        self._extra: dict[str, list[Raw]] = {}
        self._in_pieces: set[str] = set()
        """The fields of the message that pieces of it said something of."""

    def add(self, choice: Fields, *, in_pieces: bool) -> Iterator[Delta]:
        message, delta = fields_of(choice.get("message")), fields_of(choice.get("delta"))
        whole = message is not None and not (in_pieces and delta is not None)
        # A whole message behind pieces of it says once more what they said.
        repeats = whole and bool(self._in_pieces)
        for name, value in choice.items():
            read = name in ("message", "delta") and bytes(value)[:1] == b"{"
            known = read or name in ("index", "finish_reason") or (repeats and name in self._extra)
            if not known and not is_null(value):
                self._extra.setdefault(name, []).append(value)
        self.finish_reason = text_of(choice.get("finish_reason")) or self.finish_reason
        self.ended = self.ended or whole or bool(self.finish_reason)
        fields = (message if whole else delta) or {}
        if repeats:
            fields = further(fields, self._in_pieces)
        elif not whole:
            for name, value in fields.items():
                if name not in self._in_pieces and name != "role" and not says_nothing(value):
                    self._in_pieces.add(name)
        return self.message.add(fields, whole=whole)

    def extra(self) -> Fields:
        """Return all further fields of the choice."""
        return folded(self._extra)

    def record(self, index: int, of: dict[str, Any]) -> dict[str, Any]:
        """Return one of several choices as what `extra` keeps of it."""
        content, rest = self.message.content(of)
        known = {"index": index, "content": Raw(content_bytes(content)), "finish_reason": self.finish_reason or None}
        return known | rest | self.extra()


_PASSING = ("overloaded", "rate_limit", "server_error", "service_unavailable", "timeout", "too_many_requests")
"""Words in the type or the code of an error after which the same request may succeed later."""


def _error_of(fields: Fields, provider: str) -> CallError | None:
    """Return the error that an event reports: `{"error": …}`, or the error itself as some endpoints send it."""
    body: Any
    if not is_null(reported := fields.get("error")):
        body = msgspec.json.decode(reported or b"")
    elif "choices" not in fields and any("error" in (text_of(fields.get(name)) or "") for name in ("object", "type")):
        body = {name: msgspec.json.decode(value) for name, value in fields.items()}
    else:
        return None
    details = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    words = [str(details.get(name, "")).lower() for name in ("type", "code")]
    status = status_said_by(details)
    said = said_by({"error": body})
    return CallError(
        message=f"{provider} reported an error: {said or 'it did not say which'}",
        retryable=status in RETRYABLE_STATUS or any(passing in word for passing in _PASSING for word in words),
        status=status,
    )
