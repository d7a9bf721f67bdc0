"""Payload placement."""

import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard

from turnlog.digest import payload_hash, sri_bytes
from turnlog.errors import CorruptionError, ErasedError, InputError, StoreError
from turnlog.events import DataKey, Seal
from turnlog.store import payloads
from turnlog.store.payloads import (
    CONTENT_BYTES_MAX,
    FILE_BYTES_MIN,
    FILES,
    PAYLOAD_BYTES_MAX,
    ZSTD_BYTES_MIN,
    PayloadPlacer,
)
from turnlog.store.values import NewPayload, Placement

_random = random.Random(1)
TEXT = b"to be or not to be " * 100
NOISE = _random.randbytes(2000)
LARGE_TEXT = b"to be or not to be " * 10_000
LARGE_NOISE = _random.randbytes(FILE_BYTES_MIN)
HASH = payload_hash(TEXT)
MIB = 1024 * 1024


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _place(placer: PayloadPlacer, payload: bytes | None) -> NewPayload:
    """Place a payload and record it, as an append does. What comes back has `stored` as it stands beside the event."""
    placed = placer.place(payload)
    placer.publish(placed)
    placer.release(placed)
    if placed.placement in FILES:
        return msgspec.structs.replace(placed, stored=sri_bytes(placed.hash or ""), file=None)
    return placed


def _load(placer: PayloadPlacer, placed: NewPayload) -> bytes:
    """Load what was placed, and check that verification sees the same."""
    assert placed.hash is not None
    assert placed.size is not None
    place = (placed.hash, placed.size, placed.placement, placed.stored)
    payload = placer.load(*place, event_id="e", global_position=1)
    assert b"".join(placer.pieces(*place, event_id="e", global_position=1)) == payload
    assert placer.check_payload(*place, event_id="e", global_position=1) == payload
    return payload


def _refused(
    placer: PayloadPlacer, hash_: str, size: int, placement: int, stored: bytes | None, error: type[Exception]
) -> str:
    """Check that loading and verifying raise the same error, and return its message."""
    messages: set[str] = set()
    for read in (placer.load, placer.check_payload):
        with pytest.raises(error) as caught:
            read(hash_, size, placement, stored, event_id="e", global_position=5)
        messages.add(str(caught.value))
        if isinstance(caught.value, CorruptionError):
            assert caught.value.global_position == 5
    [message] = messages
    assert "payload of event 'e'" in message
    return message


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
    assert _load(placer, placed) == payload


@pytest.mark.parametrize("payload", [b"", TEXT, LARGE_NOISE, LARGE_TEXT])
def test_without_folder_everything_is_beside_its_event(payload: bytes) -> None:
    """A store in memory keeps large payloads inline."""
    placer = PayloadPlacer(None)
    placed = _place(placer, payload)
    assert placed.placement in {Placement.INLINE, Placement.INLINE_ZSTD}
    assert _load(placer, placed) == payload
    assert list(placer.files()) == []
    assert (placer.stats(), placer.needs_collecting(), placer.pending_hashes()) == ((0, 0), False, set())
    assert placer.collect(lambda _: False) == 0
    placer.close()


def test_no_payload_is_not_an_empty_one(placer: PayloadPlacer) -> None:
    """An event without payload has neither hash nor size, one with an empty payload has both."""
    none = _place(placer, None)
    assert (none.hash, none.size, none.placement, none.stored) == (None, None, Placement.NONE, None)
    empty = _place(placer, b"")
    assert (empty.hash, empty.size, empty.stored) == (payload_hash(b""), 0, b"")


