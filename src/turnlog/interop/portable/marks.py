"""Sets of global positions that take one bit for each event of a log, however many are in them."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


class Marks:
    """A set of whole numbers from 0 up to a bound, which is included."""

    def __init__(self, bound: int) -> None:
        """Make an empty set."""
        self._bytes = bytearray(bound // 8 + 1)
        self._count = 0

    def add(self, number: int) -> bool:
        """Add a number, and tell whether it is new."""
        byte, bit = number >> 3, 1 << (number & 7)
        if self._bytes[byte] & bit:
            return False
        self._bytes[byte] |= bit
        self._count += 1
        return True

    def __contains__(self, number: int) -> bool:
        """Tell whether a number is in the set."""
        byte = number >> 3
        return byte < len(self._bytes) and bool(self._bytes[byte] & 1 << (number & 7))

    def __len__(self) -> int:
        """Return how many numbers are in the set."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers in ascending order."""
        for index, byte in enumerate(self._bytes):
            if byte:
                for bit in _BITS[byte]:
                    yield index * 8 + bit
