"""The turn index: children."""

import random

import pytest

from turnlog import TurnLog
from turnlog.store.sqlite.transactions import SQLiteRead


def _children(log: TurnLog, headish: str) -> list[str]:
    return [turn.id for turn in log.children(headish)]


def test_children_are_in_the_order_in_which_they_were_recorded(log: TurnLog) -> None:
    """The turn that extends the stream, forks and merges are all children, each once."""
    root, other = log.add_turn("r").id, log.add_turn("o").id
    first = log.add_turn("1", continues=root).id
    merge = log.add_turn("2", continues=[other, root]).id
    fork = log.add_turn("3", continues=root).id
    both = log.add_turn("4", continues=[root, other]).id
    assert _children(log, root) == [first, merge, fork, both]
    assert _children(log, other) == [merge, both]
    assert _children(log, first) == []


def test_fork_recorded_before_nothing_extends_the_stream_only_once(log: TurnLog) -> None:
    """A merge that extends its first parent's stream is one child of it, though it also names it."""
    a, b = log.add_turn("a").id, log.add_turn("b").id
    merge = log.add_turn("m", continues=[a, b]).id
    assert _children(log, a) == [merge]
    assert _children(log, b) == [merge]


def test_a_few_children_are_the_last_ones(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many forks no more are read than are asked for; what is wanted is looked for from the last one on."""
    root = log.add_turn("r").id
    with log.group() as group:
        ids = [group.add_turn(str(number), continues=root) for number in range(600)]
    read: list[int] = []
    at = SQLiteRead.at
    monkeypatch.setattr(SQLiteRead, "at", lambda *place: read.append(1) or at(*place))
    assert [turn.id for turn in log.children(root, 3)] == ids[-3:]
    assert [turn.id for turn in log.children(root, 2, wanted=lambda turn: turn.id in ids[:-5])] == ids[-7:-5]
    assert len(read) < 20
    assert _children(log, root) == ids


def test_children_mirror_parents_in_a_random_log(log: TurnLog) -> None:
    """Whoever continues a turn is its child, and nobody else is."""
    generator = random.Random(11)
    ids: list[str] = []
    expected: dict[str, list[str]] = {}
    for number in range(300):
        chosen = generator.sample(ids[-10:], min(generator.choice([0, 1, 1, 2]), len(ids[-10:])))
        turn = log.add_turn(str(number), continues=chosen or None)
        for parent in turn.continues:
            expected.setdefault(parent, []).append(turn.id)
        ids.append(turn.id)
    assert {turn: _children(log, turn) for turn in ids} == {turn: expected.get(turn, []) for turn in ids}
