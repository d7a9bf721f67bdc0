"""Cache breakpoints of the Messages API (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).

A breakpoint is a mark on a block: the request is cached up to it. The marks move as a conversation grows, so they are
laid over the messages and are no part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import overload

import msgspec
from msgspec import Raw, Struct

from turnlog.providers.body import encode
from turnlog.providers.raw_json import fields_of

CACHE_CONTROL = Raw(b'{"type":"ephemeral"}')
"""The mark, with the provider's own time to live."""

_CANNOT_BE_MARKED = (b'"thinking"', b'"redacted_thinking"')


class _Message(Struct):
    role: str
    content: list[Raw]


_message = msgspec.json.Decoder(_Message)


def with_breakpoints(messages: Sequence[bytes], cached: Sequence[int], breakpoints_max: int) -> Sequence[bytes]:
    """Return messages with a mark on the last markable block of the last few that are to be cached.

    Args:
        messages: the fragments of a body, all but the first one with the comma before it.
        cached: indexes of those to cache up to, ascending.
        breakpoints_max: how many may be marked: the last ones are.
    """
    changed: dict[int, bytes] = {}
    for index in reversed(cached):
        if len(changed) == breakpoints_max:
            break
        marked = _marked(messages[index])
        if marked is not None:
            changed[index] = marked
    return _Overlaid(messages, changed) if changed else messages


def _marked(fragment: bytes) -> bytes | None:
    """Return a fragment with a mark on its last block that can have one, or None where none can."""
    text = fragment.removeprefix(b",")
    message = _message.decode(text)
    for place in reversed(range(len(message.content))):
        block = fields_of(message.content[place]) or {}
        if bytes(block.get("type", b"")) not in _CANNOT_BE_MARKED:
            block.setdefault("cache_control", CACHE_CONTROL)
            message.content[place] = Raw(encode(block))
            return fragment[: len(fragment) - len(text)] + encode(message)
    return None


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
