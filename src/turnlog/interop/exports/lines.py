"""JSON lines for other programs: a turn a line, with its content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnlog.interop.exports.reading import Exported
from turnlog.log import TurnLog
from turnlog.model.pieces import base64_pieces, byte_pieces
from turnlog.turn import Turn


def json_lines(log: TurnLog, headish: str, turns: Sequence[Turn]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a line for each turn: the turn, and `content` as blocks, or `document` in base64.

    Erased turns have neither.
    """

    def pieces() -> Iterator[bytes]:
        for turn in turns:
            yield from _line(log, turn)

    return Exported(writer=lambda file: file.writelines(pieces()), turns=len(turns))


def _line(log: TurnLog, turn: Turn) -> Iterator[bytes]:
    record = msgspec.json.encode(turn.to_record())
    if turn.erased or turn.closed:
        yield record + b"\n"
        return
    payload = log.payload(turn.id)
    if turn.meta.type == "document":
        yield record[:-1] + b',"document":"'
        yield from base64_pieces(byte_pieces(payload))
        yield b'"}\n'
    else:
        yield record[:-1] + b',"content":'
        yield payload
        yield b"}\n"
