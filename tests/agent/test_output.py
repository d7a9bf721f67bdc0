"""A run that comes to a value: read from the last reply, checked, and repaired once."""

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

import jsonschema
import msgspec
import pydantic
import pytest
from tests.agent.running import contents, run, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say
from typing_extensions import TypedDict

from turnlog import MetaError, Output, OutputError, RunError, RunResult, TurnLog
from turnlog.agent.output import REPAIR
from turnlog.agent.reply_json import unfenced


class Person(pydantic.BaseModel):
    """A person."""

    name: str
    age: int = pydantic.Field(ge=0)


class Place(msgspec.Struct):
    """A place; msgspec's own."""

    name: str
    within: "Place | None" = None


@dataclass
class Point:
    """A point."""

    x: float
    y: float


class Note(TypedDict):
    """A note."""

    text: str


class Tally(msgspec.Struct):
    """A tally; msgspec takes no `2.0` for an integer."""

    count: int
    share: float


class Decimals(msgspec.Struct):
    """msgspec reads numbers too, and its schema says text."""

    n: Decimal


class Longer(Note, total=False):
    """A note that may have more."""

    more: str


Either = Annotated[
    Annotated[Note, pydantic.Tag("note")] | Annotated[Longer, pydantic.Tag("longer")],
    pydantic.Discriminator(lambda said: "longer" if "more" in said else "note"),
]

ADA = '{"name":"Ada","age":36}'


def test_a_value_over_a_pause_is_one(log: TurnLog) -> None:
    """What the model said before it is a part of it."""
    result = run(log, Scripted(say(ADA[:9], end="pause_turn"), say(ADA[9:])), output=Person)
    assert (result.stopped, result.output) == ("done", Person(name="Ada", age=36))


def look() -> str:
    """Look."""
    return "Ada, 36"


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (Person, ADA, Person(name="Ada", age=36)),
        (Place, '{"name":"Kew","within":{"name":"London"}}', Place("Kew", Place("London"))),
        (Point, '{"x":1,"y":2.5}', Point(1.0, 2.5)),
        (Note, '{"text":"Bolts."}', {"text": "Bolts."}),
        (Person, '{"name":"Ada","age":36.0}', Person(name="Ada", age=36)),
        (Tally, '{"count":2.0,"share":0.1}', Tally(count=2, share=0.1)),
        (list[int], '{"value":[1,2]}', [1, 2]),
        (int | None, '{"value":null}', None),
    ],
)
def test_a_reply_is_read_as_a_value_of_a_type(log: TurnLog, kind: Any, said: str, value: object) -> None:
    """What is no object by itself is asked for, and comes, as the property `value` of one."""
    adapter = Scripted(say(said))
    result = run(log, adapter, output=kind)
    assert (result.stopped, result.output) == ("done", value)
    assert type(result.output) is type(value)
    asked = log.calls.get(result.calls[0]).meta.parameters["output_schema"]
    assert asked["schema"]["type"] == "object"
    assert asked["schema"].get("required", []) == [name for name in json.loads(said) if name != "within"]


