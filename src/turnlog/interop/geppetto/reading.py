"""Turns of a log, and context windows, as Geppetto's turns; and these as context windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.interop.geppetto_model import keys, types
from turnlog.interop.geppetto_model.content import PROVIDER, said, speaker, told_call, told_result
from turnlog.interop.geppetto_model.keys import BlockMetadata, BlockMetaKey
from turnlog.interop.geppetto_model.types import Block, BlockKind, Turn
from turnlog.log import TurnLog
from turnlog.model import Block as ContentBlock
from turnlog.model import (
    ContextWindow,
    Document,
    Erased,
    JSONValue,
    LossEntry,
    LossReport,
    Message,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    TurnMeta,
    Usage,
    content_bytes,
    decode_content,
)
from turnlog.model.blocks import WindowBlock, document_block
from turnlog.turn import Turn as LogTurn

KEY_BLOCK_TURN = BlockMetaKey(str, "turnlog", "turn")
"""The turn of the log that a block is of."""

_ROLES = {"assistant": "assistant", "system": "system"}
_NO_PLACE = ("inherited", "options", "cache", "raw_stop_reason", "document_name", "error")
_TEXTS = {"user": BlockKind.USER, "assistant": BlockKind.LLM_TEXT, "system": BlockKind.SYSTEM}


class _Of(Struct, frozen=True, kw_only=True):
    """What blocks are of: a turn, who says it, and whose signatures its reasoning has."""

    turn: str
    role: str
    hints: dict[str, JSONValue] = {}


def turn_of(log: TurnLog, headish: str) -> tuple[Turn, LossReport]:
    """Return the ancestry of a turn as one snapshot, and what of it that does not have.

    The id is the turn's, the run's is that of its thread. Provider, model, stop reason and usage are those of the last
    reply. Each block names its turn of the log in its metadata (`KEY_BLOCK_TURN`). A snapshot that was recorded through
    Geppetto's types is `load_turn`.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    ancestry = log.ancestry(headish)
    snapshot = Turn(id=ancestry[-1].id, run_id=ancestry[0].id)
    losses: list[LossEntry] = []
    for turn in ancestry:
        if turn.erased or turn.closed:
            losses.append(_lost(turn.id, "turn", "it was erased" if turn.erased else "it is sealed"))
            continue
        losses += [_lost(turn.id, name, "blocks have no place for it") for name in _NO_PLACE if _has(turn.meta, name)]
        if turn.meta.failed:
            losses.append(_lost(turn.id, "turn", "its call failed or was aborted"))
            continue
        for index, block in enumerate(_content(log, turn)):
            losses += [_lost(turn.id, name, "blocks have no place for it", index) for name in block.extra]
            snapshot.blocks.append(block_from(block, _Of(turn=turn.id, role=turn.meta.role, hints=_hints(turn.meta))))
        if turn.meta.role == "assistant":
            tell_outcome(snapshot, turn.meta)
    return snapshot, LossReport(entries=tuple(losses))


def turn_of_window(window: ContextWindow, *, id: str = "", run_id: str = "") -> Turn:
    """Return a context window as a snapshot. Each block names its turn, or summary, of the log in its metadata."""
    return Turn(id=id, run_id=run_id, blocks=[block for message in window.messages for block in blocks_of(message)])


def window_of(turn: Turn, window: ContextWindow) -> ContextWindow:
    """Return a snapshot as a context window, with the messages of another one where they are as they were there.

    Args:
        turn: the snapshot, most often that of the window with changes.
        window: the window that it was made of. Options are its own.

    Raises:
        ContentError: a payload is not JSON, or is no content.
    """
    known = {message.turn: message for message in window.messages}
    blocks = {message.turn: blocks_of(message) for message in window.messages}
    messages: list[Message] = []
    waiting: list[Block] = []
    at = 0
    while at < len(turn.blocks):
        own = blocks.get(of := _turn_id(turn.blocks[at]), [])
        if own and turn.blocks[at : at + len(own)] == own:
            messages += [*messages_of(waiting), known[of]]
            waiting = []
            at += len(own)
            continue
        waiting.append(turn.blocks[at])
        at += 1
    return msgspec.structs.replace(window, messages=(*messages, *messages_of(waiting)))


def messages_of(blocks: Sequence[Block]) -> list[Message]:
    """Return blocks as messages that are of no turn: one for those of one speaker that follow each other.

    Raises:
        ContentError: a payload is not JSON, or is no content.
    """
    messages: list[Message] = []
    for who, group in groupby(blocks, lambda block: speaker(block.kind)):
        content = [says for block in group for says in said(block)[0]]
        messages.append(Message(turn="", role=_ROLES.get(who, "user"), content_json=content_bytes(content)))
    return messages


