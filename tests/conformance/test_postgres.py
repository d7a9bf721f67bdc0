"""The PostgreSQL engine keeps the contract of a store whose logs outlive it, and `TurnLog` works on it."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest

from turnlog.events import Recorded, Seals
from turnlog.store import Store, SyncProjection, open_store
from turnlog.testing import DurableStoreSuite, LogSuite
from turnlog.testing.harness import Change, change_payload_file
from turnlog.testing.store_integrity import ChangedPayloads
from turnlog.testing.store_outcomes import StoreOutcomes
from turnlog.testing.store_reads import StoreReads
from turnlog.testing.store_sealing import StoreSealing
from turnlog.testing.store_writes import StoreWrites


class _Postgres:
    sabotage: ClassVar[Mapping[str, Sequence[str]]] = {
        "swallow": (
            "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            "CREATE TRIGGER quiet BEFORE INSERT ON stored_events FOR EACH ROW WHEN (NEW.topic = 'test.event')"
            " EXECUTE FUNCTION quiet()",
        ),
        "unguard": ("DROP TRIGGER stored_events_no_update ON stored_events",),
        "weaken": (
            "DROP TRIGGER stored_events_no_update ON stored_events",
            "CREATE TRIGGER stored_events_no_update BEFORE UPDATE OF topic ON stored_events"
            " FOR EACH ROW EXECUTE FUNCTION log_refuse()",
        ),
        "slow": ("DROP INDEX stored_events_rare",),
        "forget": ("DROP TABLE store_projections",),
        "upgrade": ("UPDATE store_state SET version = 3, epoch = epoch + 1",),
        "strand": (
            "DELETE FROM stored_events WHERE order_key = (SELECT order_key FROM log_order WHERE global_position = 2)",
        ),
    }

    @pytest.fixture(autouse=True)
    def _database(self, kept_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database, self.monkeypatch = kept_postgres_url, monkeypatch

    def open_store(self, folder: Path, projections: Sequence[SyncProjection]) -> Store:
        return open_store(self.url_of(folder), projections=projections)

    def open_sealed(self, folder: Path, projections: Sequence[SyncProjection], seals: Seals) -> Store:
        return open_store(self.url_of(folder), projections=projections, seals=seals)

    def url_of(self, folder: Path) -> str:
        return f"{self.database}?schema={folder.name}"

    def tamper(self, folder: Path, statement: str, parameters: Sequence[object] = ()) -> None:
        # Who appends looks at the schema once a minute. That minute is over.
        self.monkeypatch.setattr("turnlog.store.postgres.appending.LOOK_S", 0.0)
        with closing(psycopg.connect(self.database, autocommit=True)) as connection:
            connection.execute(f'SET search_path = "{folder.name}"'.encode())
            connection.execute("SET session_replication_role = replica")
            place = "order_key = (SELECT order_key FROM log_order WHERE global_position = %s)"
            statement = statement.replace("notification_id = ?", place).replace("?", "%s")
            connection.execute(statement.encode(), parameters or None)

    def tamper_payload(self, folder: Path, recorded: Recorded, change: Change) -> None:
        """Change it beside its event, where payloads of all sizes are without object storage."""
        with closing(psycopg.connect(self.database)) as connection:
            asked = f'SELECT payload FROM "{folder.name}".stored_events WHERE event_id = %s'
            [(kept,)] = connection.execute(asked.encode(), (recorded.header.id,)).fetchall()
        self.tamper(
            folder, "UPDATE stored_events SET payload = ? WHERE event_id = ?", (change(kept), recorded.header.id)
        )


class TestPostgresStore(_Postgres, DurableStoreSuite):
    """The store suite on PostgreSQL."""


class TestPostgresLog(_Postgres, LogSuite):
    """The log suite on PostgreSQL."""


class TestPostgresStoreWithObjects(_Postgres, StoreWrites, StoreOutcomes, StoreReads, StoreSealing, ChangedPayloads):
    """What of the store suite has large payloads, on PostgreSQL, with these as objects in a folder."""

    def url_of(self, folder: Path) -> str:
        pytest.importorskip("obstore", reason="the extra s3 is not installed (`make install`)")
        return f"{super().url_of(folder)}&payloads=file://{folder}/objects"

    def tamper_payload(self, folder: Path, recorded: Recorded, change: Change) -> None:
        change_payload_file(folder / "objects", recorded, change)
