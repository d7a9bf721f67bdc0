"""Who owns what a PostgreSQL log is made of and may use it, and where its numbers stand: what of that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turnlog.store.postgres.catalog import Connection, query, row
from turnlog.store.postgres.roles import OWNERS_TABLES, READ_FUNCTIONS, ROLES
from turnlog.store.postgres.schema import FUNCTIONS, ORDINAL_BITS, OWN_VIEWS, SEQUENCES

NUMBERS_AHEAD_MAX = 1 << 32
"""How far the numbers of transactions can be beyond that of the last event: each one between is a transaction that was
rolled back.
"""

_WRITE = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
_READ = frozenset({"SELECT"})

_SPACE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

_OWNED = f"""\
SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind, c.relname AS name,
    c.relowner AS owner, c.relacl AS acl
  FROM pg_class c WHERE c.relnamespace = {_SPACE} AND c.relname = ANY(%(relations)s)
    AND c.relkind IN ('r', 'p', 'f', 'm', 'v', 'S')
UNION ALL
SELECT 'table', c.relname, c.relowner, t.attacl
  FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid
  WHERE c.relnamespace = {_SPACE} AND c.relname = ANY(%(relations)s) AND t.attacl IS NOT NULL
UNION ALL
SELECT 'function', p.proname, p.proowner, COALESCE(p.proacl, acldefault('f', p.proowner))
  FROM pg_proc p WHERE p.pronamespace = {_SPACE} AND p.proname = ANY(%(functions)s)"""

_OWNERS = f"SELECT DISTINCT kind, name, pg_get_userbyid(owner) FROM ({_OWNED}) o ORDER BY 1, 2"
_RIGHTS = f"""\
SELECT DISTINCT o.kind, o.name, CASE a.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(a.grantee) END, a.privilege_type
  FROM ({_OWNED}) o, aclexplode(o.acl) a WHERE a.grantee <> o.owner ORDER BY 1, 2, 3, 4"""

_OF_OTHERS = f"""\
WITH space AS (SELECT * FROM pg_namespace WHERE oid = {_SPACE}),
  trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = 'pg_database_owner'
    OR oid IN (SELECT nspowner FROM space)
    OR oid = (SELECT datdba FROM pg_database WHERE datname = current_database())
    OR oid = (SELECT relowner FROM pg_class WHERE oid = to_regclass('stored_events')))
SELECT 'right' AS kind, nspname::text AS name, a.grantee AS owner FROM space, aclexplode(nspacl) a
  WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (TABLE trusted)
UNION ALL
SELECT 'function', p.oid::regprocedure::text, p.proowner FROM pg_proc p, space
  WHERE p.pronamespace = space.oid AND p.proowner NOT IN (TABLE trusted)
UNION ALL
SELECT 'operator', o.oid::regoperator::text, o.oprowner FROM pg_operator o, space
  WHERE o.oprnamespace = space.oid AND o.oprowner NOT IN (TABLE trusted)"""
"""Who may make something in the schema, and whose functions and operators are in it, but for those who have all rights
on the log, the schema or the database anyway."""

_TAKES_OVER = "what it makes there can run with the rights of the log's owner, in the place of what PostgreSQL has"

_LAST = f"SELECT COALESCE(max(order_key) >> {ORDINAL_BITS}, 0) FROM stored_events"
_MAY_SEE = (
    "SELECT bool_and(COALESCE(has_sequence_privilege(to_regclass(name), 'SELECT'), false)) FROM unnest(%s::text[]) name"
)
_ARE_THERE = "SELECT to_regclass('stored_events') IS NOT NULL AND to_regclass('store_roles') IS NOT NULL"


def use_flaws(connection: Connection, tables: Sequence[str]) -> list[str]:
    """Return what belongs to somebody else, who may do what nobody granted, and numbers that cannot be, one line each.

    Rights that are missing are no flaws. The numbers can be seen by the owner alone.

    Args:
        connection: the connection.
        tables: the tables that the log can have.
    """
    if not row(connection, _ARE_THERE)[0]:
        return []  # that is said already
    return [
        *_of_owners(connection, tables),
        *_of_rights(connection, tables),
        *_of_others(connection),
        *_of_numbers(connection),
    ]


def _named(tables: Sequence[str]) -> dict[str, list[str]]:
    return {"relations": [*tables, *OWN_VIEWS, *SEQUENCES], "functions": [*FUNCTIONS]}


def _of_owners(connection: Connection, tables: Sequence[str]) -> list[str]:
    owned = connection.execute(_OWNERS.encode(), _named(tables)).fetchall()
    if not owned:
        return []
    [(owner, _)] = Counter(owner for _, _, owner in owned).most_common(1)
    return [
        f"{kind} {name!r} belongs to {other!r}, all else to {owner!r}" for kind, name, other in owned if other != owner
    ]


def _of_rights(connection: Connection, tables: Sequence[str]) -> list[str]:
    granted = dict(query(connection, ROLES))
    found: dict[tuple[str, str, str | None], list[str]] = {}
    for kind, name, role, privilege in connection.execute(_RIGHTS.encode(), _named(tables)):
        if privilege not in _allowed(kind, name, None if role is None else granted.get(role)):
            found.setdefault((kind, name, role), []).append(privilege)
    return [
        f"{'everybody' if role is None else f'role {role!r}'} has rights on {kind} {name!r} that `turnlog grant` does "
        f"not give: {', '.join(privileges)}"
        for (kind, name, role), privileges in found.items()
    ]


def _of_others(connection: Connection) -> list[str]:
    """Say who can put something into the schema of the log that its functions would call."""
    flaws: list[str] = []
    found = query(
        connection, f"SELECT kind, name, pg_get_userbyid(NULLIF(owner, 0)) FROM ({_OF_OTHERS}) o ORDER BY 1, 2, 3"
    )
    for kind, name, role in found:
        who = "everybody" if role is None else f"role {role!r}"
        if kind == "right":
            flaws.append(f"{who} may make things in schema {name!r} (CREATE): {_TAKES_OVER}")
        elif not (kind == "function" and name.partition("(")[0].rpartition(".")[2] in FUNCTIONS):  # said by its owner
            flaws.append(f"{kind} {name!r} belongs to {role!r}: {_TAKES_OVER}")
    return flaws


def _allowed(kind: str, name: str, may: str | None) -> frozenset[str]:
    """Return what a role may do with an object, by what it was granted."""
    if may not in ("read", "write"):
        return frozenset()
    if kind == "function":
        return frozenset({"EXECUTE"} if may == "write" or name in READ_FUNCTIONS else ())
    if kind == "sequence":
        return frozenset()
    is_writable = may == "write" and kind == "table" and (name == "log_gate" or name not in OWNERS_TABLES)
    return _WRITE if is_writable else _READ


def _of_numbers(connection: Connection) -> list[str]:
    """Compare the numbers with those of events. What can only grow is read first."""
    if not row(connection, _MAY_SEE, list(SEQUENCES))[0]:
        return []
    [last] = row(connection, _LAST)
    [passed] = row(connection, "SELECT last_value FROM log_passed")
    [drawn] = row(connection, "SELECT last_value FROM log_numbers")
    flaws: list[str] = []
    if not last <= drawn <= last + NUMBERS_AHEAD_MAX:
        flaws.append(f"sequence 'log_numbers' is at {drawn}, and the last event has the number {last}")
    if passed > drawn:
        flaws.append(f"sequence 'log_passed' is at {passed}, beyond all numbers that there are")
    return [f"{flaw}: setval it to {last} while nobody writes" for flaw in flaws]
