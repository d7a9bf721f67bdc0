"""What is in payloads: content blocks, documents, the raw events of replies, tool listings."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import compress
from operator import methodcaller

import msgspec
import zstandard

from turnlog.audit.known import Recent
from turnlog.audit.report import Findings
from turnlog.audit.requests import Requests
from turnlog.audit.rows import Row
from turnlog.digest import sri
from turnlog.errors import CorruptionError
from turnlog.events import CALL, REPLY, TOOLS, TURN, Recorded
from turnlog.model import Text
from turnlog.model.blocks import EXTRA
from turnlog.record.contents import PAYLOADS, is_document, may_be_document, payload_flaw
from turnlog.store import Placement, ReadTransaction
from turnlog.store.frames import decompress

FILES_REMEMBERED = 10_000
"""Payload files that many events share are read once, as long as they are among so many."""

_COMPARED = (CALL, REPLY, TOOLS)
"""Topics whose payloads are compared with what their events say: a file that was found sound for one may not be for
another."""

_BESIDE = frozenset((int(Placement.INLINE), int(Placement.INLINE_ZSTD)))
_INLINE_ZSTD = int(Placement.INLINE_ZSTD)
_PLAIN_BYTES_MAX = 64 * 1024
_HASH_BYTES = 32
_EXTRA = msgspec.json.encode(EXTRA)
_digest = methodcaller("digest")
_FILES = (Placement.FILE, Placement.FILE_ZSTD)
_texts = msgspec.json.Decoder(list[Text])
_encoder = msgspec.json.Encoder()


class Contents:
    """Checks payloads: their bytes against their hashes, and what is in them against their events."""

    def __init__(self, requests: Requests, findings: Findings) -> None:
        """Take what requests are checked with."""
        self._requests = requests
        self._findings = findings
        self._files = Recent[bool](FILES_REMEMBERED)
        """Payload files that were found sound, as what they were looked at."""

    def check(self, transaction: ReadTransaction, row: Row, *, cites: bool) -> None:
        """Check the payload of an event that is not erased.

        Args:
            transaction: the snapshot that the row was read in.
            row: the row. What is in its payload is not looked at where something is wrong with the event.
            cites: whether all that it cites is what it says.
        """
        recorded = row.recorded
        topic = recorded.header.topic
        is_content = row.sound and topic in PAYLOADS and not (topic == TURN and is_document(recorded))
        shared, stored = None, row.row.stored
        if (
            row.row.placement in _FILES
            and topic not in _COMPARED
            and type(stored) is bytes
            and len(stored) == _HASH_BYTES
        ):
            shared = f"{recorded.stored_hash} {recorded.stored_size} {row.row.placement} {stored.hex()} {is_content}"
        before = self._findings.count
        payload = None
        if recorded.stored_hash is not None:
            if shared is None or not self._files.get(shared):
                try:
                    _, payload = transaction.verified_payload(row.row, recorded)
                except CorruptionError as error:
                    self._findings.add(str(error))
                    return
            self._findings.payloads += 1
            self._findings.payload_bytes += recorded.size or recorded.stored_size or 0
        if recorded.unreadable:
            self._findings.closed += 1
        elif row.sound and topic == CALL:
            self._requests.check(transaction, recorded, payload, cites=cites)
        elif row.sound:
            self._payload(recorded, payload)
        if shared is not None and self._findings.count == before:
            self._files.put(shared, True)

    def _payload(self, recorded: Recorded, payload: bytes | None) -> None:
        wrong = payload_flaw(recorded, payload)
        if wrong is not None:
            self._findings.add(wrong)
        elif recorded.header.topic == REPLY and (payload is not None or recorded.hash is None):
            self._findings.replies += 1


def plain(rows: Sequence[Row]) -> list[bool]:
    """Tell of which rows the payload is text blocks of a turn beside it that nothing is wrong with.

    A short way to say so of nearly all rows: false says nothing. All are compared at once: what is wrong with one
    payload sends all of them the long way.
    """
    looked_at = [*map(_may_be_plain, rows)]
    chosen = [*compress(rows, looked_at)]
    return looked_at if chosen and _are_plain(chosen) else [False] * len(rows)


def _may_be_plain(row: Row) -> bool:
    stored, recorded, sound, _ = row
    private = recorded.private
    return (
        sound
        and private is not None
        and recorded.sealed is None
        and private.size is not None
        and private.size <= _PLAIN_BYTES_MAX
        and stored.placement in _BESIDE
        and type(stored.stored) is bytes
        and recorded.header.topic == TURN
        and not may_be_document(recorded)
    )


def _are_plain(rows: Sequence[Row]) -> bool:
    try:
        payloads = [*map(_payload, rows)]
        if [*map(sri, map(_digest, map(sha256, payloads)))] != [row.recorded.hash for row in rows]:
            return False
        contents = [*map(_texts.decode, payloads)]
    except (ValueError, zstandard.ZstdError, msgspec.DecodeError, RecursionError):
        return False
    joined = b"[%b]" % b",".join(payloads)
    # Typed and back the same bytes: there is no blank, no other spelling and no further key in any of them. Only a key
    # of the name that stands for further keys could pass for one of turnlog's.
    return _encoder.encode(contents) == joined and _EXTRA not in joined


def _payload(row: Row) -> bytes:
    stored, size = row.row.stored, row.recorded.size or 0
    if row.row.placement == _INLINE_ZSTD:
        return decompress(stored, size)
    if len(stored) != size:
        raise ValueError("it has another size than its event says")
    return stored
