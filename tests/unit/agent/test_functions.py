"""Python functions as tools."""

import asyncio
import functools
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta, Raw

from turnlog import Document, RunError, Source, Text
from turnlog.agent.functions import Functions
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Tool


@dataclass
class Place:
    """A place."""

    x: int
    y: float = 1.0


class Order(pydantic.BaseModel):
    """An order; pydantic's."""

    item: str
    number: int


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Range(TypedDict):
    """A range of lines."""

    first: int
    last: int


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return a function as a tool."""
    [tool] = asyncio.run(Functions([function]).tools())
    return tool


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of a function's parameters."""
    return msgspec.json.decode(tool_of(function).input_schema)


def called(function: Callable[..., Any], arguments: str = "{}") -> ToolOutcome:
    """Call a function as a tool."""
    return asyncio.run(Functions([function]).call(function.__name__, Raw(arguments.encode())))


def text_of(outcome: ToolOutcome) -> str:
    """Return the text of an outcome."""
    return "".join(block.text for block in outcome.content if isinstance(block, Text))


def test_signature_and_docstring_become_a_tool() -> None:
    """Types, defaults and descriptions; what has no default is required."""

    def search(query: str, colour: Colour, places: list[Place], limit: Annotated[int, Meta(ge=1, le=9)] = 5) -> str:
        """Search for something.

        In all places.

        Args:
            query: what to
                search for.
            limit: how many results to return.
        """
        return f"{query} {colour.value} {places[0].x} {limit}"

    tool = tool_of(search)
    assert (tool.name, tool.description) == ("search", "Search for something.\n\nIn all places.")
    assert schema_of(search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to search for."},
            "colour": {"$ref": "#/$defs/Colour"},
            "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "description": "how many results to return.",
                "default": 5,
            },
        },
        "required": ["query", "colour", "places"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"title": "Colour", "description": "A colour.", "enum": ["blue", "red"]},
            "Place": {
                "title": "Place",
                "description": "A place.",
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 1.0}},
                "required": ["x"],
            },
        },
    }
    outcome = called(search, '{"query":"q","colour":"blue","places":[{"x":7}]}')
    assert (text_of(outcome), outcome.is_error) == ("q blue 7 5", False)


class Line(pydantic.BaseModel):
    """A line of an invoice."""

    item: str
    colour: Colour = Colour.RED


class Invoice(pydantic.BaseModel):
    """An invoice, in which nothing is converted that JSON has."""

    model_config = pydantic.ConfigDict(strict=True)

    lines: list[Line]
    due: date


class Folder(pydantic.BaseModel):
    """A folder of folders."""

    folders: "list[Folder]" = []


@dataclass
class Shelf:
    """A shelf; a dataclass that has a model in it."""

    folder: Folder


def file_away(invoice: Invoice, colour: Colour, folder: Folder | None = None, shelves: list[Shelf] = []) -> str:  # noqa: B006
    """File an invoice.

    Args:
        invoice: what is filed.
    """
    return f"{invoice.lines[-1]!r} {invoice.due!r} {colour} {folder!r} {shelves!r}"