def test_too_large_payload_is_refused(placer: PayloadPlacer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be read again is not recorded. The limit itself is within it."""
    monkeypatch.setattr(payloads, "PAYLOAD_BYTES_MAX", len(LARGE_NOISE))
    assert _load(placer, _place(placer, LARGE_NOISE)) == LARGE_NOISE
    with pytest.raises(InputError, match=r"65,537 bytes is more than the limit of 65,536"):
        placer.place(LARGE_NOISE + b"x")


def test_file_is_named_by_hash_and_shared(placer: PayloadPlacer) -> None:
    """The same payload twice is one file, in a folder of the first two hexadecimal digits."""
    placed = _place(placer, LARGE_NOISE)
    [(file, hash_)] = placer.files()
    written = file.stat().st_mtime_ns
    _place(placer, LARGE_NOISE)
    assert list(placer.files()) == [(file, hash_)]
    assert file.stat().st_mtime_ns == written
    assert file.read_bytes() == LARGE_NOISE
    assert hash_ == sri_bytes(placed.hash or "")
    assert file.parent.name + file.name == hash_.hex()
    assert len(file.parent.name) == 2


def test_stats_are_of_payload_files(placer: PayloadPlacer) -> None:
    """Payload files are counted and measured; nothing else in the folder is."""
    assert placer.stats() == (0, 0)
    _place(placer, LARGE_NOISE)
    _place(placer, LARGE_TEXT)
    placer.place(LARGE_NOISE + b"x")
    sizes = [file.stat().st_size for file, _ in placer.files()]
    assert placer.folder is not None
    (placer.folder / "notes").write_bytes(b"x" * 100)
    assert placer.stats() == (2, sum(sizes))


@pytest.mark.parametrize("step", ["iterdir", "lstat"])
def test_file_that_is_erased_meanwhile_is_not_looked_at(
    placer: PayloadPlacer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An erasure takes files away, and folders with the last file in them, while somebody looks through them."""
    _place(placer, LARGE_NOISE)
    _place(placer, LARGE_TEXT)
    there = dict(placer.files())
    gone, kept = there
    look: Callable[[Path], object] = getattr(Path, step)

    def erased_first(path: Path) -> object:
        if path in (gone, gone.parent) and gone.exists():
            gone.unlink()
            gone.parent.rmdir()
        return look(path)

    monkeypatch.setattr(Path, step, erased_first)
    assert placer.stats() == (1, kept.stat().st_size)
    assert list(placer.files()) == [(kept, there[kept])]


def test_small_payloads_make_no_folder(placer: PayloadPlacer) -> None:
    """The folder is made when it is first needed."""
    _place(placer, TEXT)
    assert placer.folder is not None
    assert not placer.folder.exists()
    assert list(placer.files()) == []


def test_no_temporary_file_is_left(placer: PayloadPlacer) -> None:
    """After placing and closing there are payload files and nothing else."""
    assert placer.folder is not None
    _place(placer, LARGE_NOISE)
    _place(placer, LARGE_TEXT)
    placer.close()
    assert _files(placer.folder) == [file for file, _ in placer.files()]
    assert len(_files(placer.folder)) == 2


def test_what_belongs_to_nothing_is_named(placer: PayloadPlacer) -> None:
    """Whatever in the folder is no payload file, by its name, is given without a hash; what is on its way in is not."""
    placed = placer.place(LARGE_NOISE)
    _place(placer, LARGE_TEXT)
    folder = placer.folder
    assert folder is not None
    [(file, _)] = placer.files()
    [lock] = folder.glob(".incoming/*/lock")
    odd = [
        folder / "notes.txt",
        folder / "zz",
        folder / ".incoming" / "notes",
        folder / ".incoming" / "0123456789abcdeX",
        lock.parent / "notes",
        file.parent / ".half",
        file.with_suffix(".gz"),
        file.with_name(file.name.upper()),
        file.with_name("ab"),
    ]
    for path in odd:
        path.write_bytes(b"x")
    (folder / "no").mkdir()
    (folder / "no" / "below").write_bytes(b"x")
    found = dict(placer.files())
    assert [path for path, hash_ in found.items() if hash_ is not None] == [file]
    assert {path for path, hash_ in found.items() if hash_ is None} == {*odd, folder / "no"}
    assert placed.file is not None


def test_incoming_that_is_no_folder_belongs_to_nothing(placer: PayloadPlacer, tmp_path: Path) -> None:
    """A symbolic link in the place of `.incoming` is named, and not followed."""
    assert placer.folder is not None
    placer.folder.mkdir(parents=True)
    (tmp_path / "elsewhere" / ("0" * 16)).mkdir(parents=True)
    (placer.folder / ".incoming").symlink_to(tmp_path / "elsewhere")
    assert list(placer.files()) == [(placer.folder / ".incoming", None)]


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
    assert len(list(placer.files())) == 1
    assert _load(placer, results[0]) == LARGE_TEXT


def test_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    """A file where the folder should be is a turnlog error and not a bare one."""
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        _place(PayloadPlacer(blocked), LARGE_NOISE)


@pytest.mark.parametrize("payload", [LARGE_NOISE, LARGE_TEXT])
def test_flipped_bit_in_a_file_is_found(placer: PayloadPlacer, payload: bytes) -> None:
    """A payload file with one changed byte in its middle is corruption."""
    placed = _place(placer, payload)
    [(file, _)] = placer.files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    _refused(placer, placed.hash or "", len(payload), placed.placement, placed.stored, CorruptionError)


@pytest.mark.parametrize("payload", [LARGE_NOISE, LARGE_TEXT, LARGE_NOISE * 40])
def test_cut_or_extended_or_missing_file_is_found(placer: PayloadPlacer, payload: bytes) -> None:
    """A payload file that is cut, empty, gone or has bytes behind it is corruption."""
    placed = _place(placer, payload)
    [(file, _)] = placer.files()
    whole = file.read_bytes()
    for content in (whole[:-1], b"", whole + b"\0", whole + whole):
        file.write_bytes(content)
        _refused(placer, placed.hash or "", len(payload), placed.placement, placed.stored, CorruptionError)
    file.write_bytes(whole)
    assert _load(placer, placed) == payload
    file.unlink()
    message = _refused(placer, placed.hash or "", len(payload), placed.placement, placed.stored, CorruptionError)
    assert "no such file" in message


def _fifo(file: Path, content: bytes) -> None:
    os.mkfifo(file)


def _link_to_the_same(file: Path, content: bytes) -> None:
    file.with_name("same").write_bytes(content)
    file.symlink_to("same")


def _folder(file: Path, content: bytes) -> None:
    file.mkdir()


def _endless(file: Path, content: bytes) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("payload", [LARGE_NOISE, LARGE_TEXT])
@pytest.mark.parametrize("make", [_fifo, _link_to_the_same, _folder, _endless], ids=lambda f: f.__name__)
def test_only_a_regular_file_is_read(
    placer: PayloadPlacer, payload: bytes, make: Callable[[Path, bytes], None]
) -> None:
    """A FIFO, a symbolic link, a folder and a device in the place of a payload file are refused at once."""
    placed = _place(placer, payload)
    [(file, _)] = placer.files()
    content = file.read_bytes()
    file.unlink()
    make(file, content)
    message = _refused(placer, placed.hash or "", len(payload), placed.placement, placed.stored, CorruptionError)
    assert message.endswith("not a regular file")


def test_file_that_cannot_be_opened_now_is_not_damage(placer: PayloadPlacer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a process has too many files open says nothing of the payload."""
    placed = _place(placer, LARGE_NOISE)

    def fail(*arguments: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(StoreError, match="too many open files") as caught:
        _load(placer, placed)
    assert not isinstance(caught.value, CorruptionError)


_FRAME = zstandard.ZstdCompressor().compress(TEXT)


@pytest.mark.parametrize(
    ("placement", "stored"),
    [
        (Placement.INLINE, None),
        (Placement.INLINE, b"other"),
        (Placement.INLINE, TEXT[:-1]),
        (Placement.INLINE, TEXT + b"x"),
        (Placement.INLINE, TEXT[:-1] + b"x"),
        (Placement.INLINE_ZSTD, None),
        (Placement.INLINE_ZSTD, b""),
        (Placement.INLINE_ZSTD, b"no frame"),
        (Placement.INLINE_ZSTD, _FRAME[:-1]),
        (Placement.INLINE_ZSTD, _FRAME + b"x"),
        (Placement.INLINE_ZSTD, _FRAME + _FRAME),
        (Placement.INLINE_ZSTD, zstandard.ZstdCompressor().compress(TEXT + b"x")),
        (Placement.INLINE_ZSTD, zstandard.ZstdCompressor().compress(b"x" * len(TEXT))),
        (Placement.NONE, None),
        (Placement.NONE, TEXT),
        (Placement.FILE, None),
        (Placement.FILE, sri_bytes(HASH)),
        (Placement.FILE, sri_bytes(payload_hash(b"other"))),
        (Placement.FILE_ZSTD, None),
        (Placement.FILE_ZSTD, sri_bytes(HASH)),
        (Placement.FILE_ZSTD, sri_bytes(HASH) + b"x"),
        (Placement.FILE_ZSTD, TEXT),
        (99, TEXT),
        (-1, TEXT),
    ],
)
def test_wrong_placement_or_bytes_are_corruption(placer: PayloadPlacer, placement: int, stored: bytes | None) -> None:
    """Whatever is wrong with what stands beside the event, loading raises one kind of error."""
    _refused(placer, HASH, len(TEXT), placement, stored, CorruptionError)


def test_file_of_another_payload_is_corruption(placer: PayloadPlacer) -> None:
    """What stands beside the event names its own payload: a file of another one is not even opened."""
    placed = _place(placer, LARGE_NOISE)
    other = _place(placer, LARGE_TEXT[:FILE_BYTES_MIN])
    message = _refused(placer, placed.hash or "", FILE_BYTES_MIN, Placement.FILE, other.stored, CorruptionError)
    assert message.endswith("what is stored is not the hash that the event says")


def test_file_is_not_looked_for_in_memory() -> None:
    """An event of a store in memory that says it is in a file is damaged."""
    message = _refused(PayloadPlacer(None), HASH, len(TEXT), Placement.FILE, sri_bytes(HASH), CorruptionError)
    assert message.endswith("a store in memory has no payload folder")


@pytest.mark.parametrize("size", [-1, 0, len(TEXT) - 1, len(TEXT) + 1, 12 * 10**9, 2**63])
@pytest.mark.parametrize(("placement", "stored"), [(Placement.INLINE, TEXT), (Placement.INLINE_ZSTD, _FRAME)])
def test_wrong_size_is_corruption(placer: PayloadPlacer, placement: int, stored: bytes, size: int) -> None:
    """The size that the event says is checked, and one that no payload has takes no memory."""
    _refused(placer, HASH, size, placement, stored, CorruptionError)


@pytest.mark.parametrize("stored", ["text", 5, 1.5])
@pytest.mark.parametrize("placement", [Placement.INLINE, Placement.INLINE_ZSTD, Placement.FILE])
def test_column_that_holds_no_bytes_is_corruption(placer: PayloadPlacer, placement: int, stored: object) -> None:
    """SQLite columns can hold text and numbers where bytes should be: that is corruption too."""
    _refused(placer, HASH, len(TEXT), placement, stored, CorruptionError)  # type: ignore[arg-type]


@pytest.mark.parametrize("hash_", ["", "x", "sha256-zz", "sha256-" + "A" * 43, "sha512-" + "A" * 43 + "=", "ä"])
def test_hash_that_is_none_is_corruption(placer: PayloadPlacer, hash_: str) -> None:
    """An event whose hash is malformed has no readable payload, wherever it should be."""
    for placement in (Placement.INLINE, Placement.FILE):
        _refused(placer, hash_, len(TEXT), placement, TEXT, CorruptionError)


@pytest.mark.parametrize("stored", [None, TEXT])
def test_erased_payload_is_said_to_be_erased(placer: PayloadPlacer, stored: bytes | None) -> None:
    """Asking for an erased payload is no damage, and tells of which event it was."""
    _refused(placer, HASH, len(TEXT), Placement.ERASED, stored, ErasedError)
    with pytest.raises(ErasedError) as caught:
        placer.load(HASH, len(TEXT), Placement.ERASED, stored, event_id="the event", global_position=1)
    assert caught.value.event_id == "the event"


@pytest.mark.parametrize("size", [CONTENT_BYTES_MAX - 1, CONTENT_BYTES_MAX, CONTENT_BYTES_MAX + 1])
def test_verification_gives_no_large_payload(placer: PayloadPlacer, size: int) -> None:
    """A payload up to the limit is given when it is checked; a larger one is checked and not given."""
    placed = _place(placer, bytes(size))
    place = (placed.hash or "", size, placed.placement, placed.stored)
    assert (placer.check_payload(*place, event_id="e", global_position=1) is None) == (size > CONTENT_BYTES_MAX)
    [(file, _)] = placer.files()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptionError):
        placer.check_payload(*place, event_id="e", global_position=1)


def test_changed_byte_of_a_large_payload_is_found(placer: PayloadPlacer) -> None:
    """A payload that is too large to be given is hashed to its end."""
    size = CONTENT_BYTES_MAX + 1
    hash_ = payload_hash(bytes(size))
    place = (hash_, size, Placement.FILE, sri_bytes(hash_))
    _put(placer, hash_, b"", size=size)
    assert placer.check_payload(*place, event_id="e", global_position=1) is None
    _put(placer, hash_, bytes(size - 1) + b"x")
    _refused(placer, *place, CorruptionError)


SEAL = Seal.new(DataKey.of(bytes(32)))


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("payload", [b"", TEXT, NOISE, TEXT * 1000, NOISE * 1000])
def test_sealed_payload_comes_back_or_does_not_open(placer: PayloadPlacer, payload: bytes, *, in_pieces: bool) -> None:
    """Whatever its size. Of what was changed it is said that it does not open, and not what follows of that."""
    placed = placer.place([payload[:1000], memoryview(payload)[1000:]] if in_pieces else payload, SEAL)
    assert placed.stored is not None
    assert (placed.content_hash, placed.content_size) == (payload_hash(payload), len(payload))
    assert len(placed.stored) <= len(payload) + 17
    told = (SEAL.secret, payload_hash(payload), len(payload))
    assert b"".join(placer.unsealed(placed.stored, *told, event_id="e", global_position=1)) == payload
    for place in (0, 1, len(placed.stored) // 2, len(placed.stored) - 1):
        changed = bytearray(placed.stored)
        changed[place] ^= 1
        with pytest.raises(CorruptionError, match="does not open with its key"):
            list(placer.unsealed(bytes(changed), *told, event_id="e", global_position=1))
    again = placer.seal(placed, other := Seal.new(DataKey.of(bytes(31) + b"x")))
    assert again.stored is not None
    told = (other.secret, *told[1:])
    assert b"".join(placer.unsealed(again.stored, *told, event_id="e", global_position=1)) == payload


# Memory is measured in a process of its own, which prints by how many KiB its peak grew.

_MEASURE = """
import sys
from pathlib import Path
from turnlog.digest import sri
from turnlog.errors import CorruptionError
from turnlog.store.payloads import PayloadPlacer

def peak():
    # Not `getrusage`, which counts what the process had before it became this program.
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1])

