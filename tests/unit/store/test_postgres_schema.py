"""Looking at the tables of a PostgreSQL store: what was made is signed, and a standby compares with that."""

from typing import LiteralString
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from tests.servers.postgres import PostgresServer

from turnlog import TurnLog
from turnlog.audit.notes import Signer
from turnlog.errors import SchemaError
from turnlog.store.postgres import PostgresStore, is_log_there

SIGNED = "SELECT signature = turnlog.log_signature() FROM turnlog.store_state"


def is_signed(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute(SIGNED).fetchone() == (True,)


def test_tables_are_signed_as_they_are(kept_postgres_url: str) -> None:
    """From the beginning, and after what replaces tables: so nobody who appends has to compare them."""
    assert not is_log_there(kept_postgres_url)
    with TurnLog.open(kept_postgres_url) as log:
        assert is_log_there(kept_postgres_url)
        assert is_signed(kept_postgres_url)
        log.add_turn("hello", bookmark="main")
        log.audit.checkpoint(Signer.generate("log"))
        log.rebuild_projections()
        log.erase(turn="main", reason="a test")
        assert is_signed(kept_postgres_url)
        with psycopg.connect(kept_postgres_url) as connection:
            connection.execute("DROP TRIGGER stored_events_no_update ON turnlog.stored_events")
        assert not is_signed(kept_postgres_url)


def test_standby_verifies(own_postgres: PostgresServer) -> None:
    """It can make no temporary tables to compare with, and finds what somebody changed since the tables were signed."""
    standby = own_postgres.standby()
    database = own_postgres.create_database().rpartition("/")[2]
    with TurnLog.open(own_postgres.url(database)) as log:
        log.add_turn("hello", bookmark="main")
        assert log.context("main").messages  # what reads settles
    own_postgres.kill()
    standby.wait_for_replay()
    with TurnLog.open(standby.url(database), busy_timeout_s=2) as log:
        assert isinstance(log.store, PostgresStore)
        assert log.store.check_schema() == []
        assert log.verify().damage == ()
    standby.promote()
    standby.configure(synchronous_standby_names="")
    with psycopg.connect(standby.url(database)) as connection:
        connection.execute("DROP TRIGGER stored_events_no_update ON turnlog.stored_events")
    with TurnLog.open(standby.url(database) + "?options=-c%20default_transaction_read_only%3Don") as log:
        assert isinstance(log.store, PostgresStore)
        [flaw] = log.store.check_schema()
        assert "it cannot be compared with what it should be" in flaw or "stored_events_no_update" in flaw


@pytest.mark.parametrize(
    "schema", [*"acinoprte", "new", "stored_events", "log_order", "number", "pg", "T", "select", 'a"b']
)
def test_a_schema_can_have_any_name(kept_postgres_url: str, schema: str) -> None:
    """Also one that something else has in what the tables, views and functions are made of."""
    with TurnLog.open(f"{kept_postgres_url}?schema={quote(schema)}") as log:
        log.add_turn("hello", bookmark="main")
        assert log.verify().damage == ()
        with psycopg.connect(kept_postgres_url) as connection:
            change = "ALTER FUNCTION {0}.log_settle() RENAME TO log_other"
            connection.execute(sql.SQL(change).format(sql.Identifier(schema)))
            change = "DROP TRIGGER stored_events_no_update ON {0}.stored_events"
            connection.execute(sql.SQL(change).format(sql.Identifier(schema)))
            change = (
                "CREATE TRIGGER stored_events_no_update BEFORE UPDATE ON {0}.stored_events"
                " FOR EACH ROW EXECUTE FUNCTION {0}.log_refuse()"
            )
            connection.execute(sql.SQL(change).format(sql.Identifier(schema)))
        assert isinstance(log.store, PostgresStore)
        assert log.store.check_schema() == [
            f"the store's schema: {flaw}"
            for flaw in (
                "function 'log_other' is none of turnlog's, and must be dropped",
                "function 'log_settle' is missing",
                "trigger 'stored_events.stored_events_no_update' is not what it should be",
            )
        ]


@pytest.mark.parametrize(
    ("made", "dropped", "flaw"),
    [
        (
            "CREATE INDEX mine ON turnlog.log_order (order_key, global_position)",
            "DROP INDEX turnlog.mine",
            "index 'mine'",
        ),
        (
            "ALTER TABLE turnlog.log_order ADD COLUMN mine text",
            "ALTER TABLE turnlog.log_order DROP COLUMN mine",
            "column 'log_order.mine'",
        ),
        (
            "CREATE TRIGGER mine BEFORE UPDATE ON turnlog.bookmarks FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "DROP TRIGGER mine ON turnlog.bookmarks",
            "trigger 'bookmarks.mine'",
        ),
    ],
)
def test_what_others_made_of_a_table_is_to_be_dropped(
    kept_postgres_url: str, made: LiteralString, dropped: LiteralString, flaw: str
) -> None:
    """Who opens the log appends nothing while it is there: it is said that it must go, and then all is as before."""
    with TurnLog.open(kept_postgres_url) as log:
        log.add_turn("hello", bookmark="main")
    with psycopg.connect(kept_postgres_url) as connection:
        connection.execute(made)
    with TurnLog.open(kept_postgres_url) as log:
        assert isinstance(log.store, PostgresStore)
        with pytest.raises(SchemaError, match="run `turnlog verify`"):
            log.add_turn("more", continues="main")
        assert log.store.check_schema() == [f"the store's schema: {flaw} is none of turnlog's, and must be dropped"]
        with psycopg.connect(kept_postgres_url) as connection:
            connection.execute(dropped)
        log.add_turn("more", continues="main")
        assert log.store.check_schema() == []
