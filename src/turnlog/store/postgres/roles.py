"""Who may use a PostgreSQL log besides its owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, LiteralString, cast

from psycopg import sql

from turnlog.errors import StoreError, StoreReadOnlyError
from turnlog.store.postgres.catalog import Connection, query, relations, row, tables_of_others
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.schema import FUNCTIONS, OWN_TABLES, OWN_VIEWS, SEQUENCES
from turnlog.store.transactions import SQLRow

May = Literal["read", "write", "nothing"]
"""What a role may do with a log. Its owner may do all there is."""

_REVOKE = (
    "REVOKE ALL ON TABLE {tables} FROM {role}",
    "REVOKE ALL ON SEQUENCE {sequences} FROM {role}",
    "REVOKE ALL ON FUNCTION {functions} FROM {role}",
)
_LEAVE = "REVOKE ALL ON SCHEMA {schema} FROM {role}"
_READ = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON TABLE {tables} TO {role}",
    "GRANT EXECUTE ON FUNCTION {read_functions} TO {role}",
)
READ_FUNCTIONS = ("log_settle", "log_follow", "log_signature")
"""Functions that a reader may call. A writer may call all."""

OWNERS_TABLES = (*OWN_TABLES, "payload_storage", "payloads_condemned")
"""Tables that only the owner changes."""

_WRITE = (
    *_READ,
    "GRANT EXECUTE ON FUNCTION {functions} TO {role}",
    # It is empty, and stays so: a lock on it asks for the right to change it.
    "GRANT INSERT, UPDATE, DELETE ON log_gate TO {role}",
)
_WRITE_TABLE = "GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}"
_READ_TABLE = "GRANT SELECT ON {table} TO {role}"

_OWNER = "SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = 'stored_events'::regclass"
ROLES = "SELECT role, may FROM store_roles WHERE role IN (SELECT rolname FROM pg_roles)"
"""Who may use a log besides its owner, of those that there are, and what."""

_SPACE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

_STRANGERS = """\
SELECT DISTINCT a.grantee::regrole::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
  WHERE n.nspname = current_schema() AND c.relname = ANY(%s) AND a.grantee NOT IN (0, c.relowner)
UNION
SELECT DISTINCT a.grantee::regrole::text
  FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace,
    aclexplode(t.attacl) a
  WHERE n.nspname = current_schema() AND c.relname = ANY(%s) AND a.grantee NOT IN (0, c.relowner)
UNION
SELECT DISTINCT a.grantee::regrole::text
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
  WHERE n.nspname = current_schema() AND p.proname = ANY(%s) AND a.grantee NOT IN (0, p.proowner)"""

_LACKING = f"""\
SELECT 'table ' || quote_literal(c.relname) FROM pg_class c
  WHERE c.relnamespace = {_SPACE} AND c.relname = ANY(%s) AND NOT has_table_privilege(c.oid, 'SELECT')
