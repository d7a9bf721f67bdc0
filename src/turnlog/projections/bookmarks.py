"""Bookmark heads: the turn that each name points at. What an event does to a bookmark: see `moves`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import NamedTuple

import msgspec
from msgspec import Struct

from turnlog.errors import CorruptionError
from turnlog.events import BOOKMARK, TURN, Arrival, Recorded, may_name_head, meta_of, named_head
from turnlog.model import BookmarkMeta
from turnlog.projections.moves import AFTER_MARK, MARK, kept_head, kept_move, last_move
from turnlog.projections.turns import AFTER_ALL
from turnlog.store import FoldTransaction, ReadTransaction, SQLRow, SQLTransaction, SyncProjection, WriteTransaction
from turnlog.store.sealing import checked_seals

CLOSED = "sealed:"
"""What is shown for a name that cannot be read begins with this; its tag follows."""

_COLUMNS = "name, turn_id, moved_by"


class Bookmark(Struct, frozen=True, kw_only=True):
    """A name and the turn it points at: its head."""

    name: str
    turn: str


class MovedBookmark(Struct, frozen=True, kw_only=True):
    """A bookmark that was set, moved or taken away: the turn it was at, None for nowhere, and where it is now."""

    name: str
    before: str | None
    after: str | None


class BookmarkHeads(SyncProjection):
    """The head of every bookmark, and the id of the event that put it there."""

    name = "bookmark heads"
    version = 2
    tables = ("bookmarks",)
    schema = (
        "CREATE TABLE bookmarks ("
        "name TEXT PRIMARY KEY, turn_id TEXT NOT NULL, moved_by TEXT NOT NULL, set_by_event INTEGER NOT NULL)",
        # A turn that moved a bookmark names it. Only those that an event put on a turn need to be found from there.
        "CREATE INDEX bookmarks_set_on_turn ON bookmarks (turn_id) WHERE set_by_event = 1",
    )

    def reads_private(self, recorded: Recorded) -> bool:
        """Tell whether an event names a bookmark, or may."""
        if recorded.erased or recorded.arrival == Arrival.GUEST:
            return False
        topic = recorded.header.topic
        return topic == BOOKMARK or (topic == TURN and (recorded.damaged or kept_head(recorded) is not None))

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Move, rename or delete a bookmark. Guests move none, and what was erased says nothing.

        Of a sealed event the tags are folded, whether its key is here or not.
        """
        # First what can be told at a glance of most events: they are turns, and move none.
        if recorded.header.topic == TURN and recorded.sealed is None and not may_name_head(recorded):
            return
        move = kept_move(recorded)
        if move is None or move.to == move.name:
            return
        if move.turn is not None:
            transaction.run(
                "INSERT INTO bookmarks VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET turn_id = excluded.turn_id, moved_by = excluded.moved_by, set_by_event = excluded.set_by_event",
                (move.name, move.turn, recorded.header.id, int(recorded.header.topic == BOOKMARK)),
            )
        elif move.to is not None:
            # Where it was recorded the new name was free. Where it was restored it may not be.
            transaction.run(
                "DELETE FROM bookmarks WHERE name = ? AND EXISTS (SELECT 1 FROM bookmarks WHERE name = ?)",
                (move.to, move.name),
            )
            transaction.run(
                "UPDATE bookmarks SET name = ?, moved_by = ?, set_by_event = 1 WHERE name = ?",
                (move.to, recorded.header.id, move.name),
            )
        else:
            transaction.run("DELETE FROM bookmarks WHERE name = ?", (move.name,))

    def carry_over(
        self, target: SQLTransaction, before: SQLTransaction, damaged: Sequence[Recorded], erased: Sequence[Recorded]
    ) -> None:
        """Leave bookmarks where damaged events have put them, and those away that one may have taken away."""
        rows = before.rows("SELECT name, turn_id, moved_by, set_by_event FROM bookmarks")
        by = {recorded.header.id for recorded in damaged}
        for row in rows:
            if row[2] in by:
                target.run("DELETE FROM bookmarks WHERE name = ?", row[:1])
                target.run("INSERT INTO bookmarks VALUES (?, ?, ?, ?)", row)
        takes_away = any(each.header.topic == BOOKMARK and each.header.cited("turn") is None for each in damaged)
        # Only what a bookmark event has done comes back without it.
        if takes_away and not any(each.header.topic == BOOKMARK for each in erased):
            there = {row[0] for row in rows}
            for (name,) in target.rows("SELECT name FROM bookmarks"):
                if name not in there:
                    target.run("DELETE FROM bookmarks WHERE name = ?", (name,))


def moved_head(turn: Recorded) -> str | None:
    """Return the bookmark of this log that a turn moved; None where it moved none, and for a guest."""
    return None if turn.arrival == Arrival.GUEST else named_head(turn)


class KeptName(NamedTuple):
    """A bookmark as the table has it: its name or what stands for it, the turn, and the event that put it there."""

    name: str
    turn: str
    moved_by: str

    @property
    def is_sealed(self) -> bool:
        """Whether a tag stands for the name."""
        return self.name.startswith(MARK)


