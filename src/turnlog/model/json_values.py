"""JSON text as Python's values, and what these say otherwise than the text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.options import JSONValue

_Members = dict[str, JSONValue]

DEPTH_MAX = 200
"""Values nested deeper, inclusive, are too deep for what recurses into them: pydantic, PyYAML."""


def plain_values(value: object) -> Any:
    """Return what msgspec writes, structs and raw JSON text at whatever depth, as values that `json.dumps` takes.

    An integer stays one, and a number one with a point. What is too large for any that `json.dumps` writes, such as
    1e999 or an integer of more than 4,300 digits, is a text, as it is spelled. Of a key that is there twice it has the
    last.
    """
    return json.loads(msgspec.json.encode(value), parse_int=_integer, parse_float=_number)


def _integer(literal: str) -> int | str:
    try:
        return int(literal)
    except ValueError:  # it has more digits than Python reads, and writes
        return literal


def _number(literal: str) -> float | str:
    number = float(literal)
    return number if math.isfinite(number) else literal


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


def check_unique(text: bytes, field: str) -> None:
    """Check that no object of JSON text has a key twice.

    Raises:
        ContentError: one has; names the place of the first. Or it is no JSON, or is nested too deeply.
    """
    members = UniqueMembers()
    try:
        members.check(json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=members), field)
    except RecursionError as error:
        raise ContentError(f"{field}: nested too deeply", field=field) from error
    except ValueError as error:
        raise ContentError(f"{field}: not valid JSON: {error}", field=field) from error


class UniqueMembers:
    """Makes JSON objects of their members, and says where one has a key twice."""

    def __init__(self) -> None:
        self._twice: dict[int, tuple[_Members, str]] = {}
        """Objects that have a key twice, and the first such key, by the identity of the object."""

    def __call__(self, members: list[tuple[str, JSONValue]]) -> _Members:
        """Return a JSON object of its members."""
        record = dict(members)
        if len(record) < len(members):
            counts = Counter(name for name, _ in members)
            self._twice[id(record)] = (record, next(name for name, count in counts.items() if count > 1))
        return record

    def check(self, value: JSONValue, field: str) -> None:
        """Check that no object of a value that was made so has a key twice.

        Raises:
            ContentError: one has; names the place of the first.
        """
        twice, self._twice = self._twice, {}
        # Where an object has a key twice, what stood there first is not in the value: its own places are of no use.
        for place, record in _records(value, field) if twice else ():
            if id(record) in twice:
                _, name = twice[id(record)]
                raise ContentError(f"{place}: a record has the key {name!r} twice", field=f"{place}.{name}")


def _records(value: JSONValue, field: str) -> Iterator[tuple[str, JSONValue]]:
    """Give each object in a value with its place, outer ones first."""
    if isinstance(value, dict):
        record = cast("_Members", value)
        yield field, record
        for name, inner in record.items():
            yield from _records(inner, f"{field}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[JSONValue]", value)):
            yield from _records(inner, f"{field}[{index}]")
