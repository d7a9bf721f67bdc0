"""The journal of SQLite databases."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread
from time import monotonic

import pytest

from turnlog.store.sqlite.journal import write_ahead

WRITERS, DATABASES = 6, 40


def _databases(folder: Path, wait_s: float) -> list[sqlite3.Error]:
    """Give new databases a log by several connections at once, and return what they were told."""
    told: list[sqlite3.Error] = []

    def make(path: Path, together: Barrier) -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
            together.wait()
            try:
                write_ahead(connection, wait_s)
                connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
            except sqlite3.Error as error:
                told.append(error)

    for number in range(DATABASES):
        together = Barrier(WRITERS)
        threads = [Thread(target=make, args=(folder / f"{number}.db", together)) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return told


def test_those_who_make_one_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite does not wait there, whatever the time-out of the connections."""
    assert _databases(tmp_path, 60) == []


def test_waiting_ends(tmp_path: Path) -> None:
    """With the error that SQLite gave."""
    path = tmp_path / "held.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as holder,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection,
    ):
        holder.execute("BEGIN EXCLUSIVE")
        begun = monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            write_ahead(connection, 0.05)
        assert 0.05 <= monotonic() - begun < 5
        holder.execute("COMMIT")
        write_ahead(connection, 0.05)
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_other_errors_are_not_waited_for(tmp_path: Path) -> None:
    """A file that is no database does not become one."""
    path = tmp_path / "text.db"
    path.write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        begun = monotonic()
        with pytest.raises(sqlite3.DatabaseError, match="not a database"):
            write_ahead(connection, 60)
        assert monotonic() - begun < 5
