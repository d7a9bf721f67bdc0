"""JSON Schemas in the words of Gemini's API, and what is lost of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from turnlog.providers.gemini.schema import EndlessSchemaError, converted

TEXT = {"type": "string"}


def _converted(schema: Any, **more: Any) -> tuple[Any, tuple[str, ...]]:
    result, lost = converted(json.dumps(schema, separators=(",", ":")).encode(), **more)
    return json.loads(bytes(result)), lost


def _of(schema: Any) -> tuple[Any, tuple[str, ...]]:
    """Return what becomes of the schema of a property."""
    whole, lost = _converted({"type": "object", "properties": {"p": schema}})
    return whole["properties"]["p"], lost


def test_known_keywords_stay_as_they_are() -> None:
    """What the API knows is not touched, in its order and spelling."""
    schema = b'{"title":"T","type":"object","properties":{"n":{"minimum":1.50,"default":2.0}},"required":["n"]}'
    assert converted(schema) == (Raw(schema), ())


def test_unknown_keywords_go() -> None:
    """What the API has no word for is taken out and named, once and sorted."""
    schema = {"type": "string", "format": "uri", "$comment": "c", "examples": ["a"], "minLength": 1}
    assert _of(schema) == ({"type": "string", "minLength": 1}, ("$comment", "examples", "format"))


def test_properties_are_not_keywords() -> None:
    """A property may be called as a keyword is; so may a value."""
    schema = {
        "type": "object",
        "properties": {"format": TEXT, "$ref": TEXT, "$schema": TEXT, "const": TEXT},
        "required": ["format"],
        "default": {"format": "x"},
        "example": {"$ref": "#"},
    }
    assert _converted(schema) == (schema, ())


def test_definitions_are_put_in_place() -> None:
    """References to definitions are replaced by them, also inside of each other; keywords beside a reference win."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A", "description": "here"},
            "b": {"type": "array", "items": {"$ref": "#/definitions/x~1y%20z"}},
        },
        "$defs": {
            "A": {"type": "object", "description": "there", "properties": {"b": {"$ref": "#/definitions/x~1y z"}}}
        },
        "definitions": {"x/y z": TEXT},
    }
    properties = {
        "a": {"type": "object", "description": "here", "properties": {"b": TEXT}},
        "b": {"type": "array", "items": TEXT},
    }
    assert _converted(schema) == ({"type": "object", "properties": properties}, ())


def test_reference_of_a_reference_is_followed() -> None:
    """A definition may be a reference itself, or lie in a list."""
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B/anyOf/1"}, "B": {"anyOf": [True, TEXT]}}}
    assert _converted(schema)[0] == TEXT


def test_keywords_beside_a_reference_count_too() -> None:
    """Both are asked for: what contradicts is lost of the definition, and said."""
    definition = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "allOf": [{"minProperties": 1}]}
    beside = {"properties": {"b": TEXT}, "required": ["b"], "allOf": [{"maxProperties": 5}]}
    assert _converted({"$ref": "#/$defs/A", **beside, "$defs": {"A": definition}}) == (
        {
            "type": "object",
            "properties": {"b": TEXT, "a": TEXT},
            "required": ["b", "a"],
            "maxProperties": 5,
            "minProperties": 1,
        },
        (),
    )
    narrower = {"$ref": "#/$defs/A", "minimum": 5, "$defs": {"A": {"type": "integer", "minimum": 10}}}
    assert _converted(narrower) == ({"type": "integer", "minimum": 5}, ("$ref",))


def test_a_property_that_two_parts_describe_follows_both() -> None:
    """Neither is passed over."""
    parts = [{"properties": {"a": TEXT, "b": TEXT}}, {"properties": {"a": {"maxLength": 3}, "b": TEXT}}]
    properties = {"a": {**TEXT, "maxLength": 3}, "b": TEXT}
    assert _converted({"type": "object", "allOf": parts}) == ({"type": "object", "properties": properties}, ())


@pytest.mark.parametrize("reference", ["https://example.org/schema", "#/$defs/None", "#/anyOf/9", "#anchor"])
def test_reference_to_elsewhere_is_lost(reference: str) -> None:
    """A schema that is not there allows anything."""
    assert _of({"$ref": reference, "description": "d"}) == ({"description": "d"}, ("$ref",))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [TEXT, {"type": "array", "items": {"$ref": "#/$defs/A"}}]}}},
        {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}},
        {
            "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}]}},
            "$defs": {"A": {"properties": {"b": {"allOf": [{"$ref": "#/$defs/A"}]}}}},
        },
        {"$ref": "#/properties/a", "properties": {"a": {"items": {"$ref": "#/properties/a"}}}},
    ],
)
def test_schema_without_end_is_refused_or_cut(schema: Any) -> None:
    """A schema that refers to itself has no form without references, unless it may be cut."""
    with pytest.raises(EndlessSchemaError, match="it refers to itself by '#"):
        _converted(schema)
    result, lost = _converted(schema, cut=True)
    assert '{"type": "object"' in json.dumps(result)
    assert "$ref" in lost


