"""What annotations say beside types: bounds, by msgspec or by pydantic, and what a parameter is for."""

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import annotated_types
import msgspec
import pydantic
import pytest
from msgspec import Meta, Raw
from pydantic import Field
from typing_extensions import Doc, TypedDict

from turnlog import MetaError, Output, OutputError, RunError, Text
from turnlog.agent.functions import Functions


@pydantic.dataclasses.dataclass
class Spot:
    """A dataclass of pydantic's."""

    x: Annotated[int, Field(le=5)]


@dataclasses.dataclass
class Place:
    """A dataclass of Python's with a bound of pydantic's."""

    x: Annotated[int, Field(le=5)]


@dataclasses.dataclass
class Bounded:
    """A dataclass of Python's with a bound of msgspec's."""

    x: Annotated[int, Meta(le=5)]


class Range(TypedDict):
    """A record with a bound of pydantic's."""

    x: Annotated[int, Field(le=5)]


class Pair(NamedTuple):
    """A tuple with a bound of pydantic's."""

    x: Annotated[int, Field(le=5)]


class Struct(msgspec.Struct):
    """A struct."""

    x: int


class Mixed(msgspec.Struct):
    """A struct with a bound that msgspec passes over."""

    x: Annotated[int, Field(le=5)]


class Node(msgspec.Struct):
    """A struct that has itself in it."""

    nodes: "list[Node]" = []


def offered(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of a function's parameters."""
    [tool] = asyncio.run(Functions([function]).tools())
    return msgspec.json.decode(tool.input_schema)


def said(function: Callable[..., Any], arguments: str) -> str:
    """Return what a function says to arguments as a tool."""
    outcome = asyncio.run(Functions([function]).call(function.__name__, Raw(arguments.encode())))
    return "".join(block.text for block in outcome.content if isinstance(block, Text))


def limits(
    least: Annotated[int, Field(ge=1, description="how many", title="Least")],
    most: Annotated[int, annotated_types.Le(3)] = 2,
    some: Annotated[int, Field(gt=0)] | None = None,
    when: pydantic.AwareDatetime | None = None,
) -> str:
    """Say what was given."""
    return repr((least, most, some, when))


def test_bounds_of_pydantic_are_told_to_the_model() -> None:
    """As the parameter's own schema, with what it says of the parameter."""
    assert offered(limits)["properties"] == {
        "least": {"type": "integer", "minimum": 1, "title": "Least", "description": "how many"},
        "most": {"type": "integer", "maximum": 3, "default": 2},
        "some": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
        "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
    }
    assert offered(limits)["required"] == ["least"]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ('{"least":1}', repr((1, 2, None, None))),
        (
            '{"least":1,"most":3,"some":9,"when":"2026-02-01T03:04:05Z"}',
            repr((1, 3, 9, datetime(2026, 2, 1, 3, 4, 5, tzinfo=UTC))).replace("datetime.timezone.utc", "TzInfo(0)"),
        ),
        (
            '{"least":0}',
            "the arguments do not fit 'limits': Input should be greater than or equal to 1 - at `$.least`",
        ),
        (
            '{"least":1,"most":4}',
            "the arguments do not fit 'limits': Input should be less than or equal to 3 - at `$.most`",
        ),
        ('{"least":1,"some":0}', "the arguments do not fit 'limits': Input should be greater than 0 - at `$.some`"),
    ],
)
def test_bounds_of_pydantic_are_held_to(arguments: str, answer: str) -> None:
    """A function is given what is within them, as values of its types, and is not called with anything else."""
    assert said(limits, arguments) == answer


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Spot, '{"x":5}', '{"x":6}'),
        (Place, '{"x":5}', '{"x":6}'),
        (Bounded, '{"x":5}', '{"x":6}'),
        (Range, '{"x":5}', '{"x":6}'),
        (Pair, "[5]", "[6]"),
        (list[Spot], '[{"x":5}]', '[{"x":6}]'),
        (dict[str, Annotated[int, Meta(le=5)]], '{"x":5}', '{"x":6}'),
        (dict[str, Annotated[int, Field(le=5)]], '{"x":5}', '{"x":6}'),
        (Annotated[int, pydantic.AfterValidator(lambda value: {5: 5}[value] if value == 5 else int("no"))], "5", "6"),
    ],
    ids=["of-pydantic", "dataclass", "meta", "record", "tuple", "list", "dict-meta", "dict-field", "validator"],
)
def test_bounds_hold_wherever_they_stand(kind: Any, good: str, bad: str) -> None:
    """In fields of whatever class, in items, in tools and in what a run is asked for; no matter whose they are."""

    def work(given: kind) -> str:
        """Take it."""
        return f"took {given!r}"

    assert said(work, f'{{"given":{good}}}').startswith("took ")
    assert said(work, f'{{"given":{bad}}}').startswith("the arguments do not fit 'work': ")
    output = Output.of(kind)
    is_object = "value" not in output.parameter["schema"].get("properties", {})
    good, bad = (each if is_object else f'{{"value":{each}}}' for each in (good, bad))
    output.read(good)
    with pytest.raises(OutputError):
        output.read(bad)