def test_models_of_pydantic_are_types_of_parameters() -> None:
    """By pydantic's own schema and reading, also in other types; its definitions take no name of others."""
    schema = schema_of(file_away)
    assert schema["properties"] == {
        "invoice": {"$ref": "#/$defs/Invoice", "description": "what is filed."},
        "colour": {"$ref": "#/$defs/Colour"},
        "folder": {"anyOf": [{"$ref": "#/$defs/Folder_Folder"}, {"type": "null"}], "default": None},
        "shelves": {"type": "array", "items": {"$ref": "#/$defs/Shelf"}, "default": []},
    }
    definitions = schema["$defs"]
    assert set(definitions) == {"Invoice", "Invoice_Line", "Invoice_Colour", "Colour", "Folder_Folder", "Shelf"}
    assert definitions["Invoice"]["properties"] == {
        "lines": {"items": {"$ref": "#/$defs/Invoice_Line"}, "title": "Lines", "type": "array"},
        "due": {"format": "date", "title": "Due", "type": "string"},
    }
    assert definitions["Shelf"]["properties"] == {"folder": {"$ref": "#/$defs/Folder_Folder"}}
    outcome = called(
        file_away,
        '{"invoice":{"lines":[{"item":"a"},{"item":"b","colour":"blue"}],"due":"2026-02-01"},"colour":"red",'
        '"folder":{"folders":[{}]},"shelves":[{"folder":{}}]}',
    )
    assert text_of(outcome) == (
        "Line(item='b', colour=<Colour.BLUE: 'blue'>) datetime.date(2026, 2, 1) Colour.RED "
        "Folder(folders=[Folder(folders=[])]) [Shelf(folder=Folder(folders=[]))]"
    )


@pytest.mark.parametrize(
    ("invoice", "said"),
    [
        ("3", "Input should be an object - at `$.invoice`"),
        (
            '{"lines":[{"item":1},{}],"due":1}',
            "lines.0.item: Input should be a valid string; lines.1.item: Field required; "
            "due: Input should be a valid date - at `$.invoice`",
        ),
        (
            '{"lines":[{},{},{},{},{},{}]}',
            "; ".join(f"lines.{index}.item: Field required" for index in range(5)) + "; and 2 more - at `$.invoice`",
        ),
    ],
)
def test_what_is_no_such_model_is_told_with_its_place(invoice: str, said: str) -> None:
    """As what fits no other type; the tool is not called."""
    outcome = called(file_away, f'{{"invoice":{invoice},"colour":"red"}}')
    assert outcome == ToolOutcome.error(f"the arguments do not fit 'file_away': {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"count":2.0,"exact":0.10,"anything":3.0}', "2 0.10 3"),
        ('{"count":2e0,"exact":12345678901234567890.0,"anything":1e400}', "the arguments do not fit"),
        ('{"count":2.5,"exact":1,"anything":0}', "Expected `int`, got `float` - at `$.count`"),
        ('{"count":18014398509481985.0,"exact":1,"anything":0}', "Expected `int`, got `float`"),
        ('{"count":"2","exact":1,"anything":0}', "Expected `int`, got `str`"),
    ],
)
def test_a_whole_number_with_a_point_is_an_integer(arguments: str, said: str) -> None:
    """As JSON Schema has it; what has a part behind the point is none, nor what a float does not tell from others."""

    def count(count: int, exact: Decimal, anything: Any) -> str:
        return f"{count} {exact} {anything}"

    assert said in text_of(called(count, arguments))


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    """And no other."""

    def now() -> str:
        return "noon"

    assert schema_of(now) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert text_of(called(now)) == "noon"
    assert called(now, '{"x":1}').is_error


def test_parameters_without_types_take_any_value() -> None:
    """And those with one take None only if they say so."""

    def any_of(value, more: int | None = None, kind: Literal["a", "b"] = "a", lines: Range | None = None):
        return [value, more, kind, lines]

    assert schema_of(any_of)["properties"]["value"] == {}
    assert text_of(called(any_of, '{"value":{"z":1},"more":null}')) == '[{"z":1},null,"a",null]'
    assert text_of(called(any_of, '{"value":0,"lines":{"first":1,"last":2}}')) == '[0,null,"a",{"first":1,"last":2}]'


@pytest.mark.parametrize(
    ("arguments", "name"), [('{"x":1,"y":2,"\\u0078":"a"}', "x"), ('{"x":[{"é":1,"é":1}],"y":0}', "é")]
)
def test_a_key_that_stands_twice_is_an_error(arguments: str, name: str) -> None:
    """However it is spelled and however deep, before the function is called."""
    calls: list[object] = []

    def take(x, y: int) -> None:
        calls.append((x, y))

    assert called(take, arguments) == ToolOutcome.error(f"the arguments have the key {name!r} twice")
    assert not calls
    assert called(take, '{"x":{"y":1},"y":2}') == ToolOutcome(content=(Text(text="null"),))


