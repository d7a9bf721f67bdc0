"""How a type, or a JSON Schema, checks what a model said. Slow to import: only what asks for such a value does."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jsonschema
import msgspec
import pydantic
from referencing import Registry
from referencing.exceptions import Unresolvable

from turnlog.agent.reply_json import parsed
from turnlog.errors import MetaError, OutputError

U = TypeVar("U")

_jsonschema: Any = jsonschema  # it has no types
_NO_OTHERS: Registry[Any] = Registry()
"""What a schema names is within it: nothing is fetched."""

_EXAMPLES_MAX = 5
"""So many faults are told at once."""


def of_type(kind: type[U]) -> tuple[Mapping[str, Any], Callable[[str], U]]:
    """Return the JSON Schema of a type, and what reads JSON as a value of it.

    Raises:
        MetaError: the type has no JSON Schema.
    """
    is_struct = inspect.isclass(kind) and issubclass(kind, msgspec.Struct)
    try:
        if is_struct:
            return _inlined(msgspec.json.schema(kind)), _struct_reader(kind)
        adapter = pydantic.TypeAdapter(kind)
        return _inlined(adapter.json_schema()), _pydantic_reader(adapter)
    except (TypeError, ValueError, NameError, pydantic.errors.PydanticUserError) as error:
        try:  # pydantic knows nothing of structs, and msgspec of lists of them
            return _inlined(msgspec.json.schema(kind)), _struct_reader(kind)
        except (TypeError, ValueError, NameError):
            raise MetaError(f"output: {kind!r} has no JSON Schema: {_first_line(error)}", field="output") from error


def of_json_schema(schema: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return what reads JSON that follows a schema.

    Raises:
        MetaError: it is no JSON Schema.
    """
    if not isinstance(schema.get("$schema", ""), str):
        raise MetaError("output: no JSON Schema: $schema: expected a text", field="output")
    kind: Any = _jsonschema.validators.validator_for(schema, default=_jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        fault: Any = error
        told = _told([(_place(fault), fault.message)])
        raise MetaError(f"output: no JSON Schema: {told}", field="output") from error
    validator: Any = kind(schema, registry=_NO_OTHERS, format_checker=kind.FORMAT_CHECKER)

    try:
        probes: tuple[Any, ...] = (None, {}, [], "", 0)
        for value in probes:
            validator.is_valid(value)
    except RecursionError as error:
        raise MetaError("output: no JSON Schema: it refers to itself without an end", field="output") from error
    except re.error as error:
        raise MetaError(f"output: no JSON Schema: a pattern cannot be read: {error}", field="output") from error
    except Unresolvable:
        pass  # it is told when it is looked for

    def read(text: str) -> Any:
        value = parsed(text)
        try:
            faults = [_fault(error) for error in validator.iter_errors(value)]
        except Unresolvable as error:
            raise OutputError(f"the schema names what is not in it: {error}") from error
        except (ArithmeticError, ValueError, RecursionError, re.error) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise OutputError(f"it cannot be checked: {why}") from error
        if faults:
            raise OutputError(_told(sorted(faults)))
        return value

    return read


def _fault(error: Any) -> tuple[str, str]:
    """Return where something does not fit, and how; of alternatives none of which fits, the one that comes nearest."""
    nearest: Any = _jsonschema.exceptions.best_match([error])
    return _place(nearest), nearest.message


def _place(error: Any) -> str:
    return error.json_path.removeprefix("$").removeprefix(".")


def _struct_reader(kind: type[U]) -> Callable[[str], U]:
    decoder = msgspec.json.Decoder(kind)

    def read(text: str) -> U:
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise OutputError(str(error)) from error

    return read


def _pydantic_reader(adapter: pydantic.TypeAdapter[U]) -> Callable[[str], U]:
    def read(text: str) -> U:
        parsed(text)  # pydantic takes NaN for a number
        try:
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            told = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False)]
            raise OutputError(_told(told)) from error

    return read


def _told(faults: list[tuple[str, str]]) -> str:
    shown = [f"{where}: {what}" if where else what for where, what in faults[:_EXAMPLES_MAX]]
    more = len(faults) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


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


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
