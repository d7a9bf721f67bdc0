"""A PostgreSQL log that `pg_dump` wrote and `psql` restored is that log, and goes on."""

import subprocess

from tests.servers.postgres import PostgresServer, _programs

from turnlog import TurnLog


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