def test_a_default_that_json_cannot_carry_is_used_and_not_told() -> None:
    """The schema leaves it out."""
    nothing = object()

    def ask(value: Any = nothing) -> bool:
        return value is nothing

    assert schema_of(ask)["properties"] == {"value": {}}
    assert text_of(called(ask)) == "true"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("text", (Text(text="text"),)),
        (None, (Text(text="null"),)),
        ({"b": 1, "a": [1.5, None]}, (Text(text='{"b":1,"a":[1.5,null]}'),)),
        (Place(x=1), (Text(text='{"x":1,"y":1.0}'),)),
        ([Order(item="book", number=2)], (Text(text='[{"item":"book","number":2}]'),)),
        (["a", "b"], (Text(text='["a","b"]'),)),
        ([], (Text(text="[]"),)),
        (Text(text="block"), (Text(text="block"),)),
        (
            (Text(text="see"), Document(source=Source(media_type="image/png", data="AA=="))),
            (Text(text="see"), Document(source=Source(media_type="image/png", data="AA=="))),
        ),
        (ToolOutcome(content=(Text(text="o"),)), (Text(text="o"),)),
    ],
)
def test_what_a_function_returns_becomes_content(returned: object, expected: tuple[object, ...]) -> None:
    """Text as it is, blocks as they are, anything else as JSON."""

    def give() -> object:
        return returned

    assert called(give) == ToolOutcome(content=expected)  # type: ignore[arg-type]


def test_what_json_cannot_carry_is_an_error() -> None:
    """The model is told, the run does not break, and the tool, which has done its work, is not called again for it."""

    class Odd:
        def model_dump(self, mode: str) -> object:
            raise ArithmeticError(mode)

    returned: list[object] = [object(), Odd()]
    said = "the tool was called, and what it returned cannot be told: "

    def give() -> object:
        return returned.pop()

    async def give_later() -> object:
        return returned.pop()

    outcomes = [called(give), called(give_later)]
    assert [(outcome.is_error, outcome.may_have_had_effects) for outcome in outcomes] == [(True, True)] * 2
    assert [text_of(outcome) for outcome in outcomes] == [
        f"{said}ArithmeticError: json",
        f"{said}TypeError: JSON has nothing for object",
    ]


class Float(float):
    """A number by its class, as `numpy.float64` is."""


class Measured(pydantic.BaseModel):
    """A measured value; pydantic's."""

    value: float | None


class Measurement(msgspec.Struct):
    """A measured value; msgspec's."""

    value: float | None


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (math.nan, "it is nan"),
        (-math.inf, "it is -inf"),
        (Float("inf"), "it is inf"),
        ({"mean": math.inf}, "it['mean'] is inf"),
        ({1: [0.5, (None, math.nan)]}, "it[1][1][1] is nan"),
        ({"y": Place(x=1, y=math.nan)}, "it['y']['y'] is nan"),
        ([Measured(value=math.inf)], "it[0]['value'] is inf"),
        (Measurement(value=math.nan), "it['value'] is nan"),
        ({"\ud800": math.nan}, "it['\\ud800'] is nan"),
    ],
)
def test_a_number_that_json_does_not_have_is_an_error(returned: object, said: str) -> None:
    """NaN and infinities are not told as `null`, wherever they stand; the error says where."""

    def measure() -> object:
        return returned

    outcome = called(measure)
    why = f"ValueError: {said}, and JSON has no NaN and no infinity"
    why = f"the tool was called, and what it returned cannot be told: {why}"
    assert outcome == ToolOutcome.error(why, may_have_had_effects=True)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (Float(1.5), "1.5"),
        ([Measured(value=None), Measurement(value=0.5), Raw(b"null")], '[{"value":null},{"value":0.5},null]'),
        ({"\ud800": None}, '{"\ufffd":null}'),
    ],
)
def test_null_and_numbers_by_their_class_are_told(returned: object, text: str) -> None:
    """What JSON has is told as it is."""

    def measure() -> object:
        return returned

    assert called(measure) == ToolOutcome(content=(Text(text=text),))


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no"), "ValueError: no"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (
            ExceptionGroup("all", [ValueError("no"), ExceptionGroup("two", [KeyError(), OSError("y" * 2000)])]),
            f"ExceptionGroup: all (2 sub-exceptions): ValueError: no; KeyError; OSError: {'y' * 991}…",
        ),
        (
            BaseExceptionGroup("many", [ValueError(n) for n in range(1, 1013)]),
            f"ExceptionGroup: many (1012 sub-exceptions): {'; '.join(f'ValueError: {n}' for n in range(1, 11))}; "
            "and 1,002 more",
        ),
    ],
)
def test_what_a_function_raises_is_an_error(raised: BaseException, said: str) -> None:
    """`sys.exit()` in a tool ends no run. A group is told with what is in it, up to a bound."""

    def fail() -> None:
        raise raised

    assert called(fail) == ToolOutcome.error(said)


