"""Request bodies in pieces, so that a long conversation costs what is new in each of its requests.

A request has nearly all bytes of the one before it. Its body here is a list of pieces that the two share, and what was
hashed of the one need not be hashed again for the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

from turnlog.errors import CorruptionError

_STATE_BYTES_MIN = 4096
"""How far apart hashes of beginnings are kept at least."""


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def copy(self) -> _Hash: ...

    def digest(self) -> bytes: ...


class Body:
    """Bytes in pieces. They are not changed once all pieces are added."""

    def __init__(self, content: bytes = b"") -> None:
        """Begin with some bytes."""
        self.size = 0
        self._pieces: list[memoryview] = []
        self._ends: list[int] = []
        self._hashed: list[int] = []
        """Where the beginnings end whose hashes are kept."""
        self._hashes: list[_Hash] = []
        self.add(memoryview(content))

    def add(self, piece: memoryview) -> None:
        """Add bytes at the end."""
        if piece:
            self.size += len(piece)
            self._pieces.append(piece)
            self._ends.append(self.size)

    def add_part(self, other: Body, start: int, count: int) -> None:
        """Add a part of other bytes at the end. They have it."""
        if not self.size and not start:
            shared = bisect_right(other._ends, count)
            self._pieces, self._ends = other._pieces[:shared], other._ends[:shared]
            self.size = self._ends[-1] if shared else 0
            hashed = bisect_right(other._hashed, self.size)
            self._hashed, self._hashes = other._hashed[:hashed], other._hashes[:hashed]
            start, count = self.size, count - self.size
        for piece in other.pieces(start, start + count):
            self.add(piece)

    def pieces(self, start: int, stop: int) -> list[memoryview]:
        """Return the pieces from one byte up to another one."""
        found: list[memoryview] = []
        place = bisect_right(self._ends, start)
        while start < stop and place < len(self._pieces):
            piece, end = self._pieces[place], self._ends[place]
            begin = end - len(piece)
            found.append(piece[start - begin : min(stop, end) - begin])
            start, place = end, place + 1
        return found

    def content(self, start: int, stop: int) -> bytes:
        """Return the bytes from one up to another one."""
        return b"".join(self.pieces(start, stop))

    def digest(self, stop: int) -> bytes:
        """Return the SHA-256 of the bytes up to one."""
        known = bisect_right(self._hashed, stop)
        at = self._hashed[known - 1] if known else 0
        running: _Hash = self._hashes[known - 1].copy() if known else sha256()
        for piece in self.pieces(at, stop):
            running.update(piece)
            at += len(piece)
            if known == len(self._hashed) and at - (self._hashed[-1] if known else 0) >= _STATE_BYTES_MIN:
                self._hashed.append(at)
                self._hashes.append(running.copy())
                known += 1
        return running.digest()


def put_together(parts: Sequence[tuple[int, int] | int], literals: memoryview, base: Body) -> Body:
    """Return the body that is made of parts of another one and of literal bytes.

    Raises:
        CorruptionError: the other one does not have these parts, or not in this order; or there are more or fewer
            literal bytes than belong to it.
    """
    body = Body()
    used = copied = 0
    for part in parts:
        if isinstance(part, int):
            body.add(literals[used : used + part])
            used += part
            continue
        start, count = part
        if start < copied or start + count > base.size:
            raise CorruptionError("its parts do not follow each other in the one that it is based on")
        copied = start + count
        body.add_part(base, start, count)
    if used != len(literals):
        raise CorruptionError(f"its payload has {len(literals):,} literal bytes, and {used:,} belong to it")
    return body
