"""How much of what an MCP server says of its tools a model is given: a server cannot fill the window with it."""

from __future__ import annotations

from typing import cast

INSTRUCTIONS_CHARACTERS_MAX = 16_384
"""How much of the instructions of a server a model is given."""

DESCRIPTION_CHARACTERS_MAX = 10_000
"""How much of the description of a tool a model is given, and of each one in its schema."""

_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose value has a schema under each name (JSON Schema 2020-12, Core §10.2 and §10.3)."""

_VALUES = ("const", "default", "enum", "examples")
"""Keywords whose value is no schema (JSON Schema 2020-12, Validation §6 and §9)."""


def cut(text: str, characters_max: int) -> str:
    """Return a text, of a longer one the beginning and a notice behind it of where it was cut."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}\n\n[Cut here: this is the first {characters_max:,} of {len(text):,} characters.]"


def with_descriptions_cut(schema: object) -> object:
    """Return a JSON Schema, with what is too long of its descriptions cut; all else as it was.

    Raises:
        ValueError: it is nested too deeply.
    """
    try:
        return _cut_in(schema)
    except RecursionError as error:
        raise ValueError("its schema is nested too deeply") from error


def _cut_in(schema: object) -> object:
    if isinstance(schema, list):
        return [_cut_in(inner) for inner in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, object]", schema)
    return {name: _keyword(name, value) for name, value in keywords.items()}


def _keyword(name: str, value: object) -> object:
    if name == "description" and isinstance(value, str):
        return cut(value, DESCRIPTION_CHARACTERS_MAX)
    if name in _VALUES:
        return value
    if name in _MAPS and isinstance(value, dict):
        return {key: _cut_in(inner) for key, inner in cast("dict[str, object]", value).items()}
    return _cut_in(value)
