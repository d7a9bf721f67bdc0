"""Checks of what a caller gives a run. Each raises before anything is recorded, and says what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar, cast

from turnlog.errors import RunError
from turnlog.model.plain import is_async

T = TypeVar("T")


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """Return the one of some texts that a value is.

    Raises:
        RunError: it is none of them.
    """
    for one in known:
        if value == one:
            return one
    raise RunError(f"{name}: {value!r} is unknown (one of {', '.join(known)})")


def check_kind(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Check that a value is of a type.

    Raises:
        RunError: it is of another one.
    """
    if not isinstance(value, kind):
        raise _other(name, value, expected)


def check_number(name: str, value: object, least: int, *, none: str | None = None) -> None:
    """Check that a value is a whole number, and not less than `least`.

    Args:
        name: the value's name.
        value: the value.
        least: the least number.
        none: what None means; None where it is not allowed.

    Raises:
        RunError: it is not.
    """
    if value is None and none is not None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise _other(name, value, "a whole number")
    if value < least:
        raise RunError(f"{name}: {value} is less than {least}{_instead(none)}")


def check_seconds(name: str, value: object, *, none: str | None = None, may_be_0: bool = False) -> None:
    """Check that a value is a time in seconds, and more than 0.

    Args:
        name: the value's name.
        value: the value.
        none: what None means; None where it is not allowed.
        may_be_0: whether 0 is allowed too.

    Raises:
        RunError: it is not.
    """
    if value is None and none is not None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _other(name, value, "a number of seconds")
    try:
        float(value)
    except OverflowError as error:
        raise RunError(f"{name}: that is too many seconds{_instead(none)}") from error
    if not (value >= 0 if may_be_0 else value > 0):
        why = "less than 0" if may_be_0 else "not more than 0"
        raise RunError(f"{name}: {value:g} is {why}{_instead(none)}")


def check_patterns(name: str, value: object) -> None:
    """Check that a value is a pattern of names, or several of them.

    Raises:
        RunError: it is not.
    """
    if not isinstance(value, Collection):
        raise _other(name, value, "patterns of names")
    several(name, cast("Collection[object]", value), lambda pattern: isinstance(pattern, str), "patterns of names")


def check_callback(name: str, value: object, *, awaited: bool = True) -> None:
    """Check that a value is a function, or None.

    Args:
        name: the value's name.
        value: the value.
        awaited: whether it may be an async one.

    Raises:
        RunError: it is not.
    """
    if value is None:
        return
    if not callable(value):
        raise _other(name, value, "a function")
    if not awaited and is_async(value):
        raise RunError(f"{name}: expected a plain function, got an async one, which nobody would await")


def several(name: str, given: T | Iterable[T], is_one: Callable[[object], bool], expected: str) -> tuple[T, ...]:
    """Return what was given, one thing or several of them, as a tuple.

    Args:
        name: the argument's name.
        given: what was given.
        is_one: whether something is one of them.
        expected: what they are.

    Raises:
        RunError: it is something else.
    """
    if is_one(given):
        return (cast("T", given),)
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise _other(name, cast("object", given), expected)
    items = tuple(cast("Iterable[T]", given))
    for item in items:
        if not is_one(item):
            raise _other(name, item, expected)
    return items


def _instead(none: str | None) -> str:
    return "" if none is None else f": give None for {none}"


def _other(name: str, value: object, expected: str) -> RunError:
    return RunError(f"{name}: expected {expected}, got {type(value).__name__}")
