"""What a projection is: events of a log, folded into tables of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, cast

from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.events import ERASURE
from turnlog.feeds.log_events import LogEvent
from turnlog.model.plain import check_plain

Fold = Callable[[Any, LogEvent], None]
"""Folds an event: it is given what its target opens a transaction with (a `sqlite3.Cursor`, …), and the event."""


Forget = Callable[[Any, Sequence[LogEvent]], None]
"""Takes away what events had given that were erased."""


class Projection(ABC):
    """Folds the events of a log into tables of its own, in a database of its own, each event exactly once.

    Events come in global order. What `fold` does must rest on nothing but the events that it was given and its own
    tables: then a rebuild gives the same tables. An event that was erased comes without its private part and payload
    (`event.recorded.erased`).

    Attributes:
        name: what it is called: names of a-z, 0-9, `-` and `_`, with dots between them.
        version: goes up whenever its tables or its folding change. It is then built anew beside the old tables, and
            replaces them.
        topics: topics of the events that it is given; empty for all.
        schema: SQL statements that make its tables, each as it is to be run.
        tables: names of the tables, in the order in which they can be filled. No other projection has them.
        objects: names of whatever else the statements make, as virtual tables and views; indexes and triggers go with
            their tables.

    One topic or table can be given as a text. Defining a subclass raises `MetaError` where one of them is no list of
    texts, or where `fold`, `forget` or `copied` is an `async def`: nobody would await it.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    topics: ClassVar[Sequence[str]] = ()
    schema: ClassVar[Sequence[str]] = ()
    tables: ClassVar[Sequence[str]] = ()
    objects: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Check what a projection gives as lists."""
        super().__init_subclass__(**options)
        if isinstance(cls.schema, str):
            raise MetaError(
                f"schema of projection {cls.__name__!r}: give a list of statements, each as one text", field="schema"
            )
        for field in ("topics", "schema", "tables", "objects"):
            setattr(cls, field, _texts(getattr(cls, field), field, cls.__name__))
        for field in ("fold", "forget", "copied"):
            check_plain(getattr(cls, field), field, f"projection {cls.__name__!r}")

    @abstractmethod
    def fold(self, db: Any, event: LogEvent) -> None:
        """Fold an event. What it raises pauses the projection at this event, and nothing of the event is kept.

        So does it where it returns what is to be awaited, or a generator: that has folded nothing.

        The transaction is the runner's: it must not be committed or rolled back. Savepoints are allowed.
        """

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Take away what events had given that an erasure took. Who has this method need not look at erasures.

        After it the tables must be as if the events had been erased when they were folded. Some of them it may never
        have been given.
        """
        raise NotImplementedError

    def copied(self, db: Any) -> None:  # noqa: B027 - most have nothing but tables
        """Make what is made of rows and is no table, as an index of words: the tables were filled with copies of rows.

        That is how a SQLite target takes in what was built beside.
        """

    @property
    def forgets(self) -> bool:
        """Whether erasures reach it: `forget` is its own."""
        return type(self).forget is not Projection.forget

    @property
    def topics_read(self) -> tuple[str, ...]:
        """The topics of the events that have to be read for it; empty for all."""
        if not self.topics or not self.forgets:
            return tuple(self.topics)
        return tuple(dict.fromkeys((*self.topics, ERASURE)))

    def wants(self, event: LogEvent) -> bool:
        """Tell whether it is to be given an event."""
        return not self.topics or event.topic in self.topics


def _texts(given: object, field: str, name: str) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    texts = tuple(cast("Iterable[object]", given)) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(text, str) for text in texts):
        raise MetaError(f"{field} of projection {name!r}: give a list of texts, got {given!r}", field=field)
    return cast("tuple[str, ...]", texts)


