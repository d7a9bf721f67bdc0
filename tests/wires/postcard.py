"""A wire made up for tests: requests and replies are turnlog's own content blocks as JSON.

The adapter is whole but for the network: it is what another package would write, and it passes `ProviderSuite`.
A stream is `begin`, then for each block `block` with its start and `more` with more text of it, then `end`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog import ProviderError, UnsupportedContentError
from turnlog.model import (
    Block,
    CallError,
    Delta,
    Native,
    Response,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
    content_bytes,
    normal_stop_reason,
    parse_arguments,
)
from turnlog.providers import Capabilities, Carried, Connection, Frame, FrameInput, PreparedRequest, Provider
from turnlog.providers.body import check_parameters, encode, frame
from turnlog.providers.wire import decode_event


class _Part(Struct):
    """A block as the wire has it: `text`, `thinking` (with a `seal`), `call`, or anything else."""

    type: str
    text: str = ""
    seal: str | UnsetType = UNSET
    id: str = ""
    name: str = ""


class _Event(Struct):
    type: str = ""
    index: int = 0
    block: Raw = Raw(b"")
    text: str = ""
    id: str | None = None
    model: str = ""
    stop: str = ""
    usage: Raw = Raw(b"")
    content: list[Raw] = []
    message: str = ""


_event = msgspec.json.Decoder(_Event)
_part = msgspec.json.Decoder(_Part)


class Postcard(Provider):
    """The adapter of the made-up wire."""

    name = "postcard"
    provider = "post"
    api = "cards"
    version = "1"
    key_variable = "POSTCARD_API_KEY"
    capabilities = Capabilities(
        documents=("image/*", "application/pdf"),
        result_documents=("image/*",),
        thinking="signed",
        native=True,
        tool_id_pattern="[a-z0-9_]+",
        tool_id_characters_max=20,
        result_errors=True,
    )

    def _encode(self, carried: Carried) -> Sequence[bytes]:
        content = [self._sent(block) for block in carried.blocks]
        return [encode({"role": carried.role, "content": content})]

    def _sent(self, block: Block) -> Raw:
        match block:
            case Native():
                return block.block
            case Thinking():
                return Raw(encode({"type": "thinking", "text": block.thinking, "seal": block.signature}))
            case _:
                return Raw(content_bytes([block])[1:-1])

    def _frame(self, given: FrameInput) -> Frame:
        check_parameters(given.params, {"model", "stream", "tools", "messages"})
        if given.search:
            raise UnsupportedContentError("postcard cannot carry search", provider=self.name, block="search")
        before: dict[str, Any] = {"model": given.model, "stream": given.stream}
        if given.tools:
            before["tools"] = [[tool.name, tool.description, tool.input_schema] for tool in given.tools]
        if given.tool_mode is not None:
            before["tool_choice"] = given.tool_mode
        before |= given.params
        return frame(before, "messages", {})

    def deltas(self, event: bytes) -> Sequence[Delta]:
        """Return what to show of an event."""
        found = decode_event(event, _event, provider=self.name)
        match found.type:
            case "block":
                return [self._first(found.block)]
            case "more":
                return [Delta(content=found.text)]
            case "reply":
                return [self._first(raw) for raw in found.content]
            case _:
                return []

    def _first(self, raw: Raw) -> Delta:
        part = _part.decode(raw)
        match part.type:
            case "call":
                return Delta(type="tool_use", name=part.name, id=part.id, content=part.text)
            case "text" | "thinking":
                return Delta(type=part.type, content=part.text)
            case other:
                return Delta(type=other)

    def aggregate(self, events: Iterable[bytes], *, model: str | None = None) -> Response:
        """Return what events add up to."""
        reply = _Event(type="reply", model=model or "", stop="")
        texts: list[str] = []
        blocks: list[Raw] = []
        error: CallError | None = None
        for event in events:
            try:
                found = decode_event(event, _event, provider=self.name)
            except ProviderError as problem:
                error = CallError(message=str(problem), retryable=True)
                continue
            match found.type:
                case "begin":
                    reply.id, reply.model = found.id, found.model
                case "block":
                    blocks.append(found.block)
                    texts.append("")
                case "more" if found.index < len(texts):
                    texts[found.index] += found.text
                case "end":
                    reply.stop, reply.usage = found.stop, found.usage
                case "reply":
                    reply, blocks, texts = found, found.content, [""] * len(found.content)
                case "error":
                    error = CallError(message=f"{self.name} sent an error: {found.message}")
                case _:
                    pass
        if error is None and not reply.stop:
            error = CallError(message="the stream of postcard ended without its end", retryable=True)
        content = tuple(self._block(raw, more, reply.model) for raw, more in zip(blocks, texts, strict=True))
        return self._response(reply, content, error)

    def _block(self, raw: Raw, more: str, model: str) -> Block:
        part = _part.decode(raw)
        of = {"provider": self.provider, "api": self.api, "model": model}
        match part.type:
            case "text":
                return Text(text=part.text + more)
            case "thinking":
                return Thinking(thinking=part.text + more, signature=part.seal, **of)
            case "call":
                arguments, extra = parse_arguments(part.text + more)
                return ToolUse(id=part.id, name=part.name, input=arguments, extra=extra)
            case _:
                return Native(block=raw, **of)

    def _response(self, reply: _Event, content: tuple[Block, ...], error: CallError | None) -> Response:
        stop: StopReason = normal_stop_reason(reply.stop) or "stop"
        counts = msgspec.json.decode(reply.usage) if reply.usage else None
        return Response(
            content=content,
            model=reply.model,
            stop_reason="error" if error else stop,
            provider=self.provider,
            api=self.api,
            raw_stop_reason=reply.stop or None,
            usage=None if counts is None else Usage(input_tokens=counts["in"], output_tokens=counts["out"]),
            raw_usage=reply.usage or None,
            id=reply.id,
            error=error,
        )

    def models(self, connection: Connection) -> list[str]:
        """Return no models: there is no network behind this wire."""
        return []

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Any]:
        raise ProviderError("postcard has no network", provider=self.name)

    def _aopen(self, request: PreparedRequest, connection: Connection) -> AbstractAsyncContextManager[Any]:
        raise ProviderError("postcard has no network", provider=self.name)
