"""What is left of erased content in the files of PostgreSQL servers, until when, and that sealing leaves none."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest
from tests.sealed_log import SealsInMemory
from tests.servers.postgres import PostgresServer
from tests.servers.roles import Roles

from turnlog import TurnLog

SAID, BOOKMARK, SUBJECT = "canary-in-the-payload-7d1f", "canary-bookmark-52aa", "canary-subject-91c3"
CANARIES = (SAID, BOOKMARK, SUBJECT)
LARGE = "canary-in-a-large-payload-3e0b "
GONE_S = 30


def places(server: PostgresServer, canaries: Sequence[str] = CANARIES) -> set[str]:
    """Return the parts of a server's data folder, such as `base` and `pg_wal`, whose files have one of the words."""
    found: set[str] = set()
    for file in server.data.rglob("*"):
        if not file.is_file():
            continue
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            continue
        if any(canary.encode() in data for canary in canaries):
            found.add(file.relative_to(server.data).parts[0])
    if any(canary in server.log() for canary in canaries):
        found.add("log")
    return found


def flush(server: PostgresServer) -> None:
    """Write what the server has in memory to its files."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def fill(log: TurnLog) -> None:
    """Record something to erase, and something to keep."""
    log.add_turn(f"I say {SAID}.", bookmark=BOOKMARK, subject=SUBJECT)
    log.add_turn(LARGE + "".join(f"{number * 7919 % 100_003:x}" for number in range(4000)), continues=BOOKMARK)
    for number in range(20):
        log.add_turn(f"something else {number}", bookmark=f"other {number}")


def recycle(primary: PostgresServer, standby: PostgresServer) -> None:
    """Let servers begin new files of their write-ahead log, and let go of the old ones.

    The primary lets go of what the standby has: one that misses a file never goes on.
    """
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        for _ in range(3):
            connection.execute("CREATE TABLE IF NOT EXISTS anything (one integer)")
            connection.execute("INSERT INTO anything VALUES (1)")
            connection.execute("SELECT pg_switch_wal()")
            wait_for_replay(primary, standby)
            connection.execute("CHECKPOINT")
    wait_for_replay(primary, standby)


def wait_for_replay(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until a standby has done all that the primary has, and written it to its files."""
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        there = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()"
        while connection.execute(there).fetchone() != (1,):
            sleep(0.01)
    flush(standby)  # a restartpoint


