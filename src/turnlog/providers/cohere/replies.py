"""From what Cohere's v2 chat sends to deltas and a response.

A stream is `message-start`, then `content-start|delta|end`, `tool-plan-delta`, `tool-call-start|delta|end` and
`citation-start|end`, and `message-end` last; a whole reply is `{id, message, finish_reason, usage}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from turnlog.errors import ProviderError
from turnlog.model import Block, CallError, Delta, Response, StopReason, Thinking, Usage
from turnlog.providers.cohere import events
from turnlog.providers.cohere.events import NONE
from turnlog.providers.cohere.reading import TEXT_TYPES, Call, Reading, citations_extra
from turnlog.providers.cohere.requests import CITATIONS, PLAN
from turnlog.providers.interface import RawEvent

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

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


def deltas_of(adapter: str, event: RawEvent) -> list[Delta]:
    """Return what to show of one event of a stream, or of one whole reply.

    Raises:
        ProviderError: the event is not JSON, or not what its type says.
    """
    try:
        return list(_deltas(event))
    except _UNREADABLE as error:
        raise ProviderError(_unreadable(adapter, event), provider=adapter) from error


def _deltas(raw: RawEvent) -> Iterator[Delta]:
    event = events.decode(raw)
    match event.type:
        case None:
            yield from _deltas_of_whole(raw)
        case "content-start" | "content-delta":
            for part in events.objects(event.message.content):
                yield from _texts((name, events.text(part.get(name, NONE))) for name in TEXT_TYPES)
        case "tool-plan-delta":
            yield from _texts([("thinking", event.message.tool_plan)])
        case "tool-call-start":
            for call in events.objects(event.message.tool_calls):
                yield from _deltas_of_call(Call(call))
        case "tool-call-delta":
            for piece in events.objects(event.message.tool_calls):
                if arguments := events.function(piece).arguments:
                    yield Delta(content=arguments)
        case _:
            pass


def _deltas_of_whole(raw: RawEvent) -> Iterator[Delta]:
    reading = Reading()
    reading.add(raw)
    yield from _texts((part.type or "", part.text) for part in reading.parts if part.type in TEXT_TYPES)
    yield from _texts([("thinking", "".join(reading.plan))])
    for call in reading.calls:
        yield from _deltas_of_call(call)


def _deltas_of_call(call: Call) -> Iterator[Delta]:
    yield Delta(type="tool_use", name=call.name, id=call.id)
    if arguments := "".join(call.arguments):
        yield Delta(content=arguments)


def _texts(pieces: Iterable[tuple[str, str | None]]) -> Iterator[Delta]:
    return (Delta(type=kind, content=text) for kind, text in pieces if text)


def add_up(raw_events: Iterable[RawEvent], *, adapter: str, provider: str, api: str, model: str) -> Response:
    """Return what the events of a stream, or one whole reply, add up to.

    The content is the parts of the content, then the plan as thinking, then the tool calls.

    Args:
        raw_events: the events, in order.
        adapter: the adapter's name, for errors.
        provider: the provider, for the response and for blocks that go back to it alone.
        api: its api, likewise.
        model: the model that was asked, likewise.
    """
    reading = Reading()
    unreadable: str | None = None
    for raw in raw_events:
        try:
            reading.add(raw)
        except _UNREADABLE:
            unreadable = unreadable or _unreadable(adapter, raw)
    of_plan, uncited = _cite(reading)
    content: list[Block] = [
        block for part in reading.parts if (block := part.block(provider=provider, api=api, model=model))
    ]
    if plan := "".join(reading.plan):
        extra = {PLAN: Raw(b"true"), **citations_extra(of_plan)}
        content.append(Thinking(thinking=plan, provider=provider, api=api, model=model, extra=extra))
    content += [call.block() for call in reading.calls]
    stop_reason, error = _ending(adapter, reading, unreadable)
    return Response(
        content=tuple(content),
        model=model,
        stop_reason=stop_reason,
        provider=provider,
        api=api,
        raw_stop_reason=reading.reason,
        usage=None if reading.usage is None else _usage(reading.usage),
        raw_usage=reading.usage,
        id=reading.id,
        error=error,
        extra=reading.extra
        | ({"logprobs": events.listed(reading.logprobs)} if reading.logprobs else {})
        | ({CITATIONS: events.listed(uncited)} if uncited else {}),
    )


def _ending(adapter: str, reading: Reading, unreadable: str | None) -> tuple[StopReason, CallError | None]:
    """Return why the model stopped, and what went wrong."""
    if unreadable is not None:
        return "error", CallError(message=unreadable, retryable=True)
    if reading.said is not None:
        return "error", CallError(message=f"{adapter} broke off: {reading.said}", retryable=True)
    if not reading.ended:
        return "error", CallError(message=f"the stream of {adapter} ended without its message-end", retryable=True)
    reason = reading.reason or "COMPLETE"
    stop = _STOP_REASONS.get(reason, "error" if reason.startswith("ERROR") else "stop")
    if stop in ("error", "aborted"):
        return stop, CallError(message=f"{adapter} ended its reply with {reason}", retryable=True)
    return ("tool_use" if stop == "stop" and reading.calls else stop), None


def _usage(raw: Raw) -> Usage | None:
    """Return what was billed: without the provider's own template, which its other counts and its cache include.

    Where that is not said, return all tokens, those that were read from the cache apart.
    """
    try:
        usage = events.decode_usage(raw)
    except msgspec.DecodeError:
        return None
    billed, counted = usage.billed_units, usage.tokens
    if billed is not None and (billed.input_tokens, billed.output_tokens) != (None, None):
        return Usage(input_tokens=int(billed.input_tokens or 0), output_tokens=int(billed.output_tokens or 0))
    if counted is None:
        return None
    given = int(counted.input_tokens or 0)
    cached = min(int(usage.cached_tokens or 0), given)
    return Usage(
        input_tokens=given - cached, output_tokens=int(counted.output_tokens or 0), cache_read_input_tokens=cached
    )


def _cite(reading: Reading) -> tuple[list[Raw], list[Raw]]:
    """Give each part the citations in it; return those of the plan, and those of nothing that came.

    A citation names its part by place. Where that part is of another kind (streams have one place for thinking and the
    text after it), or none is named, the citation is of the first part of its kind.
    """
    of_plan: list[Raw] = []
    rest: list[Raw] = []
    for raw in reading.citations:
        try:
            cited = events.decode_cited(raw)
        except msgspec.DecodeError:
            rest.append(raw)
            continue
        if cited.type == "PLAN":
            (of_plan if any(reading.plan) else rest).append(raw)
            continue
        kind = "thinking" if cited.type == "THINKING_CONTENT" else "text"
        place = cited.content_index
        named = reading.parts[place : place + 1] if place is not None and place >= 0 else []
        part = next((part for part in (*named, *reading.parts) if part.type == kind), None)
        (rest if part is None else part.citations).append(raw)
    return of_plan, rest


def _unreadable(adapter: str, raw: RawEvent) -> str:
    return f"{adapter} sent an event that cannot be read: {raw[:80].decode(errors='replace')!r}"
