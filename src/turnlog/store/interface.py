"""The contract between turnlog and a store engine.

One log, in one total order. An engine MUST keep these promises:

- A write is one transaction: events, payloads, leaf hashes and synchronous projections become visible together or
  not at all. On return from `Store.write` it is durable: a crash of the process, the system or the power does not
  lose it.
- The global position of events counts from 1 without gaps, in the order in which readers see them, and is never
  given twice.
- A read never gives an event whose header does not have the leaf hash, or whose private part does not have the hash,
  that was stored: it raises `CorruptionError`.
- No statement of an append fails inside its transaction. That an id or a position is taken is an outcome.
- Writes are serial, across threads and processes. A plan sees everything that was written before it.
- A read transaction is one snapshot. In a persistent store readers do not wait for writers, nor writers for readers. In
  memory they take turns: a thread that holds a read transaction there must not write, nor open another one.
- Bytes come back as they were given.

An engine MAY run the plans of concurrent callers in one transaction (group commit), and MAY run a plan more than once:
plans must have no effect but on their transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from turnlog.events import Arrival, DataKey, Event, Recorded, Seal, Seals
from turnlog.store.waiting import Watch

if TYPE_CHECKING:
    from eventsourcing.persistence import InfrastructureFactory

    from turnlog.store.incoming import PendingFile

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
    ERASED = 5
    """Nowhere any more, and the private part neither."""


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
    file: PendingFile | None = None
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


class SQLTransaction(Protocol):
    """What projections see of a transaction: SQL as SQLite and PostgreSQL share it, with `?` for parameters."""

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""
        ...

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result."""
        ...

    def each(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[SQLRow]:
        """Run a statement and iterate over the rows of its result, which may be more than fit into memory."""
        ...


class FoldTransaction(SQLTransaction, Protocol):
    """What projections see while they fold."""

    def place(self, event_id: str) -> tuple[str, int] | None:
        """Return the stream and the position of an event that is folded already; None for an unknown one."""
        ...


class SyncProjection(ABC):
    """State derived from the log by folding events in global order, in the transaction that records them.

    A projection owns its tables and nothing else. Folding the log from the start into empty tables MUST give the
    same rows as folding each event as it was recorded: `verify` compares the two. Of an erased event only the header is
    there to fold.

    Attributes:
        name: its name, for people.
        version: a higher one makes stores build it anew when they are opened.
        tables: names of its tables.
        schema: statements that make them, in SQL that SQLite and PostgreSQL both read, with a primary key each.
    """

    name: str
    version: ClassVar[int] = 1
    tables: tuple[str, ...]
    schema: tuple[str, ...]

    @abstractmethod
    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Fold one event. It is stored already; later ones are not."""

    def reads_private(self, recorded: Recorded) -> bool:  # noqa: ARG002 - others look at it
        """Tell whether something of an event's private part is folded: to erase it then means to fold the log anew."""
        return True


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


class SideTables(Struct, frozen=True, kw_only=True):
    """Tables that a store gains when they are first needed. It is whole without them, and no append folds into them.

    Attributes:
        name: what they hold, for people.
        tables: their names.
        schema: statements that make them, in SQL that SQLite and PostgreSQL both read, with a primary key each.
    """

    name: str
    tables: tuple[str, ...]
    schema: tuple[str, ...]


class ReadTransaction(FoldTransaction, Protocol):
    """One snapshot of a log. Events that are sealed are opened where their key is here."""

    seals: Seals | None
    """The keys of what is sealed."""

    def seal_policy(self) -> SealPolicy | None:
        """Return what is recorded sealed; None where nothing ever was. Costs nothing in a write transaction."""
        ...

    def opened(self, event: Recorded) -> Recorded:
        """Return an event that was read without keys as it is with those that are here.

        Raises:
            CorruptionError: it does not open with its key.
        """
        ...

    def has(self, side: SideTables) -> bool:
        """Tell whether the store has gained tables."""
        ...

    def leaves(self, first: int, count: int) -> list[tuple[bytes, int]]:
        """Return leaf hash and arrival of `count` events from the leaf index `first` on, a global position less 1.

        Raises:
            CorruptionError: some are missing, or are no hashes.
        """
        ...

    def genesis(self) -> Recorded | None:
        """Return the first event of the log, whose id is the log's identity; None in an empty log."""
        ...

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
        """Return the payload of an event, checked against its hash; None where there is none, or it is not readable.

        Raises:
            CorruptionError: the payload is missing or is not what the event says.
        """
        ...

    def stored_payload(self, recorded: Recorded) -> bytes | None:
        """Return the same as it is kept: of a sealed event sealed.

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

    def at_global(self, global_position: int) -> Recorded | None:
        """Return the event at a global position, or None."""
        ...

    def topics(self) -> dict[str, int]:
        """Return the number of events of each topic, by topic."""
        ...

    def stored_rows(self, after: int, limit: int) -> list[StoredRow]:
        """Return at most `limit` events with a global position above `after`, in order, as they lie in the store."""
        ...

    def verified_payload(self, row: StoredRow, event: Event) -> tuple[int, bytes | None]:
        """Check the payload of an event against its hash in bounded memory, and return its size and its bytes.

        The bytes are None where there is no payload, it is too large to be kept in memory, or it is not readable.

        Raises:
            CorruptionError: the payload is missing, is not what the event says, or has bytes behind it.
        """
        ...

    def has_file(self, payload_hash: bytes, placement: Placement | None = None) -> bool:
        """Tell whether an event keeps its payload in the file of a hash (32 bytes), in one form or (None) in either."""
        ...

    def last_erasure(self) -> int:
        """Return the global position of the last `gpt.erasure` event, 0 if there is none. Cheap.

        What was read at another one may have been erased since.
        """
        ...

    def last(self, topic: str, *, before: int | None = None) -> Recorded | None:
        """Return the last event of a topic, of those with a global position below `before`; None if there is none."""
        ...


class WriteTransaction(ReadTransaction, Protocol):
    """A read transaction at the end of the log that can append to it."""

    def is_empty(self) -> bool:
        """Tell whether the log has no event yet. Costs nothing once it has one."""
        ...

    heads: MutableMapping[str, Recorded]
    """Turns that plain bookmarks are known to point at, by name, so that nobody looks them up: those that turns moved.

    Who records such a turn adds it. The store forgets them all when anything else may have moved a bookmark.
    """

    def is_quiet_since(self, event: Recorded) -> bool:
        """Tell whether nothing but turns, calls and replies is known to have been recorded after an event. Cheap."""
        ...

    def placed(self, payload: bytes) -> NewPayload:
        """Make a payload ready to be appended, as `Store.place` does: for small ones, which hold nobody up."""
        ...

    def seal(self, payload: NewPayload, key: DataKey) -> NewPayload:
        """Return a payload sealed under a key; also one that is sealed under another one."""
        ...

    def append(self, event: Event, payload: NewPayload, arrival: Arrival = Arrival.RECORDED) -> Recorded | Taken:
        """Append one event with its payload, and fold it into the projections; or say what of it is taken.

        A payload that is kept as a file gets its name when the plan is through and before the transaction is committed.

        Raises:
            SchemaError: the row did not go in, though nothing of it is taken.
        """
        ...


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


class Store(ABC):
    """One open log. Safe to use from many threads; other processes may have the same log open."""

    url: str
    factory: InfrastructureFactory[Any]
    """eventsourcing's way to the same log: recorders for its projections and followers."""

    @abstractmethod
    def place(self, payload: bytes | None, seal: Seal | None = None) -> NewPayload:
        """Make a payload ready to be appended: hash and compress it, and write it to disk where it becomes a file.

        With a seal it is sealed before it is written anywhere.

        A file that is not appended goes when the returned value does.
        """

    @abstractmethod
    def write(self, plan: Callable[[WriteTransaction], T]) -> T:
        """Run a plan in a write transaction and return what it returned, once that is durable.

        What the plan raises is raised here, and nothing of what it appended is kept.

        Raises:
            StoreReadOnlyError: the store cannot be written.
            StoreFullError: there is no space left.
            StoreBusyError: another process held the write lock for too long.
            StoreClosedError: the store was closed, or was opened before this process was forked.
            SchemaError: its tables are not what they should be, or a newer turnlog has changed them.
            UncertainError: the disk failed at the end: it may be recorded or not.
        """

    @abstractmethod
    def gain(self, side: SideTables) -> None:
        """Make side tables, durably. Does nothing where they are.

        Raises:
            As `write` does.
        """

    @abstractmethod
    def erase(
        self,
        plan: Callable[[WriteTransaction], Sequence[Recorded]],
        *,
        foreseen: Sequence[Recorded] = (),
        until: int = 0,
    ) -> ErasedFiles:
        """Take private parts and payloads of events away, for good, in one transaction, and then out of the files.

        Others can append meanwhile. Projections are as if the events had never had a private part.

        Args:
            plan: appends the `gpt.erasure` events that say so, and returns the events to erase. It is run once.
            foreseen: the events up to the global position `until` that it will return: much of the work is done before
                the write lock is taken.
            until: a global position.

        On return the erasure is durable. What is left in files then, because somebody reads an older state or the
        disk is full, is told, and `scrub` goes on with it, as opening the store does.

        Raises:
            ConflictError: an event has nothing to erase.
            As `write` does, and what the plan raises; then nothing was erased.
        """

    @abstractmethod
    def scrub(self) -> str | None:
        """Remove what is left of erased events in the files of the store.

        Returns:
            Why something is still left, one line; None if nothing is.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Open one snapshot. It is released on leaving the context."""

    @abstractmethod
    def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position, and return the position of its end.

        Args:
            after: a global position.
            timeout_s: how long to wait at most, in seconds; None for as long as it takes.

        Any number of threads may wait: one waker serves them all. Appends of this process wake them at once, those of
        others within a few hundredths of a second.

        Raises:
            StoreClosedError: the store is closed, or was closed meanwhile.
        """

    @abstractmethod
    def watch(self, after: int, tell: Callable[[], None], *, backwards: bool = False) -> Watch:
        """Have a function called once, when the log goes beyond a global position; see `Waker.watch`."""

    @abstractmethod
    def unwatch(self, watch: Watch) -> None:
        """Forget a watch. Nothing happens if it was told, or is forgotten already."""

    @abstractmethod
    def check(self) -> Iterator[tuple[int | None, str]]:
        """Iterate over damage that only the engine can see: global position (None: not of one event) and what it is."""

    @abstractmethod
    def check_schema(self) -> list[str]:
        """Return what is not as it should be of tables, indexes, triggers, version and settings, one line each."""

    @abstractmethod
    def unread(self) -> list[str]:
        """Return the names of tables in the store that are none of turnlog's."""

    @abstractmethod
    def stats(self) -> StoreStats:
        """Measure the store."""

    @abstractmethod
    def scratch(self) -> AbstractContextManager[ScratchTransaction]:
        """Open an empty database with the tables of the projections, to rebuild them in. It is gone on leaving."""

    @abstractmethod
    def rebuild(self, names: Sequence[str] = (), *, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Build projections anew from the log, in place, and return their names. Others can append meanwhile.

        Args:
            names: which; empty for all.
            progress: called with events done and events in all.

        Raises:
            SchemaError: there is no projection of a name.
        """

    @property
    @abstractmethod
    def projections(self) -> Sequence[SyncProjection]:
        """The synchronous projections, in the order in which they fold."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, once what other threads are at has come to an end.

        Closing twice is allowed; other calls raise `StoreClosedError`.
        """


class Folded(NamedTuple):
    """What a scratch database knows of an event."""

    event_id: str
    stream: str
    position: int
    leaf_hash: bytes
    topic: str
    global_position: int


class ScratchTransaction(FoldTransaction, Protocol):
    """A temporary database that the log is folded into anew. Nothing in it is from the store's own projections."""

    def folded(self, event_id: str) -> Folded | None:
        """Return what is known of an event that is folded already, None for an unknown one."""
        ...

    def fold(self, recorded: Recorded) -> None:
        """Note an event, and fold it into the projections."""
        ...
