"""What the suites stand on: how a store is opened, events to put into it, and projections that are easy to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, TypeVar

import pytest

from turnlog import Turn, TurnLog
from turnlog.digest import payload_hash, sri_bytes
from turnlog.errors import IdConflictError, TurnlogError
from turnlog.events import Arrival, Citation, Event, Recorded, Seals, build, meta_text, private_part
from turnlog.ids import new_id
from turnlog.model import BytesRef, CallMeta
from turnlog.projections import synchronous
from turnlog.record.calls import CallDraft, plan_call
from turnlog.record.requests import request_payload
from turnlog.sources import Sources
from turnlog.store import FoldTransaction, Store, SyncProjection, Taken, WriteTransaction

T = TypeVar("T")

TOPIC = "test.event"

LARGE = 200_000
"""Bytes of a payload that engines with a place for large ones keep there."""

Change = Callable[[bytes], bytes | None]
"""What becomes of bytes that are kept; None where they go."""

WAIT_S = 60.0
"""How long to wait for what should come at once. It is never waited for in full unless something hangs."""

_sources = Sources()


class RefusedError(TurnlogError):
    """Be raised by a plan, or by the projection `Tally`, on purpose."""


class Tally(SyncProjection):
    """The number of events of each topic. It refuses the topic `test.refused`, and breaks on `test.broken`."""

    name = "tally"
    tables = ("tally",)
    schema = ("CREATE TABLE tally (topic TEXT PRIMARY KEY, events BIGINT NOT NULL)",)

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Count an event."""
        topic = recorded.header.topic
        transaction.run(
            "INSERT INTO tally VALUES (?, 1) ON CONFLICT (topic) DO UPDATE SET events = tally.events + 1", (topic,)
        )
        if topic == "test.refused":
            raise RefusedError("the projection refuses this event")
        if topic == "test.broken":
            raise ZeroDivisionError


class TwiceTally(Tally):
    """A later version of `Tally`: it counts every event twice."""

    version = 2

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Count an event, and once more."""
        super().apply(transaction, recorded)
        super().apply(transaction, recorded)


class Places(SyncProjection):
    """The place of every event, with an index; of what was erased, and of guests, too."""

    name = "places"
    tables = ("places",)
    schema = (
        "CREATE TABLE places (event_id TEXT PRIMARY KEY, stream TEXT NOT NULL, position BIGINT NOT NULL)",
        "CREATE INDEX places_by_stream ON places (stream, position)",
    )

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Write down what the transaction says of the event's place."""
        place = transaction.place(recorded.header.id)
        assert place is not None, "an event is there when it is folded"
        transaction.run("INSERT INTO places VALUES (?, ?, ?)", (recorded.header.id, *place))


class Engine:
    """How the suites open an engine. Subclasses of the suites give `open_store`."""

    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        """Open the store of a folder, which is empty the first time.

        An engine whose logs outlive their store opens the same log for the same folder; another a new one each time.
        """
        raise NotImplementedError

    def open_sealed(
        self,
        folder: Path,  # noqa: ARG002 - who gives this method looks at them
        projections: Sequence[SyncProjection],  # noqa: ARG002
        seals: Seals,  # noqa: ARG002
    ) -> Store:
        """Open the store of a folder with the keys of what is sealed, as `open_store` does without any.

        Without this method what opens with keys is not tested: each such test is skipped and says so.
        """
        pytest.skip("the suite's `open_sealed` is not given: nothing shows that what is sealed opens with its key")


class DurableEngine(Engine):
    """What the suites need of an engine whose logs outlive their store, to break these on purpose."""

    sabotage: ClassVar[Mapping[str, Sequence[str]]]
    """Statements in the engine's own SQL that do harm to the tables of a store, by what they do. All of these:

    - `swallow`: add something that makes the event table take no row, without an error.
    - `unguard`: take away what keeps events from being changed.
    - `weaken`: put something that lets events be changed in the place of it, under the same name.
    - `slow`: drop an index of the event table that no constraint needs.
    - `forget`: drop the table in which the store remembers its projections.
    - `upgrade`: give the store the next version, as a newer turnlog does.

    And one that only an engine has which can see such a thing; without it a test is skipped and says so:

    - `strand`: do harm that `Store.check` tells of, such as leaving a payload file that is of no event. The store has
      three events then, each with a payload of `LARGE` bytes.
    """

    def tamper(self, folder: Path, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement on the store of a folder behind turnlog's back, with nothing that guards it in its way.

        Args:
            folder: as `open_store` was given it.
            statement: one of SQL as SQLite and PostgreSQL share it, with `?` for parameters, or of `sabotage`.
            parameters: values for these.

        On return all that guards the store is as it was before, but for what the statement did to it.
        """
        raise NotImplementedError

    def tamper_payload(
        self,
        folder: Path,  # noqa: ARG002 - as above
        recorded: Recorded,  # noqa: ARG002
        change: Change,  # noqa: ARG002
    ) -> None:
        """Change a payload of `LARGE` bytes behind turnlog's back, wherever the engine keeps such ones.

        Args:
            folder: as `open_store` was given it.
            recorded: the event of the payload.
            change: returns what is to be kept from now on of what is; None for nothing at all.

        Engines whose payloads are files as those of `PayloadPlacer` have `change_payload_file` for it. Without this
        method a test is skipped and says so.
        """
        pytest.skip("the suite's `tamper_payload` is not given: nothing shows that changed large payloads are refused")


class StoreHarness(Engine):
    """Fixtures and helpers of the store suites."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Open a fresh store that keeps a tally, and close it at the end."""
        store = self.open_store(tmp_path, [Tally()])
        yield store
        store.close()


class DurableHarness(StoreHarness, DurableEngine):
    """Helpers of the suites for engines whose logs outlive their store."""

    def harm(self, folder: Path, kind: str) -> None:
        """Do the harm of a kind to the tables of a store."""
        for statement in self.sabotage[kind]:
            self.tamper(folder, statement)


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
    *,
    payload: bytes | None = None,
    id: str | None = None,
    stream: str | None = None,
    position: int = 0,
    topic: str = TOPIC,
    public: Mapping[str, Any] | None = None,
    private: Mapping[str, Any] | None = None,
    citations: Sequence[Citation] = (),
) -> Event:
    """Return an event that could be appended to a store: by default one that starts a stream of its own."""
    return build(
        topic=topic,
        id=id or new_id(),
        time=_sources.time_ms(),
        meta=meta_text(public or {}),
        private=private_part(
            private or {},
            hash=None if payload is None else payload_hash(payload),
            size=None if payload is None else len(payload),
            salt=_sources.salt(),
        ),
        citations=citations,
        stream=stream,
        position=position,
    )


