"""Turns and notes beside them, recorded together."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import NotFoundError, UnknownTurnError
from turnlog.events import metadata
from turnlog.ids import new_id
from turnlog.record import Note, TurnDraft, turn_draft
from turnlog.record.findings import Hook


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give a log."""
    with TurnLog.open("memory://") as log:
        yield log


def drafts() -> tuple[TurnDraft, Note, TurnDraft]:
    """Return a turn, a note of it, and a turn that continues it."""
    first, second = new_id(), new_id()
    return (
        turn_draft("one", id=first),
        Note(topic="geppetto.turn", payload=b'{"kind":"user"}', turn=first, meta={"id": "b-1"}),
        turn_draft("two", id=second, continues=first),
    )


def test_what_comes_later_can_rest_on_what_comes_earlier(log: TurnLog) -> None:
    """In one transaction, in order."""
    first, note, second = log.add_group(drafts())
    assert [first.global_position, note.global_position, second.global_position] == [2, 3, 4]
    assert note.header.cited("turn") == first.header.id
    assert log.payload(note.header.id) == b'{"kind":"user"}'
    assert metadata(note) == {"id": "b-1"}
    assert log.turn(second.header.id).continues == (first.header.id,)
    assert log.verify().clean


def test_nothing_is_recorded_where_a_part_cannot_be(log: TurnLog) -> None:
    """A note of no turn, and a turn that continues none."""
    log.add_turn("before")
    turn, note, _ = drafts()
    with pytest.raises(NotFoundError):
        log.add_group([turn, Note(topic="gmi.input", payload=b"{}", turn=new_id())])
    with pytest.raises(UnknownTurnError):
        log.add_group([turn, note, turn_draft("x", continues=new_id())])
    assert [event.header.topic for event in log.events()] == ["log.genesis", "gpt.turn"]


def test_hooks_see_turns_and_notes(hook: Hook) -> None:
    """And how much was taken out of a note stands in its metadata."""

    secret = "sk-ant-api03-" + "a" * 93 + "AA"
    with TurnLog.open("memory://", redact=[hook]) as log:
        turn, note, _ = drafts()
        payload = json.dumps({"said": f"the key is {secret}"}).encode()
        log.add_group([turn, Note(topic=note.topic, payload=payload, turn=note.turn)])
        [kept] = log.events(topics=["geppetto.turn"])
        assert secret.encode() not in log.payload(kept.header.id)
        assert list(metadata(kept)["redacted"].values()) == [1]


def test_erasing_a_turn_takes_its_notes(tmp_path: Path) -> None:
    """With what they have."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn, note, _ = log.add_group(drafts())
        log.erase(turn=turn.header.id, reason="asked for")
        assert log.event(note.header.id).erased
