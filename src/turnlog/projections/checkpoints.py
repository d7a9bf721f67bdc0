"""The signed checkpoints that a store keeps: notes, as they were signed. They follow from nothing else in the store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from turnlog.store import ReadTransaction, SideTables, SQLRow, WriteTransaction

CHECKPOINTS = SideTables(
    name="checkpoints",
    tables=("checkpoints",),
    schema=("CREATE TABLE checkpoints (size BIGINT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (size, note))",),
)


def keep(transaction: WriteTransaction, size: int, note: str, *, instead_of: str | None = None) -> None:
    """Keep the note of a checkpoint, in the place of one with fewer signatures where there is one."""
    if instead_of is not None:
        transaction.run("DELETE FROM checkpoints WHERE size = ? AND note = ?", (size, instead_of))
    transaction.run("INSERT INTO checkpoints VALUES (?, ?) ON CONFLICT DO NOTHING", (size, note))


def kept(transaction: ReadTransaction, *, size_min: int = 0) -> list[SQLRow]:
    """Return sizes and notes from a size on, the smallest first. Any value may be damaged."""
    if not transaction.has(CHECKPOINTS):
        return []
    return transaction.rows("SELECT size, note FROM checkpoints WHERE size >= ? ORDER BY size, note", (size_min,))


def count_below(transaction: ReadTransaction, size: int) -> int:
    """Return how many notes of fewer events than `size` are kept. The table must be there."""
    [(count,)] = transaction.rows("SELECT COUNT(*) FROM checkpoints WHERE size < ?", (size,))
    return int(count)


def latest(transaction: ReadTransaction, *, size_min: int = 0) -> Iterator[str]:
    """Iterate over the notes of sizes of at least `size_min`, the largest first. Any may be damaged."""
    for skipped in count() if transaction.has(CHECKPOINTS) else ():
        rows = transaction.rows(
            "SELECT note FROM checkpoints WHERE size >= ? ORDER BY size DESC, note LIMIT 1 OFFSET ?",
            (size_min, skipped),
        )
        if not rows:
            return
        yield str(rows[0][0])


def drop(transaction: WriteTransaction, row: SQLRow) -> None:
    """Take a row away, whatever is in it."""
    transaction.run("DELETE FROM checkpoints WHERE size = ? AND note = ?", tuple(row))
