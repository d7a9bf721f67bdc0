"""Zstandard frames."""

import random
import tracemalloc
from base64 import b64encode
from collections.abc import Callable
from io import BytesIO

import pytest
import zstandard

from turnlog.store.frames import (
    ONE_STEP_BYTES_MAX,
    WINDOW_BYTES_MAX,
    compress,
    compress_pieces,
    decompress,
    decompressed,
)

_MIB = 1024 * 1024
_BLOCK = 128 * 1024
SMALL = b"to be or not to be " * 100
LARGE = random.Random(1).randbytes(3 * _MIB).hex().encode()


def whole(frame: bytes, size: int) -> bytes:
    """Decompress a frame in one step."""
    return decompress(frame, size)


def pieces(frame: bytes, size: int) -> bytes:
    """Decompress a frame in pieces, none of them large."""
    found = list(decompressed(BytesIO(frame), len(frame), size))
    assert max(map(len, found), default=0) <= _BLOCK
    return b"".join(found)


def frame_of(
    *blocks: tuple[int, bytes], size: int, kind: int = 1, window_bits: int = 17, checksum: bytes | None = None
) -> bytes:
    """Make a frame by hand (RFC 8878 §3.1.1): of run-length blocks, each so many times one byte, or of other ones."""
    head = bytes((0b11_0_00_0_00 | (checksum is not None) << 2, window_bits - 10 << 3))
    body = b"".join(
        ((number == len(blocks)) | kind << 1 | length << 3).to_bytes(3, "little") + content
        for number, (length, content) in enumerate(blocks, 1)
    )
    return b"\x28\xb5\x2f\xfd" + head + size.to_bytes(8, "little") + body + (checksum or b"")


both = pytest.mark.parametrize("read", [whole, pieces], ids=lambda f: f.__name__)


@both
@pytest.mark.parametrize("level", [1, 3, 9])
@pytest.mark.parametrize("checksum", [True, False])
def test_content_comes_back(read: Callable[[bytes, int], bytes], level: int, checksum: bool) -> None:
    """What was compressed comes back, whatever the level, and with or without a checksum."""
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum)
    for content in (SMALL, LARGE, bytes(ONE_STEP_BYTES_MAX), b"a" * (_BLOCK + 1), b"ab" * _BLOCK):
        assert read(compressor.compress(content), len(content)) == content


