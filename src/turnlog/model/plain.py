"""Plain JSON values: what people may put into options and blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Raw, Struct

from turnlog.errors import ContentError, MetaError


def plain_json(value: Any, field: str, error: type[ContentError | MetaError]) -> Any:
    """Return a value as JSON has it: mappings as dicts, sequences as lists; raw JSON text and structs stay.

    Args:
        value: the value to check, at any depth.
        field: its path, for messages.
        error: what to raise.

    Raises:
        ContentError, MetaError: the value has a part that JSON cannot carry, such as NaN, bytes or a set.
    """
    match value:
        case None | bool() | int() | Raw() | Struct():
            return value
        case str():
            check_text(value, field, error)
            return value
        case float():
            if not math.isfinite(value):
                raise error(f"{field}: JSON has no NaN and no infinity", field=field)
            return value
        case Mapping():
            return {
                _key(name, field, error): plain_json(inner, f"{field}.{name}", error)
                for name, inner in cast("Mapping[object, object]", value).items()
            }
        case list() | tuple():
            return [
                plain_json(inner, f"{field}[{index}]", error)
                for index, inner in enumerate(cast("Sequence[object]", value))
            ]
        case _:
            raise error(f"{field}: {type(value).__name__} is not JSON", field=field)


def _key(name: object, field: str, error: type[ContentError | MetaError]) -> str:
    if not isinstance(name, str):
        raise error(f"{field}: JSON has only text for keys, got {name!r}", field=field)
    check_text(name, field, error)
    return name


def check_text(value: str, field: str, error: type[ContentError | MetaError]) -> None:
    """Check that a text can be stored as UTF-8.

    Raises:
        ContentError, MetaError: it cannot.
    """
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise error(f"{field}: not valid UTF-8 ({cause.reason})", field=field) from cause
