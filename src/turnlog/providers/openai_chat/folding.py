"""What the pieces of JSON that a stream brings add up to, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from turnlog.providers.extras import says_nothing
from turnlog.providers.raw_json import Fields, fields_of, integer_of, is_null, items_of, minified, raw, text_of

_JOINED = ("audio.data", "audio.transcript", "reasoning_details.text", "reasoning_details.summary")
"""The texts that come in pieces. Of any other there is the last one."""


def folded(found: Mapping[str, Sequence[Raw]]) -> Fields:
    """Return the pieces of fields put together, without whitespace: lists joined, objects key by key.

    Fields that say nothing are left out: whole replies have empty ones (`annotations`) that streams do not have.
    """
    fields = {name: minified(_folded(pieces, name)) for name, pieces in found.items()}
    return {name: value for name, value in fields.items() if not says_nothing(value)}


def _folded(pieces: Sequence[Raw], path: str) -> Raw:
    if len(pieces) == 1:
        return pieces[0]
    kinds = {bytes(piece)[:1] for piece in pieces}
    if kinds == {b"["}:
        return raw([item for piece in pieces for item in items_of(piece) or ()])
    if kinds == {b"{"}:
        found: dict[str, list[Raw]] = {}
        for piece in pieces:
            for name, value in (fields_of(piece) or {}).items():
                known = found.setdefault(name, [])
                if not is_null(value):
                    known.append(value)
        return raw({name: _folded(values, f"{path}.{name}") if values else None for name, values in found.items()})
    if path in _JOINED and kinds == {b'"'}:
        return raw("".join(text_of(piece) or "" for piece in pieces))
    return pieces[-1]


def folded_details(pieces: Sequence[Raw]) -> list[Raw]:
    """Return records of reasoning, with those put together that one after the other are pieces of the same record.

    Such pieces are text or a summary, and name the same index. What is encrypted comes whole, and a signature is the
    end of what it signs.
    """
    records: list[list[Raw]] = []
    last: tuple[str | None, int | None, str | None] | None = None
    for piece in pieces:
        fields = fields_of(piece) or {}
        kind, index, name = text_of(fields.get("type")), integer_of(fields.get("index")), text_of(fields.get("id"))
        known = kind in ("reasoning.text", "reasoning.summary") and index is not None
        if known and last is not None and last[:2] == (kind, index) and (None in (name, last[2]) or name == last[2]):
            records[-1].append(piece)
            name = name or last[2]
        else:
            records.append([piece])
        last = (kind, index, name) if known and not text_of(fields.get("signature")) else None
    return [minified(_folded(record, "reasoning_details")) for record in records]
