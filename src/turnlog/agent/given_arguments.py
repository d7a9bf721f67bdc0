"""The arguments of a tool call as JSON: no key stands twice in them, and an integer may be written as `2.0`.

Of two keys readers would know one. A whole number with a point is an integer in JSON Schema (draft 6 and later), and
models write them so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError

T = TypeVar("T")

_WHOLE_MAX = 2.0**53
"""From there on floats are whole because they are no finer."""


def value_of(arguments: Raw, *, integer: Callable[[str], object], number: Callable[[str], object]) -> object:
    """Return arguments as a value.

    Args:
        arguments: JSON text.
        integer: returns an integer of its digits.
        number: returns a number with a fraction or an exponent of its text.

    Raises:
        ContentError: a record has a key twice; says which in words for the model.
        ValueError: it is no JSON, or a number is not taken.
        RecursionError: it is nested too deeply.
    """
    return json.loads(bytes(arguments), parse_int=integer, parse_float=number, object_pairs_hook=_record)


def check_keys(arguments: Raw) -> None:
    """Check that no record of arguments has a key twice. What is no JSON is left to whoever reads it.

    Raises:
        ContentError: one has; says which in words for the model.
    """
    with suppress(ValueError, RecursionError):
        value_of(arguments, integer=str, number=str)


def read_typed(decoder: msgspec.json.Decoder[T], text: bytes | str) -> T:
    """Return JSON as a value of the decoder's type, with whole numbers as integers where it asks for these.

    Raises:
        ValueError: it does not fit, or is no JSON; of it as it was written.
        RecursionError: it is nested too deeply.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        try:
            plain = json.loads(text, parse_int=_as_written, parse_float=_whole)
            return decoder.decode(msgspec.json.encode(plain))
        except (ValueError, RecursionError):
            raise error from None


def _as_written(number: str) -> Raw:
    return Raw(number.encode())


def _whole(number: str) -> object:
    value = float(number)
    return int(value) if value.is_integer() and abs(value) < _WHOLE_MAX else _as_written(number)


def _record(members: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for name, value in members:
        if name in record:
            raise ContentError(f"the arguments have the key {name!r} twice", field="arguments")
        record[name] = value
    return record
