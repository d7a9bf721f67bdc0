"""What an export is made of, and what it comes out as."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import BinaryIO

from msgspec import Struct

from turnlog.log import TurnLog
from turnlog.model import LossReport, decode_content
from turnlog.model.blocks import Block
from turnlog.model.long_strings import json_pieces
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
    """An export. A long text of it is written in pieces, and is not there a second time.

    Attributes:
        write: writes it to a file. It may read what is to be written only then, and raises what that raises.
        turns: number of turns in it.
        losses: what the form has no place for.
    """

    write: Callable[[BinaryIO], object]
    turns: int
    losses: LossReport = LossReport()

    @property
    def content(self) -> bytes:
        """What is written, as a whole."""
        file = io.BytesIO()
        self.write(file)
        return file.getvalue()


def read(log: TurnLog, turns: Iterable[Turn]) -> list[Said]:
    """Return what turns say."""
    return [said_of(log, turn) for turn in turns]


def json_writer(value: object) -> Callable[[BinaryIO], object]:
    """Return what writes a value as JSON for people: indented, with a line feed at its end."""

    def write(file: BinaryIO) -> None:
        file.writelines(json_pieces(value, indent=2))
        file.write(b"\n")

    return write


def said_of(log: TurnLog, turn: Turn) -> Said:
    """Return what a turn says."""
    if turn.erased or turn.closed:
        return Said(turn=turn)
    if turn.meta.type == "document":
        return Said(turn=turn, document=log.payload(turn.id))
    return Said(turn=turn, blocks=tuple(decode_content(log.payload(turn.id))))
