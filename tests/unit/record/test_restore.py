"""Taking over events of another store as they are."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.errors import FormatError, IdConflictError
from turnlog.events import Event, Parent, Recorded, encode
from turnlog.ids import new_id
from turnlog.record import RestoredEvent, plan_restore


def _restore(log: TurnLog, event: Event, payload: bytes | None, line: int = 7) -> bool:
    restored = RestoredEvent(line=line, state=encode(event), event=event, payload=log.store.place(payload))
    return log.store.write(lambda transaction: plan_restore(transaction, restored))


def _take(source: TurnLog, target: TurnLog, recorded: Recorded) -> bool:
    with source.store.read() as transaction:
        payload = transaction.payload(recorded)
    return _restore(target, recorded.event, payload)


@pytest.fixture
def source() -> Any:
    """Give a log of three turns and a bookmark event to take events from."""
    with TurnLog.open("memory://") as opened:
        root = opened.add_turn("root", bookmark="main")
        opened.add_turn("next", continues=root.id)
        opened.add_turn("fork", continues=root.id)
        opened.set_bookmark("side", root.id)
        yield opened


def test_events_come_over_with_id_bytes_and_place(log: TurnLog, source: TurnLog) -> None:
    """Every event is stored byte for byte, and the projections follow."""
    taken = [_take(source, log, recorded) for recorded in source.events()]
    assert taken == [True] * 4
    assert [recorded.state for recorded in log.events()] == [recorded.state for recorded in source.events()]
    assert log.bookmarks() == source.bookmarks()
    assert log.threads() == source.threads()


def test_known_event_is_passed_over(log: TurnLog, source: TurnLog) -> None:
    """The same event again is no error and adds nothing."""
    [root, *_] = source.events()
    assert _take(source, log, root) is True
    assert _take(source, log, root) is False
    assert len(list(log.events())) == 1


def test_other_event_under_the_id_is_refused(log: TurnLog, source: TurnLog) -> None:
    """An id stands for one event only."""
    [root, *_] = source.events()
    log.add_turn("other", id=root.event.id)
    with pytest.raises(IdConflictError, match=r"line 7: .*nothing was imported") as caught:
        _take(source, log, root)
    assert caught.value.event_id == root.event.id


def test_stream_that_went_another_way_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Two stores that both extended a stream have diverged there."""
    root, following, *_ = source.events()
    _take(source, log, root)
    log.add_turn("mine", continues=root.event.id)
    with pytest.raises(IdConflictError, match="diverged") as caught:
        _take(source, log, following)
    assert caught.value.event_id == following.event.id
    assert len(list(log.events())) == 2


def test_event_whose_parent_is_missing_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Neither an extension nor a fork comes without what it continues."""
    root, following, fork, bookmark = source.events()
    for recorded in (following, fork):
        with pytest.raises(FormatError, match=f"line 7: .*{root.event.id}") as caught:
            _take(source, log, recorded)
        assert caught.value.line == 7
    with pytest.raises(FormatError, match="bookmark on the unknown turn"):
        _take(source, log, bookmark)
    assert list(log.events()) == []


def test_parent_with_another_digest_is_refused(log: TurnLog, source: TurnLog) -> None:
    """A child commits to the exact bytes of its parents."""
    root, _, fork, _ = source.events()
    _take(source, log, root)
    other = msgspec.structs.replace(fork.event, parents=[Parent(id=root.event.id, digest="sha256-" + "A" * 43 + "=")])
    with pytest.raises(FormatError, match="another digest"):
        _restore(log, other, b"x")


def test_parent_that_is_no_turn_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Only turns are continued, in an import too."""
    root, _, fork, bookmark = source.events()
    _take(source, log, root)
    _take(source, log, bookmark)
    other = msgspec.structs.replace(fork.event, parents=[Parent(id=bookmark.event.id, digest=bookmark.digest)])
    with pytest.raises(FormatError, match="unknown turn"):
        _restore(log, other, b"x")


def test_event_beyond_the_end_of_its_stream_is_refused(log: TurnLog, source: TurnLog) -> None:
    """Positions have no gaps."""
    root, following, *_ = source.events()
    _take(source, log, root)
    far = msgspec.structs.replace(following.event, position=2)
    with pytest.raises(FormatError, match="position 2"):
        _restore(log, far, b"x")


def test_event_that_does_not_follow_its_predecessor_is_refused(log: TurnLog, source: TurnLog) -> None:
    """The first parent of an extension is the turn before it in the stream."""
    root, _, fork, _ = source.events()
    _take(source, log, root)
    _take(source, log, fork)
    own = new_id()
    stray = Event(
        format=1,
        id=own,
        topic="gpt.turn",
        stream=root.event.id,
        position=1,
        hash=None,
        size=None,
        parents=[Parent(id=fork.event.id, digest=fork.digest)],
        meta=Raw(b'{"content_type":"application/json","role":"user"}'),
    )
    with pytest.raises(FormatError, match="does not follow"):
        _restore(log, stray, None)
    assert len(list(log.events())) == 2
