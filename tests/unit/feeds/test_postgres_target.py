"""Projections in a PostgreSQL database: many runners, lost connections, what is built beside, and who may do what."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from psycopg import errors
from tests.servers.postgres import PostgresServer
from tests.servers.roles import Roles

import turnlog.feeds
from turnlog import TurnLog
from turnlog.errors import SchemaError, StoreBusyError, StoreError, StoreOpenError, StoreReadOnlyError
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.postgres_target import MAKING_LOCK, PostgresTarget
from turnlog.feeds.projection import Projection, projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.targets import Target

Cursor = psycopg.Cursor[Any]


class Words(Projection):
    """The number of words of each turn, and the sum of them: folding a turn twice shows."""

    name = "acme.words"
    topics = ("gpt.turn",)
    schema = (
        "CREATE TABLE words (turn text PRIMARY KEY, words integer)",
        "CREATE TABLE sums (one integer PRIMARY KEY, words integer)",
        "INSERT INTO sums VALUES (1, 0)",
    )
    tables = ("words", "sums")

    def fold(self, db: Cursor, event: LogEvent) -> None:
        """Count the words of a turn."""
        number = len((event.payload() or b"").split())
        db.execute("INSERT INTO words VALUES (%s, %s) ON CONFLICT DO NOTHING", (event.id, number))
        db.execute("UPDATE sums SET words = words + %s", (number,))

    def forget(self, db: Cursor, events: Sequence[LogEvent]) -> None:
        """Take turns away."""
        for event in events:
            db.execute("UPDATE sums SET words = words - (SELECT words FROM words WHERE turn = %s)", (event.id,))
            db.execute("DELETE FROM words WHERE turn = %s", (event.id,))


@pytest.fixture
def log(kept_postgres_url: str) -> Iterator[TurnLog]:
    """Give a log in a PostgreSQL database."""
    with TurnLog.open(kept_postgres_url) as log:
        yield log


@pytest.fixture
def target(kept_postgres_url: str) -> Iterator[PostgresTarget]:
    """Give a target in the same database."""
    target = PostgresTarget(kept_postgres_url, "views")
    yield target
    target.close()


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def schemas(url: str) -> list[str]:
    """Return the schemas that are not PostgreSQL's own, without that of the log."""
    return [
        name
        for (name,) in run(url, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1")
        if name not in ("information_schema", "public", "turnlog")
    ]


def total(url: str) -> tuple[int, int]:
    """Return the number of turns that were counted, and the sum of their words."""
    [found] = run(url, "SELECT (SELECT COUNT(*) FROM views.words), (SELECT words FROM views.sums)")
    return found


# --------------------------------------------------------------------------------------------------------- transactions


def test_many_runners_do_the_work_of_one(log: TurnLog, kept_postgres_url: str) -> None:
    """They build at once, fold at once while others write, and each event is folded once."""
    for number in range(30):
        log.add_turn(f"before {number}")

    def fold(_: int) -> None:
        target = PostgresTarget(kept_postgres_url, "views")
        for _ in range(6):
            [status] = Runner(log.store, target, [Words()]).run()
            assert status.error is None
        target.close()

    def write(_: int) -> None:
        for number in range(20):
            log.add_turn(f"number {number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: each[0](each[1]), [(fold, 0), (fold, 1), (fold, 2), (write, 0), (write, 1)]))
    fold(3)
    assert total(kept_postgres_url) == (70, 2 * 70)
    assert schemas(kept_postgres_url) == ["views"]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_who_waits_while_others_make_the_schema_finds_it(postgres_url: str, isolation: str) -> None:
    """Whatever transactions begin with: what was there before the wait is not what is there behind it."""
    database = urlsplit(postgres_url).path.removeprefix("/")
    run(postgres_url, f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    targets = [PostgresTarget(postgres_url, "views") for _ in range(3)]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    def make(target: PostgresTarget) -> bool:
        with target.transaction():
            return True

    with ThreadPoolExecutor(3) as pool, psycopg.connect(postgres_url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (MAKING_LOCK,))
        made = [pool.submit(make, target) for target in targets]
        while run(postgres_url, waiting) != [(3,)]:
            assert not any(future.done() for future in made)
        holder.execute("SELECT pg_advisory_unlock(%s)", (MAKING_LOCK,))
        assert [future.result() for future in made] == [True] * 3
    for target in targets:
        target.close()


def test_locks_of_a_target_last_as_long_as_it_is_used(postgres_url: str) -> None:
    """Who builds holds a lock on a connection that is idle, and for long: no default of the database ends it."""
    database = urlsplit(postgres_url).path.removeprefix("/")
    version = run(postgres_url, "SELECT current_setting('server_version_num')::int")
    limits = ["idle_session_timeout", *(["transaction_timeout"] if version >= [(170_000,)] else [])]
    for limit in limits:
        run(postgres_url, f"ALTER DATABASE {database} SET {limit} = '1min'")
    with PostgresTarget(postgres_url, "views").connect() as connection:
        assert [connection.execute(f"SHOW {limit}".encode()).fetchone() for limit in limits] == [("0",)] * len(limits)


def test_transactions_on_a_projection_are_serial(log: TurnLog, target: PostgresTarget, kept_postgres_url: str) -> None:
    """Who loads one waits for who loaded it before, and sees what that one saved; others do not wait."""
    log.add_turn("one")
    Runner(log.store, target, [Words()]).run()
    other = PostgresTarget(kept_postgres_url, "views")
    seen: list[int] = []

    def look() -> None:
        with other.transaction() as db:
            state = other.load(db, "acme.words")
            assert state is not None
            seen.append(state.position)

    with target.transaction() as db:
        state = target.load(db, "acme.words")
        assert state is not None
        thread = threading.Thread(target=look)
        thread.start()
        with other.transaction() as elsewhere:
            assert other.load(elsewhere, "acme.others") is None
        thread.join(0.5)
        assert thread.is_alive()
        target.save(db, Words(), msgspec.structs.replace(state, position=7))
    thread.join(30)
    assert seen == [7]
    other.close()


def test_lost_connection_is_no_fault_of_an_event(log: TurnLog, target: PostgresTarget, kept_postgres_url: str) -> None:
    """Nothing is paused, nothing of the batch is kept, and the next run goes on."""
    log.add_turn("one two")

    class Cut(Words):
        is_cut = True

        def fold(self, db: Cursor, event: LogEvent) -> None:
            super().fold(db, event)
            if self.is_cut:
                run(kept_postgres_url, f"SELECT pg_terminate_backend({db.connection.info.backend_pid}, 5000)")
                db.execute("SELECT 1")

    Runner(log.store, target, [Words()]).run()
    log.add_turn("three")
    cut = Cut()
    with pytest.raises(StoreBusyError, match="cannot be reached"):
        Runner(log.store, target, [cut]).run()
    [status] = Runner(log.store, target, [cut]).status()
    assert (status.position, status.error) == (2, None)
    cut.is_cut = False
    assert Runner(log.store, target, [cut]).run()[0].position == 3
    assert total(kept_postgres_url) == (2, 3)


def test_connection_that_was_idle_is_opened_anew(log: TurnLog, target: PostgresTarget, kept_postgres_url: str) -> None:
    """Nobody sees that the server was restarted meanwhile."""
    log.add_turn("one")
    runner = Runner(log.store, target, [Words()])
    runner.run()
    for _ in range(2):
        run(
            kept_postgres_url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'turnlog projections' AND datname = current_database()",
        )
        log.add_turn("one more")
        assert runner.run()[0].lag == 0
        with target.reader() as db:
            assert db.execute("SELECT COUNT(*) FROM words").fetchall()[0][0] > 1


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [
        (errors.SerializationFailure, True),
        (errors.DeadlockDetected, True),
        (errors.LockNotAvailable, True),
        (errors.QueryCanceled, True),
        (errors.DiskFull, True),
        (errors.OutOfMemory, True),
        (errors.TooManyConnections, True),
        (errors.AdminShutdown, True),
        (errors.ConnectionFailure, True),
        (errors.IdleInTransactionSessionTimeout, True),
        (errors.ReadOnlySqlTransaction, True),
        (errors.InsufficientPrivilege, True),
        (errors.IoError, True),
        (psycopg.OperationalError, True),
        (psycopg.InterfaceError, True),
        (StoreBusyError, True),
        (errors.UniqueViolation, False),
        (errors.NotNullViolation, False),
        (errors.DivisionByZero, False),
        (errors.UndefinedTable, False),
        (errors.InFailedSqlTransaction, False),
        (StoreError, False),
        (ValueError, False),
    ],
)
def test_errors_of_the_server_are_told_from_those_of_events(
    target: PostgresTarget, error: type[Exception], is_transient: bool
) -> None:
    """Only the latter pause a projection; also where they were raised as turnlog's own."""
    assert target.is_transient(error("x")) is is_transient
    if issubclass(error, psycopg.Error):
        told = StoreError("told")
        told.__cause__ = error("x")
        assert target.is_transient(told) is is_transient


def test_commit_that_fails_is_an_error_of_the_target(target: PostgresTarget) -> None:
    """Such as for a constraint that is looked at only then. The next transaction is none the worse."""
    with target.transaction() as db:
        db.execute("CREATE TABLE once (number integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(StoreError, match="cannot be used: duplicate key value"), target.transaction() as db:
        db.execute("INSERT INTO once VALUES (1), (1)")
    with target.transaction() as db:
        assert db.execute("SELECT * FROM once").fetchall() == []


def test_statement_that_fails_pauses_at_its_event(log: TurnLog, target: PostgresTarget) -> None:
    """Also where the projection swallows the error: the event is named that it belongs to, and not the next one."""

    class Doubtful(Words):
        is_silent = False

        def fold(self, db: Cursor, event: LogEvent) -> None:
            try:
                db.execute("SELECT 1 / %s", (0 if b"bad" in (event.payload() or b"") else 1,))
            except psycopg.Error:
                if not self.is_silent:
                    raise
            else:
                super().fold(db, event)

    turns = [log.add_turn(text) for text in ("one", "bad", "three")]
    doubtful = Doubtful()
    [status] = Runner(log.store, target, [doubtful]).run()
    assert (status.position, status.paused_event) == (2, turns[1].id)
    assert status.error is not None
    assert status.error.startswith("DivisionByZero")
    doubtful.is_silent = True
    runner = Runner(log.store, target, [doubtful])
    runner.retry(doubtful.name)
    [status] = runner.run()
    assert (status.position, status.paused_event) == (2, turns[1].id)
    assert "was not raised" in (status.error or "")


# --------------------------------------------------------------------------------------------------------- built beside


class Everything(Projection):
    """A projection with all kinds of objects that rest on each other."""

    name = "acme.everything"
    schema = (
        "CREATE TYPE kind AS ENUM ('a', 'b')",
        "CREATE SEQUENCE numbers",
        "CREATE FUNCTION twice(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 2 * n'",
        "CREATE TABLE things (id bigserial PRIMARY KEY, number bigint DEFAULT nextval('numbers'), kind kind,"
        " double bigint GENERATED ALWAYS AS (twice(1)) STORED)",
        'CREATE TABLE "Parts of things" (thing bigint REFERENCES things)',
        "CREATE VIEW seen AS SELECT number, kind FROM things",
        "CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) FROM seen",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        ' $$BEGIN INSERT INTO "Parts of things" VALUES (new.id); RETURN new; END$$',
        "CREATE TRIGGER noted AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION note()",
    )
    tables = ("things", "Parts of things")

    def fold(self, db: Cursor, event: LogEvent) -> None:
        """Note an event."""
        db.execute("INSERT INTO things (kind) VALUES ('a')")


def test_all_that_a_projection_makes_is_swapped(log: TurnLog, target: PostgresTarget, kept_postgres_url: str) -> None:
    """Also what is no table. Nothing is left of what was there before, nor of where it was built."""
    log.add_turn("one")
    runner = Runner(log.store, target, [Everything(), Words()])
    runner.run()
    objects = (
        "SELECT relname, oid FROM pg_class WHERE relnamespace = 'views'::regnamespace AND relkind <> 'i' ORDER BY 1"
    )
    before = run(kept_postgres_url, objects)
    log.add_turn("two")
    assert runner.rebuild("acme.everything").error is None
    after = run(kept_postgres_url, objects)
    assert [name for name, _ in after] == [name for name, _ in before]
    changed = {name for name, oid in after if (name, oid) not in before}
    assert changed == {"things", "things_id_seq", "Parts of things", "seen", "counted", "numbers"}
    assert run(kept_postgres_url, 'SELECT COUNT(*), SUM(double) FROM views.things, views."Parts of things"') == [
        (9, 18)
    ]
    assert run(kept_postgres_url, "SELECT number FROM views.seen ORDER BY 1") == [(1,), (2,), (3,)]
    assert schemas(kept_postgres_url) == ["views"]
    log.add_turn("three")
    assert runner.run()[0].error is None


def test_what_rests_on_the_old_tables_is_not_dropped(
    log: TurnLog, target: PostgresTarget, kept_postgres_url: str
) -> None:
    """A view of somebody else's is in the way, which is said; the old tables stay."""
    log.add_turn("one two")
    runner = Runner(log.store, target, [Words()])
    runner.run()
    run(kept_postgres_url, "CREATE VIEW public.mine AS SELECT * FROM views.words")
    why = r"'acme.words' cannot be built anew: view public.mine depends on table words: take that away first"
    with pytest.raises(SchemaError, match=why):
        runner.rebuild("acme.words")
    assert total(kept_postgres_url) == (1, 2)
    assert schemas(kept_postgres_url) == ["views"]
    run(kept_postgres_url, "DROP VIEW public.mine")
    assert runner.rebuild("acme.words").error is None


def test_table_that_the_schema_does_not_make_is_named(log: TurnLog, target: PostgresTarget) -> None:
    """Before anything is folded."""

    class Bad(Words):
        tables = ("words", "others")

    log.add_turn("one")
    with pytest.raises(SchemaError, match=r"'acme\.words': its schema makes no table 'others'"):
        Runner(log.store, target, [Bad()]).run()


def test_reader_sees_the_old_tables_to_its_end(log: TurnLog, target: PostgresTarget) -> None:
    """However long it takes: what was built waits for it."""
    log.add_turn("one two")
    runner = Runner(log.store, target, [Words()])
    runner.run()
    with target.reader() as db:
        assert db.execute("SELECT COUNT(*) FROM words").fetchall() == [(1,)]
        log.add_turn("three")
        thread = threading.Thread(target=runner.rebuild, args=("acme.words",))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert db.execute("SELECT words FROM sums").fetchall() == [(2,)]
        assert db.execute("SELECT COUNT(*) FROM words").fetchall() == [(1,)]
    thread.join(30)
    assert not thread.is_alive()
    with target.reader() as db:
        assert db.execute("SELECT words FROM sums").fetchall() == [(3,)]


def test_what_a_killed_build_left_is_dropped(log: TurnLog, target: PostgresTarget, kept_postgres_url: str) -> None:
    """By the next build of the projection; what somebody builds now is not."""
    left, living = target.beside(Words()), target.beside(Words())
    for each in (left, living):
        with each.transaction() as db:
            each.make(db, Words())
    left.close()
    assert left._guard is not None
    left._guard.close()
    Runner(log.store, target, [Words()]).run()
    assert schemas(kept_postgres_url) == sorted([living.schema, "views"])
    living.discard()
    assert schemas(kept_postgres_url) == ["views"]


# -------------------------------------------------------------------------------------------------------------- erasing


def files_have(server: PostgresServer, what: bytes) -> bool:
    """Tell whether bytes are in the files of tables."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    return any(what in path.read_bytes() for path in (server.folder / "data" / "base").rglob("*") if path.is_file())


def test_erasure_reaches_the_files_of_tables(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Unless somebody reads them: then the next run does it."""
    url = own_postgres.create_database()
    secret = os.urandom(8).hex()

    @projection(
        "acme.texts",
        schema=["CREATE TABLE texts (turn text, text text)"],
        tables=["texts"],
        topics=["gpt.turn"],
        forget=lambda db, events: db.execute("DELETE FROM texts WHERE turn = %s", (events[0].id,)),
    )
    def texts(db: Cursor, event: LogEvent) -> None:
        db.execute("INSERT INTO texts VALUES (%s, %s)", (event.id, (event.payload() or b"").decode()))

    target = PostgresTarget(url)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        turn = log.add_turn(f"the secret {secret}")
        runner = Runner(log.store, target, [texts])
        runner.run()
        assert files_have(own_postgres, secret.encode())
        log.erase(turn=turn.id, reason="asked")
        with psycopg.connect(url) as reader:
            reader.execute("SELECT * FROM turnlog_projections.texts")
            assert runner.run()[0].has_traces
        assert not runner.run()[0].has_traces
    target.close()
    assert not files_have(own_postgres, secret.encode())


# ----------------------------------------------------------------------------------------------------- who, and where


def test_role_that_may_make_no_schema_is_told(log: TurnLog, kept_postgres_url: str) -> None:
    """In one line, with what to do; nothing is made."""
    roles = Roles(kept_postgres_url)
    role = roles.make("counter")
    target = PostgresTarget(roles.url_of(role), "views")
    try:
        with pytest.raises(StoreReadOnlyError, match="GRANT CREATE ON DATABASE"):
            Runner(log.store, target, [Words()]).run()
        assert schemas(kept_postgres_url) == []
        assert not target.is_made()
    finally:
        target.close()
        roles.drop()


def test_places_are_read(kept_postgres_url: str) -> None:
    """A URL, that of a log, or libpq's own form. Names that would be cut are refused; passwords are not shown."""
    for given in (f"{kept_postgres_url}?schema=other", kept_postgres_url, "host=/tmp dbname=x password=secret"):
        target = PostgresTarget(given, "views")
        assert target.place.endswith("?schema=views")
        assert "secret" not in target.place
    for schema, why in (
        ("", "it is empty"),
        ("x" * 64, "it has more than 63 bytes"),
        ("ü" * 32, "it has more than 63 bytes"),
        ("pg_views", "names that begin with 'pg_' are PostgreSQL's own"),
        ("a\0b", "it has a NUL character"),
    ):
        with pytest.raises(StoreOpenError, match=f"cannot be the schema of projections, give another name: {why}"):
            PostgresTarget(kept_postgres_url, schema)
    with pytest.raises(StoreOpenError) as told:
        PostgresTarget("password=secret dbname")
    assert "secret" not in str(told.value)
    assert turnlog.feeds.PostgresTarget is PostgresTarget


def test_server_that_is_not_there_is_said(log: TurnLog) -> None:
    """And is no bug."""
    target: Target = PostgresTarget("postgresql://127.0.0.1:1/x")
    with pytest.raises(StoreBusyError, match="cannot be reached"):
        Runner(log.store, target, [Words()]).run()


def test_extensions_elsewhere_are_found(log: TurnLog, kept_postgres_url: str) -> None:
    """In the schemas that are named."""
    run(kept_postgres_url, "CREATE SCHEMA tools")
    run(kept_postgres_url, "CREATE DOMAIN tools.positive AS integer CHECK (value > 0)")

    @projection("acme.typed", schema=["CREATE TABLE typed (id text, n positive)"], tables=["typed"])
    def typed(db: Cursor, event: LogEvent) -> None:
        db.execute("INSERT INTO typed VALUES (%s, 1)", (event.id,))

    target = PostgresTarget(kept_postgres_url, "views", search_path=["tools"])
    log.add_turn("one")
    assert Runner(log.store, target, [typed]).run()[0].error is None
    target.close()
