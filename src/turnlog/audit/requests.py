"""Requests of model calls: put together again from what each call keeps, and compared with their hashes.

What a request has in common with the one it is based on is kept once. So that a long conversation is not put together
anew for each of its calls, the latest are kept: in memory, and those that nothing was built on yet in a temporary file.
That is encrypted under a key in memory: a request may be sealed in the log, and temporary files are elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

import msgspec
import zstandard
from msgspec import Struct

from turnlog.audit.bodies import Body, put_together
from turnlog.audit.known import Known, Recent
from turnlog.audit.report import Findings
from turnlog.audit.threads import Threads
from turnlog.digest import payload_hash, sri
from turnlog.errors import ContentError, CorruptionError, ErasedError
from turnlog.events import BASE, Recorded
from turnlog.model import CallMeta, LossEntry, decode_change
from turnlog.model.json_text import UNREADABLE
from turnlog.record.calls import call_meta, read_kept
from turnlog.record.requests import FORMAT, PARTS_BYTES_MAX, REQUEST_BYTES_MAX, parts_flaw
from turnlog.store import ReadTransaction

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Requests that are kept in memory."""

FILE_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""Requests that are kept in the temporary file, compressed."""

CHAIN_MAX = 8
"""A request that is built on so many others, one on the other, is not read again with all of them."""

_ENTRY_BYTES = 2000
"""About what it takes to keep a request, beside its bytes."""


_Place = tuple[int, int, bytes]
"""Where in the temporary file a request begins, how many bytes it has there, and the nonce it is encrypted with."""


class _Parts(Struct, frozen=True, kw_only=True):
    format: int
    parts: list[tuple[int, int] | int]


_parts = msgspec.json.Decoder(_Parts)
_loss = msgspec.json.Decoder(LossEntry)


class Requests:
    """Checks the requests of calls. Use it as a context manager: it may have a temporary file."""

    def __init__(self, known: Known, threads: Threads, findings: Findings) -> None:
        """Take what is known of the log so far."""
        self._known = known
        self._threads = threads
        self._findings = findings
        self._kept = _Kept()

    def __enter__(self) -> Self:
        """Return the checks themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the temporary file."""
        self._kept.close()

    def check(self, transaction: ReadTransaction, call: Recorded, payload: bytes | None, *, cites: bool) -> None:
        """Check the base, the request and the loss report of a call.

        Args:
            transaction: a snapshot with the call and all that is before it.
            call: the call, which is not erased.
            payload: its payload; None where it is too large to be looked into with others.
            cites: whether all that it cites is what it says. Nothing is followed where it is not.
        """
        if not cites:
            return
        meta = call_meta(call)
        base = call.header.cited(BASE)
        if base is not None and not self._threads.share(transaction, call.header.cited("turn"), base):
            self._findings.add(f"its base {base!r} is not a call of its thread")
        size = meta.kept_bytes
        if not 0 <= size <= REQUEST_BYTES_MAX:
            self._findings.add(f"its request has {size:,} bytes, and none has more than {REQUEST_BYTES_MAX:,}")
            return
        if payload is None:
            payload = transaction.payload(call)
        try:
            kept = _body(payload or b"", size, lambda: self._base(transaction, base))
        except _ErasedBaseError:
            return
        except CorruptionError as error:
            self._findings.add(f"its request cannot be put together: {error}")
            return
        self._compare(meta, kept)
        self._kept.put(call.header.id, kept, base)

    def _compare(self, meta: CallMeta, kept: Body) -> None:
        if sri(kept.digest(meta.request.size)) != meta.request.hash:
            self._findings.add("its request does not have the hash that was recorded")
            return
        at = meta.request.size
        behind = ((meta.loss, "loss report", _loss.decode_lines), (meta.window, "window", decode_change))
        for ref, what, decode in behind:
            if ref is None:
                continue
            part = kept.content(at, at + ref.size)
            at += ref.size
            if payload_hash(part) != ref.hash:
                self._findings.add(f"its {what} does not have the hash that was recorded")
                return
            try:
                decode(part)
            except (*UNREADABLE, ContentError) as error:
                self._findings.add(f"its {what} cannot be read: {error}")
                return
        self._findings.requests += 1

    def _base(self, transaction: ReadTransaction, base: str | None) -> Body:
        """Return what is kept of the call that a request is based on.

        Raises:
            CorruptionError: it cannot be put together.
        """
        if base is None:
            raise CorruptionError("it has parts of an earlier one, and its call does not say of which")
        kept = self._kept.get(base)
        if kept is not None:
            return kept
        recorded = transaction.event(base)
        if recorded is None:
            raise CorruptionError(f"its base {base!r} cannot be found")
        if recorded.unreadable:
            raise _ErasedBaseError("its base was erased")
        size = call_meta(recorded).kept_bytes
        if not 0 <= size <= REQUEST_BYTES_MAX:
            raise CorruptionError(f"its base {base!r} has {size:,} bytes")
        try:
            kept = Body(read_kept(transaction, recorded))
        except ErasedError as error:
            raise _ErasedBaseError("what its base is based on was erased") from error
        self._kept.put(base, kept, None)
        return kept


class _ErasedBaseError(CorruptionError):
    """Say that a request cannot be checked any more, because one that it is based on was erased."""


def _body(payload: bytes, size: int, base: Callable[[], Body]) -> Body:
    """Return what a payload stands for.

    Raises:
        CorruptionError: it is not a payload of a request, or not of one of this size, or has bytes that belong to
            nothing.
    """
    end = payload.find(b"\n", 0, PARTS_BYTES_MAX + 1)
    if end < 0:
        raise CorruptionError("its payload does not say what it is made of")
    try:
        header = _parts.decode(payload[:end])
    except UNREADABLE as error:
        raise CorruptionError(f"what it is made of cannot be read: {error}") from error
    if header.format != FORMAT:
        raise CorruptionError(f"it is kept in format {header.format}, this turnlog knows {FORMAT}")
    if (wrong := parts_flaw(header.parts, size)) is not None:
        raise CorruptionError(wrong)
    copies = any(not isinstance(part, int) for part in header.parts)
    return put_together(header.parts, memoryview(payload)[end + 1 :], base() if copies else Body())


class _Kept:
    """The latest requests, by call: in memory, and in a file those that it takes long to read again."""

    def __init__(self) -> None:
        self._memory: OrderedDict[str, tuple[Body, int]] = OrderedDict()
        """With how many others each is built on."""
        self._bytes = 0
        self._built_on = Recent[bool]()
        self._file: BinaryIO | None = None
        self._file_end = 0
        self._places = Recent[_Place]()
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()
        self._cipher: AESGCM | None = None
        self._nonces = count()

    def get(self, call: str) -> Body | None:
        kept = self._memory.get(call)
        if kept is not None:
            self._memory.move_to_end(call)
            return kept[0]
        place = self._places.get(call)
        if place is None or self._file is None or self._cipher is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as below

        start, size, nonce = place
        # What is wrong with a temporary file says nothing of the log: it is read there again.
        with suppress(OSError, InvalidTag):
            frame = self._cipher.decrypt(nonce, os.pread(self._file.fileno(), size, start), None)
            return Body(self._decompressor.decompress(frame, max_output_size=REQUEST_BYTES_MAX))
        return None

    def put(self, call: str, kept: Body, base: str | None) -> None:
        """Keep a request, and let go of others for it."""
        chain = 1
        if base is not None:
            self._built_on.put(base, True)
            chain += self._memory[base][1] if base in self._memory else CHAIN_MAX
        if call not in self._memory:
            self._bytes += kept.size + _ENTRY_BYTES
        self._memory[call] = kept, chain
        while self._bytes > KEPT_BYTES_MAX and len(self._memory) > 1:
            oldest, (dropped, dropped_chain) = self._memory.popitem(last=False)
            self._bytes -= dropped.size + _ENTRY_BYTES
            if dropped_chain > CHAIN_MAX and not self._built_on.get(oldest):
                # Where there is no space for it, it is read again.
                with suppress(OSError):
                    self._write(oldest, dropped.content(0, dropped.size))

    def _write(self, call: str, kept: bytes) -> None:
        if self._file is None:
            # Without a buffer, which would keep what there was no space for.
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is closed with the requests
        if self._file_end > FILE_BYTES_MAX:
            self._file.truncate(0)
            self._file_end, self._places = 0, Recent[_Place]()
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - few logs have so much

            self._cipher = AESGCM(AESGCM.generate_key(256))
        nonce = next(self._nonces).to_bytes(12)
        sealed = self._cipher.encrypt(nonce, self._compressor.compress(kept), None)
        if os.pwrite(self._file.fileno(), sealed, self._file_end) == len(sealed):
            self._places.put(call, (self._file_end, len(sealed), nonce))
            self._file_end += len(sealed)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
