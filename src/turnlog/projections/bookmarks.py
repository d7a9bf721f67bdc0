"""Bookmark heads: the turn that each name points at."""

from __future__ import annotations

from msgspec import UNSET, Struct

from turnlog.errors import CorruptionError
from turnlog.events import BOOKMARK, TURN, Arrival, Recorded, meta_of, named_head
from turnlog.model import BookmarkMeta
from turnlog.store import FoldTransaction, ReadTransaction, SQLRow, SQLTransaction, SyncProjection


class Bookmark(Struct, frozen=True, kw_only=True):
    """A name and the turn it points at: its head."""

    name: str
    turn: str


class BookmarkHeads(SyncProjection):
    """The head of every bookmark, and the global position of the event that put it there."""

    name = "bookmark heads"
    tables = ("bookmarks",)
    schema = (
        "CREATE TABLE bookmarks ("
        "name TEXT PRIMARY KEY, turn_id TEXT NOT NULL, moved_at BIGINT NOT NULL, set_by_event INTEGER NOT NULL)",
        # A turn that moved a bookmark names it. Only those that an event put on a turn need to be found from there.
        "CREATE INDEX bookmarks_set_on_turn ON bookmarks (turn_id) WHERE set_by_event = 1",
    )

    def reads_private(self, recorded: Recorded) -> bool:
        """Tell whether an event names a bookmark."""
        if recorded.erased or recorded.arrival == Arrival.GUEST:
            return False
        topic = recorded.header.topic
        return topic == BOOKMARK or (topic == TURN and named_head(recorded) is not None)

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Move, rename or delete a bookmark. Guests move none, and what was erased says nothing."""
        if recorded.erased or recorded.arrival == Arrival.GUEST:
            return
        at = recorded.global_position
        if recorded.header.topic == TURN:
            if (name := named_head(recorded)) is not None:
                _move(transaction, name, recorded.header.id, at, set_by_event=0)
        elif recorded.header.topic == BOOKMARK:
            _apply_event(transaction, meta_of(recorded, BookmarkMeta), at)


def _apply_event(transaction: SQLTransaction, meta: BookmarkMeta, at: int) -> None:
    match meta.action:
        case "set" if meta.turn is not UNSET:
            _move(transaction, meta.name, meta.turn, at, set_by_event=1)
        case "rename" if meta.to is not UNSET:
            if meta.to == meta.name:
                return
            # Where it was recorded the new name was free. Where it was restored it may not be.
            transaction.run(
                "DELETE FROM bookmarks WHERE name = ? AND EXISTS (SELECT 1 FROM bookmarks WHERE name = ?)",
                (meta.to, meta.name),
            )
            transaction.run(
                "UPDATE bookmarks SET name = ?, moved_at = ?, set_by_event = 1 WHERE name = ?",
                (meta.to, at, meta.name),
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
    rows = _texts(transaction.rows("SELECT turn_id FROM bookmarks WHERE name = ?", (name,)))
    return rows[0][0] if rows else None


def head_turn(transaction: ReadTransaction, name: str) -> Recorded | None:
    """Return the turn that a bookmark points at, or None if there is no such bookmark."""
    turn = head(transaction, name)
    return None if turn is None else transaction.event(turn)


def bookmark_at(transaction: ReadTransaction, turn: Recorded) -> str | None:
    """Return the bookmark that points at a turn: the one that it moved itself, else the one that was set last."""
    own = named_head(turn)
    if own is not None and head(transaction, own) == turn.header.id:
        return own
    rows = _texts(
        transaction.rows(
            "SELECT name FROM bookmarks WHERE turn_id = ? AND set_by_event = 1 ORDER BY moved_at DESC, name LIMIT 1",
            (turn.header.id,),
        )
    )
    return rows[0][0] if rows else None


def all_bookmarks(transaction: SQLTransaction) -> list[Bookmark]:
    """Return every bookmark, by name."""
    return [
        Bookmark(name=name, turn=turn)
        for name, turn in _texts(transaction.rows("SELECT name, turn_id FROM bookmarks ORDER BY name"))
    ]


def _texts(rows: list[SQLRow]) -> list[tuple[str, ...]]:
    """Return rows of texts as such.

    Raises:
        CorruptionError: one has something else.
    """
    if not all(isinstance(value, str) for row in rows for value in row):
        raise CorruptionError("the bookmark heads are damaged: run `turnlog verify`")
    return rows
