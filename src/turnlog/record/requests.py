"""Request bodies as payloads: what a body has in common with that of an earlier call is kept once.

A payload is one line of JSON, `{"format":1,"parts":[…]}`, a line feed, and literal bytes. The body is its parts in
order: `[start, count]` is `count` bytes of the base's body from byte `start` on, a number is as many of the literal
bytes. Parts of the base follow each other there as they do here. The base is the call that the event's metadata names.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError
from turnlog.model.json_text import UNREADABLE

FORMAT = 1
COPY_BYTES_MIN = 64
"""What is shorter is written again: a copy costs about as much."""

REQUEST_BYTES_MAX = 256 * 1024 * 1024
"""The largest request with its loss report, in bytes: 256 MiB."""

PARTS_BYTES_MAX = 4 * 1024 * 1024
"""The longest line that says what a request is made of. One that would need a longer one is kept whole."""


class _Header(Struct, frozen=True, kw_only=True):
    format: int
    parts: list[tuple[int, int] | int]


_header = msgspec.json.Decoder(_Header)
_SHORTER = "the parts of a request are shorter than it"
_RUN_PARTS = 64
_RUN_BYTES_MAX = 1024 * 1024
_encoder = msgspec.json.Encoder()


def request_payload(body_parts: Iterable[bytes | memoryview], base: bytes) -> tuple[bytes, bool]:
    """Return the payload of a request, and whether it has parts of the base. See `request_pieces`."""
    pieces, shared = request_pieces(body_parts, base)
    return b"".join(pieces), shared


def request_pieces(body_parts: Iterable[bytes | memoryview], base: bytes) -> tuple[list[bytes | memoryview], bool]:
    """Return the payload of a request in pieces, and whether it has parts of the base.

    The pieces are those of the body, and no copies of them: a body may be large.

    Args:
        body_parts: the body, in parts that requests of one conversation share.
        base: the body of an earlier call, or nothing.
    """
    parts: list[tuple[int, int] | int] = []
    literals: list[bytes | memoryview] = []
    pieces = _pieces(body_parts, base)
    for copy in pieces:
        if isinstance(copy, tuple) and copy[1] >= COPY_BYTES_MIN:
            parts.append(copy)
            continue
        literal = base[copy[0] : sum(copy)] if isinstance(copy, tuple) else copy
        literals.append(literal)
        if parts and isinstance(parts[-1], int):
            parts[-1] += len(literal)
        else:
            parts.append(len(literal))
    header = _encoder.encode(_Header(format=FORMAT, parts=parts))
    if len(header) > PARTS_BYTES_MAX:
        whole = b"".join(base[piece[0] : sum(piece)] if isinstance(piece, tuple) else piece for piece in pieces)
        return request_pieces([whole], b"")
    return [header, b"\n", *literals], any(isinstance(part, tuple) for part in parts)


class _Pieces:
    """A body as copies from its base, `(start, count)`, and literal bytes."""

    def __init__(self, base: bytes) -> None:
        self.pieces: list[tuple[int, int] | bytes | memoryview] = []
        self._base = base
        self._at = 0
        """Where the base would go on if the body went on as it does."""

    def add(self, part: bytes | memoryview) -> None:
        """Add a part: where the base has it next, else where it has it further on, else as it is."""
        if self.follow(part):
            return
        found = self._base.find(part, self._at) if len(part) >= COPY_BYTES_MIN else -1
        if found < 0:
            self.pieces.append(part)
        else:
            self._copy(found, len(part))

    def follow(self, part: bytes | memoryview) -> bool:
        """Add a part if the base has it next; return whether it has."""
        if isinstance(part, bytes):
            follows = bool(part) and self._base.startswith(part, self._at)
        else:
            follows = bool(part) and self._base.find(part, self._at, self._at + len(part)) == self._at
        if follows:
            self._copy(self._at, len(part))
        return follows

    def _copy(self, start: int, count: int) -> None:
        self._at = start + count
        last = self.pieces[-1] if self.pieces else b""
        if isinstance(last, tuple) and sum(last) == start:
            self.pieces[-1] = (last[0], last[1] + count)
        else:
            self.pieces.append((start, count))


def _pieces(body_parts: Iterable[bytes | memoryview], base: bytes) -> list[tuple[int, int] | bytes | memoryview]:
    found = _Pieces(base)
    parts = iter(body_parts)
    # Many at once, because the base goes on as the body does for nearly all of them.
    while run := list(islice(parts, _RUN_PARTS)):
        is_large = sum(map(len, run)) > _RUN_BYTES_MAX
        if is_large or not base or not found.follow(b"".join(run)):
            for part in run:
                found.add(part)
    return found.pieces


class KeptRequest(Struct, frozen=True, kw_only=True):
    """The payload of a call in pieces, and the id of the call that it is based on, if any."""

    pieces: Iterable[bytes | memoryview]
    base: str | None


def request_body(kept: KeptRequest, size: int, earlier: Callable[[str], KeptRequest]) -> bytes:
    """Return the body behind a payload, following bases as far as it takes parts of them.

    Takes time for the bytes of the body and one look at each base, however long the conversation, and memory for the
    body alone. The pieces of each payload are taken to the last one. Its own payload is held to what one is; of those
    of earlier calls is taken what it has of them, whatever else is there.

    Args:
        kept: the call's own payload.
        size: bytes of the body, at most `REQUEST_BYTES_MAX`.
        earlier: returns what is kept of an earlier call.

    Raises:
        CorruptionError: a payload is not one of a request, or not of one of this size, or does not fit its base, or has
            bytes that belong to nothing.
    """
    if not 0 <= size <= REQUEST_BYTES_MAX:
        raise CorruptionError(f"a request has {size:,} bytes, and none has more than {REQUEST_BYTES_MAX:,}")
    header, literals = _split(iter(kept.pieces))
    if (wrong := parts_flaw(header.parts, size)) is not None:
        raise CorruptionError(f"a request cannot be put together: {wrong}")
    file = io.BytesIO(bytes(size))
    body = file.getbuffer()
    # What is still to be filled: from byte `start` of the call at hand, to byte `to` of the body, `count` bytes.
    wanted = _fill(body, [(0, 0, size)] if size else [], header.parts, literals)
    if more := literals.rest():
        raise CorruptionError(f"a request cannot be put together: {more:,} of its literal bytes belong to nothing")
    while wanted:
        if kept.base is None:
            raise CorruptionError("a request has parts of an earlier one, and does not say of which")
        kept = earlier(kept.base)
        header, literals = _split(iter(kept.pieces))
        wanted = _fill(body, wanted, header.parts, literals)
        literals.rest()
    body.release()
    return file.getvalue()  # the buffer itself, and not a copy of it


def parts_flaw(parts: Sequence[tuple[int, int] | int], size: int) -> str | None:
    """Return what is wrong with what a request of a size is made of, or None if nothing is.

    What it is based on may still not have these parts, or its payload not these literal bytes.
    """
    counts = [part if isinstance(part, int) else part[1] for part in parts]
    if sum(counts) != size or min(counts, default=0) < 0:
        return f"its parts are not {size:,} bytes"
    copied = 0
    for part in parts:
        if isinstance(part, tuple):
            if part[0] < copied or not part[1]:
                return "its parts do not follow each other in the one that it is based on"
            copied = sum(part)
    return None


def _split(pieces: Iterator[bytes | memoryview]) -> tuple[_Header, _Literals]:
    start = b""
    for piece in pieces:
        start += piece
        if b"\n" in start or len(start) > PARTS_BYTES_MAX:
            break
    end = start.find(b"\n", 0, PARTS_BYTES_MAX + 1)
    try:
        header = _header.decode(start[: max(end, 0)])
    except UNREADABLE as error:
        raise CorruptionError(f"the parts of a request cannot be read: {error}") from error
    if header.format != FORMAT:
        raise CorruptionError(f"a request is kept in format {header.format}, this turnlog knows 1: upgrade turnlog")
    if any((part if isinstance(part, int) else min(part)) < 0 for part in header.parts):
        raise CorruptionError("the parts of a request are less than nothing")
    return header, _Literals(chain((memoryview(start)[end + 1 :],), pieces))


class _Literals:
    """The literal bytes of a payload, which come in pieces, one after the other."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def into(self, target: memoryview) -> None:
        """Fill a target with the next ones.

        Raises:
            CorruptionError: there are no more.
        """
        filled = 0
        for some in self._next(len(target)):
            target[filled : filled + len(some)] = some
            filled += len(some)

    def skip(self, count: int) -> None:
        """Leave some out.

        Raises:
            CorruptionError: there are not so many more.
        """
        for _ in self._next(count):
            pass

    def rest(self) -> int:
        """Leave out the rest, which is read to its end, and return how many that were."""
        return len(self._piece) + sum(map(len, self._pieces))

    def _next(self, count: int) -> Iterator[memoryview]:
        while count:
            if not self._piece:
                found = next(self._pieces, None)
                if found is None:
                    raise CorruptionError(_SHORTER)
                self._piece = memoryview(found)
            some: memoryview = self._piece[:count]
            self._piece = self._piece[count:]
            count -= len(some)
            yield some


def _fill(
    body: memoryview,
    wanted: Sequence[tuple[int, int, int]],
    parts: Sequence[tuple[int, int] | int],
    literals: _Literals,
) -> list[tuple[int, int, int]]:
    """Fill in what a call has literally; return what is to be filled from its base."""
    remaining: list[tuple[int, int, int]] = []
    place = next_wanted = 0  # bytes of the body behind us, and the wanted range at hand
    for part in parts:
        count = part if isinstance(part, int) else part[1]
        end, at = place + count, place
        while next_wanted < len(wanted) and wanted[next_wanted][0] < end:
            start, to, length = wanted[next_wanted]
            first, last = max(start, place), min(start + length, end)
            target = to + first - start
            if isinstance(part, int):
                if first < at:
                    raise CorruptionError("parts of a request do not follow each other in the earlier one")
                literals.skip(first - at)
                literals.into(body[target : target + last - first])
                at = last
            else:
                remaining.append((part[0] + first - place, target, last - first))
            if start + length > end:
                break
            next_wanted += 1
        if isinstance(part, int):
            literals.skip(end - at)
        place = end
    if next_wanted < len(wanted):
        raise CorruptionError(_SHORTER)
    return sorted(remaining)
