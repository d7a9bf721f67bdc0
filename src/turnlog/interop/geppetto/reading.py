"""Turns of a log, and context windows, as Geppetto's turns; and these as context windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.interop.geppetto_model import keys, types
from turnlog.interop.geppetto_model.content import (
    NO_MARKS,
    PROVIDER,
    has_raw_json,
    said,
    speaker,
    told_call,
    told_json,
    told_nested,
    told_result,
)
from turnlog.interop.geppetto_model.keys import BlockMetadata, BlockMetaKey
from turnlog.interop.geppetto_model.types import Block, BlockKind, Turn
from turnlog.log import TurnLog
from turnlog.model import (
    MALFORMED,
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
from turnlog.model import Block as ContentBlock
from turnlog.model.blocks import WindowBlock
from turnlog.model.documents import document_block
from turnlog.model.json_values import DEPTH_MAX
from turnlog.model.long_strings import LongStrings
from turnlog.turn import Turn as LogTurn

KEY_BLOCK_TURN = BlockMetaKey(str, "turnlog", "turn")
"""The turn of the log that a block is of."""

_ROLES = {"assistant": "assistant", "system": "system"}
_NO_PLACE = ("inherited", "options", "cache", "raw_stop_reason", "document_name", "error")
_OUTCOME = ("provider", "model", "stop_reason", "usage")
_OF_REPLIES = ("api", *_OUTCOME)
_TEXTS = {"user": BlockKind.USER, "assistant": BlockKind.LLM_TEXT, "system": BlockKind.SYSTEM}


class _Of(Struct, frozen=True, kw_only=True):
    """What blocks are of: a turn, who says it, whose signatures its reasoning has, and marks that may stand in it."""

    turn: str
    role: str
    hints: dict[str, JSONValue] = {}
    long: LongStrings = NO_MARKS


def turn_of(log: TurnLog, headish: str) -> tuple[Turn, LossReport]:
    """Return the ancestry of a turn as one snapshot, and what of it that does not have.

    The id is the turn's, the run's is that of its thread. Provider, model, stop reason and usage are those of the last
    reply; those of others are told, unless hints of their reasoning have them. Each block names its turn of the log in
    its metadata (`KEY_BLOCK_TURN`). A snapshot that was recorded through Geppetto's types is `load_turn`.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    return turn_with(log, headish, NO_MARKS)


def turn_with(log: TurnLog, headish: str, long: LongStrings) -> tuple[Turn, LossReport]:
    """Return what `turn_of` does, of a log in whose turns marks of long strings may stand. Raises what that raises."""
    ancestry = log.ancestry(headish)
    snapshot = Turn(id=ancestry[-1].id, run_id=ancestry[0].id)
    replies = [turn for turn in ancestry if turn.meta.role == "assistant" and _is_said(turn)]
    last = replies[-1].id if replies else None
    losses: list[LossEntry] = []
    names: dict[str, str] = {}
    for turn in ancestry:
        if turn.erased or turn.closed:
            losses.append(_lost(turn.id, "turn", "it was erased" if turn.erased else "it is sealed"))
            continue
        losses += [_lost(turn.id, name, "blocks have no place for it") for name in _NO_PLACE if _has(turn.meta, name)]
        if turn.meta.failed:
            losses.append(_lost(turn.id, "turn", "its call failed or was aborted"))
            continue
        of = _Of(turn=turn.id, role=turn.meta.role, hints=_hints(turn.meta), long=long)
        content = _content(log, turn)
        blocks = [block_from(block, of) for block in content]
        losses += _facts_lost(turn, blocks, is_last=turn.id == last)
        for index, block in enumerate(content):
            losses += _block_losses(block, turn.id, index, names)
        snapshot.blocks += blocks
        if turn.id == last:
            tell_outcome(snapshot, turn.meta)
    return snapshot, LossReport(entries=tuple(losses))


def _is_said(turn: LogTurn) -> bool:
    return not (turn.erased or turn.closed or turn.meta.failed)


