"""The tables of a SQLite store: what belongs there, and what of it is not as it should be."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import MetaError, SchemaError
from turnlog.projections import synchronous
from turnlog.store import Store
from turnlog.store.sqlite.schema import (
    OBJECTS,
    STATEMENTS,
    VERSION,
    dialect,
    expected_objects,
    projection_statements,
    schema_flaws,
)
from turnlog.testing.harness import Places, Tally


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Give a database with the tables of a store that keeps a tally and places."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (*STATEMENTS, *projection_statements(Tally()), *projection_statements(Places())):
            connection.execute(statement)
        yield connection


def _flaws(connection: sqlite3.Connection) -> list[str]:
    return schema_flaws(expected_objects([Tally(), Places()]), connection.execute(OBJECTS).fetchall())


def test_new_store_has_no_flaws(connection: sqlite3.Connection) -> None:
    """What the statements make is what is expected."""
    assert _flaws(connection) == []


def test_tables_of_projections_are_kept_by_their_primary_key() -> None:
    """A projection says what both engines read; on SQLite a table without a row id is smaller and faster."""
    assert dialect("CREATE TABLE x (a TEXT PRIMARY KEY)") == "CREATE TABLE x (a TEXT PRIMARY KEY) WITHOUT ROWID"
    assert dialect("CREATE INDEX y ON x (a)") == "CREATE INDEX y ON x (a)"


@pytest.mark.parametrize("projection", [*synchronous(), Tally(), Places()], ids=lambda projection: projection.name)
def test_every_table_of_a_projection_has_a_primary_key(projection: Tally) -> None:
    """Its tables are those that it names, and its statements make nothing else but indexes on them."""
    objects = expected_objects([projection])
    own = {name: row for name, row in objects.items() if name not in expected_objects([])}
    assert {name for name, row in own.items() if row[0] == "table"} == set(projection.tables)
    assert {row[2] for row in own.values()} == set(projection.tables)
    assert {row[0] for row in own.values()} <= {"table", "index"}


@pytest.mark.parametrize("made", ["CREATE TABLE x (a TEXT)", "create table x (a text primary key)"])
def test_table_without_a_primary_key_is_refused(made: str) -> None:
    """Where the projection is written: each store would fail at it."""
    with pytest.raises(MetaError, match=r"'Broken': give .* begins with 'CREATE TABLE x \(' .* PRIMARY KEY") as caught:
        type("Broken", (Tally,), {"tables": ("x",), "schema": (made,)})
    assert caught.value.field == "schema"


_SWALLOW = "CREATE TRIGGER {name} BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END"


@pytest.mark.parametrize(
    ("statements", "flaws"),
    [
        (["DROP TRIGGER stored_events_no_delete"], ["trigger 'stored_events_no_delete' is missing"]),
        (["DROP INDEX stored_events_rare"], ["index 'stored_events_rare' is missing"]),
        (["DROP INDEX places_by_stream"], ["index 'places_by_stream' is missing"]),
        (["DROP TABLE tally"], ["table 'tally' is missing"]),
        (
            ["DROP TABLE places"],
            ["index 'places_by_stream' is missing", "table 'places' is missing"],
        ),
        (["DROP TABLE store_projections"], ["table 'store_projections' is missing"]),
        (
            [_SWALLOW.format(name="quiet", table="stored_events")],
            ["trigger 'quiet' on table 'stored_events' is none of turnlog's, and must be dropped"],
        ),
        (
            [_SWALLOW.format(name="quiet", table="tally")],
            ["trigger 'quiet' on table 'tally' is none of turnlog's, and must be dropped"],
        ),
        (
            ["CREATE TABLE notes (a)", _SWALLOW.format(name="quiet", table="notes")],
            ["trigger 'quiet' on table 'notes' is none of turnlog's, and must be dropped"],
        ),
        (
            ["CREATE VIEW v AS SELECT * FROM tally", "CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN SELECT 1; END"],
            ["trigger 't' on table 'v' is none of turnlog's, and must be dropped"],
        ),
        (
            ["DROP TRIGGER stored_events_no_delete", _SWALLOW.format(name="stored_events_no_delete", table="tally")],
            ["trigger 'stored_events_no_delete' is not what it should be"],
        ),
        (
            ["DROP INDEX stored_events_rare", "CREATE INDEX stored_events_rare ON stored_events (topic)"],
            ["index 'stored_events_rare' is not what it should be"],
        ),
        (
            ["CREATE UNIQUE INDEX once ON stored_events (topic)"],
            ["index 'once' on table 'stored_events' is none of turnlog's, and must be dropped"],
        ),
        (["ALTER TABLE tally ADD COLUMN more"], ["table 'tally' is not what it should be"]),
        (
            ["DROP TABLE tally", "CREATE VIEW tally AS SELECT topic, COUNT(*) AS events FROM stored_events"],
            ["table 'tally' is not what it should be"],
        ),
        (["CREATE TABLE notes (a)", "CREATE INDEX notes_a ON notes (a)", "CREATE VIEW v AS SELECT * FROM notes"], []),
        (["CREATE TABLE notes (a INTEGER PRIMARY KEY AUTOINCREMENT)"], []),
    ],
)
def test_flaws_are_named(connection: sqlite3.Connection, statements: list[str], flaws: list[str]) -> None:
    """What is missing, changed, or could change what is written is named; what is beside it is not."""
    for statement in statements:
        connection.execute(statement)
    found = _flaws(connection)
    assert [flaw.replace("view", "table") for flaw in found] == flaws


def test_statistics_of_sqlite_are_no_flaw(file_log: TurnLog, store_path: Path) -> None:
    """What SQLite keeps for itself, here after ANALYZE, does no harm."""
    file_log.add_turn("x")
    with closing(sqlite3.connect(store_path)) as connection:
        connection.execute("ANALYZE")
    assert file_log.store.check_schema() == []
    assert file_log.add_turn("y").global_position == 3
    assert file_log.store.unread() == []


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("PRAGMA application_id = 7", "application_id is 7"),
        (f"PRAGMA user_version = {VERSION + 1}", f"user_version is {VERSION + 1}, should be {VERSION}"),
        (f"PRAGMA user_version = {VERSION - 1}", f"user_version is {VERSION - 1}, should be {VERSION}"),
        ("DELETE FROM store_projections WHERE name = 'turn index'", "the store says that it has the projections"),
        ("UPDATE store_projections SET version = 9", "the store says that it has the projections"),
        ("INSERT INTO store_projections VALUES ('x', 1)", "the store says that it has the projections"),
    ],
)
def test_settings_that_are_not_as_they_should_be_are_named(
    file_log: TurnLog, poke: Callable[..., None], statement: str, says: str
) -> None:
    """What says of a file that it is a store, of which version, and with which projections, is checked too."""
    file_log.add_turn("x")
    assert file_log.store.check_schema() == []
    poke(statement)
    [flaw] = file_log.store.check_schema()
    assert says in flaw


def test_store_in_memory_has_no_flaws(log: TurnLog) -> None:
    """It has the same tables, and no journal on disk."""
    log.add_turn("x")
    assert log.store.check_schema() == []
    assert log.store.unread() == []


def test_trigger_of_an_open_store_is_noticed_at_the_next_write(
    file_log: TurnLog, poke: Callable[..., None], store_path: Path
) -> None:
    """The schema is looked at when it has changed: the writes before were sound, and the next is refused."""
    store: Store = file_log.store
    file_log.add_turn("x")
    for _ in range(3):
        poke(_SWALLOW.format(name="quiet", table="stored_events"))
        with pytest.raises(SchemaError, match=r"trigger 'quiet' .* none of turnlog's.*turnlog verify"):
            file_log.add_turn("y")
        assert [flaw.partition(": ")[0] for flaw in store.check_schema()] == ["the store's schema"]
        poke("DROP TRIGGER quiet")
        file_log.add_turn("z")
    assert [recorded.global_position for recorded in file_log.events()] == [1, 2, 3, 4, 5]
    assert file_log.verify().clean


def test_schema_is_looked_at_only_when_it_has_changed(
    file_log: TurnLog, poke: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write asks SQLite for one number; tables and triggers are compared when that is another one."""
    file_log.add_turn("x")
    statements: list[str] = []

    def watch(transaction: object) -> None:
        transaction._cursor.connection.set_trace_callback(statements.append)  # type: ignore[attr-defined]

    file_log.store.write(watch)
    file_log.add_turn("y")
    assert [statement for statement in statements if "sqlite_master" in statement] == []
    assert len([statement for statement in statements if "data_version" in statement]) == 1
    poke("CREATE TABLE notes (a)")
    file_log.add_turn("z")
    assert [statement for statement in statements if "sqlite_master" in statement] != []
