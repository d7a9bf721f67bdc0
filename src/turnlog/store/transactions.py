"""The contract of transactions on a store: what projections fold in, what readers see, what plans append with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct

from turnlog.errors import MetaError, StoreOpenError
from turnlog.events import Arrival, DataKey, Event, Recorded, Seals
from turnlog.model.plain import check_plain
from turnlog.store.values import Folded, Located, NewPayload, Placement, SealPolicy, StoredRow, Taken

SQLRow = tuple[Any, ...]


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
        schema: statements that make them, in SQL that SQLite and PostgreSQL both read, with a primary key each. Key
            words and types stand in capitals: each engine has its own for `TEXT`, `BLOB` and `INTEGER` (of 64 bits).

    Defining a subclass raises `MetaError` where no statement of `schema` makes one of its tables like that, or `apply`
    is an `async def`, which nobody would await.
    """

    name: str
    version: ClassVar[int] = 1
    tables: tuple[str, ...]
    schema: tuple[str, ...]

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that each table is made as every engine needs it, and that folding is done when it returns."""
        super().__init_subclass__(**options)
        check_plain(cls.apply, "apply", f"projection {cls.__name__!r}")
        for table in getattr(cls, "tables", ()):
            made = next((sql for sql in cls.schema if sql.startswith(f"CREATE TABLE {table} (")), "")
            if "PRIMARY KEY" not in made:
                raise MetaError(
                    f"schema of projection {cls.__name__!r}: give a statement that begins with 'CREATE TABLE {table} ('"
                    " and names a PRIMARY KEY, both in capitals",
                    field="schema",
                )

    @abstractmethod
    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Fold one event. It is stored already; later ones are not."""

    def reads_private(self, recorded: Recorded) -> bool:  # noqa: ARG002 - others look at it
        """Tell whether something of an event's private part is folded: to erase it then means to fold the log anew."""
        return True

    def carry_over(  # noqa: B027 - most have nothing to carry over
        self, target: SQLTransaction, before: SQLTransaction, damaged: Sequence[Recorded], erased: Sequence[Recorded]
    ) -> None:
        """Put what the tables have of damaged events into tables that the log was folded into anew, for an erasure.

        Such events were folded like erased ones. By default nothing of them is carried over.

        Args:
            target: the new tables.
            before: the tables as they are.
            damaged: the damaged events, which are not erased.
            erased: what is erased.
        """


