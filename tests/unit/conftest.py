"""Logs for the unit tests: one in memory, one in a file."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnlog import TurnLog


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log in memory."""
    with TurnLog.open("memory://", busy_timeout_s=1) as opened:
        yield opened


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Give the path of a store that does not exist yet."""
    return tmp_path / "log.db"


@pytest.fixture
def file_log(store_path: Path) -> Iterator[TurnLog]:
    """Give an empty log in a file."""
    with TurnLog.open(f"sqlite:///{store_path}") as opened:
        yield opened


@pytest.fixture
def poke(store_path: Path) -> Callable[..., None]:
    """Give a way to change the file behind turnlog's back: the triggers go first."""

    def run(*statements: str) -> None:
        connection = sqlite3.connect(store_path, isolation_level=None)
        try:
            for trigger in ("stored_events_no_delete", "stored_events_no_update"):
                connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()

    return run
