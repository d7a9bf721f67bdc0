"""Values of a program as JSON: what msgspec knows as it writes it, models of pydantic as they dump themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from turnlog.agent.half_pairs import json_unicode_of


def plain(value: object) -> Any:
    """Return a value as what JSON is made of. What JSON cannot carry is its text."""
    return msgspec.to_builtins(value, enc_hook=lambda inner: _dumped(inner, str))


def json_text(value: object) -> str:
    """Return a value as JSON, with U+FFFD for half of a surrogate pair.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot carry it, such as NaN or an infinity at whatever depth; and
            whatever it raises when it is dumped.
    """
    try:
        text = msgspec.json.encode(value, enc_hook=_dumped).decode()
    except UnicodeEncodeError:  # such as the name of a file that is no UTF-8
        text = msgspec.json.encode(json_unicode_of(msgspec.to_builtins(value, enc_hook=_dumped))).decode()
    if "null" in text:  # as msgspec writes what is no number, too
        _check_finite(msgspec.to_builtins(value, enc_hook=_dumped))
    return text


def _check_finite(value: object) -> None:
    """Check that there is no NaN and no infinity in a value of plain ones."""
    rest: list[tuple[str, object]] = [("it", value)]
    while rest:
        place, inner = rest.pop()
        match inner:
            case float() if not math.isfinite(inner):
                raise ValueError(f"{place} is {inner!r}, and JSON has no NaN and no infinity")
            case dict():
                record = cast("dict[object, object]", inner)
                rest += [(f"{place}[{key!r}]", each) for key, each in record.items()]
            case list() | tuple():
                items = cast("list[object]", inner)
                rest += [(f"{place}[{index}]", each) for index, each in enumerate(items)]
            case _:
                pass


def _dumped(value: Any, otherwise: Callable[[object], object] | None = None) -> object:
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    match value:
        case msgspec.Raw():
            return msgspec.json.decode(value)
        case float():  # a number by its class, such as numpy's
            return float.__float__(value)
        case _:
            pass
    if otherwise is None:
        raise TypeError(f"JSON has nothing for {type(value).__name__}")
    return otherwise(value)