def test_a_large_piece_is_not_compressed_beside_what_is_there() -> None:
    """What is made of it goes where it is to be, piece by piece: it is not there twice."""
    content = b64encode(random.Random(2).randbytes(12 * _MIB))
    tracemalloc.start()
    frame = compress_pieces([content], len(content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * len(frame)
    assert b"".join(decompressed(BytesIO(frame), len(frame), len(content))) == content


def test_own_frames_can_be_read() -> None:
    """The frames that turnlog makes are as it demands of those that it reads."""
    for content in (SMALL, LARGE, bytes(40 * _MIB)):
        assert pieces(compress(content), len(content)) == content


@both
def test_hand_made_frame_can_be_read(read: Callable[[bytes, int], bytes]) -> None:
    """The frames that these tests make by hand are sound, but for what a test changes."""
    assert read(frame_of((1000, b"x"), size=1000), 1000) == b"x" * 1000
    content = b"x" * 300_000
    checksum = zstandard.ZstdCompressor(write_checksum=True).compress(content)[-4:]
    blocks = ((_BLOCK, b"x"), (_BLOCK, b"x"), (300_000 - 2 * _BLOCK, b"x"))
    assert read(frame_of(*blocks, size=300_000, checksum=checksum), 300_000) == content


@both
@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_bytes_behind_a_frame_are_refused(read: Callable[[bytes, int], bytes], content: bytes) -> None:
    """Nothing may stand behind a frame: no byte, no second frame, no empty one, none to be skipped."""
    frame = compress(content)
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    for more in (b"\0", b"more", frame, zstandard.ZstdCompressor().compress(b""), skipped, bytes(100_000)):
        with pytest.raises((ValueError, zstandard.ZstdError)):
            read(frame + more, len(content))
        with pytest.raises((ValueError, zstandard.ZstdError)):
            read(more + frame, len(content))


@both
def test_cut_frame_is_refused(read: Callable[[bytes, int], bytes]) -> None:
    """A frame that ends anywhere before its end is refused, with a checksum or without."""
    for checksum in (True, False):
        frame = zstandard.ZstdCompressor(write_checksum=checksum).compress(SMALL)
        for length in range(len(frame)):
            with pytest.raises((ValueError, zstandard.ZstdError)):
                read(frame[:length], len(SMALL))


@both
@pytest.mark.parametrize("length", [_BLOCK, _BLOCK + 1, 2 * _BLOCK])
def test_large_frame_cut_by_one_byte_is_refused(read: Callable[[bytes, int], bytes], length: int) -> None:
    """The last byte is missed, wherever the blocks end."""
    content = LARGE[:length]
    with pytest.raises((ValueError, zstandard.ZstdError)):
        read(compress(content)[:-1], length)


@both
def test_wrong_checksum_is_refused(read: Callable[[bytes, int], bytes]) -> None:
    """A checksum is checked where there is one."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(SMALL)
    with pytest.raises(zstandard.ZstdError):
        read(frame[:-1] + bytes((frame[-1] ^ 1,)), len(SMALL))


@both
@pytest.mark.parametrize(
    ("frame", "size", "message"),
    [
        pytest.param(compress(SMALL), len(SMALL) - 1, "not of the size", id="other size"),
        pytest.param(compress(SMALL), 12 * 10**9, "not of the size", id="event claims 12 GB"),
        pytest.param(frame_of((1, b"x"), size=12 * 10**9), 1000, "not of the size", id="frame claims 12 GB"),
        pytest.param(
            zstandard.ZstdCompressor(write_content_size=False).compress(SMALL), len(SMALL), "not of the size", id="none"
        ),
        pytest.param(zstandard.ZstdCompressor().compress(b"abc"), 3, "not smaller", id="not smaller"),
        pytest.param(b"", 0, "no Zstandard frame", id="empty"),
        pytest.param(b"no frame", 1000, "no Zstandard frame", id="text"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", 1000, "no Zstandard frame", id="to be skipped"),
        pytest.param(frame_of((1000, b"x"), size=1000, window_bits=24), 1000, "a window of more than", id="window"),
        pytest.param(frame_of((1000, b"x"), size=1000, window_bits=31), 1000, "a window of more than", id="2 GiB"),
    ],
)
def test_frame_that_is_not_as_it_should_be_is_refused(
    read: Callable[[bytes, int], bytes], frame: bytes, size: int, message: str
) -> None:
    """A frame is refused by its header, before anything is decompressed."""
    with pytest.raises(ValueError, match=message):
        read(frame, size)


@both
def test_frame_with_a_dictionary_is_refused(read: Callable[[bytes, int], bytes]) -> None:
    """A frame is read without any dictionary, so one that was made with one is refused."""
    dictionary = zstandard.train_dictionary(4096, [SMALL[n : n + 400] * 3 + bytes((n % 250,)) for n in range(1000)])
    frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(SMALL)
    assert zstandard.get_frame_parameters(frame).dict_id
    with pytest.raises(ValueError, match="a dictionary"):
        read(frame, len(SMALL))


@both
@pytest.mark.parametrize("size", [1000, _BLOCK, 2 * _MIB])
def test_frame_that_holds_other_than_it_says_is_refused(read: Callable[[bytes, int], bytes], size: int) -> None:
    """The size in the header is compared with what comes out."""
    full = [(_BLOCK, b"x")] * 16
    for blocks in ([(size // 2, b"x")] if size <= _BLOCK else full[:-1], [*full, (1, b"x")]):
        with pytest.raises((ValueError, zstandard.ZstdError)):
            read(frame_of(*blocks, size=size), size)


@both
@pytest.mark.parametrize(("kind", "length"), [(3, 10), (0, _BLOCK + 1), (1, _BLOCK + 1), (2, _BLOCK + 1)])
def test_block_that_no_frame_has_is_refused(read: Callable[[bytes, int], bytes], kind: int, length: int) -> None:
    """A reserved kind of block, and one that is too large, are refused."""
    content = b"x" if kind == 1 else bytes(length)
    with pytest.raises((ValueError, zstandard.ZstdError)):
        read(frame_of((length, content), size=10 * _MIB, kind=kind), 10 * _MIB)


def test_window_of_own_frames_is_far_from_the_limit() -> None:
    """What turnlog writes could be written with a higher level too, before readers would refuse it."""
    frame = compress(bytes(WINDOW_BYTES_MAX * 2))
    assert zstandard.get_frame_parameters(frame).window_size <= WINDOW_BYTES_MAX // 2


@both
def test_bomb_is_refused(read: Callable[[bytes, int], bytes]) -> None:
    """A few bytes that hold 26 GB are refused, though their header says what is expected."""
    bomb = frame_of(*[(_BLOCK, b"x")] * 200_000, size=_MIB)
    with pytest.raises((ValueError, zstandard.ZstdError)):
        read(bomb, _MIB)


def test_bomb_gives_no_more_than_it_says() -> None:
    """Of what a bomb holds beyond its size, nothing is given."""
    size = 2 * _MIB
    bomb = frame_of(*[(_BLOCK, b"x")] * 200_000, size=size)
    given = decompressed(BytesIO(bomb), len(bomb), size)
    assert sum(len(next(given)) for _ in range(size // _BLOCK)) == size
    with pytest.raises(ValueError, match="holds more than it says"):
        next(given)
