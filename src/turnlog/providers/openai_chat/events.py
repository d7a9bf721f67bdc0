"""What one event of Chat Completions says: a chunk of a stream, or a whole reply.

Endpoints that speak this wire differ in what they leave out and add, so events are taken apart key by key: what is not
known is kept as raw JSON text, and only what cannot be read at all is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from turnlog.errors import ProviderError
from turnlog.model import CallError, Delta
from turnlog.providers.wire import RETRYABLE_STATUS, said_by

Fields = dict[str, Raw]
"""A JSON object: its values as raw JSON text."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading an event raises when it is not JSON, or not of the expected form."""

_object = msgspec.json.Decoder(Fields)
_objects = msgspec.json.Decoder(list[Fields])
_raws = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int, strict=False)


class Piece(Struct, frozen=True, gc=False):
    """A piece of a message.

    `kind` is `text`, `thinking`, `refusal`, `call`, `native` (a part of the content that turnlog does not know) or
    `other` (any further field of the message). `name` is the field that it stood in.
    """

    kind: str
    name: str
    text: str = ""
    raw: Raw = Raw(b"")


class CallPiece(Struct, frozen=True, kw_only=True):
    """A piece of a tool call: `arguments` is more text of them, `extra` has the fields that turnlog does not know."""

    index: int | None
    id: str
    name: str
    arguments: str
    extra: Fields


class ChoicePiece(Struct, frozen=True):
    """What an event says of one choice: its further fields, and its message or the next piece of that."""

    index: int
    whole: bool
    fields: Fields
    message: Fields


def read_event(event: bytes) -> Fields:
    """Return the fields of an event.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not a JSON object in UTF-8.
    """
    if not event.isascii():
        event.decode()
    return _object.decode(event)


def read_choices(fields: Fields) -> Iterator[ChoicePiece]:
    """Iterate over the choices that an event has something of.

    Raises:
        msgspec.DecodeError: they are malformed.
    """
    choices = fields.get("choices")
    if choices is None or is_null(choices):
        return
    # Some endpoints repeat all that has come so far, as a message beside each piece of a stream and behind the last.
    in_pieces = text_field(fields, "object") in ("chat.completion.chunk", "chat.completion.done")
    for place, choice in enumerate(_objects.decode(choices)):
        index = choice.pop("index", None)
        message = choice.pop("message", None)
        delta = choice.pop("delta", None)
        repeats = in_pieces and delta is not None and not is_null(delta)
        whole = message is not None and not is_null(message) and not repeats
        content = message if whole else delta
        yield ChoicePiece(
            index=place if index is None or is_null(index) else _number.decode(index),
            whole=whole,
            fields=choice,
            message={} if content is None or is_null(content) else _object.decode(content),
        )


def read_message(message: Fields) -> Iterator[Piece]:
    """Iterate over what a message, or a piece of one, holds. Empty texts and nulls are left out.

    Raises:
        msgspec.DecodeError: it is malformed.
    """
    for name, raw in message.items():
        if name == "role" or is_null(raw):
            continue
        match name:
            case "content":
                yield from _content(raw)
            case "reasoning_content" | "reasoning" if bytes(raw)[:1] == b'"':
                # Some endpoints send the same thinking in both fields, the old one and the new.
                repeated = name == "reasoning" and message.get("reasoning_content") == raw
                if not repeated and (text := _text.decode(raw)):
                    yield Piece("thinking", name, text)
            case "refusal":
                if text := _text.decode(raw):
                    yield Piece("refusal", name, text)
            case "tool_calls" | "function_call":
                yield Piece("call", name, raw=raw)
            case _:
                yield Piece("other", name, raw=raw)


class _TextPart(Struct, tag="text", forbid_unknown_fields=True):
    text: str


class _ThinkingPart(Struct, tag="thinking"):
    thinking: list[_TextPart]


_part = msgspec.json.Decoder(_TextPart | _ThinkingPart)


def _content(raw: Raw) -> Iterator[Piece]:
    """Iterate over a content: text, or a list of parts as some endpoints have it, thinking among them."""
    if bytes(raw)[:1] != b"[":
        if text := _text.decode(raw):
            yield Piece("text", "content", text)
        return
    for part in _raws.decode(raw):
        try:
            known = _part.decode(part)
        except msgspec.ValidationError:
            yield Piece("native", "content", raw=part)
            continue
        thinking = isinstance(known, _ThinkingPart)
        if text := "".join(inner.text for inner in known.thinking) if thinking else known.text:
            yield Piece("thinking" if thinking else "text", "content", text)


