"""What is told of errors that are somebody else's: those of tools, and of what reads types."""

from __future__ import annotations

from textwrap import shorten
from typing import Any, cast

_CAUSES_MAX = 10
_CAUSE_CHARACTERS_MAX = 1000
_LINE_CHARACTERS_MAX = 300


def first_line(error: BaseException) -> str:
    """Return the first line of an error, with the others where it only leads to them; 300 characters at most."""
    first, _, rest = str(error).partition("\n")
    said = first if first and not first.endswith(":") else f"{first} {rest}"
    return shorten(said, _LINE_CHARACTERS_MAX, placeholder=" …") or type(error).__name__


def told_error(error: BaseException) -> str:
    """Return the class and the message of an error on one line. A group is told with what is in it.

    An error whose message cannot be had, because its `__str__` raises, is told by its class.

    Of a group 10 errors are told at most, each with up to 1,000 characters, and how many more there are.
    """
    if not isinstance(error, BaseExceptionGroup):
        return _said(error)
    group = cast("BaseExceptionGroup[Any]", error)
    causes = _causes(group)
    told = [_cut(_said(cause)) for cause in causes[:_CAUSES_MAX]]
    if len(causes) > _CAUSES_MAX:
        told.append(f"and {len(causes) - _CAUSES_MAX:,} more")
    return f"{_cut(_said(group))}: {'; '.join(told)}"


def _causes(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """Return the errors of a group and of the groups in it, in their order."""
    causes: list[BaseException] = []
    rest: list[BaseException] = [group]
    while rest:
        error = rest.pop()
        if isinstance(error, BaseExceptionGroup):
            rest += reversed(cast("BaseExceptionGroup[Any]", error).exceptions)
        else:
            causes.append(error)
    return causes


def _said(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - the code of a tool says what its errors say
        message = f"(its message cannot be shown: {type(broken).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _CAUSE_CHARACTERS_MAX else f"{text[:_CAUSE_CHARACTERS_MAX]}…"
