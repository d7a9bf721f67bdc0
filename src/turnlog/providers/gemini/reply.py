"""Replies of generateContent and streamGenerateContent (Gemini API, `GenerateContentResponse`).

Both are read in one way: the events of a stream are replies that hold pieces, and a whole reply is one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ProviderError
from turnlog.model import CallError, Delta, Response, StopReason, ToolUse, Usage
from turnlog.providers.body import encode
from turnlog.providers.gemini.parts import NULL, Blocks, Fields, Part, present
from turnlog.providers.gemini.request import parts_of
from turnlog.providers.interface import RawEvent
from turnlog.providers.wire import said_by, status_error

_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(
        (
            "BLOCKLIST",
            "ESCALATION",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_SAFETY",
            "LANGUAGE",
            "MODEL_ARMOR",
            "PROHIBITED_CONTENT",
            "PUP_LIMITED_DISABLED",
            "RECITATION",
            "SAFETY",
            "SPII",
        ),
        "refusal",
    ),
}
"""Why a model stopped (Gemini API, `FinishReason`). All others are failures: `STOP` is the only end that is whole."""

_NUMBERED = ("FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""The reasons that some endpoints send by number. Above them the numbers of Gemini's API and of Vertex AI differ."""

_MAY_PASS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "OTHER", "UNEXPECTED_TOOL_CALL"})
"""Failures of one reply; the next one to the same request may be whole."""

_fields = msgspec.json.Decoder(dict[str, Raw])
_list_of_fields = msgspec.json.Decoder(list[dict[str, Raw]])
_list = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)
_integer = msgspec.json.Decoder(int)


