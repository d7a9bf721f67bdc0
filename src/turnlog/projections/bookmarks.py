"""Bookmark heads: the turn that each name points at."""

from __future__ import annotations

from msgspec import UNSET, Struct

from turnlog.events import BOOKMARK, TURN, Event, Recorded, bookmark_meta, decode, turn_meta
from turnlog.store import ReadTransaction, SQLTransaction, SyncProjection


class Bookmark(Struct, frozen=True, kw_only=True):
    """A name and the turn it points at: its head."""

    name: str
    turn: str


class BookmarkHeads(SyncProjection):
    """The head of every bookmark, and the global position of the event that put it there."""

    name = "bookmark heads"
    tables = ("bookmarks",)
    schema = (
        "CREATE TABLE IF NOT EXISTS bookmarks ("
        " name TEXT PRIMARY KEY, turn_id TEXT NOT NULL, moved_at INTEGER NOT NULL, set_by_event INTEGER NOT NULL)"
        " WITHOUT ROWID",
        # A turn that moved a bookmark names it. Only those that an event put on a turn need to be found from there.
        "CREATE INDEX IF NOT EXISTS bookmarks_set_on_turn ON bookmarks (turn_id) WHERE set_by_event = 1",
    )

    def apply(self, transaction: SQLTransaction, event: Event, global_position: int) -> None:
        """Move, rename or delete a bookmark."""
        if event.topic == TURN:
            head = turn_meta(event).head
            if isinstance(head, str):
                _move(transaction, head, event.id, global_position, set_by_event=0)
        elif event.topic == BOOKMARK:
            meta = bookmark_meta(event)
            match meta.action:
                case "set" if meta.turn is not UNSET:
                    _move(transaction, meta.name, meta.turn, global_position, set_by_event=1)
                case "rename" if meta.to is not UNSET:
                    # Where it was recorded the new name was free. Where it is imported it may not be.
                    transaction.run(
                        "DELETE FROM bookmarks WHERE name = ? AND EXISTS (SELECT 1 FROM bookmarks WHERE name = ?)",
                        (meta.to, meta.name),
                    )
                    transaction.run(
                        "UPDATE bookmarks SET name = ?, moved_at = ?, set_by_event = 1 WHERE name = ?",
                        (meta.to, global_position, meta.name),
                    )
                case _:
                    transaction.run("DELETE FROM bookmarks WHERE name = ?", (meta.name,))


def _move(transaction: SQLTransaction, name: str, turn_id: str, at: int, *, set_by_event: int) -> None:
    transaction.run(
        "INSERT INTO bookmarks VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET turn_id = excluded.turn_id, moved_at = excluded.moved_at, set_by_event = excluded.set_by_event",
        (name, turn_id, at, set_by_event),
    )


def head(transaction: ReadTransaction, name: str) -> str | None:
    """Return the id of the turn that a bookmark points at, or None if there is no such bookmark."""
    rows = transaction.rows("SELECT turn_id FROM bookmarks WHERE name = ?", (name,))
    return rows[0][0] if rows else None


def head_turn(transaction: ReadTransaction, name: str) -> Recorded | None:
    """Return the turn that a bookmark points at, or None if there is no such bookmark."""
    rows = transaction.rows(
        "SELECT notification_id, state FROM stored_events"
        " WHERE event_id = (SELECT turn_id FROM bookmarks WHERE name = ?)",
        (name,),
    )
    if not rows:
        return None
    [(global_position, state)] = rows
    return Recorded(global_position=global_position, state=state, event=decode(state, global_position=global_position))


def bookmark_at(transaction: ReadTransaction, turn: Event) -> str | None:
    """Return the bookmark that points at a turn: the one that it moved itself, else the one that was set last."""
    own = turn_meta(turn).head
    if isinstance(own, str) and head(transaction, own) == turn.id:
        return own
    rows = transaction.rows(
        "SELECT name FROM bookmarks WHERE turn_id = ? AND set_by_event = 1 ORDER BY moved_at DESC, name LIMIT 1",
        (turn.id,),
    )
    return rows[0][0] if rows else None


def all_bookmarks(transaction: ReadTransaction) -> list[Bookmark]:
    """Return every bookmark, by name."""
    return [
        Bookmark(name=name, turn=turn)
        for name, turn in transaction.rows("SELECT name, turn_id FROM bookmarks ORDER BY name")
    ]