def test_a_text_beside_the_type_describes_the_parameter() -> None:
    """Or a `Doc`; it goes before what the docstring says."""

    def work(
        one: Annotated[int, "the first"],
        two: Annotated[int, Doc("the second")],
        three: Annotated[int, 3] = 0,
        four: Annotated[int, Meta(le=4, description="the fourth")] = 0,
    ) -> None:
        """Work.

        Args:
            one: passed over.
            three: the third
            four: passed over.
        """

    properties = offered(work)["properties"]
    described = {name: schema["description"] for name, schema in properties.items()}
    assert described == {"one": "the first", "two": "the second", "three": "the third", "four": "the fourth"}


def default_beside(count: int = Field(3, le=5)) -> None:
    """Have a default that Python takes for the value itself."""


def default_inside(count: Annotated[int, Field(3, le=5)]) -> None:
    """Have a default that Python does not see."""


def both(count: Annotated[int, Field(le=5), Meta(ge=1)]) -> None:
    """Have bounds of both."""


def structs(given: Annotated[list[Struct], Field(max_length=5)]) -> None:
    """Have what pydantic cannot read in what only pydantic reads."""


def mixed(given: Mixed) -> None:
    """Have what msgspec passes over in what only msgspec reads."""


def unknown(given: Annotated[Callable[[], None], Field(title="x")]) -> None:
    """Have what JSON has no form for."""


def described_beside(count: int = Field(description="how many")) -> None:
    """Have a Field without a default, which Python takes for one."""


IN_A_FIELD = "the default of 'count' is a Field, or stands in one, and Python takes it for the value: write count:"
TOGETHER = "what only msgspec reads (Meta, structs) stands together with what only pydantic reads"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (default_beside, f"tool 'default_beside': {IN_A_FIELD}"),
        (default_inside, f"tool 'default_inside': {IN_A_FIELD}"),
        (described_beside, f"tool 'described_beside': {IN_A_FIELD}"),
        (both, TOGETHER),
        (structs, TOGETHER),
        (mixed, TOGETHER),
        (unknown, "given has no JSON Schema: Cannot generate a JsonSchema for core_schema.CallableSchema"),
    ],
)
def test_what_would_be_passed_over_is_refused(function: Callable[..., Any], message: str) -> None:
    """When the function is given."""
    with pytest.raises(RunError) as raised:
        Functions([function])
    assert message in str(raised.value)


@pytest.mark.parametrize("kind", [Mixed, Annotated[list[Struct], Field(max_length=5)]])
def test_an_output_whose_bounds_would_be_passed_over_is_refused(kind: Any) -> None:
    """When it is asked for."""
    with pytest.raises(MetaError, match="stands together with what only pydantic reads"):
        Output.of(kind)


def test_types_that_have_themselves_in_them_are_looked_through_once() -> None:
    """A struct of structs."""

    def work(node: Node) -> str:
        """Count the nodes."""
        return str(len(node.nodes))

    assert said(work, '{"node":{"nodes":[{},{}]}}') == "2"
