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
from secrets import token_hex
from typing import Any

import psycopg
from psycopg import sql

from turnlog.errors import ConflictError, StoreBusyError
from turnlog.events import Recorded
from turnlog.store.postgres.catalog import PROBE, query
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.rows import IN_FILES
from turnlog.store.values import Placement

_ERASE = "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?"

_REMAINS = (
    "bytes of it are in the tables' files until something is written over them: `turnlog erase --finish` writes the "
    "tables anew, and nobody can read them meanwhile. The server's write-ahead log, its archive, standbys and backups "
    "keep it for as long as they keep anything"
)

_OLDER_ELSEWHERE = """\
SELECT 1 FROM pg_prepared_xacts WHERE database = current_database() AND age(transaction) > age(%(now)s::xid)
UNION ALL SELECT 1 FROM pg_replication_slots WHERE age(xmin) > age(%(now)s::xid)"""

_PROBES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()"
    " AND c.relkind = 'r' AND starts_with(c.relname, %s) AND pg_has_role(c.relowner, 'USAGE')"
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
            f"SELECT payload_placement, CASE WHEN {IN_FILES} THEN payload END, private IS NULL"
            " FROM stored_events WHERE event_id = ?",
            (recorded.header.id,),
        )
        if not rows or (rows[0][0] == Placement.ERASED and rows[0][2]) or recorded.header.private is None:
            raise ConflictError(f"event {recorded.header.id!r} cannot be erased: there is nothing to erase of it")
        if rows[0][1] is not None:
            files.add((rows[0][1], Placement(rows[0][0])))
        transaction.run(_ERASE, (recorded.header.id,))
    return files


def wait_for_readers(connection: psycopg.Connection[Any]) -> None:
    """Wait until nobody reads a state of the database that is older than this call.

    Until then what is written anew keeps the old versions of rows, whatever those transactions have read. To build an
    index beside others takes waiting for just that; standbys and prepared transactions have to be asked about. The
    table that it takes is left by who is killed, and dropped by the next one.

    Args:
        connection: one that may make tables in its schema, in no transaction. Its `lock_timeout` is how long it waits.

    Raises:
        StoreBusyError: somebody still reads one.
        psycopg.Error: it cannot be told.
    """
    now = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone()
    drop_probes(connection)
    while not _has_waited(connection):
        pass
    if connection.execute(_OLDER_ELSEWHERE, {"now": now and now[0]}).fetchone() is not None:
        raise StoreBusyError("a standby, or a prepared transaction, keeps an older state of the database")


def _has_waited(connection: psycopg.Connection[Any]) -> bool:
    """Wait for all who read, and tell whether that was done: somebody may have dropped the table that it takes."""
    table = sql.Identifier(f"{PROBE}{token_hex(8)}")
    connection.execute(sql.SQL("CREATE TABLE {} (nothing integer)").format(table))
    try:
        connection.execute(sql.SQL("CREATE INDEX CONCURRENTLY ON {} (nothing)").format(table))
    except psycopg.errors.UndefinedTable:
        return False
    except psycopg.errors.LockNotAvailable as error:
        raise StoreBusyError("somebody reads an older state of the database") from error
    finally:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    return True


def drop_probes(connection: psycopg.Connection[Any]) -> None:
    """Drop tables that waits for readers have left whose process was killed. Those that are in use stay.

    Args:
        connection: one of the owner, in no transaction.

    Raises:
        psycopg.Error: it cannot be done.
    """
    for (name,) in query(connection, _PROBES, (PROBE,)):
        table = sql.Identifier(name)
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable), connection.transaction():
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT").format(table))
            connection.execute(sql.SQL("DROP TABLE {}").format(table))


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
        (wait_for_readers if in_full else drop_probes)(connection)
        connection.execute(sql.SQL("VACUUM (FULL) {}" if in_full else "VACUUM {}").format(names))
        if in_full:
            # Files that were replaced are empty already. This removes them, and lets go of the write-ahead log.
            with suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("CHECKPOINT")
    except StoreBusyError as error:
        return f"what was erased is still in the tables, for {error}: `turnlog erase --finish` when it is over"
    except psycopg.errors.ReadOnlySqlTransaction:
        return "nothing can be removed on a standby, or in a read-only session: `turnlog erase --finish` on the primary"
    except psycopg.Error as error:
        return (
            f"what was erased is still in the tables ({error.diag.message_primary or error}): `turnlog erase --finish`"
        )
    return None if in_full else _REMAINS
