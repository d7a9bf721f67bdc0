"""Synchronous projections: compared with what folding the log anew gives, row by row in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from turnlog.audit.report import NOT_DAMAGE, shown
from turnlog.errors import StoreError
from turnlog.store import ReadTransaction, ScratchTransaction, SQLRow, SQLTransaction, Store, SyncProjection

_RANKS: dict[type, int] = {int: 1, float: 1, str: 2, bytes: 3}


class Difference(Struct, frozen=True, kw_only=True):
    """How a table differs from its rebuild.

    Attributes:
        table: its name.
        rows: how many rows it has too many, or too few. One that was changed counts as both.
        stored: the first row that differs, as it is in the store; None where that has no more.
        rebuilt: what should be there.
    """

    table: str
    rows: int
    stored: SQLRow | None
    rebuilt: SQLRow | None

    def __str__(self) -> str:
        """Return it on one line."""
        rows = "a row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"in {rows}: {self.table} has {_row(self.stored)}, rebuilt {_row(self.rebuilt)}"


def damaged_projections(store: Store, transaction: ReadTransaction, scratch: ScratchTransaction) -> dict[str, str]:
    """Return how the synchronous projections differ from the events of a snapshot, one line each, by name.

    What was folded may have been erased since: then the events are folded again, as the snapshot has them.

    Args:
        store: the store.
        transaction: the snapshot.
        scratch: what its events were folded into, as they were read.

    Raises:
        StoreError: the snapshot cannot be read.
    """

    def compared(rebuilt: ScratchTransaction) -> dict[str, str]:
        lines = {projection.name: _damage(transaction, rebuilt, projection) for projection in store.projections}
        return {name: line for name, line in lines.items() if line is not None}

    damaged = compared(scratch)
    if not damaged or not transaction.last_erasure():
        return damaged
    with store.scratch() as again:
        try:
            for recorded in transaction.log():
                again.fold(recorded)
        except NOT_DAMAGE:
            raise
        except StoreError:  # an event that is damaged, which is told
            return damaged
        return compared(again)


def _damage(transaction: ReadTransaction, rebuilt: ScratchTransaction, projection: SyncProjection) -> str | None:
    """Return how a projection differs from what folding the log anew gives; None where it does not."""
    # What stands in the place of a table may be anything, and may take for ever to be read.
    if not transaction.has(projection):
        return f"the {projection.name} cannot be compared with its rebuild: it has not all of its tables"
    try:
        found = list(differences(transaction, rebuilt, projection))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the engine raises, the other projections are compared
        return f"the {projection.name} cannot be read: {error}"
    if not found:
        return None
    return f"the {projection.name} differs from its rebuild {'; '.join(map(str, found))}"


def differences(stored: SQLTransaction, rebuilt: SQLTransaction, projection: SyncProjection) -> Iterator[Difference]:
    """Iterate over the tables of a projection that are not as they are rebuilt. Holds a row of each at a time."""
    for table in projection.tables:
        found = _difference(table, _rows(stored, table), _rows(rebuilt, table))
        if found is not None:
            yield found


def _rows(transaction: SQLTransaction, table: str) -> Iterator[SQLRow]:
    first = transaction.rows(f"SELECT * FROM {table} LIMIT 1")
    if not first:
        return iter(())
    # A table begins with the columns of its key, so that no row has to be sorted.
    order = ", ".join(str(number) for number in range(1, len(first[0]) + 1))
    return transaction.each(f"SELECT * FROM {table} ORDER BY {order}")


def _difference(table: str, stored: Iterator[SQLRow], rebuilt: Iterator[SQLRow]) -> Difference | None:
    count = 0
    first: tuple[SQLRow | None, SQLRow | None] = (None, None)
    one, other = next(stored, None), next(rebuilt, None)
    while one is not None or other is not None:
        if one == other:
            one, other = next(stored, None), next(rebuilt, None)
            continue
        count += 1
        if count == 1:
            first = one, other
        order = 0 if one is None or other is None else (_key(one) > _key(other)) - (_key(one) < _key(other))
        behind = other is None or order <= 0, one is None or order >= 0
        if one is not None and behind[0]:
            one = next(stored, None)
        if other is not None and behind[1]:
            other = next(rebuilt, None)
    return Difference(table=table, rows=count, stored=first[0], rebuilt=first[1]) if count else None


def _key(row: SQLRow) -> list[tuple[int, Any]]:
    """Return what rows are ordered by: NULL, numbers, texts by their code points, bytes."""
    values: list[object] = list(row)
    return [(_RANKS.get(type(value), 0), 0 if value is None else value) for value in values]


def _row(row: SQLRow | None) -> str:
    return "none" if row is None else f"({', '.join(map(shown, row))})"
