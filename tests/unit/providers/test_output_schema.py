"""A schema that the text of a reply is to follow: each wire's own words for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.unit.providers.carrying import message

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Tool
from turnlog.providers import PreparedRequest, get
from turnlog.providers.output_schema import output_schema

WINDOW = ContextWindow(messages=[message("user", "Who?")], options={})
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
CLOSED = {**PERSON, "additionalProperties": False}
BARE = {**CLOSED, "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
TOOL = Tool(name="look", description="", input_schema=Raw(b'{"type":"object"}'))


def prepared(wire: str, schema: object = PERSON, *, tools: tuple[Tool, ...] = (), **more: Any) -> PreparedRequest:
    params = {"output_schema": {"name": "person", "schema": schema}, **more.pop("params", {})}
    model = more.pop("model", "m")
    return get(wire).prepare_request(WINDOW, tools, model=model, params=params, **more)


def body(request: PreparedRequest) -> dict[str, Any]:
    return json.loads(request.body)


NAMED = {"type": "json_schema", "name": "person", "schema": CLOSED, "strict": False}
PLACES: dict[str, tuple[str, object]] = {
    "anthropic": ("output_config", {"format": {"type": "json_schema", "schema": BARE}}),
    "openai_chat": (
        "response_format",
        {"type": "json_schema", "json_schema": {name: NAMED[name] for name in ("name", "schema", "strict")}},
    ),
    "openai_responses": ("text", {"format": NAMED}),
    "cerebras": (
        "response_format",
        {"type": "json_schema", "json_schema": {name: NAMED[name] for name in ("name", "schema", "strict")}},
    ),
    "cohere": ("response_format", {"type": "json_object", "json_schema": CLOSED}),
}
"""By adapter, the key of the body that has it, and its value."""

OF_THEIR_OWN = ("gemini", "bedrock")
"""Adapters whose place has a test of its own, below."""


@pytest.mark.parametrize("wire", PLACES)
def test_the_schema_stands_where_the_wire_has_it(wire: str) -> None:
    """Objects of it are closed, and it is in no other place of the body."""
    place, expected = PLACES[wire]
    sent = body(prepared(wire))
    assert sent[place] == expected
    assert "output_schema" not in sent


def test_gemini_has_it_in_its_generation_config() -> None:
    """What it does not know is left out, and a constant is an enumeration of one."""
    schema = {**PERSON, "properties": {**PERSON["properties"], "kind": {"const": "person"}}}
    request = prepared("gemini", schema)
    config = body(request)["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"]["properties"] == {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "kind": {"enum": ["person"]},
    }
    assert [entry.why for entry in request.loss_report.entries] == ["output_schema without the keywords minLength"]


def test_gemini_has_definitions_of_older_drafts() -> None:
    """It knows them by their newer name alone: a reference would lead nowhere."""
    place = {"type": "object", "properties": {"definitions": {"type": "string"}}, "required": ["definitions"]}
    schema = {
        "type": "object",
        "properties": {"from": {"$ref": "#/definitions/place"}, "to": {"$ref": "#/definitions/place"}},
        "required": ["from", "to"],
        "definitions": {"place": place},
    }
    request = prepared("gemini", schema)
    sent = body(request)["generationConfig"]["responseJsonSchema"]
    assert sent == {
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}},
        "required": ["from", "to"],
        "additionalProperties": False,
        "$defs": {"place": {**place, "additionalProperties": False}},
    }
    assert not request.loss_report.entries


def test_bedrock_has_it_as_text() -> None:
    """The API wants the schema as a string."""
    asked = body(prepared("bedrock"))["outputConfig"]["textFormat"]
    assert asked["type"] == "json_schema"
    assert asked["structure"]["jsonSchema"]["name"] == "person"
    assert json.loads(asked["structure"]["jsonSchema"]["schema"]) == BARE


@pytest.mark.parametrize("wire", ["anthropic", "bedrock"])
def test_keywords_that_are_refused_are_left_out_and_reported(wire: str) -> None:
    """Not with `on_loss="error"`."""
    [entry] = prepared(wire).loss_report.entries
    assert (entry.kind, entry.why) == ("downgraded", "output_schema without the keywords minLength")
    with pytest.raises(UnsupportedContentError, match="minLength"):
        prepared(wire, on_loss="error")


@pytest.mark.parametrize("wire", ["anthropic", "bedrock"])
def test_alternatives_that_may_hold_together_are_reported(wire: str) -> None:
    """Where `anyOf` is sent for `oneOf`, a reply may follow several of them."""
    numbers = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    request = prepared(wire, {**BARE, "properties": {**BARE["properties"], "age": numbers}})
    assert b"anyOf" in request.body
    [entry] = request.loss_report.entries
    assert (entry.kind, entry.why) == ("downgraded", "output_schema without the keywords oneOf")


@pytest.mark.parametrize("wire", ["anthropic", "bedrock"])
def test_open_objects_are_not_sent_to_who_refuses_them(wire: str) -> None:
    """Whoever reads the reply holds it to them."""
    request = prepared(wire, {"type": "object", "additionalProperties": {"type": "integer"}})
    assert not {"output_config", "outputConfig"} & body(request).keys()
    assert [entry.why for entry in request.loss_report.entries] == [
        "output_schema: an object in it may have further properties"
    ]


STRICT: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        pytest.param(STRICT, True, id="each property is required"),
        pytest.param({**STRICT, "required": []}, False, id="a property may be left out"),
        pytest.param({**STRICT, "additionalProperties": True}, False, id="others may come"),
        pytest.param({**STRICT, "minProperties": 1}, False, id="a keyword beyond strict mode"),
        pytest.param({**STRICT, "allOf": [STRICT]}, False, id="objects that cannot be closed"),
        pytest.param(
            {**STRICT, "$defs": {"x": {**STRICT, "required": []}}, "properties": {"name": {"$ref": "#/$defs/x"}}},
            False,
            id="a definition has a property that may be left out",
        ),
        pytest.param(
            {**STRICT, "$defs": {"x": STRICT}, "properties": {"name": {"$ref": "#/$defs/x"}}}, True, id="a reference"
        ),
        pytest.param(
            {**STRICT, "$defs": {"x": STRICT}, "properties": {"name": {"$ref": "#/$defs/x", "description": "A name."}}},
            False,
            id="something beside a reference",
        ),
        pytest.param({**STRICT, "properties": {"name": {"$ref": "http://127.0.0.1/x"}}}, False, id="another document"),
        pytest.param({**STRICT, "properties": {"name": {}}}, False, id="anything"),
        pytest.param({**STRICT, "properties": {"name": True}}, False, id="anything, in short"),
        pytest.param({**STRICT, "properties": {"name": {"enum": ["a"]}}}, False, id="values without a type"),
        pytest.param({**STRICT, "properties": {"name": {"type": "array"}}}, False, id="a list of anything"),
        pytest.param(
            {**STRICT, "properties": {"name": {"type": ["array", "null"], "items": {"type": "string"}}}},
            True,
            id="a list, or none",
        ),
        pytest.param({**STRICT, "properties": {"name": {"type": "string", "format": "uri"}}}, False, id="a format"),
        pytest.param({**STRICT, "properties": {"name": {"type": "string", "format": "date"}}}, True, id="a date"),
        pytest.param({**STRICT, "properties": {"name": {"anyOf": [{"type": "null"}, True]}}}, False, id="or anything"),
        pytest.param({"type": "object", "anyOf": [STRICT]}, False, id="a combination at the top"),
    ],
)
def test_openai_is_strict_where_the_schema_can_be(schema: dict[str, Any], strict: bool) -> None:
    """Anything else would be refused with an error."""
    assert body(prepared("openai_chat", schema))["response_format"]["json_schema"]["strict"] is strict


def test_objects_within_a_combination_stay_open() -> None:
    """Closed, they would exclude each other."""
    schema: dict[str, Any] = {"type": "object", "allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    assert body(prepared("openai_chat", schema))["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("wire", "model", "place"),
    [("cohere", "command-a", "response_format"), ("gemini", "models/gemini-2.5-pro", "responseJsonSchema")],
)
def test_a_wire_that_takes_none_beside_tools_is_not_sent_it(wire: str, model: str, place: str) -> None:
    """The report says so."""
    request = prepared(wire, STRICT, tools=(TOOL,), model=model)
    assert place not in request.body.decode()
    [entry] = [entry for entry in request.loss_report.entries if entry.block == "parameter"]
    assert entry.kind == "dropped"
    assert entry.why.endswith("beside tools")


def test_gemini_takes_it_beside_tools_from_version_3_on() -> None:
    """Only earlier models refuse both."""
    request = prepared("gemini", STRICT, tools=(TOOL,), model="gemini-3-pro")
    assert body(request)["generationConfig"]["responseJsonSchema"] == {**STRICT, "additionalProperties": False}


def test_parameters_of_the_same_record_stay() -> None:
    """`effort` is beside the format."""
    request = prepared("anthropic", STRICT, params={"output_config": {"effort": "low"}})
    assert body(request)["output_config"]["effort"] == "low"
    assert body(request)["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("wire", "params", "field"),
    [
        ("openai_chat", {"response_format": {"type": "text"}}, "params.response_format.type"),
        ("openai_responses", {"text": {"format": {"type": "text"}}}, "params.text.format.type"),
        ("cohere", {"response_format": "text"}, "params.response_format"),
    ],
)
def test_who_says_it_twice_is_refused(wire: str, params: dict[str, Any], field: str) -> None:
    """It is one or the other."""
    with pytest.raises(ContentError) as refused:
        prepared(wire, STRICT, params=params)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "given",
    [
        "person",
        {"schema": STRICT},
        {"name": "p", "schema": STRICT, "strict": True},
        {"name": "a b", "schema": STRICT},
        {"name": "", "schema": STRICT},
        {"name": "p", "schema": {"type": "array"}},
        {"name": "p", "schema": True},
        {"name": "p", "schema": {"type": "object", "properties": {"a": {"properties": 1}}}},
    ],
)
def test_what_is_no_schema_of_an_object_is_refused(given: object) -> None:
    """Nothing is sent."""
    with pytest.raises(ContentError, match=r"params\.output_schema"):
        get("openai_chat").prepare_request(WINDOW, model="m", params={"output_schema": given})


def test_none_is_nothing() -> None:
    """As if the parameter were not given."""
    params = {"output_schema": None}
    request = get("openai_chat").prepare_request(WINDOW, model="m", params=params)
    assert request.body == get("openai_chat").prepare_request(WINDOW, model="m").body


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"kind": {"type": "string"}}, "anyOf": [{"properties": {"a": {"type": "integer"}}}]},
        {"properties": {"c": {"type": "string"}}, "$ref": "#/$defs/b", "$defs": {"b": {"properties": {"d": {}}}}},
        {"properties": {"any": {"type": "object"}}},
    ],
    ids=str,
)
def test_what_nothing_could_follow_if_it_were_closed_stays_open(schema: dict[str, Any]) -> None:
    """Properties that stand beside others, and objects of any properties."""
    found = output_schema({"output_schema": {"name": "x", "schema": {"type": "object"} | schema}})
    assert found is not None
    assert (found.is_closed, found.is_strict) == (False, False)
    assert b'"additionalProperties"' not in bytes(found.schema)
