"""eventsourcing's own projections, runners and notification logs on a turnlog log."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError, ProgrammingError, Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import ApplicationSubscription, Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder
from eventsourcing.utils import clear_topic_cache
from psycopg.conninfo import conninfo_to_dict
from tests.sealed_log import seals_in

from turnlog import TurnLog
from turnlog.errors import StoreClosedError, StoreCutError, StoreOpenError
from turnlog.feeds.log_events import CallEvent, ErasureEvent, LogEvent, TurnEvent
from turnlog.store import TurnApplication, TurnFactory


class Counts(SQLiteTrackingRecorder):
    """A view of a user's own: words of each role, in the library's tracking recorder."""

    def construct_create_table_statements(self) -> list[str]:
        """Return the tables."""
        return [
            *super().construct_create_table_statements(),
            "CREATE TABLE IF NOT EXISTS words (role TEXT PRIMARY KEY, words INTEGER)",
        ]

    def add(self, role: str, words: int, tracking: Tracking) -> None:
        """Count, and track, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "INSERT INTO words VALUES (?, ?) ON CONFLICT (role) DO UPDATE SET words = words + excluded.words",
                (role, words),
            )

    def words(self) -> dict[str, int]:
        """Return the words of each role."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT role, words FROM words")
            return {row["role"]: row["words"] for row in cursor.fetchall()}


class Words(Projection[Counts]):
    """Counts words as the library's documentation has it."""

    topics = ("gpt.turn",)

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Count the words of a turn."""
        assert isinstance(domain_event, TurnEvent)
        self.view.add(domain_event.meta["role"], len((domain_event.payload() or b"").split()), tracking)


@pytest.fixture(params=["sqlite", "postgres"])
def env(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """Give an environment: the library's for the view, turnlog's for the log, on either engine."""
    is_sqlite = request.param == "sqlite"
    return {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(tmp_path / "view.db"),
        "TURNLOG_STORE": f"sqlite:///{tmp_path}/log.db" if is_sqlite else request.getfixturevalue("kept_postgres_url"),
    }


@pytest.fixture
def log(env: dict[str, str]) -> Iterator[TurnLog]:
    """Give the log of the environment."""
    with TurnLog.open(env["TURNLOG_STORE"]) as log:
        yield log


def _runner(env: dict[str, str]) -> Any:
    return ProjectionRunner(application_class=TurnApplication, projection_class=Words, view_class=Counts, env=env)


def test_projection_runs_under_the_runner(log: TurnLog, env: dict[str, str]) -> None:
    """History first, then what is recorded by others; stopped and started it goes on where it was."""
    log.add_turn("one two three", bookmark="main")
    with _runner(env) as runner:
        runner.wait(2, timeout=30)
        assert runner.projection.view.words() == {"user": 3}
        last = log.add_turn("four five", continues="main")
        runner.wait(last.global_position, timeout=30)
        assert runner.projection.view.words() == {"user": 5}
    log.bookmarks.set("aside", last.id)
    last = log.add_turn("six", continues="main")
    with _runner(env) as runner:
        runner.wait(last.global_position, timeout=30)
        assert runner.projection.view.words() == {"user": 6}


def test_projection_beyond_the_end_says_that_the_log_was_cut(log: TurnLog, env: dict[str, str], tmp_path: Path) -> None:
    """Its tracking says that it has seen more than there is."""
    for text in ("one", "two"):
        log.add_turn(text)
    with _runner(env) as runner:
        runner.wait(3, timeout=30)
    with TurnLog.open(f"sqlite:///{tmp_path}/older.db") as older:
        older.add_turn("one")
    env["TURNLOG_STORE"] = f"sqlite:///{tmp_path}/older.db"
    with pytest.raises(StoreCutError), _runner(env) as runner:
        runner.run_forever(timeout=30)


def test_error_of_a_projection_is_raised_by_the_runner(log: TurnLog, env: dict[str, str]) -> None:
    """And what it had tracked stays."""
    log.add_turn("one")
    with closing(sqlite3.connect(env["SQLITE_DBNAME"])) as connection, connection:
        connection.execute("CREATE TABLE words (role TEXT PRIMARY KEY, words INTEGER CHECK (words < 2))")
    with pytest.raises(IntegrityError), _runner(env) as runner:  # noqa: PT012 - it may be raised by either
        log.add_turn("one two three")
        runner.run_forever(timeout=30)


def test_application_reads_the_log(log: TurnLog, env: dict[str, str]) -> None:
    """Events with header, private part, metadata and payload; a kind for each topic that matters."""
    turn = log.add_turn("said", bookmark="main")
    log.erase(turn=turn.id, reason="asked")
    with TurnApplication(env) as application:
        section = application.notification_log["1,10"]
        assert [notification.topic for notification in section.items] == ["log.genesis", "gpt.turn", "gpt.erasure"]
        assert application.recorder.max_notification_id() == 3
        with ApplicationSubscription(application, gt=0) as subscription:
            found = [next(subscription) for _ in range(3)]
        assert [tracking.notification_id for _, tracking in found] == [1, 2, 3]
        genesis, said, erasure = (event for event, _ in found)
        assert (type(genesis), type(said), type(erasure)) == (LogEvent, TurnEvent, ErasureEvent)
        assert isinstance(said, LogEvent)
        assert (said.id, said.topic, said.global_position) == (turn.id, "gpt.turn", 2)
        assert (said.originator_id, said.originator_version) == (turn.stream, turn.position)
        assert (said.header.id, said.private, said.payload()) == (turn.id, None, None)
        assert repr(said).startswith("TurnEvent(id=")
        again = log.add_turn("more", continues="main" if log.bookmarks.all() else None)
        [event] = application.events.get(again.stream)
        assert isinstance(event, TurnEvent)
        assert event.private is not None
        assert event.payload() == b'[{"type":"text","text":"more"}]'


def test_application_of_ones_own_takes_the_factory_from_the_environment(log: TurnLog, env: dict[str, str]) -> None:
    """By its name; a variable that begins with the application's name counts first."""

    class Mine(Application[str]):
        pass

    log.add_turn("one")
    clear_topic_cache()
    mine = {
        "PERSISTENCE_MODULE": "turnlog.store:TurnFactory",
        "TURNLOG_STORE": "sqlite:///nowhere/at/all.db",
        "MINE_TURNLOG_STORE": env["TURNLOG_STORE"],
    }
    with Mine(mine) as application:
        assert isinstance(application.factory, TurnFactory)
        assert [notification.id for notification in application.recorder.select_notifications(1, 9)] == [1, 2]


