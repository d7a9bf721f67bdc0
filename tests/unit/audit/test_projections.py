"""Comparing projections: every difference is counted, the first is shown, and nothing is sorted in memory."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.projections import differences
from turnlog.errors import MetaError
from turnlog.store import FoldTransaction, SyncProjection
from turnlog.store.sqlite.transactions import SQLiteSQL


class Pairs(SyncProjection):
    """A projection with a key of two columns."""

    name = "pairs"
    tables = ("pairs",)
    schema = ("CREATE TABLE pairs (a, b, c, PRIMARY KEY (a, b))",)

    def apply(self, transaction: FoldTransaction, recorded: Any) -> None:
        """Fold nothing: rows are put in by hand."""


VALUES = (
    st.none() | st.integers(-3, 3) | st.sampled_from([0.5, 1e300]) | st.text("aé🌿", max_size=2) | st.binary(max_size=2)
)
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=12, unique_by=lambda row: repr(row[:2]))


@pytest.fixture
def table() -> Iterator[SQLiteSQL]:
    """Give a database with an empty table."""
    with closing(_with_rows([])) as connection:
        yield SQLiteSQL(connection.cursor())


def _with_rows(rows: list[tuple[Any, ...]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(Pairs.schema[0])
    connection.executemany("INSERT INTO pairs VALUES (?, ?, ?)", rows)
    return connection


@given(ROWS, ROWS)
def test_every_row_that_differs_is_counted(stored: list[tuple[Any, ...]], rebuilt: list[tuple[Any, ...]]) -> None:
    """Rows of any type: the count is that of the rows that one table has and the other has not."""
    with closing(_with_rows(stored)) as one, closing(_with_rows(rebuilt)) as other:
        found = list(differences(SQLiteSQL(one.cursor()), SQLiteSQL(other.cursor()), Pairs()))
    apart = set(map(repr, stored)) ^ set(map(repr, rebuilt))
    assert [difference.rows for difference in found] == ([len(apart)] if apart else [])


def test_projection_that_folds_later_is_refused() -> None:
    """Nobody would await it."""

    async def apply(*_: object) -> None:
        """Do nothing yet."""

    with pytest.raises(MetaError, match="apply of projection 'Late': expected a plain function, got an async one"):
        type("Late", (Pairs,), {"apply": apply})


@pytest.mark.parametrize(
    ("stored", "rebuilt", "line"),
    [
        ([(1, 1, "x")], [], "in a row: pairs has (1, 1, 'x'), rebuilt none"),
        ([], [(1, 1, None)], "in a row: pairs has none, rebuilt (1, 1, NULL)"),
        ([(1, 1, "x")], [(1, 1, b"xyz")], "in 2 rows: pairs has (1, 1, 'x'), rebuilt (1, 1, 3 bytes)"),
        ([(1, 1, "y" * 90)], [], f"in a row: pairs has (1, 1, '{'y' * 60}…'), rebuilt none"),
        ([(1, 1, 1), (2, 2, 2)], [(1, 1, 1), (3, 3, 3)], "in 2 rows: pairs has (2, 2, 2), rebuilt (3, 3, 3)"),
    ],
)
def test_first_difference_is_shown(stored: list[tuple[Any, ...]], rebuilt: list[tuple[Any, ...]], line: str) -> None:
    """With what is in the store and what should be."""
    with closing(_with_rows(stored)) as one, closing(_with_rows(rebuilt)) as other:
        [found] = differences(SQLiteSQL(one.cursor()), SQLiteSQL(other.cursor()), Pairs())
    assert str(found) == line


def test_empty_tables_do_not_differ(table: SQLiteSQL) -> None:
    """There is no row to see the columns from."""
    assert list(differences(table, table, Pairs())) == []
