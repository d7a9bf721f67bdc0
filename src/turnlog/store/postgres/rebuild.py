"""Putting what was folded elsewhere in the place of what the tables of projections have."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors

from turnlog.errors import StoreError
from turnlog.store.postgres.roles import BECOME_OWNER, ROLES, grants
from turnlog.store.postgres.schema import AGAIN, SIGN, projection_statements
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.sqlite.scratch import SQLiteScratch
from turnlog.store.transactions import SQLRow, SyncProjection

_ROWS = 500
"""Rows that go to the server together."""


def replace_tables(transaction: PostgresWrite, projections: Sequence[SyncProjection], target: SQLiteScratch) -> None:
    """Let the tables of projections have the rows that were folded into a scratch database, and no others.

    Who reads meanwhile has the rows of before. Tables that are as they should be are emptied, so that what others have
    made on them (views) stays; those that are not are made anew.

    Raises:
        StoreError: something that others have made rests on tables that must be made anew.
    """
    if not projections:
        return
    with schema_change(transaction) as is_signed:
        built = dict(transaction.rows("SELECT name, version FROM store_projections"))
        for projection in projections:
            with _in_use(projection):
                if is_signed and built.get(projection.name) == projection.version:
                    # Not with `TRUNCATE`: who reads an older snapshot would find them empty, or wait, or be waited for.
                    for table in projection.tables:
                        transaction.run(f"DELETE FROM {table}")
                else:
                    for table in projection.tables:
                        transaction.run(f"DROP TABLE IF EXISTS {table}")
                    for statement in projection_statements(projection):
                        transaction.run(statement)
                transaction.flush()
            grant_again(transaction, projection.tables)
            for table in projection.tables:
                for rows in _batches(target.each(f"SELECT * FROM {table}")):
                    values = f"({', '.join('?' * len(rows[0]))})"
                    for row in rows:
                        transaction.run(f"INSERT INTO {table} VALUES {values}", row)
                    transaction.flush()
            transaction.run(
                "INSERT INTO store_projections VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET version = excluded.version",
                (projection.name, projection.version),
            )
        # Whoever appends looks again at what projections there are.
        transaction.run(AGAIN)


@contextmanager
def schema_change(transaction: PostgresWrite) -> Generator[bool]:
    """Change tables, and be told whether they are what they should be.

    If they are, who appends takes them as they are afterwards.
    """
    is_signed = transaction.rows("SELECT signature = log_signature() FROM store_state WHERE one = 1") == [(True,)]
    transaction.run(BECOME_OWNER)
    yield is_signed
    if is_signed:
        transaction.run(SIGN)


@contextmanager
def _in_use(projection: SyncProjection) -> Generator[None]:
    """Say what keeps the tables of a projection from being emptied or dropped."""
    try:
        yield
    except (errors.DependentObjectsStillExist, errors.ForeignKeyViolation) as error:
        what = "; ".join((error.diag.message_detail or error.diag.message_primary or "").splitlines())
        raise StoreError(
            f"the tables of the {projection.name} cannot be made anew, for something rests on them ({what}): drop that "
            "first; nothing was changed"
        ) from error


def grant_again(transaction: PostgresWrite, tables: Sequence[str]) -> None:
    """Let those use tables that were just made who may use the log."""
    roles = transaction.rows(ROLES)
    for table in tables:
        for statement in grants(table, roles):
            transaction.run(statement)


def _batches(rows: Iterator[SQLRow]) -> Iterator[list[SQLRow]]:
    batch: list[SQLRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
