"""The SQLite engine keeps the contract of a store whose logs outlive it, and `TurnLog` works on it."""

from collections.abc import Sequence
from pathlib import Path

from turnlog.store import Store, SyncProjection, open_store
from turnlog.testing import DurableStoreSuite, LogSuite


class _SQLite:
    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        return open_store(f"sqlite:///{folder}/log.db", projections=projections)


class TestSQLiteStore(_SQLite, DurableStoreSuite):
    """The store suite on SQLite."""


class TestSQLiteLog(_SQLite, LogSuite):
    """The log suite on SQLite."""
