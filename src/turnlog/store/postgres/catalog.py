"""What there is in the schema of a PostgreSQL store, and what of it is not as it should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from turnlog.store.postgres.schema import FUNCTIONS, OBJECTS, OWN_TABLES, OWN_VIEWS, dialect, making
from turnlog.store.transactions import SideTables, SQLRow, SyncProjection

Connection = psycopg.Connection[Any]


def query(connection: Connection, statement: str, parameters: Sequence[object] = ()) -> list[SQLRow]:
    """Run a statement of psycopg's form and return its rows."""
    return connection.execute(statement.encode(), parameters or None).fetchall()


def row(connection: Connection, statement: str, *parameters: object) -> SQLRow:
    """Run a statement of psycopg's form and return its first row."""
    return query(connection, statement, parameters)[0]


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
