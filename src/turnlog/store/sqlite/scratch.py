"""A temporary database that the log is folded into anew: for verification, and to build projections."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from turnlog.errors import StoreError
from turnlog.events import Recorded
from turnlog.store.sqlite.errors import DRIVER_ERRORS, lacking, store_error
from turnlog.store.sqlite.schema import projection_statements
from turnlog.store.sqlite.transactions import SQLiteSQL
from turnlog.store.transactions import SQLRow, SyncProjection
from turnlog.store.values import Folded

RECENT_MAX = 16_384
"""What is known of so many events is kept in memory, and of as many before them. It takes about 15 MB."""

_PLACE = "temporary file"
_TOPIC_CHARACTERS_MAX = 200
_POSITION_BITS = 63
_EVENTS = (
    "CREATE TABLE scratch_events (event_id TEXT PRIMARY KEY, stream TEXT NOT NULL, position INTEGER NOT NULL,"
    " leaf_hash BLOB NOT NULL, topic TEXT NOT NULL, global_position INTEGER NOT NULL) WITHOUT ROWID"
)


class SQLiteScratch(SQLiteSQL):
    """See `turnlog.store.interface.ScratchTransaction`."""

    def __init__(self, cursor: sqlite3.Cursor, projections: Sequence[SyncProjection], recent_max: int) -> None:
        """Take a cursor on an empty database, and of how many events to keep in memory what is known of them."""
        super().__init__(cursor)
        self._projections = projections
        self._recent_max = recent_max
        self._recent: dict[str, Folded] = {}
        self._before: dict[str, Folded] = {}
        self._written: _Written | None = None
        for statement in (_EVENTS, *(sql for projection in projections for sql in projection_statements(projection))):
            self.run(statement)

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
        """Run a statement and return all rows of its result."""
        with _converted():
            return super().rows(statement, parameters)

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that has no result."""
        with _converted():
            super().run(statement, parameters)

    def each(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[SQLRow]:
        """Run a statement and iterate over the rows of its result; other statements may run meanwhile."""
        with _converted():
            yield from super().each(statement, parameters)

    def place(self, event_id: str) -> tuple[str, int] | None:
        """Return the stream and the position of an event that is folded already, None for an unknown one."""
        found = self.folded(event_id)
        return None if found is None else (found.stream, found.position)

    def folded(self, event_id: str) -> Folded | None:
        """Return what is known of an event that is folded already, None for an unknown one."""
        found = self._recent.get(event_id) or self._before.get(event_id)
        if found is None and self._written is not None and self._written.may_have(event_id):
            rows = self.rows("SELECT * FROM scratch_events WHERE event_id = ?", (event_id,))
            return Folded(*rows[0]) if rows else None
        return found

    def fold(self, recorded: Recorded) -> None:
        """Note an event, and fold it into the projections.

        Raises:
            StoreFullError: there is no space for it.
            StoreError: it breaks a rule of a projection's tables, as only events of a damaged log do.
        """
        header = recorded.header
        if header.position >> _POSITION_BITS:
            raise StoreError(f"position {header.position} is that of no event")
        if len(self._recent) >= self._recent_max:
            self._write()
        topic = header.topic[:_TOPIC_CHARACTERS_MAX]
        self._recent[header.id] = Folded(
            header.id, header.stream, header.position, recorded.leaf_hash, topic, recorded.global_position
        )
        for projection in self._projections:
            projection.apply(self, recorded)

    def _write(self) -> None:
        """Write down what is known of the events before the recent ones, which take their place."""
        if self._before:
            with _converted():
                self._cursor.executemany(
                    "INSERT OR REPLACE INTO scratch_events VALUES (?, ?, ?, ?, ?, ?)", self._before.values()
                )
            self._written = self._written or _Written()
            for event_id in self._before:
                self._written.add(event_id)
        self._before, self._recent = self._recent, {}


class _Written:
    """Tells of most ids that they were not written down, without a look into the database: a Bloom filter."""

    _BITS = 1 << 25
    """4 MiB. With a million events it errs on one id in 300, with ten millions on one in five."""

    def __init__(self) -> None:
        """Begin with none."""
        self._bytes = bytearray(self._BITS >> 3)

    def may_have(self, event_id: str) -> bool:
        """Tell whether an id may have been written down: false is certain."""
        number = hash(event_id)
        one, other = number & (self._BITS - 1), (number >> 32) & (self._BITS - 1)
        return bool(self._bytes[one >> 3] >> (one & 7) & 1 and self._bytes[other >> 3] >> (other & 7) & 1)

    def add(self, event_id: str) -> None:
        """Note that an id was written down."""
        number = hash(event_id)
        one, other = number & (self._BITS - 1), (number >> 32) & (self._BITS - 1)
        self._bytes[one >> 3] |= 1 << (one & 7)
        self._bytes[other >> 3] |= 1 << (other & 7)


@contextmanager
def scratch(projections: Sequence[SyncProjection], *, recent_max: int = RECENT_MAX) -> Generator[SQLiteScratch]:
    """Open an empty temporary database with the tables of projections. It is gone on leaving."""
    with _converted():
        # The empty name is a database on disk that SQLite deletes: what is folded may be larger than the memory.
        connection = sqlite3.connect("", isolation_level=None)
    with closing(connection):
        with _converted():
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            cursor = connection.cursor()
            cursor.execute("BEGIN")
        yield SQLiteScratch(cursor, projections, recent_max)


@contextmanager
def _converted() -> Generator[None]:
    """Raise what SQLite raises of the temporary database as turnlog's own: of no other one."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise _error(error) from error


def _error(error: BaseException) -> StoreError:
    folder = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"
    more = ", or name another folder for them in SQLITE_TMPDIR; nothing was recorded"
    return lacking(error, "SQLite's temporary files", Path(folder, _PLACE), more) or store_error(error, _PLACE)
