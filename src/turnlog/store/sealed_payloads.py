"""What is sealed of a payload: a byte that says how the rest is kept, and the payload, in pieces where it is large.

It is compressed before it is sealed, for sealed bytes cannot be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

import zstandard

from turnlog.events.sealing import OpenedPayload
from turnlog.model.pieces import byte_pieces
from turnlog.store import frames

_AS_IS, _AS_FRAME = b"\x00", b"\x01"
"""How a payload is kept in its sealed bytes: as it is, or as one Zstandard frame."""


def compressed(pieces: Iterable[bytes | memoryview], size: int) -> Iterator[bytes | memoryview]:
    """Iterate over what is to be sealed of a payload of some bytes: compressed, unless it is no less then."""
    frame = deque(frames.frame_pieces(pieces, size))
    if sum(map(len, frame)) < size:
        return chain((_AS_FRAME,), (frame.popleft() for _ in range(len(frame))))  # each goes when it is sealed
    return chain((_AS_IS,), pieces)


def kept(stored: bytes, *, is_frame: bool) -> Iterator[bytes | memoryview]:
    """Iterate over what is to be sealed of a payload that is at hand as it would be kept plain."""
    return chain((_AS_FRAME if is_frame else _AS_IS,), byte_pieces(stored))


def opened(sealed: OpenedPayload, size: int, size_max: int) -> Iterator[bytes]:
    """Iterate over the payload that is sealed, in pieces of at most 1 MiB.

    Args:
        sealed: its sealed bytes, of which nothing was read yet.
        size: of how many bytes it is to be. What is kept as it is may have another size.
        size_max: so many bytes at most a payload has.

    Raises:
        ValueError, zstandard.ZstdError: it does not open, or is not kept as a payload of this size is.
    """
    try:
        form = sealed.read(1)
        if form == _AS_IS:
            yield from sealed.pieces()
        elif form != _AS_FRAME:
            raise ValueError("it is kept in a way that this turnlog does not know: upgrade turnlog")
        elif not 0 <= size <= size_max:
            raise ValueError(f"the event says that it has {size} bytes")
        elif size <= frames.ONE_STEP_BYTES_MAX:
            yield frames.decompress(sealed.read(sealed.left), size)
        else:
            yield from frames.decompressed(sealed, sealed.left, size)
    except (ValueError, zstandard.ZstdError):
        sealed.check()  # what was changed is said to be that, whatever else follows of it
        raise
