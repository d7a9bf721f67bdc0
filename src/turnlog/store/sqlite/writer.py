"""The one writer of a process: the connection that appends, and what it knows of the log between two transactions."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict

from eventsourcing.sqlite import SQLiteConnection

from turnlog.events import Recorded
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


class Knowledge:
    """What a writer knows of the log from one transaction to the next, as long as nobody else writes."""

    __slots__ = ("begun", "heads", "quiet_since", "recent")

    def __init__(self) -> None:
        """Begin without knowing anything."""
        self.begun = False
        """Whether the log has events."""
        self.quiet_since: int | None = None
        """All above this global position was recorded here, and is of frequent topics. None: not known."""
        self.heads: dict[str, Recorded] = {}
        """See `turnlog.store.interface.WriteTransaction.heads`."""
        self.recent: OrderedDict[str, Recorded] = OrderedDict()
        """The last events that were recorded here, by id: they never change, but that they are erased."""

    def forget(self) -> None:
        """Know nothing of what others can change."""
        self.begun = False
        self.quiet_since = None
        self.heads.clear()
