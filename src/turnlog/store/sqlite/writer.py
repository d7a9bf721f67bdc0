"""The one writer of a process: the connection that appends."""

from __future__ import annotations

import sqlite3

from eventsourcing.sqlite import SQLiteConnection

from turnlog.store.sqlite.connections import plain_cursor


class Writer:
    """The connection that appends, with a cursor that is given without any ado: `with writer as cursor: …`."""

    __slots__ = ("connection", "cursor")

    def __init__(self, connection: SQLiteConnection) -> None:
        """Take the connection."""
        self.connection = connection
        self.cursor = plain_cursor(connection)

    def __enter__(self) -> sqlite3.Cursor:
        """Give the cursor."""
        return self.cursor

    def __exit__(self, *_: object) -> None:
        """Do nothing: the connection stays open."""
