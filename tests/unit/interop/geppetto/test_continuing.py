"""Snapshots that go on from turns of the log, runs that come back, and what is refused before it is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from tests.agent.scripted import HERE, MODEL, Scripted, say

from turnlog import Ask, ContentError, NotFoundError, SecretError, TurnLog
from turnlog.errors import ErasedError
from turnlog.interop import geppetto
from turnlog.interop.geppetto import Run, Turn, TurnStore


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log."""
    with TurnLog.open("memory://") as log:
        yield log


def asked() -> Turn:
    """Make a turn that asks a question."""
    turn = Turn(id="t1", run_id="r1")
    geppetto.append_block(turn, geppetto.new_system_text_block("Be brief.", id="b1"))
    geppetto.append_block(turn, geppetto.new_user_text_block("A river?", id="b2"))
    return turn


def turns_of(log: TurnLog) -> list[str]:
    """Return the ids of all turns of a log."""
    return [recorded.header.id for recorded in log.events(topics=["gpt.turn"])]


def test_a_workflow_goes_on_from_what_it_came_to(log: TurnLog) -> None:
    """The thread grows by what is new: nothing of the conversation is recorded again."""
    first = geppetto.run_workflow(
        log, asked(), model=MODEL, ask=Ask(adapter=Scripted(say("The Loire.")), connection=HERE)
    )
    following = deepcopy(first.turn)
    geppetto.append_block(following, geppetto.new_user_text_block("A longer one?", id="b4"))
    second = geppetto.run_workflow(
        log, following, model=MODEL, ask=Ask(adapter=Scripted(say("The Danube.")), connection=HERE)
    )
    assert [turn.id for turn in log.ancestry(second.run.head.id)] == turns_of(log)
    assert [block.payload["text"] for block in second.turn.blocks] == [
        "Be brief.",
        "A river?",
        "The Loire.",
        "A longer one?",
        "The Danube.",
    ]


def test_a_snapshot_of_a_workflow_is_saved_without_its_conversation_and_loads_equal(log: TurnLog) -> None:
    """It has no turns of its own; with a block behind it, one."""
    result = geppetto.run_workflow(
        log, asked(), model=MODEL, ask=Ask(adapter=Scripted(say("The Loire.")), connection=HERE)
    )
    store = TurnStore(log)
    before = turns_of(log)
    saved = store.save(result.turn)
    assert turns_of(log) == before
    assert store.load(saved) == result.turn

    longer = deepcopy(result.turn)
    geppetto.append_block(longer, geppetto.new_user_text_block("A longer one?", id="b4"))
    assert store.load(store.save(longer)) == longer
    assert len(turns_of(log)) == len(before) + 1
    assert geppetto.record_run(log, Run(id="r1", turns=[result.turn, longer])).turns[1].head == turns_of(log)[-1]
    assert geppetto.load_run(log, "r1").turns == [result.turn, longer]


def test_a_snapshot_that_was_changed_before_its_end_begins_anew(log: TurnLog) -> None:
    """It is not the conversation that the log has."""
    result = geppetto.run_workflow(
        log, asked(), model=MODEL, ask=Ask(adapter=Scripted(say("The Loire.")), connection=HERE)
    )
    changed = deepcopy(result.turn)
    changed.blocks[0].payload["text"] = "Be long."
    recorded = geppetto.record_turn(log, changed)
    assert log.ancestry(recorded.head or "")[0].id not in turns_of(log)[:3]
    assert geppetto.load_turn(log, recorded.id) == changed


def test_erasing_what_a_snapshot_began_with_takes_it_from_the_snapshot(log: TurnLog) -> None:
    """It does not load with less."""
    result = geppetto.run_workflow(
        log, asked(), model=MODEL, ask=Ask(adapter=Scripted(say("The Loire.")), connection=HERE)
    )
    longer = deepcopy(result.turn)
    geppetto.append_block(longer, geppetto.new_user_text_block("A longer one?", id="b4"))
    recorded = geppetto.record_turn(log, longer)
    log.erase(turn=turns_of(log)[1], reason="asked for")
    with pytest.raises(ErasedError):
        geppetto.load_turn(log, recorded.id)


def test_a_run_that_comes_back_as_it_was_is_the_last_one(log: TurnLog) -> None:
    """The same again adds nothing, each time."""
    one, other = Run(id="r1", name="one", turns=[asked()]), Run(id="r1", name="other", turns=[asked()])
    for run, added in [(one, 6), (other, 1), (one, 1), (one, 0), (other, 1), (other, 0), (one, 1), (one, 0)]:
        recorded = geppetto.record_run(log, run)
        assert recorded.added == added
        assert geppetto.load_run(log, "r1") == run
        assert geppetto.load_run(log, recorded.id) == run


def test_a_run_is_found_by_its_turns(log: TurnLog) -> None:
    """By any of them; a turn of no run is refused."""
    run = Run(id="r1", turns=[asked()])
    recorded = geppetto.record_run(log, run)
    root, head = turns_of(log)
    assert head == recorded.turns[0].head
    assert geppetto.load_run(log, root) == geppetto.load_run(log, head) == run
    with pytest.raises(NotFoundError, match="no run"):
        geppetto.load_run(log, log.add_turn("Hello").id)


def test_sessions_whose_bookmarks_are_at_each_other_are_no_runs(log: TurnLog) -> None:
    """A turn of a session without a run is told so, also where its name means a turn of another."""
    for session in ("r1", "r2"):
        turn = asked()
        turn.run_id = session
        head = geppetto.record_turn(log, turn).head or ""
        log.bookmarks.set("r2" if session == "r1" else "r1", head)
    with pytest.raises(NotFoundError, match="no run 'r1'"):
        geppetto.load_run(log, "r1")


@pytest.mark.parametrize(
    ("name", "value"), [("role", 7), ("kind", "nonsense"), ("kind", None), ("id", "\ud800"), ("turn_id", ["t"])]
)
def test_a_block_that_could_not_be_read_again_is_not_recorded(log: TurnLog, name: str, value: Any) -> None:
    """The message says where it stands."""
    turn = asked()
    setattr(turn.blocks[1], name, value)
    for record in (lambda: geppetto.record_turn(log, turn), lambda: geppetto.record_run(log, Run(turns=[turn]))):
        with pytest.raises(ContentError, match=rf"blocks\[1\]\.{name}"):
            record()
    assert log.id is None


def test_a_secret_in_the_name_of_a_run_is_refused(log: TurnLog) -> None:
    """Nothing is recorded."""
    with pytest.raises(SecretError, match=r"run\.name"):
        geppetto.record_run(log, Run(id="r1", name="sk-ant-api03-" + "A1b2C3d4" * 10, turns=[asked()]))
    assert log.id is None
