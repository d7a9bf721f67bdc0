"""Locks of a store on PostgreSQL whose connection is lost while their holder lives on."""

import asyncio
import select
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.agent.running import values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say
from tests.servers.postgres import PostgresServer

from turnlog import RunResult, TurnLog
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.locks import PostgresLocks, lock_number

SETTINGS: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}
PATIENCE_S = 30.0

_CUT = """\
SELECT pg_terminate_backend(pid, 10000) FROM (
  SELECT DISTINCT pid FROM pg_locks JOIN pg_database ON database = pg_database.oid
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND datname = current_database()) AS holders"""
_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted"


def cut(url: str) -> None:
    """End the connections that hold locks of a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(_CUT).fetchall() != []


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def locks_of(url: str) -> PostgresLocks:
    """Return the locks of a log."""
    return PostgresLocks(Address(url))


def test_a_lock_whose_connection_is_lost_is_taken_again(postgres_url: str) -> None:
    """Nobody has to ask for it. It can be given back, and others be taken, as if nothing had been."""
    mine, others = locks_of(postgres_url), locks_of(postgres_url)
    release = mine.take("turn")
    assert release is not None
    for _ in range(3):
        cut(postgres_url)
        wait_until(lambda: others.is_taken("turn"))
        assert others.take("turn") is None
    cut(postgres_url)
    second = mine.take("next")
    assert second is not None
    assert (mine.is_taken("turn"), others.is_taken("turn"), others.is_taken("next")) == (True, True, True)
    cut(postgres_url)
    release()
    assert (others.is_taken("turn"), mine.is_taken("turn")) == (False, False)
    second()
    taken = others.take("turn")
    assert taken is not None
    mine.close()
    others.close()


def test_a_lock_that_somebody_else_has_got_meanwhile_is_theirs(postgres_url: str) -> None:
    """Whoever had it before does not take it for its own."""
    mine, others = locks_of(postgres_url), locks_of(postgres_url)
    release, kept = mine.take("turn"), mine.take("other")
    assert release is not None
    assert kept is not None
    with psycopg.connect(postgres_url, autocommit=True) as next_holder:
        number = lock_number("turnlog lock turnlog turn")
        waiting = Thread(target=next_holder.execute, args=("SELECT pg_advisory_lock(%s)", (number,)))
        waiting.start()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            wait_until(lambda: connection.execute(_WAITING).fetchone() == (1,))
        cut(postgres_url)
        waiting.join()
        wait_until(lambda: others.is_taken("other"))
        assert (mine.is_taken("turn"), mine.take("turn")) == (True, None)
        release()
        assert others.is_taken("turn")
    wait_until(lambda: not mine.is_taken("turn"))
    mine.close()
    wait_until(lambda: not others.is_taken("other"))
    others.close()


def test_settings_of_a_database_do_not_end_idle_locks(postgres_url: str) -> None:
    """Sessions that are idle for longer than it says are ended; one that holds a lock is not."""
    holder = _CUT.replace("pg_terminate_backend(pid, 10000)", "pid")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET idle_session_timeout = '200ms'").format(name))
        mine = locks_of(postgres_url)
        assert mine.take("turn") is not None
        before = connection.execute(sql.SQL(holder)).fetchall()
        with psycopg.connect(postgres_url, autocommit=True) as idle:
            while select.select([idle.fileno()], [], [], PATIENCE_S) != ([idle.fileno()], [], []):
                pass
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        assert connection.execute(sql.SQL(holder)).fetchall() == before
        mine.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_server_that_has_just_begun_gives_locks_to_who_had_them(own_postgres: PostgresServer, how: str) -> None:
    """Others get one of those that nobody had."""
    url = own_postgres.create_database()
    mine = locks_of(url)
    assert mine.take("turn") is not None
    if how == "stopped":
        own_postgres.stop()
    else:
        own_postgres.kill()
    own_postgres.start()
    others = locks_of(url)
    assert others.take("turn") is None
    assert others.take("next") is not None
    mine.close()
    others.close()


@pytest.mark.parametrize(("how", "on_interrupted"), [("cut", "repeat"), ("cut", "report"), ("restarted", "repeat")])
def test_a_run_whose_connections_are_lost_goes_on_and_stays_alone(
    request: pytest.FixtureRequest, how: str, on_interrupted: str
) -> None:
    """While its tool is at work. Another one that would repeat the call, or say that nobody knows, stops."""
    server: PostgresServer | None = request.getfixturevalue("own_postgres") if how == "restarted" else None
    url: str = request.getfixturevalue("postgres_url") if server is None else server.create_database()
    called: list[str] = []

    def lose() -> None:
        if server is None:
            cut(url)
            with TurnLog.open(url) as log:
                wait_until(lambda: log.store.locks.is_taken(log.turn("main").id))
        else:
            server.stop()
            server.start()

    async def both(log: TurnLog, other: TurnLog) -> list[RunResult]:
        at_work, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            """Work."""
            called.append("work")
            at_work.set()
            await go_on.wait()
            return "worked"

        adapter = Scripted(call(("work", {})), say("Done."))
        first = asyncio.ensure_future(
            log.arun("Go.", bookmark="main", tools=work, **values(**SETTINGS, adapter=adapter))
        )
        await at_work.wait()
        await asyncio.to_thread(lose)
        given = values(**SETTINGS, adapter=Scripted(say("Done too.")), on_interrupted=on_interrupted)
        second = await other.arun(None, continues="main", tools=work, **given)
        go_on.set()
        return [await first, second]

    with TurnLog.open(url) as log, TurnLog.open(url) as other:
        stopped = [result.stopped for result in asyncio.run(both(log, other))]
        assert (stopped, called) == (["done", "busy"], ["work"])
        assert log.verify().clean