UNION ALL
SELECT 'function ' || quote_literal(p.proname) FROM pg_proc p
  WHERE p.pronamespace = {_SPACE} AND p.proname = ANY(%s) AND NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1 LIMIT 1"""

BECOME_OWNER = f"SELECT set_config('role', ({_OWNER}), true) WHERE current_user <> ({_OWNER})"
"""Lets what is made in a transaction belong to the owner of the log, whoever makes it."""


def check_owner(connection: Connection, address: Address, what: str) -> None:
    """Check that the role of a connection is the owner of a log, a member of it, or a superuser.

    Args:
        connection: the connection.
        address: where the log is.
        what: what only the owner may do, for people.

    Raises:
        StoreReadOnlyError: it is none of them.
    """
    owner = _owner(connection)
    may, role = row(connection, "SELECT pg_has_role(%s, 'USAGE'), current_user", owner)
    if not may:
        raise StoreReadOnlyError(
            f"only the owner of store {address.place!r} can {what}: this is role {role!r}, connect as {owner!r}"
        )


def may_not_read(connection: Connection, tables: Sequence[str]) -> str:
    """Return the first thing that every reader of a log uses and the role of a connection may not; else nothing.

    Args:
        connection: the connection.
        tables: the tables that the log can have.
    """
    found = query(connection, _LACKING, ([*tables, *OWN_VIEWS], [*READ_FUNCTIONS]))
    return found[0][0] if found else ""


def _owner(connection: Connection) -> str:
    return row(connection, _OWNER)[0]


def grant(connection: Connection, address: Address, role: str, may: May, tables: Sequence[str]) -> None:
    """Let a role read a log, or read it and append to it, or take its rights away. It has those alone afterwards.

    Args:
        connection: one of the owner.
        address: where the log is.
        role: the name of the role.
        may: what it may do.
        tables: the tables that the log can have.

    Raises:
        StoreReadOnlyError: this role is not the owner.
        StoreError: there is no such role, or it is the owner.
    """
    check_owner(connection, address, "say who else uses it")
    if not query(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)):
        raise StoreError(f"there is no role {role!r} on the server: CREATE ROLE makes one")
    if role == _owner(connection):
        raise StoreError(f"role {role!r} is the owner of store {address.place!r}, and may do all there is")
    with connection.transaction():
        # Nobody makes tables anew meanwhile.
        connection.execute("LOCK TABLE log_gate IN EXCLUSIVE MODE")
        names = _names(connection, tables, role=role)
        _run(connection, _REVOKE, names)
        if may == "nothing":
            if not tables_of_others(connection, tables):
                _run(connection, [_LEAVE], names | {"schema": sql.Identifier(address.schema)})
            connection.execute("DELETE FROM store_roles WHERE role = %s", (role,))
            return
        _give(connection, role, may, tables)
        connection.execute(
            "INSERT INTO store_roles VALUES (%s, %s) ON CONFLICT (role) DO UPDATE SET may = excluded.may", (role, may)
        )


def _give(connection: Connection, role: str, may: May, tables: Sequence[str]) -> None:
    names = _names(connection, tables, role=role)
    _run(connection, _WRITE if may == "write" else _READ, names)
    if may == "write":
        derived = sorted(relations(connection).intersection(tables).difference(OWNERS_TABLES))
        for table in derived:
            _run(connection, [_WRITE_TABLE], names | {"table": sql.Identifier(table)})


def take_from_all(connection: Connection, tables: Sequence[str]) -> None:
    """Take from everybody but the owner what servers give by default, or by ALTER DEFAULT PRIVILEGES."""
    _run(connection, _REVOKE, _names(connection, tables))
    relations_of_log = [*tables, *OWN_VIEWS, *SEQUENCES]
    for (role,) in query(connection, _STRANGERS, (relations_of_log, relations_of_log, [*FUNCTIONS])):
        _run(connection, _REVOKE, _names(connection, tables) | {"role": sql.SQL(role)})


def _names(connection: Connection, tables: Sequence[str], *, role: str = "") -> dict[str, sql.Composable]:
    [(schema,)] = query(connection, "SELECT current_schema()")
    there = sorted(relations(connection).intersection([*tables, *OWN_VIEWS]))
    names = {"tables": there, "sequences": SEQUENCES, "functions": FUNCTIONS, "read_functions": READ_FUNCTIONS}
    return {
        "schema": sql.Identifier(schema),
        "role": sql.Identifier(role) if role else sql.SQL("PUBLIC"),
        **{kind: sql.SQL(", ").join(map(sql.Identifier, named)) for kind, named in names.items()},
    }


def _run(connection: Connection, statements: Sequence[str], names: dict[str, sql.Composable]) -> None:
    for statement in statements:
        connection.execute(sql.SQL(cast("LiteralString", statement)).format(**names))


def give_again(connection: Connection, tables: Sequence[str]) -> None:
    """Let those use all there is who may use the log, as far as they may, and nobody else."""
    take_from_all(connection, tables)
    for role, may in query(connection, ROLES):
        _give(connection, role, may, tables)


def grants(table: str, roles: Sequence[SQLRow]) -> list[str]:
    """Return the statements that let roles, and nobody else, use a table that was just made.

    Args:
        table: its name.
        roles: the rows of `ROLES`.
    """
    quoted = sql.Identifier(table)
    given = [
        sql.SQL(
            cast("LiteralString", _WRITE_TABLE if may == "write" and table not in OWNERS_TABLES else _READ_TABLE)
        ).format(table=quoted, role=sql.Identifier(role))
        for role, may in roles
    ]
    given.insert(0, sql.SQL("REVOKE ALL ON TABLE {} FROM PUBLIC").format(quoted))
    return [statement.as_string(None) for statement in given]
