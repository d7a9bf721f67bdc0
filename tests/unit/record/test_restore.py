"""Taking over events of another store as they are."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from turnlog import TurnLog
from turnlog.digest import sri
from turnlog.errors import ConflictError, FormatError, IdConflictError, PositionTakenError
from turnlog.events import Arrival, Citation, Event, Recorded, build, cite
from turnlog.events.form import NO_META
from turnlog.ids import new_id
from turnlog.record import RestoredEvent, plan_restore


def _restore(
    log: TurnLog,
    event: Event,
    payload: bytes | None,
    *,
    line: int = 7,
    arrival: Arrival = Arrival.GUEST,
    at: int | None = None,
) -> Recorded | None:
    restored = RestoredEvent(line=line, event=event, payload=log.store.place(payload), arrival=arrival, at=at)
    return log.store.write(lambda transaction: plan_restore(transaction, restored))


def _take(source: TurnLog, target: TurnLog, recorded: Recorded, **changes: Any) -> Recorded | None:
    with source.store.read() as transaction:
        payload = transaction.payload(recorded)
    return _restore(target, recorded, payload, **changes)


def _with(event: Event, **changes: Any) -> Event:
    """Return an event with another header, and the same private part."""
    header = msgspec.structs.replace(event.header, **changes)
    return build(
        topic=header.topic,
        id=header.id,
        time=header.time,
        meta=header.meta,
        private=event.private,
        citations=header.citations,
        stream=header.stream,
        position=header.position,
    )


@pytest.fixture
def source() -> Iterator[TurnLog]:
    """Give a log of three turns, a pointer and a bookmark event to take events from."""
    with TurnLog.open("memory://") as opened:
        root = opened.add_turn("root", bookmark="main")
        opened.add_turn("next", continues=root.id)
        opened.add_turn("fork", continues=root.id)
        opened.bookmarks.set("side", root.id)
        opened.pointers.set("milli", "anthropic", "some-model")
        yield opened


def _states(log: TurnLog) -> list[bytes]:
    return [recorded.state for recorded in log.events()]


def test_events_come_over_with_id_bytes_and_place(log: TurnLog, source: TurnLog) -> None:
    """Every event is stored byte for byte, with its private part and its payload."""
    taken = [_take(source, log, recorded) for recorded in source.events()]
    assert all(isinstance(recorded, Recorded) for recorded in taken)
    assert _states(log) == _states(source)
    assert [one.private_state for one in log.events()] == [one.private_state for one in source.events()]
    assert [thread.id for thread in log.threads()] == [thread.id for thread in source.threads()]
    assert log.payload(log.threads()[0].id) == b'[{"type":"text","text":"root"}]'


@pytest.mark.parametrize("arrival", [Arrival.RESTORED, Arrival.GUEST])
def test_arrival_is_kept(log: TurnLog, source: TurnLog, arrival: Arrival) -> None:
    """The store remembers how an event came; restored ones move bookmarks, guests do not."""
    for recorded in source.events():
        _take(source, log, recorded, arrival=arrival)
    assert {recorded.arrival for recorded in log.events()} == {arrival}
    assert (log.bookmarks.all() == source.bookmarks.all()) == (arrival == Arrival.RESTORED)
    assert log.pointers.all() == []


def test_time_is_that_of_the_event(log: TurnLog, source: TurnLog) -> None:
    """Restoring keeps when an event was recorded, whatever time it is now."""
    for recorded in source.events():
        early = _with(recorded, time=1234, citations=[], position=0, stream=recorded.header.id, topic="acme.old")
        _restore(log, early, None if recorded.hash is None else source.payload(recorded.header.id))
    assert {recorded.header.time for recorded in log.events()} == {1234}
    assert time.time() > 1234


def test_known_event_is_passed_over(log: TurnLog, source: TurnLog) -> None:
    """The same event again is no error and adds nothing."""
    _, root, *_ = source.events()
    assert _take(source, log, root) is not None
    assert _take(source, log, root) is None
    assert _states(log) == [root.state]


def test_erased_event_is_known_by_its_header(log: TurnLog, source: TurnLog) -> None:
    """What is erased here stays erased, and what is whole here stays whole, whichever of the two comes in."""
    _, root, *_ = source.events()
    bare = Event(state=root.state, header=root.header, private_state=None, private=None, leaf_hash=root.leaf_hash)
    assert _restore(log, bare, None) is not None
    assert _take(source, log, root) is None
    [stored] = log.events()
    assert stored.erased
    assert _restore(source, bare, None) is None
    assert source.payload(root.header.id) == b'[{"type":"text","text":"root"}]'


def test_other_event_under_the_id_is_refused(log: TurnLog, source: TurnLog) -> None:
    """An id stands for one event only."""
    _, root, *_ = source.events()
    log.add_turn("other", id=root.header.id)
    before = _states(log)
    with pytest.raises(IdConflictError, match=r"line 7: the store has another event") as caught:
        _take(source, log, root)
    assert caught.value.event_id == root.header.id
    assert _states(log) == before


def test_stream_that_went_another_way_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Two stores that both extended a stream have diverged there."""
    _, root, following, *_ = source.events()
    _take(source, log, root)
    log.add_turn("mine", continues=root.header.id)
    before = _states(log)
    with pytest.raises(PositionTakenError, match="diverged") as caught:
        _take(source, log, following)
    assert caught.value.event_id == following.header.id
    assert _states(log) == before