def test_a_schema_gives_plain_values(log: TurnLog) -> None:
    """Also in a block of Markdown: models that are not held to a schema like to write one."""
    schema = {"title": "A person", "type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    result = run(log, Scripted(say('```json\n{"age": 36}\n```\n')), output=Output.of_schema(schema))
    assert result.output == {"age": 36}
    assert json.loads(msgspec.json.encode(result.to_record()))["output"] == {"age": 36}
    asked = log.calls.get(result.calls[0]).meta.parameters["output_schema"]
    assert asked == {"name": "A_person", "schema": schema}


def test_a_value_of_any_type_is_in_the_record(log: TurnLog) -> None:
    """It is JSON."""
    record = run(log, Scripted(say(ADA)), output=Person).to_record()
    assert json.loads(msgspec.json.encode(record))["output"] == {"name": "Ada", "age": 36}


def test_tools_run_before_the_value_comes(log: TurnLog) -> None:
    """Only the last reply is read, and each call asks for the value."""
    adapter = Scripted(call(("look", {}), text="I look."), say(ADA))
    result = run(log, adapter, output=Person, tools=look)
    assert result.output == Person(name="Ada", age=36)
    assert all("output_schema" in log.calls.get(made).meta.parameters for made in result.calls)


def test_a_model_whose_reply_does_not_fit_is_told_so_once(log: TurnLog) -> None:
    """What it is told is a turn of the thread, and says what is wrong and what is wanted."""
    result = run(log, Scripted(say('{"name":"Ada","age":-1}'), say(ADA)), output=Person, bookmark="main")
    assert (result.stopped, result.output, result.invalid) == ("done", Person(name="Ada", age=36), None)
    assert [role for role, _ in contents(log, "main")] == ["user", "assistant", "user", "assistant"]
    why = OutputError("age: Input should be greater than or equal to 0")
    told = REPAIR.format(why=why, schema=json.dumps(Person.model_json_schema()))
    assert json.loads(contents(log, "main")[2][1]) == [{"type": "text", "text": told}]


def test_a_second_reply_that_does_not_fit_ends_the_run(log: TurnLog) -> None:
    """The result says why."""
    result = run(log, Scripted(say("Ada!"), say('{"name":"Ada"}')), output=Person)
    assert (result.stopped, result.output, result.invalid) == ("invalid", None, "age: Field required")
    assert result.why == "the reply is not what was asked for: age: Field required"
    assert len(result.calls) == 2


def test_nobody_is_asked_again_beyond_the_limit_of_calls(log: TurnLog) -> None:
    """The one call was all."""
    result = run(log, Scripted(say("Ada!")), output=Person, iterations_max=1)
    assert (result.stopped, len(result.calls), len(result.turns)) == ("invalid", 1, 2)


def test_nobody_is_asked_again_beyond_the_limit_of_tokens(log: TurnLog) -> None:
    """As of calls."""
    adapter = Scripted(say("no", tokens=100))
    assert run(log, adapter, output=Person, total_tokens_max=50).stopped == "invalid"


def test_a_repair_that_fails_otherwise_says_that(log: TurnLog) -> None:
    """A refusal is a refusal."""
    result = run(log, Scripted(say("Ada!"), say("No.", end="refusal")), output=Person)
    assert (result.stopped, result.invalid) == ("refusal", None)


def test_the_recorded_request_can_be_made_again(log: TurnLog) -> None:
    """The schema is recorded with the call."""
    adapter = Scripted(say(ADA))
    result = run(log, adapter, output=Person)
    [checked] = log.calls.check(result.head.id, adapter=lambda _name, _provider: adapter)
    assert checked.difference is None


@pytest.mark.parametrize(
    ("schema", "said", "why"),
    [
        ({"type": "object"}, "[]", "[] is not of type 'object'"),
        ({"type": "object"}, "{", "it is no JSON: "),
        ({"type": "object"}, "[" * 100_000, "it is no JSON: "),
        ({"type": "array"}, "[]", "expected a JSON object with 'value' alone"),
        ({"type": "array"}, '{"value":[],"more":1}', "expected a JSON object with 'value' alone"),
        ({"type": "array"}, '{"value":1}', "1 is not of type 'array'"),
        (
            {"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
            '{"a":"x"}',
            "a: 'x' is not ",
        ),
        ({"type": "object", "properties": {"a": {"pattern": "^b"}}}, '{"a":"ab"}', "a: 'ab' does not match '^b'"),
        (
            {"type": "object", "properties": {"a": {"pattern": "^(?=b)"}}},
            '{"a":"ab"}',
            "a: 'ab' does not match '^(?=b)'",
        ),
        ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, '{"a":1,"b":1}', "a: 1 is not of type"),
        (
            {"properties": {"b": {}}, "patternProperties": {"^a": {}}, "additionalProperties": False},
            '{"a":1,"b":1,"c":1}',
            "'c': no further properties are allowed",
        ),
        (
            {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": {"type": "null"}},
            '{"a":1,"c":1}',
            "c: 1 is not of type 'null'",
        ),
    ],
)
def test_what_does_not_follow_a_schema_is_told_with_its_place(schema: dict[str, Any], said: str, why: str) -> None:
    """Each fault in its own words."""
    with pytest.raises(OutputError) as raised:
        Output.of_schema(schema).read(said)
    assert str(raised.value).startswith(why)


def test_many_faults_are_cut(log: TurnLog) -> None:
    """Five are told, in the order of their places."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    with pytest.raises(OutputError) as raised:
        Output.of_schema(schema).read(json.dumps({f"p{n}": "x" for n in range(8)}))
    assert str(raised.value).startswith("p0: 'x' is not of type 'integer'; p1: ")
    assert str(raised.value).endswith("; and 3 more")


@pytest.mark.parametrize("schema", [{"type": "nix"}, {"type": "object", "properties": []}, {"a": float("nan")}])
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    """Before anything is recorded."""
    with pytest.raises(MetaError):
        Output.of_schema(schema)


def test_a_type_without_a_schema_is_refused(log: TurnLog) -> None:
    """Nothing is recorded."""
    with pytest.raises(MetaError, match="has no JSON Schema"):
        run(log, Scripted(), output=TurnLog)
    assert log.threads() == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"a": NaN}', "it is no JSON: JSON has no NaN"),
        ('{"a": -Infinity}', "it is no JSON: JSON has no -Infinity"),
        ('{"a": 1e999}', "it is no JSON: the number 1e999 is too large"),
        ('{"a": ' + "1" * 400 + "}", "it cannot be checked: "),
        ('{"b": ' * 900 + "0" + "}" * 900, "it cannot be checked: it is nested too deeply"),
    ],
)
def test_a_reply_that_python_would_take_or_choke_on_does_not_fit(said: str, why: str) -> None:
    """Whatever a model writes, it is told, and no error of a library's ends the run."""
    schema = {"type": "object", "properties": {"a": {"multipleOf": 0.5, "maximum": 10}, "b": {"$ref": "#"}}}
    with pytest.raises(OutputError) as caught:
        Output.of_schema(schema).read(said)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (True, "output: a JSON Schema is an object here, not bool"),
        ([], "output: a JSON Schema is an object here, not list"),
        ({"$schema": 3}, "output: no JSON Schema: $schema: expected a text"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "output: no JSON Schema: it refers to itself"),
        ({"type": "object", "allOf": [{"$ref": "#"}]}, "output: no JSON Schema: it refers to itself without an end"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}},
            "output: no JSON Schema: it names '/$defs/b', which is not in it, and nothing is fetched",
        ),
        (
            {"type": "object", "properties": {"a": {"items": {"$ref": "http://127.0.0.1:9/"}}}},
            "output: no JSON Schema: it names 'http://127.0.0.1:9/', which is not in it",
        ),
        (
            {"type": "object", "properties": {"a": {"pattern": "("}}},
            "output: no JSON Schema: properties.a.pattern: ",
        ),
    ],
)
def test_a_schema_that_nothing_can_follow_is_refused_at_once(schema: Any, why: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(MetaError) as caught:
        Output.of_schema(schema)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('```json\n{"a":1}\n```', '{"a":1}\n'),
        (' ```\n{"a":1}\n ``` \n', '{"a":1}\n'),
        ('```JSON\n{"a":1}\n```', '{"a":1}\n'),
        ('```python\n{"a":1}\n```', None),
        ('Here:\n```json\n{"a":1}\n```', None),
        ('```json\n{"a":1}```', None),
        ("```json" + "\n" * 200_000, None),
    ],
    ids=range(7),
)
def test_a_reply_may_be_one_code_block(text: str, inner: str | None) -> None:
    """And is looked at in time, however long."""
    assert unfenced(text) == (text if inner is None else inner)


