"""A chunked sequence: an immutable one that a longer one can be made from without copying it.

It is kept in chunks of a fixed length, the last one shorter. A context window of one more message shares all
chunks but the last with the one it grew from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar, overload

T = TypeVar("T")
CHUNK = 256


class Chunked(Sequence[T], Generic[T]):
    """An immutable sequence. Equal to any sequence of the same items in the same order that is not text."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        """Hold the items, in their order."""
        self._chunks: tuple[tuple[T, ...], ...] = _cut(tuple(items))
        self._length = sum(map(len, self._chunks))

    def extended(self, items: Sequence[T]) -> Chunked[T]:
        """Return a sequence of these items and then others. Takes as long as there are others, at most."""
        longer: Chunked[T] = Chunked()
        whole = self._length // CHUNK
        rest = self._chunks[whole] if whole < len(self._chunks) else ()
        longer._chunks = self._chunks[:whole] + _cut((*rest, *items))
        longer._length = self._length + len(items)
        return longer

    def with_last(self, item: T) -> Chunked[T]:
        """Return a sequence with another last item. There has to be one."""
        other: Chunked[T] = Chunked()
        other._chunks = (*self._chunks[:-1], (*self._chunks[-1][:-1], item))
        other._length = self._length
        return other

    def starts_with(self, shorter: Chunked[T]) -> bool:
        """Return whether the first items are those of another sequence. Chunks that both share are not looked into."""
        whole, rest = divmod(len(shorter), CHUNK)
        if len(shorter) > self._length or self._chunks[:whole] != shorter._chunks[:whole]:
            return False
        return not rest or self._chunks[whole][:rest] == shorter._chunks[whole]

    def since(self, index: int) -> tuple[T, ...]:
        """Return the items from an index on."""
        whole, rest = divmod(index, CHUNK)
        return tuple(chain.from_iterable(self._chunks[whole:]))[rest:]

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items, in order."""
        return chain.from_iterable(self._chunks)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return an item, or the items of a slice as a tuple."""
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(index)
        return self._chunks[place // CHUNK][place % CHUNK]

    def __eq__(self, other: object) -> bool:
        """Compare with another sequence, item by item."""
        if isinstance(other, Chunked):
            return self._chunks == other._chunks  # pyright: ignore[reportUnknownMemberType] - the items tell
        if isinstance(other, list | tuple):
            return tuple(self) == tuple(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    def __hash__(self) -> int:
        """Return a hash that equal sequences share."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Return the items as a tuple is written."""
        return repr(tuple(self))


def _cut(items: tuple[T, ...]) -> tuple[tuple[T, ...], ...]:
    return tuple(items[start : start + CHUNK] for start in range(0, len(items), CHUNK))
