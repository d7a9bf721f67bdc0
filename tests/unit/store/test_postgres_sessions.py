"""What a server, a database, a role or the environment sets for sessions does nothing to a log, or is refused."""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.servers.postgres import Postgres

from turnlog import TurnLog
from turnlog.errors import CorruptionError, StoreBusyError, StoreError, StoreOpenError
from turnlog.feeds import PostgresTarget
from turnlog.store import reading
from turnlog.store.postgres import PostgresStore, is_log_there

TEXT = "Ü😀中"
DEFAULTS: Mapping[LiteralString, str] = {
    "default_transaction_deferrable": "on",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "bytea_output": "escape",
}
"""Others than the server's own of what a log could depend on."""


@pytest.fixture
def other_encoding(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the URL of an empty database in another encoding than UTF-8."""
    name = f"turnlog_test_{request.param.lower()}"
    statement = "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL(statement).format(sql.Identifier(name), sql.Literal(request.param)))
    url = postgres.url(name)
    yield url
    postgres.drop_database(url)


def run(url: str, *statements: LiteralString) -> None:
    """Run statements in the schema of the log."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = turnlog")
        for statement in statements:
            connection.execute(statement)


def set_default(url: str, name: LiteralString, value: str) -> None:
    """Set what sessions in a database begin with."""
    database = sql.Identifier(urlsplit(url).path.removeprefix("/"))
    with psycopg.connect(url, autocommit=True) as connection:
        statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
        connection.execute(statement.format(database, sql.Identifier(name), sql.Literal(value)))


def use(url: str) -> None:
    """Record, read, rebuild and erase."""
    with TurnLog.open(url, busy_timeout_s=5) as log:
        log.add_turn(TEXT, bookmark=TEXT)
        log.add_turn("more", continues=TEXT, subject=TEXT)
        with TurnLog.open(url, busy_timeout_s=5) as other:
            assert [bookmark.name for bookmark in other.bookmarks.all()] == [TEXT]
            assert len(other.context(TEXT).messages) == 2
            other.add_turn("still more", continues=TEXT)
        assert log.rebuild_projections()
        assert log.erase(subject=TEXT, reason="asked").erasures
        assert log.verify().damage == ()


@pytest.mark.parametrize("other_encoding", ["LATIN1", "SQL_ASCII"], indirect=True)
def test_other_encoding_is_refused(other_encoding: str, request: pytest.FixtureRequest) -> None:
    """It cannot hold every text: one line says so, and how to make a database that can."""
    encoding = request.node.callspec.params["other_encoding"]
    said = rf"^database .* has the encoding {encoding}, .*CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0$"
    for act in (
        lambda: TurnLog.open(other_encoding),
        lambda: is_log_there(other_encoding),
        lambda: PostgresTarget(other_encoding).connect(),
    ):
        with pytest.raises(StoreOpenError, match=said):
            act()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "WIN1252"])
