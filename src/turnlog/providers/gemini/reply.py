"""Replies of generateContent and streamGenerateContent (Gemini API, `GenerateContentResponse`).

Both are read in one way: the events of a stream are replies that hold pieces, and a whole reply is one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError, ProviderError
from turnlog.model import Block, CallError, Delta, Native, Response, StopReason, Text, ToolUse, Usage
from turnlog.model.json_text import UNREADABLE
from turnlog.providers.extras import Told, says_nothing
from turnlog.providers.gemini.parts import Blocks, OddError, object_in
from turnlog.providers.gemini.request import CONTENT, OF_CONTENT, parts_of
from turnlog.providers.raw_json import (
    NULL,
    Fields,
    fields_of,
    further,
    integer_of,
    is_null,
    items_of,
    minified,
    objects_of,
    raw,
    read_object,
    text_of,
    unreadable,
)
from turnlog.providers.reader import RawEvent, ReplyReader, Sender
from turnlog.providers.usage import Counts, count_of, usage_of
from turnlog.providers.wire import said_by, status_error, status_said_by, wait_said_by

_CONTENT = frozenset({"parts", "role"})
"""The fields of a content that are read."""

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

_OF_PIECES = frozenset({"citationMetadata", "logprobsResult", "urlContextMetadata"})
"""Fields of a candidate that tell of a piece of it where they stand in a stream, in lists that nothing counts in."""


class Reader(ReplyReader):
    """Reads one reply. Further candidates are kept whole in `extra`, and not shown."""

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing read."""
        super().__init__(sender)
        self._candidates: dict[int, _Candidate] = {}
        self._told = Told(last=True)
        self._model: str | None = None
        self._id: str | None = None
        self._usage: Raw | None = None
        self._blocked: str | None = None
        self._error: CallError | None = None

    def add(self, event: RawEvent) -> Sequence[Delta]:
        """Take the next event. One that cannot be read, in whole or in part, is an error of the reply."""
        provider = self.sender.provider
        shown: list[Delta] = []
        try:
            for fields in _replies(event):
                self._take(fields, shown)
        except OddError as odd:
            message = f"{provider} sent an event that is not as its api describes it: {odd}"
            self._fail(ProviderError(message, provider=provider, retryable=True))
        except (*UNREADABLE, ContentError) as error:
            self._fail(ProviderError(unreadable(provider, event, error), provider=provider, retryable=True))
        return shown

    def _take(self, fields: Fields, shown: list[Delta]) -> None:
        for name, value in fields.items():
            if name == "error" and not is_null(value):
                self._fail(_failure(self.sender.provider, value))
            elif name == "usageMetadata" and not is_null(value):
                self._usage = value
            elif name == "modelVersion" and (text := text_of(value)) is not None:
                self._model = text
            elif name == "responseId" and (text := text_of(value)) is not None:
                self._id = text
            elif name != "candidates":
                self._told.put(name, value)
        feedback = fields_of(fields.get("promptFeedback")) or {}
        self._blocked = text_of(feedback.get("blockReason")) or self._blocked
        candidates = objects_of(fields.get("candidates"))
        if candidates is None and not is_null(fields.get("candidates")):
            raise OddError("candidates")
        for candidate in candidates or ():
            index = integer_of(candidate.get("index")) or 0
            if index not in self._candidates:
                self._candidates[index] = _Candidate(self.sender)
            self._candidates[index].add(candidate, [] if index else shown)

    def _fail(self, error: ProviderError) -> None:
        if self._error is None:
            self._error = CallError(
                message=str(error),
                retryable=error.retryable,
                status=error.status or None,
                retry_after_s=error.retry_after_s,
            )

    def response(self) -> Response:
        """Return what the events so far add up to."""
        first = min(self._candidates, default=0)
        main = self._candidates.get(first) or _Candidate(self.sender)
        fields = main.fields() | main.content()
        about = {name: value for name, value in fields.items() if name in OF_CONTENT and _says(name, value)}
        content = _with_about(main.blocks.all(self.sender.model or self._model or "", self._id), about)
        extra = {name: value for name, value in fields.items() if not (content and name in about)} | _joined(self._told)
        others = [self._candidates[index].whole(index) for index in sorted(self._candidates) if index != first]
        if others:
            extra["candidates"] = raw(others)
        stop_reason, error = self._end(main, any(isinstance(block, ToolUse) for block in content))
        return Response(
            content=content,
            model=self._model or self.sender.model or "",
            stop_reason=stop_reason,
            provider=self.sender.provider,
            api=self.sender.api,
            raw_stop_reason=main.finish or self._blocked,
            usage=_tokens(fields_of(self._usage)),
            raw_usage=self._usage,
            id=self._id,
            error=error,
            extra=extra,
        )

    def _end(self, main: _Candidate, calls: bool) -> tuple[StopReason, CallError | None]:
        provider = self.sender.provider
        if self._error is not None:
            return "error", self._error
        if main.finish is None:
            if self._blocked is not None:
                return "refusal", None
            return "error", CallError(message=f"{provider}: the reply ended without its finishReason", retryable=True)
        stop_reason = _STOP_REASONS.get(main.finish, "error")
        if stop_reason == "error":
            said = " ".join((text_of(main.fields().get("finishMessage")) or "").split())
            message = f"{provider} stopped with {main.finish}" + (f": {said}" if said else "")
            return "error", CallError(message=message, retryable=main.finish in _MAY_PASS)
        return "tool_use" if stop_reason == "stop" and calls else stop_reason, None


