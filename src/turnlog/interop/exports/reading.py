"""What an export is made of, and what it comes out as."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable
from typing import BinaryIO

from msgspec import Struct

from turnlog.events import TURN, turn_meta
from turnlog.log import TurnLog
from turnlog.model import LossReport, decode_content
from turnlog.model.binary_files import whole_writes
from turnlog.model.blocks import Block, malformed_texts
from turnlog.model.long_strings import LongStrings, json_pieces
from turnlog.model.marked_blocks import LongKind, marked_texts
from turnlog.model.pieces import PIECE
from turnlog.record.lookup import find_event
from turnlog.turn import Turn


class MarkedLog(TurnLog):
    """A log to read, with marks in place of the long texts of its turns: in Python they can have four times their size.

    Attributes:
        long: these texts. Who writes what was made of the turns writes it with them.
    """

    def __init__(self, log: TurnLog, *, also: Collection[LongKind] = ("thoughts", "results", "documents")) -> None:
        """Read a log, whose store stays the other's to close.

        Args:
            log: the log.
            also: what has marks beside texts: see `marked_texts`.
        """
        super().__init__(log.store)
        self.long = LongStrings()
        self._also = also
        self._marked: dict[str, bytes] = {}

    def payload(self, headish: str) -> bytes:
        """Return the payload of a turn with marks in place of its long texts, and other payloads as they are.

        A text has the same mark whenever it is read.

        Raises:
            ContentError: a text is malformed.
            UnknownTurnError, ErasedError, CorruptionError: as `TurnLog.payload` raises them.
        """
        if headish in self._marked:
            return self._marked[headish]
        payload = super().payload(headish)
        if len(payload) <= PIECE:
            return payload
        with self.store.read() as transaction:
            recorded = find_event(transaction, headish)
        if recorded.header.topic != TURN or turn_meta(recorded).type == "document":
            return payload
        known = len(self.long)
        marked = marked_texts(payload, self.long, self._also)
        with malformed_texts():
            self.long.check(known)
        if marked is not payload:
            self._marked[recorded.header.id] = marked
        return marked


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
        writer: writes it to a file. It may read what is to be written only then, and raises what that raises.
        turns: number of turns in it.
        losses: what the form has no place for.
    """

    writer: Callable[[BinaryIO], object]
    turns: int
    losses: LossReport = LossReport()

    def write(self, file: BinaryIO) -> None:
        """Write it to a file that is open for bytes, which may take less at a time than it is given.

        Raises:
            MetaError: it is no file that is open for bytes.
            BlockingIOError: it has no buffer, does not block, and takes no more for now.
        """
        self.writer(whole_writes(file))

    @property
    def content(self) -> bytes:
        """What is written, as a whole."""
        file = io.BytesIO()
        self.write(file)
        return file.getvalue()


def read(log: TurnLog, turns: Iterable[Turn]) -> list[Said]:
    """Return what turns say."""
    return [said_of(log, turn) for turn in turns]


def json_writer(value: object, long: LongStrings | None = None) -> Callable[[BinaryIO], object]:
    """Return what writes a value as JSON for people: indented, with a line feed at its end.

    Args:
        value: the value.
        long: the long texts whose marks stand in it.
    """

    def write(file: BinaryIO) -> None:
        file.writelines(json_pieces(value, indent=2, said=long))
        file.write(b"\n")

    return write


def said_of(log: TurnLog, turn: Turn) -> Said:
    """Return what a turn says."""
    if turn.erased or turn.closed:
        return Said(turn=turn)
    if turn.meta.type == "document":
        return Said(turn=turn, document=log.payload(turn.id))
    return Said(turn=turn, blocks=tuple(decode_content(log.payload(turn.id))))
