"""Reads replies of the Converse API.

A stream is `messageStart`, then `contentBlockStart|Delta|Stop` by index, of which text and reasoning have no start,
`messageStop`, and `metadata` last; each event is an object with its type as the key. A whole reply is
`{output: {message}, stopReason, usage, metrics, …}`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import CallError, Delta, Response, StopReason, ToolUse, Usage, normal_stop_reason
from turnlog.providers.bedrock.blocks import ReplyBlock
from turnlog.providers.extras import Told
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
from turnlog.providers.usage import Counts, count_of, usage_of

_STOP_REASONS: dict[str, StopReason] = {
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}
"""Stop reasons that are this API's own."""

_EXCEPTIONS = {
    "internalServerException": True,
    "modelStreamErrorException": True,
    "modelTimeoutException": True,
    "serviceUnavailableException": True,
    "throttlingException": True,
    "validationException": False,
}
"""Exceptions within a stream, and whether the same call may succeed later. Others that end so may."""

PADDING = "p"
"""A key of events that is there to hide their length, and says nothing."""

_PIECE = frozenset({"contentBlockIndex", "start", "delta", PADDING})

_OBJECTS = frozenset(
    {
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStart",
        "messageStop",
        "metadata",
        "output",
    }
)
"""Events, and the reply, whose value is an object."""


