"""What stands on the wire in replies of Cohere's v2 chat: the events of a stream, and the pieces of JSON in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from turnlog.providers.interface import RawEvent

NONE = Raw(b"null")
"""What a field that is absent is."""

READ = frozenset(
    {
        "message-start",
        "content-start",
        "content-delta",
        "tool-plan-delta",
        "tool-call-start",
        "tool-call-delta",
        "citation-start",
        "message-end",
        "error",
    }
)
"""The types of events that say something. Those of other types may be of any shape."""


class EventMessage(Struct):
    """What an event adds to the message. `content`, `tool_calls` and `citations` are an object or a list of them."""

    content: Raw = NONE
    tool_calls: Raw = NONE
    tool_plan: str | None = None
    citations: Raw = NONE


class EventDelta(Struct):
    """What an event adds."""

    message: EventMessage | None = None


class Event(Struct):
    """An event of a stream. A whole reply has no `type`."""

    type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: EventDelta | None = None
    logprobs: Raw = NONE

    @property
    def message(self) -> EventMessage:
        """What the event adds to the message."""
        return EventMessage() if self.delta is None or self.delta.message is None else self.delta.message


class EndEvent(Struct):
    """The event `message-end`: its `delta` has the finish reason and the usage."""

    delta: dict[str, Raw] = {}


class Function(Struct):
    """The function of a tool call, or a piece of its arguments."""

    name: str | None = None
    arguments: str | None = None


class Counts(Struct):
    """Tokens. The wire has them as floating-point numbers, at times."""

    input_tokens: float | None = None
    output_tokens: float | None = None


class UsageCounts(Struct):
    """The usage of a reply."""

    billed_units: Counts | None = None
    tokens: Counts | None = None
    cached_tokens: float | None = None


class Cited(Struct):
    """Where a citation is: `type` is `TEXT_CONTENT`, `THINKING_CONTENT` or `PLAN`."""

    content_index: int | None = None
    type: str | None = None


class _Kind(Struct):
    type: str | None = None


_event = msgspec.json.Decoder(Event)
_kind = msgspec.json.Decoder(_Kind)
_end = msgspec.json.Decoder(EndEvent)
_record = msgspec.json.Decoder(dict[str, Raw])
_records = msgspec.json.Decoder(list[dict[str, Raw]])
_list = msgspec.json.Decoder(list[Raw])
_function = msgspec.json.Decoder(Function)
_usage = msgspec.json.Decoder(UsageCounts)
_cited = msgspec.json.Decoder(Cited)
_string = msgspec.json.Decoder(str)

# All of these raise msgspec.DecodeError where JSON is not what it should be.


def decode(raw: RawEvent) -> Event:
    """Return an event decoded."""
    try:
        return _event.decode(raw)
    except msgspec.ValidationError:
        kind = _kind.decode(raw).type
        if kind is None or kind in READ:
            raise
        return Event(type=kind)


def decode_end(raw: RawEvent) -> dict[str, Raw]:
    """Return the `delta` of an event `message-end`."""
    return _end.decode(raw).delta


def decode_usage(raw: Raw) -> UsageCounts:
    """Return a usage decoded."""
    return _usage.decode(raw)


def decode_cited(raw: Raw) -> Cited:
    """Return where a citation is."""
    return _cited.decode(raw)


def is_object(raw: Raw) -> bool:
    """Return whether a piece of JSON is an object."""
    return _first(raw) == b"{"


def is_string(raw: Raw) -> bool:
    """Return whether a piece of JSON is a string."""
    return _first(raw) == b'"'


def fields(raw: Raw | RawEvent) -> dict[str, Raw]:
    """Return the fields of an object."""
    return _record.decode(raw)


def objects(raw: Raw) -> list[dict[str, Raw]]:
    """Return one object, or those of a list; a string is a part with text; anything else is none."""
    match _first(raw):
        case b"{":
            return [_record.decode(raw)]
        case b"[":
            return _records.decode(raw)
        case b'"':
            return [{"type": Raw(b'"text"'), "text": raw}]
        case _:
            return []


def items(raw: Raw) -> list[Raw]:
    """Return one value, or those of a list, without whitespace; null is none."""
    if raw == NONE:
        return []
    return [minified(item) for item in (_list.decode(raw) if _first(raw) == b"[" else [raw])]


def text(raw: Raw) -> str:
    """Return a string; null is an empty one."""
    return "" if raw == NONE else _string.decode(raw)


def function(call: Mapping[str, Raw]) -> Function:
    """Return the function of a tool call, or of a piece of one."""
    raw = call.get("function", NONE)
    return Function() if raw == NONE else _function.decode(raw)


def minified(raw: Raw) -> Raw:
    """Return JSON without whitespace outside strings, otherwise as it was spelled."""
    return Raw(msgspec.json.format(bytes(raw), indent=-1))


def listed(values: Sequence[Raw]) -> Raw:
    """Return a JSON list."""
    return Raw(b"[" + b",".join(map(bytes, values)) + b"]")


def _first(raw: Raw) -> bytes:
    return bytes(memoryview(raw)[:1])
