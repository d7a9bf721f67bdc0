"""SQLite databases of somebody else's: looked at, and never written to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from turnlog.store.sqlite.schema import APPLICATION_ID

_OPENCODE = {"session", "message", "part"}
"""Tables of the database of OpenCode, from version 1.2 on."""


def opened(path: Path) -> sqlite3.Connection:
    """Open a database so that nothing is written, no lock and no journal either.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def tables_of(path: Path) -> frozenset[str]:
    """Return the names of the tables of a database; none where it cannot be read."""
    return frozenset(name for (name,) in _asked(path, "SELECT name FROM sqlite_master WHERE type = 'table'"))


def no_transcript(path: Path) -> str:
    """Return what a database is that cannot be imported, and what can be done with it."""
    if _asked(path, "PRAGMA application_id") == [(APPLICATION_ID,)]:
        return "is a store of turnlog: `turnlog copy SOURCE TARGET` makes another one of it"
    if tables_of(path) >= _OPENCODE:
        return (
            "is the database of OpenCode, which cannot be read yet: `opencode export SESSION > FILE` writes a session "
            "of it that can be imported"
        )
    return "is an SQLite database, and not one of llm"


def _asked(path: Path, question: str) -> list[tuple[Any, ...]]:
    try:
        with closing(opened(path)) as connection:
            return connection.execute(question).fetchall()
    except (sqlite3.Error, OSError, ValueError):
        return []
