"""Merkle trees: against the definitions of RFC 6962 §2.1 and the algorithms of RFC 9162 §2.1, written down naively."""

from collections.abc import Callable
from hashlib import sha256
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_nodes,
    consistency_proof,
    inclusion_nodes,
    inclusion_proof,
    joined,
    leaf_hash,
    node_hash,
    root,
    root_nodes,
    verify_consistency,
    verify_inclusion,
)
from turnlog.errors import ProofError

SIZES_MAX = 70
LEAVES = [leaf_hash(bytes([number])) for number in range(SIZES_MAX)]
OTHER = sha256(b"another").digest()

REFERENCE = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
"""The leaves that implementations of Certificate Transparency are tried on."""
REFERENCE_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


# ------------------------------------------------------------------------------------- the definitions of RFC 6962 §2.1


def split(size: int) -> int:
    """The largest power of two smaller than a size."""
    k = 1
    while k * 2 < size:
        k *= 2
    return k


def tree_hash(leaves: list[bytes]) -> bytes:
    """MTH(D[n]), of leaf hashes."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return sha256(b"\x01" + tree_hash(leaves[:k]) + tree_hash(leaves[k:])).digest()


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH(m, D[n])."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*path(index, leaves[:k]), tree_hash(leaves[k:])]
    return [*path(index - k, leaves[k:]), tree_hash(leaves[:k])]


def subproof(size: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """SUBPROOF(m, D[n], b)."""
    if size == len(leaves):
        return [] if whole else [tree_hash(leaves)]
    k = split(len(leaves))
    if size <= k:
        return [*subproof(size, leaves[:k], whole), tree_hash(leaves[k:])]
    return [*subproof(size - k, leaves[k:], False), tree_hash(leaves[:k])]


def growth(size: int, leaves: list[bytes]) -> list[bytes]:
    """PROOF(m, D[n]); empty from the empty tree, for which the RFC defines none."""
    return subproof(size, leaves, True) if size else []


# ----------------------------------------------------------------------------------------- the algorithms of RFC 9162


def reached_root(index: int, size: int, leaf: bytes, proof: list[bytes]) -> bytes | None:
    """RFC 9162 §2.1.3.2 up to its last comparison; None where it has failed by then."""
    if index >= size:
        return None
    fn, sn, r = index, size - 1, leaf
    for p in proof:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    return r if sn == 0 else None


def is_included(index: int, size: int, leaf: bytes, proof: list[bytes], tree_root: bytes) -> bool:
    """RFC 9162 §2.1.3.2."""
    return reached_root(index, size, leaf, proof) == tree_root


def has_grown(first: int, second: int, proof: list[bytes], first_root: bytes, second_root: bytes) -> bool:
    """RFC 9162 §2.1.4.2, for 0 < first < second."""
    if not proof:
        return False
    proof = [first_root, *proof] if first & (first - 1) == 0 else proof
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = proof[0]
    for c in proof[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node_hash(c, fr), node_hash(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node_hash(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return fr == first_root and sr == second_root and sn == 0


def holds(check: Callable[..., None], *arguments: object) -> bool:
    """Tell whether a check of a proof passes."""
    try:
        check(*arguments)
    except ProofError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------------- roots


@pytest.mark.parametrize(("size", "expected"), [*enumerate(REFERENCE_ROOTS)])
def test_roots_of_the_reference_leaves(size: int, expected: str) -> None:
    """They are the known ones, of every size."""
    assert root([leaf_hash(bytes.fromhex(leaf)) for leaf in REFERENCE[:size]]).hex() == expected


def test_structure_of_a_tree_of_seven() -> None:
    """RFC 6962 §2.1.3 draws it: audit paths and consistency proofs name these nodes."""
    a, b, c, d, e, f, j = LEAVES[:7]
    g, h, i = node_hash(a, b), node_hash(c, d), node_hash(e, f)
    k, l = node_hash(g, h), node_hash(i, j)  # noqa: E741 - so it is called there
    leaves = LEAVES[:7]
    assert root(leaves) == node_hash(k, l)
    assert inclusion_proof(0, leaves) == [b, h, l]
    assert inclusion_proof(3, leaves) == [c, g, l]
    assert inclusion_proof(4, leaves) == [f, j, k]
    assert inclusion_proof(6, leaves) == [i, k]
    assert consistency_proof(3, leaves) == [c, d, g, l]
    assert consistency_proof(4, leaves) == [l]
    assert consistency_proof(6, leaves) == [i, j, k]


def test_leaf_and_node_hashes_are_apart() -> None:
    """No leaf can be taken for a node: what is hashed begins with another byte."""
    assert leaf_hash(b"x") == sha256(b"\x00x").digest()
    assert node_hash(LEAVES[0], LEAVES[1]) == sha256(b"\x01" + LEAVES[0] + LEAVES[1]).digest()
    assert sha256(b"").digest() == EMPTY_ROOT == root([])


def test_every_tree_is_as_it_is_defined() -> None:
    """Root, every inclusion and every consistency proof, of every size; and each of them is accepted."""
    for size in range(SIZES_MAX + 1):
        leaves = LEAVES[:size]
        top = root(leaves)
        assert top == tree_hash(leaves)
        for index in range(size):
            proof = inclusion_proof(index, leaves)
            assert proof == path(index, leaves)
            verify_inclusion(index, size, leaves[index], proof, top)
        for before in range(size + 1):
            proof = consistency_proof(before, leaves)
            assert proof == growth(before, leaves)
            verify_consistency(before, size, proof, root(leaves[:before]), top)


@given(st.lists(st.binary(max_size=4), max_size=300), st.data())
def test_large_trees_are_as_they_are_defined(entries: list[bytes], data: st.DataObject) -> None:
    """Leaves of any content, equal ones too."""
    leaves = [leaf_hash(entry) for entry in entries]
    top = root(leaves)
    assert top == tree_hash(leaves)
    before = data.draw(st.integers(0, len(leaves)))
    assert consistency_proof(before, leaves) == growth(before, leaves)
    verify_consistency(before, len(leaves), growth(before, leaves), tree_hash(leaves[:before]), top)
    if leaves:
        index = data.draw(st.integers(0, len(leaves) - 1))
        assert inclusion_proof(index, leaves) == path(index, leaves)
        verify_inclusion(index, len(leaves), leaves[index], path(index, leaves), top)


def test_proofs_of_stored_nodes_are_the_same() -> None:
    """Whole subtrees, put together as the nodes of a proof say, give the hashes of the proof."""
    for size in range(SIZES_MAX + 1):
        leaves = LEAVES[:size]

        def stored(nodes: list[tuple[int, int]], leaves: list[bytes] = leaves) -> bytes:
            for level, place in nodes:
                assert (place + 1) << level <= len(leaves)
            return joined([tree_hash(leaves[place << level : (place + 1) << level]) for level, place in nodes])

        assert stored(root_nodes(size)) == root(leaves)
        for index in range(size):
            assert [stored(nodes) for nodes in inclusion_nodes(index, size)] == inclusion_proof(index, leaves)
        for before in range(size + 1):
            assert [stored(nodes) for nodes in consistency_nodes(before, size)] == consistency_proof(before, leaves)


@given(st.lists(st.integers(0, 40), max_size=6))
def test_tree_that_grows_is_the_same(steps: list[int]) -> None:
    """However many leaves come at once: its root, and every whole node above them, once."""
    frontier, nodes = Frontier(), dict[tuple[int, int], bytes]()
    for step in steps:
        leaves = [leaf_hash(bytes([number])) for number in range(frontier.size, frontier.size + step)]
        for level, first, hashes in frontier.extend(leaves):
            for place, found in enumerate(hashes, first):
                assert nodes.setdefault((level, place), found) is found
        frontier = Frontier(frontier.size, frontier.hashes)
    leaves = [leaf_hash(bytes([number])) for number in range(frontier.size)]
    assert frontier.root == tree_hash(leaves)
    for (level, place), found in nodes.items():
        assert found == tree_hash(leaves[place << level : (place + 1) << level])
    assert len(nodes) == sum(frontier.size >> level for level in range(1, 9))


# ------------------------------------------------------------------------------------------------------------ refusals


def changed(proof: list[bytes]) -> list[list[bytes]]:
    """Proofs that differ in one hash: another one, a flipped bit, one missing, one too many, two swapped."""
    found: list[list[bytes]] = []
    for at, each in enumerate(proof):
        flipped = bytes([each[0] ^ 1]) + each[1:]
        found += [[*proof[:at], other, *proof[at + 1 :]] for other in (OTHER, flipped)]
        found += [proof[:at] + proof[at + 1 :], [*proof[:at], each, *proof[at:]]]
        if at and proof[at - 1] != each:
            found.append([*proof[: at - 1], each, proof[at - 1], *proof[at + 1 :]])
    found += [[*proof, OTHER], [OTHER, *proof]]
    return found


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33, 63, 64, 65, SIZES_MAX])
def test_changed_inclusion_proofs_are_refused(size: int) -> None:
    """Whatever hash is changed, missing or too many, of the proof, the leaf or the root."""
    leaves, top = LEAVES[:size], root(LEAVES[:size])
    for index in range(size):
        proof = inclusion_proof(index, leaves)
        for other in changed(proof):
            with pytest.raises(ProofError):
                verify_inclusion(index, size, leaves[index], other, top)
        with pytest.raises(ProofError):
            verify_inclusion(index, size, OTHER, proof, top)
        with pytest.raises(ProofError):
            verify_inclusion(index, size, leaves[index], proof, OTHER)
        for wrong in {*range(-1, size + 2)} - {index}:
            with pytest.raises(ProofError):
                verify_inclusion(wrong, size, leaves[index], proof, top)


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33, 63, 64, 65, SIZES_MAX])
def test_changed_consistency_proofs_are_refused(size: int) -> None:
    """Whatever hash is changed, missing or too many, of the proof or the roots."""
    leaves, top = LEAVES[:size], root(LEAVES[:size])
    for before in range(size + 1):
        proof, old = consistency_proof(before, leaves), root(leaves[:before])
        for other in changed(proof):
            with pytest.raises(ProofError):
                verify_consistency(before, size, other, old, top)
        with pytest.raises(ProofError):
            verify_consistency(before, size, proof, OTHER, top)
        # From the empty tree everything has grown.
        assert holds(verify_consistency, before, size, proof, old, OTHER) is (before == 0)


def test_sizes_are_checked_as_the_rfc_does() -> None:
    """A wrong index or size is refused wherever RFC 9162 refuses it.

    A proof alone does not tell all sizes apart: the checkpoint says the size, and is signed.
    """
    for size in range(1, 24):
        leaves, top = LEAVES[:size], root(LEAVES[:size])
        for index in range(size):
            proof = inclusion_proof(index, leaves)
            for claimed, at in product(range(size + 10), range(size + 2)):
                arguments = (at, claimed, leaves[index], proof, top)
                assert holds(verify_inclusion, *arguments) is is_included(*arguments)
        for before in range(1, size):
            proof, old = consistency_proof(before, leaves), root(leaves[:before])
            for first, second in product(range(1, size + 5), range(size + 10)):
                if first < second:
                    arguments = (first, second, proof, old, top)
                    assert holds(verify_consistency, *arguments) is has_grown(*arguments)


@given(st.integers(1, 2**40), st.data())
def test_any_proof_is_judged_as_the_rfc_does(size: int, data: st.DataObject) -> None:
    """Of trees that are too large to be built: proofs of any hashes lead to the same root, and have the same length."""
    index = data.draw(st.integers(0, size - 1))
    length = max(0, len(inclusion_nodes(index, size)) + data.draw(st.sampled_from([0, 0, 0, -1, 1])))
    proof = [leaf_hash(bytes([number])) for number in range(length)]
    reached = reached_root(index, size, OTHER, proof)
    assert (reached is None) is (length != len(inclusion_nodes(index, size)))
    if reached is not None:
        verify_inclusion(index, size, OTHER, proof, reached)
        reached = bytes([reached[0] ^ 1]) + reached[1:]
    with pytest.raises(ProofError):
        verify_inclusion(index, size, OTHER, proof, reached or OTHER)


@pytest.mark.parametrize(
    "wrong", [b"", LEAVES[0][:31], LEAVES[0] + b"\x00", LEAVES[0].hex(), bytearray(LEAVES[0]), None]
)
def test_what_is_no_hash_is_refused(wrong: object) -> None:
    """Anything but 32 bytes, wherever a hash is expected."""
    two = LEAVES[:2]
    attempts: list[Callable[[], object]] = [
        lambda: root([LEAVES[0], wrong]),  # type: ignore[list-item]
        lambda: inclusion_proof(0, [LEAVES[0], wrong]),  # type: ignore[list-item]
        lambda: consistency_proof(1, [LEAVES[0], wrong]),  # type: ignore[list-item]
        lambda: verify_inclusion(0, 2, wrong, [two[1]], root(two)),  # type: ignore[arg-type]
        lambda: verify_inclusion(0, 2, two[0], [wrong], root(two)),  # type: ignore[list-item]
        lambda: verify_inclusion(0, 2, two[0], [two[1]], wrong),  # type: ignore[arg-type]
        lambda: verify_consistency(1, 2, [wrong], two[0], root(two)),  # type: ignore[list-item]
        lambda: verify_consistency(1, 2, [two[1]], wrong, root(two)),  # type: ignore[arg-type]
        lambda: verify_consistency(1, 2, [two[1]], two[0], wrong),  # type: ignore[arg-type]
    ]
    for attempt in attempts:
        with pytest.raises(ProofError):
            attempt()


def test_what_is_not_in_a_tree_is_refused() -> None:
    """Indexes and sizes beyond it, and below zero."""
    for index in (-1, 3, 4):
        with pytest.raises(ProofError, match="has none at index"):
            inclusion_proof(index, LEAVES[:3])
    for size in (-1, 4):
        with pytest.raises(ProofError, match="cannot have grown"):
            consistency_proof(size, LEAVES[:3])
    with pytest.raises(ProofError):
        verify_inclusion(0, 0, LEAVES[0], [], LEAVES[0])
    with pytest.raises(ProofError):
        verify_consistency(3, 2, [], root(LEAVES[:3]), root(LEAVES[:2]))


def test_empty_tree_has_one_root() -> None:
    """Whoever says that an empty log has another one is refused."""
    verify_consistency(0, 0, [], EMPTY_ROOT, EMPTY_ROOT)
    with pytest.raises(ProofError):
        verify_consistency(0, 0, [], OTHER, OTHER)
    with pytest.raises(ProofError):
        verify_consistency(0, 1, [], OTHER, LEAVES[0])
