"""The engine in memory keeps the contract of a store, and `TurnLog` works on it."""

from collections.abc import Sequence
from pathlib import Path

from turnlog.events import Seals
from turnlog.store import Store, SyncProjection, open_store
from turnlog.testing import LogSuite, StoreSuite


class _Memory:
    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        return open_store("memory://", projections=projections)

    def open_sealed(self, folder: Path, projections: Sequence[SyncProjection], seals: Seals) -> Store:
        return open_store("memory://", projections=projections, seals=seals)


class TestMemoryStore(_Memory, StoreSuite):
    """The store suite in memory."""


class TestMemoryLog(_Memory, LogSuite):
    """The log suite in memory."""
