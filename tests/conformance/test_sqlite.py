"""The SQLite engine keeps the contract of a store whose logs outlive it, and `TurnLog` works on it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from tests.rewriting import without_triggers

from turnlog.events import Recorded, Seals
from turnlog.store import Store, SyncProjection, open_store
from turnlog.testing import DurableStoreSuite, LogSuite
from turnlog.testing.harness import Change, change_payload_file


class _SQLite:
    sabotage: ClassVar[dict[str, tuple[str, ...]]] = {
        "swallow": (
            "CREATE TRIGGER quiet BEFORE INSERT ON stored_events WHEN NEW.topic = 'test.event'"
            " BEGIN SELECT RAISE(IGNORE); END",
        ),
        "unguard": ("DROP TRIGGER stored_events_no_update",),
        "weaken": (
            "DROP TRIGGER stored_events_no_update",
            "CREATE TRIGGER stored_events_no_update BEFORE UPDATE OF topic ON stored_events"
            " BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
        ),
        "slow": ("DROP INDEX stored_events_rare",),
        "forget": ("DROP TABLE store_projections",),
        # Every version has other tables than the one before: that is what an open store notices.
        "upgrade": ("CREATE TABLE newer (name TEXT PRIMARY KEY)", "PRAGMA user_version = 3"),
        "strand": ("DELETE FROM stored_events WHERE notification_id = 2",),
    }

    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        return open_store(f"sqlite:///{folder}/log.db", projections=projections)

    def open_sealed(self, folder: Path, projections: Sequence[SyncProjection], seals: Seals) -> Store:
        return open_store(f"sqlite:///{folder}/log.db", projections=projections, seals=seals)

    def tamper(self, folder: Path, statement: str, parameters: Sequence[object] = ()) -> None:
        changes_rows = statement.startswith(("DELETE", "INSERT", "UPDATE"))
        with (without_triggers if changes_rows else _connected)(folder / "log.db") as connection:
            connection.execute(statement, parameters)

    def tamper_payload(self, folder: Path, recorded: Recorded, change: Change) -> None:
        change_payload_file(folder / "log.db-payloads", recorded, change)


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


class TestSQLiteStore(_SQLite, DurableStoreSuite):
    """The store suite on SQLite."""


class TestSQLiteLog(_SQLite, LogSuite):
    """The log suite on SQLite."""
