"""Runs of Geppetto on the log: they come back equal, and what they share is recorded once."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from tests.unit.interop.geppetto.made import runs as any_run
from tests.unit.interop.geppetto.made import turns as any_turn

from turnlog import ErasedError, NotFoundError, SecretError, TurnLog
from turnlog.interop import geppetto
from turnlog.interop.geppetto import Block, BlockKind, Run, Turn


def asked() -> Run:
    """Make a run of two snapshots: a question, and all that came of it."""
    question = Turn(id="t1", run_id="r1")
    geppetto.append_blocks(
        question,
        geppetto.new_system_text_block("You are a helpful assistant."),
        geppetto.new_user_text_block("What is the weather in Paris?"),
    )
    answered = Turn(id="t2", run_id="r1", blocks=[*question.blocks])
    geppetto.append_blocks(
        answered,
        geppetto.new_assistant_text_block("Let me look."),
        geppetto.new_tool_call_block("call-1", "weather", {"city": "Paris"}),
        geppetto.new_tool_use_block("call-1", {"celsius": 20.5}),
        geppetto.new_assistant_text_block("It is mild."),
    )
    return Run(id="r1", name="weather", turns=[question, answered])


@given(any_run())
def test_any_run_comes_back_equal(run: Run) -> None:
    """With whatever payloads, roles, ids and metadata its blocks have; recorded twice it is recorded once."""
    given_run = copy.deepcopy(run)
    with TurnLog.open("memory://") as log:
        recorded = geppetto.record_run(log, run)
        assert run == given_run
        assert geppetto.run_to_json(geppetto.load_run(log, recorded.id)) == geppetto.run_to_json(run)
        events = log.stats().events
        assert geppetto.record_run(log, run).added == 0
        assert log.stats().events == events
        assert log.verify().damage == ()
        for turn in recorded.turns:
            assert turn.head is None or log.context(turn.head).messages


@given(any_turn())
def test_any_turn_comes_back_equal(turn: Turn) -> None:
    """As a snapshot of its own."""
    with TurnLog.open("memory://") as log:
        recorded = geppetto.record_turn(log, turn)
        assert geppetto.turn_to_json(geppetto.load_turn(log, recorded.id)) == geppetto.turn_to_json(turn)


def test_a_run_is_a_thread_that_goes_to_providers(log: TurnLog) -> None:
    """Text and calls of a model are one turn, results are paired with their calls by id."""
    recorded = geppetto.record_run(log, asked())
    head = recorded.turns[-1].head
    assert head is not None
    assert [message.role for message in log.context(head).messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert [message.content_json for message in log.context(head).messages[2:4]] == [
        b'[{"type":"text","text":"Let me look."},'
        b'{"type":"tool_use","name":"weather","input":{"city":"Paris"},"id":"call-1"}]',
        b'[{"type":"tool_result","content":[{"type":"text","text":"{\\"celsius\\":20.5}"}],"tool_use_id":"call-1"}]',
    ]
    assert recorded.turns[0].head == log.ancestry(head)[1].id
    assert len(log.threads()) == 1


def test_a_run_that_has_grown_adds_what_is_new(log: TurnLog) -> None:
    """A snapshot that begins otherwise forks from where it does."""
    run = asked()
    first = geppetto.record_run(log, run)
    assert first.added == 13  # five turns, their five notes, two snapshots and the run
    other = Turn(id="t3", run_id="r1", blocks=[*run.turns[0].blocks, geppetto.new_assistant_text_block("Rain.")])
    grown = Run(id="r1", name="weather", turns=[*run.turns, other])
    second = geppetto.record_run(log, grown)
    assert second.added == 4
    assert second.turns[:2] == first.turns
    assert geppetto.load_run(log, "r1") == grown
    assert geppetto.load_run(log, first.id) == run
    assert geppetto.runs(log) == ["r1"]
    head = second.turns[2].head
    assert head is not None
    assert [turn.id for turn in log.ancestry(head)][:2] == [turn.id for turn in log.ancestry(str(first.turns[0].head))]


def test_two_runs_share_nothing(log: TurnLog) -> None:
    """Also where they say the same: what is erased of one stays in the other."""
    one, other = asked(), asked()
    other.id = "r2"
    heads = [geppetto.record_run(log, run).turns[-1].head for run in (one, other)]
    assert len(log.threads()) == 2
    log.erase(thread=str(heads[0]), reason="asked")
    with pytest.raises(NotFoundError, match="no run 'r1' of Geppetto is in the log"):
        geppetto.load_run(log, "r1")
    assert geppetto.load_run(log, "r2").turns[1].blocks[1].payload["text"] == "What is the weather in Paris?"


def test_erasing_a_turn_erases_what_stands_beside_it(log: TurnLog) -> None:
    """Its words are nowhere in the store, and the run cannot be loaded whole any more."""
    run = asked()
    run.turns[1].blocks[3].payload["extra"] = "of nobody's business"
    recorded = geppetto.record_run(log, run)
    turn = log.ancestry(str(recorded.turns[1].head))[2]
    log.erase(turn=turn.id, reason="asked")
    with pytest.raises(ErasedError):
        geppetto.load_run(log, "r1")
    for event in log.events(topics=["gpt.turn", "geppetto.blocks", "geppetto.turn"]):
        assert event.unreadable or b"nobody's business" not in log.payload(event.header.id)
    note = next(event for event in log.events(topics="geppetto.blocks") if event.header.cited("turn") == turn.id)
    assert note.erased


def test_secrets_are_refused(log: TurnLog) -> None:
    """In metadata, in data, and in what of a payload is no content; nothing of the run is recorded then."""
    key = "sk-" + "ant-" + "api03-" + "a" * 95
    for place in ("turn", "data", "run", "block", "payload"):
        run = asked()
        if place == "run":
            run.metadata.put("k", key)
        elif place == "turn":
            run.turns[1].metadata.put("k", key)
        elif place == "data":
            run.turns[1].data.put("k", key)
        elif place == "block":
            run.turns[1].blocks[0].metadata.put("api_key", "hunter2hunter2")
        else:
            run.turns[1].blocks[0].payload["more"] = key
        with pytest.raises(SecretError):
            geppetto.record_run(log, run)
    assert log.stats().events == 0


def test_unknown_runs_and_turns_are_refused(log: TurnLog) -> None:
    """With a line that says what there is instead."""
    recorded = geppetto.record_run(log, asked())
    with pytest.raises(NotFoundError, match="no run 'r9'"):
        geppetto.load_run(log, "r9")
    with pytest.raises(NotFoundError, match=r"is no turn of Geppetto: it is of the topic geppetto\.run"):
        geppetto.load_turn(log, recorded.id)


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        ({"text": "x", "images": [{"media_type": "image/png", "content": "iVBORw=="}]}, ["text", "document"]),
        ({"images": [{"url": "https://example.com/a.png"}]}, ["native"]),
        ({"said": "x"}, ["native"]),
    ],
)
def test_what_users_say_goes_into_content(log: TurnLog, payload: dict[str, object], content: list[str]) -> None:
    """Images as documents; what turnlog has no block for verbatim, so that a loss report names it."""
    turn = Turn(blocks=[Block(kind=BlockKind.USER, payload=payload)])
    recorded = geppetto.record_turn(log, turn)
    blocks = log.context(str(recorded.head)).messages[0].content
    assert [block.__struct_config__.tag for block in blocks] == content
