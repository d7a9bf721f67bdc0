"""Python functions as tools: their schemas from type annotations, their descriptions from docstrings."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Union, cast

import docstring_parser
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog.agent.annotations import description_in, hides_default, only_reader
from turnlog.agent.given_arguments import check_keys, read_typed
from turnlog.agent.half_pairs import unicode_of
from turnlog.agent.letting_go import ENDING
from turnlog.agent.parameter_models import Models, OfParameter, as_model, read_model
from turnlog.agent.plain_values import json_text
from turnlog.agent.told_errors import told_error
from turnlog.agent.toolbox import Toolbox, ToolOutcome
from turnlog.errors import ContentError, MetaError, RunError
from turnlog.model import Document, Native, Text, Tool
from turnlog.model.plain import plain_json

Function = Callable[..., Any]
"""A Python function that is offered as a tool, plain or `async`."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that every provider takes."""

_ONE_MODEL = "beside a model of pydantic a union may have None and nothing else: join the others in one model"

_NOT_OFFERED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Functions(Toolbox):
    """Python functions as a toolbox.

    The parameters' types are what msgspec knows: plain values, lists, dicts, literals, enums, dataclasses, `TypedDict`,
    structs; and models of pydantic, also within these, in a union with None alone. Bounds stand in `Annotated`, as
    `msgspec.Meta(…)`, or as `pydantic.Field(…)` or whatever else pydantic reads there, and then pydantic reads all of
    the parameter, and a number for a `Decimal` keeps the digits of a float. The description is that of the docstring;
    of a parameter, `Annotated[…, "a text"]` goes first.

    A plain function runs in a thread of its own, and an `async` one in the event loop. What it returns becomes the
    result: text as it is, content blocks as they are, anything else as JSON. An exception becomes an error result.
    So does what JSON cannot carry: the function is not called again for that. A plain function that takes too long is
    left alone: it goes on in its thread, and nobody waits for it.
    """

    def __init__(self, functions: Sequence[Function]) -> None:
        """Take functions.

        Raises:
            RunError: one cannot be offered as a tool; says why.
        """
        self._offered: dict[str, _Offered] = {}
        for function in functions:
            offered = _offered(function)
            if offered.tool.name in self._offered:
                raise RunError(f"two functions are called {offered.tool.name!r}: rename one of them")
            self._offered[offered.tool.name] = offered

    async def tools(self) -> Sequence[Tool]:
        """Return the functions as tools."""
        return [offered.tool for offered in self._offered.values()]

    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call a function."""
        offered = self._offered.get(name)
        if offered is None:
            return ToolOutcome.error(f"there is no tool {name!r} (one of {', '.join(self._offered)})")
        try:
            check_keys(arguments)
            given = offered.arguments(arguments)
        except ContentError as error:
            return ToolOutcome.error(str(error))
        except msgspec.DecodeError as error:
            return ToolOutcome.error(f"the arguments do not fit {name!r}: {error}")
        except Exception as error:  # noqa: BLE001 - what checks values of all types raises what it likes
            return ToolOutcome.error(f"the arguments of {name!r} cannot be read: {told_error(error)}")
        function = offered.function
        if inspect.iscoroutinefunction(function):
            return await _awaited(function(**given))
        returned = await _in_thread(function, given)
        return returned if isinstance(returned, ToolOutcome) else await _awaited(returned)


class _Offered(Struct, frozen=True, kw_only=True):
    """A function as a tool. `parameters` reads a struct of its parameters."""

    tool: Tool
    function: Function
    parameters: msgspec.json.Decoder[Struct]

    def arguments(self, raw: Raw) -> dict[str, Any]:
        """Return the arguments that are given, of the types that the function asks for."""
        given = read_typed(self.parameters, bytes(raw))
        return {
            name: value.root if isinstance(value, OfParameter) else value
            for name, value in msgspec.structs.asdict(given).items()
            if value is not UNSET
        }


def _offered(function: Function) -> _Offered:
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RunError(f"a tool cannot be called {name!r}: use a function whose name is of a-z, A-Z, 0-9, _ and -")
    try:
        signature = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # an annotation that is a text is evaluated, and may raise anything
        raise RunError(f"tool {name!r}: its signature cannot be read: {told_error(error)}") from error
    description, of_parameters = _described(inspect.getdoc(function) or "")
    for parameter in signature:
        if parameter.kind in _NOT_OFFERED:
            raise RunError(f"tool {name!r}: its parameter '{parameter}' cannot be given by name")
        if hides_default(parameter.default, parameter.annotation):
            raise RunError(
                f"tool {name!r}: the default of {parameter.name!r} is a Field, or stands in one, and Python takes it "
                f"for the value: write {parameter.name}: Annotated[…, Field(…)], and behind it the default"
            )
        if (said := description_in(parameter.annotation)) is not None:
            of_parameters[parameter.name] = unicode_of(said)
    try:
        struct = msgspec.defstruct(name, list(map(_field, signature)), kw_only=True, forbid_unknown_fields=True)
        schema = msgspec.json.encode(_schema(struct, of_parameters, {each.name: each.default for each in signature}))
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:
        why = _ONE_MODEL if "custom type" in str(error) else error
        raise RunError(f"tool {name!r}: a parameter has a type that JSON cannot carry: {why}") from error
    tool = Tool(name=name, description=description, input_schema=Raw(schema))
    parameters = msgspec.json.Decoder(struct, dec_hook=read_model)
    return _Offered(tool=tool, function=function, parameters=parameters)


def _field(parameter: inspect.Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return a parameter as a field of a struct, which is unset where the function has a default."""
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    if only_reader(annotation) == "pydantic":
        annotation = as_model(parameter.name, annotation)
    if parameter.default is parameter.empty:
        return parameter.name, annotation
    return parameter.name, Union[annotation, UnsetType], UNSET  # noqa: UP007 - a type at run time


