"""What stores are given and give: placements, payloads on their way in, rows as they lie there, sizes."""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from turnlog.events import Seal

if TYPE_CHECKING:
    from turnlog.store.incoming import PendingFile


Payload = bytes | Iterable[bytes | memoryview]
"""A payload on its way in: as it is, or in pieces, which are the same each time that it is iterated over."""


class Placement(IntEnum):
    """Where and how the bytes of a payload are kept. Numbers are part of the format: never re-used."""

    NONE = 0
    """There is no payload."""
    INLINE = 1
    """Beside the event, as they are."""
    INLINE_ZSTD = 2
    """Beside the event, as one Zstandard frame (RFC 8878) without dictionary."""
    FILE = 3
    """In a file of the payload folder, named by the hash, as they are."""
    FILE_ZSTD = 4
    """In a file of the payload folder, named by the hash, as one Zstandard frame."""
    ERASED = 5
    """Nowhere any more, and the private part neither."""


class Located(NamedTuple):
    """Where an event is: its id, its stream, its position there, and its global position."""

    event_id: str
    stream: str
    position: int
    global_position: int


class Taken(IntEnum):
    """Why an event was not appended."""

    ID = 1
    """Another event has its id."""
    POSITION = 2
    """Another event has its position in its stream."""


class NewPayload(Struct, frozen=True, kw_only=True):
    """A payload on its way into the store: hashed and compressed.

    `hash` and `size` (bytes) are None where there is no payload; of a sealed one they are those of the sealed bytes.
    `stored` are the bytes to keep, in the form and at the place that `placement` says. `file` is the file that has them
    already, on disk under a name that is not its last. `seal` is what it was sealed with, or None.
    """

    hash: str | None
    size: int | None
    placement: Placement
    stored: bytes | None
    file: "PendingFile | None" = None
    seal: Seal | None = None

    @property
    def content_hash(self) -> str | None:
        """The hash of the payload itself."""
        return self.hash if self.seal is None else self.seal.hash

    @property
    def content_size(self) -> int | None:
        """Bytes of the payload itself."""
        return self.size if self.seal is None else self.seal.size


NO_PAYLOAD = NewPayload(hash=None, size=None, placement=Placement.NONE, stored=None)
"""What an event without a payload has for one."""


class StoreStats(Struct, frozen=True, kw_only=True):
    """How large a store is.

    Attributes:
        events: number of events.
        payload_bytes: bytes of all payloads as they were given, counted once for each event.
        stored_payload_bytes: bytes that these take beside their events, after compression.
        file_count: payloads kept as files.
        file_bytes: bytes of these files.
        disk_bytes: bytes of all files of the store.
    """

    events: int
    payload_bytes: int
    stored_payload_bytes: int
    file_count: int
    file_bytes: int
    disk_bytes: int


class StoredRow(NamedTuple):
    """An event as it lies in the store, not looked at yet: what verification reads. Any value may be damaged."""

    global_position: Any
    stream: Any
    position: Any
    topic: Any
    state: Any
    event_id: Any
    leaf_hash: Any
    arrival: Any
    private: Any
    placement: Any
    stored: Any


class SealPolicy(Struct, frozen=True, kw_only=True):
    """What is recorded sealed in a log, as its `log.seal` events say.

    Attributes:
        keys: the tags of the keys that seal.
        store: whether all of it is.
        subjects: the tags of subjects of which all is.
    """

    keys: frozenset[str]

    store: bool = False
    subjects: frozenset[str] = frozenset()


class ErasedFiles(Struct, frozen=True, kw_only=True):
    """What erasing did beside the log.

    Attributes:
        removed: number of payload files that were removed.
        shared: number of payload files that are kept, because events that stay have the same payload.
        remains: why traces of what was erased are still in the files of the store, one line; None if there are none.
    """

    removed: int = 0
    shared: int = 0
    remains: str | None = None


class Folded(NamedTuple):
    """What a scratch database knows of an event."""

    event_id: str
    stream: str
    position: int
    leaf_hash: bytes
    topic: str
    global_position: int
