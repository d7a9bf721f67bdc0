"""eventsourcing's recorders and factory on a turnlog store."""

from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import (
    ConnectionNotFromPoolError,
    ConnectionPoolClosedError,
    ConnectionUnavailableError,
    IntegrityError,
    InterfaceError,
    Notification,
    StoredEvent,
    Tracking,
)

from turnlog import TurnLog
from turnlog.errors import CorruptionError, StoreError
from turnlog.testing.harness import new_event


def _stored(topic: str = "gpt.call", **changes: Any) -> StoredEvent:
    event = new_event(topic=topic, **changes)
    return StoredEvent(
        originator_id=event.header.stream,
        originator_version=event.header.position,
        topic=event.header.topic,
        state=event.state,
    )


@pytest.fixture(params=["memory", "file"])
def any_log(request: pytest.FixtureRequest) -> TurnLog:
    """Give an empty log, once in memory and once in a file."""
    return request.getfixturevalue("log" if request.param == "memory" else "file_log")


@pytest.fixture
def recorder(any_log: TurnLog) -> Any:
    """Give the application recorder of a log."""
    return any_log.store.factory.application_recorder()


def test_notifications_are_the_log(any_log: TurnLog, recorder: Any) -> None:
    """A notification's id is the global position, its originator the stream, its state the event's bytes."""
    root = any_log.add_turn("a")
    any_log.add_turn("b", continues=root.id)
    any_log.bookmarks.set("x", root.id)
    expected = [
        Notification(
            id=recorded.global_position,
            originator_id=recorded.header.stream,
            originator_version=recorded.header.position,
            topic=recorded.header.topic,
            state=recorded.state,
        )
        for recorded in any_log.events()
    ]
    assert recorder.select_notifications(1, 10) == expected
    assert [notification.id for notification in expected] == [1, 2, 3, 4]
    assert recorder.max_notification_id() == 4


@pytest.mark.parametrize(
    ("start", "limit", "given", "ids"),
    [
        (None, 100, {}, [1, 2, 3, 4, 5, 6, 7]),
        (1, 100, {}, [1, 2, 3, 4, 5, 6, 7]),
        (3, 2, {}, [3, 4]),
        (3, 100, {"inclusive_of_start": False}, [4, 5, 6, 7]),
        (2, 100, {"stop": 4}, [2, 3, 4]),
        (2, 100, {"stop": 4, "inclusive_of_start": False}, [3, 4]),
        (1, 100, {"topics": ["gpt.bookmark"]}, [3, 5, 7]),
        (1, 2, {"topics": ["gpt.bookmark"]}, [3, 5]),
        (1, 100, {"topics": ["gpt.bookmark", "gpt.turn"], "stop": 4}, [2, 3, 4]),
        (1, 100, {"topics": ["nope"]}, []),
        (8, 100, {}, []),
        (1, 0, {}, []),
    ],
)
def test_notifications_are_selected_by_bounds_and_topics(
    any_log: TurnLog, recorder: Any, start: int | None, limit: int, given: dict[str, Any], ids: list[int]
) -> None:
    """Start, stop (included), topics and limit select notifications in global order."""
    for number in range(3):
        turn = any_log.add_turn("x")
        any_log.bookmarks.set(f"b{number}", turn.id)
    assert [notification.id for notification in recorder.select_notifications(start, limit, **given)] == ids


def test_events_of_a_stream_are_selected_in_order(any_log: TurnLog, recorder: Any) -> None:
    """A stream is an originator: its events come in the order of positions, in ranges too."""
    turn = any_log.add_turn("0")
    stream = turn.id
    for number in range(1, 5):
        turn = any_log.add_turn(str(number), continues=turn.id)
    any_log.add_turn("other")
    states = [recorded.state for recorded in any_log.events(after=1)]
    assert [event.state for event in recorder.select_events(stream)] == states[:5]
    assert [event.state for event in recorder.select_events(stream, gt=1, lte=3)] == states[2:4]
    assert [event.state for event in recorder.select_events(stream, desc=True, limit=2)] == [states[4], states[3]]
    assert recorder.select_events("nope") == []
    assert recorder.max_notification_id() == 7


