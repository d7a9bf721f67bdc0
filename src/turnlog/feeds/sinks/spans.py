"""What a log has of model calls and executions of tools, as spans: values, without any package of OpenTelemetry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Struct

from turnlog.context import Projector
from turnlog.errors import ContentError
from turnlog.events import CALL, TOOL_END, TURN, Recorded, meta_of, metadata, turn_meta
from turnlog.feeds.sinks.interface import Batch, SinkRecord, record_key
from turnlog.feeds.sinks.span_content import Said, SpanContent, given, joined
from turnlog.model.blocks import ToolResult, ToolUse
from turnlog.model.meta import TurnMeta, Usage
from turnlog.model.tool_calls import ToolEndMeta
from turnlog.projections.belonging import ThreadsInOrder
from turnlog.store import ReadTransaction, Store

INPUT_BYTES_MAX = 256 * 1024
"""How many bytes of messages a span has as its input. Where there are more, the oldest are left out."""

STEPS_MAX = 10_000
"""How many calls of one question are followed back at most."""

_NS_MAX = (1 << 64) - 1
"""The last moment that a span can have: in the year 2554."""

_KEPT_MAX = 10_000

_PROVIDERS = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai", "bedrock": "aws.bedrock"}
"""Providers that the conventions name otherwise."""

_FINISH = {"stop": "stop", "length": "length", "tool_use": "tool_call", "refusal": "content_filter"}
"""Stop reasons in the words of `gen_ai.output.messages`; `error` for all others."""

_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}


class SpanData(Struct, frozen=True, kw_only=True):
    """A span.

    Attributes:
        name: its name.
        trace_id: 128 bits.
        span_id: 64 bits.
        parent_id: that of the span that it is part of; None for none.
        is_call: whether it is a model call, else the execution of a tool.
        start_ns: its start, nanoseconds since 1970 UTC.
        end_ns: its end.
        attributes: the attributes.
        error: why it failed, empty if that is not said; None if it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    is_call: bool
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    error: str | None = None


