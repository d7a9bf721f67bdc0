"""A turn as text for people."""

from __future__ import annotations

from typing import TextIO, cast

import msgspec
from msgspec import Struct

from turnlog.errors import ContentError
from turnlog.interop.geppetto_model.checking import check_turn
from turnlog.interop.geppetto_model.types import (
    PAYLOAD_KEY_ARGS,
    PAYLOAD_KEY_ERROR,
    PAYLOAD_KEY_ID,
    PAYLOAD_KEY_IMAGES,
    PAYLOAD_KEY_NAME,
    PAYLOAD_KEY_RESULT,
    PAYLOAD_KEY_TEXT,
    Block,
    BlockKind,
    Turn,
)
from turnlog.model import JSONValue
from turnlog.model.plain import plain_json


class PrintOptions(Struct, frozen=True, kw_only=True):
    """What is shown of a turn.

    Attributes:
        ids: the ids of the turn, of its run and of blocks.
        roles: the roles of blocks.
        tool_detail: arguments, results and errors of tools; without it the tool and the id of the call alone.
        lines_max: how many lines are shown of each block's content, None for all.
    """

    ids: bool = False
    roles: bool = True
    tool_detail: bool = True
    lines_max: int | None = None


def format_turn(turn: Turn, options: PrintOptions | None = None) -> str:
    """Return a turn as text that ends with a line break, each block under a line that says its kind.

    Raises:
        ContentError: a payload is not JSON, or something is no turn or block; names the place.
    """
    check_turn(turn)
    chosen = options or PrintOptions()
    lines: list[str] = []
    if chosen.ids and (turn.id or turn.run_id):
        lines.append(" ".join(["turn", turn.id or "-"] + (["of run", turn.run_id] if turn.run_id else [])))
    for block in turn.blocks:
        lines.append(_heading(block, chosen))
        lines += [f"  {line}" if line else "" for line in _limited(_content(block, chosen), chosen.lines_max)]
    return "".join(f"{line}\n" for line in lines)


def write_turn(file: TextIO, turn: Turn, options: PrintOptions | None = None) -> None:
    """Write what `format_turn` returns to a file.

    Raises:
        ContentError: a payload is not JSON.
    """
    file.write(format_turn(turn, options))


def _heading(block: Block, options: PrintOptions) -> str:
    parts = [f"[{block.kind}]"]
    if options.roles and block.role:
        parts.append(block.role)
    if options.ids and block.id:
        parts.append(f"id={block.id}")
    return " ".join(parts)


def _content(block: Block, options: PrintOptions) -> list[str]:
    payload = block.payload
    match block.kind:
        case BlockKind.TOOL_CALL:
            first = f"{_inline(payload.get(PAYLOAD_KEY_NAME, '?'))} ({_inline(payload.get(PAYLOAD_KEY_ID, '?'))})"
            shown = [PAYLOAD_KEY_ARGS]
        case BlockKind.TOOL_USE:
            first = f"of call {_inline(payload.get(PAYLOAD_KEY_ID, '?'))}"
            shown = [PAYLOAD_KEY_RESULT, PAYLOAD_KEY_ERROR]
        case _:
            if PAYLOAD_KEY_TEXT not in payload and PAYLOAD_KEY_IMAGES not in payload:
                return _inline(payload).split("\n") if payload else []
            text = _inline(payload[PAYLOAD_KEY_TEXT]).split("\n") if PAYLOAD_KEY_TEXT in payload else []
            return [*text, *_images(payload.get(PAYLOAD_KEY_IMAGES))]
    if not options.tool_detail:
        return [first]
    details = [f"{key}: {_inline(payload[key])}" for key in shown if key in payload]
    return [first, *(line for detail in details for line in detail.split("\n"))]


def _images(images: JSONValue) -> list[str]:
    """Return a line for each image: what it is, and how large or where."""
    lines: list[str] = []
    for image in cast("list[JSONValue]", images) if isinstance(images, list) else []:
        record = cast("dict[str, JSONValue]", image) if isinstance(image, dict) else {}
        kind, data = record.get("media_type"), record.get("content")
        where = f"{len(data) * 3 // 4 - data.count('=', -2):,} B" if isinstance(data, str) else record.get("url", "?")
        lines.append(f"image: {_inline(kind if kind is not None else '?')}, {_inline(where)}")
    return lines


def _inline(value: JSONValue) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(plain_json(value, "payload", ContentError)).decode()


def _limited(lines: list[str], lines_max: int | None) -> list[str]:
    if lines_max is None or len(lines) <= lines_max:
        return lines
    shown = max(lines_max, 0)
    left = len(lines) - shown
    return [*lines[:shown], f"… {left} more line{'' if left == 1 else 's'}"]
