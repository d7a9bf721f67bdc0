"""Connections: their settings, and what becomes of those in use when the pool is closed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventsourcing.persistence import ConnectionPoolClosedError

from turnlog.store.sqlite.connections import LogDatastore, raw_connection

WAIT_S = 30


@pytest.fixture(params=[":memory:", "file"])
def datastore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogDatastore]:
    """Give an empty database, once in memory and once in a file."""
    uri = request.param if request.param == ":memory:" else f"file:{tmp_path}/log.db"
    datastore = LogDatastore(uri, busy_timeout_s=1)
    yield datastore
    datastore.close()


def _settings(datastore: LogDatastore) -> dict[str, object]:
    with datastore.reader() as cursor:
        names = ("synchronous", "trusted_schema", "query_only", "cell_size_check", "journal_mode")
        return {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


def test_connection_syncs_and_trusts_nobody(datastore: LogDatastore) -> None:
    """A connection syncs each commit to disk, and lets no trigger of somebody else's reach out of the database."""
    found = _settings(datastore)
    assert found.pop("journal_mode") in ("wal", "memory")
    assert found == {"synchronous": 2, "trusted_schema": 0, "query_only": 0, "cell_size_check": 1}


def test_read_only_connection_writes_nothing(tmp_path: Path) -> None:
    """Where nothing may be written SQLite is told so."""
    made = LogDatastore(f"file:{tmp_path}/log.db", busy_timeout_s=1)
    assert _settings(made)["query_only"] == 0
    datastore = LogDatastore(f"file:{tmp_path}/log.db?mode=ro", busy_timeout_s=1, read_only=True)
    assert _settings(datastore)["query_only"] == 1
    for each in (datastore, made):
        each.close()


def test_connection_in_use_outlives_the_pool(datastore: LogDatastore) -> None:
    """Closing leaves a connection to whoever has it, who closes it by giving it back."""
    connection = datastore.pool.get_connection(is_writer=False)
    raw = raw_connection(connection)
    datastore.close()
    datastore.close()
    assert raw.execute("SELECT 1").fetchone()[0] == 1
    assert not connection.closed
    datastore.pool.put_connection(connection)
    assert connection.closed
    assert datastore.pool.num_in_use == 0


def test_idle_connections_are_closed_with_the_pool(datastore: LogDatastore) -> None:
    """What nobody uses is closed at once."""
    connection = datastore.pool.get_connection()
    datastore.pool.put_connection(connection)
    assert not connection.closed
    datastore.close()
    assert connection.closed
    assert (datastore.pool.closed, datastore.pool.num_in_pool) == (True, 0)


@pytest.mark.parametrize("is_writer", [None, False, True])
def test_closed_pool_gives_no_connection(datastore: LogDatastore, is_writer: bool | None) -> None:
    """Nor does it to those that wait for one when it is closed."""
    held = datastore.pool.get_connection(is_writer=True)
    datastore.close()
    with pytest.raises(ConnectionPoolClosedError):
        datastore.pool.get_connection(is_writer=is_writer)
    datastore.pool.put_connection(held)
    with pytest.raises(ConnectionPoolClosedError):
        datastore.pool.get_connection(is_writer=is_writer)


def test_reader_that_waits_is_told_that_the_pool_was_closed() -> None:
    """In memory there is one connection: who waits for it when the pool is closed is told once it is given back."""
    datastore = LogDatastore(":memory:", busy_timeout_s=WAIT_S)
    held = datastore.pool.get_connection()
    outcome: list[str] = []
    waiting = threading.Event()

    def read() -> None:
        waiting.set()
        try:
            with datastore.reader() as cursor:
                cursor.execute("SELECT 1")
            outcome.append("read")
        except ConnectionPoolClosedError:
            outcome.append("closed")

    reader = threading.Thread(target=read)
    reader.start()
    assert waiting.wait(WAIT_S)
    datastore.close()
    datastore.pool.put_connection(held)
    reader.join(WAIT_S / 2)
    assert outcome == ["closed"]