class Spans:
    """Makes spans of turns."""

    def __init__(self, store: Store, *, content: bool) -> None:
        """Take the log, and whether what was said goes along."""
        self._store = store
        self._content = content
        self._projector = Projector()
        self._threads = ThreadsInOrder()
        self._questions: OrderedDict[str, str] = OrderedDict()
        """By the turn that a call was made from, the turn that its question begins at."""

    def of(self, batch: Batch) -> Iterator[SpanData]:
        """Iterate over the spans of a batch."""
        with self._store.read() as transaction:
            for record in batch.records:
                if record.recorded.header.topic == TURN:
                    yield from self._of_turn(transaction, batch, record)

    def _of_turn(self, transaction: ReadTransaction, batch: Batch, record: SinkRecord) -> Iterator[SpanData]:
        turn = record.recorded
        meta = turn_meta(turn)
        if meta.role == "assistant":
            call = _event(transaction, turn.header.cited("call"), CALL)
            if call is not None:
                yield self._of_call(transaction, batch, record, meta, call)
        elif not turn.unreadable and meta.type != "document" and turn.private is not None:
            yield from self._of_results(transaction, batch, record, meta)

    # Model calls

    def _of_call(
        self, transaction: ReadTransaction, batch: Batch, record: SinkRecord, meta: TurnMeta, call: Recorded
    ) -> SpanData:
        turn = record.recorded
        asked: dict[str, Any] = metadata(_shown(call, batch))
        model = asked.get("model")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(meta.provider),
            "gen_ai.request.model": model,
            "gen_ai.request.stream": asked.get("stream"),
            "gen_ai.response.model": meta.model,
            "gen_ai.response.finish_reasons": _reasons(meta),
            **_usage(meta),
            **_parameters(asked.get("params")),
            **self._place(transaction, batch, turn),
            "turnlog.call.id": call.header.id,
        }
        error = self._error(transaction, batch, turn, meta) if meta.failed else None
        if error is not None:
            attributes["error.type"] = error[0]
        if self._content and not batch.choice.public:
            content = SpanContent()
            attributes |= self._messages(transaction, batch, record, meta, call, content)
            attributes |= content.attributes
        return SpanData(
            name=f"chat {model}" if isinstance(model, str) else "chat",
            trace_id=self._trace_id(transaction, call),
            span_id=_span_id(turn.header.id),
            parent_id=None,
            is_call=True,
            start_ns=_ns(call),
            end_ns=max(_ns(turn), _ns(call)),
            attributes=given(attributes),
            error=None if error is None else error[1],
        )

    def _place(self, transaction: ReadTransaction, batch: Batch, turn: Recorded) -> dict[str, Any]:
        header = turn.header
        threads = self._threads.of(transaction, header)
        return {
            "gen_ai.conversation.id": threads[0] if threads else None,
            "turnlog.turn.id": header.id,
            "turnlog.log.id": batch.log,
            "turnlog.global_position": turn.global_position,
            "turnlog.idempotency_key": record_key(batch.log, turn),
        }

    def _error(self, transaction: ReadTransaction, batch: Batch, turn: Recorded, meta: TurnMeta) -> tuple[str, str]:
        """Return what kind of error a call ended with, and what was said of it, if that may be told."""
        reply = _event(transaction, turn.header.cited("reply"), None)
        said: object = None if reply is None else metadata(_shown(reply, batch)).get("error")
        status = cast("Mapping[str, object]", said).get("status") if isinstance(said, Mapping) else None
        kind = str(status) if isinstance(status, int) else meta.stop_reason
        text = meta.error if self._content and isinstance(meta.error, str) else ""
        return kind if isinstance(kind, str) else "_OTHER", text

    def _messages(
        self,
        transaction: ReadTransaction,
        batch: Batch,
        record: SinkRecord,
        meta: TurnMeta,
        call: Recorded,
        content: SpanContent,
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        said = _said(transaction, record.recorded)
        if said is not None:
            output = content.message("assistant", said, finish_reason=_finish(meta))
            found["gen_ai.output.messages"] = joined([output])
        del said
        asked_from = _event(transaction, call.header.cited("turn"), TURN)
        if asked_from is None or (asked_from.sealed is not None and not batch.choice.unseal):
            return found
        messages: list[bytes] = []
        size = 0
        window = self._projector.window(transaction, asked_from).messages
        for message in reversed(window):
            size += len(message.content_json)
            if messages and size > INPUT_BYTES_MAX:
                found["turnlog.input.messages_left_out"] = len(window) - len(messages)
                break
            messages.append(content.message(message.role, Said(message.content_json)))
        found["gen_ai.input.messages"] = joined(messages[::-1])
        return found

    # Tools

    def _of_results(
        self, transaction: ReadTransaction, batch: Batch, record: SinkRecord, meta: TurnMeta
    ) -> Iterator[SpanData]:
        turn = record.recorded
        said = _said(transaction, turn)
        results = [] if said is None else [block for block in said.blocks if isinstance(block, ToolResult)]
        parent = _event(transaction, turn.header.cited("parent"), TURN) if results else None
        if said is None or parent is None:
            return
        asking = _said(transaction, _shown(parent, batch))
        asked = (
            {}
            if asking is None
            else {asking.whole(use.id): (at, use) for at, use in enumerate(asking.blocks) if isinstance(use, ToolUse)}
        )
        times = _times(transaction, parent, meta)
        call = _event(transaction, parent.header.cited("call"), CALL)
        for number, result in enumerate(results):
            content = SpanContent()
            id = said.whole(result.tool_use_id)
            at, use = (-1, None) if id is None else asked.get(id, (-1, None))
            start_ns, end_ns = times.get(at, (_ns(parent), max(_ns(turn), _ns(parent))))
            whole_name = said.whole(result.name) if use is None or asking is None else asking.whole(use.name)
            name = None if whole_name is None else content.text([whole_name])
            is_error = result.is_error is True
            attributes: dict[str, Any] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": None if id is None else content.text([id]),
                "gen_ai.tool.type": "function",
                **self._place(transaction, batch, turn),
                "error.type": "tool_error" if is_error else None,
            }
            if self._content and not batch.choice.public:
                attributes["gen_ai.tool.call.result"] = content.text(said.result(result))
                if use is not None and asking is not None:
                    attributes["gen_ai.tool.call.arguments"] = content.json_text(asking, use.input)
            attributes |= content.attributes
            yield SpanData(
                name="execute_tool" if name is None else f"execute_tool {name}",
                trace_id=_trace_id(parent.header.id) if call is None else self._trace_id(transaction, call),
                span_id=_span_id(f"{turn.header.id}/{number}"),
                parent_id=None if call is None else _span_id(parent.header.id),
                is_call=False,
                start_ns=start_ns,
                end_ns=end_ns,
                attributes=given(attributes),
                error="" if is_error else None,
            )

    # Traces

    def _trace_id(self, transaction: ReadTransaction, call: Recorded) -> int:
        return _trace_id(self._question(transaction, call.header.cited("turn") or call.header.id))

    def _question(self, transaction: ReadTransaction, turn_id: str) -> str:
        """Return the turn that the question begins at which a call belongs to: followed back over tools."""
        passed: list[str] = []
        found = turn_id
        while len(passed) < STEPS_MAX:
            if (known := self._questions.get(found)) is not None:
                found = known
                break
            passed.append(found)
            before = self._before(transaction, found)
            if before is None:
                break
            found = before
        for each in passed:
            self._questions[each] = found
        while len(self._questions) > _KEPT_MAX:
            self._questions.popitem(last=False)
        return found

    def _before(self, transaction: ReadTransaction, turn_id: str) -> str | None:
        """Return the turn that the call was made from whose tools a turn has the results of; None for another turn."""
        turn = _event(transaction, turn_id, TURN)
        parent = None if turn is None else _event(transaction, turn.header.cited("parent"), TURN)
        if parent is None or turn_meta(parent).stop_reason != "tool_use":
            return None
        call = _event(transaction, parent.header.cited("call"), CALL)
        return None if call is None else call.header.cited("turn")


