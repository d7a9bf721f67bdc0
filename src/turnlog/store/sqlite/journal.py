"""The journal that SQLite databases of turnlog have."""

from __future__ import annotations

import sqlite3
from time import monotonic, sleep

BUSY_SLEEP_S = 0.005


def write_ahead(connection: sqlite3.Connection, wait_s: float) -> None:
    """Give a database a write-ahead log, if it has none.

    SQLite does not wait for others when it changes the journal mode, whatever the connection's timeout is: who opens a
    new database while others do the same is told that it is locked.

    Args:
        connection: to the database, outside transactions.
        wait_s: how long to wait for others, in seconds.

    Raises:
        sqlite3.Error: it cannot be done; `SQLITE_BUSY` where others did not end in time.
    """
    until = monotonic() + wait_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
            sleep(BUSY_SLEEP_S)
