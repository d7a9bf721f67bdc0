"""The contract between a feed and a sink: where the events of a log go, in order.

A sink MUST keep these promises:

- On return from `Sink.deliver` the destination has all records of the batch: a crash of this process or of the machine
  does not lose them. Where it raises, it has taken any number of them from the first one on, or none.
- What is delivered again has the same `SinkRecord.key`, so that the destination can tell.
- `Sink.open` says how far the destination has come, if that can be known from the destination itself.
- Where `takes_back` is true, `Sink.forget` leaves nothing of erased events in the destination but what the records that
  it is given say.

A feed calls a sink from one thread, delivers batches in order, and opens no destination twice at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnlog.digest import sri_bytes
from turnlog.errors import MetaError, SinkError
from turnlog.events import Recorded
from turnlog.model.long_strings import json_pieces
from turnlog.model.pieces import PIECE
from turnlog.model.plain import check_plain_methods
from turnlog.store import Store

SCHEMA = 1
"""The version of the records that sinks are given. It goes up when a field changes its meaning or goes away."""


INT64_MAX = (1 << 63) - 1
"""What is beyond does not fit where a destination has integers. Somebody else's log may have it."""


class Choice(Struct, frozen=True, kw_only=True):
    """What is delivered.

    Attributes:
        topics: topics of the events; empty for all.
        public: only what stays for ever of an event: no content, no private metadata.
        unseal: what is sealed, too, where its key is here. Else it is delivered as somebody sees it who has no keys.
    """

    topics: tuple[str, ...] = ()
    public: bool = False
    unseal: bool = False

    def is_same(self, other: Choice) -> bool:
        """Tell whether another one delivers the same: in which order topics are given does not matter."""
        return set(self.topics) == set(other.topics) and (self.public, self.unseal) == (other.public, other.unseal)


class Place(Struct, frozen=True, kw_only=True):
    """How far a destination has come.

    Attributes:
        log: the id of the log.
        position: the global position of the last event that it has.
        event_id: the id of that event; None where it is not known.
        digest: its digest, likewise.
    """

    log: str
    position: int
    event_id: str | None
    digest: str | None = None


class SinkRecord(Struct, frozen=True, kw_only=True):
    """An event as sinks are given it.

    Attributes:
        log: the id of the log.
        recorded: the event, with no private part where that is not to be given away.
        fields: what is delivered of it; see `docs/reference/feeds.md`.
    """

    log: str
    recorded: Recorded
    fields: dict[str, Any]

    @property
    def position(self) -> int:
        """The global position."""
        return self.recorded.global_position

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.recorded.header.id

    @property
    def key(self) -> str:
        """The idempotency key: equal for the same event of the same log, however often it is delivered."""
        return record_key(self.log, self.recorded)

    @property
    def place(self) -> Place:
        """Where a destination is that has all up to this one."""
        return Place(log=self.log, position=self.position, event_id=self.id, digest=self.recorded.digest)

    @property
    def is_long(self) -> bool:
        """Whether the content is so long that it is to be written in pieces."""
        return (self.recorded.size or 0) > PIECE

    def known_as(self, key: str | None) -> SinkRecord:
        """Return it with the idempotency key that it was delivered with, which may be of an earlier form."""
        return self if key is None else replace(self, fields=self.fields | {"idempotency_key": key})

    def to_json(self) -> bytes:
        """Return it as JSON on one line, without a line feed."""
        return msgspec.json.encode(self.fields)

    def line(self) -> Iterator[bytes | memoryview]:
        """Iterate over that line with its line feed, in pieces where the content is long."""
        if not self.is_long:
            yield self.to_json() + b"\n"
            return
        yield from json_pieces(self.fields)
        yield b"\n"


def record_key(log: str, recorded: Recorded) -> str:
    """Return the idempotency key of an event: another one for what comes to its place in a log that lost its end."""
    return f"{log}:{recorded.global_position}:{sri_bytes(recorded.digest)[:8].hex()}"


class Batch(Struct, frozen=True, kw_only=True):
    """Events to be delivered together.

    Attributes:
        log: the id of the log.
        first: the global position from which on the log was looked at.
        last: the one up to which it was.
        event_id: the id of the event at `last`.
        digest: its digest.
        records: the events that are wanted, in global order; maybe none.
        end: where the log ended.
        choice: what is delivered.
    """

    log: str
    first: int
    last: int
    event_id: str
    digest: str
    records: Sequence[SinkRecord]
    end: int
    choice: Choice = Choice()

    @property
    def key(self) -> str:
        """The idempotency key of the batch: of its events, and of what of them is delivered."""
        content = msgspec.json.encode([self.choice, *(record.recorded.digest for record in self.records)])
        return f"{self.log}:{self.first}-{self.last}:{sha256(content).hexdigest()[:16]}"


