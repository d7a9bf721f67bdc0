"""Verification of a store: every stored byte, every hash, every projection."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from msgspec import Struct

from turnlog import events
from turnlog.digest import leaf_hash, sri_bytes
from turnlog.errors import CorruptionError, StoreBusyError, StoreClosedError, StoreError, TurnlogError
from turnlog.events import Event, Recorded
from turnlog.store import Placement, ReadTransaction, SQLRow, SQLTransaction, Store

Progress = Callable[[int, int], None]
_PAGE_EVENTS = 500


class Damage(Struct, frozen=True, kw_only=True):
    """Something that is not as it was recorded.

    Attributes:
        global_position: the event's place in the log, or None when it is not of one event.
        event_id: the event's id, where it could be read.
        what: one line that says what is wrong.
    """

    what: str
    global_position: int | None = None
    event_id: str | None = None


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What a verification read and found.

    Attributes:
        events: number of events that were read.
        payloads: number of payloads that were read and hashed.
        payload_bytes: bytes of these payloads.
        damage: what is wrong, in the order in which it was found; empty if all is well.
    """

    events: int
    payloads: int
    payload_bytes: int
    damage: tuple[Damage, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


class _Chain(Struct):
    """What the events read so far say of the log, apart from any index."""

    leaves: dict[str, bytes]
    """Id to leaf hash."""
    ends: dict[str, tuple[int, str]]
    """Stream to the position and the id of its last event."""


def verify(store: Store, *, progress: Progress | None = None) -> VerifyReport:
    """Read the whole store again and check it.

    Checked are: the engine's own structures; that global positions have no gap; each event's bytes against its leaf
    hash, and its columns against its bytes; ids; positions in streams; parents and their digests; each payload against
    its hash and size; and that each synchronous projection equals its rebuild from the events.
    """
    report = _Verification(store, progress)
    return report.run()


class _Verification:
    def __init__(self, store: Store, progress: Progress | None) -> None:
        self._store = store
        self._progress = progress
        self._damage: list[Damage] = []
        self._chain = _Chain(leaves={}, ends={})
        self._events = self._payloads = self._payload_bytes = 0

    def run(self) -> VerifyReport:
        try:
            self._damage += [Damage(what=what, global_position=at) for at, what in self._store.check()]
            with self._store.read() as transaction, self._store.scratch() as scratch:
                self._log(transaction, scratch)
                self._projections(transaction, scratch)
        except (StoreBusyError, StoreClosedError):
            raise
        except StoreError as error:
            self._damage.append(Damage(what=str(error), global_position=getattr(error, "global_position", None)))
        return VerifyReport(
            events=self._events,
            payloads=self._payloads,
            payload_bytes=self._payload_bytes,
            damage=tuple(self._damage),
        )

    def _found(self, what: str, global_position: int, event: Event | None = None) -> None:
        self._damage.append(Damage(what=what, global_position=global_position, event_id=event.id if event else None))

    def _log(self, transaction: ReadTransaction, scratch: SQLTransaction) -> None:
        [(count, last)] = transaction.rows("SELECT COUNT(*), COALESCE(MAX(notification_id), 0) FROM stored_events")
        if count != last:
            self._damage.append(Damage(what=f"the log has {count} events and ends at global position {last}"))
        scratch.run(
            "CREATE TABLE stored_events (event_id TEXT PRIMARY KEY, originator_id TEXT, originator_version INTEGER)"
        )
        after = 0
        while page := transaction.rows(
            "SELECT notification_id, originator_id, originator_version, topic, event_id, state, leaf_hash,"
            " payload_placement FROM stored_events WHERE notification_id > ? ORDER BY notification_id LIMIT ?",
            (after, _PAGE_EVENTS),
        ):
            for row in page:
                if row[0] != after + 1:
                    self._found(f"global positions {after + 1} to {row[0] - 1} are missing", after + 1)
                after = row[0]
                self._event(transaction, scratch, row)
            if self._progress is not None:
                self._progress(self._events, count)

    def _event(self, transaction: ReadTransaction, scratch: SQLTransaction, row: SQLRow) -> None:
        at, stream, position, topic, event_id, state, leaf, placement = row
        self._events += 1
        if type(state) is not bytes:
            self._found("the event is not stored as bytes", at)
            return
        if leaf_hash(state) != leaf:
            self._found("the event's bytes do not have the leaf hash that was stored with them", at)
        try:
            event = events.decode(state, global_position=at)
            wrong = events.flaw(event, state)
        except (TurnlogError, RecursionError) as error:
            self._found(str(error), at)
            return
        if wrong is not None:
            self._found(f"the event is malformed: {wrong}", at, event)
        if (event.stream, event.position, event.topic, event.id) != (stream, position, topic, event_id):
            self._found("stream, position, topic or id beside the event are not those in its bytes", at, event)
        if event.hash is None and placement != Placement.NONE:
            self._found("a payload is kept beside an event that has none", at, event)
        if event.id in self._chain.leaves:
            self._found("an earlier event has the same id", at, event)
        self._place(event, at)
        self._payload(transaction, event, at, state)
        self._chain.leaves[event.id] = leaf_hash(state)
        self._chain.ends[event.stream] = (event.position, event.id)
        scratch.run("INSERT OR REPLACE INTO stored_events VALUES (?, ?, ?)", (event.id, event.stream, event.position))
        try:
            for projection in self._store.projections:
                projection.apply(scratch, event, at)
        except Exception as error:  # noqa: BLE001 - a damaged event may break any rule that a projection relies on
            self._found(f"the event cannot be folded: {error}", at, event)

    def _place(self, event: Event, at: int) -> None:
        end = self._chain.ends.get(event.stream)
        follows = event.position == 0 if end is None else event.position == end[0] + 1
        if not follows or (end is None and event.stream != event.id):
            self._found(f"the event does not follow in stream {event.stream!r} at position {event.position}", at, event)
        if end is not None and (not event.parents or event.parents[0].id != end[1]):
            self._found("the event extends a stream whose last turn is not its first parent", at, event)
        for parent in event.parents:
            known = self._chain.leaves.get(parent.id)
            if known is None:
                self._found(f"parent {parent.id!r} is not among the earlier events", at, event)
                continue
            try:
                cited = sri_bytes(parent.digest)
            except ValueError:
                cited = b""
            if cited != known:
                self._found(f"the digest of parent {parent.id!r} is not the one that is cited", at, event)

    def _payload(self, transaction: ReadTransaction, event: Event, at: int, state: bytes) -> None:
        try:
            payload = transaction.payload(Recorded(global_position=at, state=state, event=event))
        except CorruptionError as error:
            self._found(str(error), at, event)
            return
        if payload is not None:
            self._payloads += 1
            self._payload_bytes += len(payload)
            if len(payload) != event.size:
                self._found(f"the payload has {len(payload)} bytes, the event says {event.size}", at, event)

    def _projections(self, transaction: ReadTransaction, scratch: SQLTransaction) -> None:
        tables = [(p.name, table) for p in self._store.projections for table in p.tables]
        for name, table in tables:
            query = f"SELECT * FROM {table}"
            # By their text: in a damaged table values of any type stand side by side.
            found, expected = (sorted(rows, key=repr) for rows in (transaction.rows(query), scratch.rows(query)))
            for stored, rebuilt in zip_longest(found, expected):
                if stored != rebuilt:
                    self._damage.append(
                        Damage(what=f"the {name} differs from its rebuild: {table} has {stored}, rebuilt {rebuilt}")
                    )
                    break
