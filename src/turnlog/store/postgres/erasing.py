"""Erasing in a PostgreSQL store: taking content away in one transaction, and then out of the tables.

PostgreSQL keeps the old version of a row until it is vacuumed, and its bytes until something is written over them. The
write-ahead log, its archive, standbys and backups keep it for as long as they keep anything. Where that is too long a
log is to be sealed: what destroys a key reaches all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from turnlog.errors import ConflictError
from turnlog.events import Recorded
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.values import Placement

_ERASE = "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?"

_REMAINS = (
    "the old rows are dead, and their bytes in the tables' files until they are written over: "
    "`turnlog erase --finish` writes the tables anew. The write-ahead log, its archive, standbys and backups keep them "
    "for as long as they keep anything"
)


def take_away(transaction: PostgresWrite, targets: Sequence[Recorded]) -> None:
    """Take private parts and payloads away, inside the write transaction.

    Raises:
        ConflictError: an event cannot be erased: it has nothing that could be, or is erased already.
    """
    for recorded in targets:
        rows = transaction.rows("SELECT payload_placement FROM stored_events WHERE event_id = ?", (recorded.header.id,))
        if not rows or rows[0][0] == Placement.ERASED or recorded.header.private is None:
            raise ConflictError(f"event {recorded.header.id!r} cannot be erased: there is nothing to erase of it")
        transaction.run(_ERASE, (recorded.header.id,))


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
            # Files that were replaced are removed with the next checkpoint.
            connection.execute("CHECKPOINT")
    except psycopg.Error as error:
        if in_full and isinstance(error, psycopg.errors.InsufficientPrivilege):
            return "the files that were replaced are removed with the server's next checkpoint, within minutes"
        return (
            f"what was erased is still in the tables ({error.diag.message_primary or error}): `turnlog erase --finish`"
        )
    return None if in_full else _REMAINS
