"""The index of rare topics: pointers and the like are found without walking through the log."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import SchemaError
from turnlog.store.sqlite import SQLiteStore


def plans(log: TurnLog, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object]) -> str:
    """Return how SQLite answers what is asked."""
    assert isinstance(log.store, SQLiteStore)
    found: list[str] = []
    with log.store.read() as transaction:
        rows = type(transaction).rows

        def explained(self: object, statement: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
            found.extend(str(row) for row in rows(self, f"EXPLAIN QUERY PLAN {statement}", parameters))
            return rows(self, statement, parameters)

        monkeypatch.setattr(type(transaction), "rows", explained)
    ask()
    return "\n".join(found)


def test_rare_topics_are_found_by_the_index(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all pointers does not look at the turns."""
    log.add_turn("x")
    log.pointers.set("a", "p", "m")
    plan = plans(log, monkeypatch, log.pointers.all)
    assert "USING INDEX stored_events_rare" in plan
    assert "SCAN stored_events" not in plan
    assert [pointer.name for pointer in log.pointers.all()] == ["a"]


def test_last_event_of_a_rare_topic_is_found_by_the_index(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that of a frequent one by walking back, which ends soon."""
    log.bookmarks.set("a", log.add_turn("x").id)

    def ask() -> None:
        with log.store.read() as transaction:
            assert transaction.last("gpt.bookmark") is not None

    assert "USING INDEX stored_events_rare" in plans(log, monkeypatch, ask)


def test_events_of_several_topics_come_in_global_order(log: TurnLog) -> None:
    """Whichever way SQLite finds them, page by page."""
    turn = log.add_turn("x").id
    for number in range(20):
        log.pointers.set(f"p{number}", "p", "m")
        log.bookmarks.set(f"b{number}", turn)
    rare = [event.global_position for event in log.events(topics=["gpt.pointer", "gpt.bookmark"])]
    assert rare == list(range(3, 43))
    assert [event.global_position for event in log.events(after=40, topics=["gpt.pointer", "gpt.bookmark"])] == [41, 42]
    mixed = [event.global_position for event in log.events(topics=["gpt.turn", "gpt.pointer"])]
    assert mixed == [2, *range(3, 43, 2)]


def test_store_without_the_index_is_read_and_gets_it_back(file_log: TurnLog, store_path: Path) -> None:
    """Who takes it away is found out, and a rebuild brings it back; nothing of the log changes."""
    file_log.pointers.set("a", "p", "m")
    file_log.close()
    with closing(sqlite3.connect(store_path)) as database:
        database.execute("DROP INDEX stored_events_rare")
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        assert log.pointers.get("a").model == "m"
        assert [damage.what for damage in log.verify().damage] == [
            "the store's schema: index 'stored_events_rare' is missing"
        ]
        with pytest.raises(SchemaError, match="index 'stored_events_rare' is missing"):
            log.add_turn("x")
        log.store.rebuild()
        assert log.verify().clean
        assert log.add_turn("x").global_position == 3
    with closing(sqlite3.connect(store_path)) as database:
        assert database.execute("SELECT 1 FROM sqlite_master WHERE name = 'stored_events_rare'").fetchall() == [(1,)]