class Node(pydantic.BaseModel):
    """A model that has itself in it."""

    v: int
    next: "Node | None" = None


def test_an_object_is_asked_for_as_one_however_its_schema_is_written() -> None:
    """Nothing is put around what is an object, and is not called one, or is called so elsewhere."""
    node = Output.of(Node)
    assert node.read('{"v":1,"next":{"v":2}}') == Node(v=1, next=Node(v=2))
    assert node.parameter["schema"]["type"] == "object"
    plain = Output.of_schema({"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert plain.read('{"a":1}') == {"a": 1}
    assert plain.parameter["schema"]["type"] == "object"


def test_references_of_what_is_wrapped_mean_what_they_did() -> None:
    """Definitions stay at the top, and the whole is what is wrapped."""
    schema = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/n"}]}}
    output = Output.of_schema(schema | {"definitions": {"n": {"type": "integer"}}})
    assert output.read('{"value":[1,[2]]}') == [1, [2]]
    asked = output.parameter["schema"]
    assert asked["definitions"] == {"n": {"type": "integer"}}
    assert asked["properties"]["value"]["items"]["anyOf"][0] == {"$ref": "#/properties/value"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {
                "type": "array",
                "items": {"properties": {"a": {"type": "string"}, "b": {"$ref": "#/items/properties/a"}}},
            },
            [{"b": "x"}],
        ),
        (
            {"$id": "https://x.org/a", "type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"const": 1}}},
            [1],
        ),
    ],
)
def test_what_is_asked_for_can_be_followed(schema: dict[str, Any], said: object) -> None:
    """A reference that leads nowhere is refused by providers, or held to by none."""
    output = Output.of_schema(schema)
    asked: Any = jsonschema.Draft202012Validator(output.parameter["schema"])
    asked.validate({"value": said})
    assert output.read(json.dumps({"value": said})) == said
    with pytest.raises(jsonschema.ValidationError):
        asked.validate({"value": [{"b": 5}]})


def test_the_parts_of_an_output_are_of_their_types() -> None:
    """Each is named."""
    untyped: Any = 5
    for make in (lambda: Output.of(int, name=untyped), lambda: Output.of_schema({}, name=untyped)):
        with pytest.raises(MetaError, match=r"^name: expected str, got int"):
            make()
    with pytest.raises(MetaError, match=r"^output: a JSON Schema is an object here, not int"):
        Output("x", untyped, json.loads)


def test_structs_are_read_within_other_types() -> None:
    """A list of them, or one that may be missing."""
    assert Output.of(list[Place]).read('{"value":[{"name":"a"}]}') == [Place(name="a")]


def test_a_function_is_no_type() -> None:
    """Pydantic takes it for one."""
    with pytest.raises(MetaError, match="look is a function"):
        Output.of(look)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"type": "object", "properties": {}}, r"this is a JSON Schema: give `Output\.of_schema"),
        ({"a": int}, r"this is a JSON Schema: give `Output\.of_schema"),
        ("", r"a text is no type: give a type, or `Output\.of_schema"),
        ('{"type":"object"}', r"a text is no type: give a type, or `Output\.of_schema"),
        (list[cast("Any", {"a": int})], "has no JSON Schema"),
        (dict[str, cast("Any", {"type": "nix"})], "has no JSON Schema"),
    ],
)
def test_a_schema_is_no_type(log: TurnLog, kind: Any, why: str) -> None:
    """It is said how to give one; nothing is recorded."""
    with pytest.raises(MetaError, match=why):
        run(log, Scripted(), output=kind)
    assert log.threads() == []


