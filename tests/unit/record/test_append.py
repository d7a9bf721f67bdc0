"""The one append path: what an event gets that nobody says, and in which part its fields stand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnlog import Origin, TurnLog, Usage
from turnlog.errors import IdConflictError, MetaError
from turnlog.events import CALL, SHAPES, Arrival, Recorded, flaw
from turnlog.model import BytesRef, CallMeta, ReplyFacts, TurnMeta
from turnlog.projections import synchronous
from turnlog.record import EventDraft, plan_event
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, open_store


@pytest.fixture
def times() -> list[int]:
    """Give the times that the log's clock shows, in the order in which it is asked."""
    return []


@pytest.fixture
def clocked(times: list[int]) -> Iterator[TurnLog]:
    """Give a log with a clock that goes backwards."""

    def time_ms() -> int:
        times.append(1_700_000_000_000 - len(times))
        return times[-1]

    with TurnLog(open_store("memory://", projections=synchronous()), sources=Sources(time_ms=time_ms)) as log:
        yield log


def _events(log: TurnLog) -> list[Recorded]:
    return list(log.events())


def test_every_event_has_the_time_of_its_recording(clocked: TurnLog, times: list[int], tmp_path: Path) -> None:
    """Whatever is recorded, the clock of the log is asked, also where it goes backwards."""
    (tmp_path / "a.txt").write_text("x")
    turn = clocked.add_turn("x")
    clocked.add_document(tmp_path / "a.txt", continues=turn.id)
    clocked.bookmarks.set("main", turn.id)
    clocked.pointers.set("a", "p", "m")
    clocked.add_event("acme.note")
    assert sorted(event.header.time for event in _events(clocked)) == sorted(times)
    assert len(set(times)) == 6


def test_equal_turns_have_different_salts(log: TurnLog) -> None:
    """So that a header says nothing of content: what is equal cannot be told from what is not."""
    for _ in range(3):
        log.add_turn("Same words", reply=ReplyFacts(model="m"))
    _, *turns = _events(log)
    assert len({turn.hash for turn in turns}) == 1
    salts = {turn.private.salt for turn in turns if turn.private is not None}
    assert len(salts) == 3
    assert {len(salt) for salt in salts} == {16}
    assert len({turn.header.private for turn in turns}) == 3


def test_event_that_says_nothing_private_has_no_private_part(log: TurnLog) -> None:
    """There is none for nothing: neither a payload nor private metadata."""
    bare = log.add_event("acme.note", public={"n": 1})
    assert (bare.header.private, bare.private, bare.erased) == (None, None, False)
    assert log.add_event("acme.note", b"").private is not None
    assert log.add_event("acme.note", private={"n": 1}).private is not None


def test_public_and_private_fields_of_a_turn_stand_apart(log: TurnLog) -> None:
    """What can name or describe a person is in the private part, and so is what the content is."""
    turn = log.add_turn(
        "words",
        role="assistant",
        bookmark="annas place",
        inherited={"user": "anna"},
        origin=Origin(format="f", ids=["1"]),
        reply=ReplyFacts(
            error="anna said no",
            model="m",
            provider="p",
            api="a",
            stop_reason="stop",
            raw_stop_reason="end",
            usage=Usage(input_tokens=1),
        ),
        cache=True,
    )
    event = log.event(turn.id)
    assert event.private is not None
    public = msgspec.json.decode(event.header.meta)
    private = msgspec.json.decode(event.private.meta)
    assert public.keys() == {
        *("role", "cache", "model", "provider", "api"),
        *("stop_reason", "raw_stop_reason", "usage"),
    }
    assert private.keys() == {"head", "inherited", "origin", "error"}
    assert b"anna" not in event.state
    assert (event.hash, event.size) == (turn.hash, turn.size)
    assert turn.hash.encode() not in event.state


@pytest.mark.parametrize("name", [field.encode_name for field in msgspec.structs.fields(TurnMeta)])
def test_field_of_a_turn_stands_in_one_place(name: str) -> None:
    """Public, cited, or else private."""
    shape = SHAPES["gpt.turn"]
    assert (name in shape.public) + (name in shape.cited) <= 1