def test_empty_log_has_no_largest_id(recorder: Any) -> None:
    """Before the first event there is no notification."""
    assert recorder.max_notification_id() is None
    assert recorder.select_notifications(1, 10) == []


def test_inserted_events_are_in_the_log(any_log: TurnLog, recorder: Any) -> None:
    """What is recorded through the library is recorded as turnlog does: hashed, indexed, verified."""
    any_log.add_turn("x")
    one, two = _stored("acme.one"), _stored("acme.two", public={"n": 1})
    assert list(recorder.insert_events([one, two])) == [3, 4]
    assert [recorded.state for recorded in any_log.events(after=2)] == [one.state, two.state]
    assert any_log.verify().clean
    assert recorder.insert_events([]) == []


def test_inserted_turn_is_a_turn(any_log: TurnLog, recorder: Any) -> None:
    """Projections fold what comes through the library."""
    turn = _stored("gpt.turn", public={"role": "user"})
    recorder.insert_events([turn])
    assert any_log.turn(turn.originator_id).meta.role == "user"
    assert [thread.id for thread in any_log.threads()] == [turn.originator_id]


def test_taken_place_is_an_integrity_error_and_writes_nothing(any_log: TurnLog, recorder: Any) -> None:
    """All events of a call are recorded or none; the error is the library's own, as its callers expect."""
    one = _stored()
    recorder.insert_events([one])
    with pytest.raises(IntegrityError):
        recorder.insert_events([_stored(), one])
    assert [recorded.state for recorded in any_log.events(after=1)] == [one.state]


@pytest.mark.parametrize("change", [{"originator_id": "x"}, {"originator_version": 1}, {"topic": "other"}])
def test_record_that_contradicts_its_state_is_refused(any_log: TurnLog, recorder: Any, change: dict[str, Any]) -> None:
    """Stream, position and topic beside the bytes must be those in them."""
    one = _stored()
    fields = {
        "originator_id": one.originator_id,
        "originator_version": one.originator_version,
        "topic": one.topic,
        "state": one.state,
    }
    with pytest.raises(StoreError, match="another stream, position or topic"):
        recorder.insert_events([StoredEvent(**(fields | change))])
    assert list(any_log.events()) == []


def test_foreign_state_and_private_parts_are_refused(any_log: TurnLog, recorder: Any) -> None:
    """Bytes that are no event, and events whose private part or payload would be missing, are not recorded."""
    with pytest.raises(CorruptionError):
        recorder.insert_events([StoredEvent(originator_id="x", originator_version=0, topic="t", state=b"{}")])
    for changes in ({"payload": b""}, {"private": {"n": 1}}):
        with pytest.raises(StoreError, match="private part, which a recorder cannot carry"):
            recorder.insert_events([_stored(**changes)])
    assert list(any_log.events()) == []


def test_tracking_recorder_keeps_its_position(any_log: TurnLog) -> None:
    """The factory gives tracking recorders whose table stands beside the log."""
    tracking = any_log.store.factory.tracking_recorder()
    assert tracking.max_tracking_id("up") is None
    tracking.insert_tracking(Tracking("up", 3))
    assert tracking.max_tracking_id("up") == 3
    assert tracking.has_tracking_id("up", 3)
    assert not tracking.has_tracking_id("up", 4)
    with pytest.raises(IntegrityError):
        tracking.insert_tracking(Tracking("up", 3))
    any_log.add_turn("x")
    assert any_log.verify().clean


def test_process_recorder_is_refused(any_log: TurnLog) -> None:
    """There is one way to record events, and a process recorder would be another."""
    with pytest.raises(NotImplementedError, match="tracking recorder"):
        any_log.store.factory.process_recorder()


# Connections


