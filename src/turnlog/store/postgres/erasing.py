"""Erasing in a PostgreSQL store: taking content away in one transaction, and then out of the tables.

PostgreSQL keeps the old version of a row until it is vacuumed, and its bytes until something is written over them. To
write the tables anew takes them out, and keeps everybody from reading meanwhile: so an erasure does it only when it is
told to. Tables that are emptied or dropped lose their files at once.

The write-ahead log, its archive, standbys and backups keep it for as long as they keep anything. Where that is too long
a log is to be sealed: what destroys a key reaches all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from turnlog.errors import ConflictError
from turnlog.events import Recorded
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.rows import IN_FILES
from turnlog.store.values import Placement

_ERASE = "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?"

_REMAINS = (
    "bytes of it are in the tables' files until something is written over them: `turnlog erase --finish` writes the "
    "tables anew, and nobody can read them meanwhile. The server's write-ahead log, its archive, standbys and backups "
    "keep it for as long as they keep anything"
)


def take_away(transaction: PostgresWrite, targets: Sequence[Recorded]) -> set[tuple[bytes, Placement]]:
    """Take private parts and payloads away, inside the write transaction.

    Returns:
        The payloads that are objects, by their hashes and forms. Other events may need them.

    Raises:
        ConflictError: an event cannot be erased: it has nothing that could be, or is erased already.
    """
    files: set[tuple[bytes, Placement]] = set()
    for recorded in targets:
        rows = transaction.rows(
            f"SELECT payload_placement, CASE WHEN {IN_FILES} THEN payload END FROM stored_events WHERE event_id = ?",
            (recorded.header.id,),
        )
        if not rows or rows[0][0] == Placement.ERASED or recorded.header.private is None:
            raise ConflictError(f"event {recorded.header.id!r} cannot be erased: there is nothing to erase of it")
        if rows[0][1] is not None:
            files.add((rows[0][1], Placement(rows[0][0])))
        transaction.run(_ERASE, (recorded.header.id,))
    return files


def scrub(connection: psycopg.Connection[Any], tables: Sequence[str], *, in_full: bool) -> str | None:
    """Take dead rows out of tables, or write the tables anew without them.

    Args:
        connection: one of the owner, in no transaction.
        tables: their names.
        in_full: write them anew: nobody can read them meanwhile.

    Returns:
        What keeps it from being done, or what is left, one line; None when nothing is left in the tables.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    try:
        connection.execute(sql.SQL("VACUUM (FULL) {}" if in_full else "VACUUM {}").format(names))
        if in_full:
            # Files that were replaced are empty already. This removes them, and lets go of the write-ahead log.
            with suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("CHECKPOINT")
    except psycopg.Error as error:
        return (
            f"what was erased is still in the tables ({error.diag.message_primary or error}): `turnlog erase --finish`"
        )
    return None if in_full else _REMAINS
