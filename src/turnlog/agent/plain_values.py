"""Values of a program as JSON: what msgspec knows as it writes it, models of pydantic as they dump themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from turnlog.agent.half_pairs import json_unicode_of


def plain(value: object) -> Any:
    """Return a value as what JSON is made of. What JSON cannot carry is its text."""
    return msgspec.to_builtins(value, enc_hook=lambda inner: _dumped(inner, str))


def json_text(value: object) -> str:
    """Return a value as JSON, with U+FFFD for half of a surrogate pair.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot carry it; and whatever it raises when it is dumped.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_dumped).decode()
    except UnicodeEncodeError:  # such as the name of a file that is no UTF-8
        return msgspec.json.encode(json_unicode_of(msgspec.to_builtins(value, enc_hook=_dumped))).decode()


def _dumped(value: Any, otherwise: Callable[[object], object] | None = None) -> object:
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if otherwise is None:
        raise TypeError(f"JSON has nothing for {type(value).__name__}")
    return otherwise(value)
