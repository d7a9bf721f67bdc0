"""A PostgreSQL log that `pg_dump` wrote and `psql` restored is that log, and goes on."""

import subprocess

import psycopg
import pytest
from tests.servers.postgres import PostgresServer, _programs

from turnlog import StoreError, TurnLog
from turnlog.record import turn_draft


def test_dump_and_restore(own_postgres: PostgresServer) -> None:
    """The same events, positions and functions; numbers go on behind those that were given."""
    first, second = own_postgres.create_database(), own_postgres.create_database()
    with TurnLog.open(first) as log:
        for number in range(5):
            log.add_turn(f"turn {number}", bookmark=f"bookmark {number}")
        events = [event.header.id for event in log.events()]
    dumped = subprocess.run([_programs() / "pg_dump", "--schema=turnlog", first], capture_output=True, check=True)
    subprocess.run([_programs() / "psql", "-q", "-v", "ON_ERROR_STOP=1", second], input=dumped.stdout, check=True)
    with TurnLog.open(second, create=False) as log:
        assert log.store.check_schema() == []
        turn = log.add_turn("more", continues="bookmark 1")
        assert [event.header.id for event in log.events()] == [*events, turn.id]
        assert log.verify().damage == ()


def test_nothing_is_appended_to_what_is_put_back_in_part(own_postgres: PostgresServer) -> None:
    """Where the tables are there, and empty: whoever had the log open is told, by each way to append."""
    first, second = own_postgres.create_database(), own_postgres.create_database()
    with TurnLog.open(first) as log:
        log.add_turn("before", bookmark="main")
    command = [_programs() / "pg_dump", "--schema=turnlog", "--schema-only", first]
    dumped = subprocess.run(command, capture_output=True, check=True)
    with TurnLog.open(second) as log:
        log.add_turn("before", bookmark="main")
        with psycopg.connect(second, autocommit=True) as connection:
            connection.execute("DROP SCHEMA turnlog CASCADE")
            subprocess.run([_programs() / "psql", "-q", second], input=dumped.stdout, check=True)
            for add in (
                lambda: log.add_turn("a root"),
                lambda: log.add_group([turn_draft("one"), turn_draft("two")]),
                lambda: log.bookmarks.set("other", "main"),
            ):
                with pytest.raises(StoreError):
                    add()
            assert connection.execute("SELECT count(*) FROM turnlog.stored_events").fetchone() == (0,)