def test_what_is_left_after_an_erasure_and_until_when(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """In the tables until they are written anew; in the write-ahead log, and standbys', until its files are removed."""
    standby = own_postgres.standby(synchronous=False, wal_recycle="off")
    own_postgres.configure(wal_recycle="off")
    every = (*CANARIES, LARGE.strip())
    with TurnLog.open(own_postgres.create_database()) as log:
        fill(log)
        flush(own_postgres)
        assert places(own_postgres) == {"base", "pg_wal"}
        assert places(own_postgres, [LARGE.strip()]) <= {"base", "pg_wal"}
        report = log.erase(subject=SUBJECT, reason="asked for")
        assert report.remains is not None
        assert "turnlog erase --finish" in report.remains
        assert log.finish_erasing() is None
        flush(own_postgres)
        assert places(own_postgres, every) <= {"pg_wal"}
        wait_for_replay(own_postgres, standby)
        assert places(standby, every) <= {"pg_wal"}
        recycle(own_postgres, standby)
        until = monotonic() + GONE_S
        while any(left := [places(own_postgres, every), places(standby, every)]):
            assert monotonic() < until, left
            recycle(own_postgres, standby)
        assert log.verify().damage == ()


def test_what_was_derived_goes_with_the_rest(own_postgres: PostgresServer) -> None:
    """The name of a bookmark is out of its table at once, and out of its files when the tables are written anew."""
    url = own_postgres.create_database()
    with TurnLog.open(url) as log:
        log.add_turn("hello", bookmark="main")
        log.add_turn("x", bookmark=BOOKMARK, subject="somebody")
        flush(own_postgres)
        with psycopg.connect(url, autocommit=True) as connection:
            path = connection.execute("SELECT pg_relation_filepath('turnlog.bookmarks')").fetchone()
        assert path is not None
        file = own_postgres.data / str(path[0])
        assert BOOKMARK.encode() in file.read_bytes()
        assert "turnlog erase --finish" in (log.erase(subject="somebody", reason="asked for").remains or "")
        assert [bookmark.name for bookmark in log.bookmarks.all()] == ["main"]
        assert log.finish_erasing() is None
        flush(own_postgres)
        assert not file.exists() or file.read_bytes() == b""
        with psycopg.connect(url, autocommit=True) as connection:
            path = connection.execute("SELECT pg_relation_filepath('turnlog.bookmarks')").fetchone()
        assert path is not None
        assert BOOKMARK.encode() not in (own_postgres.data / str(path[0])).read_bytes()


def test_ordinary_owner_finishes(own_postgres: PostgresServer) -> None:
    """Without the right to a checkpoint the tables are written anew as well."""
    url = own_postgres.create_database()
    roles = Roles(url)
    role = roles.make("owner")
    roles.run("CREATE SCHEMA turnlog AUTHORIZATION {}", role)
    with TurnLog.open(roles.url_of(role)) as log:
        fill(log)
        log.erase(subject=SUBJECT, reason="asked for")
        assert log.finish_erasing() is None
        flush(own_postgres)
        assert places(own_postgres, (*CANARIES, LARGE.strip())) <= {"pg_wal"}


@pytest.mark.parametrize("logged", ["none", "all"])
def test_nothing_of_a_sealed_log_is_ever_in_any_file(own_postgres: PostgresServer, logged: str) -> None:
    """Not in tables, the write-ahead log, a standby, or a server's log that has every statement; erased or not.

    Such a log has the names of bookmarks that were asked for, which are parameters of statements that read.
    """
    own_postgres.configure(log_statement=logged, log_min_duration_statement="0" if logged == "all" else "-1")
    standby = own_postgres.standby(synchronous=False)
    every = (SAID, SUBJECT, LARGE.strip(), *((BOOKMARK,) if logged == "none" else ()))
    seals = SealsInMemory()
    with TurnLog.open(own_postgres.create_database(), seals=seals) as log:
        log.seal()
        fill(log)
        assert log.context(BOOKMARK).messages
        for step in ("recorded", "erased", "finished"):
            if step == "erased":
                log.erase(subject=SUBJECT, reason="asked for")
            elif step == "finished":
                log.finish_erasing()
            flush(own_postgres)
            wait_for_replay(own_postgres, standby)
            assert (places(own_postgres, every), places(standby, every)) == (set(), set()), step
        assert log.verify().damage == ()


def test_what_is_searched_goes_with_what_was_said(own_postgres: PostgresServer) -> None:
    """The owner's tables of words are in the database, and hold nothing of it either when the erasure is finished."""
    with TurnLog.open(own_postgres.create_database()) as log:
        fill(log)
        assert log.feeds.search("something")
        flush(own_postgres)
        assert "base" in places(own_postgres, [SAID])
        log.erase(subject=SUBJECT, reason="asked for")
        assert log.finish_erasing() is None
        flush(own_postgres)
        assert places(own_postgres, (*CANARIES, LARGE.strip())) <= {"pg_wal"}


def test_who_reads_an_older_state_keeps_what_was_erased_and_is_told_of(own_postgres: PostgresServer) -> None:
    """Whatever they have read: PostgreSQL keeps all that they could still read."""
    url = own_postgres.create_database()
    every = (*CANARIES, LARGE.strip())
    with TurnLog.open(url, busy_timeout_s=2) as log, psycopg.connect(url) as other:
        fill(log)
        assert log.feeds.search("something")
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pg_class")
        log.erase(subject=SUBJECT, reason="asked for")
        said = log.finish_erasing() or ""
        assert "somebody reads an older state of the database: `turnlog erase --finish` when it is over" in said
        other.rollback()
        assert log.finish_erasing() is None
        flush(own_postgres)
        assert places(own_postgres, every) <= {"pg_wal"}
        assert log.verify().clean


@pytest.mark.parametrize("next_one", ["erase", "finish", "rebuild"])
def test_what_a_killed_erasure_left_is_turnlogs_and_goes_with_the_next_one(postgres_url: str, next_one: str) -> None:
    """It is a table that waits for readers; one that is in use stays."""
    with TurnLog.open(postgres_url, busy_timeout_s=2) as log, psycopg.connect(postgres_url, autocommit=True) as other:
        fill(log)
        log.erase(turn="other 0", reason="asked for")
        for name in ("left", "used"):
            other.execute(f"CREATE TABLE turnlog.turnlog_probe_{name} (nothing integer)".encode())
        assert log.verify().others == ()
        with other.transaction():
            other.execute("LOCK TABLE turnlog.turnlog_probe_used IN SHARE UPDATE EXCLUSIVE MODE")
            if next_one == "erase":
                log.erase(turn="other 1", reason="asked for")
            elif next_one == "finish":
                log.finish_erasing()
            else:
                log.rebuild_projections()
        probes = "SELECT relname FROM pg_class WHERE relname LIKE 'turnlog_probe%'"
        assert other.execute(probes).fetchall() == [("turnlog_probe_used",)]
        assert log.finish_erasing() is None
        assert other.execute(probes).fetchall() == []


def test_what_is_left_beside_projections_goes_with_the_next_erasure(postgres_url: str) -> None:
    """Their tables are written anew in the same way."""
    with TurnLog.open(postgres_url) as log, psycopg.connect(postgres_url, autocommit=True) as other:
        fill(log)
        assert log.feeds.search("something")
        other.execute("CREATE TABLE turnlog_projections.turnlog_probe_left (nothing integer)")
        log.erase(subject=SUBJECT, reason="asked for")
        assert log.finish_erasing() is None
        assert other.execute("SELECT relname FROM pg_class WHERE relname LIKE 'turnlog_probe%'").fetchall() == []
