"""Payload placement: small payloads beside their event, large ones as files that are shared by hash.

The policy is invisible to readers: `Placement` of each event says how to read it, so the policy can change at any time.
What is read is never believed: a payload has the size and the hash that its event says, or it is damaged.
"""

from __future__ import annotations

import io
import re
from binascii import b2a_base64
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard
from msgspec import Struct

from turnlog.digest import PREFIX, pieces_digest, sri, sri_bytes
from turnlog.errors import (
    CorruptionError,
    ErasedError,
    InputError,
    StoreError,
    os_reason,
)
from turnlog.events import Event, Seal
from turnlog.events.sealing import TAG_BYTES, OpenedPayload, sealed_pieces
from turnlog.model.pieces import byte_pieces, joined
from turnlog.store import frames, incoming, sealed_payloads
from turnlog.store.files import NOT_DAMAGE, OWN, Access, file_error, looking, open_file
from turnlog.store.incoming import Incoming
from turnlog.store.objects import Objects
from turnlog.store.values import NO_PAYLOAD, NewPayload, Payload, Placement

FILE_BYTES_MIN = 64 * 1024
"""Payloads of at least this size are kept as files. Below it SQLite is faster than the file system."""

ZSTD_BYTES_MIN = 128
"""Payloads below this size are not worth a Zstandard frame."""

PAYLOAD_BYTES_MAX = 1024 * 1024 * 1024
"""The largest payload that is recorded and read: 1 GiB, this many bytes included."""

_STORED_BYTES_MAX = PAYLOAD_BYTES_MAX + 1 + TAG_BYTES
"""The largest payload as it is kept: sealed it has a byte and a tag more."""

CONTENT_BYTES_MAX = 64 * 1024 * 1024
"""The largest payload that verification keeps in memory, to look at what is in it."""

INLINE_FORM = {Placement.FILE: Placement.INLINE, Placement.FILE_ZSTD: Placement.INLINE_ZSTD}
"""The placement of the same bytes beside their event, for each one that is a file."""

FILES = tuple(INLINE_FORM)
"""The placements of payloads that are kept as files."""

_PIECE_BYTES = 1024 * 1024
_FOLDER_NAME = re.compile(r"[0-9a-f]{2}")
_FILE_NAME = re.compile(r"[0-9a-f]{62}(\.zst)?")

_UNREADABLE = (OSError, ValueError, zstandard.ZstdError)
"""What is raised where something is wrong with a payload."""


class Condemned(Struct, frozen=True, kw_only=True):
    """A payload file that no event needs once the transaction at hand is committed.

    Attributes:
        hash: the payload's, 32 bytes.
        placement: the form that the file has.
        mark: a name in `.incoming`, by which the file is found if this process dies before it is removed.
    """

    hash: bytes
    placement: Placement
    mark: Path


def refuse_too_large(size: int) -> None:
    """Refuse a payload that is larger than `PAYLOAD_BYTES_MAX`.

    Raises:
        InputError: it is.
    """
    if size > PAYLOAD_BYTES_MAX:
        raise InputError(f"a payload of {size:,} bytes is more than the limit of {PAYLOAD_BYTES_MAX:,}")