def projection(
    name: str,
    *,
    version: int = 1,
    topics: str | Sequence[str] = (),
    schema: Sequence[str] = (),
    tables: str | Sequence[str] = (),
    forget: Forget | None = None,
) -> Callable[[Fold], Projection]:
    """Make a projection of a function that folds an event; see `Projection` for the arguments.

    Raises:
        MetaError: where it is put before a function: topics, schema or tables are no list of texts, or one of the
            functions is async.
    """

    def made(fold: Fold) -> Projection:
        members: dict[str, Any] = {
            "name": name,
            "version": version,
            "topics": topics,
            "schema": schema,
            "tables": tables,
            "fold": staticmethod(fold),
            "__doc__": fold.__doc__,
        }
        if forget is not None:
            members["forget"] = staticmethod(forget)
        made_class: type[Projection] = type(getattr(fold, "__name__", name), (Projection,), members)
        return made_class()

    return made


def check_projection(given: Projection) -> None:
    """Check what a projection says of itself.

    Raises:
        MetaError: its name or version is none.
    """
    parts = given.name.split(".")
    if not all(part and part.isascii() and part.replace("-", "").replace("_", "").isalnum() for part in parts):
        raise MetaError(
            f"{given.name!r} is no name for a projection: use a-z, 0-9, - and _, with dots between names", field="name"
        )
    if given.name != given.name.lower():
        raise MetaError(f"{given.name!r} is no name for a projection: use small letters", field="name")
    if type(given.version) is not int or given.version < 1:
        raise MetaError(
            f"version {given.version!r} of projection {given.name!r}: give a number from 1", field="version"
        )


class State(Struct, frozen=True, kw_only=True):
    """How far a projection has come, as it is kept beside its tables.

    Attributes:
        name: the projection.
        version: the version that its tables are of.
        log: the id of the log.
        position: the global position up to which all was folded.
        event_id: the id of the event there; None at position 0.
        digest: its digest; None where it was not kept.
        paused_at: the global position of the event that it cannot fold; None while it goes on.
        paused_event: the id of that event.
        paused_version: the version that cannot fold it, which need not be the one that the tables are of.
        error: what was raised there, one line.
        tries_again: whether each run tries that event again: its payload could not be read, and may be there again.
        has_traces: whether rows that were taken away because of an erasure may still be found in the target's files.
        erased_to: the global position of the last erasure that has reached what is kept of errors, and the tables of
            one that is paused.
        erased_id: the id of the event there; None where it is not known.
    """

    name: str
    version: int
    log: str | None
    position: int = 0
    event_id: str | None = None
    digest: str | None = None
    paused_at: int | None = None
    paused_event: str | None = None
    paused_version: int | None = None
    error: str | None = None
    tries_again: bool = False
    has_traces: bool = False
    erased_to: int = 0
    erased_id: str | None = None


class Skip(Struct, frozen=True, kw_only=True):
    """An event that a projection passes over, on record.

    Attributes:
        name: the projection.
        event_id: the event.
        position: its global position.
        error: what was raised when it was folded; None if that was not tried.
        reason: why it is passed over.
        time: when that was decided, ISO 8601 in UTC.
    """

    name: str
    event_id: str
    position: int
    error: str | None
    reason: str
    time: str


class Status(Struct, frozen=True, kw_only=True):
    """How a projection is doing.

    Attributes:
        name: the projection.
        version: the version that its tables are of; 0 before it was built.
        position: the global position up to which all was folded.
        lag: number of events of the log behind that.
        paused_at: the global position of the event that it cannot fold; None while it goes on, or if it is not an
            event that keeps it from that.
        paused_event: the id of that event.
        error: why it does not go on, one line; None if it does.
        tries_again: whether each run tries that event again: its payload could not be read, and may be there again.
        is_outdated: whether there is a newer version of it to be built.
        has_traces: whether what it forgot because of an erasure may still be found in its files, or, of one that is
            paused, what it has not forgotten yet.
        skipped: events that it passes over.
    """

    name: str
    version: int
    position: int
    lag: int
    paused_at: int | None = None
    paused_event: str | None = None
    error: str | None = None
    tries_again: bool = False
    is_outdated: bool = False
    has_traces: bool = False
    skipped: tuple[Skip, ...] = ()