def test_event_whose_citation_is_missing_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Neither an extension nor a fork nor a bookmark event comes without what it cites."""
    _, root, following, fork, bookmark, _ = source.events()
    for recorded, relation in ((following, "parent"), (fork, "parent"), (bookmark, "turn")):
        with pytest.raises(FormatError, match=f"line 7: .* '{root.header.id}' as its {relation}") as caught:
            _take(source, log, recorded)
        assert caught.value.line == 7
    assert _states(log) == []


def test_citation_with_another_digest_is_refused(log: TurnLog, source: TurnLog) -> None:
    """An event commits to the exact bytes of what it cites."""
    _, root, _, fork, bookmark, _ = source.events()
    _take(source, log, root)
    for recorded in (fork, bookmark):
        [citation] = recorded.header.citations
        other = _with(recorded, citations=[msgspec.structs.replace(citation, digest=sri(b"x" * 32))])
        with pytest.raises(FormatError, match="another digest"):
            _restore(log, other, None if recorded is bookmark else source.payload(fork.header.id))


@pytest.mark.parametrize("relation", ["parent", "call", "reply"])
def test_citation_of_the_wrong_topic_is_refused(log: TurnLog, source: TurnLog, relation: str) -> None:
    """Only turns are continued, and what a turn came of is a call and a reply."""
    _, root, _, fork, bookmark, _ = source.events()
    _take(source, log, root)
    _take(source, log, bookmark)
    other = _with(fork, citations=[cite(bookmark, relation)])
    with pytest.raises(FormatError, match=f"as its {relation}, and that is a gpt.bookmark event"):
        _restore(log, other, source.payload(fork.header.id))


def test_confirmation_cites_registers_only(log: TurnLog, source: TurnLog) -> None:
    """A `log.trust` event that cites a turn is refused; one that cites a pointer is not."""
    _, root, *_, pointer = source.events()
    _take(source, log, root)
    _take(source, log, pointer)
    for target, refused in ((root, True), (pointer, False)):
        trust = build(
            topic="log.trust", id=new_id(), time=0, meta=NO_META, private=None, citations=[cite(target, "target")]
        )
        if refused:
            with pytest.raises(FormatError, match=r"as its target, and that is a gpt\.turn event"):
                _restore(log, trust, None)
        else:
            assert _restore(log, trust, None) is not None


def test_events_of_other_topics_cite_what_they_like(log: TurnLog, source: TurnLog) -> None:
    """What a topic of somebody else cites as `turn` or `call` is theirs to say."""
    _, root, *_, pointer = source.events()
    _take(source, log, root)
    _take(source, log, pointer)
    own = build(
        topic="acme.review",
        id=new_id(),
        time=0,
        meta=NO_META,
        private=None,
        citations=[cite(pointer, "turn"), cite(root, "call")],
    )
    assert _restore(log, own, None) is not None


def test_event_beyond_the_end_of_its_stream_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Positions have no gaps."""
    _, root, following, *_ = source.events()
    _take(source, log, root)
    far = _with(following, position=2)
    with pytest.raises(FormatError, match=r"position 2 .* does not follow"):
        _restore(log, far, source.payload(following.header.id))


def test_event_that_does_not_follow_its_predecessor_is_refused(log: TurnLog, source: TurnLog) -> None:
    """The first parent of an extension is the turn before it in the stream, and no other."""
    _, root, following, fork, *_ = source.events()
    _take(source, log, root)
    _take(source, log, fork)
    stray = _with(following, citations=[cite(fork, "parent"), cite(root, "parent")])
    with pytest.raises(FormatError, match="does not follow"):
        _restore(log, stray, source.payload(following.header.id))
    orphan = _with(following, citations=[])
    with pytest.raises(FormatError, match="does not follow"):
        _restore(log, orphan, source.payload(following.header.id))
    assert len(_states(log)) == 2


def test_event_cannot_cite_itself(log: TurnLog) -> None:
    """What is cited is recorded before."""
    own = new_id()
    event = build(
        topic="acme.loop",
        id=own,
        time=0,
        meta=NO_META,
        private=None,
        citations=[Citation(relation="of", digest=sri(b"x" * 32), id=own)],
    )
    with pytest.raises(FormatError, match="unknown event"):
        _restore(log, event, None)


def test_restored_event_gets_the_global_position_that_it_had(log: TurnLog, source: TurnLog) -> None:
    """Where an event has to get a certain global position, it gets that one."""
    for at, recorded in enumerate(source.events(), 1):
        taken = _take(source, log, recorded, arrival=Arrival.RESTORED, at=at)
        assert taken is not None
        assert taken.global_position == at
    assert [_take(source, log, recorded, at=at) for at, recorded in enumerate(source.events(), 1)] == [None] * 6


def test_global_position_that_somebody_else_took_is_refused(log: TurnLog, source: TurnLog) -> None:
    """A log that was written to meanwhile cannot become the other one, and says so."""
    genesis, root, *_ = source.events()
    _take(source, log, genesis, arrival=Arrival.RESTORED, at=1)
    log.add_turn("mine")
    with pytest.raises(ConflictError, match="line 7: somebody else has written to the log"):
        _take(source, log, root, arrival=Arrival.RESTORED, at=2)
    assert len(_states(log)) == 2
