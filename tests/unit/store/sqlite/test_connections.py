"""Connections: their settings, who gets them when, and what becomes of those in use when the pool is closed."""

import gc
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.errors import StoreBusyError, StoreClosedError
from turnlog.store.sqlite.connections import READERS_KEPT, READERS_MAX, Connection, Connections

WAIT_S = 30
THREADS = 12
ROUNDS = 200


def _connections(uri: str, busy_timeout_s: float = 1, **options: bool) -> Connections:
    path = None if uri == ":memory:" else Path(uri.removeprefix("file:").partition("?")[0])
    return Connections(uri, path, place="log.db", busy_timeout_s=busy_timeout_s, **options)


@pytest.fixture(params=[":memory:", "file"])
def connections(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connections]:
    """Give an empty database, once in memory and once in a file."""
    pool = _connections(request.param if request.param == ":memory:" else f"file:{tmp_path}/log.db")
    yield pool
    pool.close()


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator[Connections]:
    """Give an empty database in a file."""
    pool = _connections(f"file:{tmp_path}/log.db")
    yield pool
    pool.close()


def _is_closed(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError as error:
        return "closed" in str(error)
    return False


def _settings(connections: Connections) -> dict[str, object]:
    with connections.reader() as cursor:
        names = ("synchronous", "trusted_schema", "query_only", "cell_size_check", "journal_mode")
        return {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


# Settings


def test_connection_syncs_and_trusts_nobody(connections: Connections) -> None:
    """A connection syncs each commit to disk, and lets no trigger of somebody else's reach out of the database."""
    found = _settings(connections)
    assert found.pop("journal_mode") in ("wal", "memory")
    assert found == {"synchronous": 2, "trusted_schema": 0, "query_only": 0, "cell_size_check": 1}


def test_read_only_connection_writes_nothing(tmp_path: Path) -> None:
    """Where nothing may be written SQLite is told so."""
    made = _connections(f"file:{tmp_path}/log.db")
    assert _settings(made)["query_only"] == 0
    read_only = _connections(f"file:{tmp_path}/log.db?mode=ro", read_only=True)
    assert _settings(read_only)["query_only"] == 1
    for each in (read_only, made):
        each.close()


def test_connection_that_fails_to_open_takes_no_place(tmp_path: Path) -> None:
    """SQLite's error comes out, and the next one who asks is told the same."""
    pool = _connections(f"file:{tmp_path}/none/log.db")
    for _ in range(READERS_MAX + 1):
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            pool.acquire(0)


# Giving and taking back


def test_reader_sees_one_snapshot_and_leaves_nothing_behind(in_file: Connections) -> None:
    """What others commit is seen by the next snapshot; a cursor of one that has ended is of no use."""
    other = in_file.connect()
    other.execute("CREATE TABLE numbers (number)")
    with in_file.reader() as cursor:
        assert cursor.execute("SELECT COUNT(*) FROM numbers").fetchall() == [(0,)]
        other.execute("INSERT INTO numbers VALUES (1)")
        assert cursor.execute("SELECT COUNT(*) FROM numbers").fetchall() == [(0,)]
    with pytest.raises(sqlite3.ProgrammingError, match="closed cursor"):
        cursor.execute("SELECT 1")
    with in_file.reader() as cursor:
        assert cursor.execute("SELECT COUNT(*) FROM numbers").fetchall() == [(1,)]
    other.close()


def test_released_connection_is_in_no_transaction(connections: Connections) -> None:
    """What somebody was in the middle of is rolled back before anybody else has the connection."""
    connection = connections.acquire()
    connection.execute("CREATE TABLE numbers (number)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO numbers VALUES (1)")
    connections.release(connection)
    with connections.alone() as cursor:
        assert cursor.connection is connection
        assert not connection.in_transaction
        assert cursor.execute("SELECT * FROM numbers").fetchall() == []


def test_so_many_connections_are_given_and_kept(in_file: Connections) -> None:
    """Beyond the most that can read, the next one waits; of those that come back some are kept."""
    given = [in_file.acquire() for _ in range(READERS_MAX)]
    assert len({*map(id, given)}) == READERS_MAX
    with pytest.raises(StoreBusyError, match=r"store 'log\.db' is busy: too many readers at once"):
        in_file.acquire(0.01)
    for connection in given:
        in_file.release(connection)
    assert [_is_closed(connection) for connection in given].count(False) == READERS_KEPT
    again = [in_file.acquire(0.01) for _ in range(READERS_MAX)]
    for connection in again:
        in_file.release(connection)


def test_connection_that_is_lost_makes_room(in_file: Connections) -> None:
    """An interrupt may hit between taking a connection and giving it back: it is then nobody's."""
    given = [in_file.acquire() for _ in range(READERS_MAX)]
    given.pop()
    gc.collect()
    in_file.release(in_file.acquire(0.01))
    for connection in given:
        in_file.release(connection)


def test_broken_connection_is_not_given_again(in_file: Connections) -> None:
    """Whoever gives back one that is closed is told, and the next one gets another."""
    connection = in_file.acquire()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        in_file.release(connection)
    with in_file.reader() as cursor:
        assert cursor.connection is not connection
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]


def test_database_in_memory_ends_with_its_connection() -> None:
    """Nobody is given an empty one instead."""
    pool = _connections(":memory:")
    connection = pool.acquire()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        pool.release(connection)
    with pytest.raises(StoreClosedError):
        pool.acquire()


def test_many_threads_share_few_connections(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is ever with two threads, nobody waits for ever, and no more are open than may be."""
    if not connections.in_memory:
        monkeypatch.setattr(connections, "_max", 3)
        monkeypatch.setattr(connections, "_kept", 1)
    in_use: set[int] = set()
    wrong: list[str] = []
    done: list[int] = []

    def use(number: int) -> None:
        for _ in range(ROUNDS):
            connection = connections.acquire(WAIT_S)
            if id(connection) in in_use:
                wrong.append("given twice")
            in_use.add(id(connection))
            if len(in_use) > 3 - 2 * connections.in_memory:
                wrong.append("too many")
            connection.execute("SELECT 1").fetchall()
            in_use.remove(id(connection))
            connections.release(connection)
        done.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []
    assert sorted(done) == list(range(THREADS))


def test_whoever_waits_is_served_before_those_who_come_later() -> None:
    """One who takes a connection again and again does not keep it from another."""
    pool = _connections(":memory:", WAIT_S)
    held = pool.acquire()
    served = threading.Event()

    def wait() -> None:
        connection = pool.acquire()
        served.set()
        pool.release(connection)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not pool._turn.locked():
        pass
    pool.release(held)
    held = pool.acquire()
    assert served.is_set()
    pool.release(held)
    waiting.join(WAIT_S)
    pool.close()


# Closing


def test_connection_in_use_outlives_the_pool(connections: Connections) -> None:
    """Closing leaves a connection to whoever has it, who closes it by giving it back."""
    connection = connections.acquire()
    connections.close()
    connections.close()
    assert connection.execute("SELECT 1").fetchone()[0] == 1
    connections.release(connection)
    assert _is_closed(connection)


def test_idle_connections_are_closed_with_the_pool(connections: Connections) -> None:
    """What nobody uses is closed at once."""
    connection = connections.acquire()
    connections.release(connection)
    assert not _is_closed(connection)
    connections.close()
    assert _is_closed(connection)


def test_connections_that_nobody_closed_are_closed_in_the_end(tmp_path: Path) -> None:
    """Whoever had the pool is gone."""
    pool = _connections(f"file:{tmp_path}/log.db")
    connection = pool.acquire()
    pool.release(connection)
    del pool
    gc.collect()
    assert _is_closed(connection)


def test_closed_pool_gives_no_connection(connections: Connections) -> None:
    """Neither one of the pool nor one beside it, while one is in use as when none is."""
    held = connections.acquire()
    connections.close()
    for _ in range(2):
        for give in (connections.acquire, connections.connect):
            with pytest.raises(StoreClosedError, match=r"store 'log\.db' is closed"):
                give()
        if not _is_closed(held):
            connections.release(held)


def test_reader_that_waits_is_told_that_the_pool_was_closed() -> None:
    """In memory there is one connection: who waits for it when the pool is closed is told at once."""
    pool = _connections(":memory:", WAIT_S)
    held = pool.acquire()
    outcome: list[str] = []

    def read() -> None:
        try:
            with pool.reader() as cursor:
                cursor.execute("SELECT 1")
            outcome.append("read")
        except StoreClosedError:
            outcome.append("closed")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    while not pool._turn.locked():
        pass
    pool.close()
    for reader in readers:
        reader.join(WAIT_S / 2)
    assert outcome == ["closed"] * 3
    pool.release(held)
    assert _is_closed(held)


def test_an_interrupt_leaves_nobody_waiting(connections: Connections) -> None:
    """One that comes when the lock that orders those who wait was just acquired, and before Python knows that."""
    interval = sys.getswitchinterval()
    main = threading.get_ident()
    order = connections._turn  # pyright: ignore[reportPrivateUsage]
    order.acquire()

    def release_and_strike() -> None:
        order.release()
        # The other thread has the lock now, and waits for the interpreter, which this one has.
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass
        signal.pthread_kill(main, signal.SIGINT)

    threading.Timer(0.05, release_and_strike).start()
    sys.setswitchinterval(10)
    try:
        with pytest.raises(KeyboardInterrupt):
            connections.acquire(WAIT_S)
    finally:
        sys.setswitchinterval(interval)
    connections.release(connections.acquire(0.5))