def test_async_functions_run_in_the_loop_of_the_run() -> None:
    """And may raise as well."""

    async def loop_of(fail: bool) -> bool:
        await asyncio.sleep(0)
        if fail:
            raise ValueError("no")
        return asyncio.get_running_loop().is_running()

    assert text_of(called(loop_of, '{"fail":false}')) == "true"
    assert called(loop_of, '{"fail":true}') == ToolOutcome.error("ValueError: no")


def test_async_functions_behind_others_are_awaited() -> None:
    """A decorator's plain function, and an object that is called; what they raise is told."""

    async def double(n: int) -> int:
        if n < 0:
            raise ValueError("no")
        return 2 * n

    @functools.wraps(double)
    def decorated(n: int) -> object:
        return double(n)

    class Doubling:
        __name__ = "doubling"

        async def __call__(self, n: int) -> int:
            return await double(n)

    for function in (decorated, Doubling()):
        assert text_of(called(function, '{"n":4}')) == "8"
        assert called(function, '{"n":-1}') == ToolOutcome.error("ValueError: no")


def test_plain_functions_see_the_context_variables_of_the_caller() -> None:
    """Tracing and the like go on in the thread of the tool."""
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("seen")

    def look() -> str:
        return variable.get()

    assert text_of(called(look)) == "seen"


def test_methods_are_tools() -> None:
    """Without `self`."""

    class Counter:
        count = 0

        def add(self, n: int = 1) -> int:
            """Count on."""
            self.count += n
            return self.count

    counter = Counter()
    assert list(schema_of(counter.add)["properties"]) == ["n"]
    assert text_of(called(counter.add, '{"n":4}')) == "4"


def test_a_tool_that_is_not_there_is_an_error() -> None:
    """It names those that are."""

    def here() -> None:
        """Do nothing."""

    outcome = asyncio.run(Functions([here]).call("there", Raw(b"{}")))
    assert outcome == ToolOutcome.error("there is no tool 'there' (one of here)")


def test_a_docstring_that_cannot_be_parsed_is_the_description() -> None:
    """Nothing is lost, and nothing raised."""

    def odd(x: int) -> int:
        """Do.

        Args:
            x
            : :
        """
        return x

    assert tool_of(odd).description.startswith("Do.")


def positional(x: int, /) -> None:
    """Take no name."""


def starred(*args: int) -> None:
    """Take many."""


def keywords(**given: int) -> None:
    """Take any name."""