def _schema(struct: type[Struct], descriptions: Mapping[str, str], defaults: Mapping[str, object]) -> dict[str, Any]:
    """Return the JSON Schema of the parameters, an object with its definitions inside."""
    models = Models()
    [reference], definitions = msgspec.json.schema_components(
        [struct], schema_hook=models.schema, ref_template="#/$defs/{name}"
    )
    own = definitions.pop(str(reference["$ref"]).removeprefix("#/$defs/"))
    definitions = models.joined(definitions)
    properties = cast("dict[str, dict[str, Any]]", own["properties"])
    for name, schema in properties.items():
        if name in descriptions:
            schema.setdefault("description", descriptions[name])
        if defaults[name] is not inspect.Parameter.empty:
            with suppress(TypeError, ValueError, RecursionError, MetaError):  # one that JSON cannot carry is not told
                schema["default"] = plain_json(msgspec.to_builtins(defaults[name]), "default", MetaError)
    schema = {"type": "object", "properties": properties}
    schema |= {key: own[key] for key in ("required", "additionalProperties") if own.get(key) not in (None, [])}
    return schema | ({"$defs": definitions} if definitions else {})


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and those of the parameters."""
    docstring = unicode_of(docstring)
    try:
        parsed = docstring_parser.parse(docstring)
    except docstring_parser.ParseError:
        return docstring, {}
    parts = (part for part in (parsed.short_description, parsed.long_description) if part)
    parameters = {param.arg_name: " ".join(param.description.split()) for param in parsed.params if param.description}
    return "\n\n".join(parts), parameters


async def _awaited(returned: Awaitable[object]) -> ToolOutcome:
    try:
        value = await returned
    except ENDING:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises, `sys.exit()` too, the model is told
        return _raised(error)
    return _outcome(value)


async def _in_thread(function: Function, given: Mapping[str, Any]) -> ToolOutcome | Awaitable[object]:
    """Call a plain function in a thread that nobody has to wait for, not even the end of the process.

    One that has an `async` one behind it, as a decorator makes it, returns what is to be awaited.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ToolOutcome | Awaitable[object]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: ToolOutcome | Awaitable[object]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        try:
            value = context.run(function, **given)
            outcome = cast("Awaitable[object]", value) if inspect.isawaitable(value) else _outcome(value)
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises, `sys.exit()` too, the model is told
            outcome = _raised(error)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=f"turnlog tool {function.__name__}", daemon=True).start()
    return await future


def _outcome(value: object) -> ToolOutcome:
    """Return what a function has returned as an outcome; whatever it was, the function has done its work."""
    try:
        return _said(value)
    except Exception as error:  # noqa: BLE001 - values of all types are dumped by code of theirs
        why = f"the tool was called, and what it returned cannot be told: {told_error(error)}"
        return ToolOutcome.error(why, may_have_had_effects=True)


def _said(value: object) -> ToolOutcome:
    if isinstance(value, ToolOutcome):
        return value
    if isinstance(value, str):
        return ToolOutcome(content=(Text(text=value),))
    items: Sequence[object] = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    blocks = tuple(item for item in items if isinstance(item, Text | Document | Native))
    if blocks and len(blocks) == len(items):
        return ToolOutcome(content=blocks)
    return ToolOutcome(content=(Text(text=json_text(cast("object", value))),))


def _raised(error: BaseException) -> ToolOutcome:
    return ToolOutcome.error(told_error(error))