def erased(event: Event) -> Event:
    """Return an event as it is once its private part and its payload are erased."""
    return Event(state=event.state, header=event.header, private_state=None, private=None, leaf_hash=event.leaf_hash)


def append(
    store: Store, *wanted: Event, payload: bytes | None = None, arrival: Arrival = Arrival.RECORDED
) -> list[Recorded]:
    """Append events in one transaction, each with the same payload.

    Raises:
        IdConflictError: the id or the position of one is taken; none is recorded.
    """
    plan = appending(store, *wanted, payload=payload, arrival=arrival)
    return store.write(plan)


def appending(
    store: Store, *wanted: Event, payload: bytes | None = None, arrival: Arrival = Arrival.RECORDED
) -> Callable[[WriteTransaction], list[Recorded]]:
    """Return a plan that appends events, all or none; see `append`."""
    placed = store.place(payload)

    def plan(transaction: WriteTransaction) -> list[Recorded]:
        return [recorded_or_raise(event, transaction.append(event, placed, arrival)) for event in wanted]

    return plan


def recorded_or_raise(event: Event, outcome: Recorded | Taken) -> Recorded:
    """Return what was recorded, or raise `IdConflictError` where something of the event is taken."""
    if isinstance(outcome, Taken):
        header = event.header
        what = {Taken.ID: f"id {header.id!r}", Taken.POSITION: f"position {header.position} of {header.stream!r}"}
        raise IdConflictError(f"{what[outcome]} is taken", event_id=header.id)
    return outcome


def append_run(store: Store, count: int, *, topic: str = TOPIC) -> list[Recorded]:
    """Append one stream of so many events, each in a transaction of its own."""
    stream = new_id()
    found: list[Recorded] = []
    for position in range(count):
        event = new_event(id=stream if position == 0 else None, stream=stream, position=position, topic=topic)
        found += append(store, event)
    return found


def change_payload_file(folder: Path, recorded: Recorded, change: Change) -> None:
    """Change the file, or the object in a folder, in which the payload of an event is kept.

    Args:
        folder: the payload folder.
        recorded: the event.
        change: returns what the file is to have of what it has; None for no file.
    """
    name = sri_bytes(recorded.stored_hash or "").hex()
    [file] = folder.glob(f"{name[:2]}/{name[2:]}*")
    changed = change(file.read_bytes())
    file.unlink()  # it may not be writable
    if changed is not None:
        file.write_bytes(changed)


def states(store: Store) -> list[bytes]:
    """Return the header bytes of all events, in global order."""
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


def projected(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables of a store's synchronous projections, by table."""
    with store.read() as transaction:
        return {
            table: sorted(transaction.rows(f"SELECT * FROM {table}"), key=repr)
            for projection in store.projections
            for table in projection.tables
        }


def folded_anew(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Return what these rows are when the log is folded from its start into empty tables."""
    with store.scratch() as scratch, store.read() as transaction:
        for recorded in transaction.log():
            scratch.fold(recorded)
        return {
            table: sorted(scratch.rows(f"SELECT * FROM {table}"), key=repr)
            for projection in store.projections
            for table in projection.tables
        }


def heads(log: TurnLog) -> dict[str, str]:
    """Return the bookmarks as a mapping from name to turn id."""
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def count(log: TurnLog) -> int:
    """Return the number of events in the log. The first one is its genesis."""
    return len(list(log.events()))


def record_call(log: TurnLog, turn: Turn) -> Recorded:
    """Record a model call that asked from a turn, with a request that does not matter."""
    request = b"{}"
    meta = CallMeta(
        turn=turn.id,
        provider="p",
        api="a",
        model="m",
        adapter="p",
        adapter_version="1",
        stream=False,
        request=BytesRef(hash=payload_hash(request), size=len(request)),
    )
    payload = log.store.place(request_payload([request], b"")[0])
    draft = CallDraft(meta=meta, payload=payload, id=new_id(), listing=None, listing_payload=None)
    return log.store.write(lambda transaction: plan_call(transaction, draft, _sources))


def in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """Call something in another thread, and return what waits for its result, or raises its error.

    Unlike with a pool nobody waits for a thread that comes to no end: its test fails, and the others run.

    Raises:
        TimeoutError: on waiting: there was no result within `WAIT_S`.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised to whoever waits
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return lambda: outcome.result(WAIT_S)


def text_of(size: int) -> bytes:
    """Return so many bytes that compress well."""
    return (b"the quick brown fox jumps over the lazy dog. " * (size // 45 + 1))[:size]
