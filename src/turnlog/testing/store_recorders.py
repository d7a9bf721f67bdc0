"""What an engine promises to eventsourcing: its factory gives recorders of the same log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from eventsourcing.persistence import IntegrityError, Notification, StoredEvent, Tracking

from turnlog.errors import StoreError
from turnlog.events import Arrival, Event, Recorded
from turnlog.ids import new_id
from turnlog.store import Store
from turnlog.testing.harness import TOPIC, StoreHarness, append, append_run, new_event, states, tally


def _stored(event: Event) -> StoredEvent:
    return StoredEvent(
        originator_id=event.header.stream,
        originator_version=event.header.position,
        topic=event.header.topic,
        state=event.state,
    )


def _notification(recorded: Recorded) -> Notification:
    stored = _stored(recorded)
    return Notification(
        id=recorded.global_position,
        originator_id=stored.originator_id,
        originator_version=stored.originator_version,
        topic=stored.topic,
        state=recorded.state,
    )


class StoreRecorders(StoreHarness):
    """Tests of `Store.factory`: notification id = global position, originator = stream."""

    @pytest.fixture
    def appended(self, store: Store) -> list[Recorded]:
        """Append six events of the topics a, b, c, a, b, c."""
        return append(store, *(new_event(topic=topic) for topic in "abcabc"))

    @pytest.mark.parametrize(
        ("start", "limit", "stop", "topics", "found"),
        [
            (None, 10, None, (), [1, 2, 3, 4, 5, 6]),
            (1, 10, None, (), [1, 2, 3, 4, 5, 6]),
            (3, 10, None, (), [3, 4, 5, 6]),
            (3, 2, None, (), [3, 4]),
            (2, 10, 4, (), [2, 3, 4]),
            (2, 2, 6, (), [2, 3]),
            (1, 10, None, ("b",), [2, 5]),
            (3, 10, 5, ("a", "c"), [3, 4]),
            (None, 1, None, ("c",), [3]),
            (7, 10, None, (), []),
        ],
    )
    def test_select_notifications(
        self,
        store: Store,
        appended: list[Recorded],
        start: int | None,
        limit: int,
        stop: int | None,
        topics: Sequence[str],
        found: list[int],
    ) -> None:
        """Notifications are the log's events: from `start` to `stop`, both included, of the topics, at most `limit`."""
        recorder = store.factory.application_recorder()
        expected = [_notification(appended[at - 1]) for at in found]
        assert recorder.select_notifications(start, limit, stop, topics) == expected

    def test_select_notifications_can_exclude_the_start(self, store: Store, appended: list[Recorded]) -> None:
        """With `inclusive_of_start=False` the notifications begin after `start`."""
        recorder = store.factory.application_recorder()
        found = recorder.select_notifications(3, 2, inclusive_of_start=False)
        assert found == [_notification(recorded) for recorded in appended[3:5]]

    def test_max_notification_id_is_the_last_global_position(self, store: Store) -> None:
        """The largest notification id is None in an empty log, and then the last global position."""
        recorder = store.factory.application_recorder()
        assert recorder.max_notification_id() is None
        append_run(store, 3)
        assert recorder.max_notification_id() == 3

    def test_select_events_reads_a_stream(self, store: Store) -> None:
        """Events are selected by stream: from one version up to another, in both orders, at most `limit`."""
        run, _ = append_run(store, 5), append_run(store, 2)
        stream, stored = run[0].header.stream, [_stored(recorded) for recorded in run]
        recorder = store.factory.application_recorder()
        assert recorder.select_events(stream) == stored
        assert recorder.select_events(stream, gt=1, lte=3) == stored[2:4]
        assert recorder.select_events(stream, desc=True, limit=2) == [stored[4], stored[3]]
        assert recorder.select_events(new_id()) == []

    def test_insert_events_records_through_the_same_path(self, store: Store) -> None:
        """What a recorder inserts is in the log, folded into the projections, and its global positions are returned."""
        recorder = store.factory.application_recorder()
        first, second = new_event(), new_event()
        assert recorder.insert_events([_stored(first), _stored(second)]) == [2, 3]
        assert states(store)[1:] == [first.state, second.state]
        assert tally(store) == {"log.genesis": 1, "test.event": 2}
        with store.read() as transaction:
            found = transaction.event(second.header.id)
        assert found is not None
        assert (found.header, found.leaf_hash, found.arrival) == (second.header, second.leaf_hash, Arrival.RECORDED)

    def test_insert_events_into_an_empty_log_begins_it(self, store: Store) -> None:
        """A log whose first event comes through a recorder begins with its genesis too, and only once."""
        recorder = store.factory.application_recorder()
        recorder.insert_events([_stored(new_event())])
        recorder.insert_events([_stored(new_event())])
        with store.read() as transaction:
            assert [recorded.header.topic for recorded in transaction.log()] == ["log.genesis", TOPIC, TOPIC]

    def test_insert_events_at_a_taken_position_raises(self, store: Store) -> None:
        """A taken position raises eventsourcing's own `IntegrityError`, and none of the events is recorded."""
        [root] = append(store, new_event())
        recorder = store.factory.application_recorder()
        fresh, taken = new_event(), new_event(stream=root.header.stream)
        with pytest.raises(IntegrityError):
            recorder.insert_events([_stored(fresh), _stored(taken)])
        assert states(store) == [root.state]

    def test_insert_events_of_a_known_id_raises(self, store: Store) -> None:
        """A known id raises `IntegrityError` too."""
        [root] = append(store, new_event())
        recorder = store.factory.application_recorder()
        with pytest.raises(IntegrityError):
            recorder.insert_events([_stored(new_event(id=root.header.id, stream=new_id()))])
        assert states(store) == [root.state]

    def test_insert_events_that_are_no_events_raises(self, store: Store) -> None:
        """A state that is no event, or says another place than the record, is refused with a `StoreError`."""
        recorder = store.factory.application_recorder()
        good = _stored(new_event())
        bad = [
            StoredEvent(originator_id=good.originator_id, originator_version=0, topic=TOPIC, state=b"not an event"),
            StoredEvent(originator_id=new_id(), originator_version=0, topic=good.topic, state=good.state),
            StoredEvent(originator_id=good.originator_id, originator_version=1, topic=good.topic, state=good.state),
            StoredEvent(originator_id=good.originator_id, originator_version=0, topic="other", state=good.state),
            # A recorder carries no private part.
            _stored(new_event(private={"n": 1})),
            _stored(new_event(payload=b"x")),
        ]
        for stored in bad:
            with pytest.raises(StoreError):
                recorder.insert_events([stored])
        assert states(store) == []

    def test_tracking_recorder_keeps_the_furthest_position(self, store: Store) -> None:
        """Tracking tells how far each projection has come; an earlier or equal position is refused."""
        recorder = store.factory.tracking_recorder()
        assert recorder.max_tracking_id("log") is None
        recorder.insert_tracking(Tracking("log", 1))
        recorder.insert_tracking(Tracking("log", 3))
        recorder.insert_tracking(Tracking("other", 2))
        for stale in (1, 2, 3):
            with pytest.raises(IntegrityError):
                recorder.insert_tracking(Tracking("log", stale))
        assert recorder.max_tracking_id("log") == 3
        assert recorder.max_tracking_id("other") == 2
        assert recorder.has_tracking_id("log", 2)
        assert not recorder.has_tracking_id("other", 3)

    def test_recorders_see_events_of_the_store_at_once(self, store: Store) -> None:
        """A recorder made before an append sees it afterwards, and the other way round."""
        recorder = store.factory.application_recorder()
        [first] = append(store, new_event())
        recorder.insert_events([_stored(second := new_event())])
        [third] = append(store, new_event())
        found = [notification.state for notification in recorder.select_notifications(1, 9)]
        assert found == [first.state, second.state, third.state]
