"""JSON of providers whose values stay raw JSON text, so that what is not known can go back as it came.

Providers and the endpoints that speak their wires differ in what they leave out, add and write as null. So nothing here
raises for a value of another type than the one asked for: it is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import msgspec
from msgspec import Raw

from turnlog.model.json_text import minify

Fields: TypeAlias = dict[str, Raw]
"""A JSON object: its values as raw JSON text."""

_SHOWN_BYTES = 80
_REASON_MAX = 200

_TRUNCATED = "input data was truncated"
"""What msgspec says of JSON that ends before its end, and of some that has half of a character."""

NULL = Raw(b"null")

_object = msgspec.json.Decoder(Fields)
_objects = msgspec.json.Decoder(list[Fields])
_raws = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_integer = msgspec.json.Decoder(int, strict=False)
_encoder = msgspec.json.Encoder()


def read_object(event: bytes) -> Fields:
    """Return the fields of a JSON object.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not a JSON object in UTF-8.
    """
    if not event.isascii():
        event.decode()
    return _object.decode(event)


def unreadable(provider: str, event: bytes, error: Exception) -> str:
    """Return one line that says of whom an event is that cannot be read, how it begins, and why it cannot be read."""
    shown = event[:_SHOWN_BYTES].decode(errors="replace")
    if is_cut(event, error):
        return f"{provider} broke off within an event: {shown!r}"
    why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:_REASON_MAX]
    return f"{provider} sent an event that cannot be read: {shown!r}: {why}"


def is_cut(event: bytes, error: Exception) -> bool:
    """Return whether an event cannot be read because it has no end: the stream broke off within it."""
    return bool(event) and _TRUNCATED in str(error).lower() and event.rstrip()[-1:] not in (b"}", b"]")


def is_null(raw: Raw | None) -> bool:
    """Return whether a value is null, or not there."""
    return raw is None or bytes(raw) == b"null"


def fields_of(raw: Raw | None) -> Fields | None:
    """Return the fields of a JSON object, None where it is something else."""
    return _object.decode(raw) if raw is not None and bytes(raw)[:1] == b"{" else None


def text_of(raw: Raw | None) -> str | None:
    """Return a text, None where it is something else."""
    return _text.decode(raw) if raw is not None and bytes(raw)[:1] == b'"' else None


def text_or_json(raw: Raw | None) -> str:
    """Return a text; of anything else its JSON text, as some endpoints write ids as numbers, arguments as objects."""
    text = text_of(raw)
    if text is None:
        return "" if raw is None or is_null(raw) else bytes(minified(raw)).decode()
    return text


def integer_of(raw: Raw | None) -> int | None:
    """Return an integer, also one that is written as text; None where it is something else."""
    try:
        return None if raw is None else _integer.decode(raw)
    except msgspec.DecodeError:
        return None


def items_of(raw: Raw | None) -> list[Raw] | None:
    """Return the items of a JSON list, None where it is something else."""
    return _raws.decode(raw) if raw is not None and bytes(raw)[:1] == b"[" else None


def objects_of(raw: Raw | None) -> list[Fields] | None:
    """Return the objects of a JSON list, None where it is something else, or of something else."""
    try:
        return _objects.decode(raw) if raw is not None and bytes(raw)[:1] == b"[" else None
    except msgspec.ValidationError:
        return None


def further(fields: Fields, known: Collection[str]) -> Fields:
    """Return what is not known of an object, without what is null: that says nothing."""
    return {name: raw for name, raw in fields.items() if name not in known and not is_null(raw)}


def raw(value: object) -> Raw:
    """Return a value as raw JSON text, without whitespace. `Raw` parts stay as they are spelled."""
    return Raw(_encoder.encode(value))


def minified(value: bytes | Raw) -> Raw:
    """Return JSON text without whitespace outside strings.

    Raises:
        ContentError: it is not JSON in UTF-8.
    """
    return Raw(minify(bytes(value), field="reply"))
