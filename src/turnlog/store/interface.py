"""The contract between turnlog and a store engine.

One log, in one total order. An engine MUST keep these promises:

- A write is one transaction: events, payloads, leaf hashes and synchronous projections become visible together or
  not at all. On return from `Store.write` it is durable: a crash of the process, the system or the power does not
  lose it.
- The global position of events counts from 1 without gaps, in the order in which readers see them, and is never
  given twice.
- Writes are serial, across threads and processes. A plan sees everything that was written before it.
- A read transaction is one snapshot. In a persistent store readers do not wait for writers, nor writers for readers. In
  memory they take turns: a thread that holds a read transaction there must not write, nor open another one.
- Bytes come back as they were given.

An engine MAY run the plans of concurrent callers in one transaction (group commit), and MAY run a plan more than once:
plans must have no effect but on their transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from turnlog.events import Event, Recorded

if TYPE_CHECKING:
    from eventsourcing.persistence import InfrastructureFactory

T = TypeVar("T")
SQLRow = tuple[Any, ...]


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


class NewPayload(Struct, frozen=True, kw_only=True):
    """A payload on its way into the store: hashed and compressed, and nowhere yet.

    `hash` and `size` (bytes) are None where there is no payload. `stored` are the bytes to keep, in the form and at the
    place that `placement` says.
    """

    hash: str | None
    size: int | None
    placement: Placement
    stored: bytes | None


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


class SQLTransaction(Protocol):
    """What projections see of a transaction: SQL as SQLite and PostgreSQL share it, with `?` for parameters."""

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""
        ...

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result."""
        ...


class SyncProjection(ABC):
    """State derived from the log by folding events in global order, in the transaction that records them.

    A projection owns its tables and nothing else. Folding the log from the start into empty tables MUST give the
    same rows as folding each event as it was recorded: `verify` compares the two.
    """

    name: str
    tables: tuple[str, ...]
    schema: tuple[str, ...]

    @abstractmethod
    def apply(self, transaction: SQLTransaction, event: Event, global_position: int) -> None:
        """Fold one event. It is stored already; later ones are not."""


class ReadTransaction(SQLTransaction, Protocol):
    """One snapshot of a log."""

    def event(self, event_id: str) -> Recorded | None:
        """Return the event of an id (in stored, lower-case form), or None."""
        ...

    def at(self, stream: str, position: int) -> Recorded | None:
        """Return the event at a position of a stream, or None."""
        ...

    def stream(self, stream: str, first: int, last: int) -> list[Recorded]:
        """Return the events of a stream from position `first` to `last`, both included, in order."""
        ...

    def stream_end(self, stream: str) -> Recorded:
        """Return the last event of a stream that there is.

        Raises:
            CorruptionError: there is no such stream.
        """
        ...

    def stream_payloads(self, stream: str, first: int, last: int) -> list[tuple[Recorded, bytes | None]]:
        """Return the same with each event's payload, checked against its hash; None where there is none.

        Raises:
            CorruptionError: a payload is missing or is not what its event says.
        """
        ...

    def payload(self, recorded: Recorded) -> bytes | None:
        """Return the payload of an event, checked against its hash; None where there is none.

        Raises:
            CorruptionError: the payload is missing or is not what the event says.
        """
        ...

    def log(self, after: int = 0, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events with a global position above `after`, in order. An empty `topics` means all."""
        ...

    def log_backwards(self, before: int, *, topics: Sequence[str]) -> Iterator[Recorded]:
        """Iterate over the events of some topics with a global position below `before`, the last one first."""
        ...

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        ...

    def last(self, topic: str, *, before: int | None = None) -> Recorded | None:
        """Return the last event of a topic, of those with a global position below `before`; None if there is none."""
        ...


class WriteTransaction(ReadTransaction, Protocol):
    """A read transaction at the end of the log that can append to it."""

    def append(self, state: bytes, event: Event, payload: NewPayload) -> Recorded:
        """Append one event, whose bytes are `state`, with its payload, and fold it into the projections.

        A payload that is kept as a file is written when the plan is through and before the transaction is committed. A
        crash between the two leaves an unused file.

        Raises:
            IdConflictError: the id is taken.
            PositionTakenError: the position in the stream is taken.
        """
        ...


class Store(ABC):
    """One open log. Safe to use from many threads; other processes may have the same log open."""

    url: str
    factory: InfrastructureFactory[Any]
    """eventsourcing's way to the same log: recorders for its projections and followers."""

    @abstractmethod
    def place(self, payload: bytes | None) -> NewPayload:
        """Make a payload ready to be appended: hash and compress it. Nothing is written."""

    @abstractmethod
    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable.

        What the plan raises is raised here, and nothing of what it appended is kept.

        Raises:
            StoreReadOnlyError: the store cannot be written.
            StoreFullError: there is no space left.
            StoreBusyError: another process held the write lock for too long.
            StoreClosedError: the store was closed, or was opened before this process was forked.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""

    @abstractmethod
    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: global position (None: not of one event) and what it is."""

    @abstractmethod
    def stats(self) -> StoreStats:
        """Measure the store."""

    @abstractmethod
    def scratch(self) -> AbstractContextManager[SQLTransaction]:
        """Open an empty database with the tables of the projections, to rebuild them in. It is gone on leaving."""

    @property
    @abstractmethod
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Closing twice is allowed; other calls raise `StoreClosedError`."""