class Reader(EventReader):
    """Reads a reply into its blocks, in the order in which they begin."""

    def __init__(self, sender: Sender) -> None:
        """Begin with nothing read."""
        super().__init__(sender)
        self._blocks: list[ReplyBlock] = []
        self._by_index: dict[int | None, ReplyBlock] = {}
        self._shown: ReplyBlock | None = None
        """The block of which something was shown last: what goes on with it needs no type."""
        self._extra = Told()
        self._usage: Raw | None = None
        self._reason = ""
        self._ended = False

    def _read(self, event: RawEvent) -> Sequence[Delta]:
        fields = read_object(event)
        return [delta for name, value in fields.items() for delta in self._take(name, value, fields)]

    def _take(self, name: str, value: Raw, event: Fields) -> Sequence[Delta]:
        """Take one key of an event: its type, or a field of a whole reply."""
        fields = fields_of(value)
        match name:
            case "contentBlockStart" | "contentBlockDelta" | "contentBlockStop" if fields is not None:
                if not _PIECE.issuperset(fields):
                    self._keep(fields, *_PIECE)
                return self._piece(fields, begins=name == "contentBlockStart") if name != "contentBlockStop" else ()
            case "messageStart" if fields is not None:
                self._keep(fields, "role")
            case "messageStop" if fields is not None:
                self._ended = True
                self._reason = text_of(fields.get("stopReason")) or self._reason
                self._keep(fields, "stopReason")
            case "metadata" if fields is not None:
                self._count(fields.get("usage"))
                self._keep(fields, "usage")
            case "output" if fields is not None:
                return self._whole(fields, event)
            case _ if name in _OBJECTS and not is_null(value):
                raise ContentError(f"{name}: expected an object", field=name)
            case "error" if not is_null(value):
                said = fields or {"message": value}
                self._broke_off(said, text_of(said.get("code")) or "", retryable=True)
            case "message" if "output" not in event and (said := text_of(value)) is not None:
                self._broke_off(event, "", retryable=False)
            case _ if name in _EXCEPTIONS or name.endswith("Exception"):
                self._broke_off(fields or {}, name, retryable=_EXCEPTIONS.get(name, True))
            case _:
                pass  # the end of a block, or of a type that is not known here
        return ()

    def _piece(self, event: Fields, *, begins: bool) -> Sequence[Delta]:
        """Take the beginning of a block, or a piece. A block whose beginning did not come begins with a piece of it."""
        piece = event.get("start" if begins else "delta")
        fields = fields_of(piece)
        if fields is None and piece is not None and not is_null(piece):
            raise ContentError("a piece of a block: expected an object", field="delta")
        index = integer_of(event.get("contentBlockIndex"))
        block = None if begins else self._by_index.get(index)
        fresh = block is None
        if block is None:
            block = self._by_index[index] = ReplyBlock()
            self._blocks.append(block)
        deltas: list[Delta] = []
        for kind, value in (fields or {}).items():
            if block.kind not in ("", kind) and kind != "citation":
                self._keep({kind: value})  # a block has one kind: what else a piece has says something of the reply
            elif begins:
                block.begin(kind, value)
                self._shown = block
                deltas.append(block.delta())
            elif (text := block.add(kind, value)) is not None:
                deltas.append(self._go_on(block, text, fresh=fresh))
        return deltas

    def _go_on(self, block: ReplyBlock, text: str | Raw, *, fresh: bool) -> Delta:
        kind = {"text": "text", "reasoningContent": "thinking"}.get(block.kind)
        if kind is None or (block is self._shown and not fresh):
            return Delta(content=text)
        self._shown = block
        return Delta(type=kind, content=text)

    def _whole(self, output: Fields, event: Fields) -> Sequence[Delta]:
        self._ended = True
        self._reason = text_of(event.get("stopReason")) or self._reason
        self._count(event.get("usage"))
        self._keep(event, "output", "stopReason", "usage")
        self._keep(output, "message")
        message = fields_of(output.get("message")) or {}
        self._keep(message, "role", "content")
        deltas: list[Delta] = []
        for record in objects_of(message.get("content")) or []:
            block = ReplyBlock()
            kind, value = next(iter(record.items())) if len(record) == 1 else ("", raw(record))
            block.begin(kind, value)
            self._blocks.append(block)
            deltas.append(block.delta(whole=True))
        return deltas

    def _keep(self, fields: Fields, *known: str) -> None:
        kept = further(fields, (*known, PADDING))
        self._extra.add({name: minified(value) for name, value in kept.items()})

    def _count(self, usage: Raw | None) -> None:
        if usage is not None and not is_null(usage):
            self._usage = minified(usage)

    def _broke_off(self, said: Fields, kind: str, *, retryable: bool) -> None:
        words = text_of(said.get("message")) or text_of(said.get("originalMessage")) or ""
        message = " ".join((words or kind or "an error, and no more").split())
        of_kind = f" ({kind})" if words and kind else ""
        self._fail(f"{self.sender.provider} broke off: {message}{of_kind}", retryable=retryable)

    # What was read

    def response(self) -> Response:
        """Return what has come so far as a response: see `ReplyReader.response`."""
        model = self.sender.model or self.sender.provider
        origin = msgspec.structs.replace(self.sender, model=model)
        found = (block.block(origin) for block in self._blocks)
        content = tuple(block for block in found if block is not None)
        stop_reason, error = self._ending(calls=any(isinstance(block, ToolUse) for block in content))
        return Response(
            content=content,
            model=model,
            stop_reason=stop_reason,
            provider=origin.provider,
            api=origin.api,
            raw_stop_reason=self._reason or None,
            usage=_tokens(fields_of(self._usage)),
            raw_usage=self._usage,
            error=error,
            extra=self._extra.fields(),
        )

    def _ending(self, *, calls: bool) -> tuple[StopReason, CallError | None]:
        provider = self.sender.provider
        if self._error is not None:
            return "error", self._error
        if not self._ended:
            return "error", CallError(message=f"{provider}: the stream ended without its messageStop", retryable=True)
        stop = _STOP_REASONS.get(self._reason) or normal_stop_reason(self._reason) or "stop"
        if stop == "error":
            return stop, CallError(message=f"{provider} ended its reply with {self._reason}", retryable=True)
        return ("tool_use" if stop == "stop" and calls else stop), None


def _tokens(usage: Fields | None) -> Usage | None:
    """Return the usage. The API counts what is cached beside the input, and reasoning as output."""
    if usage is None:
        return None
    return usage_of(
        Counts(
            prompt=count_of(usage.get("inputTokens")),
            output=count_of(usage.get("outputTokens")),
            read=count_of(usage.get("cacheReadInputTokens")),
            written=count_of(usage.get("cacheWriteInputTokens")),
            total=count_of(usage.get("totalTokens")),
        ),
        cached_beside=True,
    )
