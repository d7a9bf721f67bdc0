"""Plain JSON values: what people may put into options and blocks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from turnlog.errors import ContentError, MetaError
from turnlog.model.json_text import UNREADABLE, json_error
from turnlog.model.pieces import check_utf8

INTEGER_MIN = -(1 << 63)
"""The smallest integer that is stored, inclusive."""

INTEGER_MAX = (1 << 64) - 1
"""The largest integer that is stored, inclusive."""

_S = TypeVar("_S", bound=Struct)
_raw = msgspec.json.Decoder(Raw)


def is_async(function: object) -> bool:
    """Tell whether a function, or what is called as one, gives something to be awaited."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - whether that is async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def check_plain(function: object, field: str, owner: str) -> None:
    """Check that a function of somebody's does what it does when it is called.

    Raises:
        MetaError: it gives something to be awaited.
    """
    if is_async(function):
        raise MetaError(
            f"{field} of {owner}: expected a plain function, got an async one, which nobody would await: let it return "
            "when all is done",
            field=field,
        )


def check_plain_methods(given: type, base: type, owner: str) -> None:
    """Check that what a class of somebody's has for the methods of its base does what it does when it is called.

    Raises:
        MetaError: one of them gives something to be awaited.
    """
    for field, member in vars(base).items():
        if inspect.isfunction(member) or isinstance(member, property):
            own = getattr(given, field)
            check_plain(own.fget if isinstance(own, property) else own, field, owner)


def check_done(returned: object, field: str, owner: str) -> None:
    """Check that a function of somebody's has returned nothing that does its work only when that is awaited.

    Raises:
        MetaError: it is to be awaited, or gone through.
    """
    if inspect.iscoroutine(returned):
        returned.close()
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise MetaError(
            f"{field} of {owner} returned {type(returned).__name__!r}, which nobody awaits or goes through: let it "
            "return when all is done",
            field=field,
        )


def check_one_of(value: object, known: Sequence[str], field: str) -> None:
    """Check that a value is one of some words.

    Raises:
        MetaError: it is none of them.
    """
    if value not in known:
        raise MetaError(f"{field}: {value!r} is unknown (one of {', '.join(known)})", field=field)


def plain_json(value: Any, field: str, error: type[ContentError | MetaError]) -> Any:
    """Return a value as JSON has it: mappings as dicts, sequences as lists; raw JSON text stays.

    What is a text, an integer or a number by its class (`StrEnum`, `IntEnum`, `numpy.str_`) is taken as the plain one
    that it holds. Structs stay structs, of plain values.

    Args:
        value: the value to check, at any depth.
        field: its path, for messages.
        error: what to raise.

    Raises:
        ContentError, MetaError: the value has a part that JSON cannot carry, such as NaN, bytes or a set, an integer
            beyond 64 bits, a record with one key twice, raw text that is no JSON, or is nested too deeply.
    """
    try:
        return _plain(value, field, error)
    except RecursionError as cause:
        raise error(f"{field}: nested too deeply", field=field) from cause


def _plain(value: Any, field: str, error: type[ContentError | MetaError]) -> Any:
    match value:
        case str() | bool() | int() | float() | None:
            return plain_scalar(value, field, error)
        case Raw():
            _check_raw(value, field, error)
            return value
        case Struct():
            return _plain_struct(value, field, error)
        case Mapping():
            return _plain_record(cast("Mapping[object, object]", value), field, error)
        case list() | tuple():
            return [
                _plain(inner, f"{field}[{index}]", error) for index, inner in enumerate(cast("Sequence[object]", value))
            ]
        case _:
            raise error(f"{field}: {type(value).__name__} is not JSON", field=field)


def _check_raw(raw: Raw, field: str, error: type[ContentError | MetaError]) -> None:
    """Check that raw text is a JSON value by itself: it is spliced in, and could go on with what it stands in."""
    text = memoryview(raw)
    try:
        check_utf8(text)
        _raw.decode(raw)
    except UNREADABLE as cause:
        raise error(str(json_error(text, cause, field)), field=field) from cause


def _plain_record(record: Mapping[object, object], field: str, error: type[ContentError | MetaError]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, inner in record.items():
        if not isinstance(name, str):
            raise error(f"{field}: JSON has only text for keys, got {type(name).__name__}", field=field)
        key = plain_text(name, field, error)
        if key in plain:  # two texts that are one when they are plain
            raise error(f"{field}: has the key {key!r} twice", field=field)
        plain[key] = _plain(inner, f"{field}.{key}", error)
    return plain


def _plain_struct(struct: _S, field: str, error: type[ContentError | MetaError]) -> _S:
    plain: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        value: object = getattr(struct, name)
        if value is not UNSET:
            plain[name] = _plain(value, f"{field}.{name}", error)
    return msgspec.structs.replace(struct, **plain)


def plain_scalar(
    value: str | float | None, field: str, error: type[ContentError | MetaError]
) -> str | bool | int | float | None:
    """Return a text, a boolean, a number or nothing as JSON has it.

    Raises:
        ContentError, MetaError: the text is not UTF-8, the integer is beyond 64 bits, or the number is not finite.
    """
    match value:
        case str():
            return plain_text(value, field, error)
        case None | bool():
            return value
        case int():
            integer = int.__int__(value)
            if not INTEGER_MIN <= integer <= INTEGER_MAX:
                raise error(
                    f"{field}: an integer of more than 64 bits is not kept exactly everywhere: give it as text",
                    field=field,
                )
            return integer
        case float():
            number = float.__float__(value)
            if not math.isfinite(number):
                raise error(f"{field}: JSON has no NaN and no infinity", field=field)
            return number


def plain_text(value: str, field: str, error: type[ContentError | MetaError]) -> str:
    """Return a text of whatever class as a plain one.

    Raises:
        ContentError, MetaError: it cannot be stored as UTF-8.
    """
    # Not `str(value)`: that asks the class what it would like to be shown as.
    text = str.__str__(value)
    check_text(text, field, error)
    return text


def check_text(value: str, field: str, error: type[ContentError | MetaError]) -> None:
    """Check that a text can be stored as UTF-8.

    Raises:
        ContentError, MetaError: it cannot.
    """
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise error(f"{field}: not valid UTF-8 ({cause.reason})", field=field) from cause
