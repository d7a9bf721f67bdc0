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


# What is not in the signature of the tables: what else functions and sequences are. Functions can have one name.
_DETAILS = """\
SELECT 'function', p.proname, string_agg(concat_ws(' ', pg_get_function_arguments(p.oid), 'returns',
    pg_get_function_result(p.oid), l.lanname, p.provolatile, p.prokind, p.proisstrict, p.prosecdef, p.proleakproof,
    (SELECT string_agg(setting, ', ' ORDER BY setting) FROM unnest(p.proconfig) setting)), '; ')
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
  WHERE p.pronamespace = {space} AND p.proname LIKE 'log\\_%' GROUP BY p.proname
UNION ALL
SELECT 'sequence', c.relname, concat_ws(' ', translate(c.relpersistence::text, 't', 'p'), format_type(s.seqtypid, NULL),
    s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
  FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = {space} AND c.relname LIKE 'log\\_%'
"""

PROBE = "turnlog_probe_"
"""What the names of tables begin with that are there only while an erasure waits for readers."""

_QUALIFIED = ("index", "trigger")
"""What PostgreSQL spells with the schema of its table, wherever that is."""

Objects = dict[tuple[str, str], str]
"""What each object of a schema is, by kind and name."""


def _objects(connection: Connection, space: str, tables: Sequence[str]) -> Objects:
    statement = OBJECTS.format(space=space, tables="%(tables)s").replace("LIKE 'log\\_%'", "LIKE 'log\\_%%'")
    rows = connection.execute(statement.encode(), {"tables": list(tables)}).fetchall()
    details = {(kind, named): what for kind, named, what in query(connection, _DETAILS.format(space=space))}
    [(name,)] = query(connection, f"SELECT nspname FROM pg_namespace WHERE oid = {space}")
    spellings = "|".join(map(re.escape, (name, sql.Identifier(name).as_string(connection), "pg_temp")))
    qualified = re.compile(rf" ON (?:{spellings})\.")
    found: Objects = {}
    for kind, named, what in sorted(rows):
        # What else is in the search path is spelled without its schema.
        shown = qualified.sub(" ON ", what, count=1) if kind in _QUALIFIED else what
        more = (found.get((kind, named)), shown, details.pop((kind, named), None))
        found[kind, named] = "\n".join(part for part in more if part is not None)
    return found


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
    statements = [sql_ for sql_ in making(projections) if sql_ not in FUNCTIONS.values()] + side_statements
    with connection.transaction(force_rollback=True):
        # Functions keep the search path with which they are made, whose tables may be missing.
        connection.execute("SET LOCAL check_function_bodies = off")
        for statement in FUNCTIONS.values():
            connection.execute(statement.replace(" FUNCTION ", " FUNCTION pg_temp.", 1).encode())
        schema = sql.SQL("SET LOCAL search_path = pg_temp, {}")
        connection.execute(schema.format(sql.Identifier(row(connection, "SELECT current_schema()")[0])))
        for statement in statements:
            connection.execute(_temporary(statement).encode())
        expected = _objects(connection, "pg_my_temp_schema()", tables)
    flaws = [f"{kind} {name!r} is missing" for kind, name in expected if (kind, name) not in actual]
    flaws += [
        f"{kind} {name!r} is not what it should be"
        for (kind, name), what in actual.items()
        if (kind, name) in expected and expected[kind, name] != what
    ]
    flaws += [
        f"{kind} {name!r} is none of turnlog's, and must be dropped"
        for kind, name in actual
        if (kind, name) not in expected
    ]
    return sorted(flaws)


def _temporary(statement: str) -> str:
    for kind in ("TABLE", "VIEW", "SEQUENCE"):
        if statement.startswith(f"CREATE {kind} "):
            return statement.replace(f"CREATE {kind} ", f"CREATE TEMPORARY {kind} ", 1)
    return statement


def tables_of_others(connection: Connection, tables: Sequence[str]) -> list[str]:
    """Return the names of tables in the schema that are not among turnlog's."""
    own = {*tables, *OWN_TABLES, *OWN_VIEWS}
    return sorted(name for name in relations(connection) - own if not name.startswith(PROBE))


def relations(connection: Connection) -> set[str]:
    """Return the names of all tables and views in the schema."""
    rows = query(
        connection,
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'f', 'm', 'v')",
    )
    return {name for (name,) in rows}
