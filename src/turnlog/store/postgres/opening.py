"""Making the tables of a PostgreSQL store, and what is missing of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from shlex import quote
from threading import Event

import psycopg
from psycopg import errors, sql

from turnlog.errors import CorruptionError, StoreOpenError
from turnlog.store.postgres.catalog import Connection, query, row
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.errors import Missing, is_full, may_come, open_error
from turnlog.store.postgres.roles import BECOME_OWNER, give_again, may_not_read, take_from_all
from turnlog.store.postgres.schema import (
    EVENTS,
    FUNCTIONS,
    IS_STORED_SO,
    ORDINAL_BITS,
    OWN_TABLES,
    SIGN,
    STORAGE,
    VERSION,
    dialect,
    making,
)
from turnlog.store.postgres.tries import Tries
from turnlog.store.transactions import SideTables, SyncProjection

BUSY_TIMEOUT_S = 60.0
"""How long who only looks whether there is a log waits for a server that may come, in seconds."""

_MAKING_LOCK = 0x7475726E6C6F67
"""Held while a store is made or brought up to date: the letters turnlog."""

_IS_THERE = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = ANY(%s)"
)
_MAY_LOOK = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
_RESTRICTED = "restrict_nonsystem_relation_kind"
"""A setting that takes views away (from PostgreSQL 12.20, 13.16, 14.13, 15.8, 16.4 and 17 on)."""

_MAY_READ = f"""\
SELECT has_schema_privilege(%s, 'USAGE'), current_setting('{_RESTRICTED}', true), current_user,
  (SELECT min(c.relname::text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = ANY(%s) AND row_security_active(c.oid))"""
"""Tells also of a table whose rows the role may not see all."""

_EVENTS_ARE_THERE = "SELECT to_regclass('stored_events') IS NOT NULL"

_NOBODY_ELSE = "LOCK TABLE log_gate IN EXCLUSIVE MODE"
"""Nobody else appends, grants rights or makes tables anew, until the transaction ends."""

_CATCH_UP = f"""\
SELECT setval('log_numbers', number), setval('log_passed', number)
  FROM (SELECT max(order_key) >> {ORDINAL_BITS} AS number FROM stored_events) AS last
  WHERE number > COALESCE(pg_sequence_last_value('log_numbers'), 0)"""
"""Sets sequences that were made anew behind the events that there are. Nobody else may be appending."""


def is_there(connection: Connection, address: Address) -> bool:
    """Tell whether there is a log in a schema, or what is left of one. It is seen also by roles that may not use it."""
    return bool(query(connection, _IS_THERE, (address.schema, list(OWN_TABLES))))


def missing(address: Address) -> Missing:
    """Return what is missing where the server does not find a table or a function of a log: see `Missing`.

    It connects. Where it cannot, a table is taken to be.
    """
    try:
        with closing(address.connect(lock_timeout_s=10, connect_timeout_s=10)) as connection:
            if query(connection, _MAY_LOOK, (address.schema,)) == [(False,)]:
                return "right"
            there = len(query(connection, _IS_THERE, (address.schema, list(OWN_TABLES))))
            return "function" if there == len(OWN_TABLES) else "table"
    except (psycopg.Error, StoreOpenError):
        return "table"


def connect(
    address: Address,
    *,
    busy_timeout_s: float,
    ended: Event | None = None,
    on_busy: Callable[[float], None] | None = None,
    make_room: Callable[[], None] = lambda: None,
) -> Connection:
    """Open a connection as psycopg has it, and try again while a server is about to begin, to take over, or is full.

    Args:
        address: where the log is.
        busy_timeout_s: how long to wait for others, and for a server that may come.
        ended: who waits no more sets it.
        on_busy: called while it waits, with the seconds.
        make_room: called where the server is full.

    Raises:
        psycopg.Error: it cannot be opened.
        StoreOpenError: the database is of no use for a log.
    """
    tries = Tries(busy_timeout_s, ended=ended, on_wait=on_busy)
    while True:
        try:
            return address.connect(lock_timeout_s=busy_timeout_s, connect_timeout_s=10)
        except psycopg.OperationalError as error:
            if not may_come(error, servers=address.servers):
                raise
            if is_full(error):
                make_room()
            tries.pause(error)


def is_log_there(url: str) -> bool:
    """Tell whether there is a log at a URL.

    Raises:
        StoreOpenError: the URL is malformed, or the server refuses the connection.
    """
    address = Address(url)
    try:
        with closing(connect(address, busy_timeout_s=BUSY_TIMEOUT_S)) as connection:
            return is_there(connection, address)
    except psycopg.Error as error:
        raise open_error(error, address.place) from error


def make(
    connection: Connection,
    address: Address,
    projections: Sequence[SyncProjection],
    sides: Sequence[SideTables],
    tables: Sequence[str],
) -> None:
    """Make a store, unless another process has done so meanwhile.

    Its side tables are made with it: those who only append could not make them.

    Raises:
        StoreOpenError: the role may not.
    """
    schema = sql.Identifier(address.schema)
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING_LOCK,))
            # Not by name: what it was when this transaction began may still be remembered.
            if is_there(connection, address):
                return
            if not query(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)):
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            # Else the next schema of the search path would be taken, that of temporary tables.
            usable = "SELECT has_schema_privilege(%s, 'USAGE') AND has_schema_privilege(%s, 'CREATE')"
            if not row(connection, usable, address.schema, address.schema)[0]:
                raise errors.InsufficientPrivilege
            for statement in [*making(projections), *(dialect(one) for side in sides for one in side.schema)]:
                connection.execute(statement.encode())
            take_from_all(connection, tables)
            connection.execute("INSERT INTO store_state VALUES (1, %s, 0, %s, '')", (VERSION, list(tables)))
            for projection in projections:
                connection.execute(
                    "INSERT INTO store_projections VALUES (%s, %s)", (projection.name, projection.version)
                )
            connection.execute(SIGN)
    except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
        raise StoreOpenError(
            f"there is no log at {address.place!r}, and this role may not make one "
            f"({error.diag.message_primary or f'permission denied for schema {address.schema}'}): "
            "open it once as one that may"
        ) from error


def check_version(connection: Connection, address: Address, tables: Sequence[str]) -> None:
    """Check that this turnlog, and this role, can read the store.

    Args:
        connection: the connection.
        address: where the log is.
        tables: the tables that the log can have.

    Raises:
        StoreOpenError: it was made by a newer one, or the role has no rights, or not all that a reader needs, or does
            not see all rows of a table.
        CorruptionError: its tables do not say.
    """
    may_look, restricted, role, hiding = row(connection, _MAY_READ, address.schema, address.schema, [*tables])
    if not may_look:
        raise _no_rights(connection, address)
    if "view" in (restricted or ""):
        raise StoreOpenError(
            f"store {address.place!r} cannot be read: a setting of the role, its database or the connection keeps its "
            f"views from being read, RESET {_RESTRICTED} there"
        )
    if hiding:
        table = sql.Identifier(address.schema, hiding).as_string(connection)
        raise StoreOpenError(
            f"store {address.place!r} cannot be read whole: row-level security can hide rows of {hiding!r} from role "
            f"{role!r}, ALTER TABLE {table} DISABLE ROW LEVEL SECURITY or give the role BYPASSRLS"
        )
    if not row(connection, _EVENTS_ARE_THERE)[0]:
        raise CorruptionError(f"store {address.place!r} has lost its table of events: restore a backup")
    if not row(connection, "SELECT to_regclass('store_state') IS NOT NULL")[0]:
        raise CorruptionError(f"store {address.place!r} has lost its table 'store_state': restore a backup")
    try:
        found = connection.execute("SELECT version FROM store_state WHERE one = 1").fetchone()
    except errors.InsufficientPrivilege as error:
        raise _no_rights(connection, address) from error
    if found is None:
        raise CorruptionError(f"store {address.place!r} does not say its version: restore a backup")
    if found[0] > VERSION:
        raise StoreOpenError(
            f"store {address.place!r} has version {found[0]}, this turnlog knows versions up to {VERSION}: "
            "upgrade turnlog"
        )
    if lacking := may_not_read(connection, tables):
        raise _no_rights(connection, address, lacking)


def _no_rights(connection: Connection, address: Address, lacking: str = "") -> StoreOpenError:
    [role] = row(connection, "SELECT current_user")
    what = f"has no right on {lacking} of" if lacking else "has no rights on"
    return StoreOpenError(
        f"role {role!r} {what} store {address.place!r}: "
        f"its owner gives some with `turnlog grant {quote(role)} --read`, or --write"
    )


def restore_objects(connection: Connection, tables: Sequence[str]) -> None:
    """Make what is missing of the engine's own objects, but for the log itself. Who may use the log may use them.

    Others who make some wait until the connection is closed.
    """
    connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING_LOCK,))
    # To alter a table takes waiting for all who read it, even where nothing changes.
    passed_over = (EVENTS, STORAGE) if row(connection, IS_STORED_SO) == (True,) else (EVENTS,)
    for statement in making(()):
        if statement in passed_over:
            continue
        with (
            suppress(errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction),
            connection.transaction(),
        ):
            if statement in FUNCTIONS.values():
                # Who grants rights changes them too.
                connection.execute(_NOBODY_ELSE)
            connection.execute(BECOME_OWNER.encode())
            connection.execute(statement.encode())
    with connection.transaction():
        connection.execute(_NOBODY_ELSE)
        give_again(connection, tables)
        connection.execute(_CATCH_UP.encode())
