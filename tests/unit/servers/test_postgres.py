"""PostgreSQL servers for tests: they start, stop and die as a test says, and never outlive it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import errors
from tests.servers.postgres import OtherPostgres, Postgres, PostgresServer, missing

_ROOT = Path(__file__).resolve().parents[3]
_SYSTEM_V = Path("/proc/sysvipc/shm")
GONE_S = 20
"""How long what a killed process left behind may take to go."""


def _column(url: str, query: str) -> list[object]:
    with psycopg.connect(url) as connection:
        return [value for (value,) in connection.execute(query.encode())]


def _write(url: str, number: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number bigint)")
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))


def _numbers(url: str) -> list[object]:
    return _column(url, "SELECT number FROM numbers ORDER BY number")


def test_databases_are_apart(postgres: Postgres, postgres_url: str):
    """A table in one database is not in another one of the same server."""
    other = postgres.create_database()
    try:
        _write(postgres_url, 1)
        _write(other, 2)
        assert (_numbers(postgres_url), _numbers(other)) == ([1], [2])
    finally:
        postgres.drop_database(other)


def test_databases_sort_by_bytes(postgres_url: str):
    """Text sorts by its bytes, as it does in SQLite."""
    assert _column(postgres_url, "SELECT * FROM unnest(ARRAY['é', 'a', 'Z']) AS text ORDER BY text") == ["Z", "a", "é"]
    assert _column(postgres_url, "SHOW server_encoding") == ["UTF8"]


def test_a_dropped_database_is_gone_also_with_a_connection_to_it(postgres: Postgres):
    """Dropping a database ends who is connected to it."""
    url = postgres.create_database()
    with psycopg.connect(url) as connection:
        postgres.drop_database(url)
        with pytest.raises(errors.AdminShutdown):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_a_server_of_somebody_else_gives_databases(own_postgres: PostgresServer):
    """`$TURNLOG_TEST_POSTGRES_URL` is a database of a server in which others are made; its parameters stay."""
    other = OtherPostgres(own_postgres.url(unix=True))
    url = other.create_database()
    assert url.partition("?")[2] == own_postgres.url(unix=True).partition("?")[2]
    _write(url, 3)
    assert _numbers(url) == [3]
    other.drop_database(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_it_listens_on_a_socket_and_over_tcp(own_postgres: PostgresServer):
    """Both URLs lead to the same server."""
    _write(own_postgres.url(), 4)
    assert _numbers(own_postgres.url(unix=True)) == [4]


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_it_starts_again_with_its_data_at_its_port(own_postgres: PostgresServer, end: Callable[[PostgresServer], None]):
    """What was committed is there after it was stopped, or killed, and started again; its URL is the same."""
    url = own_postgres.create_database()
    with psycopg.connect(url) as idle:
        _write(url, 5)
        end(own_postgres)
        assert not own_postgres.is_running
        with pytest.raises(psycopg.OperationalError, match="refused"):
            psycopg.connect(url)
        own_postgres.start()
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
    assert _numbers(url) == [5]


@pytest.mark.skipif(not _SYSTEM_V.exists(), reason="there is no /proc/sysvipc/shm here")
def test_kill_leaves_no_process_and_no_memory(own_postgres: PostgresServer):
    """The processes of connections are gone too, also of one that computes; so is the System V memory."""
    busy = psycopg.connect(own_postgres.url(), autocommit=True)
    pid = busy.info.backend_pid
    thread = threading.Thread(target=_run_into_the_kill, args=(busy,))
    thread.start()
    while _column(own_postgres.url(), f"SELECT state FROM pg_stat_activity WHERE pid = {pid}") != ["active"]:
        pass
    processes = _processes_of(own_postgres)
    assert pid in processes
    memory = (own_postgres.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
    assert memory in _shared_memory()
    own_postgres.kill()
    thread.join()
    busy.close()
    assert not any(_lives(process) for process in processes)
    assert memory not in _shared_memory()


def _shared_memory() -> list[str]:
    return [line.split()[1] for line in _SYSTEM_V.read_text().splitlines()]


def _run_into_the_kill(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("DO $$ BEGIN LOOP END LOOP; END $$")


def test_settings_are_what_was_asked_for():
    """Commits need not wait for the disk unless a test asks for that; other settings are given by name."""
    with PostgresServer() as server:
        assert _column(server.url(), "SHOW fsync") == ["off"]
        assert _column(server.url(), "SHOW max_connections") == ["200"]
        server.configure(lock_timeout="2s")
        assert _column(server.url(), "SHOW lock_timeout") == ["2s"]
    with PostgresServer(fsync=True, work_mem="1MB", application_name="it's") as server:
        assert _column(server.url(), "SHOW fsync") == ["on"]
        assert _column(server.url(), "SHOW work_mem") == ["1MB"]


def test_another_port_is_taken_if_the_first_one_is_not_free(own_postgres: PostgresServer):
    """A port that somebody took in between is no reason to fail; one that was asked for is."""
    server = PostgresServer()
    server.port = own_postgres.port
    with server:
        assert server.port != own_postgres.port
        assert _column(server.url(), "SELECT 1") == [1]
    fixed = PostgresServer(port=own_postgres.port)
    with pytest.raises(Exception, match="Address already in use"):
        fixed.start()
    fixed.close()


def test_a_synchronous_standby_takes_over(own_postgres: PostgresServer):
    """What was committed is on the standby when the primary dies; one URL of both leads to who takes writes."""
    standby = own_postgres.standby()
    both = (
        f"postgresql://postgres@127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}/postgres"
        "?target_session_attrs=read-write"
    )
    for number in range(20):
        _write(both, number)
    own_postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(both)
    standby.promote()
    assert _numbers(both) == list(range(20))
    _write(both, 20)
    assert _numbers(standby.url()) == list(range(21))


def test_commits_wait_for_a_synchronous_standby(own_postgres: PostgresServer):
    """While the standby is away a commit does not return; it does when the standby is back."""
    standby = own_postgres.standby()
    standby.kill()
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        thread = threading.Thread(target=_write, args=(own_postgres.url(), 1))
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        while connection.execute(waiting).fetchone() == (0,):
            assert thread.is_alive()
    standby.start()
    thread.join()
    assert _numbers(own_postgres.url()) == [1]


def test_commits_do_not_wait_for_another_standby(own_postgres: PostgresServer):
    """A standby that is not synchronous follows, and what it lacks when it is promoted is lost."""
    standby = own_postgres.standby(synchronous=False)
    standby.kill()
    _write(own_postgres.url(), 1)
    standby.start()
    while _column(standby.url(), "SELECT to_regclass('numbers') IS NOT NULL") != [True]:
        pass
    assert _numbers(standby.url()) == [1]
    with pytest.raises(errors.ReadOnlySqlTransaction):
        _write(standby.url(), 2)


def test_a_promoted_standby_can_have_a_standby(own_postgres: PostgresServer):
    """After a fail-over there can be a next one."""
    first = own_postgres.standby()
    own_postgres.kill()
    first.promote()
    second = first.standby()
    _write(first.url(), 1)
    first.kill()
    second.promote()
    assert _numbers(second.url()) == [1]


CHILD = """
import os, sys, threading, time
from tests.servers.postgres import PostgresServer
server = PostgresServer().start()
other = PostgresServer().start()
other.stop()
{}
print(server.folder, flush=True)
{}
"""
FORK = "if os.fork() == 0: time.sleep(60); os._exit(0)"
STRAY = """
import psycopg
one, two = (psycopg.connect(server.url(), autocommit=True) for _ in range(2))
busy = "DO $$ BEGIN LOOP END LOOP; END $$"
threading.Thread(target=one.execute, args=(busy,), daemon=True).start()
while two.execute("SELECT count(*) FROM pg_stat_activity WHERE query = %s", (busy,)).fetchone() == (0,): pass
os.kill(server._process.pid, 9)
"""
WAIT = "sys.stdin.read()"


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize(
    ("before", "ending", "number"),
    [
        pytest.param("", WAIT, signal.SIGKILL, id="killed"),
        pytest.param("", WAIT, signal.SIGINT, id="interrupted"),
        pytest.param(FORK, WAIT, signal.SIGKILL, id="killed-and-a-fork-lives"),
        pytest.param(STRAY, WAIT, signal.SIGKILL, id="killed-after-its-server"),
        pytest.param("", "raise SystemExit", None, id="done"),
        pytest.param("", "os._exit(0)", None, id="ended-without-cleaning-up"),
    ],
)
def test_nothing_is_left_of_a_process_that_ends(before: str, ending: str, number: signal.Signals | None):
    """However a process ends, its servers end, and their folders are removed."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(before, ending)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    folder = Path(os.fsdecode(child.stdout.readline().strip()))
    forks: list[psutil.Process] = []
    if number is not None:
        assert _started_on(folder.parent)
        forks = psutil.Process(child.pid).children()
        child.send_signal(number)
    child.stdin.close()
    child.stdout.close()
    child.wait()
    until = time.monotonic() + GONE_S
    while folder.parent.exists() or _started_on(folder.parent):
        assert time.monotonic() < until, (folder, _started_on(folder.parent))
        time.sleep(0.02)
    for fork in forks:
        if _lives(fork.pid):
            fork.kill()


def _processes_of(server: PostgresServer) -> list[int]:
    return [process.pid for process in _started_on(server.folder)]


def _started_on(folder: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        about = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
        if any(part.startswith(str(folder)) for part in about):
            found.append(process)
    return found


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
