"""The table of an erasure that is not done, where turnlog did not write it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import TurnLog

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
