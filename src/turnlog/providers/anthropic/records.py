"""JSON objects of replies whose values stay raw JSON text, so that what is not known can go back as it came."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import msgspec
from msgspec import Raw

from turnlog.model.blocks import minify

Record: TypeAlias = dict[str, Raw]
"""A JSON object, its values as raw JSON text."""

_NULL = b"null"
_text = msgspec.json.Decoder(str)
_list = msgspec.json.Decoder(list[Raw])
_record = msgspec.json.Decoder(Record)
_records = msgspec.json.Decoder(list[Record])


def has(record: Record, name: str) -> bool:
    """Return whether a key is there and is not null: null says nothing."""
    return bytes(record.get(name, _NULL)) != _NULL


def text_of(record: Record, name: str) -> str:
    """Return a text; an empty one where there is none.

    Raises:
        msgspec.ValidationError: it is something else. Also the others here.
    """
    return _text.decode(record[name]) if has(record, name) else ""


def list_of(record: Record, name: str) -> list[Raw]:
    """Return a list; an empty one where there is none."""
    return _list.decode(record[name]) if has(record, name) else []


def record_of(record: Record, name: str) -> Record:
    """Return a record within a record; an empty one where there is none."""
    return _record.decode(record[name]) if has(record, name) else {}


def records_of(record: Record, name: str) -> list[Record]:
    """Return a list of records; an empty one where there is none."""
    return _records.decode(record[name]) if has(record, name) else []


def minified(value: bytes | Raw) -> Raw:
    """Return JSON text without whitespace outside strings.

    Raises:
        ContentError: it is not JSON in UTF-8.
    """
    return Raw(minify(bytes(value), field="reply"))


def further(record: Record, known: Collection[str]) -> Record:
    """Return what is not known of a record, without what is null."""
    return {name: value for name, value in record.items() if name not in known and has(record, name)}


def joined(before: Raw | None, value: Raw) -> Raw:
    """Return two texts as one; any other value takes the place of what was there before it."""
    try:
        return value if before is None else Raw(msgspec.json.encode(_text.decode(before) + _text.decode(value)))
    except msgspec.ValidationError:
        return value
