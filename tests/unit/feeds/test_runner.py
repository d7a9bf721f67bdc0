"""Projections of one's own: folded exactly once, paused at what cannot be folded, built anew beside, erased."""

import errno
import fcntl
import io
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any, ClassVar
from unittest.mock import Mock

import psycopg
import pytest

from turnlog import Turn, TurnLog
from turnlog.errors import (
    ConflictError,
    MetaError,
    NotFoundError,
    PluginError,
    SchemaError,
    StoreCutError,
    StoreError,
    StoreFullError,
)
from turnlog.feeds.erasures import FORGOTTEN
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_target import PostgresTarget
from turnlog.feeds.projection import Projection, Status, projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.feeds.targets import Target
from turnlog.store.pages import PAGE_EVENTS

AnyTarget = SQLiteTarget | PostgresTarget
AnyCursor = sqlite3.Cursor | psycopg.Cursor[Any]


def add_many(log: TurnLog) -> list[Turn]:
    """Record more turns than are read at once, and return them."""
    with log.group() as group:
        for number in range(PAGE_EVENTS + 200):
            group.add_turn(str(number))
    return group.turns


class Words(Projection):
    """The number of words of each turn."""

    name = "acme.words"
    topics = ("gpt.turn",)
    schema = (
        "CREATE TABLE words (turn TEXT PRIMARY KEY, words INTEGER)",
        "CREATE INDEX words_by_number ON words (words)",
    )
    tables = ("words",)
    poison: ClassVar[set[str]] = set()

    def fold(self, db: AnyCursor, event: LogEvent) -> None:
        """Count the words of a turn."""
        text = (event.payload() or b"").decode()
        if any(word in text for word in self.poison):
            raise ValueError(f"cannot read\n{text!r}")
        if not event.recorded.erased:
            run(db, "INSERT INTO words VALUES (?, ?)", event.id, len(text.split()))

    def forget(self, db: AnyCursor, events: Sequence[LogEvent]) -> None:
        """Take turns away."""
        for event in events:
            run(db, "DELETE FROM words WHERE turn = ?", event.id)


def run(db: AnyCursor, statement: str, *values: Any) -> None:
    """Run a statement whose marks are those of SQLite."""
    db.execute(statement if isinstance(db, sqlite3.Cursor) else statement.replace("?", "%s").encode(), values)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


@pytest.fixture(params=["memory", "file", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyTarget]:
    """Give a target in memory, one in a file, and one in a PostgreSQL database."""
    if request.param == "postgres":
        target = PostgresTarget(request.getfixturevalue("kept_postgres_url"), "views")
    else:
        target = SQLiteTarget(":memory:" if request.param == "memory" else tmp_path / "made" / "view.db")
    yield target
    target.close()


def rows(target: AnyTarget, statement: str = "SELECT turn, words FROM words ORDER BY turn") -> list[Any]:
    with target.reader() as db:
        return db.execute(statement).fetchall()


def runner(log: TurnLog, target: Target, *projections: Projection) -> Runner:
    return Runner(log.store, target, projections or (Words(),))


@pytest.mark.parametrize("method", ["fold", "forget", "copied"])
def test_projection_of_an_async_function_is_refused(method: str) -> None:
    """Where it is made: nobody would await what it gives."""

    async def later(*_: object) -> None:
        """Do nothing yet."""

    said = f"{method} of projection 'Late': expected a plain function, got an async one, which nobody would await"
    with pytest.raises(MetaError, match=said):
        type("Late", (Words,), {method: later})


def test_target_with_an_async_method_is_refused() -> None:
    """Where it is made: nobody would await what it gives."""
    said = "save of target 'Late': expected a plain function, got an async one, which nobody would await"
    with pytest.raises(MetaError, match=said):
        type("Late", (SQLiteTarget,), {"save": _later})


def test_async_functions_are_refused_by_the_decorator() -> None:
    """Whichever of them, and what is called as one."""

    async def fold(db: AnyCursor, event: LogEvent) -> None:
        """Do nothing yet."""

    class Late:
        async def __call__(self, db: AnyCursor, event: LogEvent) -> None:
            """Do nothing yet."""

    for late in (fold, partial(fold), Late()):
        with pytest.raises(MetaError, match="expected a plain function"):
            projection("acme.late")(late)  # type: ignore[arg-type]
    with pytest.raises(MetaError, match="forget of projection 'plain'"):

        @projection("acme.late", forget=fold)  # type: ignore[arg-type]
        def plain(db: AnyCursor, event: LogEvent) -> None:
            """Do all."""


async def _later(*_: object) -> None:
    """Do nothing yet."""


def _generated() -> Iterator[None]:
    yield


@pytest.mark.parametrize("method", ["fold", "forget"])
@pytest.mark.parametrize("later", [_later, _generated])
def test_projection_that_has_done_nothing_yet_is_paused(
    log: TurnLog, target: AnyTarget, method: str, later: Callable[[], object]
) -> None:
    """It has returned what is to be awaited, or gone through: that is seen when it is called."""
    late = type("Late", (Words,), {method: lambda *_: later()})()
    log.erase(turn=log.add_turn("one").id, reason="asked")
    [status] = runner(log, target, late).run()
    kind = "coroutine" if later is _later else "generator"
    assert status.error == (
        f"MetaError: {method} of projection 'acme.words' returned {kind!r}, which nobody awaits or goes through: let "
        "it return when all is done"
    )


def test_file_of_the_log_is_no_target(log: TurnLog, tmp_path: Path) -> None:
    """By whatever name: a log has no tables but its own."""
    (tmp_path / "link.db").symlink_to("log.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "log.db")
    for name in ("log.db", "link.db", "hard.db", "log.db-wal", "log.db-journal"):
        with pytest.raises(MetaError, match=f"'{tmp_path}/{name}' is a file of the log itself: name another one"):
            runner(log, SQLiteTarget(tmp_path / name))
    assert runner(log, SQLiteTarget(tmp_path / "log.db-mine")).run()[0].error is None
    with TurnLog.open("memory://") as other:
        runner(other, SQLiteTarget(":memory:")).run()


def test_events_are_folded_once(log: TurnLog, target: AnyTarget) -> None:
    """However often it runs, and whoever runs it."""
    turns = [log.add_turn(text) for text in ("one", "one two", "one two three")]
    [status] = runner(log, target).run()
    expected = [(turn.id, number) for number, turn in enumerate(turns, 1)]
    assert rows(target) == expected
    assert (status.name, status.version, status.position, status.lag, status.error) == ("acme.words", 1, 4, 0, None)
    runner(log, target).run()
    turns.append(log.add_turn("and four more words"))
    assert runner(log, target).status()[0].lag == 1
    runner(log, target).run()
    assert rows(target) == [*expected, (turns[-1].id, 4)]


def test_empty_log_is_caught_up_with(log: TurnLog, target: AnyTarget) -> None:
    """The tables are there, and the log that begins later is its log."""
    [status] = runner(log, target).run()
    assert (status.version, status.position, status.lag) == (1, 0, 0)
    log.add_turn("one")
    assert runner(log, target).run()[0].position == 2


def test_long_log_is_folded_in_batches(log: TurnLog, target: AnyTarget) -> None:
    """And progress is told after each."""
    told: list[tuple[int, int]] = []
    add_many(log)
    runner(log, target).run(progress=lambda done, total: told.append((done, total)))
    assert len(rows(target)) == PAGE_EVENTS + 200
    assert told[-1] == (PAGE_EVENTS + 201, PAGE_EVENTS + 201)
    assert len(told) > 1


def test_projection_follows_until_it_is_stopped(log: TurnLog, target: AnyTarget) -> None:
    """What is recorded is folded as it comes."""
    follower = runner(log, target)
    reached: list[int] = []
    thread = threading.Thread(
        target=follower.follow, kwargs={"told": lambda statuses: reached.append(statuses[0].position)}
    )
    thread.start()
    for number in range(5):
        log.add_turn(str(number))
    end = monotonic() + 30
    while (not reached or reached[-1] < 6) and monotonic() < end:
        sleep(0.001)
    follower.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert len(rows(target)) == 5


def test_a_runner_takes_a_log_or_its_store(log: TurnLog, target: AnyTarget) -> None:
    """Either is the same log."""
    log.add_turn("one")
    assert Runner(log, target, [Words()]).run() == Runner(log.store, target, [Words()]).run()
    assert len(rows(target)) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"store": "sqlite:///log.db"}, "store: str is no Store: give a TurnLog, or its store"),
        ({"target": "view.db"}, "target: str is no Target: give SQLiteTarget(path) or PostgresTarget(url)"),
        ({"projections": Words()}, "projections: give a list of them, also of one"),
        ({"projections": [run]}, "projections: function is no Projection: make one of a function with @projection(…)"),
    ],
)
def test_what_a_runner_cannot_use_is_refused_at_once(log: TurnLog, given: dict[str, Any], said: str) -> None:
    """With what to give, before anything is opened."""
    parts: dict[str, Any] = {"store": log, "target": SQLiteTarget(":memory:"), "projections": [Words()], **given}
    with pytest.raises(MetaError) as raised:
        Runner(**parts)
    assert str(raised.value) == said


