"""The Merkle tree of a log: grown behind the appends, and read for roots and proofs.

A root costs as much as the events since the last one, a proof about two hashes a level. Where no tree is kept,
as in a store that can only be read, hashes are made from the leaves instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from turnlog.audit.arrivals import Arrivals, Run
from turnlog.audit.merkle import Frontier, consistency_nodes, inclusion_nodes, joined, root, root_nodes
from turnlog.errors import CorruptionError
from turnlog.projections.tree import TREE, forget_nodes, read_arrivals, read_node, tree_size, write_nodes
from turnlog.store import ReadTransaction, Store

PAGE_LEAVES = 16_384
"""Leaves a snapshot and a write."""

Progress = Callable[[int, int], None]


def grow(store: Store, *, progress: Progress | None = None) -> int:
    """Build the kept tree up to the end of the log, and return how many leaves it has. On return it is durable.

    Args:
        store: the log. Others may append, and grow the tree, meanwhile.
        progress: called with leaves done and leaves in all.

    Raises:
        StoreReadOnlyError, StoreFullError, StoreBusyError, StoreClosedError: it cannot be written.
        CorruptionError: leaf hashes are damaged, or the log was cut.
    """
    store.gain(TREE)
    while True:
        with store.read() as transaction:
            before, end = tree_size(transaction), transaction.log_end()
            if before > end:
                raise CorruptionError(
                    f"the kept tree has {before} leaves and the log {end} events: the log was cut, run `turnlog verify`"
                )
            if before == end:
                return end
            frontier = Frontier(before, [Nodes(transaction).node(*node) for node in root_nodes(before)])
            leaves = transaction.leaves(before, min(end - before, PAGE_LEAVES))
            arrivals = Arrivals(transaction.leaves(before - 1, 1)[0][1] if before else None)
        for position, (_, arrival) in enumerate(leaves, before + 1):
            arrivals.add(position, arrival)
        grown = frontier.extend([leaf for leaf, _ in leaves])
        plan = partial(write_nodes, size_before=before, size=frontier.size, grown=grown, arrivals=arrivals.runs)
        store.write(plan)
        if progress is not None:
            progress(frontier.size, end)


def rebuild_tree(store: Store, *, progress: Progress | None = None) -> int:
    """Throw the kept tree away, and build it anew from the leaves. Return how many leaves it has."""
    store.gain(TREE)
    store.write(forget_nodes)
    return grow(store, progress=progress)


class Nodes:
    """Hashes of the tree in one snapshot.

    Attributes:
        read: how many stored hashes were read.
    """

    def __init__(self, transaction: ReadTransaction) -> None:
        """Take the snapshot."""
        self._transaction = transaction
        self._kept = tree_size(transaction)
        self.read = 0

    def node(self, level: int, place: int) -> bytes:
        """Return the hash of a node over a whole subtree."""
        if level == 0 or (place + 1) << level > self._kept:
            count = 1 << level
            self.read += count
            return root([leaf for leaf, _ in self._transaction.leaves(place << level, count)])
        self.read += 1
        return read_node(self._transaction, level, place)

    def arrivals(self, size: int) -> list[Run]:
        """Return how the first events came into the store, as runs."""
        kept = min(size, self._kept)
        runs = [(position, arrival) for position, arrival in read_arrivals(self._transaction, kept)] if kept else []
        arrivals = Arrivals(runs[-1][1] if runs else None)
        for position, (_, arrival) in enumerate(self._transaction.leaves(kept, size - kept), kept + 1):
            arrivals.add(position, arrival)
        return runs + arrivals.runs

    def root(self, size: int) -> bytes:
        """Return the root of the tree over the first events, of which there must be so many."""
        return joined([self.node(*node) for node in root_nodes(size)])

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
