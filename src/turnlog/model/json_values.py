"""JSON text as Python's values, and what these say otherwise than the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.options import JSONValue

DEPTH_MAX = 200
"""Values nested deeper, inclusive, are too deep for what recurses into them: pydantic, PyYAML."""


class Decoded(Struct, frozen=True, kw_only=True):
    """The value of JSON text.

    Attributes:
        value: the value. Of a key that is there twice it has the last.
        change: what it says otherwise than the text, the first such thing, for people; None where it says the same.
            How strings are escaped is no part of what they say; how numbers are spelled is.
    """

    value: JSONValue
    change: str | None = None


def decoded(text: bytes | Raw, *, depth_max: int | None = None) -> Decoded:
    """Return the value of JSON text.

    Args:
        text: the text, without whitespace outside strings.
        depth_max: so many records and lists may stand in each other, inclusive; None for what Python allows.

    Raises:
        ContentError: no value says it: it is no JSON, has a number that no float can hold, or is nested too deeply.
    """
    try:
        value: JSONValue = msgspec.json.decode(text)
        if depth_max is not None and _is_deeper(bytes(text), value, depth_max):
            raise ContentError(f"it is nested more than {depth_max} deep")
        return Decoded(value=value, change=None if _is_spelled(text, value) else _change(text))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        said = str(error).partition(" - at ")[0]  # the place has no names
        raise ContentError(f"it cannot be decoded: {said}") from error
    except RecursionError as error:
        raise ContentError("it is nested too deeply") from error


def _is_spelled(text: bytes | Raw, value: JSONValue) -> bool:
    try:
        return msgspec.json.encode(value) == bytes(text)
    except OverflowError:  # an integer of more than 64 bits
        return False


def _change(text: bytes | Raw) -> str | None:
    found: list[str] = []

    def integer(literal: str) -> int:
        if literal == "-0":
            found.append("-0 is 0")
        return 0

    def number(literal: str) -> float:
        value = float(literal)
        spelled = msgspec.json.encode(value).decode()
        if spelled != literal:
            found.append(f"{literal} is {spelled}")
        return value

    def record(members: Sequence[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in members:
            if name in names:
                found.append(f"of the key {name!r} that is there twice it has the last")
            names.add(name)

    json.loads(bytes(text), parse_int=integer, parse_float=number, object_pairs_hook=record)
    return found[0] if found else None


def _is_deeper(text: bytes, value: JSONValue, depth_max: int) -> bool:
    if text.count(b"{") + text.count(b"[") <= depth_max:
        return False
    level = _containers([value])
    for _ in range(depth_max):
        level = [inner for each in level for inner in _containers(each.values() if isinstance(each, dict) else each)]
    return bool(level)


def _containers(values: Iterable[JSONValue]) -> list[dict[str, JSONValue] | list[JSONValue]]:
    return [value for value in values if isinstance(value, dict | list)]
