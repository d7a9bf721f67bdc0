"""Erasing in a SQLite store: taking content away in one transaction, and then out of the files.

An erased value leaves traces: in pages that are free or were split long ago, in the write-ahead log, in the names of
payload files. `PRAGMA secure_delete` reaches none of those that are older than the erasure. So the database is written
anew (`VACUUM`), and the write-ahead log emptied. Until that is done the store has a table that says so, made in the
transaction that erases: whoever opens the store next goes on with it.

That table also changes SQLite's count of schema changes with each erasure, by which other processes see that what they
keep in memory of the last events is not to be used any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from turnlog.errors import ConflictError
from turnlog.events import Recorded
from turnlog.store.payloads import FILES, Condemned, PayloadPlacer
from turnlog.store.sqlite.errors import store_error
from turnlog.store.sqlite.schema import OBJECTS, SCRUBS, SchemaRow
from turnlog.store.sqlite.transactions import SQLiteRead
from turnlog.store.transactions import SQLRow
from turnlog.store.values import Placement

IN_MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""A larger database is written anew by way of a temporary file, which has no name and none of what was erased."""

SCRUB_WAIT_S = 1.0
"""How long to wait for others, in seconds, where it can be done later as well."""

_PAUSE_S = 0.005

_MAKE = f"CREATE TABLE {SCRUBS} (erased_to INTEGER NOT NULL, is_rewritten INTEGER NOT NULL)"
SCRUBS_OBJECT: SchemaRow = ("table", SCRUBS, SCRUBS, _MAKE)
"""The table that says so, as SQLite lists it."""

_ERASE = "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE notification_id = ?"


def take_away(
    cursor: sqlite3.Cursor, transaction: SQLiteRead, payloads: PayloadPlacer, targets: Sequence[Recorded]
) -> tuple[list[Condemned], int]:
    """Take private parts and payloads away, inside the write transaction.

    Returns:
        The payload files that no event needs any more, condemned, and how many are kept for other events.

    Raises:
        ConflictError: an event cannot be erased: it has nothing that could be, or is erased already.
    """
    files: set[tuple[bytes, Placement]] = set()
    for recorded in targets:
        at = recorded.global_position
        rows = cursor.execute(
            "SELECT payload_placement, payload, private IS NULL FROM stored_events WHERE notification_id = ?", (at,)
        ).fetchall()
        if not rows or (rows[0][0] == Placement.ERASED and rows[0][2]) or recorded.header.private is None:
            raise ConflictError(f"event {recorded.header.id!r} cannot be erased: there is nothing to erase of it")
        placement, stored, _ = rows[0]
        if placement in FILES and type(stored) is bytes:
            files.add((stored, Placement(placement)))
        cursor.execute(_ERASE, (at,))
    unneeded = [(stored, placement) for stored, placement in files if not transaction.has_file(stored, placement)]
    return [payloads.condemn(*file) for file in sorted(unneeded)], len(files) - len(unneeded)


def note_pending(cursor: sqlite3.Cursor, erased_to: int) -> None:
    """Note, in the transaction that erases, that traces are left."""
    cursor.execute(f"DROP TABLE IF EXISTS {SCRUBS}")
    cursor.execute(_MAKE)
    cursor.execute(f"INSERT INTO {SCRUBS} VALUES (?, 0)", (erased_to,))


def note_nothing(cursor: sqlite3.Cursor) -> None:
    """Note that no traces are left: a store in memory has no files."""
    cursor.execute(f"DROP TABLE {SCRUBS}")


def pending(cursor: sqlite3.Cursor) -> tuple[int, bool] | None:
    """Return up to which global position traces of erased events are left, and whether only in the log; or None.

    MUST be called in a transaction: in between, another erasure that is done takes the table away.

    A table that turnlog did not write says nothing: that is damage, for `turnlog verify` to tell.
    """
    found = cursor.execute(f"{OBJECTS} WHERE name = '{SCRUBS}'").fetchall()
    if [tuple(row) for row in found] != [SCRUBS_OBJECT]:
        return None
    rows = cursor.execute(f"SELECT erased_to, is_rewritten FROM {SCRUBS} LIMIT 2").fetchall()
    return (rows[0][0], bool(rows[0][1])) if scrubs_flaw(rows) is None else None


def scrubs_flaw(rows: Sequence[SQLRow]) -> str | None:
    """Return what is wrong with the rows of the table, up to two of them; None if nothing is."""
    if len(rows) != 1:
        return f"table {SCRUBS!r} has {'no row' if not rows else 'more than one row'}"
    erased_to, is_rewritten = rows[0]
    if type(erased_to) is not int or erased_to < 1 or is_rewritten not in (0, 1):
        return f"table {SCRUBS!r} does not say how far an erasure is"
    return None


def scrub(connection: sqlite3.Connection, path: Path, place: str, wait_s: float) -> str | None:
    """Write the database anew and empty its write-ahead log, if an erasure has left traces there.

    Args:
        connection: a connection of its own, in no transaction.
        path: the file of the store.
        place: the name of the store, for people.
        wait_s: how long to wait for others at each step, in seconds.

    Returns:
        What keeps it from being done, one line; None when nothing is left to do.
    """
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")
    connection.execute("PRAGMA secure_delete = ON")
    if path.stat().st_size > IN_MEMORY_BYTES_MAX:
        connection.execute("PRAGMA temp_store = FILE")
    cursor = connection.cursor()
    try:
        while (found := _pending_now(cursor)) is not None:
            _, is_rewritten = found
            if not is_rewritten:
                cursor.execute("VACUUM")
                _note(cursor, found, f"UPDATE {SCRUBS} SET is_rewritten = 1")
                continue
            if not _is_emptied(cursor, wait_s):
                return (
                    "what was erased still stands in the write-ahead log, because somebody reads an older state: "
                    "`turnlog erase --finish` removes it when they are done"
                )
            _note(cursor, found, f"DROP TABLE {SCRUBS}")
    except sqlite3.Error as error:
        return f"what was erased still stands in the files ({store_error(error, place)}): `turnlog erase --finish`"
    finally:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.rollback()
    return None


def _is_emptied(cursor: sqlite3.Cursor, wait_s: float) -> bool:
    """Bring all of the write-ahead log into the database file and empty it; tell whether that was possible.

    SQLite itself waits for those who write or read an older state, but not for another process that is at the same.
    """
    until = monotonic() + wait_s
    while True:
        [(busy, *_)] = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not busy or monotonic() > until:
            return not busy
        sleep(_PAUSE_S)


def _pending_now(cursor: sqlite3.Cursor) -> tuple[int, bool] | None:
    cursor.execute("BEGIN")
    found = pending(cursor)
    cursor.execute("COMMIT")
    return found


def _note(cursor: sqlite3.Cursor, found: tuple[int, bool], statement: str) -> None:
    """Note what was done about what was pending; not if somebody else was at it meanwhile, or has erased more."""
    cursor.execute("BEGIN IMMEDIATE")
    if pending(cursor) == found:
        cursor.execute(statement)
    cursor.execute("COMMIT")