def test_stopped_runner_can_be_begun_again(log: TurnLog, target: AnyTarget) -> None:
    """It runs, builds anew, and follows until it is stopped again."""
    stopped = runner(log, target)
    lags: list[int] = []

    def told(statuses: Sequence[Status]) -> None:
        lags.append(statuses[0].lag)
        stopped.stop()

    for number in range(3):
        log.add_turn(str(number))
        stopped.follow(told=told)
    log.add_turn("more")
    assert (lags, stopped.run()[0].lag, len(rows(target))) == ([0, 0, 0], 0, 4)
    with target.transaction() as db:
        run(db, "DELETE FROM words")
    stopped.rebuild("acme.words")
    assert len(rows(target)) == 4


def test_runner_that_is_stopped_before_it_follows_returns(log: TurnLog, target: AnyTarget) -> None:
    """A thread that is started and stopped at once ends; the request holds for no run, and for one time."""
    log.add_turn("one")
    stopped = runner(log, target)
    stopped.stop()
    assert stopped.run()[0].lag == 0
    log.add_turn("two")
    stopped.follow()
    assert stopped.status()[0].lag == 1
    lags: list[int] = []
    stopped.follow(told=lambda statuses: (lags.append(statuses[0].lag), stopped.stop())[0])
    assert lags == [0]


def test_what_goes_on_is_stopped(log: TurnLog, target: AnyTarget) -> None:
    """A run behind its batch, and a rebuild with the tables as they were. The next one goes on."""
    stopped = runner(log, target)
    log.add_turn("first")
    stopped.run()
    add_many(log)
    [status] = stopped.run(progress=lambda _done, _total: stopped.stop())
    assert (status.position, status.lag) == (PAGE_EVENTS + 2, 200)
    assert stopped.run()[0].lag == 0
    with target.transaction() as db:
        run(db, "DELETE FROM words")
    stopped.rebuild("acme.words", progress=lambda _done, _total: stopped.stop())
    assert rows(target) == []
    stopped.rebuild("acme.words")
    assert len(rows(target)) == PAGE_EVENTS + 201


def test_function_is_a_projection(log: TurnLog, target: AnyTarget) -> None:
    """With tables of its own, and a way to forget."""

    def forget(db: AnyCursor, events: Sequence[LogEvent]) -> None:
        for event in events:
            run(db, "DELETE FROM seen WHERE id = ?", event.id)

    @projection("acme.seen", schema=["CREATE TABLE seen (id TEXT)"], tables=["seen"], forget=forget)
    def seen(db: AnyCursor, event: LogEvent) -> None:
        """Keep the ids of all events."""
        run(db, "INSERT INTO seen VALUES (?)", event.id)

    turn = log.add_turn("one", bookmark="main")
    runner(log, target, seen).run()
    log.erase(turn=turn.id, reason="asked")
    runner(log, target, seen).run()
    ids = [event.header.id for event in log.events()]
    assert rows(target, "SELECT id FROM seen ORDER BY id") == [(ids[0],), (ids[2],)]
    assert seen.__doc__ == "Keep the ids of all events."


# ------------------------------------------------------------------------------------------------------ what goes wrong