@pytest.fixture
def pool(any_log: TurnLog) -> Any:
    """Give the pool of eventsourcing's datastore."""
    return any_log.store.factory.datastore.pool


def test_connections_are_those_of_the_store(any_log: TurnLog, pool: Any) -> None:
    """What eventsourcing's users read are rows with names; what turnlog reads on the same connection is as ever."""
    any_log.add_turn("x")
    connection = pool.get_connection()
    [row] = connection.cursor().sqlite_cursor.execute("SELECT COUNT(*) AS events FROM stored_events").fetchall()
    assert row["events"] == 2
    assert pool.num_in_use == 1
    pool.put_connection(connection)
    assert pool.num_in_use == 0
    with any_log.store.read() as transaction:
        assert transaction.rows("SELECT COUNT(*) FROM stored_events") == [(2,)]


def test_connection_comes_back_once(any_log: TurnLog, pool: Any) -> None:
    """Given back a second time, or to another pool, it is refused, so that no two have it."""
    connection = pool.get_connection()
    with TurnLog.open("memory://") as other:
        stranger = other.store.factory.datastore.pool
        with pytest.raises(ConnectionNotFromPoolError):
            stranger.put_connection(connection)
    pool.put_connection(connection)
    with pytest.raises(ConnectionNotFromPoolError):
        pool.put_connection(connection)
    assert any_log.verify().clean


def test_one_connection_writes(pool: Any) -> None:
    """The second writer waits, for so long; a reader of a file does not."""
    writer = pool.get_connection(is_writer=True)
    with pytest.raises(ConnectionUnavailableError):
        pool.get_connection(0.01, is_writer=True)
    if "memory" in pool.db_name:
        with pytest.raises(ConnectionUnavailableError, match="too many readers at once"):
            pool.get_connection(0.01, is_writer=False)
    else:
        pool.put_connection(pool.get_connection(0.01, is_writer=False))
    pool.put_connection(writer)
    pool.put_connection(pool.get_connection(0.01, is_writer=True))


def test_connection_that_its_user_closed_is_not_given_again(file_log: TurnLog) -> None:
    """It is let go, also as the one that writes."""
    pool = file_log.store.factory.datastore.pool  # pyright: ignore[reportAttributeAccessIssue]
    connection = pool.get_connection(is_writer=True)
    connection.close()
    pool.put_connection(connection)
    again = pool.get_connection(0.01, is_writer=True)
    again.cursor().execute("SELECT 1")
    pool.put_connection(again)


def test_closing_the_factory_leaves_the_store_open(any_log: TurnLog) -> None:
    """It lends no connections any more; a connection that it has lent comes back to the store."""
    factory: Any = any_log.store.factory
    recorder = factory.application_recorder()
    connection = factory.datastore.pool.get_connection()
    factory.close()
    with pytest.raises(ConnectionPoolClosedError):
        recorder.max_notification_id()
    factory.datastore.pool.put_connection(connection)
    assert any_log.add_turn("on").global_position == 2


@pytest.mark.parametrize("commit", [False, True])
def test_closed_store_is_a_closed_pool(any_log: TurnLog, recorder: Any, commit: bool) -> None:
    """What goes past the store to the connections is told by the library's own error."""
    any_log.close()
    for _ in range(2):
        with pytest.raises(ConnectionPoolClosedError), recorder.datastore.transaction(commit=commit):
            pass


def test_database_that_cannot_be_opened_is_an_interface_error(file_log: TurnLog, store_path: Path) -> None:
    """SQLite's error is told as the library does."""
    pool: Any = file_log.store.factory.datastore.pool  # pyright: ignore[reportAttributeAccessIssue]
    held = pool.get_connection()  # the one that is open
    store_path.rename(store_path.with_suffix(".moved"))
    with pytest.raises(InterfaceError, match="unable to open"):
        pool.get_connection(is_writer=True)
    store_path.with_suffix(".moved").rename(store_path)
    pool.put_connection(pool.get_connection(is_writer=True))
    pool.put_connection(held)
