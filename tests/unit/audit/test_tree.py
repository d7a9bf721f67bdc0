"""The kept tree of a log, and the roots and proofs that are read from it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.audit.merkle import root, verify_consistency, verify_inclusion
from turnlog.audit.tree import Nodes, grow
from turnlog.errors import CorruptionError
from turnlog.projections.tree import RUN, TREE, read_arrivals, tree_size

SIZES = (1, 2, 3, RUN, 2 * RUN + 1, 5 * RUN + 7)


@pytest.fixture
def log(tmp_path: Path):
    """Open a log."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


def _fill(log: TurnLog, size: int) -> None:
    with log.store.read() as transaction:
        end = transaction.log_end()
    for number in range(max(end, 1), size):
        log.add_turn(str(number))


def _leaves(log: TurnLog, size: int) -> list[bytes]:
    with log.store.read() as transaction:
        return [leaf for leaf, _ in transaction.leaves(0, size)]


def test_tree_grows_behind_the_log(log: TurnLog) -> None:
    """Each time by what is new; every root and every proof is that of the naive tree, and reads few hashes."""
    for size in SIZES[1:]:
        _fill(log, size)
        assert grow(log.store) == size
        assert grow(log.store) == size
    leaves = _leaves(log, SIZES[-1])
    with log.store.read() as transaction:
        assert tree_size(transaction) == SIZES[-1]
        for size in range(1, len(leaves) + 1):
            head = root(leaves[:size])
            assert Nodes(transaction).root(size) == head
            for index in {0, size // 2, size - 1}:
                nodes = Nodes(transaction)
                verify_inclusion(index, size, leaves[index], nodes.inclusion_proof(index, size), head)
                assert nodes.read <= 40
            proof = Nodes(transaction).consistency_proof(size, len(leaves))
            verify_consistency(size, len(leaves), proof, head, root(leaves))


def test_root_and_proofs_need_no_kept_tree(log: TurnLog) -> None:
    """In a store that can only be read they are made from the leaves."""
    _fill(log, 50)
    leaves = _leaves(log, 50)
    with log.store.read() as transaction:
        assert not transaction.has(TREE)
        nodes = Nodes(transaction)
        assert nodes.root(50) == root(leaves)
        verify_inclusion(7, 50, leaves[7], nodes.inclusion_proof(7, 50), root(leaves))
        assert nodes.arrivals(50) == [(1, 0)]


def test_rebuilt_tree_is_the_same(log: TurnLog) -> None:
    """Byte for byte, whatever steps it grew in."""
    for size in SIZES[1:]:
        _fill(log, size)
        grow(log.store)

    def kept() -> list[object]:
        with log.store.read() as transaction:
            rows = transaction.rows("SELECT level, run, hashes FROM tree_hashes ORDER BY level, run")
            return [rows, tree_size(transaction), read_arrivals(transaction, 1000)]

    before = kept()
    assert log.audit.rebuild_tree() == SIZES[-1]
    assert kept() == before


def test_growth_ends_where_the_log_ended_when_it_began(log: TurnLog) -> None:
    """Whoever appends meanwhile does not keep it going."""
    _fill(log, 40)
    seen: list[tuple[int, int]] = []

    def appending(done: int, end: int) -> None:
        seen.append((done, end))
        log.add_turn("meanwhile")

    assert grow(log.store, progress=appending) == 40
    assert seen == [(40, 40)]
    assert grow(log.store) == 41


def test_growth_in_a_snapshot_is_that_of_the_kept_tree(log: TurnLog) -> None:
    """Root and arrivals are there before it is kept; what another has kept meanwhile is not kept twice."""
    _fill(log, 40)
    grow(log.store)
    _fill(log, 5 * RUN + 7)
    with log.store.read() as transaction:
        nodes = Nodes(transaction)
        growth = nodes.grow(5 * RUN + 7)
        assert (growth.size_before, growth.size) == (40, 5 * RUN + 7)
        assert nodes.root(5 * RUN + 7) == root(_leaves(log, 5 * RUN + 7))
        assert nodes.root(40) == root(_leaves(log, 40))
        assert nodes.arrivals(5 * RUN + 7) == [(1, 0)]
    log.store.write(growth.keep)
    log.store.write(growth.keep)
    assert grow(log.store) == 5 * RUN + 7
    assert log.verify().clean


def test_two_that_grow_it_at_once_keep_one_tree(log: TurnLog) -> None:
    """What another has kept meanwhile is not kept twice."""
    _fill(log, 40)
    with TurnLog.open(log.store.url) as other:
        grow(log.store)
        grow(other.store)
        _fill(other, 80)
        assert grow(log.store) == grow(other.store) == 80
    with log.store.read() as transaction:
        assert Nodes(transaction).root(80) == root(_leaves(log, 80))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE tree_size SET size = 'x'", "size of the kept tree is damaged"),
        ("UPDATE tree_size SET size = 1000", "1000 leaves and the log 42 events"),
        ("DELETE FROM tree_hashes", "is missing"),
        ("UPDATE tree_hashes SET hashes = zeroblob(7)", "is missing"),
    ],
)
def test_damaged_tree_is_refused_and_named(log: TurnLog, statement: str, message: str) -> None:
    """What is needed of it is never made up; `verify` says that it differs, and a rebuild mends it."""
    _fill(log, 40)
    grow(log.store)
    log.store.write(lambda transaction: transaction.run(statement))
    _fill(log, 42)
    with pytest.raises(CorruptionError, match=message):
        grow(log.store)
    assert [damage.what for damage in log.verify().damage if "tree" in damage.what]
    log.audit.rebuild_tree()
    assert log.verify().clean


