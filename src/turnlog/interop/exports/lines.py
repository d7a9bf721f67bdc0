"""JSON lines for other programs: a turn a line, with its content."""

from __future__ import annotations

from base64 import b64encode

import msgspec
from msgspec import Raw

from turnlog.interop.exports.reading import Exported, Said
from turnlog.log import TurnLog


def json_lines(log: TurnLog, headish: str, said: list[Said]) -> Exported:  # noqa: ARG001 - as all forms
    """Return a line for each turn: the turn, and `content` as blocks, or `document` in base64.

    Erased turns have neither.
    """
    lines: list[bytes] = []
    for each in said:
        record = each.turn.to_record()
        if each.document is not None:
            record["document"] = b64encode(each.document).decode()
        elif not (each.turn.erased or each.turn.closed):
            record["content"] = Raw(log.payload(each.turn.id))
        lines.append(msgspec.json.encode(record) + b"\n")
    return Exported(content=b"".join(lines), turns=len(said))
