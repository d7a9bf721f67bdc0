"""A wire made up for tests: requests and replies are turnlog's own content blocks as JSON.

The adapter is whole but for the network: it is what another package would write, and it passes `ProviderSuite`.
A stream is `begin`, then for each block `block` with its start and `more` with more text of it, then `end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog import ProviderError
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
from turnlog.providers import (
    Capabilities,
    Carried,
    Connection,
    Frame,
    FrameInput,
    PreparedRequest,
    Provider,
    ReplyReader,
    Sender,
)
from turnlog.providers.body import encode, frame
from turnlog.providers.extras import extras
from turnlog.providers.raw_json import fields_of, further
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


class _Reader(ReplyReader):
    """Reads a reply of the wire."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(sender)
        self._reply = _Event(type="reply", model=sender.model or "")
        self._blocks: list[Raw] = []
        self._texts: list[str] = []
        self._fields: list[dict[str, Raw]] = []
        """Of each block what came with it, or with more text of it, and is not known."""
        self._beside: dict[str, Raw] = {}
        self._error: CallError | None = None

    def add(self, event: bytes) -> list[Delta]:
        try:
            found = decode_event(event, _event, provider=self.sender.provider)
        except ProviderError as problem:
            self._error = CallError(message=str(problem), retryable=True)
            return []
        match found.type:
            case "begin":
                self._reply.id, self._reply.model = found.id, found.model
            case "block":
                self._blocks.append(found.block)
                self._texts.append("")
                self._fields.append(_unknown(found.block))
                return [_first(found.block)]
            case "more":
                if found.index < len(self._texts):
                    self._texts[found.index] += found.text
                    self._fields[found.index] |= further(fields_of(Raw(event)) or {}, _Event.__struct_fields__)
                return [Delta(content=found.text)]
            case "end":
                self._reply.stop, self._reply.usage = found.stop, found.usage
            case "reply":
                self._beside = further(fields_of(Raw(event)) or {}, _Event.__struct_fields__)
                self._reply, self._blocks, self._texts = found, found.content, [""] * len(found.content)
                self._fields = [_unknown(raw) for raw in found.content]
                return [_first(raw) for raw in found.content]
            case "error":
                self._error = CallError(message=f"{self.sender.provider} sent an error: {found.message}")
            case _:
                pass
        return []

    def response(self) -> Response:
        reply, error = self._reply, self._error
        if error is None and not reply.stop:
            error = CallError(message="the stream of postcard ended without its end", retryable=True)
        stop: StopReason = normal_stop_reason(reply.stop) or "stop"
        counts = msgspec.json.decode(reply.usage) if reply.usage else None
        read = zip(self._blocks, self._texts, self._fields, strict=True)
        return Response(
            content=tuple(self._block(raw, more, fields) for raw, more, fields in read),
            model=reply.model,
            stop_reason="error" if error else stop,
            provider=self.sender.provider,
            api=self.sender.api,
            raw_stop_reason=reply.stop or None,
            usage=None if counts is None else Usage(input_tokens=counts["in"], output_tokens=counts["out"]),
            raw_usage=reply.usage or None,
            id=reply.id,
            extra=self._beside,
            error=error,
        )

    def _block(self, raw: Raw, more: str, fields: dict[str, Raw]) -> Block:
        part = _part.decode(raw)
        of = {"provider": self.sender.provider, "api": self.sender.api, "model": self._reply.model}
        match part.type:
            case "text":
                return Text(text=part.text + more, extra=extras(Text, fields))
            case "thinking":
                return Thinking(thinking=part.text + more, signature=part.seal, extra=extras(Thinking, fields), **of)
            case "call":
                arguments, extra = parse_arguments(part.text + more)
                return ToolUse(id=part.id, name=part.name, input=arguments, extra=extra | extras(ToolUse, fields))
            case _:
                return Native(block=raw, **of)


def _unknown(raw: Raw) -> dict[str, Raw]:
    return further(fields_of(raw) or {}, _Part.__struct_fields__)


def _first(raw: Raw) -> Delta:
    part = _part.decode(raw)
    match part.type:
        case "call":
            return Delta(type="tool_use", name=part.name, id=part.id, content=part.text)
        case "text" | "thinking":
            return Delta(type=part.type, content=part.text)
        case other:
            return Delta(type=other)


class Postcard(Provider):
    """The adapter of the made-up wire."""

    name = "postcard"
    provider = "post"
    api = "cards"
    version = "1"
    key_variable = "POSTCARD_API_KEY"
    reserved = ("model", "stream", "tools", "messages")
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
        before: dict[str, Any] = {"model": given.model, "stream": given.stream}
        if given.tools:
            before["tools"] = [[tool.name, tool.description, tool.input_schema] for tool in given.tools]
        if given.tool_mode is not None:
            before["tool_choice"] = given.tool_mode
        before |= given.params
        return frame(before, "messages", {})

    def reader(self, *, model: str | None = None) -> ReplyReader:
        """Return what reads a reply."""
        return _Reader(self._sender(model))

    def _models(self, connection: Connection) -> list[str]:
        """Return no models: there is no network behind this wire."""
        return []

    def _open(self, request: PreparedRequest, connection: Connection) -> AbstractContextManager[Any]:
        raise ProviderError("postcard has no network", provider=self.name)

    def _aopen(self, request: PreparedRequest, connection: Connection) -> AbstractAsyncContextManager[Any]:
        raise ProviderError("postcard has no network", provider=self.name)