def kept(transaction: ReadTransaction, name: str) -> KeptName | None:
    """Return a bookmark as the table has it, or None if there is none of this name."""
    statement = f"SELECT {_COLUMNS} FROM bookmarks WHERE name = ?"
    found = _kept(transaction.rows(statement, (name,)))
    if not found and transaction.seals is not None and has_sealed(transaction):
        found = _kept(transaction.rows(statement, (MARK + checked_seals(transaction).tag("bookmark", name),)))
    return _settled(transaction, found[0]) if found else None


def _settled(transaction: ReadTransaction, found: KeptName) -> KeptName | None:
    """Return a bookmark as the events that are in the log have left it: see `ReadTransaction.unsettled`."""
    if found.moved_by not in transaction.unsettled():
        return found
    last = last_move(transaction, found.name, AFTER_ALL, kept_move)
    return None if last is None else KeptName(found.name, *last)


def head(transaction: ReadTransaction, name: str) -> str | None:
    """Return the id of the turn that a bookmark points at, or None if there is no such bookmark."""
    found = kept(transaction, name)
    return None if found is None else found.turn


def head_turn(transaction: ReadTransaction, name: str) -> Recorded | None:
    """Return the turn that a bookmark points at, or None if there is no such bookmark."""
    turn = head(transaction, name)
    return None if turn is None else transaction.event(turn)


def bookmark_at(transaction: WriteTransaction, turn: Recorded) -> str | None:
    """Return the bookmark that points at a turn: the one that it moved itself, else the one that was set last."""
    own = named_head(turn)
    if own is not None and head(transaction, own) == turn.header.id:
        return own
    if transaction.is_quiet_since(turn):  # no event has put one on it
        return None
    rows = transaction.rows(
        f"SELECT {_COLUMNS} FROM bookmarks WHERE turn_id = ? AND set_by_event = 1 ORDER BY name", (turn.header.id,)
    )
    found = _kept(rows)
    if not found:
        return None
    return _name(transaction, max(found, key=lambda each: _moved_at(transaction, each)))


def _moved_at(transaction: ReadTransaction, found: KeptName) -> int:
    event = transaction.event(found.moved_by)
    return 0 if event is None else event.global_position


def kept_heads(transaction: SQLTransaction) -> dict[str, str]:
    """Return the turn that each bookmark points at, by its name as the table has it."""
    return {each.name: each.turn for each in _kept(transaction.rows(f"SELECT {_COLUMNS} FROM bookmarks"))}


def all_bookmarks(transaction: ReadTransaction) -> list[Bookmark]:
    """Return every bookmark, by name. One whose name is sealed, and its key is not here, has its tag for a name."""
    rows = _kept(transaction.rows(f"SELECT {_COLUMNS} FROM bookmarks ORDER BY name"))
    found = [settled for each in rows if (settled := _settled(transaction, each)) is not None]
    named = [
        Bookmark(name=_name(transaction, each) or f"{CLOSED}{each.name.removeprefix(MARK)}", turn=each.turn)
        for each in found
    ]
    return sorted(named, key=lambda bookmark: bookmark.name) if any(each.is_sealed for each in found) else named


def bookmarks_beginning(transaction: ReadTransaction, start: str, limit: int) -> list[Bookmark]:
    """Return bookmarks whose names begin with a text, by name: at most so many are looked at."""
    if has_sealed(transaction):  # tags tell nothing of how a name begins
        return [each for each in all_bookmarks(transaction) if each.name.startswith(start)][:limit]
    rows = _kept(
        transaction.rows(f"SELECT {_COLUMNS} FROM bookmarks WHERE name >= ? ORDER BY name LIMIT ?", (start, limit))
    )
    begun = takewhile(lambda each: each.name.startswith(start), rows)
    return [Bookmark(name=each.name, turn=each.turn) for found in begun if (each := _settled(transaction, found))]


def bookmarks_like(transaction: ReadTransaction, pattern: str) -> list[Bookmark]:
    """Return the bookmarks whose names fit a pattern (`*`, `?`, `[…]`), by name. One without any is looked up."""
    if set(pattern) & set("*?[") or pattern.startswith(CLOSED) or not pattern.isprintable():
        return [each for each in all_bookmarks(transaction) if fnmatchcase(each.name, pattern)]
    turn = head(transaction, pattern)
    return [] if turn is None else [Bookmark(name=pattern, turn=turn)]


def _name(transaction: ReadTransaction, found: KeptName) -> str | None:
    """Return the name of a bookmark; None where it is sealed, and its key is not here."""
    if not found.is_sealed:
        return found.name
    event = transaction.event(found.moved_by)
    if event is None or event.unreadable:
        return None
    if event.header.topic == TURN:
        return named_head(event)
    meta = meta_of(event, BookmarkMeta)
    return meta.name if meta.to is None else meta.to


def has_sealed(transaction: ReadTransaction) -> bool:
    """Tell whether there are bookmarks whose names are sealed."""
    return bool(transaction.rows("SELECT 1 FROM bookmarks WHERE name >= ? AND name < ? LIMIT 1", (MARK, AFTER_MARK)))


def _kept(rows: list[SQLRow]) -> list[KeptName]:
    """Return rows of the table as such.

    Raises:
        CorruptionError: one has something else.
    """
    try:
        return msgspec.convert(rows, list[KeptName])
    except msgspec.ValidationError as error:
        raise CorruptionError("the bookmark heads are damaged: run `turnlog verify`") from error
