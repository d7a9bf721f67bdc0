"""Payload placement."""

import random
import threading
from pathlib import Path

import msgspec
import pytest
import zstandard
from msgspec import Raw

from turnlog.digest import payload_hash
from turnlog.errors import CorruptionError, StoreError
from turnlog.events import Event
from turnlog.store import NewPayload, Placement
from turnlog.store.payloads import FILE_BYTES_MIN, FILES, ZSTD_BYTES_MIN, PayloadPlacer, file_matches_name

_random = random.Random(1)
TEXT = b"to be or not to be " * 100
NOISE = _random.randbytes(2000)
LARGE_TEXT = b"to be or not to be " * 10_000
LARGE_NOISE = _random.randbytes(FILE_BYTES_MIN)


def _event(placed: NewPayload) -> Event:
    return Event(
        format=1,
        id="e",
        topic="t",
        stream="e",
        position=0,
        hash=placed.hash,
        size=placed.size,
        parents=[],
        meta=Raw(b"{}"),
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _place(placer: PayloadPlacer, payload: bytes | None) -> NewPayload:
    """Place a payload and keep it, as an append does."""
    placed = placer.place(payload)
    placer.keep(placed)
    return msgspec.structs.replace(placed, stored=None) if placed.placement in FILES else placed


@pytest.fixture
def placer(tmp_path: Path) -> PayloadPlacer:
    """Give a placer with a folder that does not exist yet."""
    return PayloadPlacer(tmp_path / "deep" / "payloads")


@pytest.mark.parametrize(
    ("payload", "placement"),
    [
        (b"", Placement.INLINE),
        (b"a" * (ZSTD_BYTES_MIN - 1), Placement.INLINE),
        (b"a" * ZSTD_BYTES_MIN, Placement.INLINE_ZSTD),
        (NOISE, Placement.INLINE),
        (TEXT, Placement.INLINE_ZSTD),
        (b"a" * (FILE_BYTES_MIN - 1), Placement.INLINE_ZSTD),
        (b"a" * FILE_BYTES_MIN, Placement.FILE_ZSTD),
        (LARGE_NOISE[:-1], Placement.INLINE),
        (LARGE_NOISE, Placement.FILE),
        (LARGE_TEXT, Placement.FILE_ZSTD),
    ],
    ids=lambda value: value.name if isinstance(value, Placement) else f"{len(value)} bytes",
)
def test_payload_is_placed_by_size_and_comes_back(placer: PayloadPlacer, payload: bytes, placement: Placement) -> None:
    """Size and compressibility decide where a payload goes; whatever the place, the bytes come back."""
    placed = _place(placer, payload)
    assert (placed.placement, placed.hash, placed.size) == (placement, payload_hash(payload), len(payload))
    assert (placed.stored is None) == (placement in {Placement.FILE, Placement.FILE_ZSTD})
    assert placer.load(_event(placed), placed.placement, placed.stored, global_position=1) == payload


@pytest.mark.parametrize("payload", [b"", TEXT, LARGE_NOISE, LARGE_TEXT])
def test_without_folder_everything_is_beside_its_event(payload: bytes) -> None:
    """A store in memory keeps large payloads inline."""
    placer = PayloadPlacer(None)
    placed = _place(placer, payload)
    assert placed.placement in {Placement.INLINE, Placement.INLINE_ZSTD}
    assert placer.load(_event(placed), placed.placement, placed.stored, global_position=1) == payload
    assert list(placer.files()) == []


def test_no_payload_is_not_an_empty_one(placer: PayloadPlacer) -> None:
    """An event without payload has neither hash nor size, one with an empty payload has both."""
    none = _place(placer, None)
    assert (none.hash, none.size, none.placement, none.stored) == (None, None, Placement.NONE, None)
    assert placer.load(_event(none), none.placement, none.stored, global_position=1) is None
    empty = _place(placer, b"")
    assert (empty.hash, empty.size, empty.stored) == (payload_hash(b""), 0, b"")


def test_file_is_named_by_hash_and_shared(placer: PayloadPlacer) -> None:
    """The same payload twice is one file, in a folder of the first two hexadecimal digits."""
    _place(placer, LARGE_NOISE)
    [file] = placer.files()
    written = file.stat().st_mtime_ns
    _place(placer, LARGE_NOISE)
    assert list(placer.files()) == [file]
    assert file.stat().st_mtime_ns == written
    assert file.read_bytes() == LARGE_NOISE
    assert len(file.parent.name) == 2
    assert file_matches_name(file)


def test_small_payloads_make_no_folder(placer: PayloadPlacer) -> None:
    """The folder is made when it is first needed."""
    _place(placer, TEXT)
    assert placer.folder is not None
    assert not placer.folder.exists()
    assert list(placer.files()) == []


def test_no_temporary_file_is_left(placer: PayloadPlacer) -> None:
    """After placing there are payload files and nothing else."""
    assert placer.folder is not None
    _place(placer, LARGE_NOISE)
    _place(placer, LARGE_TEXT)
    assert len(_files(placer.folder)) == len(list(placer.files())) == 2


def test_temporary_files_are_not_payloads(placer: PayloadPlacer) -> None:
    """What a crash left half-written is not taken for a payload."""
    _place(placer, LARGE_NOISE)
    [file] = placer.files()
    file.with_name(".half").write_bytes(b"x")
    assert list(placer.files()) == [file]


def test_many_threads_place_the_same_payload(placer: PayloadPlacer) -> None:
    """Concurrent placing of one payload gives one whole file."""
    barrier = threading.Barrier(8)
    results: list[NewPayload] = []

    def place() -> None:
        barrier.wait()
        results.append(_place(placer, LARGE_TEXT))

    threads = [threading.Thread(target=place) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    [file] = placer.files()
    assert file_matches_name(file)


def test_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    """A file where the folder should be is a turnlog error and not a bare one."""
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        _place(PayloadPlacer(blocked), LARGE_NOISE)


@pytest.mark.parametrize("payload", [LARGE_NOISE, LARGE_TEXT])
def test_flipped_bit_in_a_file_is_found(placer: PayloadPlacer, payload: bytes) -> None:
    """A payload file with one changed byte in its middle no longer matches its name, and loading raises."""
    placed = _place(placer, payload)
    [file] = placer.files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert not file_matches_name(file)
    with pytest.raises(CorruptionError) as caught:
        placer.load(_event(placed), placed.placement, placed.stored, global_position=5)
    assert caught.value.global_position == 5


@pytest.mark.parametrize("payload", [LARGE_NOISE, LARGE_TEXT])
def test_cut_or_missing_file_is_found(placer: PayloadPlacer, payload: bytes) -> None:
    """A payload file that is cut, empty or gone is corruption."""
    placed = _place(placer, payload)
    [file] = placer.files()
    whole = file.read_bytes()
    for content in (whole[:-1], b""):
        file.write_bytes(content)
        assert not file_matches_name(file)
        with pytest.raises(CorruptionError):
            placer.load(_event(placed), placed.placement, placed.stored, global_position=5)
    file.unlink()
    with pytest.raises(CorruptionError, match="no such file"):
        placer.load(_event(placed), placed.placement, placed.stored, global_position=5)


@pytest.mark.parametrize(
    ("placement", "stored"),
    [
        (Placement.INLINE, None),
        (Placement.INLINE, b"other"),
        (Placement.INLINE, TEXT[:-1]),
        (Placement.INLINE_ZSTD, None),
        (Placement.INLINE_ZSTD, b""),
        (Placement.INLINE_ZSTD, b"no frame"),
        (Placement.INLINE_ZSTD, zstandard.ZstdCompressor().compress(TEXT)[:-1]),
        (Placement.INLINE_ZSTD, zstandard.ZstdCompressor().compress(TEXT + b"x")),
        (Placement.INLINE_ZSTD, zstandard.ZstdCompressor().compress(b"x" * len(TEXT))),
        (Placement.NONE, None),
        (Placement.NONE, TEXT),
        (Placement.FILE, None),
        (Placement.FILE_ZSTD, TEXT),
        (99, TEXT),
        (-1, TEXT),
    ],
)
def test_wrong_placement_or_bytes_are_corruption(placer: PayloadPlacer, placement: int, stored: bytes | None) -> None:
    """Whatever is wrong with what stands beside the event, loading raises one kind of error."""
    event = _event(_place(placer, TEXT))
    with pytest.raises(CorruptionError, match="payload of event 'e'"):
        placer.load(event, placement, stored, global_position=3)


@pytest.mark.parametrize("stored", ["text", 5, 1.5])
@pytest.mark.parametrize("placement", [Placement.INLINE, Placement.INLINE_ZSTD])
def test_column_that_holds_no_bytes_is_corruption(placer: PayloadPlacer, placement: int, stored: object) -> None:
    """SQLite columns can hold text and numbers where bytes should be: that is corruption too."""
    event = _event(_place(placer, TEXT))
    with pytest.raises(CorruptionError):
        placer.load(event, placement, stored, global_position=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("hash_", ["", "x", "sha256-zz", "sha256-" + "A" * 43])
def test_hash_that_is_none_is_corruption(placer: PayloadPlacer, hash_: str) -> None:
    """An event whose hash is malformed has no readable payload, wherever it should be."""
    event = msgspec.structs.replace(_event(_place(placer, TEXT)), hash=hash_)
    for placement in (Placement.INLINE, Placement.FILE):
        with pytest.raises(CorruptionError):
            placer.load(event, placement, TEXT, global_position=3)
