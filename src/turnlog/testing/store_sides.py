"""What an engine promises of leaves, and of the tables that a store gains when they are first needed."""

from __future__ import annotations

import pytest

from turnlog.errors import CorruptionError
from turnlog.events import Arrival
from turnlog.store import SideTables, Store, WriteTransaction
from turnlog.testing.harness import StoreHarness, append, new_event

NOTES = SideTables(
    name="notes",
    tables=("notes", "more_notes"),
    schema=(
        "CREATE TABLE notes (name TEXT PRIMARY KEY, bytes BLOB NOT NULL)",
        "CREATE TABLE more_notes (number BIGINT PRIMARY KEY)",
    ),
)


class StoreSides(StoreHarness):
    """Tests of `Store.gain`, `ReadTransaction.has` and `ReadTransaction.leaves`."""

    def test_side_tables_are_made_when_they_are_first_needed(self, store: Store) -> None:
        """Once; rows of theirs are written in plans and read in snapshots, and appends go on."""
        with store.read() as transaction:
            assert not transaction.has(NOTES)
        store.gain(NOTES)
        store.gain(NOTES)
        store.write(lambda writing: writing.run("INSERT INTO notes VALUES (?, ?)", ("a", b"\x00\xff")))
        append(store, new_event())
        with store.read() as transaction:
            assert transaction.has(NOTES)
            assert transaction.rows("SELECT name, bytes FROM notes") == [("a", b"\x00\xff")]
            assert transaction.rows("SELECT number FROM more_notes") == []

    def test_a_store_has_the_tables_of_its_projections(self, store: Store) -> None:
        """Whoever reads them can know that they are there, in the same snapshot."""
        with store.read() as transaction:
            assert [projection.name for projection in store.projections if not transaction.has(projection)] == []

    def test_a_view_is_no_table(self, store: Store) -> None:
        """What stands in the place of a table may take for ever to be read: the store has not all of its tables."""

        def plan(transaction: WriteTransaction) -> None:
            transaction.run("CREATE TABLE more_notes (number BIGINT PRIMARY KEY)")
            transaction.run("CREATE VIEW notes AS SELECT number FROM more_notes")

        store.write(plan)
        with store.read() as transaction:
            assert not transaction.has(NOTES)

    def test_part_of_a_side_table_is_read_by_its_bytes(self, store: Store) -> None:
        """`substr` counts from 1, as both engines have it."""
        store.gain(NOTES)
        store.write(lambda writing: writing.run("INSERT INTO notes VALUES (?, ?)", ("a", bytes(range(200)))))
        with store.read() as transaction:
            assert transaction.rows("SELECT substr(bytes, ?, ?) FROM notes", (129, 3)) == [(b"\x80\x81\x82",)]

    def test_leaves_are_leaf_hashes_and_arrivals_in_global_order(self, store: Store) -> None:
        """From a leaf index on, which is a global position less 1; more than there are is refused."""
        arrivals = (Arrival.RECORDED, Arrival.GUEST, Arrival.RESTORED)
        recorded = [append(store, new_event(), arrival=arrival)[0] for arrival in arrivals]
        leaves = [(event.leaf_hash, int(arrival)) for event, arrival in zip(recorded, arrivals, strict=True)]
        with store.read() as transaction:
            assert transaction.leaves(0, 3) == leaves
            assert transaction.leaves(1, 1) == leaves[1:2]
            assert transaction.leaves(3, 0) == []
            with pytest.raises(CorruptionError):
                transaction.leaves(2, 2)
