"""Putting tables that were folded elsewhere in the place of those of projections."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from turnlog.store.postgres.roles import BECOME_OWNER, ROLES, grants
from turnlog.store.postgres.schema import AGAIN, SIGN, projection_statements
from turnlog.store.postgres.transactions import PostgresWrite
from turnlog.store.sqlite.scratch import SQLiteScratch
from turnlog.store.transactions import SQLRow, SyncProjection

_ROWS = 500
"""Rows that go to the server together."""


def replace_tables(transaction: PostgresWrite, projections: Sequence[SyncProjection], target: SQLiteScratch) -> None:
    """Make the tables of projections anew, with the rows that were folded into a scratch database."""
    if not projections:
        return
    with schema_change(transaction):
        for projection in projections:
            for table in projection.tables:
                transaction.run(f"DROP TABLE IF EXISTS {table}")
            for statement in projection_statements(projection):
                transaction.run(statement)
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
def schema_change(transaction: PostgresWrite) -> Generator[None]:
    """Change tables. Who appends takes them as they are afterwards, if they were what they should be before."""
    signed = transaction.rows("SELECT signature = log_signature() FROM store_state WHERE one = 1")
    transaction.run(BECOME_OWNER)
    yield
    if signed == [(True,)]:
        transaction.run(SIGN)


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
