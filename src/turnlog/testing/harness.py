"""What the suites stand on: how a store is opened, events to put into it, and a projection that is easy to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog, events
from turnlog.errors import TurnlogError
from turnlog.events import FORMAT, Event, Recorded
from turnlog.ids import new_id
from turnlog.projections import synchronous
from turnlog.store import SQLTransaction, Store, SyncProjection

TOPIC = "test.event"


class RefusedError(TurnlogError):
    """Be raised by a plan, or by the projection `Tally`, on purpose."""


class Tally(SyncProjection):
    """The number of events of each topic. It refuses the topic `test.refused`, and breaks on `test.broken`."""

    name = "tally"
    tables = ("tally",)
    schema = ("CREATE TABLE IF NOT EXISTS tally (topic TEXT PRIMARY KEY, events INTEGER NOT NULL)",)

    def apply(self, transaction: SQLTransaction, event: Event, global_position: int) -> None:  # noqa: ARG002 - the signature of every projection
        """Count an event."""
        transaction.run(
            "INSERT INTO tally VALUES (?, 1) ON CONFLICT (topic) DO UPDATE SET events = tally.events + 1",
            (event.topic,),
        )
        if event.topic == "test.refused":
            raise RefusedError("the projection refuses this event")
        if event.topic == "test.broken":
            raise ZeroDivisionError


class Engine:
    """How the suites open an engine. Subclasses of the suites give `open_store`."""

    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        """Open the store of a folder, which is empty the first time.

        An engine whose logs outlive their store opens the same log for the same folder; another a new one each time.
        """
        raise NotImplementedError


class StoreHarness(Engine):
    """Fixtures and helpers of the store suites."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Open a fresh store that keeps a tally, and close it at the end."""
        store = self.open_store(tmp_path, [Tally()])
        yield store
        store.close()


class LogHarness(Engine):
    """Fixtures of the log suite."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[TurnLog]:
        """Open a fresh log, and close it at the end."""
        with TurnLog(self.open_store(tmp_path / "log", synchronous())) as log:
            yield log

    @pytest.fixture
    def other(self, tmp_path: Path) -> Iterator[TurnLog]:
        """Open a second log."""
        with TurnLog(self.open_store(tmp_path / "other", synchronous())) as log:
            yield log


def new_event(
    store: Store,
    *,
    payload: bytes | None = None,
    id: str | None = None,
    stream: str | None = None,
    position: int = 0,
    topic: str = TOPIC,
    meta: dict[str, Any] | None = None,
) -> Event:
    """Return an event that could be appended to a store: by default one that starts a stream of its own."""
    event_id = id or new_id()
    placed = store.place(payload)
    return Event(
        format=FORMAT,
        id=event_id,
        topic=topic,
        stream=stream or event_id,
        position=position,
        hash=placed.hash,
        size=placed.size,
        parents=[],
        meta=events.encode_meta(meta or {}),
    )


def append(store: Store, *wanted: Event, payload: bytes | None = None) -> list[Recorded]:
    """Append events in one transaction, each with the same payload."""
    placed = store.place(payload)
    return store.write(lambda transaction: [transaction.append(events.encode(e), e, placed) for e in wanted])


def append_run(store: Store, count: int, *, topic: str = TOPIC) -> list[Recorded]:
    """Append one stream of so many events, each in a transaction of its own."""
    stream = new_id()
    found: list[Recorded] = []
    for position in range(count):
        event = new_event(store, id=stream if position == 0 else None, stream=stream, position=position, topic=topic)
        found += append(store, event)
    return found


def states(store: Store) -> list[bytes]:
    """Return the bytes of all events, in global order."""
    with store.read() as transaction:
        return [recorded.state for recorded in transaction.log()]


def global_positions(store: Store) -> list[int]:
    """Return the global positions of all events, in global order."""
    with store.read() as transaction:
        return [recorded.global_position for recorded in transaction.log()]


def tally(store: Store) -> dict[str, int]:
    """Return what the projection `Tally` has counted."""
    with store.read() as transaction:
        return dict(transaction.rows("SELECT topic, events FROM tally"))


def text_of(size: int) -> bytes:
    """Return so many bytes that compress well."""
    return (b"the quick brown fox jumps over the lazy dog. " * (size // 45 + 1))[:size]
