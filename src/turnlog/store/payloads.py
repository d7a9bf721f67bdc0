"""Payload placement: small payloads beside their event, large ones as files that are shared by hash.

The policy is invisible to readers: `Placement` of each event says how to read it, so the policy can change at any time.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from types import NoneType

import zstandard

from turnlog.digest import payload_hash, sri_bytes
from turnlog.errors import CorruptionError, StoreError, StoreFullError, StoreReadOnlyError
from turnlog.events import Event
from turnlog.store.interface import NO_PAYLOAD, NewPayload, Placement

FILE_BYTES_MIN = 64 * 1024
"""Payloads of at least this size are kept as files. Below it SQLite is faster than the file system."""

ZSTD_BYTES_MIN = 128
"""Payloads below this size are not worth a Zstandard frame."""

ZSTD_LEVEL = 3

INLINE_FORM = {Placement.FILE: Placement.INLINE, Placement.FILE_ZSTD: Placement.INLINE_ZSTD}
"""The placement of the same bytes beside their event, for each one that is a file."""

FILES = tuple(INLINE_FORM)
"""The placements of payloads that are kept as files."""


class PayloadPlacer:
    """Places payloads on their way in, and loads them on their way out. Safe to use from many threads."""

    def __init__(self, folder: Path | None) -> None:
        """Keep large payloads in `folder`, made when first needed; None keeps all payloads beside their events."""
        self.folder = folder
        self._local = threading.local()

    def place(self, payload: bytes | None) -> NewPayload:
        """Hash and compress a payload, and say where it will be kept. Nothing is written."""
        if payload is None:
            return NO_PAYLOAD
        hash_ = payload_hash(payload)
        frame = self._compress(payload) if len(payload) >= ZSTD_BYTES_MIN else payload
        compressed = len(frame) < len(payload)
        placement = Placement.INLINE_ZSTD if compressed else Placement.INLINE
        if self.folder is not None and len(payload) >= FILE_BYTES_MIN:
            placement = Placement.FILE_ZSTD if compressed else Placement.FILE
        return NewPayload(hash=hash_, size=len(payload), placement=placement, stored=frame if compressed else payload)

    def keep(self, placed: NewPayload) -> None:
        """Write a payload that is kept as a file, durably; do nothing for others.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: the file cannot be written.
        """
        if placed.hash is not None and placed.placement in FILES:
            _write_file(self._path(placed.hash, placed.placement), placed.stored)

    def load(self, event: Event, placement: int, stored: bytes | None, *, global_position: int | None) -> bytes | None:
        """Return the payload of an event, checked against the event's hash; None where there is none."""
        if event.hash is None or event.size is None:
            return None
        if type(stored) not in (bytes, NoneType):
            raise CorruptionError(
                f"payload of event {event.id!r} is not stored as bytes", global_position=global_position
            )
        try:
            match placement:
                case Placement.INLINE if stored is not None:
                    payload = stored
                case Placement.INLINE_ZSTD if stored is not None:
                    payload = self._decompress(stored, event.size)
                case Placement.FILE:
                    payload = self._path(event.hash, placement).read_bytes()
                case Placement.FILE_ZSTD:
                    payload = self._decompress(self._path(event.hash, placement).read_bytes(), event.size)
                case _:
                    raise ValueError(f"no payload is stored, and placement is {placement}")
        except (OSError, ValueError, zstandard.ZstdError) as error:
            reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else error
            raise CorruptionError(
                f"payload of event {event.id!r} cannot be read: {reason}", global_position=global_position
            ) from error
        if payload_hash(payload) != event.hash:
            raise CorruptionError(
                f"payload of event {event.id!r} is not the one that was stored: its hash differs",
                global_position=global_position,
            )
        return payload

    def files(self) -> Iterator[Path]:
        """Iterate over the files of the payload folder that hold payloads."""
        if self.folder is not None and self.folder.is_dir():
            yield from (path for path in self.folder.glob("??/*") if not path.name.startswith("."))

    def _path(self, hash_: str, placement: int) -> Path:
        if self.folder is None:
            raise ValueError("a store in memory has no payload folder")
        name = sri_bytes(hash_).hex()
        return self.folder / name[:2] / (name[2:] + (".zst" if placement == Placement.FILE_ZSTD else ""))

    def _compress(self, payload: bytes) -> bytes:
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        return compressor.compress(payload)

    def _decompress(self, frame: bytes, size: int) -> bytes:
        decompressor: zstandard.ZstdDecompressor | None = getattr(self._local, "decompressor", None)
        if decompressor is None:
            decompressor = self._local.decompressor = zstandard.ZstdDecompressor()
        if zstandard.frame_content_size(frame) != size:
            raise ValueError("the Zstandard frame is not of the size that the event says")
        return decompressor.decompress(frame)


def _write_file(path: Path, content: bytes | None) -> None:
    """Write a file so that it is whole and durable under its name, or not there at all."""
    if content is None:
        return
    try:
        if path.is_file() and path.read_bytes() == content:
            _sync_folder(path.parent)
            return
        _make_folders(path.parent)
        temporary = path.with_name(f".{path.name}.{token_hex(8)}")
        try:
            # Not through tempfile, whose files only their owner can read: the database has the usual mode too.
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise file_error(error, path) from error


def _make_folders(folder: Path) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_error(error: OSError, path: Path) -> StoreError:
    """Return the turnlog error for a failed write of a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFullError(f"no space left for {str(path)!r}: free some and try again; nothing was recorded")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnlyError(f"{str(path.parent)!r} cannot be written: {(error.strerror or '').lower()}")
    return StoreError(f"{str(path)!r} cannot be written: {(error.strerror or str(error)).lower()}")


def file_matches_name(path: Path) -> bool:
    """Tell whether the bytes of a payload file, decompressed if need be, have the hash that the file is named by."""
    try:
        content = path.read_bytes()
        if path.suffix == ".zst":
            content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    except (OSError, zstandard.ZstdError):
        return False
    return sha256(content).hexdigest() == path.parent.name + path.name.removesuffix(".zst")