def read_calls(piece: Piece) -> Iterator[CallPiece]:
    """Iterate over the tool calls in a piece. `function_call` is the older form of a single one, without an id.

    Raises:
        msgspec.DecodeError: they are malformed.
    """
    if piece.name == "function_call":
        call = _call({"function": piece.raw})
        if call.name or call.arguments:  # some endpoints send an empty one where there is none
            yield call
        return
    for call in _objects.decode(piece.raw):
        yield _call(call)


_NOT_EXTRA = {"index", "id", "type", "function", "name", "input", "$extra"}


def _call(call: Fields) -> CallPiece:
    raw = call.get("function")
    function: Fields = {} if raw is None or is_null(raw) else _object.decode(raw)
    index = call.get("index")
    return CallPiece(
        index=None if index is None or is_null(index) else _number.decode(index),
        id=_text_of(call.get("id")),
        name=_text_of(function.get("name")),
        arguments=_text_of(function.get("arguments")),
        extra={name: raw for name, raw in call.items() if name not in _NOT_EXTRA and not is_null(raw)},
    )


def _text_of(raw: Raw | None) -> str:
    """Return a text; of anything else its JSON text, as some endpoints write ids as numbers, arguments as objects."""
    if raw is None or is_null(raw):
        return ""
    return _text.decode(raw) if bytes(raw)[:1] == b'"' else bytes(raw).decode()


def text_field(fields: Fields, name: str) -> str:
    """Return a field that is text, or nothing where it is not there or something else."""
    raw = fields.get(name)
    return _text.decode(raw) if raw is not None and bytes(raw)[:1] == b'"' else ""


def is_null(raw: Raw) -> bool:
    """Return whether raw JSON text is null."""
    return bytes(raw) == b"null"


# Errors inside a stream

_PASSING = ("overloaded", "rate_limit", "server_error", "service_unavailable", "timeout", "too_many_requests")
"""Words in the type or the code of an error after which the same request may succeed later."""


def error_of(fields: Fields, adapter: str) -> CallError | None:
    """Return the error that an event reports: `{"error": …}`, or the error itself as some endpoints send it."""
    raw = fields.get("error")
    if raw is not None and not is_null(raw):
        body: Any = msgspec.json.decode(raw)
    elif "choices" not in fields and "error" in text_field(fields, "object") + text_field(fields, "type"):
        body = {name: msgspec.json.decode(value) for name, value in fields.items()}
    else:
        return None
    details = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    words = [str(details.get(name, "")).lower() for name in ("type", "code")]
    status = next((details[name] for name in ("code", "status") if type(details.get(name)) is int), None)
    said = " ".join(said_by({"error": body}).split())
    return CallError(
        message=f"{adapter} reported an error: {said or 'it did not say which'}",
        retryable=status in RETRYABLE_STATUS or any(passing in word for passing in _PASSING for word in words),
        status=status,
    )


# Deltas


def event_deltas(event: bytes, adapter: str) -> list[Delta]:
    """Return what to show of an event: of its first choice.

    Raises:
        ProviderError: the event cannot be read.
    """
    try:
        return [
            delta
            for choice in read_choices(read_event(event))
            if choice.index == 0
            for piece in read_message(choice.message)
            for delta in _deltas(piece)
        ]
    except UNREADABLE as error:
        shown = event[:80].decode(errors="replace")
        raise ProviderError(f"{adapter} sent an event that cannot be read: {shown!r}", provider=adapter) from error


def _deltas(piece: Piece) -> Iterator[Delta]:
    match piece.kind:
        case "text" | "refusal":
            yield Delta(type="text", content=piece.text)
        case "thinking":
            yield Delta(type="thinking", content=piece.text)
        case "call":
            for call in read_calls(piece):
                arguments = call.arguments or UNSET
                if call.name:
                    yield Delta(type="tool_use", name=call.name, id=call.id or UNSET, content=arguments)
                elif call.arguments:
                    yield Delta(content=arguments)
        case _:
            return
