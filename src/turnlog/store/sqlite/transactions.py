"""Read and write transactions on a SQLite cursor."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from turnlog import events
from turnlog.digest import leaf_hash
from turnlog.errors import CorruptionError, IdConflictError, PositionTakenError
from turnlog.events import FREQUENT_TOPICS, Event, Recorded
from turnlog.store.interface import NewPayload, SQLRow, SyncProjection
from turnlog.store.payloads import FILES, INLINE_FORM, PayloadPlacer
from turnlog.store.sqlite.schema import PAYLOAD, RARE, RECORDED

_PAGE_EVENTS = 1000


class SQLiteSQL:
    """SQL on one cursor: what projections see."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        """Take a cursor inside a transaction."""
        self._cursor = cursor

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""
        return self._cursor.execute(statement, parameters).fetchall()

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result."""
        self._cursor.execute(statement, parameters)


class SQLiteRead(SQLiteSQL):
    """One snapshot of a log. See `turnlog.store.interface.ReadTransaction`."""

    def __init__(self, cursor: sqlite3.Cursor, payloads: PayloadPlacer) -> None:
        """Take a cursor inside a transaction."""
        super().__init__(cursor)
        self._payloads = payloads

    def event(self, event_id: str) -> Recorded | None:
        """Return the event of an id, or None."""
        return self._one(f"SELECT {RECORDED} FROM stored_events WHERE event_id = ?", (event_id,))

    def at(self, stream: str, position: int) -> Recorded | None:
        """Return the event at a position of a stream, or None."""
        return self._one(
            f"SELECT {RECORDED} FROM stored_events WHERE originator_id = ? AND originator_version = ?",
            (stream, position),
        )

    def stream(self, stream: str, first: int, last: int) -> list[Recorded]:
        """Return the events of a stream from position `first` to `last`, both included, in order."""
        rows = self.rows(
            f"SELECT {RECORDED} FROM stored_events WHERE originator_id = ?"
            " AND originator_version BETWEEN ? AND ? ORDER BY originator_version",
            (stream, first, last),
        )
        return [_recorded(*row) for row in rows]

    def stream_end(self, stream: str) -> Recorded:
        """Return the last event of a stream that there is."""
        found = self._one(
            f"SELECT {RECORDED} FROM stored_events WHERE originator_id = ? ORDER BY originator_version DESC LIMIT 1",
            (stream,),
        )
        if found is None or found.event.stream != stream:
            raise CorruptionError(f"the end of stream {stream!r} cannot be found: run `turnlog verify`")
        return found

    def stream_payloads(self, stream: str, first: int, last: int) -> list[tuple[Recorded, bytes | None]]:
        """Return the same with each event's payload, checked against its hash; None where there is none."""
        rows = self.rows(
            f"SELECT {RECORDED}, {PAYLOAD} FROM stored_events WHERE originator_id = ?"
            " AND originator_version BETWEEN ? AND ? ORDER BY originator_version",
            (stream, first, last),
        )
        found: list[tuple[Recorded, bytes | None]] = []
        for global_position, state, placement, stored in rows:
            recorded = _recorded(global_position, state)
            found.append((recorded, self._load(recorded, placement, stored)))
        return found

    def payload(self, recorded: Recorded) -> bytes | None:
        """Return the payload of an event, checked against its hash; None where there is none."""
        rows = self.rows(f"SELECT {PAYLOAD} FROM stored_events WHERE notification_id = ?", (recorded.global_position,))
        if not rows:
            raise CorruptionError(
                f"event {recorded.event.id!r} cannot be found again: run `turnlog verify`",
                global_position=recorded.global_position,
            )
        return self._load(recorded, *rows[0])

    def _load(self, recorded: Recorded, placement: int, stored: bytes | None) -> bytes | None:
        return self._payloads.load(recorded.event, placement, stored, global_position=recorded.global_position)

    def log(self, after: int = 0, *, topics: Sequence[str] = ()) -> Iterator[Recorded]:
        """Iterate over the events with a global position above `after`, in order."""
        only = f" AND topic IN ({', '.join('?' * len(topics))})" if topics else ""
        at = "notification_id"
        if topics and not set(topics) & set(FREQUENT_TOPICS):
            # The plus keeps SQLite from walking through the whole log in its order, for the few that are asked for.
            only, at = f"{only} AND {RARE}", "+notification_id"
        statement = f"SELECT {RECORDED} FROM stored_events WHERE {at} > ?{only} ORDER BY {at}"
        while True:
            page = self.rows(f"{statement} LIMIT {_PAGE_EVENTS}", (after, *topics))
            for row in page:
                yield _recorded(*row)
            if len(page) < _PAGE_EVENTS:
                return
            after = page[-1][0]

    def log_backwards(self, before: int, *, topics: Sequence[str]) -> Iterator[Recorded]:
        """Iterate over the events of some topics with a global position below `before`, the last one first."""
        statement = (
            f"SELECT {RECORDED} FROM stored_events WHERE notification_id < ? AND topic IN"
            f" ({', '.join('?' * len(topics))}) ORDER BY notification_id DESC LIMIT {_PAGE_EVENTS}"
        )
        while page := self.rows(statement, (before, *topics)):
            for row in page:
                yield _recorded(*row)
            before = page[-1][0]

    def log_end(self) -> int:
        """Return the global position of the last event, 0 in an empty log."""
        return self.rows("SELECT COALESCE(MAX(notification_id), 0) FROM stored_events")[0][0]

    def last(self, topic: str, *, before: int | None = None) -> Recorded | None:
        """Return the last event of a topic below the global position `before`; None if there is none."""
        bound = "" if before is None else " AND notification_id < ?"
        if topic not in FREQUENT_TOPICS:
            bound += f" AND {RARE}"
        return self._one(
            f"SELECT {RECORDED} FROM stored_events WHERE topic = ?{bound} ORDER BY notification_id DESC LIMIT 1",
            (topic,) if before is None else (topic, before),
        )

    def _one(self, statement: str, parameters: Sequence[object]) -> Recorded | None:
        rows = self.rows(statement, parameters)
        return _recorded(*rows[0]) if rows else None


