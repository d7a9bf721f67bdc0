"""The Merkle tree of a log: grown behind the appends, and read for roots and proofs.

A root costs as much as the events since the last one, a proof about two hashes a level. Where no tree is kept,
as in a store that can only be read, hashes are made from the leaves instead.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from turnlog.audit.arrivals import Arrivals, Run
from turnlog.audit.merkle import Frontier, Node, consistency_nodes, inclusion_nodes, joined, root, root_nodes
from turnlog.errors import CorruptionError
from turnlog.projections.tree import (
    TREE,
    Grown,
    forget_nodes,
    read_arrivals,
    read_node,
    read_scattered,
    tree_size,
    write_nodes,
)
from turnlog.store import ReadTransaction, SideTables, Store, WriteTransaction

PAGE_LEAVES = 16_384
"""Leaves a snapshot and a write."""

Progress = Callable[[int, int], None]


class Growth(Struct, frozen=True, kw_only=True):
    """What the kept tree lacked in a snapshot.

    Attributes:
        size_before: how many leaves it had.
        size: how many it has with this.
        nodes: the nodes that became whole.
        runs: the runs of arrivals that began.
    """

    size_before: int
    size: int
    nodes: Grown
    runs: list[Run]

    def keep(self, transaction: WriteTransaction) -> None:
        """Write it into the kept tree, unless another has grown that meanwhile."""
        if self.size > self.size_before:
            write_nodes(transaction, self.size_before, self.size, self.nodes, self.runs)


def gain(store: Store, side: SideTables) -> None:
    """Make side tables where they are not there.

    Raises:
        StoreReadOnlyError, StoreFullError, StoreBusyError, StoreClosedError: it cannot be written.
        CorruptionError: something else stands in the place of one of them.
    """
    store.gain(side)
    with store.read() as transaction:
        if not transaction.has(side):
            raise CorruptionError(
                f"the store has something else in the place of a table of the {side.name}: run `turnlog verify`"
            )


def grow(store: Store, *, progress: Progress | None = None) -> int:
    """Build the kept tree up to where the log ends at the call, and return how many leaves it has.

    On return it is durable. What is appended meanwhile is left for the next time: who follows appends up to their end
    follows for as long as somebody appends.

    Args:
        store: the log. Others may append, and grow the tree, meanwhile.
        progress: called with leaves done and leaves in all.

    Raises:
        StoreReadOnlyError, StoreFullError, StoreBusyError, StoreClosedError: it cannot be written.
        CorruptionError: leaf hashes are damaged, or the log was cut.
    """
    gain(store, TREE)
    end: int | None = None
    while True:
        with store.read() as transaction:
            nodes = Nodes(transaction)
            if end is None:
                end = transaction.log_end()
            if nodes.kept >= end:
                nodes.check_kept()
                return nodes.kept
            growth = nodes.grow(min(end, nodes.kept + PAGE_LEAVES))
        store.write(growth.keep)
        if progress is not None:
            progress(growth.size, end)


def rebuild_tree(store: Store, *, progress: Progress | None = None) -> int:
    """Throw the kept tree away, and build it anew from the leaves. Return how many leaves it has."""
    gain(store, TREE)
    store.write(forget_nodes)
    return grow(store, progress=progress)


class Nodes:
    """Hashes of the tree in one snapshot.

    Attributes:
        kept: how many leaves the kept tree has.
        read: how many stored hashes were read.
    """

    def __init__(self, transaction: ReadTransaction) -> None:
        """Take the snapshot."""
        self._transaction = transaction
        self.kept = tree_size(transaction)
        self.read = 0
        self._known: dict[Node, bytes] = {}
        """Hashes that roots were made of."""
        self._growth: Growth | None = None

    def check_kept(self) -> None:
        """Compare the size of the kept tree with that of the log.

        Raises:
            CorruptionError: the log has fewer events.
        """
        end = self._transaction.log_end()
        if self.kept > end:
            raise CorruptionError(
                f"the kept tree has {self.kept} leaves and the log {end} events: one of them is damaged, "
                "run `turnlog verify`"
            )

    def grow(self, size: int) -> Growth:
        """Return what the kept tree lacks up to a size. From then on roots and arrivals know of it.

        Raises:
            CorruptionError: hashes are damaged or missing, or the log was cut.
        """
        self.check_kept()
        before = self.kept
        frontier = Frontier(before, self._of_root(before))
        arrivals = Arrivals(self._transaction.leaves(before - 1, 1)[0][1] if 0 < before < size else None)
        leaves = self._transaction.leaves(before, size - before) if before < size else []
        arrivals.extend(before + 1, [arrival for _, arrival in leaves])
        nodes = frontier.extend([leaf for leaf, _ in leaves])
        self._known.update(zip(root_nodes(frontier.size), frontier.hashes, strict=True))
        self._growth = Growth(size_before=before, size=frontier.size, nodes=nodes, runs=arrivals.runs)
        return self._growth

    def node(self, level: int, place: int) -> bytes:
        """Return the hash of a node over a whole subtree."""
        if not self._is_kept(level, place):
            count = 1 << level
            self.read += count
            return root([leaf for leaf, _ in self._transaction.leaves(place << level, count)])
        self.read += 1
        return read_node(self._transaction, level, place)

    def arrivals(self, size: int) -> list[Run]:
        """Return how the first events came into the store, as runs."""
        kept = min(size, self.kept)
        runs = [(position, arrival) for position, arrival in read_arrivals(self._transaction, kept)] if kept else []
        if self._growth is not None and self._growth.size == size:
            return runs + self._growth.runs
        arrivals = Arrivals(runs[-1][1] if runs else None)
        if kept < size:
            arrivals.extend(kept + 1, [arrival for _, arrival in self._transaction.leaves(kept, size - kept)])
        return runs + arrivals.runs

    def root(self, size: int) -> bytes:
        """Return the root of the tree over the first events, of which there must be so many."""
        return joined(self._of_root(size))

    def _of_root(self, size: int) -> list[bytes]:
        """Return the hashes of the subtrees that a root is made of, left to right."""
        nodes = root_nodes(size)
        lacking = [node for node in nodes if node not in self._known]
        kept = [node for node in lacking if self._is_kept(*node)]
        self.read += len(kept)
        self._known.update(zip(kept, read_scattered(self._transaction, kept), strict=True))
        for node in lacking:
            if node not in self._known:
                self._known[node] = self.node(*node)
        return [self._known[node] for node in nodes]

    def _is_kept(self, level: int, place: int) -> bool:
        return level > 0 and (place + 1) << level <= self.kept

    def inclusion_proof(self, index: int, size: int) -> list[bytes]:
        """Return the proof that an event is in the tree over the first events.

        Args:
            index: its global position less 1.
            size: how many events the tree has.
        """
        return [joined([self.node(*node) for node in nodes]) for nodes in inclusion_nodes(index, size)]

    def consistency_proof(self, size1: int, size2: int) -> list[bytes]:
        """Return the proof that the tree over the first events has grown into a larger one."""
        return [joined([self.node(*node) for node in nodes]) for nodes in consistency_nodes(size1, size2)]
