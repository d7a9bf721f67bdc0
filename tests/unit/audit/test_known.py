"""What is known of the events read so far: all of them, with bounded memory."""

from collections.abc import Iterator

import pytest

from turnlog import TurnLog
from turnlog.audit.known import Known, Recent
from turnlog.store.sqlite.scratch import scratch


def test_recent_keeps_the_last_values() -> None:
    """At least as many as asked for, at most twice as many."""
    recent = Recent[int](10)
    for number in range(1000):
        recent.put(str(number), number)
    kept = [number for number in range(1000) if recent.get(str(number)) is not None]
    assert kept == list(range(1000 - len(kept), 1000))
    assert 10 <= len(kept) <= 20


def test_recent_says_what_it_drops() -> None:
    """Every value is kept or was given back, none is both."""
    recent = Recent[int](10)
    dropped: dict[str, int] = {}
    for number in range(95):
        dropped |= recent.put(str(number), number) or {}
    kept = {str(number): number for number in range(95) if recent.get(str(number)) is not None}
    assert kept.keys().isdisjoint(dropped)
    assert len(kept) + len(dropped) == 95


@pytest.fixture
def known(log: TurnLog) -> Iterator[Known]:
    """Give what is known of a log with many streams, where hardly anything was kept in memory."""
    for number in range(40):
        last = log.add_turn(str(number))
        for _ in range(number % 4):
            last = log.add_turn("on", continues=last.id)
    with scratch(log.store.projections, recent_max=3) as target:
        known = Known(target, recent_max=2)
        for event in log.events():
            known.note(event)
            target.fold(event)
        yield known


def test_events_of_long_ago_are_known(known: Known, log: TurnLog) -> None:
    """Each with its place, and no event that was not read."""
    for event in log.events():
        found = known.event(event.header.id)
        assert found is not None
        assert (found.leaf_hash, found.topic, found.stream, found.position, found.global_position) == (
            event.leaf_hash,
            event.header.topic,
            event.header.stream,
            event.header.position,
            event.global_position,
        )
        assert known.event(event.header.id[:-1] + "!") is None


def test_ends_of_streams_of_long_ago_are_known(known: Known, log: TurnLog) -> None:
    """The last position of each, and None of a stream of which nothing was read."""
    ends: dict[str, int] = {}
    for event in log.events():
        if event.header.topic == "gpt.turn":
            ends[event.header.stream] = event.header.position
    assert {stream: known.end(stream) for stream in ends} == ends
    assert set(ends.values()) == {0, 1, 2, 3}
    assert known.end("x") is None
