"""What an export is made of, and what it comes out as."""

from __future__ import annotations

from msgspec import Struct

from turnlog.log import TurnLog
from turnlog.model import LossReport, decode_content
from turnlog.model.blocks import Block
from turnlog.turn import Turn


class Said(Struct, frozen=True, kw_only=True):
    """A turn and what it says.

    Attributes:
        turn: the turn.
        blocks: its content; empty for a document, and where it is erased or closed.
        document: the bytes of a document; None for what is none, or is erased or closed.
    """

    turn: Turn
    blocks: tuple[Block, ...] = ()
    document: bytes | None = None


class Exported(Struct, frozen=True, kw_only=True):
    """An export.

    Attributes:
        content: what is to be written.
        turns: number of turns in it.
        losses: what the form has no place for.
    """

    content: bytes
    turns: int
    losses: LossReport = LossReport()


def read(log: TurnLog, headish: str) -> list[Said]:
    """Return a turn and its ancestry, oldest first, failed turns included.

    Raises:
        UnknownTurnError: there is no such turn.
    """
    return [said_of(log, turn) for turn in log.ancestry(headish)]


def said_of(log: TurnLog, turn: Turn) -> Said:
    """Return what a turn says."""
    if turn.erased or turn.closed:
        return Said(turn=turn)
    if turn.meta.type == "document":
        return Said(turn=turn, document=log.payload(turn.id))
    return Said(turn=turn, blocks=tuple(decode_content(log.payload(turn.id))))
