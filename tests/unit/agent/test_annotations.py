"""What annotations say beside types: bounds, by msgspec or by pydantic, and what a parameter is for."""

import asyncio
import dataclasses
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple, NewType, TypeVar

import annotated_types
import msgspec
import pydantic
import pydantic_core
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


Age = NewType("Age", Annotated[int, Field(le=5)])
Bound = TypeVar("Bound", bound=Annotated[int, Field(le=5)])


def at_most_five(x: int) -> int:
    """Return a number that is five at most."""
    if x > 5:
        raise ValueError("too many")
    return x


class Small:
    """An annotation of somebody's own, as pydantic reads it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Allow five at most."""
        return pydantic_core.core_schema.no_info_after_validator_function(at_most_five, handler(source))


@dataclasses.dataclass
class Counted:
    """A dataclass that has what no reading gives, and a bound of msgspec's beside it."""

    most: ClassVar[Annotated[int, Field(le=5)]] = 5
    x: Annotated[int, Meta(le=5)] = 0


class Model(pydantic.BaseModel):
    """A model."""

    x: int


class Passing(pydantic.BaseModel):
    """A model with a bound that pydantic passes over."""

    x: Annotated[int, Meta(le=5)]


class Holding(pydantic.BaseModel):
    """A model that has a dataclass of pydantic's in it."""

    spot: Spot


@dataclasses.dataclass
class Described:
    """A model and a path, each with what msgspec could tell of it."""

    model: Annotated[Model, Meta(description="a model")]
    path: Annotated[PurePath, Meta(description="a path")]


@dataclasses.dataclass
class Pathed:
    """What msgspec cannot read, and a bound that pydantic cannot."""

    path: PurePath
    x: Annotated[int, Meta(le=5)]


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
        (tuple[Holding, Spot], '[{"spot":{"x":1}},{"x":5}]', '[{"spot":{"x":1}},{"x":6}]'),
        (dict[str, Annotated[int, Meta(le=5)]], '{"x":5}', '{"x":6}'),
        (dict[str, Annotated[int, Field(le=5)]], '{"x":5}', '{"x":6}'),
        (Age, "5", "6"),
        (Bound, "5", "6"),
        (Counted, '{"x":5}', '{"x":6}'),
        (Annotated[int, Small()], "5", "6"),
        (Annotated[int, Field(description="a number")], "5", '"5"'),
        (Annotated[float, Field(multiple_of=0.5)], "0.5", "0.6"),
        (Annotated[int, pydantic.AfterValidator(at_most_five)], "5", "6"),
    ],
    ids=[
        "of-pydantic",
        "dataclass",
        "meta",
        "record",
        "tuple",
        "list",
        "in-a-model-too",
        "dict-meta",
        "dict-field",
        "new-type",
        "bound",
        "class-variable",
        "own",
        "as-told",
        "multiple",
        "validator",
    ],
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
        five: Annotated[int, "the fifth"] | None = None,
        four: Annotated[int, Meta(le=4, description="the fourth")] = 0,
    ) -> None:
        """Work.

        Args:
            one: passed over.
            three: the third
            four: passed over.
        """

    properties = offered(work)["properties"]
    assert {name: schema["description"] for name, schema in properties.items()} == {
        "one": "the first",
        "two": "the second",
        "three": "the third",
        "four": "the fourth",
        "five": "the fifth",
    }


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


def model(given: Passing) -> None:
    """Have a model with a bound of msgspec's."""


def lazy(given: Annotated[Iterable[int], Field(description="numbers")]) -> None:
    """Have what pydantic reads only as it is gone through."""


def halved(given: Annotated[int, Field(description="\ud800")]) -> None:
    """Have half of a pair in a description."""


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
        (model, "a model of pydantic passes over the bounds of msgspec's Meta: use Field there (Passing)"),
        (lazy, "pydantic reads an Iterable only when the function does: use a list"),
        (halved, "surrogates not allowed"),
        (unknown, "given has no JSON Schema: Cannot generate a JsonSchema for core_schema.CallableSchema"),
    ],
)
def test_what_would_be_passed_over_is_refused(function: Callable[..., Any], message: str) -> None:
    """When the function is given."""
    with pytest.raises(RunError) as raised:
        Functions([function])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Mixed, TOGETHER),
        (Annotated[list[Struct], Field(max_length=5)], TOGETHER),
        (Passing, "a model of pydantic passes over the bounds of msgspec's Meta"),
        (Pathed, "it has bounds of msgspec (Meta), and not all of it is msgspec's: use Field of pydantic"),
        (Annotated[Callable[[], None], Field(title="x")], "has no JSON Schema"),
    ],
)
def test_an_output_whose_bounds_would_be_passed_over_is_refused(kind: Any, why: str) -> None:
    """When it is asked for."""
    with pytest.raises(MetaError, match=re.escape(why)):
        Output.of(kind)


def test_what_msgspec_only_describes_is_read_by_pydantic() -> None:
    """A description holds nothing back."""
    said = '{"model":{"x":1},"path":"a"}'
    assert Output.of(Described).read(said) == Described(Model(x=1), PurePath("a"))
    assert Output.of(Annotated[Model, Meta(description="a model")]).read('{"x":1}') == Model(x=1)


def broken(value: int) -> int:
    """Raise what no validator should."""
    raise KeyError(value)


def test_whatever_a_validator_raises_is_told() -> None:
    """To the model, and not to who runs it."""

    def work(given: Annotated[int, pydantic.AfterValidator(broken)]) -> None:
        """Work."""
        del given

    assert said(work, '{"given":1}') == "the arguments of 'work' cannot be read: KeyError: 1"
    with pytest.raises(OutputError, match="it cannot be read: KeyError: 1"):
        Output.of(Annotated[int, pydantic.AfterValidator(broken)]).read('{"value":1}')


def test_what_anything_may_be_is_told_as_that() -> None:
    """Pydantic's schema for it is empty, but for its name."""

    def work(given: Annotated[Any, Field()]) -> str:
        """Work."""
        return repr(given)

    assert offered(work)["properties"] == {"given": {"title": "given"}}
    assert said(work, '{"given":[1,null]}') == "[1, None]"


def test_types_that_have_themselves_in_them_are_looked_through_once() -> None:
    """A struct of structs."""

    def work(node: Node) -> str:
        """Count the nodes."""
        return str(len(node.nodes))

    assert said(work, '{"node":{"nodes":[{},{}]}}') == "2"