def _event(transaction: ReadTransaction, event_id: str | None, topic: str | None) -> Recorded | None:
    found = None if event_id is None else transaction.event(event_id)
    return found if found is not None and topic in (None, found.header.topic) else None


def _times(transaction: ReadTransaction, asking: Recorded, meta: TurnMeta) -> dict[int, tuple[int, int]]:
    """Return when the tools were at work that a turn has the results of, by the index of the call in the turn before.

    Of a tool that was called again it is the last attempt.
    """
    found: dict[int, tuple[int, int]] = {}
    for event_id in meta.tool_ends:
        if (event := _event(transaction, event_id, TOOL_END)) is None:
            continue
        end = meta_of(event, ToolEndMeta)
        if end.turn == asking.header.id and end.duration_ms is not None:
            found[end.block] = (max(_ns(event) - end.duration_ms * 1_000_000, 0), _ns(event))
    return found


def _shown(recorded: Recorded, batch: Batch) -> Recorded:
    """Return an event without what is not to be delivered of it."""
    hides = batch.choice.public or (recorded.sealed is not None and not batch.choice.unseal)
    return msgspec.structs.replace(recorded, private=None) if hides else recorded


def _said(transaction: ReadTransaction, turn: Recorded) -> Said | None:
    if turn.private is None or turn_meta(turn).type == "document":
        return None
    try:
        return Said(transaction.payload(turn) or b"[]")
    except ContentError:
        return None


def _usage(meta: TurnMeta) -> dict[str, int]:
    if not isinstance(meta.usage, Usage):
        return {}
    usage = meta.usage
    found = {
        # The conventions count what came from a cache, and what was thought, into the totals.
        "gen_ai.usage.input_tokens": usage.input_tokens
        + usage.cache_creation_input_tokens
        + usage.cache_read_input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens + usage.reasoning_tokens,
    }
    others = {
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return found | {name: count for name, count in others.items() if count}


def _parameters(params: object) -> dict[str, Any]:
    if not isinstance(params, str):
        return {}
    try:
        given = msgspec.json.decode(params, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {
        attribute: given[name]
        for name, attribute in _PARAMETERS.items()
        if isinstance(given.get(name), int | float) and not isinstance(given[name], bool)
    }


def _reasons(meta: TurnMeta) -> list[str] | None:
    reason = meta.raw_stop_reason or meta.stop_reason
    return [reason] if isinstance(reason, str) else None


def _finish(meta: TurnMeta) -> str:
    return _FINISH.get(meta.stop_reason, "error") if isinstance(meta.stop_reason, str) else "stop"


def _provider(name: object) -> object:
    return _PROVIDERS.get(name, name) if isinstance(name, str) else None


def _ns(recorded: Recorded) -> int:
    return min(max(0, recorded.header.time) * 1_000_000, _NS_MAX)


def _trace_id(event_id: str) -> int:
    return int.from_bytes(sha256(f"turnlog trace {event_id}".encode()).digest()[:16]) or 1


def _span_id(name: str) -> int:
    return int.from_bytes(sha256(f"turnlog span {name}".encode()).digest()[:8]) or 1
