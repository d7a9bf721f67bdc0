"""JSON Schemas for providers that take only a part of the vocabulary (JSON Schema 2020-12, and its drafts from 04 on).

A schema is walked by where schemas stand in it: a property that happens to be called `format` is no keyword, and what
`enum`, `const`, `default` and `examples` hold is data. Numbers and data keep the spelling that they came with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError

Schema: TypeAlias = dict[str, Raw]
"""One schema object: its keywords, with their values as raw JSON text."""

NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords that hold schemas by name: the names are not keywords."""

NESTED = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords that hold a schema or a list of schemas."""

_encoder = msgspec.json.Encoder()
_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])


def change_schemas(schema: bytes | Raw, change: Callable[[Schema], Schema]) -> Raw:
    """Return a schema with a change made to each schema object in it, outer ones first.

    `change` gets the keywords of one schema object and returns those that it shall have. Boolean schemas and data are
    left as they are.

    Raises:
        ContentError: the schema is not JSON, or nested too deeply.
    """
    with _readable():
        return _changed(bytes(schema).strip(), change)


def without_keywords(
    schema: bytes | Raw, *, drop: Collection[str] = (), keep: Collection[str] | None = None
) -> tuple[Raw, tuple[str, ...]]:
    """Return a schema without some keywords, and the names of those that were there to be removed, sorted.

    Args:
        schema: the schema, as JSON text.
        drop: the keywords to remove.
        keep: the only keywords that may stay; None: any.

    Raises:
        ContentError: the schema is not JSON, or nested too deeply.
    """
    removed: set[str] = set()

    def change(keywords: Schema) -> Schema:
        gone = {name for name in keywords if name in drop or (keep is not None and name not in keep)}
        removed.update(gone)
        return {name: value for name, value in keywords.items() if name not in gone}

    return change_schemas(schema, change), tuple(sorted(removed))


_NOT_OF_PLAIN_OBJECTS = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})


def plain_object(schema: bytes | Raw) -> tuple[Raw, tuple[str, ...]]:
    """Return a schema that is one of a plain object at its top, as OpenAI wants that of a tool, and what was removed.

    It has `properties`, if none, and is no combination of schemas. Below the top nothing is changed, and a schema that
    is as it should be comes back byte for byte.

    Raises:
        ContentError: the schema is not a JSON object.
    """
    with _readable():
        keywords = _object.decode(schema)
    removed = tuple(sorted(_NOT_OF_PLAIN_OBJECTS & keywords.keys()))
    if not removed and {"type", "properties"} <= keywords.keys():
        return Raw(bytes(schema)), ()
    kept = {name: value for name, value in keywords.items() if name not in removed}
    return Raw(_encoder.encode({"type": "object", "properties": {}} | kept)), removed


def _changed(text: bytes, change: Callable[[Schema], Schema]) -> Raw:
    if text[:1] != b"{":
        return Raw(text)
    keywords = change(_object.decode(text))
    return Raw(_encoder.encode({name: _inside(name, bytes(value), change) for name, value in keywords.items()}))


def _inside(keyword: str, text: bytes, change: Callable[[Schema], Schema]) -> Raw:
    if keyword in NAMED and text[:1] == b"{":
        named = {name: _changed(bytes(inner), change) for name, inner in _object.decode(text).items()}
        return Raw(_encoder.encode(named))
    if keyword in NESTED and text[:1] == b"{":
        return _changed(text, change)
    if keyword in NESTED and text[:1] == b"[":
        return Raw(_encoder.encode([_changed(bytes(inner), change) for inner in _list.decode(text)]))
    return Raw(text)


@contextmanager
def _readable() -> Generator[None, None, None]:
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ContentError(f"tools: a schema cannot be read: {error}", field="tools") from error
    except RecursionError as error:
        raise ContentError("tools: a schema is nested too deeply", field="tools") from error
