"""What the text of a reply is to be: one reading for all wires of a call's parameter `output_schema`.

Each wire has its own place for the schema, and takes its own part of the vocabulary. What a schema asks for beyond that
is for whoever reads the reply to check: `turnlog.agent.output` does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.plain import plain_json
from turnlog.providers.losses import Losses
from turnlog.providers.raw_json import Fields
from turnlog.providers.schemas import change_schemas, without_keywords

PARAMETER = "output_schema"
"""The parameter: a record of `name` (1 to 64 letters, digits, `_` and `-`) and `schema`, a JSON Schema of an object."""

_FIELD = f"params.{PARAMETER}"
_NOT_CLOSABLE = frozenset(
    {"allOf", "dependencies", "dependentSchemas", "else", "if", "not", "patternProperties", "then"}
    | {"unevaluatedProperties"}
)
"""Keywords beside which a schema object cannot be closed without changing what it means."""

_COMPOSED = frozenset({"anyOf", "oneOf", "$ref"})
_PROPERTIES = frozenset({"properties", "additionalProperties"})

_STRICT = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format"}
    | {"exclusiveMaximum", "exclusiveMinimum", "items", "maximum", "maxItems", "minimum", "minItems", "multipleOf"}
    | {"pattern", "properties", "required", "title", "type"}
)
"""What OpenAI's strict mode knows (Structured Outputs, "supported schemas")."""

_GRAMMAR = frozenset(
    {"$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "default", "definitions", "description"}
    | {"enum", "format", "items", "properties", "required", "title", "type"}
)
"""What Anthropic's models are held to (Structured outputs, "JSON Schema limitations"): the API refuses the rest."""

_STRICT_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})

_name = re.compile("[A-Za-z0-9_-]{1,64}")
_encoder = msgspec.json.Encoder()
_names = msgspec.json.Decoder(list[str])
_list = msgspec.json.Decoder(list[Raw])
_properties = msgspec.json.Decoder(dict[str, Raw])


class OutputSchema(Struct, frozen=True, kw_only=True):
    """A schema that a reply is to follow.

    Attributes:
        name: its name, for wires that want one.
        schema: the schema as JSON text, its objects closed (`additionalProperties` false) where it does not say
            otherwise: a reply of the closed one is one of the given one, too.
        is_closed: whether all objects are closed.
        is_strict: whether they are, each property is required, and nothing is beyond OpenAI's strict mode.
    """

    name: str
    schema: Raw
    is_closed: bool
    is_strict: bool

    def held_to(self, losses: Losses) -> Raw | None:
        """Return the schema as wires take it that hold a model to closed objects; None where it has open ones.

        Keywords that they refuse are left out, with an entry: a reply may then be beyond them.
        """
        if not self.is_closed:
            lose(losses, "an object in it may have further properties")
            return None
        one_of: set[str] = set()

        def any_of(keywords: Fields) -> Fields:
            if "oneOf" not in keywords or "anyOf" in keywords:
                return keywords
            one_of.add("oneOf")  # models are not held to that no more than one holds
            return {("anyOf" if name == "oneOf" else name): value for name, value in keywords.items()}

        either = change_schemas(self.schema, any_of)
        schema, removed = without_keywords(either, keep=_GRAMMAR)
        if removed := sorted(one_of.union(removed)):
            why = f"{PARAMETER} without the keywords {', '.join(removed)}"
            losses.lose("downgraded", "parameter", why, harmless=True)
        return schema


def lose(losses: Losses, why: str) -> None:
    """Note that a model is not told of the schema: only the reader of the reply can hold it to that."""
    losses.lose("dropped", "parameter", f"{PARAMETER}: {why}", harmless=True)


def output_schema(params: Mapping[str, Any]) -> OutputSchema | None:
    """Return the schema that the text of a reply is to follow, None where nothing is said.

    Raises:
        ContentError: the parameter is no record of a name and the schema of an object.
    """
    asked: object = params.get(PARAMETER)
    if asked is None:
        return None
    record = plain_json(asked, _FIELD, ContentError)
    if not isinstance(record, dict) or set(cast("dict[str, Any]", record)) != {"name", "schema"}:
        raise ContentError(f"{_FIELD}: expected a record of name and schema", field=_FIELD)
    named, schema = cast("dict[str, Any]", record)["name"], cast("dict[str, Any]", record)["schema"]
    if not isinstance(named, str) or not _name.fullmatch(named):
        raise ContentError(f"{_FIELD}.name: expected 1 to 64 letters, digits, '_' and '-', got {named!r}", field=_FIELD)
    if not isinstance(schema, Mapping) or cast("Mapping[str, Any]", schema).get("type") != "object":
        raise ContentError(f"{_FIELD}.schema: expected the JSON Schema of an object (type: object)", field=_FIELD)
    return _closed(named, Raw(_encoder.encode(schema)))


