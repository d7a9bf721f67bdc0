"""Reads replies of Cohere's v2 chat.

A stream is `message-start`, then `content-start|delta|end`, `tool-plan-delta`, `tool-call-start|delta|end` and
`citation-start|end`, and `message-end` last; a whole reply is `{id, message, finish_reason, usage}`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Raw, Struct

from turnlog.model import (
    Block,
    CallError,
    Delta,
    Response,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
    parse_arguments,
)
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.cohere.request import CITATIONS, FUNCTION, PLAN
from turnlog.providers.extras import MESSAGE, Told, extras, native, only_fields
from turnlog.providers.raw_json import (
    NULL,
    Fields,
    fields_of,
    further,
    is_null,
    minified,
    raw,
    read_object,
    text_of,
    unreadable,
)
from turnlog.providers.reader import RawEvent, ReplyReader, Sender
from turnlog.providers.usage import Counts, count_of, usage_of
from turnlog.providers.wire import RETRYABLE_STATUS, said_by, status_said_by

_STOP_REASONS: dict[str, StopReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "stop",  # what its calls make `tool_use`
    "MAX_TOKENS": "length",
    "ERROR_LIMIT": "length",
    "ERROR_TOXIC": "refusal",
    "ERROR": "error",
    "TIMEOUT": "error",
    "USER_CANCEL": "aborted",
}
"""The finish reasons of the API, and those of older ones that its servers still know."""

_EMPTY = Raw(b'""')

_TEXT_TYPES = ("text", "thinking")
"""The types of parts that have a normalized form. Their text is under the name of their type."""

_OWN = (CITATIONS, FUNCTION, MESSAGE, PLAN)
"""The extra keys that the wire uses itself."""

_EVENTS = frozenset(
    {
        *("message-start", "content-start", "content-delta", "content-end", "tool-plan-delta"),
        *("tool-call-start", "tool-call-delta", "tool-call-end", "citation-start", "citation-end"),
    }
)
_REPLY_KEYS = frozenset({"type", "id", "index", "delta", "message", "finish_reason", "usage", "logprobs", "error"})
_MESSAGE_KEYS = frozenset({"role", "content", "tool_plan", "tool_calls", "citations"})


class _Cited(Struct):
    """Where a citation is: `type` is `TEXT_CONTENT`, `THINKING_CONTENT` or `PLAN`."""

    content_index: int | None = None
    type: str | None = None


class _Part:
    """A part of the content: its fields, strings among them in the pieces that came."""

    __slots__ = ("_pieces", "index", "type")

    def __init__(self, index: int) -> None:
        self.index = index
        self.type = ""
        self._pieces: dict[str, list[str | Raw]] = {}

    def add(self, piece: Fields) -> str:
        """Take the fields of the part, or a piece of them, and return what of its text came. Strings go on."""
        for name, value in piece.items():
            text = text_of(value)
            if name == "type" and text is not None:
                self.type = text
            elif not is_null(value):
                self._pieces.setdefault(name, []).append(minified(value) if text is None else text)
        if not self.type:  # its beginning did not come
            self.type = next((name for name in _TEXT_TYPES if name in self._pieces), "")
        return (text_of(piece.get(self.type)) or "") if self.type in _TEXT_TYPES else ""

    def fields(self) -> Fields:
        """Return what the part says so far, but for its type: a list where it was a text and something else too."""
        told = Told()
        for name, pieces in self._pieces.items():
            texts = [piece for piece in pieces if isinstance(piece, str)]
            for value in ([raw("".join(texts))] if texts else []) + [
                piece for piece in pieces if isinstance(piece, Raw)
            ]:
                told.add({name: value})
        return told.fields()


class _Call:
    """A tool call, as far as it came."""

    __slots__ = ("_arguments", "_beside", "_function", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self._arguments: list[str] = []
        self._function = Told()
        self._beside = Told()

    def add(self, piece: Fields) -> str:
        """Take the fields of the call, or a piece of them, and return what of its arguments came."""
        function = _fields(piece.get("function"))
        self.id = self.id or _text(piece.get("id"))
        self.name = self.name or _text(function.get("name"))
        arguments = _text(function.get("arguments"))
        self._arguments.append(arguments)
        self._function.add(_kept(function, ("name", "arguments")))
        self._beside.add(_kept(piece, ("id", "type", "function")))
        return arguments

    def block(self) -> ToolUse:
        """Return the call as a block."""
        value, spelled = parse_arguments("".join(self._arguments), as_spelled=True)
        function = {FUNCTION: raw(inside)} if (inside := self._function.fields()) else {}
        extra = extras(ToolUse, self._beside.fields(), _OWN) | function | spelled
        return ToolUse(name=self.name, input=value, id=self.id or None, extra=extra)


class Reader(ReplyReader):
    """Reads a reply into the parts of its content, its tool plan and its tool calls, which is their order, too."""

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing read."""
        super().__init__(sender)
        self._model = sender.model or sender.provider
        self._id: str | None = None
        self._parts: list[_Part] = []
        self._part_at: dict[int, _Part] = {}
        """The part that an index means just now: text that follows thinking has the same one."""
        self._plan: list[str] = []
        self._calls: list[_Call] = []
        self._call_at: dict[int, _Call] = {}
        self._citations: list[Raw] = []
        self._logprobs: list[Raw] = []
        self._message_fields = Told()
        self._beside = Told()
        """What the events have beside what they add to the message."""
        self._extra: Fields = {}
        self._usage: Raw | None = None
        self._reason: str | None = None
        self._ended = False
        self._unreadable: str | None = None
        self._said: str | None = None
        self._status: int | None = None
        """The HTTP status that the error has, if it is one."""

    def add(self, event: RawEvent) -> list[Delta]:
        """Take the next event; text, thinking, the tool plan and tool calls are shown as they come."""
        shown: list[Delta] = []
        try:
            self._read(event, shown)
        except UNREADABLE as error:
            self._unreadable = self._unreadable or unreadable(self.sender.provider, event, error)
        return shown

    def _read(self, event: RawEvent, shown: list[Delta]) -> None:
        fields = read_object(event)
        kind = _text(fields.get("type"))
        delta = _fields(fields.get("delta")) if kind in _EVENTS or kind == "message-end" else {}
        if kind in _EVENTS and not (_REPLY_KEYS.issuperset(fields) and len(delta) <= ("message" in delta)):
            self._beside.add(_kept(fields, _REPLY_KEYS) | _kept(delta, ("message",)))
        match kind:
            case "content-start" | "content-delta" | "tool-call-start" | "tool-call-delta":
                message = _fields(delta.get("message"))
                self._message(message, shown, index=_index(fields), begins=kind.endswith("start"))
                self._logprobs += _items(fields.get("logprobs"))
            case "message-start" | "tool-plan-delta" | "citation-start":
                self._id = _text(fields.get("id")) or self._id
                self._message(_fields(delta.get("message")), shown)
            case "message-end":
                self._end(fields | delta)
            case "" if bytes(fields.get("message", NULL))[:1] == b"{":
                self._end(fields)
                self._logprobs += _items(fields.get("logprobs"))
                self._message(_fields(fields["message"]), shown)
            case "" | "error":
                self._fail(msgspec.json.decode(event))
            case _:
                pass  # the end of a part, or of a type that is not known here

    def _message(self, fields: Fields, shown: list[Delta], *, index: int | None = None, begins: bool = True) -> None:
        """Take a message, or what an event adds to it.

        Args:
            fields: its fields.
            shown: gets what to show of it.
            index: which part or call it is; None where the order of a list says that.
            begins: whether parts and calls begin here.
        """
        if content := fields.get("content"):
            for place, piece in enumerate(_objects(content)):
                self._part(piece, place if index is None else index, shown, begins=begins)
        if plan := _text(fields.get("tool_plan")):
            self._plan.append(plan)
            shown.append(Delta(type="thinking", content=plan))
        if calls := fields.get("tool_calls"):
            for place, piece in enumerate(_objects(calls)):
                self._call(piece, place if index is None else index, shown, begins=begins)
        if not _MESSAGE_KEYS.issuperset(fields):
            self._message_fields.add(_kept(fields, _MESSAGE_KEYS))
        self._citations += _items(fields.get("citations"))

    def _part(self, piece: Fields, index: int, shown: list[Delta], *, begins: bool) -> None:
        part = None if begins else self._part_at.get(index)
        if part is None:
            part = self._part_at[index] = _Part(index)
            self._parts.append(part)
        if text := part.add(piece):
            shown.append(Delta(type=part.type, content=text))

    def _call(self, piece: Fields, index: int, shown: list[Delta], *, begins: bool) -> None:
        call = None if begins else self._call_at.get(index)
        if call is None:
            call = self._call_at[index] = _Call()
            self._calls.append(call)
        arguments = call.add(piece)
        if begins:
            shown.append(Delta(type="tool_use", name=call.name, id=call.id or None))
        if arguments:
            shown.append(Delta(content=arguments))

    def _end(self, fields: Fields) -> None:
        self._ended = True
        self._id = _text(fields.get("id")) or self._id
        self._reason = _text(fields.get("finish_reason")) or None
        usage = fields.get("usage", NULL)
        self._usage = None if is_null(usage) else minified(usage)
        if not is_null(error := fields.get("error", NULL)):
            self._fail(msgspec.json.decode(error))
        self._extra |= _kept(fields, _REPLY_KEYS)

    # What was read

    def response(self) -> Response:
        """Return what the events so far add up to."""
        of_parts, of_plan, of_nothing = self._cited()
        found = (self._block(part, _listed(CITATIONS, of_parts[place])) for place, part in enumerate(self._parts))
        content = [block for block in found if block is not None]
        if plan := "".join(self._plan):
            content.append(self._thinking(plan, {PLAN: Raw(b"true")} | _listed(CITATIONS, of_plan)))
        content += [call.block() for call in self._calls]
        extra = self._beside.fields() | self._extra | _listed("logprobs", self._logprobs)
        if no_place := self._message_fields.fields() | _listed("citations", of_nothing):
            if content:
                beside = {MESSAGE: raw(no_place)}
                content[-1] = msgspec.structs.replace(content[-1], extra=content[-1].extra | beside)
            else:
                sender = self.sender
                content.append(
                    only_fields(no_place, {"provider": sender.provider, "api": sender.api, "model": self._model})
                )
        stop_reason, error = self._ending()
        return Response(
            content=tuple(content),
            model=self._model,
            stop_reason=stop_reason,
            provider=self.sender.provider,
            api=self.sender.api,
            raw_stop_reason=self._reason,
            usage=_tokens(fields_of(self._usage)),
            raw_usage=self._usage,
            id=self._id,
            error=error,
            extra=extra,
        )

    def _block(self, part: _Part, citations: Fields) -> Block | None:
        """Return a part as a block; None where there is nothing in it."""
        fields = part.fields()
        text = text_of(fields.get(part.type, _EMPTY)) if part.type in _TEXT_TYPES else None
        if text is None:
            whose = msgspec.structs.replace(self.sender, model=self._model)
            return native(whose, {"type": part.type, **fields} if part.type else fields, citations)
        beside = {name: value for name, value in fields.items() if name != part.type}
        if not (text or beside or citations):
            return None
        if part.type == "text":
            return Text(text=text, extra=extras(Text, beside, _OWN) | citations)
        return self._thinking(text, extras(Thinking, beside, _OWN) | citations)

    def _thinking(self, text: str, extra: Fields) -> Thinking:
        sender = self.sender
        return Thinking(thinking=text, provider=sender.provider, api=sender.api, model=self._model, extra=extra)

    def _cited(self) -> tuple[list[list[Raw]], list[Raw], list[Raw]]:
        """Return the citations in each part, those of the plan, and those of nothing that came.

        A citation names its part by an index. Where no part of its kind came under that (streams have one index for
        thinking and the text after it), it is of the one at that place, else of the first one of its kind.
        """
        of_parts: list[list[Raw]] = [[] for _ in self._parts]
        of_plan: list[Raw] = []
        of_nothing: list[Raw] = []
        for citation in self._citations:
            try:
                cited = _cited.decode(citation)
            except msgspec.DecodeError:
                of_nothing.append(citation)
                continue
            if cited.type == "PLAN":
                (of_plan if self._plan else of_nothing).append(citation)
                continue
            kind = "thinking" if cited.type == "THINKING_CONTENT" else "text"
            at = cited.content_index
            places = [place for place, part in enumerate(self._parts) if part.type == kind]
            named = [place for place in places if self._parts[place].index == at]
            place = next(iter(named or [place for place in places if place == at] or places), None)
            (of_nothing if place is None else of_parts[place]).append(citation)
        return of_parts, of_plan, of_nothing

    def _fail(self, body: object) -> None:
        """Note an error. The first one counts: later ones follow from it."""
        if self._said is None:
            self._said, self._status = said_by(body), status_said_by(body)

    def _ending(self) -> tuple[StopReason, CallError | None]:
        """Return why the model stopped, and what went wrong."""
        provider = self.sender.provider
        if self._unreadable is not None:
            return "error", CallError(message=self._unreadable, retryable=True)
        if self._said is not None:
            may_pass = self._status is None or self._status in RETRYABLE_STATUS
            message = f"{provider} broke off: {self._said}"
            return "error", CallError(message=message, retryable=may_pass, status=self._status)
        if not self._ended:
            return "error", CallError(message=f"the stream of {provider} ended without its message-end", retryable=True)
        reason = self._reason or "COMPLETE"
        stop = _STOP_REASONS.get(reason, "error" if reason.startswith("ERROR") else "stop")
        if stop in ("error", "aborted"):
            return stop, CallError(message=f"{provider} ended its reply with {reason}", retryable=True)
        return ("tool_use" if stop == "stop" and self._calls else stop), None


