"""Building projections from the log, in place, while others append.

See `turnlog.store.folding`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from turnlog.store.folding import Progress, Reading, fold_anew
from turnlog.store.sqlite.schema import OBJECTS, STATEMENTS, expected_objects, projection_statements
from turnlog.store.sqlite.scratch import SQLiteScratch, scratch
from turnlog.store.sqlite.transactions import SQLiteRead
from turnlog.store.telling import Teller
from turnlog.store.transactions import SyncProjection

_log = Teller("turnlog.store")


def rebuild(
    projections: Sequence[SyncProjection],
    reading: Reading,
    writing: Callable[[], AbstractContextManager[tuple[sqlite3.Cursor, SQLiteRead]]],
    progress: Progress | None = None,
) -> None:
    """Build projections anew from the log and put them in the place of what is there.

    Args:
        projections: which.
        reading: opens a snapshot.
        writing: takes the write lock, and commits on leaving.
        progress: called with events done and events in all.
    """
    _log.info("building %s anew from the log", ", ".join(projection.name for projection in projections))

    def put(cursor: sqlite3.Cursor, target: SQLiteScratch) -> None:
        replace_tables(cursor, projections, target)

    fold_anew(lambda: scratch(projections), reading, writing, put, progress)


def replace_tables(cursor: sqlite3.Cursor, projections: Sequence[SyncProjection], target: SQLiteScratch) -> None:
    """Put tables that were folded elsewhere in the place of those of projections."""
    present = {name: kind for kind, name, *_ in cursor.execute(OBJECTS).fetchall()}
    for projection in projections:
        for table in projection.tables:
            if table in present:
                cursor.execute(f"DROP {present[table].upper()} {table}")
        for statement in projection_statements(projection):
            cursor.execute(statement)
        for table in projection.tables:
            columns = len(target.rows(f"SELECT * FROM pragma_table_info('{table}')"))
            values = ", ".join("?" * columns)
            cursor.executemany(f"INSERT INTO {table} VALUES ({values})", target.each(f"SELECT * FROM {table}"))
        cursor.execute(
            "INSERT INTO store_projections VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            (projection.name, projection.version),
        )


def restore_objects(cursor: sqlite3.Cursor) -> None:
    """Make the engine's own tables, indexes and triggers that are missing, but for the log itself."""
    present = {row[1] for row in cursor.execute(OBJECTS).fetchall()}
    for statement, name in zip(STATEMENTS, _NAMES, strict=True):
        if name not in present:
            cursor.execute(statement)


_NAMES = tuple(name for name in expected_objects(()) if not name.startswith("sqlite_autoindex"))
"""Names of what `STATEMENTS` make, in their order."""
