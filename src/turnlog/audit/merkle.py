"""Merkle trees over lists of leaves: roots, inclusion and consistency proofs, as pure functions of hashes.

Hashes are SHA-256, 32 bytes each. Sources: RFC 6962 §2.1 and RFC 9162 §2.1, which define the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from turnlog.digest import leaf_hash
from turnlog.errors import ProofError

__all__ = [
    "EMPTY_ROOT",
    "HASH_BYTES",
    "Frontier",
    "consistency_nodes",
    "consistency_proof",
    "inclusion_nodes",
    "inclusion_proof",
    "joined",
    "leaf_hash",
    "node_hash",
    "root",
    "root_nodes",
    "verify_consistency",
    "verify_inclusion",
]

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
"""The root of a tree without leaves."""

Node = tuple[int, int]
"""A node over a whole subtree: its level (0 for leaves) and its place in that level, from 0, left to right."""


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of the node over two others, SHA-256(0x01 ‖ left ‖ right)."""
    return sha256(b"\x01" + left + right).digest()


# ------------------------------------------------------------------------------------------------ from all leaf hashes


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the root of the tree over leaf hashes.

    Raises:
        ProofError: one of them is no hash.
    """
    _check_hashes(leaf_hashes, "leaf hash")
    return _subtree(leaf_hashes, 0, len(leaf_hashes))


def inclusion_proof(index: int, leaf_hashes: Sequence[bytes]) -> list[bytes]:
    """Return the proof that a leaf is in the tree over leaf hashes, from the leaf's sibling upwards.

    Args:
        index: index of the leaf, from 0.
        leaf_hashes: all leaf hashes of the tree.

    Raises:
        ProofError: there is no such leaf, or one of them is no hash.
    """
    _check_hashes(leaf_hashes, "leaf hash")
    return [_subtree(leaf_hashes, *span) for span in _inclusion_spans(index, len(leaf_hashes))]


def consistency_proof(size1: int, leaf_hashes: Sequence[bytes]) -> list[bytes]:
    """Return the proof that the tree over the first leaves has grown into the tree over all.

    Args:
        size1: how many leaves the old tree had, at most as many as there are. The proof from 0, and from all, is empty.
        leaf_hashes: all leaf hashes of the new tree.

    Raises:
        ProofError: the old tree is not smaller or equal, or one of them is no hash.
    """
    _check_hashes(leaf_hashes, "leaf hash")
    return [_subtree(leaf_hashes, *span) for span in _consistency_spans(size1, len(leaf_hashes))]


def _subtree(leaf_hashes: Sequence[bytes], first: int, end: int) -> bytes:
    """Return the hash over the leaves from `first` to `end`, which is excluded."""
    level = list(leaf_hashes[first:end])
    if not level:
        return EMPTY_ROOT
    while len(level) > 1:
        above = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        # What has no sibling goes up as it is: the left subtree is always the largest whole one.
        level = above + level[len(above) * 2 :]
    return level[0]


# ------------------------------------------------------------------------------------------------- from stored hashes


def root_nodes(size: int) -> list[Node]:
    """Return the whole subtrees that a tree is made of, left to right: `joined` of their hashes is the root."""
    return list(_whole(0, size))


def inclusion_nodes(index: int, size: int) -> list[list[Node]]:
    """Return, for each hash of an inclusion proof, the whole subtrees whose `joined` hashes it is.

    Raises:
        ProofError: a tree of this size has no such leaf.
    """
    return [list(_whole(*span)) for span in _inclusion_spans(index, size)]


def consistency_nodes(size1: int, size2: int) -> list[list[Node]]:
    """Return, for each hash of a consistency proof, the whole subtrees whose `joined` hashes it is.

    Raises:
        ProofError: the first tree is larger than the second.
    """
    return [list(_whole(*span)) for span in _consistency_spans(size1, size2)]


def joined(hashes: Sequence[bytes]) -> bytes:
    """Return the hash over whole subtrees that stand beside each other, the larger ones left."""
    if not hashes:
        return EMPTY_ROOT
    found = hashes[-1]
    for left in reversed(hashes[:-1]):
        found = node_hash(left, found)
    return found


Span = tuple[int, int]
"""Leaves from an index to another, which is excluded."""


def _split(first: int, end: int) -> int:
    """Return where the left subtree ends: it has the largest power of two of leaves that is less than all."""
    return first + (1 << (end - first - 1).bit_length() - 1)


def _inclusion_spans(index: int, size: int) -> list[Span]:
    if not 0 <= index < size:
        raise ProofError(f"a tree of {size} leaves has none at index {index}")
    spans: list[Span] = []
    first, end = 0, size
    while end - first > 1:
        middle = _split(first, end)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((first, middle))
            first = middle
    spans.reverse()
    return spans


def _consistency_spans(size1: int, size2: int) -> list[Span]:
    if not 0 <= size1 <= size2:
        raise ProofError(f"a tree of {size1} leaves cannot have grown into one of {size2}")
    if size1 in (0, size2):
        return []
    spans: list[Span] = []
    first, end = 0, size2
    # The old tree ends within this subtree, until it is a whole one.
    while end != size1:
        middle = _split(first, end)
        if size1 <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((first, middle))
            first = middle
    if first:  # else it is the root of the old tree, which who checks the proof has
        spans.append((first, end))
    spans.reverse()
    return spans


def _whole(first: int, end: int) -> Iterator[Node]:
    """Yield the whole subtrees over leaves, the larger ones first. `first` is where a subtree of a tree begins."""
    while first < end:
        level = (end - first).bit_length() - 1
        yield level, first >> level
        first += 1 << level


class Frontier:
    """A tree that grows to the right, as the few hashes that its growth and its root depend on.

    Attributes:
        size: how many leaves it has.
    """

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        """Begin with an empty tree, or go on from one.

        Args:
            size: how many leaves it has.
            hashes: the hashes of its `root_nodes`.
        """
        nodes = root_nodes(size)
        self.size = size
        self._open: dict[int, bytes] = {level: found for (level, _), found in zip(nodes, hashes, strict=True)}
        """By level, the last node that has no sibling yet."""

    def extend(self, leaf_hashes: Sequence[bytes]) -> list[tuple[int, int, list[bytes]]]:
        """Add leaves, and return the nodes above them that became whole: level, place of the first, and hashes."""
        first, level, nodes = self.size, 0, leaf_hashes
        self.size += len(nodes)
        grown: list[tuple[int, int, list[bytes]]] = []
        while nodes:
            if first & 1:
                nodes = [self._open.pop(level), *nodes]
            if len(nodes) & 1:
                self._open[level] = nodes[-1]
            nodes = [*map(node_hash, nodes[::2], nodes[1::2])]
            first, level = first >> 1, level + 1
            if nodes:
                grown.append((level, first, nodes))
        return grown

    @property
    def hashes(self) -> list[bytes]:
        """The hashes of its `root_nodes`."""
        return [self._open[level] for level in sorted(self._open, reverse=True)]

    @property
    def root(self) -> bytes:
        """Its root."""
        return joined(self.hashes)


# -------------------------------------------------------------------------------------------------------------- check


def verify_inclusion(index: int, size: int, leaf_hash: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Check that a leaf is in a tree.

    Args:
        index: index of the leaf, from 0.
        size: how many leaves the tree has.
        leaf_hash: hash of the leaf.
        proof: the inclusion proof, from the leaf's sibling upwards.
        root: the root of the tree.

    Raises:
        ProofError: it is not proved.
    """
    _check_hashes([leaf_hash], "leaf hash")
    _check_hashes([root], "root")
    _check_hashes(proof, "hash of the proof")
    spans = _inclusion_spans(index, size)
    _check_length(proof, len(spans), "inclusion")
    found = leaf_hash
    for (first, _), sibling in zip(spans, proof, strict=True):
        found = node_hash(sibling, found) if first < index else node_hash(found, sibling)
    if found != root:
        raise ProofError("the inclusion proof leads to another root")


