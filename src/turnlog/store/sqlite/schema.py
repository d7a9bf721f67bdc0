"""The tables of a SQLite store, and how a file is known to be one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

from turnlog.store.rows import IN_FILES, RARE
from turnlog.store.transactions import SideTables, SyncProjection

APPLICATION_ID = 0x74726E6C
"""`PRAGMA application_id` of a turnlog store: the letters trnl."""

VERSION = 2
"""`PRAGMA user_version`: the version of the tables. Version 1 was never released; every one from 2 on can be opened."""

VERSION_MIN = 2

PAGE_BYTES = 8192
"""The page size of a new store: most rows have about 1 KiB, and what is left of a page at its end is lost."""

# The first five columns have the names and the meaning of eventsourcing's table of stored events. SQLite gives a row
# the largest key plus one. Rows never go, so no key is given twice and keys have no gaps.
EVENTS = """\
CREATE TABLE stored_events (
  notification_id INTEGER PRIMARY KEY,
  originator_id TEXT NOT NULL,
  originator_version INTEGER NOT NULL,
  topic TEXT NOT NULL,
  state BLOB NOT NULL,
  event_id TEXT NOT NULL UNIQUE,
  leaf_hash BLOB NOT NULL,
  arrival INTEGER NOT NULL,
  private BLOB,
  payload_placement INTEGER NOT NULL,
  payload BLOB,
  UNIQUE (originator_id, originator_version)
)"""

NO_DELETE = """\
CREATE TRIGGER stored_events_no_delete BEFORE DELETE ON stored_events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"""

NO_UPDATE = """\
CREATE TRIGGER stored_events_no_update
BEFORE UPDATE OF notification_id, originator_id, originator_version, topic, state, event_id, leaf_hash, arrival
ON stored_events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"""

NO_PRIVATE_UPDATE = """\
CREATE TRIGGER stored_events_no_private_update
BEFORE UPDATE OF private ON stored_events WHEN NEW.private IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a private part can be erased, not changed'); END"""

# It costs appends of turns and calls nothing, and finds pointers, servers and the like in a log of millions.
RARE_TOPICS = f"CREATE INDEX stored_events_rare ON stored_events (topic, notification_id) WHERE {RARE}"

# Which events share a payload file. It costs nothing where there is none.
FILES = f"CREATE INDEX stored_events_files ON stored_events (payload) WHERE {IN_FILES}"

PROJECTIONS = "CREATE TABLE store_projections (name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID"
"""The projections that the store has, each with the version that it was built with."""

STATEMENTS = (EVENTS, NO_DELETE, NO_UPDATE, NO_PRIVATE_UPDATE, RARE_TOPICS, FILES, PROJECTIONS)

SCRUBS = "store_scrubs"
"""A table that is there while what was erased may still be found in the files of the store."""

SchemaRow = tuple[str, str, str, str | None]
"""Type, name, table and SQL of an object of a schema."""

OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master"


def dialect(statement: str) -> str:
    """Return a statement that makes a projection's table as SQLite should have it: kept by its primary key."""
    return f"{statement} WITHOUT ROWID" if statement.startswith("CREATE TABLE") else statement


def projection_statements(projection: SyncProjection) -> list[str]:
    """Return the statements that make the tables of a projection."""
    return [dialect(statement) for statement in projection.schema]


def expected_objects(projections: Iterable[SyncProjection]) -> dict[str, SchemaRow]:
    """Return what a store has, by name."""
    statements = [*STATEMENTS, *(sql for projection in projections for sql in projection_statements(projection))]
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.execute(statement)
        return {row[1]: row for row in connection.execute(OBJECTS)}


def side_objects(side: SideTables) -> dict[str, SchemaRow]:
    """Return what side tables are made of, by name."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in side.schema:
            connection.execute(dialect(statement))
        return {row[1]: row for row in connection.execute(OBJECTS)}


def built_projections(cursor: sqlite3.Cursor) -> dict[str, int] | None:
    """Return the version that each projection of a store was built with, by name; None if the store does not say."""
    if not cursor.execute(f"{OBJECTS} WHERE type = 'table' AND name = 'store_projections'").fetchall():
        return None
    return dict(cursor.execute("SELECT name, version FROM store_projections").fetchall())


def schema_flaws(
    expected: dict[str, SchemaRow], actual: Sequence[SchemaRow], sides: Sequence[SideTables] = ()
) -> list[str]:
    """Return what a store lacks, and what could change what turnlog writes to it, one line each.

    Tables of others are none of these. Of side tables a store has all or none.
    """
    found = {row[1]: row for row in actual}
    for side in sides:
        if not found.keys().isdisjoint(side.tables):
            expected = expected | side_objects(side)
    flaws = [f"{kind} {name!r} is missing" for name, (kind, *_) in expected.items() if name not in found]
    flaws += [
        f"{kind} {name!r} is not what it should be"
        for name, (kind, table, sql) in ((name, (row[0], row[2], row[3])) for name, row in found.items())
        if name in expected and expected[name] != (kind, name, table, sql)
    ]
    tables = {row[2] for row in expected.values()}
    flaws += [
        f"{kind} {name!r} on table {table!r} is none of turnlog's, and must be dropped"
        for kind, name, table, _ in found.values()
        if name not in expected and (kind == "trigger" or (table in tables and kind != "table"))
    ]
    return sorted(flaws)