def test_all_that_is_recorded_is_in_the_form_of_the_log(log: TurnLog, tmp_path: Path) -> None:
    """No event that this path writes has a flaw."""
    (tmp_path / "a.txt").write_text("x")
    turn = log.add_turn("x", bookmark="main", servers=["a"], origin=Origin(format="f", ids=["1"]))
    log.add_document(tmp_path / "a.txt", continues="main")
    log.bookmarks.set("other", turn.id)
    log.bookmarks.rename("other", "third")
    log.bookmarks.delete("third")
    log.pointers.set("a", "p", "m", params={"max_tokens": 1})
    log.pointers.delete("a")
    log.providers.set("p", base_url="https://example.org/")
    log.servers.set("s", ["run"], timeout_s=1.5)
    log.add_event("acme.note", b"x", private={"a": [1, 2.5, None]}, public={"b": "c"}, cites=[("of", turn.id)])
    assert [flaw(event) for event in _events(log)] == [None] * 11
    assert {event.arrival for event in _events(log)} == {Arrival.RECORDED}


def test_same_event_again_keeps_its_time_and_its_salt(clocked: TurnLog) -> None:
    """A retry records nothing, though clock and salt would now be others."""

    def record() -> Recorded:
        return clocked.add_event("acme.note", b"x", private={"a": 1}, id="0" * 25)

    assert record() == record()
    assert len(_events(clocked)) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.add_event("acme.other", b"x", private={"a": 1}, id="0" * 25),
        lambda log: log.add_event("acme.note", b"y", private={"a": 1}, id="0" * 25),
        lambda log: log.add_event("acme.note", None, private={"a": 1}, id="0" * 25),
        lambda log: log.add_event("acme.note", b"x", private={"a": 2}, id="0" * 25),
        lambda log: log.add_event("acme.note", b"x", private={"a": 1}, public={"b": 1}, id="0" * 25),
        lambda log: log.add_event("acme.note", b"x", private={"a": 1}, cites=[("of", log.id)], id="0" * 25),
    ],
)
def test_another_event_under_the_id_is_refused(log: TurnLog, change: Callable[[TurnLog], object]) -> None:
    """In topic, payload, either half of the metadata, or citations: nothing is written."""
    log.add_event("acme.note", b"x", private={"a": 1}, id="0" * 25)
    with pytest.raises(IdConflictError) as caught:
        change(log)
    assert caught.value.event_id == "0" * 25
    assert len(_events(log)) == 2


def test_refused_first_event_leaves_no_genesis(log: TurnLog) -> None:
    """A log begins with what is recorded, and not with what was not."""

    def plan(transaction: object) -> None:
        plan_event(transaction, EventDraft(topic="acme.note", meta={}), NO_PAYLOAD, Sources())  # type: ignore[arg-type]
        raise IdConflictError("no", event_id="x")

    with pytest.raises(IdConflictError):
        log.store.write(plan)
    assert (_events(log), log.id) == ([], None)


def test_bookmark_event_cites_its_turn_and_hides_its_name(log: TurnLog) -> None:
    """The digest of the turn is a part of it; the name can be erased."""
    turn = log.add_turn("x")
    log.bookmarks.set("annas place", turn.id)
    *_, event = _events(log)
    assert [(one.relation, one.id, one.digest) for one in event.header.citations] == [("turn", turn.id, turn.digest)]
    assert bytes(event.header.meta) == b'{"action":"set"}'
    assert b"anna" not in event.state


def test_turn_without_a_model_has_no_field_for_it(log: TurnLog) -> None:
    """What was not given is not there, and no default is written out."""
    turn = log.add_turn("x")
    assert bytes(log.event(turn.id).header.meta) == b'{"role":"user"}'
    assert turn.meta.model is None


@pytest.mark.parametrize(
    ("stream", "says"),
    [(None, "expected 'bool', got 'null'"), (0, "expected 'bool', got 'int'"), (b"", "bytes is not JSON")],
)
def test_field_of_another_type_is_not_recorded(log: TurnLog, stream: Any, says: str) -> None:
    """Whoever makes it: what could not be read again is not written."""
    turn = log.add_turn("a")
    body = BytesRef(hash=turn.hash or "", size=2)
    names = {"provider": "p", "model": "m", "api": "a", "adapter": "a", "adapter_version": "1"}
    meta = CallMeta(turn=turn.id, stream=stream, request=body, **names)
    with pytest.raises(MetaError, match=f"meta.stream: {says}"):
        log.store.write(lambda write: plan_event(write, EventDraft(topic=CALL, meta=meta), NO_PAYLOAD, Sources()))
    assert log.verify().clean