def with_output(params: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters without `output_schema`, and with what a wire says in its place.

    Args:
        params: the parameters.
        given: the wire's own parameters; records in them are put into those of the call.

    Raises:
        ContentError: the call says the same itself.
    """
    if PARAMETER not in params:
        return params
    others = {name: value for name, value in params.items() if name != PARAMETER}
    return _joined(others, given, "params")


def _joined(params: Mapping[str, Any], given: Mapping[str, Any], path: str) -> dict[str, Any]:
    joined = dict(params)
    for name, value in given.items():
        there = joined.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            joined[name] = _joined(cast("Mapping[str, Any]", there), cast("Mapping[str, Any]", value), f"{path}.{name}")
        elif there is None:
            joined[name] = value
        else:
            raise ContentError(f"{path}.{name}: {PARAMETER} says it already: leave one out", field=f"{path}.{name}")
    return joined


def _closed(name: str, schema: Raw) -> OutputSchema:
    seen: set[str] = set()
    is_open = False
    is_strict = _is_strict_root(_properties.decode(schema))
    open_objects = optional = 0

    def look(keywords: Fields) -> Fields:
        nonlocal is_open, is_strict
        seen.update(keywords)
        is_strict = is_strict and _is_strict(keywords)
        is_open = is_open or _has_to_stay_open(keywords)
        return keywords

    def close(keywords: Fields) -> Fields:
        nonlocal open_objects, optional
        if not (_is_object(keywords) or "properties" in keywords):
            return keywords
        if closable and "additionalProperties" not in keywords:
            keywords = {**keywords, "additionalProperties": Raw(b"false")}
        open_objects += bytes(keywords.get("additionalProperties", b"")) != b"false"
        properties = _properties.decode(keywords.get("properties", b"{}"))
        optional += not properties.keys() <= set(_names.decode(keywords.get("required", b"[]")))
        return keywords

    try:
        change_schemas(schema, look)
        closable = not is_open and not seen & _NOT_CLOSABLE
        closed = change_schemas(schema, close)
    except (msgspec.DecodeError, ContentError) as error:
        raise ContentError(f"{_FIELD}.schema: it cannot be read: {error}", field=_FIELD) from error
    is_closed = not open_objects
    return OutputSchema(
        name=name, schema=closed, is_closed=is_closed, is_strict=is_closed and not optional and is_strict
    )


def _is_strict_root(keywords: Fields) -> bool:
    """Tell whether OpenAI takes the top of a schema as strict: an object by itself, and no reference or combination."""
    return "properties" in keywords and keywords.keys().isdisjoint(_COMPOSED)


def _is_strict(keywords: Fields) -> bool:
    """Tell whether OpenAI takes one schema of a whole as strict; anything else it refuses, with an error."""
    if not keywords.keys() <= _STRICT:
        return False
    if "$ref" in keywords:
        return len(keywords) == 1 and bytes(keywords["$ref"])[:2] == b'"#'
    if keywords.keys().isdisjoint({"type", "anyOf"}):
        return False
    if b'"array"' in bytes(keywords.get("type", b"")) and bytes(keywords.get("items", b""))[:1] != b"{":
        return False
    if "format" in keywords and msgspec.json.decode(keywords["format"]) not in _STRICT_FORMATS:
        return False
    within = [*_members(keywords, "properties"), *_members(keywords, "anyOf")]
    return all(bytes(schema)[:1] == b"{" for schema in within)


def _members(keywords: Fields, name: str) -> Collection[Raw]:
    """Return the schemas that a keyword holds, by name or in a list."""
    held = bytes(keywords.get(name, b"[]"))
    return _properties.decode(held).values() if held[:1] == b"{" else _list.decode(held)


def _has_to_stay_open(keywords: Fields) -> bool:
    """Tell whether an object has properties that something beside it names, or any: closed, nothing would follow it."""
    if not (_is_object(keywords) or "properties" in keywords):
        return False
    return not keywords.keys().isdisjoint(_COMPOSED) or keywords.keys().isdisjoint(_PROPERTIES)


def _is_object(keywords: Fields) -> bool:
    return bytes(keywords.get("type", b"")) == b'"object"'
