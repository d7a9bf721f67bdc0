"""How a type checks what a model said. Slow to import: only what asks for such a value does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pydantic
import pydantic_core

from turnlog.agent.annotations import only_reader
from turnlog.agent.given_arguments import read_typed
from turnlog.agent.output_check import of_schema_of_type, told
from turnlog.agent.reply_json import parsed
from turnlog.agent.told_errors import first_line
from turnlog.errors import MetaError, OutputError

U = TypeVar("U")

_NO_SCHEMA = (
    TypeError,
    ValueError,
    NameError,
    LookupError,
    pydantic.errors.PydanticUserError,
    pydantic_core.SchemaError,
)
"""What pydantic raises of what is no type."""


def of_type(kind: type[U]) -> tuple[Mapping[str, Any], Callable[[str], U]]:
    """Return the JSON Schema of a type, and what reads JSON that follows it as a value of the type.

    Raises:
        MetaError: the type has no JSON Schema.
    """
    if inspect.isroutine(kind):
        raise MetaError(f"output: {kind.__name__} is a function: give a type, or `Output.of_schema`", field="output")
    if isinstance(kind, Mapping):
        raise MetaError("output: this is a JSON Schema: give `Output.of_schema(…)` of it, or a type", field="output")
    if isinstance(kind, str):
        raise MetaError("output: a text is no type: give a type, or `Output.of_schema`", field="output")
    try:
        reader = only_reader(kind)
    except (TypeError, NameError) as error:
        raise MetaError(f"output: {kind!r} cannot be asked for: {error}", field="output") from error
    try:
        if reader == "msgspec" or (inspect.isclass(kind) and issubclass(kind, msgspec.Struct)):
            return _of_struct(kind)
        adapter = pydantic.TypeAdapter(kind)
        schema = _inlined(adapter.json_schema())
        return schema, _pydantic_reader(adapter, of_schema_of_type(schema))
    except _NO_SCHEMA as error:
        why = first_line(error)
        if reader == "msgspec":
            why = f"it has bounds of msgspec (Meta), and not all of it is msgspec's: use Field of pydantic ({why})"
        elif reader is None:  # pydantic knows nothing of structs, and msgspec of lists of them
            with suppress(TypeError, ValueError, NameError):
                return _of_struct(kind)
        raise MetaError(f"output: {kind!r} has no JSON Schema: {why}", field="output") from error


def _of_struct(kind: type[U]) -> tuple[Mapping[str, Any], Callable[[str], U]]:
    schema = _inlined(msgspec.json.schema(kind, schema_hook=_unknown))
    return schema, _struct_reader(kind, of_schema_of_type(schema))


def _unknown(kind: type) -> dict[str, Any]:
    raise TypeError(f"msgspec does not read {kind.__name__}")


def _struct_reader(kind: type[U], check: Callable[[Any], None]) -> Callable[[str], U]:
    decoder = msgspec.json.Decoder(kind)

    def read(text: str) -> U:
        try:
            value = read_typed(decoder, text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise OutputError(str(error)) from error
        check(parsed(text))
        return value

    return read


def _pydantic_reader(adapter: pydantic.TypeAdapter[U], check: Callable[[Any], None]) -> Callable[[str], U]:
    def read(text: str) -> U:
        said = parsed(text)  # pydantic takes NaN for a number
        try:
            value = adapter.validate_json(text)
        except pydantic.ValidationError as error:
            faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False)]
            raise OutputError(told(faults)) from error
        check(said)  # pydantic also takes a text for a number, `true` for 1, and more that the schema does not
        return value

    return read


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose top is no reference: a struct, or a model that has itself in it, is a definition."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions: dict[str, Any] = schema.get("$defs", {})
    if name not in definitions:
        return schema
    top = definitions[name]
    others = (
        definitions
        if f'"#/$defs/{name}"' in json.dumps(definitions)
        else {other: definition for other, definition in definitions.items() if other != name}
    )
    return {**top, **({"$defs": others} if others else {})}