def test_encoding_of_clients_is_that_of_the_log(
    postgres_url: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment, the URL and the database say: texts are what they are, also with eventsourcing."""
    set_default(postgres_url, "client_encoding", encoding)
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    use(f"{postgres_url}?client_encoding={encoding}")
    with TurnLog.open(postgres_url) as log:
        topics = [each.topic for each in log.store.factory.application_recorder().select_notifications(1, 2)]
        assert topics == ["log.genesis", "gpt.turn"]
    with PostgresTarget(postgres_url).connect() as connection:
        assert connection.execute("SELECT %s::text", (TEXT,)).fetchall() == [(TEXT,)]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_defaults_of_sessions_change_nothing(postgres_url: str, isolation: str) -> None:
    """A log that others made before, and one that is made with them, work as ever."""
    use(postgres_url)
    set_default(postgres_url, "default_transaction_isolation", isolation)
    for name, value in DEFAULTS.items():
        set_default(postgres_url, name, value)
    with TurnLog.open(postgres_url, busy_timeout_s=5) as log:
        log.add_turn("after", continues=TEXT)
        assert log.verify().damage == ()
    run(postgres_url, "DROP SCHEMA turnlog CASCADE")
    use(postgres_url)


def test_views_that_may_not_be_read_are_no_damage(postgres_url: str) -> None:
    """A setting takes them away: one line names it, also of `turnlog verify`."""
    with TurnLog.open(postgres_url) as log:
        log.add_turn("hello")
    with psycopg.connect(postgres_url) as connection:
        if connection.execute("SELECT current_setting('restrict_nonsystem_relation_kind', true)").fetchone() == (None,):
            pytest.skip("this PostgreSQL has no such setting")
    set_default(postgres_url, "restrict_nonsystem_relation_kind", "foreign-table")
    with TurnLog.open(postgres_url) as log:
        assert log.verify().damage == ()
    set_default(postgres_url, "restrict_nonsystem_relation_kind", "view, foreign-table")
    with pytest.raises(StoreOpenError, match=r"cannot be read: .* RESET restrict_nonsystem_relation_kind there$"):
        TurnLog.open(postgres_url)


def test_views_of_others_stay(kept_postgres_url: str) -> None:
    """An erasure and a rebuild empty tables that are as they should be, and what rests on them is not touched."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("to erase", bookmark="away", subject="alice")
        log.add_turn("to keep", bookmark="main")
        with psycopg.connect(kept_postgres_url, autocommit=True) as connection:
            connection.execute("CREATE VIEW public.v AS SELECT name FROM turnlog.bookmarks")
            connection.execute("CREATE TEMP VIEW mine AS SELECT name FROM turnlog.bookmarks")
            log.erase(subject="alice", reason="asked")
            log.rebuild_projections()
            for view in ("public.v", "mine"):
                assert connection.execute(f"SELECT * FROM {view} ORDER BY 1".encode()).fetchall() == [
                    (bookmark.name,) for bookmark in sorted(log.bookmarks.all(), key=lambda each: each.name)
                ]
        log.add_turn("more", continues="main")
        assert log.verify().damage == ()


@pytest.mark.parametrize("how", ["rebuilt", "erased"])
def test_who_reads_has_the_tables_of_its_snapshot(kept_postgres_url: str, how: str) -> None:
    """Also those that it reads only after they were made anew; and nobody waits for the other."""
    with TurnLog.open(kept_postgres_url, busy_timeout_s=5) as log, TurnLog.open(kept_postgres_url) as other:
        log.add_turn("to erase", bookmark="away")
        log.add_turn("to keep", bookmark="main")
        with other.store.read() as transaction:
            assert transaction.rows("SELECT count(*) FROM threads") == [(2,)]
            if how == "rebuilt":
                log.rebuild_projections()
            else:
                log.erase(turn="away", reason="asked")
            assert transaction.rows("SELECT name FROM bookmarks ORDER BY name") == [("away",), ("main",)]
            assert transaction.rows("SELECT count(*) FROM threads") == [(2,)]
        assert [each.name for each in other.bookmarks.all()] == (["away", "main"] if how == "rebuilt" else ["main"])
        assert other.verify().damage == ()


def test_what_keeps_tables_from_being_made_anew_is_named(kept_postgres_url: str) -> None:
    """Where a table is not as it should be, and a view or a foreign key rests on it; then it can be made anew."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("hello", bookmark="main")
        run(
            kept_postgres_url,
            "ALTER TABLE bookmarks ADD COLUMN more text",
            "CREATE VIEW public.theirs AS SELECT name FROM bookmarks",
        )
        with pytest.raises(StoreError, match=r"something rests on them \(view .*theirs depends on table .*bookmarks\)"):
            log.rebuild_projections()
        run(kept_postgres_url, "DROP VIEW public.theirs")
        assert log.rebuild_projections()
        run(
            kept_postgres_url,
            "CREATE TABLE public.theirs (name text REFERENCES turnlog.bookmarks)",
            "INSERT INTO public.theirs VALUES ('main')",
        )
        with pytest.raises(
            StoreError, match=r"something rests on them \(Key .*is still referenced from table \"theirs\""
        ):
            log.rebuild_projections()
        run(kept_postgres_url, "DROP TABLE public.theirs")
        assert log.rebuild_projections()
        assert log.verify().damage == ()


def test_an_order_that_cannot_be_right_is_damage(kept_postgres_url: str) -> None:
    """Whoever reads or writes is told to verify, and that tells once of all that cannot be read."""
    with TurnLog.open(kept_postgres_url) as log:
        for number in range(3):
            log.add_turn(f"turn {number}")
        assert len(list(log.events())) == 4
        run(kept_postgres_url, "UPDATE log_order SET global_position = 1000 WHERE global_position = 2")
    with TurnLog.open(kept_postgres_url) as log:
        for work in (lambda: log.latest(1), lambda: log.add_turn("more")):
            with pytest.raises(CorruptionError, match=r"is damaged \(duplicate key .*\): run `turnlog verify`$"):
                work()
        said = [damage.what for damage in log.verify().damage if "cannot be read" in damage.what]
        assert len(said) == 1


def test_a_schema_of_another_program_is_told_of(kept_postgres_url: str) -> None:
    """With what to do; its table is as it was."""
    run(kept_postgres_url, "CREATE SCHEMA turnlog", "CREATE TABLE turnlog.threads (mine text)")
    with pytest.raises(StoreOpenError, match=r"exists; the schema is another program's: give .*`\?schema=NAME`"):
        TurnLog.open(kept_postgres_url)
    run(kept_postgres_url, "INSERT INTO turnlog.threads VALUES ('mine')")
    with TurnLog.open(f"{kept_postgres_url}?schema=mine") as log:
        assert log.add_turn("hello")


@pytest.mark.parametrize("lost", ["stored_events", "store_state"])
def test_lost_table_is_damage(kept_postgres_url: str, lost: LiteralString) -> None:
    """A log of which a table is gone is still one: it is not made anew beside the rest."""
    with TurnLog.open(kept_postgres_url) as log:
        assert isinstance(log.store, PostgresStore)
        log.add_turn("hello")
    run(kept_postgres_url, "DROP TABLE " + lost + " CASCADE")
    assert is_log_there(kept_postgres_url)
    what = "of events" if lost == "stored_events" else "'store_state'"
    with pytest.raises(CorruptionError, match=rf"has lost its table {what}: restore a backup$"):
        TurnLog.open(kept_postgres_url)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER SCHEMA turnlog RENAME TO logs", "has functions that do not find its tables"),
        ("ALTER SCHEMA turnlog RENAME TO logs; DROP FUNCTION logs.log_settle", "has lost a function"),
    ],
)
def test_functions_that_a_rebuild_mends_are_told_of(kept_postgres_url: str, change: LiteralString, told: str) -> None:
    """Where all tables are there no backup is needed."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("hello", bookmark="main")
    run(kept_postgres_url, *change.split("; "))
    with TurnLog.open(f"{kept_postgres_url}?schema=logs") as log:
        said = rf"{told} \(.* does not exist.*\): `turnlog projections rebuild` makes (it|them) anew$"
        for work in (lambda: log.turn("main"), lambda: log.add_turn("more", continues="main")):
            with pytest.raises(CorruptionError, match=said):
                work()
        assert any(re.search(said, damage.what) for damage in log.verify().damage)
        log.rebuild_projections()
        log.add_turn("more", continues="main")
        assert log.verify().damage == ()


def test_tables_that_cannot_be_compared_now_are_no_damage(kept_postgres_url: str) -> None:
    """While others write the tables anew, their definitions cannot be read, which says nothing of them."""
    with TurnLog.open(kept_postgres_url, busy_timeout_s=0.2) as log:
        log.add_turn("hello")
        with psycopg.connect(kept_postgres_url) as connection:
            connection.execute("LOCK TABLE turnlog.stored_events IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreBusyError, match=r"is busy: another process writes to it, try again later$"):
                log.store.check_schema()
        assert log.store.check_schema() == []


def test_limit_of_the_server_is_no_damage(postgres_url: str) -> None:
    """A statement that needs more than the server gives can be tried again when there is room."""
    with TurnLog.open(postgres_url) as log:
        log.add_turn("hello")
    set_default(postgres_url, "temp_file_limit", "0")
    with TurnLog.open(postgres_url) as log:
        why = r"is busy \(temporary file size exceeds .*\): try again later$"
        with pytest.raises(StoreBusyError, match=why), log.store.read() as transaction:
            transaction.rows("SELECT n FROM generate_series(1, 1000000) n ORDER BY random()")


def test_whole_log_is_not_taken_where_a_part_would_be(
    kept_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not write gives no event its place in the log: an export and a copy that lack some are refused."""
    monkeypatch.setattr(reading, "SETTLED_TRIES_MAX", 3)
    copied = f"sqlite:///{tmp_path}/copied.db"
    with TurnLog.open(kept_postgres_url) as log:
        for name in "abc":
            log.add_turn(name, bookmark=name)
        with TurnLog.open(f"{kept_postgres_url}?options=-c%20default_transaction_read_only%3Don") as reader:
            assert len([*reader.events()]) < 4
            for take in (lambda: reader.export(io.BytesIO()), lambda: reader.copy_to(copied)):
                with pytest.raises(StoreBusyError, match="have no place in the log yet"):
                    take()
    with TurnLog.open(kept_postgres_url) as reader:
        assert reader.export(io.BytesIO()) == 4
        assert reader.copy_to(copied).events == 4
