"""Read and write transactions on a SQLite cursor. All SQL on the event table that reads or appends is here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from turnlog.digest import sri_bytes
from turnlog.errors import SchemaError
from turnlog.events import SEAL, Arrival, Event, Recorded, Seals
from turnlog.events.form import recorded as in_place
from turnlog.store.log_read import LogRead
from turnlog.store.log_write import Knowledge, LogWrite
from turnlog.store.payloads import FILES, PayloadPlacer
from turnlog.store.sqlite.schema import OBJECTS
from turnlog.store.transactions import SideTables, SQLRow, SyncProjection
from turnlog.store.values import NewPayload, Placement, SealPolicy, Taken

_MARK = "sealing"
"""A table that is there for no longer than a statement, to change SQLite's count of schema changes."""
# Spelled small: `sqlite3` before Python 3.13 knows a statement by its first word, which it compares as the locale does,
# and counts no row for one with an I where that is Turkish.
_INSERT = (
    "insert into stored_events (originator_id, originator_version, topic, state, event_id, leaf_hash, arrival, private,"
    " payload_placement, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


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

    def each(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[SQLRow]:
        """Run a statement and iterate over the rows of its result; other statements may run meanwhile."""
        yield from self._cursor.connection.execute(statement, parameters)


class SQLiteRead(SQLiteSQL, LogRead):
    """One snapshot of a log. See `turnlog.store.interface.ReadTransaction`."""

    def __init__(self, cursor: sqlite3.Cursor, payloads: PayloadPlacer, seals: Seals | None) -> None:
        """Take a cursor inside a transaction, and the keys of what is sealed."""
        SQLiteSQL.__init__(self, cursor)
        LogRead.__init__(self, payloads, seals)

    def has(self, side: SideTables | SyncProjection) -> bool:
        """Tell whether the store has all tables of side tables, or of a projection."""
        marks = ", ".join("?" * len(side.tables))
        found = self.rows(f"{OBJECTS} WHERE type = 'table' AND name IN ({marks})", side.tables)
        return len(found) == len(side.tables)


class SQLiteWrite(SQLiteRead, LogWrite):
    """A write transaction at the end of the log. See `turnlog.store.interface.WriteTransaction`."""

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        payloads: PayloadPlacer,
        projections: Sequence[SyncProjection],
        *,
        seals: Seals | None,
        policy: SealPolicy | None,
        known: Knowledge | None = None,
    ) -> None:
        """Take a cursor inside a write transaction, what is sealed, and what is known of the log."""
        self._cursor = cursor
        LogWrite.__init__(self, payloads, projections, seals=seals, policy=policy, known=known)

    def append(self, event: Event, payload: NewPayload, arrival: Arrival = Arrival.RECORDED) -> Recorded | Taken:
        """Append one event and fold it into the projections, or say what of it is taken."""
        header = event.header
        placement, stored = payload.placement, payload.stored
        if event.private_state is None and event.erased:
            placement, stored = Placement.ERASED, None
        elif payload.file is not None or placement in FILES:
            stored = sri_bytes(payload.hash or "")
        cursor = self._cursor
        cursor.execute(
            _INSERT,
            (
                header.stream,
                header.position,
                header.topic,
                event.state,
                header.id,
                event.leaf_hash,
                # As plain numbers: for those of other classes the driver looks for adapters, each time.
                int(arrival),
                event.private_state,
                int(placement),
                stored,
            ),
        )
        if cursor.rowcount != 1:
            return self._taken(event)
        recorded = in_place(event, cursor.lastrowid or 0, arrival)
        recorded = self._folded(recorded if event.sealed is None else self.opened(recorded), payload)
        if header.topic == SEAL:
            # Whoever appends next, in whatever process, looks again at what is sealed.
            cursor.execute(f"CREATE TABLE {_MARK} (mark INTEGER)")
            cursor.execute(f"DROP TABLE {_MARK}")
            self._policy = self._said_sealed()
        return recorded

    def _taken(self, event: Event) -> Taken:
        header = event.header
        found = self.rows(
            "SELECT event_id = ? FROM stored_events"
            " WHERE event_id = ? OR (originator_id = ? AND originator_version = ?)",
            (header.id, header.id, header.stream, header.position),
        )
        if found:
            return Taken.ID if (1,) in found else Taken.POSITION
        raise SchemaError(
            f"event {event.header.id!r} did not go into the store, though nothing of it is taken: "
            "something swallows what is written, run `turnlog verify`"
        )
