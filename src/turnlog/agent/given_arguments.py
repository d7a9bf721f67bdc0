"""The arguments of a tool call, in which no key stands twice: readers would know one of the two."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from msgspec import Raw

from turnlog.errors import ContentError


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


def _record(members: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for name, value in members:
        if name in record:
            raise ContentError(f"the arguments have the key {name!r} twice", field="arguments")
        record[name] = value
    return record