def _tokens(usage: Fields | None) -> Usage | None:
    """Return the usage. The API counts cached tokens into the prompt; thoughts, and what tools read, stand beside."""
    if usage is None:
        return None
    prompt, of_tools = count_of(usage.get("promptTokenCount")), count_of(usage.get("toolUsePromptTokenCount"))
    return usage_of(
        Counts(
            prompt=prompt if of_tools is None else (prompt or 0) + of_tools,
            output=count_of(usage.get("candidatesTokenCount")),
            read=count_of(usage.get("cachedContentTokenCount")),
            reasoning=count_of(usage.get("thoughtsTokenCount")),
            total=count_of(usage.get("totalTokenCount")),
        ),
        reasoning_beside=True,
    )


def _replies(event: RawEvent) -> list[Fields]:
    """Return the replies in an event: one, or all of a stream where an endpoint sent it as one array."""
    text = minified(event)
    replies = objects_of(text)
    return [read_object(bytes(text))] if replies is None else replies


def _failure(provider: str, error: Raw) -> ProviderError:
    """Return the error that an event tells (google.rpc.Status), with how long it asks to wait."""
    said: Any = msgspec.json.decode(error)
    body = {"error": said}
    status, message = status_said_by(body), said_by(body)
    if status is not None:
        return status_error(provider, status, message, wait_said_by(body))
    return ProviderError(f"{provider} broke off: {message}", provider=provider)


# Candidates


class _Candidate:
    """One of the replies that a request got; most often there is only one."""

    def __init__(self, sender: Sender) -> None:
        self.blocks = Blocks(sender)
        self.finish: str | None = None
        self._told = Told(last=True)
        self._content = Told(last=True)

    def add(self, candidate: Fields, shown: list[Delta]) -> None:
        for name, value in candidate.items():
            if name == "finishReason":
                self.finish = _finish_reason(value) or self.finish
            elif name not in ("content", "index"):
                self._told.put(name, value)
        content = object_in(candidate, "content")
        if not _CONTENT.issuperset(content):
            self._content.add(further(content, _CONTENT))
        parts = content.get("parts")
        for part in items_of(parts) or ():
            shown += self.blocks.add(part)
        if not is_null(parts) and bytes(parts or b"")[:1] != b"[":
            raise OddError("parts")

    def fields(self) -> Fields:
        """Return all that it says beside its content and its end, but for what is null."""
        return _joined(self._told)

    def content(self) -> Fields:
        """Return the further fields of its content, under the one key that holds them."""
        return {CONTENT: raw(fields)} if (fields := _joined(self._content)) else {}

    def whole(self, index: int) -> dict[str, Any]:
        """Return the candidate as an unstreamed reply has it."""
        content = {"parts": parts_of(self.blocks.all("", None)), "role": "model", **_joined(self._content)}
        finish = {} if self.finish is None else {"finishReason": self.finish}
        return {"content": content, **finish, "index": index, **self.fields()}


def _finish_reason(value: Raw) -> str | None:
    """Return a finish reason by its name; one that has only a number that does not say which as the number."""
    if (name := text_of(value)) is not None:
        return name
    number = integer_of(value)
    return None if number is None else _NUMBERED[number] if 0 <= number < len(_NUMBERED) else str(number)


def _joined(told: Told) -> Fields:
    """Return what was told of each field as one value, without what is null.

    Lists are joined, and so are those of objects that tell of pieces. Of other objects there is a list where they
    differ: chunks and supports of `groundingMetadata` count in lists of their own. Of texts and numbers the last holds.
    """
    return {
        name: values[0] if len(values) == 1 else _one_of(name, values)
        for name, values in told.values.items()
        if not all(map(is_null, values))
    }


def _one_of(name: str, values: Sequence[Raw]) -> Raw:
    kinds = {bytes(value)[:1] for value in values}
    if kinds == {b"["}:
        return raw([item for value in values for item in items_of(value) or ()])
    if kinds != {b"{"}:
        return values[-1]
    if name not in _OF_PIECES:
        return raw(values)
    pieces = Told(last=True)
    for value in values:
        pieces.add(fields_of(value) or {})
    return raw(_joined(pieces))


# What is said about the content


def _says(name: str, value: Raw) -> bool:
    """Return whether a field says anything about the content: ratings that find nothing in it do not."""
    if name != "safetyRatings":
        return not says_nothing(value)
    ratings = objects_of(value)
    return ratings is None or not all(map(_finds_nothing, ratings))


def _finds_nothing(rating: Fields) -> bool:
    return text_of(rating.get("probability")) == "NEGLIGIBLE" and bytes(rating.get("blocked", NULL)) != b"true"


def _with_about(content: tuple[Block, ...], about: Fields) -> tuple[Block, ...]:
    """Return content with what is said about it beside its last text, or the block that comes nearest to one."""
    if not (content and about):
        return content
    texts = [place for place, block in enumerate(content) if isinstance(block, Text)]
    natives = [place for place, block in enumerate(content) if isinstance(block, Native)]
    place = (texts or natives or [len(content) - 1])[-1]
    told = msgspec.structs.replace(content[place], extra=content[place].extra | about)
    return (*content[:place], told, *content[place + 1 :])