def test_what_is_no_class_is_a_type() -> None:
    """An alternative, and values that are named."""
    assert Output.of(Person | None).read('{"value":null}') is None
    assert Output.of(Literal["a", "b"]).read('{"value":"a"}') == "a"


def test_a_schema_is_said_once(log: TurnLog) -> None:
    """As a parameter, or as what is to come."""
    with pytest.raises(RunError, match="output_schema"):
        run(log, Scripted(), output=Person, params={"output_schema": {"name": "x", "schema": {"type": "object"}}})


def test_a_pattern_takes_no_time_that_explodes() -> None:
    """What Python's own search would take years for."""
    output = Output.of_schema({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    with pytest.raises(OutputError, match="does not match"):
        output.read(json.dumps({"a": "a" * 60 + "!"}))


def test_a_pattern_that_looks_around_holds_nothing_up_for_long(log: TurnLog) -> None:
    """It can take for ever: it is given up, and the event loop goes on meanwhile."""
    output = Output.of_schema({"type": "object", "properties": {"a": {"pattern": "^(?=(a|aa)+$)"}}})
    assert output.read('{"a":"aaa"}') == {"a": "aaa"}
    said = json.dumps({"a": "a" * 60 + "!"})
    gaps: list[float] = []

    async def watch() -> RunResult[Any]:
        loop = asyncio.get_running_loop()
        adapter = Scripted(say(said), say(said))
        given = values(model=MODEL, adapter=adapter, connection=HERE)
        running = asyncio.create_task(log.arun("Go.", output=output, **given))
        while not running.done():
            before_s = loop.time()
            await asyncio.sleep(0.001)
            gaps.append(loop.time() - before_s)
        return await running

    result = asyncio.run(watch())
    assert (result.stopped, result.invalid) == ("invalid", "it cannot be checked: a pattern was searched for 0.25 s")
    assert len(gaps) > 100


@pytest.mark.parametrize("said", ['{"x":NaN,"y":1}', '{"x":1e999,"y":1}'])
def test_a_number_that_json_has_not_is_none_for_a_type_either(said: str) -> None:
    """Whoever reads types takes more than JSON."""
    with pytest.raises(OutputError, match="it is no JSON"):
        Output.of(Point).read(said)


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        (Person, '{"name":"Ada","age":"36"}', "age: '36' is not of type 'integer'"),
        (Person, '{"name":"Ada","age":true}', "age: True is not of type 'integer'"),
        (Point, '{"x":"1","y":2}', "x: '1' is not of type 'number'"),
        (bool | None, '{"value":"yes"}', "'yes' is not "),
        (Decimals, '{"n":1.5}', "n: 1.5 is not of type 'string'"),
    ],
)
def test_what_a_type_reads_follows_its_schema_too(kind: Any, said: str, why: str) -> None:
    """The model was told the schema; types read more than that."""
    with pytest.raises(OutputError, match=re.escape(why)):
        Output.of(kind).read(said)


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (Person, '{"name":"Ada","age":36.0,"more":1}', Person(name="Ada", age=36)),
        (time, '{"value":"03:04"}', time(3, 4)),
        (Annotated[float, pydantic.Field(multiple_of=0.01)], '{"value":19.99}', 19.99),
        (dict[Annotated[int, pydantic.Field(gt=0)], str], '{"1":"a"}', {1: "a"}),
        (Either, '{"value":{"text":"a"}}', {"text": "a"}),
        (Annotated[str, pydantic.WithJsonSchema({"type": "nix"})], '{"value":"a"}', "a"),
        (Annotated[str, pydantic.WithJsonSchema({"type": "string", "pattern": "("})], '{"value":"a"}', "a"),
    ],
)
def test_a_schema_refuses_nothing_that_it_says_less_well_than_the_type(kind: Any, said: str, value: object) -> None:
    """Formats, multiples, keys, alternatives that are no alternatives; and a schema that is none."""
    assert Output.of(kind).read(said) == value
