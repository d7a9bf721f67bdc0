"""Reads replies of Cohere's v2 chat, event by event or whole, into the same parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw

from turnlog.model import Native, Text, Thinking, ToolUse, parse_arguments
from turnlog.providers.cohere import events
from turnlog.providers.cohere.events import NONE, Event
from turnlog.providers.cohere.requests import CITATIONS
from turnlog.providers.interface import RawEvent
from turnlog.providers.wire import said_by

TEXT_TYPES = ("text", "thinking")
"""The types of parts that have a normalized form. Their text is under the name of their type."""

_REPLY_KEYS = ("id", "message", "finish_reason", "usage", "logprobs", "type")
_MESSAGE_KEYS = ("role", "content", "tool_plan", "tool_calls", "citations")
_END_KEYS = ("id", "finish_reason", "usage", "error")


class Part:
    """A part of the content: its fields, strings among them in the pieces that came."""

    __slots__ = ("_fields", "citations", "type")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.type: str | None = None
        self.citations: list[Raw] = []
        self._fields: dict[str, list[str] | Raw] = {}

    def add(self, fields: Mapping[str, Raw]) -> None:
        """Take the fields of the part, or a piece of them: strings go on, anything else is replaced."""
        for name, raw in fields.items():
            if raw == NONE:
                continue
            if name == "type":
                self.type = events.text(raw)
            elif not events.is_string(raw):
                self._fields[name] = raw
            elif isinstance(pieces := self._fields.get(name), list):
                pieces.append(events.text(raw))
            else:
                self._fields[name] = [events.text(raw)]
        if self.type is None:  # its beginning did not come
            self.type = next((name for name in TEXT_TYPES if name in self._fields), None)

    @property
    def text(self) -> str:
        """The text of the part, so far."""
        pieces = self._fields.get(self.type or "", [])
        return "".join(pieces) if isinstance(pieces, list) else ""

    def block(self, *, provider: str, api: str, model: str) -> Text | Thinking | Native | None:
        """Return the part as a block; None where there is nothing in it."""
        fields = {
            name: Raw(msgspec.json.encode("".join(value))) if isinstance(value, list) else events.minified(value)
            for name, value in self._fields.items()
        }
        if self.type not in TEXT_TYPES:
            if self.type is not None:
                fields = {"type": Raw(msgspec.json.encode(self.type)), **fields}
            return Native(provider=provider, api=api, model=model, block=Raw(msgspec.json.encode(fields)))
        fields.pop(self.type, None)
        extra = fields | citations_extra(self.citations)
        if not self.text and not extra:
            return None
        if self.type == "text":
            return Text(text=self.text, extra=extra)
        return Thinking(thinking=self.text, provider=provider, api=api, model=model, extra=extra)


class Call:
    """A tool call, as far as it came."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        """Begin with the fields of the call; more of its arguments may come."""
        function = events.function(fields)
        self.id = events.text(fields.get("id", NONE)) or UNSET
        self.name = function.name or ""
        self.arguments = [function.arguments or ""]
        self.extra = {
            name: events.minified(raw) for name, raw in fields.items() if name not in ("id", "type", "function")
        }

    def block(self) -> ToolUse:
        """Return the call as a block."""
        value, malformed = parse_arguments("".join(self.arguments))
        return ToolUse(name=self.name, input=value, id=self.id, extra=self.extra | malformed)


class Reading:
    """What was read of a reply so far.

    Attributes:
        id: the reply's id.
        parts: the parts of the content, in the order of the wire.
        plan: the pieces of the tool plan.
        calls: the tool calls, in the order of the wire.
        citations: the citations, likewise, as JSON.
        logprobs: log probabilities, likewise.
        reason: the finish reason.
        usage: the usage, as JSON.
        extra: further fields of the reply, as JSON by name.
        ended: whether the end came.
        said: what the provider said went wrong.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.id: str | None = None
        self.parts: list[Part] = []
        self.plan: list[str] = []
        self.calls: list[Call] = []
        self.citations: list[Raw] = []
        self.logprobs: list[Raw] = []
        self.reason: str | None = None
        self.usage: Raw | None = None
        self.extra: dict[str, Raw] = {}
        self.ended = False
        self.said: str | None = None
        self._part_at: dict[int, Part] = {}
        """The part that an index means just now: text that follows thinking has the same one."""
        self._call_at: dict[int, Call] = {}

    def add(self, raw: RawEvent) -> None:
        """Take an event of a stream, or a whole reply.

        Raises:
            msgspec.DecodeError: it is not JSON, or not what its type says.
        """
        event = events.decode(raw)
        match event.type:
            case None:
                self._whole(raw)
            case "message-start":
                self.id = event.id or self.id
            case "message-end":
                self.id = event.id or self.id
                self._end(events.decode_end(raw), _END_KEYS)
            case "error":
                self._error(raw)
            case kind:
                self._piece(kind, event)

    def _piece(self, kind: str, event: Event) -> None:
        index = event.index or 0
        match kind:
            case "content-start":
                for part in events.objects(event.message.content):
                    self._begin_part(part, index)
            case "content-delta":
                self._content(event, index)
            case "tool-plan-delta":
                self.plan.append(event.message.tool_plan or "")
            case "tool-call-start":
                for call in events.objects(event.message.tool_calls):
                    self._begin_call(call, index)
            case "tool-call-delta":
                self._arguments(event, index)
            case "citation-start":
                self.citations += events.items(event.message.citations)
            case _:
                pass  # an end of something, or of a type that is not known here

    def _whole(self, raw: RawEvent) -> None:
        reply = events.fields(raw)
        message = reply.get("message", NONE)
        if not events.is_object(message):
            self._error(raw)
            return
        self._end(reply, _REPLY_KEYS)
        self.logprobs += events.items(reply.get("logprobs", NONE))
        fields = events.fields(message)
        for index, part in enumerate(events.objects(fields.get("content", NONE))):
            self._begin_part(part, index)
        self.plan.append(events.text(fields.get("tool_plan", NONE)))
        for index, call in enumerate(events.objects(fields.get("tool_calls", NONE))):
            self._begin_call(call, index)
        self.citations += events.items(fields.get("citations", NONE))
        self._keep(fields, _MESSAGE_KEYS)

    def _begin_part(self, fields: Mapping[str, Raw], index: int) -> None:
        part = self._part_at[index] = Part()
        part.add(fields)
        self.parts.append(part)

    def _content(self, event: Event, index: int) -> None:
        for piece in events.objects(event.message.content):
            if part := self._part_at.get(index):
                part.add(piece)
            else:
                self._begin_part(piece, index)
        self.logprobs += events.items(event.logprobs)

    def _begin_call(self, fields: Mapping[str, Raw], index: int) -> None:
        call = self._call_at[index] = Call(fields)
        self.calls.append(call)

    def _arguments(self, event: Event, index: int) -> None:
        for piece in events.objects(event.message.tool_calls):
            if call := self._call_at.get(index):
                call.arguments.append(events.function(piece).arguments or "")
            else:
                self._begin_call(piece, index)

    def _end(self, fields: Mapping[str, Raw], known: Sequence[str]) -> None:
        self.ended = True
        self.id = events.text(fields.get("id", NONE)) or self.id
        self.reason = events.text(fields.get("finish_reason", NONE)) or None
        usage = fields.get("usage", NONE)
        self.usage = None if usage == NONE else events.minified(usage)
        if (error := fields.get("error", NONE)) != NONE:
            self.said = said_by(msgspec.json.decode(error))
        self._keep(fields, known)

    def _error(self, raw: RawEvent) -> None:
        self.said = self.said or said_by(msgspec.json.decode(raw))

    def _keep(self, fields: Mapping[str, Raw], known: Sequence[str]) -> None:
        """Keep the fields that have no normalized form."""
        self.extra |= {name: events.minified(raw) for name, raw in fields.items() if name not in known and raw != NONE}


def citations_extra(citations: Sequence[Raw]) -> dict[str, Raw]:
    """Return citations as they stand in the extra keys of a block."""
    return {CITATIONS: events.listed(citations)} if citations else {}