def check_not_newer(projections: Sequence[SyncProjection], built: Mapping[str, int] | None, place: str) -> None:
    """Check that no projection of a store is of a later version than is known here: its tables may be others.

    Args:
        projections: the projections that are known.
        built: the version that each one of the store was built with, by name; None where the store does not say.
        place: what the store is called.

    Raises:
        StoreOpenError: one is.
    """
    for projection in projections:
        if (version := (built or {}).get(projection.name, 0)) > projection.version:
            raise StoreOpenError(
                f"store {place!r} was written by a newer turnlog: its {projection.name} are of version {version}, "
                f"this turnlog knows versions up to {projection.version}: upgrade turnlog"
            )


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

    reads_past_damage: bool
    """Whether damaged private parts raise nothing: see `past_damage`."""

    def seal_policy(self) -> SealPolicy | None:
        """Return what is recorded sealed; None where nothing ever was. Costs nothing in a write transaction.

        A plan that appends nothing may find what was so within the last minute.
        """
        ...

    def opened(self, event: Recorded) -> Recorded:
        """Return an event that was read without keys as it is with those that are here.

        Raises:
            CorruptionError: it does not open with its key.
        """
        ...

    def has(self, side: SideTables | SyncProjection) -> bool:
        """Tell whether the store has all tables of side tables, or of a projection. A view, say, is none of them."""
        ...

    def unsettled(self) -> Mapping[str, tuple[str, int]]:
        """Return events that are committed, and not in the log of this snapshot yet: stream and position by id.

        Where many append at once, an event has its place in the log only when all that began before it have ended.
        Until then nobody has been told that it is recorded, and nothing shows it but the tables of the synchronous
        projections: whoever reads these leaves out what comes of it.
        """
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

    def ids_beginning(self, start: str, *, topic: str, limit: int) -> list[str]:
        """Return at most `limit` ids of events of a topic that begin with a text (of 0-9 and a-z), ascending."""
        ...

    def ids_beside(self, event_id: str, *, topic: str) -> list[str]:
        """Return the ids of events of a topic that stand next before and next behind an id in the order of ids."""
        ...

    def at(self, stream: str, position: int) -> Recorded | None:
        """Return the event at a position of a stream, or None."""
        ...

    def located(self, event_ids: Collection[str]) -> dict[str, Located]:
        """Return where events are, by id, without the unknown ones. None of them is read."""
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

    def stream_ends(self, streams: Collection[str]) -> dict[str, Located]:
        """Return where the last events of streams are, by stream. None of them is read.

        Raises:
            CorruptionError: there is no such stream.
        """
        ...

    def stream_payloads(self, stream: str, first: int, last: int) -> Iterator[tuple[Recorded, bytes | None]]:
        """Iterate over the same with each event's payload, checked against its hash; None where there is none.

        Raises:
            CorruptionError: a payload is missing or is not what its event says.
        """
        ...

    def stream_starts(
        self, stream: str, first: int, last: int, bytes_max: int
    ) -> Iterator[tuple[Recorded, bytes | None]]:
        """Iterate over the same with one payload in memory at a time; of a larger one only the first bytes.

        Such a beginning is not checked against the hash.

        Args:
            stream: a stream.
            first: the first position, inclusive.
            last: the last position, inclusive.
            bytes_max: how many bytes.

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

    def payload_pieces(self, recorded: Recorded) -> Iterator[bytes]:
        """Iterate over the same in pieces, of which there are none where there is no payload, or it is not readable.

        The hash is compared behind the last piece: nothing is to be believed before that has been taken.

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

    def log_backwards(self, before: int, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events of some topics with a global position below `before`, the last one first.

        An empty `topics` means all.
        """
        ...

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        ...

    def at_global(self, global_position: int) -> Recorded | None:
        """Return the event at a global position, or None."""
        ...

    def payload_bytes(self) -> int:
        """Return the bytes of all payloads as they were given, counted once for each event. Little is checked.

        Raises:
            CorruptionError: an event whose private part does not say it plainly is damaged.
        """
        ...

    def stored_payload_bytes(self) -> int:
        """Return the bytes of the payloads that are in the table itself, as they are stored there."""
        ...

    def topics(self) -> dict[str, int]:
        """Return the number of events of each topic, by topic."""
        ...

    def rare_topics(self) -> list[str]:
        """Return the topics that there are events of, but for `FREQUENT_TOPICS`. The log is not walked through."""
        ...

    def count_in(self, streams: Collection[str]) -> int:
        """Return the number of events of some streams. None of them is read."""
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


Reading = TypeVar("Reading", bound=ReadTransaction)


@contextmanager
def past_damage(transaction: Reading) -> Generator[Reading]:
    """Read past damaged private parts while in the context, so that one does not keep others from being erased.

    An event whose header is sound, and whose private part is not the one that it commits to, cannot be read or is
    missing, is given as `Event.damaged` then. All else that is damaged raises as ever.
    """
    before = transaction.reads_past_damage
    transaction.reads_past_damage = True
    try:
        yield transaction
    finally:
        transaction.reads_past_damage = before


class WriteTransaction(ReadTransaction, Protocol):
    """A read transaction at the end of the log that can append to it."""

    def is_empty(self) -> bool:
        """Tell whether the log has no event yet. Costs nothing once it has one."""
        ...

    heads: MutableMapping[str, Recorded]
    """Turns that plain bookmarks are known to point at, by name, so that nobody looks them up: those that turns moved.

    Who records such a turn adds it. The store forgets them all when anything else may have moved a bookmark.
    """

    recent: Mapping[str, Recorded]
    """Events that were recorded lately, by id: what is continued next is most often among them.

    A plan that appends nothing may find one whole that another process has erased within the last minute.
    """

    def is_quiet_since(self, event: Recorded) -> bool:
        """Tell whether nothing but turns, calls and replies is known to have been recorded after an event. Cheap."""
        ...

    def placed(self, payload: bytes) -> NewPayload:
        """Make a payload ready to be appended, as `Store.place` does: for small ones, which hold nobody up.

        What becomes a file or an object is written when it is appended, and so never before it is sealed.
        """
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


class ScratchTransaction(FoldTransaction, Protocol):
    """A temporary database that the log is folded into anew. Nothing in it is from the store's own projections."""

    def folded(self, event_id: str) -> Folded | None:
        """Return what is known of an event that is folded already, None for an unknown one."""
        ...

    def fold(self, recorded: Recorded) -> None:
        """Note an event, and fold it into the projections."""
        ...
