"""JSON text, shortened for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from turnlog.cli.failures import UsageError
from turnlog.cli.text import count, one_line
from turnlog.errors import ContentError
from turnlog.model.depth import JSON_DEPTH_MAX, is_deeper

_STRING_CHARACTERS_MAX = 1000
"""Of a string so many characters are shown: one may be a whole image."""

_LINE_CHARACTERS_MAX = 1000
"""More of it is not shown on a line: no terminal is that wide."""

_PARSED_CHARACTERS_MAX = 1_000_000
"""A longer text is not looked into, so that nothing waits for it."""


def value_of(text: str, where: str) -> object:
    """Return the value of JSON text that a person gave.

    Args:
        text: the text.
        where: the option or the file that it stands in.

    Raises:
        UsageError: an object in it has a key twice, of which one would be dropped.
        UnicodeEncodeError, msgspec.DecodeError: it is no JSON, or not in UTF-8.
        RecursionError: it is nested deeper than `JSON_DEPTH_MAX`, whatever this version of Python can read.
    """
    from turnlog.model.json_values import check_unique  # noqa: PLC0415 - few commands need it

    encoded = text.encode()
    value: object = msgspec.json.decode(encoded)
    if is_deeper(encoded, JSON_DEPTH_MAX):
        raise RecursionError(f"nested deeper than {JSON_DEPTH_MAX} levels")
    try:
        check_unique(encoded, where)
    except ContentError as error:
        raise UsageError(str(error)) from error
    return value


def shortened(text: bytes) -> str:
    """Return JSON text indented, with its long strings cut. It is not printable yet."""
    return msgspec.json.format(msgspec.json.encode(_cut(msgspec.json.decode(text))), indent=2).decode()


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _STRING_CHARACTERS_MAX:
        hidden = len(value) - _STRING_CHARACTERS_MAX
        return f"{value[:_STRING_CHARACTERS_MAX]}… (and {count(hidden, 'more character')})"
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_cut(inner) for inner in cast("list[Any]", value)]
    return value


def on_one_line(text: str) -> str | None:
    """Return a JSON object or array as one line to look at: quotes and line feeds in its strings are not escaped.

    It is cut where it is too long for any line. None for any other text.
    """
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _PARSED_CHARACTERS_MAX:
        return None
    try:
        return _line_of(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _line_of(value: object) -> str:
    shown = ""
    for piece in _pieces(value):
        shown += piece
        if len(shown) > _LINE_CHARACTERS_MAX:
            return shown[:_LINE_CHARACTERS_MAX] + "…"
    return shown


def _pieces(value: object) -> Iterator[str]:
    match value:
        case str():
            yield f'"{one_line(value[: _LINE_CHARACTERS_MAX + 1])}"'
        case dict():
            yield "{"
            for index, (key, inner) in enumerate(cast("dict[str, Any]", value).items()):
                yield f"{', ' if index else ''}{one_line(key)}: "
                yield from _pieces(inner)
            yield "}"
        case list():
            yield "["
            for index, inner in enumerate(cast("list[Any]", value)):
                yield ", " if index else ""
                yield from _pieces(inner)
            yield "]"
        case _:
            yield msgspec.json.encode(value).decode()