def test_poison_pauses_one_projection_and_not_the_others(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes before it is folded, and it is named. Skipped on record, the rest is folded, also by a rebuild."""

    class Others(Words):
        name = "acme.others"
        schema = ("CREATE TABLE others (turn TEXT)",)
        tables = ("others",)

        def fold(self, db: AnyCursor, event: LogEvent) -> None:
            run(db, "INSERT INTO others VALUES (?)", event.id)

    monkeypatch.setattr(Words, "poison", {"bad"})
    both = runner(log, target, Words(), Others())
    turns = [log.add_turn(text) for text in ("one", "bad", "three")]
    words, others = both.run()
    assert (words.position, words.paused_at, words.paused_event, words.lag) == (2, 3, turns[1].id, 2)
    assert words.error is not None
    assert words.error.startswith("ValueError: cannot read ")
    assert (others.position, others.paused_at) == (4, None)
    assert both.run()[0].paused_at == 3
    both.retry("acme.words")
    assert both.run()[0].paused_at == 3
    skip = both.skip("acme.words", "it is known to be bad")
    assert (skip.event_id, skip.position, skip.reason) == (turns[1].id, 3, "it is known to be bad")
    [words] = both.run(["acme.words"])
    assert (words.position, words.error, words.skipped) == (4, None, (skip,))
    expected = [(turns[0].id, 1), (turns[2].id, 1)]
    assert rows(target) == expected
    assert both.rebuild("acme.words").skipped == (skip,)
    assert rows(target) == expected
    with pytest.raises(ConflictError, match="not paused"):
        both.skip("acme.words", "again")


def test_event_without_its_payload_is_tried_again(log: TurnLog, target: AnyTarget, tmp_path: Path) -> None:
    """By each run, which a build that comes to it does not change: it is folded once its payload is there again."""
    erased, large, last = (log.add_turn(text) for text in ("one", "word " * 20_000, "last"))
    [file] = (path for path in (tmp_path / "log.db-payloads").rglob("??/*") if path.is_file())
    away = file.rename(tmp_path / "away")
    one = runner(log, target)
    for tried in (one.run, one.run, lambda: [one.rebuild("acme.words")], one.status):
        [status] = tried()
        assert (status.position, status.paused_event, status.tries_again) == (2, large.id, True)
        assert (status.error or "").startswith("CorruptionError: payload of event")
    log.erase(turn=erased.id, reason="asked")
    [status] = one.run()
    assert (status.paused_event, status.has_traces, rows(target)) == (large.id, False, [])
    away.rename(file)
    [status] = one.run()
    assert (status.lag, status.error, status.tries_again) == (0, None, False)
    assert rows(target) == [(large.id, 20_001), (last.id, 1)]


def test_changed_projection_is_not_built_by_each_run(log: TurnLog, target: AnyTarget, tmp_path: Path) -> None:
    """Where it comes to an event without its payload: the old tables stay, and a rebuild tries again."""
    log.add_turn("word " * 20_000)
    assert runner(log, target).run()[0].lag == 0
    [file] = (path for path in (tmp_path / "log.db-payloads").rglob("??/*") if path.is_file())
    away = file.rename(tmp_path / "away")
    changed = runner(log, target, Longer())
    assert [(each.version, each.paused_at, each.tries_again) for each in changed.run()] == [(1, 2, False)]
    away.rename(file)
    assert changed.run()[0].paused_at == 2
    assert changed.rebuild("acme.words").lag == 0


def _nothing(db: AnyCursor, event: LogEvent) -> None:
    """Fold nothing."""


def test_unknown_names_and_doubtful_ones_are_refused(log: TurnLog, target: AnyTarget) -> None:
    """Before anything is done."""
    with pytest.raises(NotFoundError, match=r"one of 'acme\.words'"):
        runner(log, target).run(["nope"])
    with pytest.raises(ConflictError):
        runner(log, target, Words(), Words())
    for name in ("", "Words", "a b", "a..b", "a/b"):
        with pytest.raises(MetaError):
            runner(log, target, projection(name)(_nothing))
    with pytest.raises(MetaError):
        runner(log, target, projection("x", version=0)(_nothing))


def test_log_that_was_cut_or_is_another_is_told(log: TurnLog, target: AnyTarget, tmp_path: Path) -> None:
    """Nothing is folded then."""
    log.add_turn("one")
    log.add_turn("two")
    runner(log, target).run()
    with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
        other.add_turn("one")
        with pytest.raises(StoreCutError, match="is of log"):
            runner(other, target).run()
    assert len(rows(target)) == 2


def test_place_where_nothing_is_written_is_told_with_what_to_do(
    log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is mounted to read."""
    refused = OSError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr("turnlog.feeds.sqlite_target.make", Mock(side_effect=refused))
    with pytest.raises(StoreError, match=r"read-only file system: copy the store to where you can write"):
        runner(log, SQLiteTarget(tmp_path / "view.db")).run()


def test_file_that_is_not_written_is_told_with_what_to_do(log: TurnLog, tmp_path: Path) -> None:
    """One that cannot be opened, and one that can only be read."""
    (tmp_path / "folder").mkdir()
    advice = "copy the store to where you can write, with `turnlog copy`"
    with pytest.raises(StoreError, match=f"/folder' cannot be opened: unable to open database file: {advice}"):
        runner(log, SQLiteTarget(tmp_path / "folder")).run()
    target = SQLiteTarget(tmp_path / "view.db")
    with target.transaction():
        assert target._connection is not None
    target._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match=f"/view.db' cannot be used: attempt to write a readonly database: {advice}"):
        runner(log, target).run()


