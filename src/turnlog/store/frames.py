"""Zstandard frames (RFC 8878): made where they pay, read strictly and in bounded memory.

A stored frame is one frame, smaller than its content, with the size of its content in its header, without dictionary,
with a window of at most `WINDOW_BYTES_MAX`, and with nothing behind it. What a frame claims is never believed: it is
compared with what is known of the payload before anything is allocated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import zstandard

from turnlog.model.pieces import byte_pieces, joined

LEVEL = 3
FAST_LEVEL = 1
FAST_BYTES_MAX = 8 * 1024
"""Up to this size the fast level gives frames that are as small, in three quarters of the time."""

WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""The largest window that a reader must be able to keep: what RFC 8878 §3.1.1.1.2 recommends for every decoder."""

ONE_STEP_BYTES_MAX = 1024 * 1024
"""Contents up to this size are decompressed in one step."""

_MAGIC = 0xFD2FB528.to_bytes(4, "little")
_HEADER_BYTES_MIN, _HEADER_BYTES_MAX = 5, 18
_RUN_LENGTH = 1
PLAIN_DESCRIPTORS = frozenset(bytes([size_flag << 6 | 1 << 5]) for size_flag in range(4))
"""Frame header descriptors: single segment, no checksum, no dictionary."""

_local = threading.local()


def compress(content: bytes) -> bytes:
    """Return a content as one frame."""
    name = "fast" if len(content) <= FAST_BYTES_MAX else "compressor"
    compressor: zstandard.ZstdCompressor | None = getattr(_local, name, None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=FAST_LEVEL if name == "fast" else LEVEL)
        setattr(_local, name, compressor)
    return compressor.compress(content)


def compress_pieces(pieces: Iterable[bytes | memoryview], size: int) -> bytes:
    """Return a content of `size` bytes, which comes in pieces, as one frame."""
    return joined(frame_pieces(pieces, size))


def frame_pieces(pieces: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Iterate over the same frame in pieces. What comes of a large piece is never whole."""
    compressor = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=size)
    yield from map(compressor.compress, chain.from_iterable(map(byte_pieces, pieces)))
    yield compressor.flush()


def decompress(frame: bytes, size: int) -> bytes:
    """Return the content of a frame, of which `size` is known and at most `ONE_STEP_BYTES_MAX`, in one step.

    Raises:
        ValueError, zstandard.ZstdError: it is no frame of a content of this size, or not that alone.
    """
    decompressor = one_step()
    # Most frames are of a single segment without dictionary (RFC 8878 §3.1.1.1.1), and so say nothing but their size.
    if frame[4:5] not in PLAIN_DESCRIPTORS or zstandard.frame_content_size(frame) != size or len(frame) >= size:
        _check_header(frame[:_HEADER_BYTES_MAX], len(frame), size)
    return decompressor.decompress(frame, allow_extra_data=False)


def one_step() -> zstandard.ZstdDecompressor:
    """Return what decompresses frames in one step, for this thread."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    return decompressor


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, count: int, /) -> bytes:
        """Return the next bytes, as many as are asked for or all that are left."""
        ...


def decompressed(file: Readable, frame_bytes: int, size: int) -> Iterator[bytes]:
    """Iterate over the content of a frame, of which `size` is known, in pieces of at most 128 KiB.

    Args:
        file: what to read the frame from. It is at the frame's beginning, and has nothing behind the frame.
        frame_bytes: how many bytes it has.
        size: bytes of the content.

    Raises:
        ValueError, zstandard.ZstdError: it is no frame of a content of this size, or not that alone.
    """
    head = file.read(_HEADER_BYTES_MIN)
    if len(head) == _HEADER_BYTES_MIN and head.startswith(_MAGIC):
        head += file.read(zstandard.frame_header_size(head) - _HEADER_BYTES_MIN)
    has_checksum = _check_header(head, frame_bytes, size)
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX).decompressobj()
    decoder.decompress(head)
    last = False
    # The decoder gives out all that its input holds, and a few bytes can hold gigabytes: it gets one block at a time.
    while not last:
        last, block = _block(file)
        piece = decoder.decompress(block)
        size -= len(piece)
        if size < 0:
            raise ValueError("the Zstandard frame holds more than it says")
        yield piece
    if has_checksum:
        decoder.decompress(_exactly(file, 4))
    if size or not decoder.eof:
        raise ValueError("the Zstandard frame holds less than it says")
    if file.read(1):
        raise ValueError("there are bytes behind the Zstandard frame")


def _check_header(head: bytes, frame_bytes: int, size: int) -> bool:
    """Check what a frame says of itself, and return whether it has a checksum."""
    if not head.startswith(_MAGIC):
        raise ValueError("there is no Zstandard frame")
    said = zstandard.get_frame_parameters(head)
    if said.content_size != size:
        raise ValueError("the Zstandard frame is not of the size that the event says")
    if frame_bytes >= size:
        raise ValueError("the Zstandard frame is not smaller than its content")
    if said.window_size > WINDOW_BYTES_MAX:
        raise ValueError(f"the Zstandard frame asks for a window of more than {WINDOW_BYTES_MAX} bytes")
    if said.dict_id:
        raise ValueError("the Zstandard frame asks for a dictionary")
    return said.has_checksum


def _block(file: Readable) -> tuple[bool, bytes]:
    """Read a block with its header (RFC 8878 §3.1.1.2), and return whether it is the last one."""
    head = _exactly(file, 3)
    number = int.from_bytes(head, "little")
    last, kind, length = bool(number & 1), number >> 1 & 3, number >> 3
    return last, head + _exactly(file, 1 if kind == _RUN_LENGTH else length)


def _exactly(file: Readable, count: int) -> bytes:
    found = file.read(count)
    if len(found) != count:
        raise ValueError("the Zstandard frame is cut")
    return found
