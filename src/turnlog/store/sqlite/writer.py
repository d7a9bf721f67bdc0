"""The one writer of a process: the connection that appends."""

from __future__ import annotations

import sqlite3


class Writer:
    """The connection that appends, with a cursor that is given without any ado: `with writer as cursor: …`."""

    __slots__ = ("connection", "cursor")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take the connection."""
        self.connection = connection
        self.cursor = connection.cursor()

    def __enter__(self) -> sqlite3.Cursor:
        """Give the cursor."""
        return self.cursor

    def __exit__(self, *_: object) -> None:
        """Do nothing: the connection stays open."""