def blocks_of(message: Message) -> list[Block]:
    """Return the blocks of a message."""
    named = {name: getattr(message, name) for name in ("provider", "api", "model")}
    hints: dict[str, JSONValue] = {name: value for name, value in named.items() if isinstance(value, str)}
    return [block_from(block, _Of(turn=message.turn, role=message.role, hints=hints)) for block in message.content]


def reply_blocks(content: Sequence[ContentBlock], *, turn: str = "", hints: dict[str, JSONValue]) -> list[Block]:
    """Return what a model answered as blocks: `llm_text`, `reasoning`, `tool_call` and `other`."""
    return [block_from(block, _Of(turn=turn, role="assistant", hints=hints)) for block in content]


def block_from(block: WindowBlock, of: _Of) -> Block:
    """Return a content block as a block."""
    metadata = BlockMetadata()
    if of.turn:
        KEY_BLOCK_TURN.set(metadata, of.turn)
    kind, payload = _kind_and_payload(block, of.role)
    if isinstance(block, Thinking):
        named = {name: getattr(block, name) for name in ("provider", "api", "model")}
        hints = of.hints | {name: value for name, value in named.items() if isinstance(value, str)}
        if block.redacted:
            hints["redacted"] = True
        if hints:
            keys.KEY_BLOCK_PROVIDER_HINTS.set(metadata, hints)
    role = "tool" if kind is BlockKind.TOOL_USE else of.role
    block_id = str(payload[types.PAYLOAD_KEY_ID]) if kind is BlockKind.TOOL_CALL and "id" in payload else ""
    return Block(kind=kind, id=block_id, role=role, payload=payload, metadata=metadata)


def tell_outcome(turn: Turn, meta: TurnMeta) -> None:
    """Set what is said of a reply in the metadata of a snapshot."""
    named = ((keys.KEY_PROVIDER, meta.provider), (keys.KEY_MODEL, meta.model), (keys.KEY_STOP_REASON, meta.stop_reason))
    for key, value in named:
        if isinstance(value, str):
            key.set(turn.metadata, value)
    if isinstance(meta.usage, Usage):
        keys.KEY_USAGE.set(turn.metadata, meta.usage)


def _kind_and_payload(block: WindowBlock, role: str) -> tuple[BlockKind, dict[str, JSONValue]]:
    match block:
        case Text():
            return _TEXTS[role], {types.PAYLOAD_KEY_TEXT: block.text}
        case Thinking():
            payload: dict[str, JSONValue] = {types.PAYLOAD_KEY_TEXT: block.thinking}
            if isinstance(block.signature, str):
                payload[types.PAYLOAD_KEY_ENCRYPTED_CONTENT] = block.signature
            return BlockKind.REASONING, payload
        case ToolUse():
            return BlockKind.TOOL_CALL, told_call(block)
        case ToolResult():
            return BlockKind.TOOL_USE, told_result(block)
        case Document():
            shown = {"media_type": block.source.media_type, "content": block.source.data}
            if role == "user" and block.source.media_type.startswith("image/"):
                return BlockKind.USER, {types.PAYLOAD_KEY_IMAGES: [shown]}
            return BlockKind.OTHER, shown
        case Native():
            return _native(block)
        case Erased():
            return BlockKind.OTHER, {"erased": block.turn}


def _native(block: Native) -> tuple[BlockKind, dict[str, JSONValue]]:
    content = msgspec.json.decode(block.block)
    named = {name: getattr(block, name) for name in ("api", "model")}
    whose = {name: value for name, value in named.items() if isinstance(value, str)}
    if block.provider == PROVIDER and isinstance(content, dict):
        record = cast("dict[str, JSONValue]", content)
        kind, payload = record.get("type"), record.get("payload")
        if kind in set(BlockKind) and isinstance(payload, dict):
            return BlockKind(kind), cast("dict[str, JSONValue]", payload)
    return BlockKind.OTHER, {"provider": block.provider, **whose, "block": content}


def _content(log: TurnLog, turn: LogTurn) -> list[ContentBlock]:
    if turn.meta.type == "document":
        return [document_block(log.payload(turn.id), turn.meta.content_type)]
    return decode_content(log.payload(turn.id))


def _hints(meta: TurnMeta) -> dict[str, JSONValue]:
    named = {"provider": meta.provider, "api": meta.api, "model": meta.model}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def _turn_id(block: Block) -> str:
    try:
        return KEY_BLOCK_TURN.get(block.metadata) or ""
    except MetaError:
        return ""


def _has(meta: TurnMeta, name: str) -> bool:
    return getattr(meta, name) not in (None, False, {})


def _lost(turn: str, what: str, why: str, index: int | None = None) -> LossEntry:
    return LossEntry(kind="dropped", turn=turn, block=what, why=why, index=index)