def test_folder_that_cannot_be_used_is_an_error(log: TurnLog, tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be opened"):
        runner(log, SQLiteTarget(tmp_path / "file" / "view.db")).run()
    (tmp_path / "noise").write_bytes(b"noise" * 1000)
    with pytest.raises(StoreError, match="is damaged, or none"):
        runner(log, SQLiteTarget(tmp_path / "noise")).run()


def made(name: str, schema: Sequence[str], tables: Sequence[str], fold: Any = _nothing) -> Projection:
    return projection(name, schema=schema, tables=tables)(fold)


@pytest.mark.parametrize(
    ("schema", "tables", "said"),
    [
        (["CREATE TABEL x (y integer)"], ["x"], r"'bad' cannot be made: .*TABEL.*, in 'CREATE TABEL x"),
        (["CREATE TABLE x (y integer)", "COMMIT"], ["x"], "'bad' cannot be made: .*(COMMIT|ends the transaction)"),
        (
            ["CREATE TABLE Words (y integer)"],
            ["Words"],
            "'bad' cannot be made: table 'Words' is that of .*'acme.words'",
        ),
        (["CREATE TABLE IF NOT EXISTS words (y integer)"], ["words"], "table 'words' is that of projection"),
    ],
)
def test_projection_that_cannot_be_made_is_named_and_the_others_go_on(
    log: TurnLog, target: AnyTarget, schema: list[str], tables: list[str], said: str
) -> None:
    """With the statement, however often it is run; and nothing of it is left."""
    runner(log, target).run()
    turn = log.add_turn("one")
    both = runner(log, target, made("bad", schema, tables), Words())
    for _ in range(2):
        with pytest.raises(SchemaError, match=said):
            both.run()
        assert rows(target) == [(turn.id, 1)]
    assert [each.position for each in both.status()] == [0, 2]


def test_all_that_cannot_be_made_are_named(log: TurnLog, target: AnyTarget) -> None:
    """By one error."""
    with pytest.raises(SchemaError, match="'one'") as caught:
        runner(log, target, made("one", ["oops"], []), made("two", ["oops"], [])).run()
    [note] = caught.value.__notes__
    assert "'two'" in note


def test_projection_that_leaves_its_connection_unusable_is_named_and_the_others_go_on(log: TurnLog) -> None:
    """What it has done to it is no matter of one event; nothing of it is kept."""

    class Odd(Words):
        name = "odd"
        schema = ("CREATE TABLE odd (turn TEXT, words INTEGER)",)
        tables = ("odd",)

        def fold(self, db: AnyCursor, event: LogEvent) -> None:
            assert isinstance(db, sqlite3.Cursor)
            db.connection.row_factory = lambda cursor, row: dict(
                zip((each[0] for each in cursor.description), row, strict=True)
            )
            db.execute("INSERT INTO odd VALUES (?, 1)", (event.id,))

    target = SQLiteTarget(":memory:")
    turn = log.add_turn("one")
    for _ in range(2):
        with pytest.raises(PluginError, match=r"^projection 'odd' failed \(KeyError: 0\), and was rolled back$"):
            runner(log, target, Odd(), Words()).run()
        assert rows(target) == [(turn.id, 1)]


def test_table_that_the_schema_does_not_make_is_named(log: TurnLog) -> None:
    """Before anything is folded."""
    bad = made("bad", ["CREATE TABLE x (y integer)"], ["x", "y"])
    with pytest.raises(SchemaError, match="'bad': its schema makes no table 'y'"):
        runner(log, SQLiteTarget(":memory:"), bad).run()


class Counted(Projection):
    """Turns, with rows that the schema has, rows that a trigger adds, and a view."""

    name = "counted"
    schema = (
        "CREATE TABLE sums (n INTEGER)",
        "INSERT INTO sums VALUES (0)",
        "CREATE TABLE Log (turn TEXT, place INTEGER, PRIMARY KEY (turn)) WITHOUT ROWID",
        "CREATE TABLE TURNS (turn TEXT)",
        "CREATE TRIGGER also AFTER INSERT ON turns BEGIN INSERT INTO log VALUES (NEW.turn, 1); END",
        "CREATE VIEW shown AS SELECT turn FROM turns",
    )
    topics = ("gpt.turn",)
    objects = ("shown",)

    def fold(self, db: AnyCursor, event: LogEvent) -> None:
        """Count a turn."""
        run(db, "UPDATE sums SET n = n + 1")
        run(db, "INSERT INTO turns VALUES (?)", event.id)


@pytest.mark.parametrize("tables", [("sums", "log", "turns"), ("turns", "log", "sums"), ("log", "sums", "turns")])
def test_what_is_built_is_put_in_place_as_it_is(log: TurnLog, tables: Sequence[str]) -> None:
    """Rows of the schema, and of triggers, are there once; tables without rowids and views can be built anew."""
    given = type("Given", (Counted,), {"tables": tables})()
    target = SQLiteTarget(":memory:")
    turns = [log.add_turn(text).id for text in ("one", "two", "three")]
    for again in range(3):
        if again:
            runner(log, target, given).rebuild("counted")
        else:
            runner(log, target, given).run()
        with target.reader() as db:
            assert db.execute("SELECT n FROM sums").fetchall() == [(len(turns),)]
            for table in ("turns", "log", "shown"):
                assert db.execute(f"SELECT turn FROM {table} ORDER BY turn").fetchall() == [(turn,) for turn in turns]
        turns.append(log.add_turn("more").id)
        runner(log, target, given).run()
        with target.reader() as db:  # triggers are there again
            assert db.execute("SELECT COUNT(*) FROM log").fetchall() == [(len(turns),)]


def test_table_that_a_projection_does_not_name_is_refused(log: TurnLog) -> None:
    """It could not be put in place, nor taken away; the others are brought up to date."""
    bad = made("bad", ["CREATE TABLE x (y integer)", "CREATE TABLE z (y integer)"], ["x"])
    target = SQLiteTarget(":memory:")
    turn = log.add_turn("one")
    with pytest.raises(SchemaError, match="'bad': its schema makes 'z', which is in neither its tables"):
        runner(log, target, bad, Words()).run()
    assert rows(target) == [(turn.id, 1)]


def test_projection_that_cannot_be_put_in_place_keeps_no_other_from_going_on(log: TurnLog) -> None:
    """It is named, and the table stays that was there."""

    class Bad(Words):
        name = "bad"
        schema = ("CREATE TABLE bad (turn TEXT)",)
        tables = ("bad",)

        def fold(self, db: AnyCursor, event: LogEvent) -> None:
            run(db, "INSERT INTO bad VALUES (?)", event.id)

        def copied(self, db: AnyCursor) -> None:
            run(db, "INSERT INTO gone VALUES (1)")

    target = SQLiteTarget(":memory:")
    turn = log.add_turn("one")
    with pytest.raises(SchemaError, match="'bad' is built and cannot be put in its place: no such table: gone"):
        runner(log, target, Bad(), Words()).run()
    assert rows(target) == [(turn.id, 1)]


@pytest.mark.parametrize("field", ["topics", "schema", "tables"])
def test_lists_of_a_projection_are_lists_of_texts(field: str) -> None:
    """A function's and a class's, when it is defined."""
    for given in ([1], 5, None):
        with pytest.raises(MetaError, match=field):
            projection("x", **{field: given})(_nothing)
    with pytest.raises(MetaError, match="give a list of statements"):
        projection("x", schema="CREATE TABLE x (y integer)")(_nothing)
    with pytest.raises(MetaError, match="objects"):
        type("Bad", (Words,), {"objects": [None]})


def test_one_topic_or_table_can_be_a_text(log: TurnLog, target: AnyTarget) -> None:
    """As elsewhere."""

    @projection("acme.seen", topics="gpt.turn", schema=["CREATE TABLE seen (id TEXT)"], tables="seen")
    def seen(db: AnyCursor, event: LogEvent) -> None:
        run(db, "INSERT INTO seen VALUES (?)", event.id)

    turn = log.add_turn("one")
    runner(log, target, seen).run()
    assert rows(target, "SELECT id FROM seen") == [(turn.id,)]


def test_names_of_tables_and_columns_are_quoted(log: TurnLog, target: AnyTarget) -> None:
    """Whatever is in them; built anew, erased from, and known as taken."""
    table = 'we"ird ""name'
    quoted = '"we""ird """"name"'

    def weird(name: str, version: int) -> Projection:
        @projection(
            name,
            version=version,
            topics="gpt.turn",
            schema=[f'CREATE TABLE {quoted} ("a""b" TEXT, "order" TEXT)'],
            tables=table,
            forget=lambda db, _: run(db, f"DELETE FROM {quoted}"),
        )
        def fold(db: AnyCursor, event: LogEvent) -> None:
            run(db, f"INSERT INTO {quoted} VALUES (?, ?)", event.id, "x")

        return fold

    turn = log.add_turn("one")
    for version in (1, 2):
        [status] = runner(log, target, weird("acme.weird", version)).run()
        assert (status.version, status.error) == (version, None)
        assert rows(target, f'SELECT "a""b", "order" FROM {quoted}') == [(turn.id, "x")]
    with pytest.raises(SchemaError, match=r"is that of projection 'acme\.weird'"):
        runner(log, target, weird("acme.other", 1)).run()
    log.erase(turn=turn.id, reason="asked")
    [status] = runner(log, target, weird("acme.weird", 2)).run()
    assert (status.error, status.has_traces, rows(target, f"SELECT * FROM {quoted}")) == (None, False, [])


def test_disk_that_is_full_in_the_middle_is_told_as_that(log: TurnLog, tmp_path: Path) -> None:
    """SQLite rolls the transaction back by itself then. The projection goes on once there is room."""
    pages = iter((8, 1000, 1000, 1000))

    @projection("acme.texts", schema=["CREATE TABLE texts (text TEXT)"], tables=["texts"])
    def texts(db: sqlite3.Cursor, event: LogEvent) -> None:
        db.execute(f"PRAGMA max_page_count = {next(pages)}")
        db.execute("INSERT INTO texts VALUES (?)", ("x" * 100_000,))

    log.add_turn("one")
    target = SQLiteTarget(tmp_path / "view.db")
    with pytest.raises(
        StoreFullError, match=r"no space left for the database of projections '.*/view\.db.*': free some"
    ):
        runner(log, target, texts).run()
    [status] = runner(log, target, texts).run()
    assert (status.position, status.error) == (2, None)
    assert rows(target, "SELECT COUNT(*) FROM texts") == [(2,)]


def test_memory_that_lacks_is_no_fault_of_an_event(log: TurnLog, tmp_path: Path) -> None:
    """It is raised as what it is, and what could not be folded is folded by the next run."""
    lacks = iter((True, False))

    class Large(Words):
        def fold(self, db: AnyCursor, event: LogEvent) -> None:
            if next(lacks):
                raise MemoryError
            super().fold(db, event)

    turn = log.add_turn("one")
    target = SQLiteTarget(tmp_path / "view.db")
    with pytest.raises(MemoryError):
        runner(log, target, Large()).run()
    runner(log, target, Large()).run()
    assert rows(target) == [(turn.id, 1)]


ENDINGS = ("COMMIT", "ROLLBACK", "END", "commit()", "rollback()")


@pytest.mark.parametrize("ending", ENDINGS)
def test_projection_cannot_end_the_transaction(log: TurnLog, tmp_path: Path, ending: str) -> None:
    """It pauses at the event, with nothing of it kept, and all before it kept once."""
    turns = [log.add_turn(text) for text in ("one", "two", "three")]

    def fold(db: sqlite3.Cursor, event: LogEvent) -> None:
        db.execute("INSERT INTO seen VALUES (?)", (event.id,))
        if event.id == turns[1].id:
            getattr(db.connection, ending[:-2])() if ending.endswith("()") else db.execute(ending)

    target = SQLiteTarget(tmp_path / "view.db")
    seen = made("acme.seen", ["CREATE TABLE seen (id TEXT)"], ["seen"], fold)
    [status] = runner(log, target, seen).run()
    assert (status.position, status.paused_event) == (2, turns[1].id)
    assert "must not begin, commit or roll back" in (status.error or "")
    assert rows(target, "SELECT COUNT(*) FROM seen") == [(2,)]
    target.close()


def test_interrupt_while_a_projection_writes_is_none_of_a_statement(log: TurnLog, tmp_path: Path) -> None:
    """SQLite calls no function in Python for a statement: what a signal raises there would be lost."""

    def interrupt(_frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            raise KeyboardInterrupt

    def fold(db: sqlite3.Cursor, event: LogEvent) -> None:
        row = (event.id,)
        sys.setprofile(interrupt)
        try:
            db.execute("INSERT INTO seen VALUES (?)", row)
        finally:
            sys.setprofile(None)

    log.add_turn("one")
    target = SQLiteTarget(tmp_path / "view.db")
    [status] = runner(log, target, made("acme.seen", ["CREATE TABLE seen (id TEXT)"], ["seen"], fold)).run()
    assert (status.error, rows(target, "SELECT COUNT(*) FROM seen")) == (None, [(2,)])
    target.close()


def test_conflict_that_rolls_back_is_told(log: TurnLog) -> None:
    """Where the projection goes on after it."""
    log.add_turn("one")

    def fold(db: sqlite3.Cursor, event: LogEvent) -> None:
        db.execute("INSERT INTO seen VALUES (1)")
        with suppress(sqlite3.IntegrityError):
            db.execute("INSERT OR ROLLBACK INTO seen VALUES (1)")

    seen = made("acme.seen", ["CREATE TABLE seen (id INTEGER PRIMARY KEY)"], ["seen"], fold)
    with pytest.raises(SchemaError, match=r"'acme\.seen' has ended the runner's transaction at event"):
        runner(log, SQLiteTarget(":memory:"), seen).run()


@pytest.mark.parametrize("ending", ENDINGS)
def test_projection_that_ends_the_transaction_on_postgresql_is_told(
    log: TurnLog, kept_postgres_url: str, ending: str
) -> None:
    """With the event, and the others go on."""
    turn = log.add_turn("one")

    def fold(db: psycopg.Cursor[Any], event: LogEvent) -> None:
        if event.id == turn.id:
            getattr(db.connection, ending[:-2])() if ending.endswith("()") else db.execute(ending.encode())

    target = PostgresTarget(kept_postgres_url, "views")
    with pytest.raises(SchemaError, match=f"'bad' has ended the runner's transaction at event '{turn.id}'"):
        runner(log, target, made("bad", [], [], fold), Words()).run()
    assert rows(target) == [(turn.id, 1)]
    target.close()


@pytest.mark.parametrize("reason", ["", " \n", None])
def test_skipping_needs_a_reason(log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch, reason: Any) -> None:
    """It is all that tells why later."""
    monkeypatch.setattr(Words, "poison", {"bad"})
    log.add_turn("bad")
    words = runner(log, target)
    words.run()
    with pytest.raises(MetaError, match="reason"):
        words.skip("acme.words", reason)
    assert words.status()[0].skipped == ()


def test_restored_log_is_told_with_what_to_do(log: TurnLog, target: AnyTarget, tmp_path: Path) -> None:
    """By who runs it and by its status; building anew goes on."""
    log.add_turn("one")
    (tmp_path / "old").mkdir()
    file = io.BytesIO()
    log.export(file)
    for text in ("two", "two three"):
        log.add_turn(text)
    runner(log, target).run()
    with TurnLog.open(f"sqlite:///{tmp_path}/old/log.db") as old:
        file.seek(0)
        old.import_turnlog(file)
        for said in ("the log ends at global position 2, and 4 was folded", "global position 4 has event"):
            [status] = runner(old, target).status()
            assert said in (status.error or "")
            assert "or one of two stores of this log that went different ways" in (status.error or "")
            assert status.paused_at is None
            with pytest.raises(StoreCutError, match=r"projections rebuild acme\.words") as caught:
                runner(old, target).run()
            assert str(caught.value) == status.error
            for text in ("other", "other words"):
                old.add_turn(text)
        assert runner(old, target).rebuild("acme.words").error is None
        assert len(rows(target)) == 5


# --------------------------------------------------------------------------------------------------------- built anew


class Longer(Words):
    """A changed projection: it counts letters, in a table with another column."""

    version = 2
    schema = ("CREATE TABLE words (turn TEXT PRIMARY KEY, words INTEGER, letters INTEGER)",)

    def fold(self, db: AnyCursor, event: LogEvent) -> None:
        """Count letters too."""
        text = (event.payload() or b"").decode()
        if any(word in text for word in self.poison):
            raise ValueError("cannot read")
        run(db, "INSERT INTO words VALUES (?, ?, ?)", event.id, len(text.split()), len(text))


def test_changed_projection_replaces_the_old_one(log: TurnLog, target: AnyTarget, tmp_path: Path) -> None:
    """It is built beside. The old one cannot write to the new tables."""
    log.add_turn("one two")
    runner(log, target).run()
    assert runner(log, target, Longer()).status()[0].is_outdated
    [status] = runner(log, target, Longer()).run()
    assert (status.version, status.is_outdated) == (2, False)
    assert rows(target, "SELECT words, letters FROM words") == [(2, 34)]
    with pytest.raises(SchemaError, match="version 2"):
        runner(log, target).run()
    assert [path.name for path in tmp_path.rglob("view.db*") if "acme" in path.name] == []


def test_changed_projection_that_cannot_be_built_leaves_the_old_one(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused, until the event is skipped or the projection mended."""
    turn = log.add_turn("bad")
    runner(log, target).run()
    monkeypatch.setattr(Words, "poison", {"bad"})
    changed = runner(log, target, Longer())
    [status] = changed.run()
    assert (status.version, status.paused_event, status.is_outdated) == (1, turn.id, True)
    assert rows(target) == [(turn.id, 1)]
    changed.skip("acme.words", "bad")
    assert changed.run()[0].version == 2
    assert rows(target, "SELECT * FROM words") == []


def test_pause_of_another_version_does_not_hold_this_one(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the old one that is gone back to, nor a newer one."""
    turns = [log.add_turn("bad")]
    runner(log, target).run()
    with monkeypatch.context() as patch:
        patch.setattr(Words, "poison", {"bad"})
        assert runner(log, target, Longer()).run()[0].paused_at == 2
        assert runner(log, target, Longer()).run()[0].paused_at == 2
        assert runner(log, target).status()[0].error is None
        turns.append(log.add_turn("three more words"))
        [status] = runner(log, target).run()
        assert (status.version, status.position, status.error) == (1, 3, None)
        assert rows(target) == [(turns[0].id, 1), (turns[1].id, 3)]
        assert runner(log, target, Longer()).run()[0].paused_at == 2
    mended = type("Mended", (Longer,), {"version": 3})()
    [status] = runner(log, target, mended).run()
    assert (status.version, status.position, status.error) == (3, 3, None)


def test_rebuild_is_what_folding_made(log: TurnLog, target: AnyTarget) -> None:
    """Row by row, also after erasures."""
    turns = [log.add_turn("word " * number) for number in range(1, 30)]
    for at in (3, 10):
        runner(log, target).run()
        log.erase(turn=turns[at].id, reason="asked")
    runner(log, target).run()
    before = rows(target)
    assert len(before) == 27
    assert runner(log, target).rebuild("acme.words").lag == 0
    assert rows(target) == before


def test_what_a_killed_build_left_is_removed(log: TurnLog, tmp_path: Path) -> None:
    """By the next build, whatever process has the number of the one that was killed; and nothing else is."""
    log.add_turn("one")
    target = SQLiteTarget(tmp_path / "view.db")
    living = target.beside(Words())
    with living.transaction() as db:
        living.make(db, Words())
    left = [tmp_path / f"view.db-acme.words-{name}" for name in (f"{os.getppid()}.1", "0123456789ab-wal", "notes")]
    for path in left:
        path.write_text("left")
    runner(log, target).run()
    assert [path.exists() for path in left] == [False, False, True]
    assert Path(living.place).exists()
    living.discard()
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith("-locks") or "acme.words-0" in name]
    target.close()


def interrupted(log: TurnLog, target: AnyTarget, given: Projection, *, anew: bool = False) -> None:
    """Build a projection, up to the end of the first page."""

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    one = runner(log, target, given)
    with pytest.raises(KeyboardInterrupt):
        one.rebuild(given.name, progress=interrupt) if anew else one.run(progress=interrupt)


def reached(log: TurnLog, target: AnyTarget, given: Projection) -> list[int]:
    """Run a projection, and return how far it had come behind each page."""
    seen: list[int] = []
    runner(log, target, given).run(progress=lambda done, _total: seen.append(done))
    return seen


class MoreWords(Words):
    """A later version."""

    version = 2


@pytest.mark.parametrize("given", [Words(), MoreWords()])
def test_interrupted_build_is_gone_on_with(log: TurnLog, target: AnyTarget, given: Projection) -> None:
    """The first one, and that of a new version: what is there meanwhile is as before, and what was erased is not in."""
    if given.version > 1:
        runner(log, target).run()
    turns = add_many(log)
    interrupted(log, target, given)
    [status] = runner(log, target, given).status()
    assert (status.version, status.position) == (given.version - 1, 0)
    log.erase(turn=turns[0].id, reason="asked")
    first, *_ = reached(log, target, given)
    assert first == (PAGE_EVENTS + 1 if target.place == ":memory:" else log.stats().events)
    assert {turn for turn, _ in rows(target)} == {turn.id for turn in turns[1:]}
    assert target.sweep(given) is None
    before = rows(target)
    runner(log, target, given).rebuild(given.name)
    assert rows(target) == before


def test_stopped_build_is_gone_on_with(log: TurnLog, target: AnyTarget) -> None:
    """As one that is interrupted."""
    add_many(log)
    stopped = runner(log, target)
    [status] = stopped.run(progress=lambda _done, _total: stopped.stop())
    assert status.version == 0
    assert len(reached(log, target, Words())) == (2 if target.place == ":memory:" else 1)
    assert len(rows(target)) == PAGE_EVENTS + 200


@pytest.mark.parametrize("why", ["another version", "another log", "paused", "rebuilt", "damaged"])
def test_build_that_does_not_fit_is_not_gone_on_with(log: TurnLog, tmp_path: Path, why: str) -> None:
    """It is removed, and the projection is built from the beginning."""
    target = SQLiteTarget(tmp_path / "view.db")
    given = Words() if why == "another version" else MoreWords()
    add_many(log)
    interrupted(log, target, given, anew=why == "rebuilt")
    left = list(tmp_path.glob("view.db-acme.words-*[0-9a-f]"))
    assert len(left) == (0 if why == "rebuilt" else 1)
    if why == "damaged":
        left[0].write_bytes(b"no database " * 1000)
    if why == "paused":
        with closing(sqlite3.connect(left[0])) as db, db:
            db.execute("UPDATE turnlog_projections SET state = json_set(state, '$.paused_at', 9)")
    if why == "another log":
        with TurnLog.open("memory://") as other:
            other.add_turn("one")
            assert reached(other, target, MoreWords()) == [2]
    else:
        assert reached(log, target, MoreWords()) == [PAGE_EVENTS + 1, PAGE_EVENTS + 201]
        assert len(rows(target)) == PAGE_EVENTS + 200
    assert not list(tmp_path.glob("view.db-acme*"))
    target.close()


def test_build_is_not_taken_for_a_leftover_where_there_are_no_locks(
    log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built, and said to be there as long as it is."""
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    target = SQLiteTarget(tmp_path / "view.db")
    runner(log, target).run()
    living = target.beside(Words())
    with living.transaction() as db:
        living.make(db, Words())
    assert "no locks available" in str(target.sweep(Words())).lower()
    assert Path(living.place).exists()
    living.discard()
    assert target.sweep(Words()) is None
    target.close()


# -------------------------------------------------------------------------------------------------------------- erasing


def test_erasure_reaches_the_files_of_a_projection(log: TurnLog, tmp_path: Path) -> None:
    """Nothing is left of what it had kept: not in free pages, and not in its write-ahead log."""

    @projection(
        "acme.texts",
        schema=["CREATE TABLE texts (turn TEXT, text TEXT)"],
        tables=["texts"],
        topics=["gpt.turn"],
        forget=lambda db, events: db.execute("DELETE FROM texts WHERE turn = ?", (events[0].id,)),
    )
    def texts(db: sqlite3.Cursor, event: LogEvent) -> None:
        db.execute("INSERT INTO texts VALUES (?, ?)", (event.id, (event.payload() or b"").decode()))

    target = SQLiteTarget(tmp_path / "texts.db")
    turn = log.add_turn("the secret of the river " * 100)
    log.add_turn("kept")
    follower = runner(log, target, texts)
    follower.run()
    log.erase(turn=turn.id, reason="asked")
    follower.run()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("texts.db*"))
    assert b"secret of" not in kept
    assert b"kept" in kept
    target.close()


@pytest.mark.parametrize("victim", [1, 3])
def test_event_that_is_erased_while_its_page_is_folded_is_read_again(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch, victim: int
) -> None:
    """It is no fault of the projection, which is not paused; nor where the events before a poison are folded again."""
    ids = [log.add_turn(f"turn {number}").id for number in range(5)]
    fold = Words.fold
    waiting = [ids[victim]]

    def erasing(self: Words, db: AnyCursor, event: LogEvent) -> None:
        if event.id == ids[2] and waiting:
            log.erase(turn=waiting.pop(), reason="asked")
            if victim == 1:
                raise ValueError("the first time")
        fold(self, db, event)

    monkeypatch.setattr(Words, "fold", erasing)
    [status] = Runner(log, target, [Words()]).run()
    assert (status.lag, status.paused_event) == (0, None)
    with target.transaction() as db:
        found = {turn for (turn,) in db.execute("SELECT turn FROM words").fetchall()}
    assert found == {*ids} - {ids[victim]}


def test_erasure_reaches_what_is_built_beside(log: TurnLog, target: AnyTarget) -> None:
    """What a killed build has left at once; what somebody builds once that has ended."""
    turn = log.add_turn("one")
    follower = runner(log, target)
    follower.run()
    living = target.beside(Words())
    with living.transaction() as db:
        living.make(db, Words())
    log.erase(turn=turn.id, reason="asked")
    [status] = follower.run()
    if target.place != ":memory:":  # that builds in memory, too
        assert status.has_traces
        assert "is being built" in str(target.sweep(Words()))
    killed(living)
    assert not follower.run()[0].has_traces
    assert target.sweep(Words()) is None
    if isinstance(living, SQLiteTarget):
        assert not Path(living.place).exists()


def killed(built: AnyTarget) -> None:
    """Let go of a target that is built in, as a process does that is killed."""
    built.close()
    if isinstance(built, PostgresTarget):
        assert built._guard is not None
        built._guard.close()
    elif built._release is not None:
        built._release()


def test_projection_that_closes_the_connection_is_paused(log: TurnLog, tmp_path: Path) -> None:
    """By its name; others go on with it."""

    @projection("acme.closing", schema=["CREATE TABLE closing (event TEXT)"], tables="closing")
    def closing_it(db: sqlite3.Cursor, event: LogEvent) -> None:
        run(db, "INSERT INTO closing VALUES (?)", event.id)
        db.connection.close()

    log.add_turn("one")
    target = SQLiteTarget(tmp_path / "view.db")
    paused, other = runner(log, target, closing_it, Words()).run()
    assert (paused.name, paused.position, paused.paused_at) == ("acme.closing", 0, 1)
    assert paused.error is not None
    assert paused.error.startswith("StoreError: the connection is not to be closed: it is lent for a transaction")
    assert (other.lag, rows(target, "SELECT * FROM closing")) == (0, [])
    target.close()


@pytest.mark.parametrize("copy", [False, True])
def test_file_that_is_gone_is_made_again(log: TurnLog, tmp_path: Path, copy: bool) -> None:
    """Or gone on with where another one is in its place: nothing goes into a file that nobody finds."""
    target = SQLiteTarget(tmp_path / "view.db")
    turns = [log.add_turn("one")]
    follower = runner(log, target)
    follower.run()
    if copy:
        with closing(sqlite3.connect(tmp_path / "view.db")) as db:
            db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    turns.append(log.add_turn("one two"))
    follower.run()
    for name in ("view.db", "view.db-wal", "view.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    if copy:
        (tmp_path / "copy.db").rename(tmp_path / "view.db")
    assert follower.status()[0].lag == (1 if copy else 3)
    turns.append(log.add_turn("one two three"))
    assert follower.run()[0].lag == 0
    target.close()
    assert rows(SQLiteTarget(tmp_path / "view.db")) == [(turn.id, number) for number, turn in enumerate(turns, 1)]


def bytes_of(target: AnyTarget, tmp_path: Path) -> bytes:
    """Return all that is in the files of a target; on PostgreSQL in those of what is kept of projections."""
    if isinstance(target, SQLiteTarget):
        return b"".join(path.read_bytes() for path in tmp_path.glob("made/*"))
    with closing(target.connect()) as connection:
        connection.execute("CHECKPOINT")
        return b"".join(
            connection.execute("SELECT pg_read_binary_file(pg_relation_filepath(%s))", (table,)).fetchall()[0][0]
            for table in ("turnlog_projections", "turnlog_skipped", "words")
        )


@pytest.mark.parametrize("is_skipped", [False, True])
def test_error_that_repeats_what_was_erased_is_not_kept(
    log: TurnLog, target: AnyTarget, tmp_path: Path, is_skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a pause nor of what is passed over, with the next run behind the erasure; nor are its traces."""
    monkeypatch.setattr(Words, "poison", {"secret"})
    first, bad, last = (log.add_turn(text) for text in ("one", "my secret name", "one two three"))
    one = runner(log, target)
    assert "my secret name" in (one.run()[0].error or "")
    if is_skipped:
        assert "my secret name" in (one.skip("acme.words", "known").error or "")
        one.run()
    log.erase(turn=bad.id, reason="asked")
    [status] = one.run()
    assert (status.position, status.lag, status.error, status.paused_at, status.has_traces) == (5, 0, None, None, False)
    assert [skip.error for skip in status.skipped] == [FORGOTTEN] * is_skipped
    assert rows(target) == [(first.id, 1), (last.id, 3)]
    assert b"secret" not in bytes_of(target, tmp_path)
    assert one.rebuild("acme.words").skipped == status.skipped


def test_error_of_a_pause_is_kept_until_something_is_erased(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that is built, or paused anew, behind old erasures."""
    monkeypatch.setattr(Words, "poison", {"poison"})
    log.erase(turn=log.add_turn("zero").id, reason="asked")
    one, _ = log.add_turn("one"), log.add_turn("poison")
    for _ in range(2):
        assert "poison" in (runner(log, target).run()[0].error or "")
    log.erase(turn=one.id, reason="asked")
    assert runner(log, target).run()[0].error == FORGOTTEN
    runner(log, target).retry("acme.words")
    for _ in range(2):
        assert "poison" in (runner(log, target).run()[0].error or "")


def test_erasure_reaches_a_projection_that_is_paused(
    log: TurnLog, target: AnyTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In what it has folded, with the next run; until then it has traces. Mended, it is as if it had not paused."""
    monkeypatch.setattr(Words, "poison", {"poison"})
    secret, one, poison, later = (log.add_turn(text) for text in ("a secret", "one", "poison", "and later"))
    paused = runner(log, target)
    paused.run()
    for turn in (secret, later):
        log.erase(turn=turn.id, reason="asked")
    assert paused.status()[0].has_traces
    [status] = paused.run()
    assert (status.paused_event, status.position, status.has_traces) == (poison.id, 3, False)
    assert rows(target) == [(one.id, 1)]
    assert secret.id.encode() not in bytes_of(target, tmp_path)
    assert not log.feeds.runner([Words()], target).run()[0].has_traces
    monkeypatch.setattr(Words, "poison", set())
    paused.retry("acme.words")
    assert (paused.run()[0].lag, rows(target)) == (0, [(one.id, 1), (poison.id, 1)])


def test_projection_that_cannot_forget_while_it_is_paused_has_traces(
    log: TurnLog, target: AnyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays as it is, and is tried again; so is one whose tables are of another version than what would forget."""
    monkeypatch.setattr(Words, "poison", {"poison"})
    one, _ = log.add_turn("one"), log.add_turn("poison")
    runner(log, target).run()
    log.erase(turn=one.id, reason="asked")

    class Stuck(Words):
        def forget(self, db: AnyCursor, events: Sequence[LogEvent]) -> None:
            run(db, "DELETE FROM words")
            run(db, "DELETE FROM nowhere")

    class Newer(Words):
        version = 2

    for given in (Stuck(), Newer(), Newer()):
        [status] = runner(log, target, given).run()
        assert (status.version, status.paused_at, status.has_traces) == (1, 3, True)
        assert rows(target) == [(one.id, 1)]
    runner(log, target).run()  # the older one goes on
    [status] = runner(log, target).run()
    assert (status.paused_at, status.has_traces, rows(target)) == (3, False, [])


def test_traces_that_a_reader_holds_are_removed_later(log: TurnLog, tmp_path: Path) -> None:
    """By the next run."""
    target = SQLiteTarget(tmp_path / "view.db")
    turn = log.add_turn("one")
    follower = runner(log, target)
    follower.run()
    log.erase(turn=turn.id, reason="asked")
    scrubs: list[bool] = []
    scrub = target.scrub

    def counted(given: Projection) -> None:
        scrub(given)
        scrubs.append(True)

    target.scrub = counted
    with target.reader() as db:
        db.execute("SELECT * FROM words").fetchall()
        began = monotonic()
        follower.run()
        assert scrubs == []
        assert monotonic() - began < 30
    follower.run()
    assert scrubs == [True]
    follower.run()
    assert scrubs == [True]
    target.close()
