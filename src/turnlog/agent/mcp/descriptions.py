"""How much a model is given of the instructions of an MCP server, and of descriptions and titles of its tools.

How many tools there are, and what else is in their schemas, is not bounded here.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnlog.model.long_strings import decode_string

INSTRUCTIONS_CHARACTERS_MAX = 16_384
"""How much of the instructions of a server a model is given."""

DESCRIPTION_CHARACTERS_MAX = 10_000
"""How much of the description and of the title of a tool a model is given, and of each one in its schema."""

_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose value has a schema under each name (JSON Schema 2020-12, Core §10.2 and §10.3)."""

_VALUES = ("const", "default", "enum", "examples")
"""Keywords whose value is no schema (JSON Schema 2020-12, Validation §6 and §9)."""


def cut(text: str, characters_max: int) -> str:
    """Return a text, of a longer one the beginning and a notice behind it of where it was cut."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}\n\n[Cut here: this is the first {characters_max:,} of {len(text):,} characters.]"


_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


def with_descriptions_cut(schema: Raw) -> Raw:
    """Return a JSON Schema, with what is too long of its descriptions and titles cut; all else as it was.

    Raises:
        ValueError: it is nested too deeply.
    """
    try:
        return _cut_in(schema)
    except RecursionError as error:
        raise ValueError("its schema is nested too deeply") from error


def _cut_in(schema: Raw) -> Raw:
    text = bytes(schema)
    if len(text) <= DESCRIPTION_CHARACTERS_MAX:
        return schema  # so is each description in it
    if text[:1] == b"[":
        return Raw(_encode([_cut_in(inner) for inner in _list.decode(text)]))
    if text[:1] != b"{":
        return schema
    return Raw(_encode({name: _keyword(name, value) for name, value in _object.decode(text).items()}))


def _keyword(name: str, value: Raw) -> Raw:
    text = bytes(value)
    if len(text) <= DESCRIPTION_CHARACTERS_MAX or name in _VALUES:
        return value
    if name in ("description", "title") and text[:1] == b'"':
        said = decode_string(text)
        return value if len(said) <= DESCRIPTION_CHARACTERS_MAX else Raw(_encode(cut(said, DESCRIPTION_CHARACTERS_MAX)))
    if name in _MAPS and text[:1] == b"{":
        return Raw(_encode({key: _cut_in(inner) for key, inner in _object.decode(text).items()}))
    return _cut_in(value)