class SQLiteWrite(SQLiteRead):
    """A write transaction at the end of the log. See `turnlog.store.interface.WriteTransaction`."""

    def __init__(self, cursor: sqlite3.Cursor, payloads: PayloadPlacer, projections: Sequence[SyncProjection]) -> None:
        """Take a cursor inside a write transaction."""
        super().__init__(cursor, payloads)
        self._projections = projections
        self.appended: list[NewPayload] = []

    def keep_payloads(self) -> None:
        """Write the payloads that are kept as files, once nothing of the plan can fail any more."""
        for payload in self.appended:
            self._payloads.keep(payload)

    def _load(self, recorded: Recorded, placement: int, stored: bytes | None) -> bytes | None:
        if placement in FILES:
            for placed in self.appended:
                if placed.hash == recorded.event.hash:
                    return self._payloads.load(
                        recorded.event, INLINE_FORM[placed.placement], placed.stored, global_position=None
                    )
        return super()._load(recorded, placement, stored)

    def append(self, state: bytes, event: Event, payload: NewPayload) -> Recorded:
        """Append one event and fold it into the projections."""
        cursor = self._cursor
        try:
            cursor.execute(
                "INSERT INTO stored_events (originator_id, originator_version, topic, state, event_id, leaf_hash,"
                " payload_placement, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    event.stream,
                    event.position,
                    event.topic,
                    state,
                    event.id,
                    leaf_hash(state),
                    payload.placement,
                    None if payload.placement in FILES else payload.stored,
                ),
            )
        except sqlite3.IntegrityError as error:
            if self.event(event.id) is not None:
                raise IdConflictError(f"id {event.id!r} is taken by another event", event_id=event.id) from error
            raise PositionTakenError(
                f"position {event.position} of stream {event.stream!r} is taken by another event", event_id=event.id
            ) from error
        self.appended.append(payload)
        global_position = cursor.lastrowid or 0
        for projection in self._projections:
            projection.apply(self, event, global_position)
        return Recorded(global_position=global_position, state=state, event=event)


def _recorded(global_position: object, state: object) -> Recorded:
    if type(global_position) is not int or type(state) is not bytes:
        raise CorruptionError(f"event at global position {global_position} cannot be read: its row is damaged")
    return Recorded(
        global_position=global_position, state=state, event=events.decode(state, global_position=global_position)
    )
