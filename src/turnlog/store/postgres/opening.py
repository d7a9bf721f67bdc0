"""Making the tables of a PostgreSQL store, bringing them up to date, who may do what with them, and their flaws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, LiteralString, cast

import psycopg
from psycopg import errors, sql

from turnlog.errors import CorruptionError, StoreOpenError
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.schema import (
    EVENTS,
    FUNCTIONS,
    OBJECTS,
    OWN_TABLES,
    OWN_VIEWS,
    VERSION,
    dialect,
    making,
)
from turnlog.store.transactions import SideTables, SQLRow, SyncProjection

May = Literal["read", "write"]
"""What a role may do with a log besides its owner."""

_MAKING_LOCK = 0x7475726E6C6F67
"""Held while a store is made or brought up to date: the letters turnlog."""

_READ = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT EXECUTE ON FUNCTION log_settle(), log_follow() TO {role}",
)
_WRITE = (
    *_READ,
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
    # It is empty, and stays so: a lock on it asks for the right to change it.
    "GRANT INSERT, UPDATE, DELETE ON log_gate TO {role}",
)
_WRITE_TABLE = "GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}"
_READ_TABLE = "GRANT SELECT ON {table} TO {role}"

_IS_THERE = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = 'stored_events'"
)
_DUPLICATES = (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction)

Connection = psycopg.Connection[Any]


def is_there(connection: Connection) -> bool:
    """Tell whether there is a log in the schema of a connection."""
    return _row(connection, "SELECT to_regclass('stored_events') IS NOT NULL")[0]


def make(
    connection: Connection, address: Address, projections: Sequence[SyncProjection], tables: Sequence[str]
) -> None:
    """Make a store, unless another process has done so meanwhile.

    Raises:
        StoreOpenError: the role may not.
    """
    schema = sql.Identifier(address.schema)
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING_LOCK,))
            # Not by name: what it was when this transaction began may still be remembered.
            if query(connection, _IS_THERE, (address.schema,)):
                return
            quoted = schema.as_string(connection)
            if not _row(connection, "SELECT to_regnamespace(%s) IS NOT NULL", quoted)[0]:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            for statement in making(projections):
                connection.execute(statement.encode())
            for function in FUNCTIONS:
                connection.execute(sql.SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(sql.Identifier(function)))
            connection.execute("INSERT INTO store_state VALUES (1, %s, 0, %s, '')", (VERSION, list(tables)))
            for projection in projections:
                connection.execute(
                    "INSERT INTO store_projections VALUES (%s, %s)", (projection.name, projection.version)
                )
    except errors.InsufficientPrivilege as error:
        raise StoreOpenError(
            f"there is no log at {address.place!r}, and this role may not make one "
            f"({error.diag.message_primary}): open it once as one that may"
        ) from error


def check_version(connection: Connection, address: Address) -> None:
    """Check that this turnlog can read the store.

    Raises:
        StoreOpenError: it was made by a newer one.
        CorruptionError: its tables do not say.
    """
    if not _row(connection, "SELECT to_regclass('store_state') IS NOT NULL")[0]:
        raise CorruptionError(f"store {address.place!r} has lost its table 'store_state': restore a backup")
    found = connection.execute("SELECT version FROM store_state WHERE one = 1").fetchone()
    if found is None:
        raise CorruptionError(f"store {address.place!r} does not say its version: restore a backup")
    if found[0] > VERSION:
        raise StoreOpenError(
            f"store {address.place!r} has version {found[0]}, this turnlog knows versions up to {VERSION}: upgrade it"
        )


def built_projections(rows: Sequence[SQLRow]) -> dict[str, int]:
    """Return the version that each projection of a store was built with, by name."""
    return dict(rows)


def query(connection: Connection, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
    """Run a statement of psycopg's form and return its rows."""
    return connection.execute(statement.encode(), parameters or None).fetchall()


def restore_objects(connection: Connection) -> None:
    """Make what is missing of the engine's own objects, but for the log itself."""
    for statement in making(()):
        if statement == EVENTS:
            continue
        with (
            suppress(errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction),
            connection.transaction(),
        ):
            connection.execute(statement.encode())


# Roles


