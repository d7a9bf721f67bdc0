"""Blocks made in one call, and helpers on the blocks of a turn.

A block that is made here gets a fresh id unless it is given one.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

from turnlog.ids import new_id
from turnlog.interop.geppetto_model.keys import BlockMetaKey
from turnlog.interop.geppetto_model.types import (
    PAYLOAD_KEY_ARGS,
    PAYLOAD_KEY_ENCRYPTED_CONTENT,
    PAYLOAD_KEY_ERROR,
    PAYLOAD_KEY_ID,
    PAYLOAD_KEY_NAME,
    PAYLOAD_KEY_RESULT,
    PAYLOAD_KEY_TEXT,
    Block,
    BlockKind,
    Turn,
)
from turnlog.model import JSONValue

_T = TypeVar("_T")


def new_user_text_block(text: str, *, id: str | None = None) -> Block:
    """Return what a user says."""
    return _text(BlockKind.USER, "user", text, id)


def new_assistant_text_block(text: str, *, id: str | None = None) -> Block:
    """Return what a model says."""
    return _text(BlockKind.LLM_TEXT, "assistant", text, id)


def new_system_text_block(text: str, *, id: str | None = None) -> Block:
    """Return instructions."""
    return _text(BlockKind.SYSTEM, "system", text, id)


def new_reasoning_block(text: str, *, encrypted_content: str | None = None, id: str | None = None) -> Block:
    """Return a model's reasoning, with the form that its provider wants back where there is one."""
    block = _text(BlockKind.REASONING, "assistant", text, id)
    if encrypted_content is not None:
        block.payload[PAYLOAD_KEY_ENCRYPTED_CONTENT] = encrypted_content
    return block


def new_tool_call_block(call_id: str, name: str, args: Mapping[str, JSONValue] | str) -> Block:
    """Return a model's request to call a tool. The block has the id of the call."""
    payload = {
        PAYLOAD_KEY_ID: call_id,
        PAYLOAD_KEY_NAME: name,
        PAYLOAD_KEY_ARGS: args if isinstance(args, str) else deepcopy(dict(args)),
    }
    return Block(kind=BlockKind.TOOL_CALL, id=call_id, role="assistant", payload=payload)


def new_tool_use_block(call_id: str, result: JSONValue, *, error: str | None = None, id: str | None = None) -> Block:
    """Return what a tool answered to a call, and why it failed if it did."""
    payload: dict[str, JSONValue] = {PAYLOAD_KEY_ID: call_id, PAYLOAD_KEY_RESULT: deepcopy(result)}
    if error is not None:
        payload[PAYLOAD_KEY_ERROR] = error
    return Block(kind=BlockKind.TOOL_USE, id=_id(id), role="tool", payload=payload)


def _text(kind: BlockKind, role: str, text: str, id: str | None) -> Block:
    return Block(kind=kind, id=_id(id), role=role, payload={PAYLOAD_KEY_TEXT: text})


def _id(given: str | None) -> str:
    return new_id() if given is None else given


def append_block(turn: Turn, block: Block) -> None:
    """Add a block at the end of a turn."""
    turn.blocks.append(block)


def append_blocks(turn: Turn, *blocks: Block) -> None:
    """Add blocks at the end of a turn, in order."""
    turn.blocks.extend(blocks)


def prepend_block(turn: Turn, block: Block) -> None:
    """Add a block at the beginning of a turn."""
    turn.blocks.insert(0, block)


def insert_before_last(turn: Turn, block: Block) -> None:
    """Add a block before the last one of a turn, or as the only one of an empty turn."""
    turn.blocks.insert(max(len(turn.blocks) - 1, 0), block)


def find_last_blocks_by_kind(turn: Turn, *kinds: BlockKind, limit: int | None = None) -> list[Block]:
    """Return the blocks of some kinds in the order of the turn: the last `limit` of them, or all."""
    found = [block for block in turn.blocks if block.kind in kinds]
    return found if limit is None else found[max(len(found) - limit, 0) :]


def with_block_metadata(block: Block, key: BlockMetaKey[_T], value: _T) -> Block:
    """Return a copy of a block with a value in its metadata. The block itself stays as it is.

    Raises:
        MetaError: the value is of another type than the key's.
    """
    metadata = block.metadata.clone()
    key.set(metadata, value)
    return replace(block, payload=deepcopy(block.payload), metadata=metadata)