method, hash_, size, placement = sys.argv[2], bytes.fromhex(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
read = getattr(PayloadPlacer(Path(sys.argv[1])), method)
before = peak()
try:
    read(sri(hash_), size, placement, hash_, event_id="e", global_position=1)
    outcome = "sound"
except CorruptionError as error:
    outcome = str(error)
print(peak() - before, outcome)
"""


def _measure(placer: PayloadPlacer, method: str, hash_: str, size: int, placement: Placement) -> tuple[float, str]:
    """Read a payload, and return the MiB that it took and what was found."""
    arguments = [str(placer.folder), method, sri_bytes(hash_).hex(), str(size), str(int(placement))]
    found = subprocess.run([sys.executable, "-c", _MEASURE, *arguments], capture_output=True, text=True, check=True)
    kib, outcome = found.stdout.split(" ", 1)
    return int(kib) / 1024, outcome.strip()


def _put(placer: PayloadPlacer, hash_: str, content: bytes, *, size: int | None = None, suffix: str = "") -> None:
    """Put a file where the payload of a hash belongs, filled up with zeros that take no space."""
    assert placer.folder is not None
    name = sri_bytes(hash_).hex()
    file = placer.folder / name[:2] / (name[2:] + suffix)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    if size is not None:
        os.truncate(file, size)


@pytest.mark.parametrize("placement", [Placement.FILE, Placement.FILE_ZSTD])
def test_large_payload_is_verified_in_little_memory(placer: PayloadPlacer, placement: Placement) -> None:
    """A file of 200 MiB, as it is or compressed, takes less than 24 MiB to check."""
    zeros = bytes(200 * MIB)
    hash_ = payload_hash(zeros)
    if placement == Placement.FILE:
        _put(placer, hash_, b"", size=len(zeros))
    else:
        _put(placer, hash_, zstandard.ZstdCompressor().compress(zeros), suffix=".zst")
    mib, outcome = _measure(placer, "check_payload", hash_, len(zeros), placement)
    assert outcome == "sound"
    assert mib < 24


@pytest.mark.parametrize("placement", [Placement.FILE, Placement.FILE_ZSTD])
def test_large_payload_is_loaded_once(placer: PayloadPlacer, placement: Placement) -> None:
    """Loading a file of 200 MiB takes that much memory, and not twice that."""
    zeros = bytes(200 * MIB)
    hash_ = payload_hash(zeros)
    if placement == Placement.FILE:
        _put(placer, hash_, b"", size=len(zeros))
    else:
        _put(placer, hash_, zstandard.ZstdCompressor().compress(zeros), suffix=".zst")
    mib, outcome = _measure(placer, "load", hash_, len(zeros), placement)
    assert outcome == "sound"
    assert mib < 260


_BLOCK = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
"""A block that holds one byte 131,072 times (RFC 8878 §3.1.1.2)."""


def _bomb(blocks: int, size: int) -> bytes:
    """Make a Zstandard frame that says it holds `size` bytes, and holds 128 KiB for each block."""
    return b"\x28\xb5\x2f\xfd\xc0\x38" + size.to_bytes(8, "little") + _BLOCK * blocks


@pytest.mark.parametrize("method", ["load", "check_payload"])
@pytest.mark.parametrize(
    ("size", "frame", "message"),
    [
        pytest.param(12 * 10**9, _bomb(10, 12 * 10**9), "none has more than", id="both claim 12 GB"),
        pytest.param(10 * MIB, _bomb(100_000, 12 * 10**9), "not of the size that", id="frame claims 12 GB"),
        pytest.param(PAYLOAD_BYTES_MAX, _bomb(10, PAYLOAD_BYTES_MAX), "is cut", id="both claim 1 GiB"),
        pytest.param(10 * MIB, _bomb(100_000, 10 * MIB), "holds more than it says", id="holds 12 GB"),
        pytest.param(
            10 * MIB,
            zstandard.ZstdCompressor().compress(bytes(10 * MIB)) * 1000,
            "bytes behind the Zstandard frame",
            id="1,000 frames",
        ),
    ],
)
def test_bomb_takes_no_memory(placer: PayloadPlacer, size: int, frame: bytes, message: str, method: str) -> None:
    """A file that claims or holds gigabytes is refused, and takes no more than the event's size and a few MiB."""
    _put(placer, HASH, frame, suffix=".zst")
    mib, outcome = _measure(placer, method, HASH, size, Placement.FILE_ZSTD)
    assert re.search(message, outcome)
    assert mib < 40


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("placement", "suffix"), [(Placement.FILE, ""), (Placement.FILE_ZSTD, ".zst")])
def test_endless_file_is_refused_at_once(placer: PayloadPlacer, placement: Placement, suffix: str) -> None:
    """A file of 8 TiB of zeros is refused by its length, and not read through."""
    frame = _bomb(0, 10 * MIB) if suffix else b""
    _put(placer, HASH, frame, size=8 * 1024 * 1024 * MIB, suffix=suffix)
    for claimed in (10 * MIB, 8 * 1024 * 1024 * MIB):
        _refused(placer, HASH, claimed, placement, sri_bytes(HASH), CorruptionError)
