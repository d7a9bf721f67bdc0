"""Where the ancestries of two turns part."""

import random
from pathlib import Path

import pytest
from tests.rewriting import rewrite

from turnlog import Comparison, TurnLog
from turnlog.errors import CorruptionError


def _ids(found: Comparison) -> tuple[list[str], list[str], list[str]]:
    left, right, common = ([turn.id for turn in turns] for turns in (found.left, found.right, found.common))
    return left, right, common


def _thread(log: TurnLog, turns: int, continues: str | None = None) -> list[str]:
    ids: list[str] = []
    for number in range(turns):
        ids.append(log.add_turn(f"{number}", continues=ids[-1] if ids else continues).id)
    return ids


def test_branches_part_at_the_last_turn_of_both(log: TurnLog) -> None:
    """What each has alone is in order, whichever was recorded first."""
    trunk = _thread(log, 4)
    left, right = _thread(log, 3, trunk[2]), _thread(log, 2, trunk[2])
    assert _ids(log.compare(left[-1], right[-1])) == (left, right, [trunk[2]])
    assert _ids(log.compare(right[-1], left[-1])) == (right, left, [trunk[2]])
    assert _ids(log.compare(trunk[-1], left[0])) == (trunk[3:], left[:1], [trunk[2]])


def test_a_turn_and_one_of_its_ancestry_part_at_that(log: TurnLog) -> None:
    """One of them has nothing alone; a turn and itself have both nothing."""
    trunk = _thread(log, 5)
    assert _ids(log.compare(trunk[1], trunk[4])) == ([], trunk[2:], [trunk[1]])
    assert _ids(log.compare(trunk[4], trunk[1])) == (trunk[2:], [], [trunk[1]])
    assert _ids(log.compare(trunk[3], trunk[3])) == ([], [], [trunk[3]])


def test_threads_have_nothing_in_common(log: TurnLog) -> None:
    """Each has all its turns alone."""
    one, other = _thread(log, 3), _thread(log, 2)
    assert _ids(log.compare(one[-1], other[-1])) == (one, other, [])


def test_a_merge_has_what_it_merged(log: TurnLog) -> None:
    """What it brought from elsewhere is its alone; what it merged of the other is not."""
    trunk, document = _thread(log, 3), _thread(log, 1)
    side = _thread(log, 2, trunk[0])
    merge = log.add_turn("m", continues=[side[-1], document[0], trunk[1]]).id
    assert _ids(log.compare(trunk[-1], merge)) == (trunk[2:], [*document, *side, merge], [trunk[0], trunk[1]])


def test_random_logs_part_where_the_sets_of_their_ancestries_do(log: TurnLog) -> None:
    """Three hundred turns with random parents, and 2,000 pairs of them."""
    generator = random.Random(11)
    ids: list[str] = []
    parents: dict[str, tuple[str, ...]] = {}
    for number in range(300):
        recent = ids[-9:] if generator.random() < 0.6 else ids
        chosen = generator.sample(recent, min(generator.choice([0, 1, 1, 1, 1, 2, 3]), len(recent)))
        turn = log.add_turn(str(number), continues=chosen or None)
        parents[turn.id] = turn.continues
        ids.append(turn.id)
    grown: dict[str, set[str]] = {}
    for turn in ids:
        grown[turn] = {turn}.union(*(grown[parent] for parent in parents[turn]))
    for _ in range(2000):
        left, right = generator.choices(ids, k=2)
        both = grown[left] & grown[right]
        edges = {left, right}.union(*(parents[turn] for turn in grown[left] ^ grown[right])) & both
        alone = [[turn for turn in ids if turn in grown[one] - both] for one in (left, right)]
        assert _ids(log.compare(left, right)) == (*alone, [turn for turn in ids if turn in edges])


def test_what_is_far_before_the_parting_is_not_looked_at(file_log: TurnLog, store_path: Path) -> None:
    """And what is read is checked: a turn that is sound in itself, and is not the one that is cited, is refused."""
    trunk = _thread(file_log, 1000)
    left, right = _thread(file_log, 2, trunk[-3]), _thread(file_log, 1, trunk[-3])
    rewrite(store_path, trunk[10], payload=b'[{"type":"text","text":"forged"}]')
    assert _ids(file_log.compare(left[-1], right[-1])) == (left, right, [trunk[-3]])
    with pytest.raises(CorruptionError, match="another digest"):
        file_log.compare(left[-1], trunk[5])
    rewrite(store_path, left[0], payload=b'[{"type":"text","text":"forged"}]')
    with pytest.raises(CorruptionError, match="another digest"):
        file_log.compare(left[-1], right[-1])