def _facts_lost(turn: LogTurn, blocks: Sequence[Block], *, is_last: bool) -> list[LossEntry]:
    """Return what neither the metadata of a snapshot nor the hints of a turn's reasoning have of it as a reply."""
    hints = [keys.KEY_BLOCK_PROVIDER_HINTS.get(block.metadata) or {} for block in blocks]
    lost: list[LossEntry] = []
    for name in _OF_REPLIES:
        value = getattr(turn.meta, name)
        if value is None or (is_last and name in _OUTCOME) or any(each.get(name) == value for each in hints):
            continue
        why = "a snapshot has that of its last reply alone" if name in _OUTCOME else "a snapshot has no place for it"
        lost.append(_lost(turn.id, name, why))
    return lost


def _block_losses(block: ContentBlock, turn: str, index: int, names: dict[str, str]) -> list[LossEntry]:
    """Return what a block of Geppetto does not have of a content block.

    Args:
        block: the content block.
        turn: its turn.
        index: its place there.
        names: the tools of the calls before it, by the ids of the calls; gets that of this one.
    """
    lost = [_lost(turn, name, "blocks have no place for it", index) for name in block.extra if name != MALFORMED]
    match block:
        case ToolUse(id=str(id), name=name):
            names[id] = name
        case ToolResult():
            if block.name is not None and block.name != names.get(block.tool_use_id or ""):
                lost.append(_lost(turn, "tool_result.name", "results have that of their call alone", index))
            if block.is_error is False:
                why = "of a result that is no error nothing is said"
                lost.append(_lost(turn, "tool_result.is_error", why, index))
            lost += _nested_losses(block, turn, index)
        case Native():
            _, change = told_json(block.block, NO_MARKS, depth_max=DEPTH_MAX)
            if change:
                lost.append(_changed(turn, "native", change, index))
        case _:
            pass
    return lost


def _nested_losses(block: ToolResult, turn: str, index: int) -> list[LossEntry]:
    match block.content:
        case str():
            return []
        case [Text(extra=extra)]:
            return [_lost(turn, name, "a result that is one text has no place for it", index) for name in extra]
        case content:
            changes = [told_nested(each, NO_MARKS, depth_max=DEPTH_MAX)[1] for each in content if has_raw_json(each)]
            return [_changed(turn, "tool_result.content", change, index) for change in changes if change]


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
    kind, payload = _kind_and_payload(block, of)
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


def _kind_and_payload(block: WindowBlock, of: _Of) -> tuple[BlockKind, dict[str, JSONValue]]:
    match block:
        case Text():
            return _TEXTS[of.role], {types.PAYLOAD_KEY_TEXT: block.text}
        case Thinking():
            payload: dict[str, JSONValue] = {types.PAYLOAD_KEY_TEXT: block.thinking}
            if isinstance(block.signature, str):
                payload[types.PAYLOAD_KEY_ENCRYPTED_CONTENT] = block.signature
            return BlockKind.REASONING, payload
        case ToolUse():
            return BlockKind.TOOL_CALL, told_call(block, of.long, depth_max=DEPTH_MAX)
        case ToolResult():
            return BlockKind.TOOL_USE, told_result(block, of.long, depth_max=DEPTH_MAX)
        case Document():
            shown = {"media_type": block.source.media_type, "content": block.source.data}
            if of.role == "user" and block.source.media_type.startswith("image/"):
                return BlockKind.USER, {types.PAYLOAD_KEY_IMAGES: [shown]}
            return BlockKind.OTHER, shown
        case Native():
            return _native(block, of.long)
        case Erased():
            return BlockKind.OTHER, {"erased": block.turn}


def _native(block: Native, long: LongStrings) -> tuple[BlockKind, dict[str, JSONValue]]:
    content, _ = told_json(block.block, long, depth_max=DEPTH_MAX)
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


def _changed(turn: str, what: str, change: str, index: int) -> LossEntry:
    return LossEntry(kind="downgraded", turn=turn, block=what, why=change, index=index)


def _lost(turn: str, what: str, why: str, index: int | None = None) -> LossEntry:
    return LossEntry(kind="dropped", turn=turn, block=what, why=why, index=index)
