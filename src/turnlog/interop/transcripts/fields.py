"""Reading fields of JSON texts, and taking parts of them: what all formats need."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnlog.interop.marked import begins
from turnlog.interop.transcripts.transcript import Given
from turnlog.model.json_text import UNREADABLE
from turnlog.model.pieces import check_utf8

Fields = dict[str, Raw]

_record = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])


def fields(raw: Raw | None) -> Fields:
    """Return the fields of a JSON object; none where it is something else."""
    return _record.decode(raw) if begins(raw, b"{") else {}


def record_in(line: bytes) -> Fields:
    """Return the fields of a JSON object in somebody else's bytes; none where they are damaged, or something else."""
    try:
        check_utf8(line)  # what stands in fields is not looked at before it is asked for
        return _record.decode(line)
    except UNREADABLE:
        return {}


def items(raw: Raw | None) -> list[Raw]:
    """Return the items of a JSON list; none where it is something else."""
    return _list.decode(raw) if begins(raw, b"[") else []


def part_of(given: Given, at: str, text: bytes) -> Given:
    """Return a part of a text as a text of its own, with the findings in it. `at` is where it stands."""
    return Given(place=given.place, text=text, findings=given.findings_in(at))


def rest_of(given: Given, text: bytes, *, apart: str) -> Given:
    """Return a text without parts that are texts of their own, and their findings. `apart` is where these stand."""
    own = [(field, kind) for field, kind in given.findings if not field.startswith((f"{apart}.", f"{apart}["))]
    return Given(place=given.place, text=text, findings=own)