def verify_consistency(size1: int, size2: int, proof: Sequence[bytes], root1: bytes, root2: bytes) -> None:
    """Check that a tree has grown into another: that its leaves are the first leaves of the other.

    Args:
        size1: how many leaves the old tree has.
        size2: how many leaves the new tree has.
        proof: the consistency proof.
        root1: the root of the old tree.
        root2: the root of the new tree.

    Raises:
        ProofError: it is not proved.
    """
    _check_hashes([root1, root2], "root")
    _check_hashes(proof, "hash of the proof")
    spans = _consistency_spans(size1, size2)
    _check_length(proof, len(spans), "consistency")
    if not size1 and root1 != EMPTY_ROOT:
        raise ProofError("the root of the empty tree is another one")
    if size1 == size2 and root1 != root2:
        raise ProofError("trees of the same size have different roots")
    if not spans:
        return
    steps = list(zip(spans, proof, strict=True))
    # Where the old tree is a whole subtree of the new one, the proof begins beside it, else with a part of it.
    old = new = root1 if spans[0][0] >= size1 else steps.pop(0)[1]
    for (first, _), sibling in steps:
        if first < size1:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
        else:
            new = node_hash(new, sibling)
    if old != root1:
        raise ProofError("the consistency proof leads to another old root")
    if new != root2:
        raise ProofError("the consistency proof leads to another new root")


def _check_length(proof: Sequence[bytes], needed: int, what: str) -> None:
    if len(proof) != needed:
        raise ProofError(f"the {what} proof has {len(proof)} hashes, and {needed} are needed")


def _check_hashes(hashes: Sequence[bytes], what: str) -> None:
    for found in hashes:
        if type(found) is not bytes or len(found) != HASH_BYTES:
            raise ProofError(f"a {what} is not 32 bytes")
