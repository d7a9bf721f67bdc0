"""Carries messages to a wire made up for tests, on which a carried message is its role and its blocks as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.model import LossEntry, Message, content_bytes
from turnlog.model.chunked import Chunked
from turnlog.providers import Capabilities, Carried
from turnlog.providers.carriage import CarriedConversation, Target
from turnlog.providers.conversation import Conversation

OWN = {"provider": "here", "api": "test", "model": "m"}
"""The provider, api and model that the conversations of these tests go to."""

OTHER = {"provider": "elsewhere", "api": "test", "model": "m"}

WIRE = Capabilities(
    documents=("image/*", "application/pdf"), result_documents=("image/*",), thinking="signed", native=True
)


def message(role: str, *blocks: dict[str, Any] | str, turn: str | None = None, **fields: Any) -> Message:
    """Return a message; its turn is the text of its first block unless it is named."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    name = turn or (str(content[0].get("text", content[0]["type"])) if content else "empty")
    return Message(turn=name, role=role, content_json=content_bytes(content), **fields)


def call(id: str | None, name: str = "f", **fields: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "name": name, "input": {}} | ({} if id is None else {"id": id}) | fields


def result(id: str | None, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    """Return a tool result."""
    return {"type": "tool_result", "content": content} | ({} if id is None else {"tool_use_id": id}) | fields


def document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    """Return a document; by default its bytes are `hello`."""
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


def encode(carried: Carried) -> Sequence[bytes]:
    """Encode a carried message as one message of the wire."""
    blocks = [Raw(content_bytes([block])[1:-1]) for block in carried.blocks]
    return [msgspec.json.encode({"role": carried.role, "blocks": blocks})]


def conversation(capabilities: Capabilities = WIRE, on_loss: Any = None) -> Conversation:
    """Begin a conversation with the wire."""
    return Conversation(capabilities, Target(adapter="tester", **OWN, on_loss=on_loss), encode)


class Result(Struct, frozen=True):
    """A carried conversation: its messages decoded, and the losses, each as `kind block turn` and in full."""

    messages: list[dict[str, Any]]
    lost: list[str]
    losses: tuple[LossEntry, ...]
    carried: CarriedConversation


def shown(carried: CarriedConversation) -> Result:
    """Return a carried conversation decoded."""
    return Result(
        json.loads(b"[" + b"".join(carried.messages) + b"]"),
        [f"{loss.kind} {loss.block} {loss.turn}" for loss in carried.losses],
        carried.losses,
        carried,
    )


def carry(*messages: Message, capabilities: Capabilities = WIRE, on_loss: Any = None) -> Result:
    """Carry messages at once, and one by one; both must give the same."""
    at_once = conversation(capabilities, on_loss).carry(Chunked(messages))
    growing = conversation(capabilities, on_loss)
    source: Chunked[Message] = Chunked()
    bit_by_bit = growing.carry(source)
    for one in messages:
        source = source.extended([one])
        bit_by_bit = growing.carry(source)
    assert bit_by_bit == at_once
    return shown(at_once)


def outline(messages: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return each message as its role and then what its blocks say, in short."""
    return [[message["role"], *map(_short, message["blocks"])] for message in messages]


def _short(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": text}:
            return text
        case {"type": "tool_use", "id": id}:
            return f"call {id}"
        case {"type": "tool_result", "tool_use_id": id, "content": content}:
            texts = content if isinstance(content, str) else "+".join(map(_short, content))
            return f"{id}: {texts}"
        case {"type": "document", "source": {"media_type": media_type}}:
            return f"<{media_type}>"
        case _:
            return f"<{block['type']}>"
