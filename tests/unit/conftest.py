"""Logs for the unit tests: one in memory, one in a file."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.rewriting import without_triggers

from turnlog import TurnLog
from turnlog.record.detectors import secrets
from turnlog.record.findings import Hook


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log in memory."""
    with TurnLog.open("memory://", busy_timeout_s=1) as opened:
        yield opened


@pytest.fixture(scope="session")
def hook() -> Hook:
    """Give the built-in redaction hook: it loads its rules once, which takes a second."""
    pytest.importorskip("kingfisher_sdk", reason="the extra `redact` is not installed")
    return secrets()


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
    """Give a way to change the file behind turnlog's back. What guards the rows is out of the way meanwhile."""

    def run(*statements: str) -> None:
        changes_rows = any(statement.startswith(("DELETE", "INSERT", "UPDATE")) for statement in statements)
        with (without_triggers if changes_rows else _connected)(store_path) as connection:
            for statement in statements:
                connection.execute(statement)

    return run


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