class Sink(ABC):
    """Where a feed delivers events. Use it from one thread, in one feed.

    Defining a subclass raises `MetaError` where one of the methods is an `async def`: nobody would await it. A method
    that returns what is to be awaited ends the feed with that error.

    Attributes:
        kind: what kind of sink it is, one word.
        takes_back: whether it can take back what it delivered of events that are erased.
        wants_erasures: whether it wants erasures as events, whatever topics it is asked for.
        reads_content: whether it wants the content of events in their records, where it is null otherwise.
        keeps_batches: whether a batch that may have been delivered is delivered again with the same first and last
            event, also after a kill.
        knows_place: whether the destination itself says how far it has come: then one feed alone can deliver there.
        batch_events: how many events a batch has at most, unless the feed is told otherwise.
        batch_bytes: how many bytes of content, about; a single event may have more.
        topics: topics of the events that it wants, unless the feed is told otherwise; empty for all.
        linger_s: how many seconds a feed that follows waits for a batch to fill.
    """

    kind: ClassVar[str]
    takes_back: ClassVar[bool] = False
    wants_erasures: ClassVar[bool] = False
    reads_content: ClassVar[bool] = True
    keeps_batches: ClassVar[bool] = False
    knows_place: ClassVar[bool] = False
    batch_events: int = 500
    batch_bytes: int = 8 * 1024 * 1024
    linger_s: float = 0.0
    topics: tuple[str, ...] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that what a sink does is done when it returns."""
        super().__init_subclass__(**options)
        check_plain_methods(cls, Sink, f"sink {cls.__name__!r}")

    @property
    @abstractmethod
    def destination(self) -> str:
        """Where it delivers to, one line without secrets. With the kind it is the usual name of the feed."""

    def is_at(self, destination: str) -> bool:
        """Tell whether a destination is that of this sink, by whatever name."""
        return destination == self.destination

    @abstractmethod
    def open(self, store: Store) -> Place | None:
        """Make it ready, and return how far the destination has come; None where it does not know, or has nothing.

        A feed goes on from there, also where the destination had come further before.

        Args:
            store: the log.

        Raises:
            SinkError: it cannot be used.
        """

    @abstractmethod
    def deliver(self, batch: Batch) -> None:
        """Deliver the records of a batch, of which there is at least one. On return the destination has them for good.

        Raises:
            SinkError: it has not taken all of them.
        """

    def is_emptied(self) -> bool:
        """Tell whether all that was delivered is away, and may come back with what is erased. It need not be open.

        Raises:
            SinkError: that cannot be found out.
        """
        return False

    def lost_from(self) -> int | None:
        """Return the global position from which on it has lost all that was delivered, where it can tell when open.

        It is asked where `open` returned None. What was delivered from there on is delivered again.
        """
        return None

    def forget(self, records: Sequence[SinkRecord]) -> None:
        """Put records of events that were erased in the place of what was delivered of them. Twice is allowed.

        Raises:
            SinkError: it cannot be done.
        """
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Release everything, also where opening failed. Closing twice is allowed, and so is opening it again."""

    def failed(self, message: str, *, retryable: bool = False, retry_after_s: float | None = None) -> SinkError:
        """Return the error for something that this sink could not do."""
        return SinkError(
            f"{self.kind} {self.destination!r}: {message}",
            sink=self.kind,
            retryable=retryable,
            retry_after_s=retry_after_s,
        )


def check_sink(sink: object) -> Sink:
    """Return a sink whose attributes are what a feed keeps, and goes by.

    Raises:
        MetaError: one of them is not, or it is no sink.
    """
    if not isinstance(sink, Sink):
        raise MetaError(f"sink: {type(sink).__name__} is no Sink: give such as JSONLines(folder)", field="sink")
    for field, (kinds, least) in _ATTRIBUTES.items():
        value = getattr(sink, field, None)
        if type(value) not in kinds or value < least:
            said = f"sink {type(sink).__name__!r}: its {field} is {value!r}"
            raise MetaError(f"{said}: give a {kinds[0].__name__}{' from 1' if least == 1 else ''}", field="sink")
    topics = cast("object", sink.topics)
    if not isinstance(topics, tuple) or any(type(topic) is not str for topic in cast("tuple[object, ...]", topics)):
        raise MetaError(f"sink {type(sink).__name__!r}: its topics are {topics!r}: give a tuple of texts", field="sink")
    if sink.takes_back and type(sink).forget is Sink.forget:
        raise MetaError(f"sink {type(sink).__name__!r}: its takes_back is true, and it has no `forget`", field="sink")
    return sink


_ATTRIBUTES: Mapping[str, tuple[tuple[type[Any], ...], Any]] = {
    "kind": ((str,), "\0"),
    "destination": ((str,), "\0"),
    **dict.fromkeys(
        ("takes_back", "wants_erasures", "reads_content", "keeps_batches", "knows_place"), ((bool,), False)
    ),
    **dict.fromkeys(("batch_events", "batch_bytes"), ((int,), 1)),
    "linger_s": ((float, int), 0),
}
"""Attributes of a sink, with their types, and what each is at least: a text that is not empty is at least NUL."""