def mistaken(x: "Nix") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Ask for a type that does not exist."""


class Untold(pydantic.BaseModel):
    """A model of what JSON cannot carry."""

    x: Callable[[], int]


def model_or_text(x: Order | str) -> None:
    """Ask for one of two."""


def untold_model(x: Untold) -> None:
    """Ask for what has no schema."""


def same_names(x: Order, y: "list[msgspec_order]") -> None:  # type: ignore[valid-type]
    """Ask for two types of one name."""


def lock(x: asyncio.Lock) -> None:
    """Ask for what is no value."""


msgspec_order = msgspec.defstruct("Order", [("item", str)])


def untold(x: Callable[[], int]) -> None:
    """Ask for what JSON cannot carry."""


def misspelled(x: "a b") -> None:  # type: ignore[valid-type]  # noqa: F722
    """Ask for what is no type."""


def absent(x: "asyncio.Nothing") -> None:  # type: ignore[name-defined]
    """Ask for a type that is not there."""


def final(x: Final[int] = 1) -> None:  # type: ignore[valid-type]
    """Ask for what no parameter is."""


class Numbered:
    """What can be called, and has no name."""

    __name__ = 5

    def __call__(self, x: int) -> None:
        """Take a number."""


numbered = Numbered()
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("default", [10**30, "\ud800", math.nan, ENDLESS])
def test_a_default_that_json_cannot_carry_is_not_told(default: Any) -> None:
    """The tool is offered all the same, and the function has its default."""

    def work(x: Any = default) -> str:
        return "its own" if x is default else "another"

    functions = Functions([work])
    [tool] = asyncio.run(functions.tools())
    assert msgspec.json.decode(tool.input_schema)["properties"] == {"x": {}}
    assert asyncio.run(functions.call("work", Raw(b"{}"))).content == (Text(text="its own"),)


def test_half_of_a_pair_in_a_docstring_is_told_as_u_fffd() -> None:
    """As in what a tool returns."""

    def work(x: int) -> None:
        del x

    work.__doc__ = "Work \ud800.\n\nArgs:\n    x: half \ud800"
    [tool] = asyncio.run(Functions([work]).tools())
    assert tool.description == "Work \ufffd."
    assert msgspec.json.decode(tool.input_schema)["properties"]["x"]["description"] == "half \ufffd"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "a tool cannot be called '<lambda>'"),
        (functools.partial(positional, 1), "a tool cannot be called ''"),
        (positional, "tool 'positional': its parameter 'x: int' cannot be given by name"),
        (starred, "tool 'starred': its parameter '*args: int' cannot be given by name"),
        (keywords, "tool 'keywords': its parameter '**given: int' cannot be given by name"),
        (mistaken, "tool 'mistaken': its signature cannot be read: NameError: name 'Nix'"),
        (misspelled, "tool 'misspelled': its signature cannot be read: SyntaxError: invalid syntax"),
        (absent, "tool 'absent': its signature cannot be read: AttributeError: module 'asyncio' has no attribute"),
        (final, "tool 'final': a parameter has a type that JSON cannot carry: typing.Final[int] is not valid"),
        (numbered, "a tool cannot be called 5"),
        (untold, "tool 'untold': a parameter has a type that JSON cannot carry"),
        (
            lock,
            "Lock is none of plain values, list, dict, Literal, Enum, TypedDict, a dataclass, a struct of msgspec, and",
        ),
        (
            model_or_text,
            "beside a model of pydantic a union may have None and nothing else: join the others in one model",
        ),
        (untold_model, "Untold has no JSON Schema: Cannot generate a JsonSchema for core_schema.CallableSchema"),
        (same_names, "two types are called 'Order': rename one of them"),
    ],
)
def test_functions_that_cannot_be_offered_are_refused(function: Callable[..., Any], message: str) -> None:
    """When they are given, and not when a model calls them."""
    with pytest.raises(RunError) as raised:
        Functions([function])
    assert message in str(raised.value)


def test_two_functions_of_one_name_are_refused() -> None:
    """The model could not tell them apart."""

    def same() -> None:
        """Do nothing."""

    with pytest.raises(RunError, match="two functions are called 'same': rename one of them"):
        Functions([same, same])
