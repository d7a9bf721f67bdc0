"""Sets of global positions that take about one bit for each event of a log, however many are in them."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
_PAGE_BITS = 15
_PAGE_BYTES = 1 << _PAGE_BITS - 3


class Marks:
    """A set of whole numbers, none below 0. It takes 4 kB for each 32,768 numbers in a row of which one is in it."""

    def __init__(self) -> None:
        """Make an empty set."""
        self._pages: dict[int, bytearray] = {}
        self._count = 0

    def add(self, number: int) -> bool:
        """Add a number, and tell whether it is new."""
        index, byte, bit = _place(number)
        page = self._pages.get(index)
        if page is None:
            page = self._pages[index] = bytearray(_PAGE_BYTES)
        elif page[byte] & bit:
            return False
        page[byte] |= bit
        self._count += 1
        return True

    def __contains__(self, number: int) -> bool:
        """Tell whether a number is in the set."""
        index, byte, bit = _place(number)
        page = self._pages.get(index)
        return page is not None and bool(page[byte] & bit)

    def __len__(self) -> int:
        """Return how many numbers are in the set."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers in ascending order."""
        for index in sorted(self._pages):
            first = index << _PAGE_BITS
            for place, byte in enumerate(self._pages[index]):
                if byte:
                    for bit in _BITS[byte]:
                        yield first + place * 8 + bit

    def __reversed__(self) -> Iterator[int]:
        """Iterate over the numbers in descending order."""
        for index in sorted(self._pages, reverse=True):
            first = index << _PAGE_BITS
            page = self._pages[index]
            for place in range(_PAGE_BYTES - 1, -1, -1):
                for bit in reversed(_BITS[page[place]]):
                    yield first + place * 8 + bit


def _place(number: int) -> tuple[int, int, int]:
    """Return the page of a number, its byte in the page, and its bit in the byte."""
    return number >> _PAGE_BITS, number >> 3 & _PAGE_BYTES - 1, 1 << (number & 7)