class PayloadPlacer:
    """Places payloads on their way in, and loads them on their way out. Safe to use from many threads.

    `place` writes a large payload to disk, under a name of its own. `publish` gives it its last name, inside the write
    transaction; `release` takes the other name away, once that is committed. A payload that is not published goes with
    its `NewPayload`; one that was published and not released is left for `collect`, in whatever process that runs.
    """

    def __init__(self, folder: Path | None, *, access: Access = OWN, objects: Objects | None = None) -> None:
        """Keep large payloads in `folder`, made when first needed; None keeps all payloads beside their events.

        Args:
            folder: the payload folder.
            access: who may use payload files, whatever the umask. Who may read these may enter their folders.
            objects: where large payloads are objects. These are written when they are placed, and once more if they are
                gone when they are published; there is nothing to release or to collect.
        """
        self.folder = folder
        self.objects = objects
        self.elsewhere = ""
        """Where there are such objects that cannot be reached, for messages."""
        self._incoming = Incoming(folder, access=access) if folder is not None else None

    # In

    def place(self, payload: Payload | None, seal: Seal | None = None, *, is_written: bool = True) -> NewPayload:
        """Hash and compress a payload, and write it to disk where it becomes a file. On return it is durable there.

        Pieces are not put together, unless there are few bytes of them or they do not compress. With a seal it is
        sealed first, so that nothing else is ever on disk. What may still be sealed is not to be written: a file is
        then when it is published, whatever it was made of by then.

        Raises:
            InputError: it is larger than `PAYLOAD_BYTES_MAX`.
            StoreFullError, StoreReadOnlyError, StoreError: the file cannot be written.
        """
        if payload is None:
            return NO_PAYLOAD if seal is None else msgspec.structs.replace(NO_PAYLOAD, seal=seal)
        size = payload_size(payload)
        refuse_too_large(size)
        if not isinstance(payload, bytes) and size <= frames.ONE_STEP_BYTES_MAX:
            payload = b"".join(payload)
        if seal is not None and size > frames.ONE_STEP_BYTES_MAX:
            pieces = [*byte_pieces(payload)] if isinstance(payload, bytes) else payload
            content = sealed_payloads.compressed(pieces, size)
            return self._sealed(sri(pieces_digest(pieces)), size, content, seal, is_written=is_written)
        if isinstance(payload, bytes):
            stored = frames.compress(payload) if size >= ZSTD_BYTES_MIN else payload
            digest = sha256(payload).digest()
        else:
            stored = frames.compress_pieces(payload, size)
            digest = pieces_digest(payload)
        as_is = len(stored) >= size
        if as_is:
            stored = payload if isinstance(payload, bytes) else b"".join(payload)
        if seal is not None:
            content = sealed_payloads.kept(stored, is_frame=not as_is)
            return self._sealed(sri(digest), size, content, seal, is_written=is_written)
        return self._placed(digest, size, stored, as_is=as_is, is_written=is_written)

    def seal(self, placed: NewPayload, seal: Seal) -> NewPayload:
        """Return what was placed sealed with a seal; also what was sealed with another one. A file is not written.

        Raises:
            As `place` does.
        """
        if placed.content_hash is None or placed.content_size is None or placed.stored is None:
            return msgspec.structs.replace(placed, seal=seal)
        if placed.seal is not None:
            content = OpenedPayload(placed.seal.secret, placed.stored).pieces()
        else:
            is_frame = placed.placement in (Placement.INLINE_ZSTD, Placement.FILE_ZSTD)
            content = sealed_payloads.kept(placed.stored, is_frame=is_frame)
        return self._sealed(placed.content_hash, placed.content_size, content, seal, is_written=False)

    def _sealed(
        self, hash_: str, size: int, content: Iterable[bytes | memoryview], seal: Seal, *, is_written: bool
    ) -> NewPayload:
        """Place a payload sealed, of which the content is as it is kept."""
        sealed = joined(sealed_pieces(seal.secret, content))
        placed = self._placed(sha256(sealed).digest(), len(sealed), sealed, as_is=True, is_written=is_written)
        return msgspec.structs.replace(placed, seal=msgspec.structs.replace(seal, hash=hash_, size=size))

    def _placed(self, digest: bytes, size: int, stored: bytes, *, as_is: bool, is_written: bool) -> NewPayload:
        placement = Placement.INLINE if as_is else Placement.INLINE_ZSTD
        file = None
        if self.objects is not None and size >= FILE_BYTES_MIN:
            placement = Placement.FILE if as_is else Placement.FILE_ZSTD
            if is_written:
                self.objects.put(_file_name(digest, placement), stored)
        elif self._incoming is not None and size >= FILE_BYTES_MIN:
            placement = Placement.FILE if as_is else Placement.FILE_ZSTD
            with self._writing():
                file = self._incoming.place(_file_name(digest, placement), stored, is_written=is_written)
        return NewPayload(hash=sri(digest), size=size, placement=placement, stored=stored, file=file)

    def publish(self, placed: NewPayload) -> None:
        """Give a payload that is kept as a file its last name, durably; see that an object is there. Else do nothing.

        Call it inside the write transaction, before it is committed. Twice is allowed.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: that cannot be done.
        """
        if placed.file is not None and self._incoming is not None:
            with self._writing():
                self._incoming.publish(placed.file)
        elif self.objects is not None and placed.placement in FILES and placed.hash and placed.stored is not None:
            self.objects.ensure(_file_name(sri_bytes(placed.hash), placed.placement), placed.stored)

    def release(self, placed: NewPayload) -> None:
        """Take away the name that a payload had before it was published. Twice is allowed.

        Call it once the payload is recorded, or when it was never published. After a commit that failed it must not be
        called: another process may have recorded the same payload since, and only `collect` can tell.
        """
        if placed.file is not None:
            placed.file.discard()

    def condemn(self, payload_hash: bytes, placement: Placement) -> Condemned:
        """Mark a payload file to be removed. Call it inside the write transaction, before it is committed.

        If this process dies, `collect` removes the file if no event needs it: none does once that is committed.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: the mark cannot be made.
        """
        assert self._incoming is not None
        with self._writing():
            mark = self._incoming.mark(_file_name(payload_hash, placement))
        return Condemned(hash=payload_hash, placement=placement, mark=mark)

    def remove(self, condemned: Condemned) -> None:
        """Remove a condemned file. Hold the write lock, and ask before whether an event needs it by now.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: it cannot be removed.
        """
        assert self._incoming is not None
        with self._writing():
            self._incoming.remove(condemned.mark, _file_name(condemned.hash, condemned.placement))

    def spare(self, condemned: Condemned) -> None:
        """Leave a condemned file as it is."""
        with suppress(OSError):
            condemned.mark.unlink()

    def close(self) -> None:
        """Remove what was placed and not published, and tell other processes that this one is through. Idempotent."""
        if self._incoming is not None:
            self._incoming.close()

    # Out

    def load(
        self,
        hash_: str,
        size: int,
        placement: int,
        stored: bytes | None,
        *,
        event_id: str,
        global_position: int | None,
    ) -> bytes:
        """Return a payload, checked against its hash and size.

        Args:
            hash_: the payload's hash, as its event says.
            size: its bytes, as its event says.
            placement: where and how it is kept.
            stored: what stands beside the event: the payload in the form that `placement` says, or for a file the 32
                bytes of its hash.
            event_id: the event, for messages.
            global_position: its place in the log, for messages; None while it has none.

        Takes no more memory than the payload does, and a few MiB; what an event or a frame claims takes none.

        Raises:
            ErasedError: the payload was erased.
            CorruptionError: the payload is missing, or anything about it is not as the event says.
            StoreDeniedError, StoreBusyError: its file cannot be opened by this user, or now.
            StorageError: its object cannot be had.
            StoreError: it is an object, and this placer knows no objects.
        """
        try:
            # Nearly all payloads are small and beside their event, and windows are made of thousands of them.
            if placement == Placement.INLINE and type(stored) is bytes and len(stored) == size:
                payload = stored
            elif placement == Placement.INLINE_ZSTD and type(stored) is bytes and size <= frames.ONE_STEP_BYTES_MAX:
                payload = frames.decompress(stored, size)
            else:
                pieces = self.pieces(hash_, size, placement, stored, event_id=event_id, global_position=global_position)
                return joined(pieces)  # checked as it came
            _check_hash(sha256(payload).digest(), hash_)
        except _UNREADABLE as error:
            raise _unreadable(error, event_id, global_position) from error
        return payload

    @staticmethod
    def load_page(events: Sequence[Event], rows: Sequence[tuple[Any, ...]]) -> list[bytes | None]:
        """Return the payloads of many events, checked as `load` does one by one, at half of its cost.

        Args:
            events: the events.
            rows: of each a row, in which the sixth and seventh column tell where and how its payload is kept.

        Returns:
            None for what is not as nearly all payloads are: large, sealed, erased, none, or damaged. It is to be loaded
            by itself.
        """
        # What the loop needs is at hand: a window of ten thousand turns has as many rows.
        decompress, size_of, base64 = frames.one_step().decompress, zstandard.frame_content_size, b2a_base64
        inline, inline_zstd, descriptors = int(Placement.INLINE), int(Placement.INLINE_ZSTD), frames.PLAIN_DESCRIPTORS
        page = list[bytes | None]()
        for event, row in zip(events, rows, strict=True):
            private, placement, stored, payload = event.private, row[5], row[6], None
            if private is None or event.sealed is not None or type(stored) is not bytes:
                page.append(None)
                continue
            size = private.size
            try:
                if placement == inline_zstd:
                    if (
                        size is not None
                        and size_of(stored) == size
                        and stored[4:5] in descriptors
                        and len(stored) < size <= frames.ONE_STEP_BYTES_MAX
                    ):
                        payload = decompress(stored, allow_extra_data=False)
                elif placement == inline and len(stored) == size:
                    payload = stored
            except _UNREADABLE:
                payload = None
            if payload is not None:
                digest = base64(sha256(payload).digest(), newline=False)
                payload = payload if PREFIX + digest.decode() == private.hash else None
            page.append(payload)
        return page

    @staticmethod
    def unsealed(
        sealed: bytes, secret: bytes, hash_: str, size: int, *, event_id: str, global_position: int | None
    ) -> Iterator[bytes]:
        """Iterate over the payload that is sealed in what `load` returned, in pieces of at most 1 MiB.

        Its hash and its size are compared once the last one was taken.

        Args:
            sealed: the sealed payload.
            secret: the event secret.
            hash_: the payload's hash, as the opened private part says.
            size: its bytes, as the opened private part says.
            event_id: the event, for messages.
            global_position: its place in the log, for messages.

        Raises:
            CorruptionError: it does not open, or is not what the event says.
        """
        try:
            hasher, given = sha256(), 0
            for piece in sealed_payloads.opened(OpenedPayload(secret, sealed), size, PAYLOAD_BYTES_MAX):
                hasher.update(piece)
                given += len(piece)
                yield piece
            if given != size:
                raise ValueError(f"{given} bytes are sealed, and the event says {size}")
            _check_hash(hasher.digest(), hash_)
        except _UNREADABLE as error:
            raise _unreadable(error, event_id, global_position) from error

    def check_payload(
        self,
        hash_: str,
        size: int,
        placement: int,
        stored: bytes | None,
        *,
        event_id: str,
        global_position: int | None,
    ) -> bytes | None:
        """Check a payload as `load` does, and return it if it has at most `CONTENT_BYTES_MAX` bytes, else None.

        A larger one is read in pieces and takes a few MiB of memory.

        Raises:
            As `load` does.
        """
        if size <= CONTENT_BYTES_MAX:
            return self.load(hash_, size, placement, stored, event_id=event_id, global_position=global_position)
        for _ in self.pieces(hash_, size, placement, stored, event_id=event_id, global_position=global_position):
            pass
        return None

    def pieces(
        self,
        hash_: str,
        size: int,
        placement: int,
        stored: bytes | None,
        *,
        event_id: str,
        global_position: int | None,
    ) -> Iterator[bytes]:
        """Iterate over a payload in pieces, checked as `load` does it once the last one was taken.

        A piece has at most 1 MiB, unless the payload is kept beside its event as it is: then it is one piece.

        Raises:
            As `load` does.
        """
        try:
            hasher = sha256()
            for piece in self._pieces(hash_, size, placement, stored, event_id):
                hasher.update(piece)
                yield piece
            _check_hash(hasher.digest(), hash_)
        except _UNREADABLE as error:
            raise _unreadable(error, event_id, global_position) from error

    def start(
        self,
        hash_: str,
        size: int,
        placement: int,
        stored: bytes | None,
        *,
        bytes_max: int,
        event_id: str,
        global_position: int | None,
    ) -> bytes:
        """Return the first bytes of a payload, at least `bytes_max` of a longer one, without looking at its hash.

        Raises:
            As `load` does.
        """
        found = bytearray()
        try:
            for piece in self._pieces(hash_, size, placement, stored, event_id):
                found += piece
                if len(found) >= bytes_max:
                    break
        except _UNREADABLE as error:
            raise _unreadable(error, event_id, global_position) from error
        return bytes(found)

    def _pieces(self, hash_: str, size: int, placement: int, stored: bytes | None, event_id: str) -> Iterator[bytes]:
        """Give a payload in pieces, of the right size in all, and of no matter what content."""
        if placement == Placement.ERASED:
            raise ErasedError(f"the payload of event {event_id!r} was erased", event_id=event_id)
        if not 0 <= size <= _STORED_BYTES_MAX:
            raise ValueError(f"the event says that it has {size} bytes, and none has more than {PAYLOAD_BYTES_MAX}")
        if type(stored) is not bytes:
            raise ValueError(f"nothing is stored, and placement is {placement}" if stored is None else "it is no bytes")
        match placement:
            case Placement.INLINE if len(stored) == size:
                return iter((stored,))
            case Placement.INLINE_ZSTD:
                return frames.decompressed(io.BytesIO(stored), len(stored), size)
            case Placement.FILE | Placement.FILE_ZSTD if stored == sri_bytes(hash_):
                return self._file_pieces(_file_name(stored, placement), size, placement)
            case Placement.INLINE:
                raise ValueError(f"{len(stored)} bytes are stored, and the event says {size}")
            case Placement.FILE | Placement.FILE_ZSTD:
                raise ValueError("what is stored is not the hash that the event says")
            case _:
                raise ValueError(f"there is no placement {placement}")

    def _file_pieces(self, name: str, size: int, placement: int) -> Iterator[bytes]:
        with self._opened(name) as (file, there):
            if placement == Placement.FILE_ZSTD:
                yield from frames.decompressed(file, there, size)
                return
            if there != size:
                raise ValueError(f"its file has {there} bytes, and the event says {size}")
            while piece := file.read(_PIECE_BYTES):
                yield piece

    @contextmanager
    def _opened(self, name: str) -> Generator[tuple[BinaryIO, int]]:
        """Give a payload's file or object, and its size in bytes."""
        if self.objects is not None:
            with self.objects.open(name) as (file, there):
                yield file, there
        elif self.folder is not None:
            with open_file(incoming.final_path(self.folder, name)) as file:
                there = file.seek(0, io.SEEK_END)
                file.seek(0)
                yield file, there
        elif self.elsewhere:
            raise StoreError(
                f"large payloads of this log are objects in {self.elsewhere!r}: add payloads={self.elsewhere} to the "
                "store's URL"
            )
        else:
            raise ValueError("a store in memory has no payload folder")

    # All of them

    def collect(self, is_referenced: Callable[[bytes], bool]) -> int:
        """Remove what processes left that died before they committed, and return how many files that were.

        Call it under the write lock. Files of processes that live are not touched.

        Args:
            is_referenced: tells of a payload hash (32 bytes) whether an event keeps its payload in a file.

        Raises:
            StoreFullError, StoreReadOnlyError, StoreError: something cannot be removed.
        """
        if self.folder is None:
            return 0
        with self._writing():
            return incoming.collect(self.folder, is_referenced)

    def needs_collecting(self) -> bool:
        """Tell whether a process that died has left anything to collect. Cheap, and needs no lock.

        Raises:
            StoreDeniedError, StoreBusyError, StoreError: the folder cannot be looked through.
        """
        with looking(self.folder or ""):
            return self.folder is not None and incoming.needs_collecting(self.folder)

    def pending_hashes(self) -> set[bytes]:
        """Return the payload hashes (32 bytes) of all files that are on their way in, or were when their process died.

        A file in `files` that no event needs, and that is in this set, belongs to an append that is not committed.

        Raises:
            StoreDeniedError, StoreBusyError, StoreError: the folder cannot be looked through.
        """
        with looking(self.folder or ""):
            return incoming.pending_hashes(self.folder) if self.folder is not None else set()

    def files(self) -> Iterator[tuple[Path, bytes | None]]:
        """Iterate over the payload folder: each payload file with its hash (32 bytes), and with None all else there.

        What is on its way in, and what dead processes left of that, is not among it: see `collect`. A file that turnlog
        did not put there is, wherever in the folder it is; of a folder only the folder is named.

        Raises:
            StoreDeniedError, StoreBusyError, StoreError: it cannot be looked through.
        """
        with looking(self.folder or ""):
            yield from self._files()

    def _files(self) -> Iterator[tuple[Path, bytes | None]]:
        if self.folder is not None and self.folder.is_symlink():
            yield self.folder, None
        if self.folder is None or not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if path.name == incoming.INCOMING:
                yield from ((stray, None) for stray in incoming.strays(self.folder))
            elif _FOLDER_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                for file in _listed(path):
                    named = _FILE_NAME.fullmatch(file.name)
                    yield file, bytes.fromhex(path.name + file.name.removesuffix(".zst")) if named else None
            else:
                yield path, None

    def stats(self) -> tuple[int, int]:
        """Return the number of payload files, and their bytes."""
        count = size = 0
        for path, hash_ in self.files():
            if hash_ is not None:
                with looking(path), suppress(FileNotFoundError):  # an erasure may take it away meanwhile
                    size += path.lstat().st_size
                    count += 1
        return count, size

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise file_error(error, Path(error.filename or self.folder or "")) from error


def payload_size(payload: Payload) -> int:
    """Return the bytes of a payload, which may be in pieces."""
    return len(payload) if isinstance(payload, bytes) else sum(map(len, payload))


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder of payload files; nothing where an erasure has taken it away with the last of them."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _file_name(digest: bytes, placement: int) -> str:
    return digest.hex() + (".zst" if placement == Placement.FILE_ZSTD else "")


def _check_hash(actual: bytes, expected: str) -> None:
    if sri(actual) != expected:
        raise ValueError("its hash differs from the one that was recorded")


def _unreadable(error: Exception, event_id: str, global_position: int | None) -> StoreError:
    """Return the turnlog error for a payload with which something is wrong, which says of which event it is."""
    subject = f"payload of event {event_id!r} cannot be read"
    if not isinstance(error, OSError):
        return CorruptionError(f"{subject}: {error}", global_position=global_position)
    if (kind := NOT_DAMAGE.get(error.errno or 0)) is not None:
        return kind(f"{subject}: {os_reason(error)}")
    return CorruptionError(f"{subject}: {os_reason(error)}", global_position=global_position)
