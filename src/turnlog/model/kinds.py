"""Checks that what a caller gives is of the kind that is asked for. Each returns it in plain form, or says what it is.

They are quick to import and look nothing up, so that every part of a log can ask them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from turnlog.errors import MetaError
from turnlog.model.json_text import told_place
from turnlog.model.plain import plain_json, plain_scalar

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def check_type(value: object, expected: type[T], field: str) -> T:
    """Return a value of the expected type; texts and numbers of whatever class as plain ones.

    Raises:
        MetaError: it is of another type, or JSON cannot carry it: text that is not UTF-8, more than 64 bits.
    """
    given = check_kind(value, expected, field)
    if isinstance(given, str | int | float) and type(given) is not bool:
        return cast("T", plain_scalar(given, field, MetaError))
    return given


def check_kind(value: object, expected: type[T], field: str) -> T:
    """Return a value of the expected type as it is: what is only looked up need not be what could be recorded.

    Raises:
        MetaError: it is of another type.
    """
    if not isinstance(value, expected):
        raise MetaError(f"{field}: expected {expected.__name__}, got {type(value).__name__}", field=field)
    return value


def check_callable(value: object, field: str) -> None:
    """Check that a value can be called.

    Raises:
        MetaError: it cannot.
    """
    if not callable(value):
        raise MetaError(f"{field}: expected a function, got {type(value).__name__}", field=field)


def check_count(value: object, field: str, *, least: int = 0) -> int:
    """Return a whole number that is not less than `least`, however large it is.

    Raises:
        MetaError: it is none, or less.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise MetaError(f"{field}: expected int, got {type(value).__name__}", field=field)
    if value < least:
        raise MetaError(f"{field}: expected at least {least}, got {value}", field=field)
    return int.__int__(value)


def check_list(given: Iterable[T], field: str, what: str) -> tuple[T, ...]:
    """Return what is in a list, or in what else can be gone through. A text and a mapping are none.

    Args:
        given: the list.
        field: its name.
        what: what is in it, for the message.

    Raises:
        MetaError: it is none.
    """
    listed = cast("object", given)
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Iterable):
        raise MetaError(f"{field}: expected a list of {what}, got {type(given).__name__}", field=field)
    return tuple(given)


def check_each(given: Iterable[T], expected: type[T], field: str, what: str) -> tuple[T, ...]:
    """Return what is in a list, each of the expected type; otherwise as `check_list`.

    Raises:
        MetaError: it is no list, or has something else in it.
    """
    listed = check_list(given, field, what)
    if {expected} >= {*map(type, listed)} and not issubclass(expected, str | int | float):
        return listed  # all at once: a request may have thousands of parts
    return tuple(check_type(one, expected, f"{field}[{index}]") for index, one in enumerate(listed))


def check_texts(given: Iterable[str], field: str, such_as: str) -> tuple[str, ...]:
    """Return a list of texts. A text alone is one of letters, and hardly meant.

    Args:
        given: the list.
        field: its name.
        such_as: what one looks like, for the message.

    Raises:
        MetaError: it is a text, no list, or has something else in it.
    """
    return check_each(given, str, field, f"texts, such as {such_as}")


def check_values(given: object, field: str) -> Any:
    """Return what metadata can have as plain values, structs as records.

    Raises:
        MetaError: JSON cannot carry it, it is nested too deeply, or raw JSON text is in it.
    """
    plain = plain_json(given, field, MetaError)
    try:
        return msgspec.to_builtins(plain)
    except RecursionError as error:
        raise MetaError(f"{field}: nested too deeply", field=field) from error
    except TypeError as error:
        # A value has one spelling in a log, and raw text may have another.
        raise MetaError(f"{field}: raw JSON text is not kept in metadata: give the value", field=field) from error


def check_record(given: Mapping[str, Any] | None, field: str) -> Mapping[str, Any]:
    """Return a mapping; an empty one for none.

    Raises:
        MetaError: it is something else.
    """
    return check_type({} if given is None else given, cast("type[Mapping[str, Any]]", Mapping), field)


def check_fields(given: object, expected: type[S], field: str) -> S:
    """Return a struct of the expected type whose fields have theirs, texts and numbers of whatever class as plain ones.

    Raises:
        MetaError: it is of another type or has other fields, one of them is of another type, or JSON cannot carry it.
    """
    struct = check_type(given, expected, field)
    if struct.__struct_fields__ != expected.__struct_fields__:
        kind = type(given).__name__
        raise MetaError(f"{field}: {kind} has other fields than {expected.__name__}: give one of these", field=field)
    try:
        return msgspec.convert(check_values(struct, field), expected)
    except msgspec.ValidationError as error:
        place, said = told_place(error, field)
        raise MetaError(f"{place}: {said}", field=place) from error


def check_path(given: object, field: str) -> Path:
    """Return the path of a file, which a text or what stands for a path gives.

    Raises:
        MetaError: it is neither.
    """
    if not isinstance(given, str | PathLike):
        raise MetaError(f"{field}: expected the path of a file, got {type(given).__name__}", field=field)
    return Path(cast("str | PathLike[str]", given))