def test_path_of_a_database_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the library's own variables have it; `:memory:` is a log in memory."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("one")
    monkeypatch.delenv("TURNLOG_STORE", raising=False)
    with TurnApplication({"SQLITE_DBNAME": str(tmp_path / "log.db")}) as application:
        assert application.recorder.max_notification_id() == 2
    with TurnApplication({"SQLITE_DBNAME": ":memory:"}) as application:
        assert application.recorder.select_notifications(1, 9) == []
    with pytest.raises(StoreOpenError, match="set TURNLOG_STORE"):
        TurnApplication({})


def test_nothing_is_recorded_through_an_application(env: dict[str, str]) -> None:
    """Turns have rules that it does not know. There are no snapshots."""
    with TurnApplication(env) as application:
        with pytest.raises(NotImplementedError, match="TurnLog"):
            application.mapper.to_stored_event(LogEvent.__new__(LogEvent))
        with pytest.raises(NotImplementedError, match="snapshots"):
            application.factory.aggregate_recorder("snapshots")
        with pytest.raises(NotImplementedError):
            application.factory.process_recorder()


def test_sealed_events_are_read_with_keys(tmp_path: Path, env: dict[str, str]) -> None:
    """Without them they have no private part."""
    seals = seals_in(tmp_path / "keys")
    with TurnLog.open(env["TURNLOG_STORE"], seals=seals) as log:
        log.seal()
        log.add_turn("said")
    for given, payload in ((seals, b'[{"type":"text","text":"said"}]'), (None, None)):
        with TurnApplication(env, seals=given) as application:
            [notification] = application.recorder.select_notifications(1, 9, topics=["gpt.turn"])
            event = application.mapper.to_domain_event(notification)
            assert isinstance(event, TurnEvent)
            assert event.payload() == payload


def test_subscription_is_stopped_and_closed(log: TurnLog) -> None:
    """It is a context manager once, and ends when it is stopped or its store closed."""
    recorder: Any = log.store.factory.application_recorder()
    log.add_turn("one")
    with recorder.subscribe(gt=1) as subscription:
        assert next(subscription).id == 2
        with pytest.raises(ProgrammingError):
            subscription.__enter__()
    assert list(subscription) == []
    with recorder.subscribe(topics=["gpt.turn"]) as subscription:
        assert next(subscription).id == 2
    waiting = recorder.subscribe(gt=2)
    log.close()
    with pytest.raises(StoreClosedError):
        next(waiting)


def test_kinds_have_their_names(log: TurnLog) -> None:
    """A handler can be registered for each."""
    assert {kind.__name__ for kind in LogEvent.__subclasses__()} == {
        TurnEvent.__name__,
        CallEvent.__name__,
        "ReplyEvent",
        ErasureEvent.__name__,
    }


class CountsOnPostgres(PostgresTrackingRecorder):
    """The same view in PostgreSQL."""

    def add(self, role: str, words: int, tracking: Tracking) -> None:
        """Count, and track, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS words (role text PRIMARY KEY, words bigint)")
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "INSERT INTO words VALUES (%s, %s)"
                " ON CONFLICT (role) DO UPDATE SET words = words.words + excluded.words",
                (role, words),
            )


class WordsOnPostgres(Projection[CountsOnPostgres]):
    """Counts words in PostgreSQL."""

    topics = ("gpt.turn",)

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Count the words of a turn."""
        self.view.add(domain_event.meta["role"], len((domain_event.payload() or b"").split()), tracking)


def test_the_librarys_own_variables_name_a_postgresql_log(kept_postgres_url: str) -> None:
    """One environment for the log and the view, as an application of the library's own has it."""
    given = conninfo_to_dict(kept_postgres_url)
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "ORIGINATOR_ID_TYPE": "text",
        "POSTGRES_DBNAME": str(given["dbname"]),
        "POSTGRES_HOST": str(given["host"]),
        "POSTGRES_PORT": str(given["port"]),
        "POSTGRES_USER": str(given["user"]),
        "POSTGRES_PASSWORD": "not asked for",
    }
    with TurnLog.open(kept_postgres_url) as log:
        last = log.add_turn("one two three")
        with ProjectionRunner(
            application_class=TurnApplication, projection_class=WordsOnPostgres, view_class=CountsOnPostgres, env=env
        ) as runner:
            runner.wait(last.global_position, timeout=30)
            last = log.add_turn("four")
            runner.wait(last.global_position, timeout=30)
            assert runner.projection.view.max_tracking_id("TurnApplication") == last.global_position
    with closing(psycopg.connect(kept_postgres_url)) as connection:
        assert connection.execute("SELECT role, words FROM words").fetchall() == [("user", 4)]
