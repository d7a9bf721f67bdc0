"""Rows of tables from one SQLite database to another, as a projection is put in place that was built beside."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

_WITHOUT_ROWID = re.compile(r"\)[^)]*\bWITHOUT\s+ROWID\b[^)]*\Z", re.IGNORECASE)
"""How the statement of a table ends that has no rowids."""


def copy_all(source: sqlite3.Cursor, db: sqlite3.Cursor, tables: Sequence[str]) -> None:
    """Have the rows in tables that were built: no more where the schema has put some there, or triggers do."""
    with suppress(sqlite3.IntegrityError):
        _copy_each(source, db, tables)
        if all(_count(db, table) == _count(source, table) for table in tables):
            return
    # What one is given, triggers of another one have put there too: now none of them acts.
    found = db.execute("SELECT name, sql, tbl_name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    own = {table.lower() for table in tables}
    triggers = [(name, statement) for name, statement, table in found if table.lower() in own]
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {quoted(name)}")
    _copy_each(source, db, tables)
    for _, statement in triggers:
        db.execute(statement)


def _copy_each(source: sqlite3.Cursor, db: sqlite3.Cursor, tables: Sequence[str]) -> None:
    for table in tables:
        db.execute(f"DELETE FROM {quoted(table)}")
        _copy(source, db, table)


def _count(db: sqlite3.Cursor, table: str) -> int:
    [(count,)] = db.execute(f"SELECT COUNT(*) FROM {quoted(table)}").fetchall()
    return count


def _copy(source: sqlite3.Cursor, db: sqlite3.Cursor, table: str) -> None:
    [(options,)] = source.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (table,)
    ).fetchall()
    ordered = "" if _WITHOUT_ROWID.search(options) else " ORDER BY rowid"
    columns = [name for _, name, *_ in source.execute(f"PRAGMA table_info({quoted(table)})").fetchall()]
    marks = ", ".join("?" * len(columns))
    names = ", ".join(map(quoted, columns))
    db.executemany(
        f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})",
        _rows(source.connection, f"SELECT {names} FROM {quoted(table)}{ordered}"),
    )


def quoted(name: str) -> str:
    """Return the name of a table or a column as a statement has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _rows(connection: sqlite3.Connection, statement: str) -> Iterator[Sequence[Any]]:
    yield from connection.cursor().execute(statement)
