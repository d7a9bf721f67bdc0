"""The metadata of recorded model calls: `gpt.call`, `gpt.reply` and `mcp.tools` events."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from turnlog.model.replies import CallError


class BytesRef(Struct, frozen=True, kw_only=True):
    """Bytes by their hash, `sha256-<base64>`, and their size."""

    hash: str
    size: int


class CallMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.call` event: a request that was about to be sent.

    `turn`, `base` and `tools` are stored as citations.

    Attributes:
        turn: the turn that the model was asked to go on from.
        provider: the provider.
        api: its api.
        model: the model that was asked.
        adapter: name of the adapter that prepared the request.
        adapter_version: its version.
        stream: whether a stream was asked for.
        request: the exact request body. The event's payload says what it is made of.
        base: the earlier call whose body this one has parts of.
        params: the parameters of the call, a JSON object as text, because the order of its keys counts.
        on_loss: what was to be done with what the wire cannot carry, where it was said.
        tools: the tools that were offered, a `mcp.tools` event of this id.
        loss: what the body does not carry as it was recorded: JSON lines that follow the body in the payload.
        window: how the window that it was prepared from differs from that of the turn: JSON that follows the two.
    """

    turn: str
    provider: str
    api: str
    model: str
    adapter: str
    adapter_version: str
    stream: bool
    request: BytesRef
    base: str | None = None
    params: str = "{}"
    on_loss: str | None = None
    tools: str | None = None
    loss: BytesRef | None = None
    window: BytesRef | None = None

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept of it: the body, the loss report and the change of the window.

        Less than 0 where one of them has less: what is not there cannot make up for what the others have.
        """
        sizes = [ref.size for ref in (self.request, self.loss, self.window) if isinstance(ref, BytesRef)]
        return min(0, *sizes) or sum(sizes)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the call as values, in their order."""
        return msgspec.json.decode(self.params, type=dict[str, Any])


class ReplyMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.reply` event, whose payload has the raw events of a reply. `call` is stored as a citation.

    Attributes:
        call: the call that was answered.
        events: number of raw events.
        error: why the call failed.
        redacted: how many of which kind redaction hooks took out of the reply. Then no raw event is kept.
        sizes: the bytes of each raw event, where one of them has the byte in it that stands before each; else None.
    """

    call: str
    events: int
    error: CallError | None = None
    redacted: dict[str, int] | None = None
    sizes: tuple[int, ...] | None = None


class ToolsMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `mcp.tools` event, whose payload is a tool listing as it was offered to a model.

    Attributes:
        tools: number of tools.
        servers: the MCP servers that they are of.
    """

    tools: int
    servers: tuple[str, ...] = ()