class _Usage(Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Status(Struct, frozen=True):
    code: int = 0
    details: list[dict[str, Any]] = []


class _Failure(Struct, frozen=True):
    error: _Status = _Status()


_usage = msgspec.json.Decoder(_Usage)


# Events


def read(event: RawEvent, adapter: str) -> list[Fields]:
    """Return the replies in an event: one, or all of a stream where an endpoint sent it as one array.

    Raises:
        ProviderError: the event is not JSON.
    """
    try:
        event.decode()  # raw parts of JSON are not looked into otherwise
        text = msgspec.json.format(event, indent=-1)
        return _list_of_fields.decode(text) if text[:1] == b"[" else [_fields.decode(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = event[:80].decode(errors="replace")
        message = f"{adapter} sent an event that cannot be read: {shown!r}"
        raise ProviderError(message, provider=adapter, retryable=True) from error


def failure(adapter: str, status: int, body: bytes, retry_after: str | None = None) -> ProviderError:
    """Return the error behind the body of a refusal (google.rpc.Status), or of an event that says so.

    Args:
        adapter: the adapter's name.
        status: the HTTP status; 0: the one that the body says.
        body: JSON, or any text.
        retry_after: the `Retry-After` header. Without it, a `google.rpc.RetryInfo` in the body holds.
    """
    try:
        said: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = body.decode(errors="replace")
    try:
        error = msgspec.convert(said[0] if isinstance(said, list) and said else said, _Failure).error
    except msgspec.ValidationError:
        error = _Status()
    delays = [detail["retryDelay"] for detail in error.details if isinstance(detail.get("retryDelay"), str)]
    if retry_after is None and delays:
        retry_after = delays[0].removesuffix("s")
    if status or error.code:
        return status_error(adapter, status or error.code, said_by(said), retry_after)
    return ProviderError(f"{adapter} broke off: {said_by(said)}", provider=adapter)


def deltas(event: RawEvent, adapter: str) -> list[Delta]:
    """Return what to show of an event.

    Raises:
        ProviderError: the event is not JSON.
    """
    shown: list[Delta] = []
    for fields in read(event, adapter):
        with suppress(msgspec.DecodeError):  # `aggregate` says what cannot be read
            shown += [delta for index, candidate in _candidates(fields) if not index for delta in _deltas(candidate)]
    return shown


def _deltas(candidate: Fields) -> Iterator[Delta]:
    for raw in _parts(candidate):
        part = Part(raw)
        if part.native:
            yield Delta(type=part.kind)
        elif part.kind == "tool_use":
            yield Delta(type="tool_use", name=part.name, content=part.input)
        elif part.text:
            yield Delta(type=part.kind, content=part.text)


def _candidates(fields: Fields) -> Iterator[tuple[int, Fields]]:
    for candidate in _list_of_fields.decode(present(fields, "candidates", b"[]")):
        yield _integer.decode(present(candidate, "index", b"0")), candidate


def _parts(candidate: Fields) -> list[Raw]:
    return _list.decode(present(_fields.decode(present(candidate, "content", b"{}")), "parts", b"[]"))


# The whole


class _Candidate:
    """One of the replies that a request got; most often there is only one."""

    def __init__(self, provider: str, api: str) -> None:
        self.blocks = Blocks(provider, api)
        self.finish: str | None = None
        self.fields: Fields = {}

    def add(self, candidate: Fields) -> None:
        for name, value in candidate.items():
            if name in _GROWING and name in self.fields:
                self.fields[name] = _grown(self.fields[name], value)
            elif name not in ("content", "finishReason", "index"):
                self.fields[name] = value
        finish = present(candidate, "finishReason", b"")
        if finish:
            self.finish = _finish_reason(Raw(finish))
        for part in _parts(candidate):
            self.blocks.add(part)

    def as_fields(self, index: int) -> dict[str, Any]:
        """Return the candidate as an unstreamed reply has it."""
        content = {"parts": parts_of(self.blocks.all("", None)), "role": "model"}
        finish = {} if self.finish is None else {"finishReason": self.finish}
        return {"content": content, **finish, "index": index, **self.fields}


def _finish_reason(raw: Raw) -> str:
    """Return a finish reason by its name; one that has only a number that does not say which as the number."""
    if bytes(raw)[:1] == b'"':
        return _string.decode(raw)
    number = _integer.decode(raw)
    return _NUMBERED[number] if 0 <= number < len(_NUMBERED) else str(number)


_GROWING = frozenset({"citationMetadata", "logprobsResult"})
"""Fields of a candidate that tell of a piece of it where they stand in a stream."""


def _grown(before: Raw, after: Raw) -> Raw:
    """Return two objects as one: their lists are joined, unless the later one begins with the earlier one."""
    joined = _fields.decode(before)
    for name, value in _fields.decode(after).items():
        if name in joined and bytes(value)[:1] == bytes(joined[name])[:1] == b"[":
            first, second = _list.decode(joined[name]), _list.decode(value)
            joined[name] = value if second[: len(first)] == first else Raw(encode([*first, *second]))
        else:
            joined[name] = value
    return Raw(encode(joined))


class _Reply:
    """What events add up to."""

    def __init__(self, adapter: str, provider: str, api: str) -> None:
        self._adapter = adapter
        self._provider = provider
        self._api = api
        self._candidates: dict[int, _Candidate] = {0: _Candidate(provider, api)}
        self._extra: Fields = {}
        self._model: str | None = None
        self._id: str | None = None
        self._usage: Raw | None = None
        self._blocked: str | None = None
        self._error: CallError | None = None

    def add(self, event: RawEvent) -> None:
        """Take the next event. One that cannot be read, in whole or in part, is an error of the reply."""
        try:
            for fields in read(event, self._adapter):
                self._take(fields)
        except ProviderError as error:
            self._fail(error)
        except msgspec.DecodeError as error:
            message = f"{self._adapter} sent an event that is not as its api describes it: {error}"
            self._fail(ProviderError(message, provider=self._adapter, retryable=True))

    def _take(self, fields: Fields) -> None:
        for index, candidate in _candidates(fields):
            if index not in self._candidates:
                self._candidates[index] = _Candidate(self._provider, self._api)
            self._candidates[index].add(candidate)
        for name, value in fields.items():
            if value == NULL or name == "candidates":
                continue
            match name:
                case "modelVersion":
                    self._model = _string.decode(value)
                case "responseId":
                    self._id = _string.decode(value)
                case "usageMetadata":
                    self._usage = value
                case "error":
                    self._fail(failure(self._adapter, 0, b'{"error":' + bytes(value) + b"}"))
                case _:
                    self._extra[name] = value
        if "promptFeedback" in fields:
            blocked = present(_fields.decode(present(fields, "promptFeedback", b"{}")), "blockReason", b"")
            self._blocked = _string.decode(blocked) if blocked else self._blocked

    def _fail(self, error: ProviderError) -> None:
        if self._error is None:
            self._error = CallError(
                message=str(error),
                retryable=error.retryable,
                status=error.status or None,
                retry_after_s=error.retry_after_s,
            )

    def response(self, model: str | None) -> Response:
        main = self._candidates.pop(0)
        content = main.blocks.all(model or self._model or "", self._id)
        extra = main.fields | self._extra
        if self._candidates:
            others = [self._candidates[index].as_fields(index) for index in sorted(self._candidates)]
            extra["candidates"] = Raw(encode(others))
        usage = self._tokens()
        raw_stop_reason = main.finish or self._blocked
        stop_reason, error = self._end(main, any(isinstance(block, ToolUse) for block in content))
        return Response(
            content=content,
            model=self._model or model or "",
            stop_reason=stop_reason,
            provider=self._provider,
            api=self._api,
            raw_stop_reason=raw_stop_reason,
            usage=usage,
            raw_usage=self._usage,
            id=self._id,
            error=error,
            extra=extra,
        )

    def _end(self, main: _Candidate, calls: bool) -> tuple[StopReason, CallError | None]:
        if self._error is not None:
            return "error", self._error
        if main.finish is None:
            if self._blocked is not None:
                return "refusal", None
            message = f"{self._adapter}: the reply ended without its finishReason"
            return "error", CallError(message=message, retryable=True)
        stop_reason = _STOP_REASONS.get(main.finish, "error")
        if stop_reason == "error":
            said = _said(main.fields.get("finishMessage"))
            message = f"{self._adapter} stopped with {main.finish}" + (f": {said}" if said else "")
            return "error", CallError(message=message, retryable=main.finish in _MAY_PASS)
        return "tool_use" if stop_reason == "stop" and calls else stop_reason, None

    def _tokens(self) -> Usage | None:
        if self._usage is None:
            return None
        try:
            counts = _usage.decode(self._usage)
        except msgspec.DecodeError:
            return None
        cached = counts.cached_content_token_count or 0
        return Usage(
            input_tokens=max(0, (counts.prompt_token_count or 0) - cached) + (counts.tool_use_prompt_token_count or 0),
            output_tokens=counts.candidates_token_count or 0,
            cache_read_input_tokens=cached,
            reasoning_tokens=counts.thoughts_token_count or 0,
        )


def _said(message: Raw | None) -> str:
    if message is None:
        return ""
    try:
        return " ".join(_string.decode(message).split())
    except msgspec.DecodeError:
        return ""


def aggregate(
    events: Iterable[RawEvent], *, adapter: str, provider: str, api: str, model: str | None = None
) -> Response:
    """Return what the events of a stream add up to, or what one whole reply says.

    Thinking and native blocks are of the model that was asked, where that is known: a request to it gets them back,
    also where its name is an alias of the one in the reply.
    """
    reply = _Reply(adapter, provider, api)
    for event in events:
        reply.add(event)
    return reply.response(model)