def grant(connection: Connection, address: Address, role: str, may: May, tables: Sequence[str]) -> None:
    """Let a role read a log, or read it and append to it. Nobody but its owner can change or erase events.

    Args:
        connection: one of the owner.
        address: where the log is.
        role: the name of the role, which there is.
        may: what it may do.
        tables: tables that are derived from the log, which who appends changes.
    """
    names = {"schema": sql.Identifier(address.schema), "role": sql.Identifier(role)}
    with connection.transaction():
        for statement in _WRITE if may == "write" else _READ:
            connection.execute(sql.SQL(cast("LiteralString", statement)).format(**names))
        if may == "write":
            for table in tables:
                connection.execute(
                    sql.SQL(cast("LiteralString", _WRITE_TABLE)).format(table=sql.Identifier(table), **names)
                )
        connection.execute(
            "INSERT INTO store_roles VALUES (%s, %s) ON CONFLICT (role) DO UPDATE SET may = excluded.may", (role, may)
        )


def grants(table: str, roles: Sequence[SQLRow]) -> list[str]:
    """Return the statements that let roles use a table that was just made."""
    quoted = sql.Identifier(table)
    return [
        sql.SQL(cast("LiteralString", _WRITE_TABLE if may == "write" else _READ_TABLE))
        .format(table=quoted, role=sql.Identifier(role))
        .as_string(None)
        for role, may in roles
    ]


# Flaws

Objects = dict[tuple[str, str], str]
"""What each object of a schema is, by kind and name."""


def _objects(connection: Connection, space: str, tables: Sequence[str]) -> Objects:
    statement = OBJECTS.format(space=space, tables="%(tables)s").replace("LIKE 'log\\_%'", "LIKE 'log\\_%%'")
    rows = connection.execute(statement.encode(), {"tables": list(tables)}).fetchall()
    [(name,)] = query(connection, f"SELECT nspname FROM pg_namespace WHERE oid = {space}")
    quoted = re.escape(name), re.escape(sql.Identifier(name).as_string(connection))
    qualified = re.compile(rf"""(?<![\w"'])({"|".join(quoted)}|pg_temp)\.""")
    return {(kind, named): qualified.sub("", what) for kind, named, what in rows}


def schema_flaws(
    connection: Connection, tables: Sequence[str], projections: Sequence[SyncProjection], sides: Sequence[SideTables]
) -> list[str]:
    """Return what a store lacks, and what could change what turnlog writes to it, one line each.

    What should be there is made in a temporary schema, and compared. Tables of others are no flaws.

    Raises:
        psycopg.Error: no temporary tables can be made, as on a standby.
    """
    [(space,)] = connection.execute("SELECT oid::bigint FROM pg_namespace WHERE nspname = current_schema()").fetchall()
    actual = _objects(connection, str(space), tables)
    there = {name for kind, name in actual if kind == "table"}
    side_statements = [
        dialect(statement) for side in sides if not there.isdisjoint(side.tables) for statement in side.schema
    ]
    statements = [sql_ for sql_ in making(projections) if not sql_.startswith("CREATE FUNCTION")] + side_statements
    with connection.transaction(force_rollback=True):
        [(before,)] = connection.execute("SHOW search_path").fetchall()
        connection.execute(f"SET LOCAL search_path = pg_temp, {before.split(',')[0]}".encode())
        for statement in statements:
            connection.execute(_temporary(statement).encode())
        expected = _objects(connection, "pg_my_temp_schema()", tables)
    for name, text in FUNCTIONS.items():
        body = text.split("$$")[1]
        expected["function", name] = body + ("true" if "SECURITY DEFINER" in text else "false")
    flaws = [f"{kind} {name!r} is missing" for kind, name in expected if (kind, name) not in actual]
    flaws += [
        f"{kind} {name!r} is not what it should be"
        for (kind, name), what in actual.items()
        if (kind, name) in expected and expected[kind, name] != what
    ]
    flaws += [f"{kind} {name!r} is none of turnlog's" for kind, name in actual if (kind, name) not in expected]
    return sorted(flaws)


def _temporary(statement: str) -> str:
    for kind in ("TABLE", "VIEW", "SEQUENCE"):
        if statement.startswith(f"CREATE {kind} "):
            return statement.replace(f"CREATE {kind} ", f"CREATE TEMPORARY {kind} ", 1)
    return statement


def tables_of_others(connection: Connection, tables: Sequence[str]) -> list[str]:
    """Return the names of tables in the schema that are not among turnlog's."""
    own = {*tables, *OWN_TABLES, *OWN_VIEWS}
    return sorted(relations(connection) - own)


def relations(connection: Connection) -> set[str]:
    """Return the names of all tables and views in the schema."""
    rows = query(
        connection,
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'f', 'm', 'v')",
    )
    return {name for (name,) in rows}


def _row(connection: Connection, statement: str, *parameters: object) -> SQLRow:
    return query(connection, statement, parameters)[0]
