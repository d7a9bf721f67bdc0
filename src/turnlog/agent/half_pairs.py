"""Texts with half of a surrogate pair, which is no Unicode: of tools that cut texts or read odd names of files.

No UTF-8 has it, so that no log can, and no provider takes it. U+FFFD stands for it, as for bytes that are no UTF-8.
"""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec


def is_unicode(text: str) -> bool:
    """Tell whether there is no half of a pair in a text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def unicode_of(text: str) -> str:
    """Return a text with U+FFFD for each half of a pair. Two halves that follow each other are a character."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_unicode_of(value: object) -> object:
    """Return a JSON value whose texts and names are so.

    Raises:
        RecursionError: it is nested too deeply.
    """
    match value:
        case str():
            return unicode_of(value)
        case dict():
            named = cast("dict[str, object]", value)
            return {unicode_of(name): json_unicode_of(inner) for name, inner in named.items()}
        case list():
            return [json_unicode_of(inner) for inner in cast("list[object]", value)]
        case _:
            return value


def odd_json(text: bytes | bytearray) -> Any:
    """Return what JSON says that servers write and msgspec does not take: with NaN, half of a pair, odd bytes.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json_unicode_of(json.loads(text.decode(errors="replace")))


def any_json(text: bytes) -> Any:
    """Return what JSON says, odd or not. See `odd_json`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return odd_json(text)
