"""Single events of a store, edited behind turnlog's back by their ids."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.faults import hostile
from tests.faults.hostile import opened as without_triggers

__all__ = ["erase", "position", "rewrite", "without_triggers"]


def rewrite(
    path: Path,
    event_id: str,
    *,
    header: hostile.Change | None = None,
    private: hostile.Change | None = None,
    payload: bytes | None = None,
) -> None:
    """Rewrite an event so that it is consistent in itself. What cites it cites what it was.

    Args:
        path: the file of the store.
        event_id: the event.
        header: changes the decoded header in place.
        private: changes the decoded private part in place.
        payload: the new payload.
    """
    hostile.rewrite(path, position(path, event_id), header=header, private=private, payload=payload)


def erase(path: Path, event_id: str) -> None:
    """Set the private part and the payload of an event aside, as erasing does, without an event that says so."""
    at = position(path, event_id)
    hostile.run_sql(
        path,
        f"UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE notification_id = {at}",
    )


def position(path: Path, event_id: str) -> int:
    """Return the global position of an event."""
    with closing(sqlite3.connect(path)) as connection:
        [(at,)] = connection.execute("SELECT notification_id FROM stored_events WHERE event_id = ?", (event_id,))
    return at
