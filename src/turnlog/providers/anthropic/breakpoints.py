"""Cache breakpoints of the Messages API (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).

A breakpoint is a mark on a block: the request is cached up to it. The marks move as a conversation grows, so they are
laid over the messages and are no part of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import overload

import msgspec
from msgspec import Raw, Struct

from turnlog.providers.body import encode
from turnlog.providers.raw_json import fields_of, is_null, items_of, raw

KEY = "cache_control"
"""The key of a block with a mark."""

CACHE_CONTROL = Raw(b'{"type":"ephemeral"}')
"""The mark, with the provider's own time to live."""

_CANNOT_BE_MARKED = (b'"thinking"', b'"redacted_thinking"')


class _Message(Struct):
    role: str
    content: list[Raw]


_message = msgspec.json.Decoder(_Message)


def with_breakpoints(
    messages: Sequence[bytes], cached: Collection[int], breakpoints_max: int, own: Collection[int] = ()
) -> tuple[Sequence[bytes], list[int]]:
    """Return messages with the last few marks, and the indexes of those whose own marks went, one for each, ascending.

    Args:
        messages: the fragments of a body, all but the first one with the comma before it.
        cached: indexes of those to cache up to: a mark goes on their last block that can have one.
        breakpoints_max: how many marks there may be: the last ones are.
        own: indexes of those whose blocks may have marks of their own.
    """
    changed: dict[int, bytes] = {}
    lost: list[int] = []
    room = max(breakpoints_max, 0)
    for index in sorted({*cached, *own}, reverse=True):
        if not room and index not in own:
            continue
        text = messages[index].removeprefix(b",")
        message = _message.decode(text)
        before = bool(room) and index in cached and _mark_last(message.content)
        room, gone = _keep_last(message.content, room)
        lost += [index] * gone
        if before or gone:
            changed[index] = messages[index][: len(messages[index]) - len(text)] + encode(message)
    return (_Overlaid(messages, changed) if changed else messages), lost[::-1]


def _mark_last(blocks: list[Raw]) -> bool:
    """Mark the last block that can have a mark; return whether there is one."""
    for place in reversed(range(len(blocks))):
        block = fields_of(blocks[place]) or {}
        if bytes(block.get("type", b"")) not in _CANNOT_BE_MARKED:
            block.setdefault(KEY, CACHE_CONTROL)
            blocks[place] = Raw(encode(block))
            return True
    return False


def _keep_last(blocks: list[Raw], room: int) -> tuple[int, int]:
    """Take the marks out of blocks and of what is in them, but for the last few; return the room left, and how many."""
    gone = 0
    for place in reversed(range(len(blocks))):
        block = fields_of(blocks[place]) or {}
        inner = items_of(block.get("content")) or []
        lost = 0
        if not is_null(block.get(KEY)):
            lost += not room
            room -= bool(room)
            if lost:
                del block[KEY]
        room, lost_inside = _keep_last(inner, room)
        if lost_inside:
            block["content"] = raw(inner)
        if lost or lost_inside:
            blocks[place] = raw(block)
        gone += lost + lost_inside
    return room, gone


class _Overlaid(Sequence[bytes]):
    """A sequence with other items at a few of its indexes. The sequence itself is neither changed nor copied."""

    __slots__ = ("_base", "_changed")

    def __init__(self, base: Sequence[bytes], changed: Mapping[int, bytes]) -> None:
        self._base = base
        self._changed = changed

    def __len__(self) -> int:
        return len(self._base)

    def __iter__(self) -> Iterator[bytes]:
        rest = iter(self._base)
        place = 0
        for index in sorted(self._changed):
            yield from islice(rest, index - place)
            next(rest)
            yield self._changed[index]
            place = index + 1
        yield from rest

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        found = self._base[index]
        return self._changed.get(index + len(self._base) if index < 0 else index, found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType] - the items tell

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
