"""The hashes of the log's Merkle tree above its leaves, kept for roots and proofs. They are built behind the appends.

Beside them stand the positions at which the way that events came into the store changes: that is in no header, and a
checkpoint is to cover it too.

The nodes of a level stand in runs of `RUN` hashes, one run a row, so that a proof reads single hashes and growth writes
few rows. Only nodes over whole subtrees are kept: these never change. The leaves are the leaf hashes of the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from turnlog.errors import CorruptionError
from turnlog.events import Arrival
from turnlog.store import ReadTransaction, SideTables, SQLRow, WriteTransaction

RUN = 32
"""Hashes a row. With its key a row has about 1 KiB, and seven fit into a page."""

_HASH_BYTES = 32

_ARRIVALS = frozenset(Arrival)

_ROWS = 32
"""Rows a statement: each statement has a price of its own, beside that of its rows."""

TREE = SideTables(
    name="merkle tree",
    tables=("tree_hashes", "tree_size", "tree_arrivals"),
    schema=(
        "CREATE TABLE tree_hashes (level INTEGER NOT NULL, run BIGINT NOT NULL, hashes BLOB NOT NULL,"
        " PRIMARY KEY (level, run))",
        "CREATE TABLE tree_size (one INTEGER PRIMARY KEY, size BIGINT NOT NULL)",
        "CREATE TABLE tree_arrivals (position BIGINT PRIMARY KEY, arrival INTEGER NOT NULL)",
    ),
)

Grown = list[tuple[int, int, list[bytes]]]
"""New nodes: their level, the place of the first in it, and their hashes."""

MEND = "run `turnlog projections rebuild 'merkle tree'`"
"""What is to be done where the kept tree is damaged."""


def tree_size(transaction: ReadTransaction) -> int:
    """Return how many leaves the kept tree has; 0 where none is kept."""
    return _size(transaction) if transaction.has(TREE) else 0


def _size(transaction: ReadTransaction) -> int:
    rows = transaction.rows("SELECT size FROM tree_size WHERE one = 1")
    size = rows[0][0] if rows else 0
    if type(size) is not int or size < 0:
        raise CorruptionError(f"the size of the kept tree is damaged: {MEND}")
    return size


def tree_flaw(transaction: ReadTransaction) -> str | None:
    """Return how the kept tree is not of the size that it says, or of one that the log has; None where it is.

    Hashes are counted and not looked at.
    """
    try:
        size = tree_size(transaction)
    except CorruptionError as error:
        return str(error)
    if not transaction.has(TREE):
        return None
    sizes = transaction.rows("SELECT one FROM tree_size LIMIT 2")
    if len(sizes) > 1 or sizes not in ([], [(1,)]):
        return f"the kept tree has a second size: {MEND}"
    [(rows, found)] = transaction.rows("SELECT COUNT(*), COALESCE(SUM(LENGTH(hashes)), 0) FROM tree_hashes")
    counts = [size >> level for level in range(1, size.bit_length())]
    is_whole = (rows, found) == (sum((count + RUN - 1) // RUN for count in counts), sum(counts) * _HASH_BYTES)
    end = transaction.log_end()
    if size > end:
        why = "the log was cut, or the tree is damaged" if is_whole else "the tree is damaged"
        return f"the kept tree has {size} leaves and the log {end} events: {why}, {MEND}"
    return None if is_whole else f"the kept tree is damaged, it does not have the hashes of {size} leaves: {MEND}"


def read_node(transaction: ReadTransaction, level: int, place: int) -> bytes:
    """Return the hash of a node that is kept, at level 1 or above.

    Raises:
        CorruptionError: it is not there.
    """
    run, offset = divmod(place, RUN)
    rows = transaction.rows(
        "SELECT substr(hashes, ?, ?) FROM tree_hashes WHERE level = ? AND run = ?",
        (offset * _HASH_BYTES + 1, _HASH_BYTES, level, run),
    )
    return _checked(rows[0][0] if rows else None, level, place)


def read_scattered(transaction: ReadTransaction, nodes: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the hashes of nodes that are kept, each by its level and its place, in one statement.

    Raises:
        CorruptionError: one of them is not there.
    """
    runs = _read_runs(transaction, [(level, place // RUN) for level, place in nodes])
    return [_checked(_at(runs.get((level, place // RUN), b""), place % RUN, 1), level, place) for level, place in nodes]


def _checked(found: object, level: int, place: int) -> bytes:
    if type(found) is not bytes or len(found) != _HASH_BYTES:
        raise CorruptionError(f"node {place} of level {level} of the kept tree is missing: {MEND}")
    return found


def _at(hashes: bytes, first: int, count: int) -> bytes:
    return hashes[first * _HASH_BYTES : (first + count) * _HASH_BYTES]


def _read_runs(transaction: ReadTransaction, runs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """Return the hashes of runs, by level and number. Those that are missing or damaged are left out."""
    if not runs:
        return {}
    marks = ", ".join(["(?, ?)"] * len(runs))
    # CROSS JOIN: SQLite looks each run up then, and does not read the table.
    rows = transaction.rows(
        f"WITH wanted (level, run) AS (VALUES {marks})"
        " SELECT tree_hashes.level, tree_hashes.run, hashes FROM wanted CROSS JOIN tree_hashes"
        " WHERE tree_hashes.level = wanted.level AND tree_hashes.run = wanted.run",
        [number for run in runs for number in run],
    )
    return {(level, run): hashes for level, run, hashes in rows if type(hashes) is bytes}


def read_nodes(transaction: ReadTransaction, level: int, first: int, count: int) -> bytes:
    """Return the kept hashes of nodes in a row, one after the other, with zeros for what is missing or damaged."""
    runs = range(first // RUN, (first + count - 1) // RUN + 1)
    rows = transaction.rows(
        "SELECT run, hashes FROM tree_hashes WHERE level = ? AND run BETWEEN ? AND ?", (level, runs[0], runs[-1])
    )
    kept = {run: hashes for run, hashes in rows if type(hashes) is bytes}
    found = b"".join(kept.get(run, b"").ljust(RUN * _HASH_BYTES, b"\0") for run in runs)
    start = first % RUN * _HASH_BYTES
    return found[start : start + count * _HASH_BYTES]


def read_arrivals(transaction: ReadTransaction, size: int) -> list[SQLRow]:
    """Return the first positions of runs of events that came in the same way, with how, up to a position."""
    return transaction.rows(
        "SELECT position, arrival FROM tree_arrivals WHERE position <= ? ORDER BY position", (size,)
    )


def kept_runs(transaction: ReadTransaction) -> list[tuple[int, int]] | None:
    """Return the runs of arrivals that are kept; None where they cannot be those of a tree of its size."""
    size = tree_size(transaction)
    rows = transaction.rows("SELECT position, arrival FROM tree_arrivals ORDER BY position")
    runs = [(position, arrival) for position, arrival in rows if type(position) is type(arrival) is int]
    if len(runs) != len(rows) or [position for position, _ in runs[:1]] != [1][:size]:
        return None
    is_right = all(arrival != before for (_, before), (_, arrival) in pairwise(runs)) and all(
        position <= size and arrival in _ARRIVALS for position, arrival in runs
    )
    return runs if is_right else None


def write_nodes(
    transaction: WriteTransaction, size_before: int, size: int, grown: Grown, arrivals: Sequence[tuple[int, int]]
) -> None:
    """Keep the nodes of a tree that has grown, and new runs of arrivals.

    Do nothing where the kept tree is of another size than it grew from.
    """
    if _size(transaction) != size_before:
        return
    for position, arrival in arrivals:
        transaction.run(
            "INSERT INTO tree_arrivals VALUES (?, ?) ON CONFLICT (position) DO UPDATE SET arrival = excluded.arrival",
            (position, arrival),
        )
    begun = _read_runs(transaction, [(level, first // RUN) for level, first, _ in grown if first % RUN])
    rows: list[tuple[int, int, bytes]] = []
    for level, first, hashes in grown:
        run, offset = divmod(first, RUN)
        before = _at(begun.get((level, run), b""), 0, offset).ljust(offset * _HASH_BYTES, b"\0")
        joined = before + b"".join(hashes)
        rows += [
            (level, run + number, _at(joined, number * RUN, RUN))
            for number in range((offset + len(hashes) + RUN - 1) // RUN)
        ]
    for at in range(0, len(rows), _ROWS):
        _write_rows(transaction, rows[at : at + _ROWS])
    transaction.run("INSERT INTO tree_size VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET size = excluded.size", (size,))


def _write_rows(transaction: WriteTransaction, rows: Sequence[tuple[int, int, bytes]]) -> None:
    marks = ", ".join(["(?, ?, ?)"] * len(rows))
    transaction.run(
        f"INSERT INTO tree_hashes VALUES {marks} ON CONFLICT (level, run) DO UPDATE SET hashes = excluded.hashes",
        [value for row in rows for value in row],
    )


def forget_nodes(transaction: WriteTransaction) -> None:
    """Throw the kept tree away. It is built again when it is needed."""
    transaction.run("DELETE FROM tree_hashes")
    transaction.run("DELETE FROM tree_size")
    transaction.run("DELETE FROM tree_arrivals")