def _tokens(usage: Fields | None) -> Usage | None:
    """Return what was billed: without the provider's own template, which its other counts and its cache include.

    Where that is not said, return all tokens, those that were read from the cache apart.
    """
    if usage is None:
        return None
    billed, counted = (fields_of(usage.get(name)) or {} for name in ("billed_units", "tokens"))
    given, output = count_of(billed.get("input_tokens")), count_of(billed.get("output_tokens"))
    if (given, output) != (None, None):
        return Usage(input_tokens=given or 0, output_tokens=output or 0)
    given, output = count_of(counted.get("input_tokens")), count_of(counted.get("output_tokens"))
    return usage_of(Counts(prompt=given, output=output, read=count_of(usage.get("cached_tokens"))))


# JSON of the one shape that is read here. An event with another one is reported: something would be lost of it.

_cited = msgspec.json.Decoder(_Cited)
_a_text = msgspec.json.Decoder(str | None)
_an_index = msgspec.json.Decoder(int | None)
_an_object = msgspec.json.Decoder(Fields | None)
_one_or_more: msgspec.json.Decoder[Fields | list[Fields] | str | None] = msgspec.json.Decoder(
    Fields | list[Fields] | str | None
)
_list = msgspec.json.Decoder(list[Raw])


def _text(value: Raw | None) -> str:
    return "" if value is None else _a_text.decode(value) or ""


def _index(fields: Fields) -> int:
    return _an_index.decode(fields.get("index", NULL)) or 0


def _fields(value: Raw | None) -> Fields:
    return {} if value is None else _an_object.decode(value) or {}


def _objects(value: Raw | None) -> Sequence[Fields]:
    """Return one object, or those of a list. A text is a part with that text, an empty one is none."""
    found = _one_or_more.decode(value or NULL)
    match found:
        case str():
            return [{"type": Raw(b'"text"'), "text": value or NULL}] if found else []
        case dict():
            return [found]
        case _:
            return found or []


def _items(value: Raw | None) -> list[Raw]:
    """Return one value, or those of a list; null is none."""
    if value is None or is_null(value):
        return []
    return [minified(item) for item in (_list.decode(value) if bytes(value)[:1] == b"[" else [value])]


def _kept(fields: Fields, known: Collection[str] = ()) -> Fields:
    return {name: minified(value) for name, value in further(fields, known).items()}


def _listed(name: str, values: Sequence[Raw]) -> Fields:
    """Return values as a list under a name; nothing where there are none."""
    return {name: raw(values)} if values else {}