def test_schema_that_doubles_at_each_step_is_refused_or_cut() -> None:
    """References without a loop can still be too many to write out."""
    pairs = {f"S{n}": {"properties": {side: {"$ref": f"#/$defs/S{n + 1}"} for side in "ab"}} for n in range(40)}
    schema = {"$ref": "#/$defs/S0", "$defs": pairs | {"S40": TEXT}}
    with pytest.raises(EndlessSchemaError, match="more than 10,000 schemas"):
        _converted(schema)
    result, lost = _converted(schema, cut=True)
    assert lost == ("$ref",)
    assert '"b": {"type": "object"}' in json.dumps(result)


def test_constants_become_lists_of_one() -> None:
    """`const` is an `enum` of one value, where that is a text."""
    assert _of({"const": "a"}) == ({"type": "string", "enum": ["a"]}, ())
    assert _of({"type": "integer", "const": 1}) == ({"type": "integer"}, ("enum",))
    assert _of({"const": None}) == ({"nullable": True}, ("enum",))


def test_lists_of_values_hold_texts() -> None:
    """The API lists texts only; null among them is said otherwise, and other values are lost."""
    assert _of({"enum": ["a", "b", None]}) == ({"nullable": True, "type": "string", "enum": ["a", "b"]}, ())
    assert _of({"type": "integer", "enum": [1, 2]}) == ({"type": "integer"}, ("enum",))
    assert _of({"enum": ["a", 1]}) == ({}, ("enum",))


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({"type": ["string", "null"], "minLength": 1}, {"type": "string", "minLength": 1, "nullable": True}),
        ({"type": ["string"]}, {"type": "string"}),
        ({"type": ["null"]}, {"nullable": True}),
        ({"anyOf": [TEXT, {"type": "null"}], "title": "T"}, {"type": "string", "nullable": True, "title": "T"}),
        ({"anyOf": [{"type": "null"}]}, {"nullable": True}),
        ({"anyOf": [TEXT]}, TEXT),
        (
            {"type": ["string", "array", "null"], "items": TEXT, "maxLength": 9, "description": "d"},
            {
                "anyOf": [{"type": "string", "maxLength": 9}, {"type": "array", "items": TEXT}],
                "description": "d",
                "nullable": True,
            },
        ),
    ],
)
def test_null_is_nullable_and_several_types_are_alternatives(schema: Any, result: Any) -> None:
    """One type a schema: null is a word of its own, and other types are alternatives. Nothing is lost by it."""
    assert _of(schema) == (result, ())


def test_alternatives_are_converted_too() -> None:
    """Schemas in `anyOf` are schemas as any other."""
    schema = {"anyOf": [{"type": "string", "format": "date"}, {"type": "array", "items": {"const": "a"}}]}
    items = {"type": "string", "enum": ["a"]}
    assert _of(schema) == ({"anyOf": [TEXT, {"type": "array", "items": items}]}, ("format",))


def test_one_of_becomes_any_of() -> None:
    """That no two alternatives hold at once is lost."""
    schema = {"oneOf": [TEXT, {"type": "integer"}]}
    assert _of(schema) == ({"anyOf": [TEXT, {"type": "integer"}]}, ("oneOf",))


def test_all_of_is_merged() -> None:
    """Properties and required ones add up; what contradicts is lost."""
    parts = [
        {"$ref": "#/$defs/A"},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        {"allOf": [{"title": "inner", "maxProperties": 5}]},
        True,
    ]
    definitions = {"A": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}}
    result, lost = _converted({"description": "d", "allOf": parts, "$defs": definitions})
    assert result == {
        "description": "d",
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "title": "inner",
        "maxProperties": 5,
    }
    assert "allOf" not in lost
    assert _of({"type": "string", "allOf": [{"type": "integer"}]}) == (TEXT, ("allOf",))


def test_property_may_be_of_the_schema_that_its_object_is_merged_from() -> None:
    """One reference may stand in several places of a schema, as long as none is inside itself."""
    schema = {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"$ref": "#/$defs/A"}}}]}
    base = {"type": "object", "properties": {"a": TEXT}}
    result, lost = _converted(schema | {"$defs": {"A": base}})
    assert (result, lost) == ({"type": "object", "properties": {"a": TEXT, "b": base}}, ())
    assert list(result["properties"]) == ["a", "b"]


def test_arrays_say_what_they_hold() -> None:
    """The API refuses an array without items: texts are what it is told then."""
    assert _of({"type": "array"}) == ({"type": "array", "items": TEXT}, ("items",))
    assert _of({"type": "array", "items": True}) == ({"type": "array", "items": {}}, ())
    assert _of({"type": "array", "items": [TEXT, TEXT]}) == ({"type": "array", "items": TEXT}, ("items",))
    assert _of({"type": "array", "prefixItems": [TEXT]}) == ({"type": "array", "items": TEXT}, ("items", "prefixItems"))


def test_required_properties_are_described_ones() -> None:
    """The API refuses a required property that is not described."""
    assert _of({"type": "object", "properties": {"a": TEXT}, "required": ["a", "b"]}) == (
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ("required",),
    )
    assert _of({"type": "object", "required": ["b"]}) == ({"type": "object"}, ("required",))


def test_boolean_schemas_are_empty_ones() -> None:
    """`true` says nothing, and `false` cannot be said."""
    assert _of(True) == ({}, ())
    assert _of(False) == ({}, ("not",))
