"""What an event does to a bookmark: the one reading of it, with names as they were said, and as the index has them.

The names that sealed events give stand in the index as tags, so that it tells nobody of them, and can be built anew and
compared without any key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from turnlog.errors import CorruptionError
from turnlog.events import BOOKMARK, TURN, Arrival, Recorded, meta_of, named_head
from turnlog.model import BookmarkMeta
from turnlog.store import ReadTransaction

MARK, AFTER_MARK = "\x1f", "\x20"
"""What a tag in the index begins with. No name has it: names are printable."""

_public = msgspec.json.Decoder(dict[str, Any])


class Move(NamedTuple):
    """What becomes of the bookmark `name`: it is at `turn`, or has the name `to`. With neither it is gone."""

    name: str
    turn: str | None = None
    to: str | None = None

    @property
    def placed(self) -> str | None:
        """The name that is on a turn by it; None where one is gone."""
        return self.to or (None if self.turn is None else self.name)


def said_move(recorded: Recorded, *, guests: bool = False) -> Move | None:
    """Return what an event does to a bookmark; None for nothing, and where it cannot be read.

    Args:
        recorded: the event.
        guests: what guests do to bookmarks of their own log, too. Of this one they move none.

    Raises:
        CorruptionError: it is damaged.
    """
    if recorded.unreadable or (recorded.arrival == Arrival.GUEST and not guests):
        return None
    if recorded.header.topic == TURN:
        return _of_turn(recorded, named_head(recorded))
    return _of_event(meta_of(recorded, BookmarkMeta)) if recorded.header.topic == BOOKMARK else None


def kept_move(recorded: Recorded, *, guests: bool = False) -> Move | None:
    """Return the same with names as the index has them, for which no key is needed; None for what was erased."""
    if recorded.erased or recorded.damaged or (recorded.arrival == Arrival.GUEST and not guests):
        return None
    if recorded.header.topic == TURN:
        return _of_turn(recorded, kept_head(recorded))
    return _of_event(_kept_meta(recorded)) if recorded.header.topic == BOOKMARK else None


def kept_head(turn: Recorded) -> str | None:
    """Return the bookmark that a turn moves, as the index has its name; None where it moves none."""
    if turn.sealed is None:
        return named_head(turn)
    tag = turn.sealed.tags.get("head")
    return None if tag is None else MARK + tag


def last_move(
    transaction: ReadTransaction, name: str, before: int, move_of: Callable[[Recorded], Move | None]
) -> tuple[str, str] | None:
    """Return the turn that a bookmark of this log was at before an event, and the id of what put or named it so; None
    where there was none of this name.

    Reads the log backwards, through renames: for rare questions about the past.

    Args:
        transaction: a read transaction.
        name: the name.
        before: the global position of the event.
        move_of: how events are read: `said_move` or `kept_move`, by what kind of name is given.
    """
    asked: list[tuple[str, int, str | None]] = [(name, before, None)]
    while asked:
        name, before, named_by = asked.pop()
        for recorded in transaction.log_backwards(before, topics=(TURN, BOOKMARK)):
            move = move_of(recorded)
            if move is None:
                continue
            if move.to == name:
                # If there was none to be renamed, as in a restored log, this name is where it was before.
                asked.append((name, recorded.global_position, named_by))
                name, named_by = move.name, named_by or recorded.header.id
            elif move.name == name:
                if move.turn is not None:
                    return move.turn, named_by or recorded.header.id
                break
    return None


def _of_turn(turn: Recorded, name: str | None) -> Move | None:
    return None if name is None else Move(name, turn=turn.header.id)


def _of_event(meta: BookmarkMeta) -> Move | None:
    match meta:
        case BookmarkMeta(action="set", turn=str(turn)):
            return Move(meta.name, turn=turn)
        case BookmarkMeta(action="rename", to=str(to)):
            return Move(meta.name, to=to)
        case BookmarkMeta(action="delete"):
            return Move(meta.name)
        case _:  # it says too little, as nobody records it
            return None


def _kept_meta(recorded: Recorded) -> BookmarkMeta:
    """Return what a bookmark event says, with names as the index has them."""
    if recorded.sealed is None:
        return meta_of(recorded, BookmarkMeta)
    tags = {field: MARK + tag for field, tag in recorded.sealed.tags.items()}
    turn = recorded.header.cited("turn")
    try:
        public = _public.decode(recorded.header.meta)
        return msgspec.convert(public | tags | ({} if turn is None else {"turn": turn}), BookmarkMeta)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"bookmark event {recorded.header.id!r} does not show what it sets") from error
