"""Ancestry order."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rewriting import rewrite

from turnlog import TurnLog
from turnlog.context import ancestry
from turnlog.errors import CorruptionError
from turnlog.events import Recorded


def _itself(recorded: Recorded) -> Recorded:
    return recorded


def _ids(log: TurnLog, headish: str) -> list[str]:
    return [turn.id for turn in log.ancestry(headish)]


def _reference(parents: dict[str, tuple[str, ...]], head: str) -> list[str]:
    """Depth-first post-order by the definition, without recursion."""
    order: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, bool]] = [(head, False)]
    while stack:
        turn, done = stack.pop()
        if done:
            order.append(turn)
        elif turn not in seen:
            seen.add(turn)
            stack.append((turn, True))
            stack.extend((parent, False) for parent in reversed(parents[turn]) if parent not in seen)
    return order


def test_root_is_its_own_ancestry(log: TurnLog) -> None:
    """A root has nothing before it."""
    root = log.add_turn("x")
    assert _ids(log, root.id) == [root.id]


def test_linear_run_is_oldest_first(log: TurnLog) -> None:
    """A run reads from the root to the turn, and not beyond it."""
    turns = [log.add_turn("x").id]
    for _ in range(5):
        turns.append(log.add_turn("x", continues=turns[-1]).id)
    assert _ids(log, turns[-1]) == turns
    assert _ids(log, turns[2]) == turns[:3]


def test_fork_reads_its_parents_prefix_only(log: TurnLog) -> None:
    """A fork has what it forked from, and none of what came after that."""
    a = log.add_turn("a").id
    b = log.add_turn("b", continues=a).id
    log.add_turn("c", continues=b)
    fork = log.add_turn("f", continues=b).id
    deeper = log.add_turn("g", continues=fork).id
    assert _ids(log, deeper) == [a, b, fork, deeper]


@pytest.mark.parametrize("swap", [False, True])
def test_merge_reads_its_parents_in_listed_order(log: TurnLog, swap: bool) -> None:
    """`[doc1, doc2]` reads doc1's ancestry, doc1, doc2's ancestry, doc2, then the turn."""
    one = [log.add_turn("1").id]
    one.append(log.add_turn("doc1", continues=one[0]).id)
    two = [log.add_turn("2").id]
    two.append(log.add_turn("doc2", continues=two[0]).id)
    first, second = (two, one) if swap else (one, two)
    merge = log.add_turn("m", continues=[first[1], second[1]]).id
    assert _ids(log, merge) == [*first, *second, merge]


def test_diamond_has_each_turn_once(log: TurnLog) -> None:
    """What two parents share is read with the first of them and not again."""
    root = log.add_turn("r").id
    left = log.add_turn("l", continues=root).id
    right = log.add_turn("r", continues=root).id
    merge = log.add_turn("m", continues=[right, left]).id
    assert _ids(log, merge) == [root, right, left, merge]


def test_parent_that_is_an_ancestor_of_another_parent_is_read_in_its_place(log: TurnLog) -> None:
    """A parent that the first one continues is already read; one that continues the first one is not."""
    a = log.add_turn("a").id
    b = log.add_turn("b", continues=a).id
    c = log.add_turn("c", continues=b).id
    assert _ids(log, log.add_turn("m", continues=[c, a]).id)[:-1] == [a, b, c]
    assert _ids(log, log.add_turn("m", continues=[a, c]).id)[:-1] == [a, b, c]


def test_merge_inside_a_run_is_read_before_what_follows(log: TurnLog) -> None:
    """A further parent in the middle of a run stands right before the turn that merged it."""
    a = log.add_turn("a").id
    document = log.add_turn("d").id
    b = log.add_turn("b", continues=[a, document]).id
    c = log.add_turn("c", continues=b).id
    assert _ids(log, c) == [a, document, b, c]


@pytest.mark.parametrize("merges_max", [0, 2, 16, 10_000])
def test_random_logs_are_read_by_the_definition(log: TurnLog, monkeypatch: pytest.MonkeyPatch, merges_max: int) -> None:
    """Four hundred turns with random parents: every ancestry is the depth-first post-order, and so is its end."""
    monkeypatch.setattr(sys.modules["turnlog.context.ancestry"], "_MERGES_MAX", merges_max)
    generator = random.Random(7)
    parents: dict[str, tuple[str, ...]] = {}
    ids: list[str] = []
    for number in range(400):
        count = generator.choice([0, 1, 1, 1, 1, 2, 2, 3]) if ids else 0
        recent = ids[-12:] if generator.random() < 0.7 else ids
        chosen = generator.sample(recent, min(count, len(recent)))
        turn = log.add_turn(str(number), continues=chosen or None)
        parents[turn.id] = turn.continues
        ids.append(turn.id)
    for head in ids:
        expected = _reference(parents, head)
        assert _ids(log, head) == expected
        for limit in (7, 60):
            assert [turn.id for turn in log.ancestry(head, limit)] == expected[-limit:]


def test_visited_prefix_is_left_out_and_brought_up_to_date(log: TurnLog) -> None:
    """What was visited before is not read again, and what is read now counts as visited."""
    a = log.add_turn("a")
    b = log.add_turn("b", continues=a.id)
    fork = log.add_turn("f", continues=a.id)
    merge = log.add_turn("m", continues=[b.id, fork.id])
    visited = {a.stream: 0}
    with log.store.read() as transaction:
        head = transaction.event(merge.id)
        assert head is not None
        found = [r.header.id for r in ancestry(transaction, head, transaction.stream, _itself, visited)]
        assert found == [b.id, fork.id, merge.id]
        assert visited == {a.stream: 2, fork.id: 0}
        assert list(ancestry(transaction, head, transaction.stream, _itself, visited)) == []


def test_chain_of_ten_thousand_forks_is_read(log: TurnLog) -> None:
    """Forks of forks, a stream each, need no recursion, and the window is the same chain."""
    with log.group() as group:
        chain = [group.add_turn("x")]
        side = group.add_turn("y", continues=chain[0])
        for _ in range(10_000):
            # The parent's stream is taken by `side`, or goes on: so each turn starts a stream.
            chain.append(group.add_turn("x", continues=chain[-1]))
            side = group.add_turn("y", continues=chain[-1])
    assert side not in chain
    assert len({turn.stream for turn in log.ancestry(chain[-1])}) == 10_001
    assert _ids(log, chain[-1]) == chain
    assert [message.turn for message in log.context(chain[-1]).messages] == chain


def test_chain_of_five_thousand_second_parents_is_read(log: TurnLog) -> None:
    """Merges whose second parent is the merge before them nest five thousand deep, and are read from the inside."""
    with log.group() as group:
        chain = group.add_turn("x")
        order = [chain]
        sides: list[str] = []
        for _ in range(5_000):
            side = group.add_turn("s")
            sides.append(side)
            chain = group.add_turn("m", continues=[side, chain])
            order.append(chain)
    expected = [*reversed(sides), *order]
    assert _ids(log, chain) == expected
    assert [message.turn for message in log.context(chain).messages] == expected


def test_gap_in_a_stream_is_corruption(log: TurnLog) -> None:
    """A scan that does not give every position is noticed."""
    a = log.add_turn("a")
    b = log.add_turn("b", continues=a.id)
    with log.store.read() as transaction:
        head = transaction.event(b.id)
        assert head is not None
        with pytest.raises(CorruptionError, match="gap"):
            list(ancestry(transaction, head, lambda *_: [head], _itself, {}))


@pytest.mark.parametrize("order", ["ppcr", "pcp", "pcrp", "cprp", "pcpr", "cpp", "p", "pc", "pcr"])
def test_parents_are_found_wherever_they_stand(file_log: TurnLog, store_path: Path, order: str) -> None:
    """In the citations of a turn, as another program may list them: p is a parent, c a call and r a reply."""
    parents = [file_log.add_turn(text).id for text in "12"[: order.count("p")]]
    head = file_log.add_turn("3", continues=parents)
    others = {"c": file_log.add_turn("stands for a call"), "r": file_log.add_turn("stands for a reply")}
    named = {"c": "call", "r": "reply"}

    def reorder(header: dict[str, Any]) -> None:
        left = list(header["citations"])
        header["citations"] = [
            left.pop(0) if sign == "p" else {"as": named[sign], "digest": others[sign].digest, "id": others[sign].id}
            for sign in order
        ]

    rewrite(store_path, head.id, header=reorder)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        assert _ids(log, head.id) == [*parents, head.id]
        assert [message.turn for message in log.context(head.id).messages] == [*parents, head.id]
        assert log.turn(head.id).continues == tuple(parents)


@pytest.mark.parametrize("changed", ["root", "middle", "fork", "side"])
def test_turn_that_was_rewritten_is_refused(file_log: TurnLog, store_path: Path, changed: str) -> None:
    """A turn that is sound in itself, and has another digest than what continues it cites, is not read as ancestry."""
    root = file_log.add_turn("r").id
    middle = file_log.add_turn("m", continues=root).id
    file_log.add_turn("n", continues=middle)
    side = file_log.add_turn("s").id
    fork = file_log.add_turn("f", continues=middle).id
    last = file_log.add_turn("l", continues=[fork, side]).id
    ids = {"root": root, "middle": middle, "fork": fork, "side": side}
    assert len(_ids(file_log, last)) == 5
    rewrite(store_path, ids[changed], payload=b'[{"type":"text","text":"forged"}]')
    with pytest.raises(CorruptionError, match="another digest"):
        file_log.ancestry(last)
    with pytest.raises(CorruptionError, match="another digest"):
        file_log.context(last)
    # By itself it says nothing of what it was.
    assert _ids(file_log, side) == [side]


def test_the_end_of_an_ancestry_is_read_and_not_the_rest(file_log: TurnLog, store_path: Path) -> None:
    """A few are found from the end, through forks: what is far before them is not looked at, and they are checked."""
    head, chain = "", list[str]()
    with file_log.group() as group:
        for number in range(1000):
            head = group.add_turn(str(number), continues=head or None)
            chain.append(head)
    file_log.add_turn("n", continues=chain[-3])
    fork = file_log.add_turn("f", continues=chain[-3]).id
    rewrite(store_path, chain[10], payload=b'[{"type":"text","text":"forged"}]')
    assert [turn.id for turn in file_log.ancestry(fork, 3)] == [*chain[-4:-2], fork]
    sought = file_log.ancestry(fork, 1, wanted=lambda turn: turn.id in chain[:-100])
    assert [turn.id for turn in sought] == [chain[-101]]
    rewrite(store_path, chain[-4], payload=b'[{"type":"text","text":"forged"}]')
    for ask in (lambda: file_log.ancestry(fork, 3), lambda: file_log.ancestry(fork)):
        with pytest.raises(CorruptionError, match="another digest"):
            ask()


def test_the_end_of_an_ancestry_is_read_through_merges(file_log: TurnLog, store_path: Path) -> None:
    """Behind a merge too: of each of its parents no more is read than is asked for, and what is read is checked."""
    with file_log.group() as group:
        branches = [[group.add_turn("root")]]
        for name in ("left", "right"):
            branches.append(branches[0][:1])
            for number in range(300):
                branches[-1].append(group.add_turn(f"{name} {number}", continues=branches[-1][-1]))
    left, right = branches[1:]
    merge = file_log.add_turn("both", continues=[left[-1], right[-1]]).id
    last = file_log.add_turn("and on", continues=merge).id
    whole = [*left, *right[1:], merge, last]
    rewrite(store_path, left[9], payload=b'[{"type":"text","text":"forged"}]')
    sought = file_log.ancestry(last, 1, wanted=lambda turn: turn.id in left)
    assert [turn.id for turn in sought] == [left[-1]]
    rewrite(store_path, right[9], payload=b'[{"type":"text","text":"forged"}]')
    assert [turn.id for turn in file_log.ancestry(last, 100)] == whole[-100:]
    with pytest.raises(CorruptionError, match="another digest"):
        file_log.ancestry(last, 300)


def test_last_visited_turn_is_checked_too(file_log: TurnLog, store_path: Path) -> None:
    """What was visited before counts as it was: a turn that goes on from it and cites another digest is refused."""
    root = file_log.add_turn("r")
    last = file_log.add_turn("l", continues=root.id)
    file_log.context(root.id)
    rewrite(store_path, root.id, header=lambda header: header["meta"].update(role="system"))
    with file_log.store.read() as transaction:
        head = transaction.event(last.id)
        assert head is not None
        with pytest.raises(CorruptionError, match="another digest"):
            list(ancestry(transaction, head, transaction.stream, _itself, {root.stream: 0}))


def test_parent_that_is_recorded_later_is_refused(file_log: TurnLog, store_path: Path) -> None:
    """A forged citation of a later turn, or of the turn itself, ends in an error and not in a circle."""
    one = file_log.add_turn("1").id
    two = file_log.add_turn("2", continues=file_log.add_turn("0").id, bookmark="main").id
    for cited in (two, one):
        digest = file_log.event(cited).digest
        citation = {"as": "parent", "digest": digest, "id": cited}
        rewrite(store_path, one, header=lambda header, citation=citation: header.update(citations=[citation]))
        for ask in (file_log.ancestry, file_log.context):
            with pytest.raises(CorruptionError, match="not recorded before it"):
                ask(one)
