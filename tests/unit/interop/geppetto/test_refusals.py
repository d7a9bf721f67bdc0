"""What is no run, turn or block, and arguments that make no sense, are refused in a line that says where and what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.scripted import HERE, MODEL, Scripted, say

from turnlog import ContentError, MetaError, NotFoundError, RunError, TurnLog
from turnlog.agent.target import Target
from turnlog.interop import geppetto
from turnlog.interop.geppetto import Run, Turn, TurnStore
from turnlog.interop.geppetto_model.importing import Geppetto
from turnlog.record import Redaction


def asked() -> Turn:
    """Make a turn that asks a question."""
    turn = Turn(id="t1", run_id="r1")
    geppetto.append_block(turn, geppetto.new_system_text_block("Be brief.", id="b1"))
    geppetto.append_block(turn, geppetto.new_user_text_block("A river?", id="b2"))
    return turn


def _engine(_: TurnLog, turn: Turn) -> object:
    engine = geppetto.engine_of(Target(adapter=Scripted(), connection=HERE, model=MODEL, params={}))
    return asyncio.run(engine(turn))  # type: ignore[arg-type]


TAKERS: dict[str, Callable[[TurnLog, Turn], object]] = {
    "record_turn": geppetto.record_turn,
    "save": lambda log, turn: TurnStore(log).save(turn),
    "workflow": lambda log, turn: geppetto.run_workflow(
        log, turn, adapter=Scripted(say("x")), model=MODEL, connection=HERE
    ),
    "engine": _engine,
    "pending_calls": lambda _, turn: geppetto.pending_calls(turn),
    "tool_config": lambda _, turn: geppetto.tool_config(turn),
    "format_turn": lambda _, turn: geppetto.format_turn(turn),
    "turn_to_yaml": lambda _, turn: geppetto.turn_to_yaml(turn),
    "turn_to_json": lambda _, turn: geppetto.turn_to_json(turn),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("block", [None, "x", {"kind": "user"}])
def test_a_block_that_is_none_is_refused_by_its_place(log: TurnLog, taker: str, block: Any) -> None:
    """Wherever a turn is taken; nothing is recorded."""
    turn = asked()
    turn.blocks.append(block)
    with pytest.raises(ContentError, match=rf"^turn\.blocks\[2\]: expected a Block, got {type(block).__name__}: make"):
        TAKERS[taker](log, turn)
    assert log.id is None


@pytest.mark.parametrize("taker", TAKERS)
def test_a_turn_that_is_none_is_refused(log: TurnLog, taker: str) -> None:
    """Wherever a turn is taken."""
    turn: Any = None
    with pytest.raises(ContentError, match=r"^turn: expected a Turn, got NoneType"):
        TAKERS[taker](log, turn)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("id", None, r"^run\.turns\[0\]\.id: expected text, got NoneType$"),
        ("id", [], r"^run\.turns\[0\]\.id: expected text, got list$"),
        ("run_id", 7, r"^run\.turns\[0\]\.run_id: expected text, got int$"),
        ("metadata", {}, r"^run\.turns\[0\]\.metadata: expected a Metadata, got dict$"),
        ("data", None, r"^run\.turns\[0\]\.data: expected a Data, got NoneType$"),
        ("blocks", None, r"^run\.turns\[0\]\.blocks: expected a list, got NoneType$"),
    ],
)
def test_a_field_of_a_turn_of_another_type_is_refused(log: TurnLog, name: str, value: Any, says: str) -> None:
    """With its place in the run."""
    turn = asked()
    setattr(turn, name, value)
    with pytest.raises(ContentError, match=says):
        geppetto.record_run(log, Run(id="r1", turns=[turn]))
    assert log.id is None


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("id", None, "text, got NoneType"),
        ("role", b"user", "text, got bytes"),
        ("payload", [], "a record, got list"),
        ("payload", None, "a record, got NoneType"),
        ("payload", "x", "a record, got str"),
        ("metadata", None, "a BlockMetadata, got NoneType"),
    ],
)
def test_a_field_of_a_block_of_another_type_is_refused(log: TurnLog, name: str, value: Any, got: str) -> None:
    """Values that are empty are not taken for nothing."""
    turn = asked()
    setattr(turn.blocks[1], name, value)
    with pytest.raises(ContentError, match=rf"^turn\.blocks\[1\]\.{name}: expected {got}$"):
        geppetto.record_turn(log, turn)
    assert log.id is None


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (None, "^run: expected a Run, got NoneType$"),
        (asked(), "^run: expected a Run, got Turn$"),
        (Run(id=7), r"^run\.id: expected text, got int$"),  # type: ignore[arg-type]
        (Run(turns=[None]), r"^run\.turns\[0\]: expected a Turn, got NoneType$"),  # type: ignore[list-item]
    ],
)
def test_what_is_no_run_is_refused(log: TurnLog, run: Any, says: str) -> None:
    """By its place."""
    with pytest.raises(ContentError, match=says):
        geppetto.record_run(log, run)
    assert log.id is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"limit": "x"}, "^limit: expected an integer, got str$"),
        ({"limit": True}, "^limit: expected an integer, got bool$"),
        ({"limit": -1}, "^limit: -1 is less than 0$"),
        ({"since_ms": 1.5}, "^since_ms: expected an integer, got float$"),
        ({"until_ms": -1}, "^until_ms: -1 is less than 0$"),
        ({"session": 7}, "^session: expected text, got int$"),
        ({"phase": 7}, "^phase: expected text, got int$"),
        (
            {"phase": "bogus"},
            r"^phase: nothing was saved as 'bogus' \(one of pre_inference, post_inference, post_tools, final, draft\)$",
        ),
    ],
)
def test_listing_refuses_arguments_that_make_no_sense(log: TurnLog, given: dict[str, Any], says: str) -> None:
    """By their names."""
    store = TurnStore(log)
    store.save(asked(), phase="draft")
    with pytest.raises(MetaError, match=says):
        store.list(**given)


def test_listing_takes_each_phase_that_there_can_be(log: TurnLog) -> None:
    """The usual ones before anything has them, and those that something was saved with, in whatever thread."""
    store = TurnStore(log)
    saved = store.save(asked(), phase="draft")
    for phase in ("pre_inference", "post_inference", "post_tools", "final", ""):
        assert store.list(phase=phase) == []
    assert [found.id for found in store.list(phase="draft")] == [saved]
    assert store.list(phase="draft", session="r2") == []
    assert store.list(limit=0) == []


@pytest.mark.parametrize("given", ["t1", "0123456789012345678901234"])
def test_a_snapshot_that_is_not_there_is_refused_with_what_to_give(log: TurnLog, given: str) -> None:
    """The id of a Geppetto turn is none of a snapshot."""
    recorded = geppetto.record_turn(log, asked())
    for load in (lambda: geppetto.load_turn(log, given), lambda: TurnStore(log).load(given)):
        with pytest.raises(NotFoundError, match=rf"^no snapshot '{given}' is in the log \(give the id that `record_tu"):
            load()
    assert geppetto.load_turn(log, recorded.id) == asked()


def test_a_key_that_is_twice_in_json_is_refused_by_its_place() -> None:
    """Of several, the outermost and first one."""
    with pytest.raises(ContentError, match=r"^run: a record has the key 'id' twice$") as caught:
        geppetto.run_from_json('{"id":"a","id":"b"}')
    assert caught.value.field == "run.id"
    with pytest.raises(ContentError, match=r"^turn\.blocks\[1\]\.payload: a record has the key 'a' twice$"):
        geppetto.turn_from_json(
            '{"blocks":[{"kind":"user"},{"kind":"user","payload":{"a":{"b":1,"b":2},"a":{},"a":1}}]}'
        )


def test_a_key_that_is_twice_in_a_file_is_refused_by_its_line_and_place(tmp_path: Path) -> None:
    """Of JSON documents one after the other: the line of the document, and the place in it."""
    path = tmp_path / "turns.json"
    path.write_text('{"blocks":[{"kind":"user"}]}\n\n{"blocks":[{"kind":"user","id":"a","id":"b"}]}\n')
    documents = Geppetto().read(path, Redaction())
    assert [problem.what for problem in documents.problems] == [
        "document at line 3.blocks[0]: a record has the key 'id' twice: it was left out"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [("id: a\nid: b", "'id' is there twice.* line 2"), ("id: &a x\nrun_id: *a\n", "aliases .* line 2")],
)
def test_what_yaml_refuses_is_told_with_its_line(text: str, says: str) -> None:
    """The line in the text."""
    with pytest.raises(ContentError, match=says):
        geppetto.turn_from_yaml(text)


def test_a_workflow_in_a_running_loop_is_refused(log: TurnLog) -> None:
    """With what to call there."""

    async def inside() -> None:
        geppetto.run_workflow(log, asked(), adapter=Scripted(say("x")), model=MODEL)

    with pytest.raises(RunError, match="await `arun_workflow` there"):
        asyncio.run(inside())


def test_a_file_that_is_in_the_log_does_not_become_the_last_state_of_its_run(tmp_path: Path) -> None:
    """Importing it again adds nothing; recording the run does, and each state is found by the id of its event."""
    one, other = Run(id="r1", name="one", turns=[asked()]), Run(id="r1", name="other", turns=[asked()])
    for run in (one, other):
        (tmp_path / f"{run.name}.json").write_bytes(geppetto.run_to_json(run))
    with TurnLog.open("memory://") as log:
        for name, added in (("one", 4), ("other", 1), ("one", 0)):
            report = log.import_transcript("geppetto", tmp_path / f"{name}.json")
            assert report.events_added == added
        assert geppetto.load_run(log, "r1") == other
        first = next(event.header.id for event in log.events(topics="geppetto.run"))
        assert geppetto.load_run(log, first) == one
        assert geppetto.record_run(log, one).added == 1
        assert geppetto.load_run(log, "r1") == one