def test_node_that_was_changed_is_named_with_its_events(log: TurnLog) -> None:
    """The first pair of leaves that it is over."""
    _fill(log, 40)
    grow(log.store)
    log.store.write(
        lambda transaction: transaction.run(
            "UPDATE tree_hashes SET hashes = CAST(substr(hashes, 1, 96) || ? || substr(hashes, 129) AS BLOB)"
            " WHERE level = 1",
            (b"x" * 32,),
        )
    )
    [damage] = log.verify().damage
    assert "the kept tree differs from the events at global positions 7 to 8" in damage.what


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE tree_size SET size = 148", "148 leaves and the log 48 events: the tree is damaged"),
        ("UPDATE tree_size SET size = 64", "64 leaves and the log 48 events: the tree is damaged"),
        ("UPDATE tree_size SET size = 49", "49 leaves and the log 48 events: the log was cut, or the tree is damaged"),
        ("UPDATE tree_size SET size = 40", "does not have the hashes of 40 leaves"),
        ("DELETE FROM tree_size", "does not have the hashes of 0 leaves"),
        ("INSERT INTO tree_size VALUES (2, 5)", "a second size"),
        ("INSERT INTO tree_hashes VALUES (9, 9, zeroblob(32))", "does not have the hashes of 48 leaves"),
        ("UPDATE tree_hashes SET hashes = CAST(hashes || x'00' AS BLOB) WHERE level = 5", "does not have the hashes"),
        ("DELETE FROM tree_hashes WHERE level = 2", "node 0 of level 2 of the kept tree is missing"),
        ("INSERT INTO tree_arrivals VALUES (70, 2)", "the arrivals of the kept tree are damaged"),
        ("INSERT INTO tree_arrivals VALUES (7, 0)", "the arrivals of the kept tree are damaged"),
        ("INSERT INTO tree_arrivals VALUES (7, 5)", "the arrivals of the kept tree are damaged"),
        ("DELETE FROM tree_arrivals", "the arrivals of the kept tree are damaged"),
    ],
)
def test_kept_tree_that_is_none_of_the_log_is_damage(log: TurnLog, statement: str, message: str) -> None:
    """Whatever of it was changed: no event is blamed for it, and what mends it is said."""
    _fill(log, 48)
    grow(log.store)
    log.store.write(lambda transaction: transaction.run(statement))
    [damage] = log.verify().damage
    assert message in damage.what
    assert "turnlog projections rebuild 'merkle tree'" in damage.what
    assert damage.global_position is None
    log.audit.rebuild_tree()
    assert log.verify().clean


def test_view_in_the_place_of_the_size_is_told(log: TurnLog, tmp_path: Path) -> None:
    """Nothing is built for ever where nothing can be written."""
    _fill(log, 8)
    grow(log.store)
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        connection.executescript("DROP TABLE tree_size; CREATE VIEW tree_size AS SELECT 1 AS one, 5 AS size")
    with pytest.raises(CorruptionError, match="in the place of a table of the merkle tree"):
        grow(log.store)
    assert ["view 'tree_size'" in damage.what for damage in log.verify().damage] == [True]


def test_leaves_that_are_missing_are_refused(log: TurnLog) -> None:
    """More than the log has are not made up."""
    _fill(log, 3)
    with log.store.read() as transaction, pytest.raises(CorruptionError, match="cannot be read"):
        transaction.leaves(1, 3)


def test_tree_is_rebuilt_like_a_projection(log: TurnLog) -> None:
    """By its name, or with all others once it is there."""
    _fill(log, 5)
    assert "merkle tree" not in log.rebuild_projections()
    assert log.rebuild_projections(["merkle tree"]) == ["merkle tree"]
    assert log.rebuild_projections()[-1] == "merkle tree"
