"""The table of an erasure that is not done: where turnlog did not write it, and where two finish it at a time."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.store.sqlite.erasing import scrub

TABLE = "CREATE TABLE store_scrubs (erased_to INTEGER NOT NULL, is_rewritten INTEGER NOT NULL)"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("CREATE TABLE store_scrubs (x)", "table 'store_scrubs' is not what it should be"),
        (TABLE.lower(), "table 'store_scrubs' is not what it should be"),
        ("CREATE VIEW store_scrubs AS SELECT 1", "view 'store_scrubs' is not what it should be"),
        (TABLE, "table 'store_scrubs' has no row"),
        (f"{TABLE}; INSERT INTO store_scrubs VALUES (1, 0), (2, 0)", "table 'store_scrubs' has more than one row"),
        (f"{TABLE}; INSERT INTO store_scrubs VALUES ('x', 0)", "does not say how far an erasure is"),
        (f"{TABLE}; INSERT INTO store_scrubs VALUES (2, 'x')", "does not say how far an erasure is"),
    ],
)
def test_table_that_is_no_erasures_is_damage(tmp_path: Path, statements: str, message: str) -> None:
    """It keeps nobody from opening the store, and the next erasure puts its own in its place."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        turn = log.add_turn("said")
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        connection.executescript(statements)
    with TurnLog.open(url) as log:
        damage = [damage.what for damage in log.verify().damage]
        assert len(damage) == 1
        assert message in damage[0]
        assert log.verify().others == ()
        assert log.finish_erasing() is None
        if "VIEW" not in statements:
            assert log.erase(turn=turn.id, reason="asked").remains is None
            assert log.verify().damage == ()


def _meeting(path: Path, at_step: int) -> tuple[str | None, bool]:
    """Finish an erasure while somebody else does all of that at a step; return what remains, and whether it was met."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{TABLE}; INSERT INTO store_scrubs VALUES (2, 0)")
    steps = 0

    def step(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at_step:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                scrub(other, path, "log.db", 0)

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.set_trace_callback(step)
        return scrub(connection, path, "log.db", 0), steps >= at_step


def test_two_that_finish_an_erasure_at_a_time_tell_that_nothing_remains(tmp_path: Path) -> None:
    """At whatever statement the one is done with it, the other finds nothing that is left to do."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("said")
    at_step, met = 0, True
    while met:
        at_step += 1
        remains, met = _meeting(path, at_step)
        assert remains is None, f"at step {at_step}"
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store_scrubs'").fetchall() == []
    assert at_step > 10
