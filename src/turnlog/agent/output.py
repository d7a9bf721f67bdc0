"""What a run is to come to: a value of a type or of a JSON Schema, read from the text of the last reply and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, cast, overload

from typing_extensions import TypeVar

from turnlog.agent.reply_json import parsed, unfenced
from turnlog.agent.told_errors import told_error
from turnlog.errors import MetaError, OutputError
from turnlog.model.kinds import check_type
from turnlog.model.plain import plain_json

T_co = TypeVar("T_co", default=None, covariant=True)
U = TypeVar("U")

_WRAPPED = "value"
"""The property of what is asked for where it is no object by itself: models are only held to objects."""

_SHARED = ("$defs", "definitions")
"""Where a schema has what it refers to: there it stays, whatever it is wrapped in."""
_OUTSIDE = ("$id", *_SHARED)
"""What stays outside when a schema is wrapped; what its references are relative to does, too."""
_UNNAMED = re.compile("[^A-Za-z0-9_-]+")
_MESSAGE_CHARACTERS_MAX = 2000

REPAIR = """That reply is not what was asked for: {why}

Reply again, with nothing but JSON that follows this schema:
{schema}"""
"""What a model is told whose reply does not fit."""


class Output(Generic[T_co]):
    """A value that a run is to come to.

    Attributes:
        name: what it is called: 1 to 64 letters, digits, `_` and `-`.
        schema: its JSON Schema (2020-12).
    """

    def __init__(self, name: str, schema: Mapping[str, Any], check: Callable[[str], T_co]) -> None:
        """Take the parts; `check` reads JSON as a value, or raises `OutputError`.

        `Output.of` and `Output.of_schema` are the usual ways.

        Raises:
            MetaError: the name is no text, or the schema no object.
        """
        if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - as below
            raise MetaError(f"output: a JSON Schema is an object here, not {type(schema).__name__}", field="output")
        self.name = _UNNAMED.sub("_", check_type(name, str, "name"))[:64] or "output"
        self.schema = schema
        self._check = check
        self._is_wrapped = schema.get("type", "object" if "properties" in schema else None) != "object"

    @overload
    @staticmethod
    def of(kind: type[U], *, name: str | None = None) -> Output[U]: ...
    @overload
    @staticmethod
    def of(kind: object, *, name: str | None = None) -> Output[Any]: ...
    @staticmethod
    def of(kind: Any, *, name: str | None = None) -> Output[Any]:
        """Return what is a value of a Python type: a pydantic model, a dataclass, a `TypedDict`, a msgspec struct, ….

        What is a type and no class can be given too, such as `Place | None` or a `Literal`; its values are `Any` for a
        type checker. A reply follows the schema of the type too: `"5"` is no integer, whatever the type would make of
        it. A JSON number that pydantic reads as a `Decimal` keeps the digits of a float: ask for a text where that is
        too few. The first time takes some tenths of a second: what reads types is imported.

        Raises:
            MetaError: it has no JSON Schema.
        """
        from turnlog.agent.output_types import of_type  # noqa: PLC0415 - what it imports takes a while

        schema, check = of_type(kind)
        return Output(name or getattr(kind, "__name__", "output"), schema, check)

    @staticmethod
    def of_schema(schema: Mapping[str, Any], *, name: str | None = None) -> Output[Any]:
        """Return what is JSON that follows a JSON Schema (by default 2020-12), as plain Python values.

        Its name is by default the schema's `title`. The first time takes a tenth of a second: what checks is imported.

        Raises:
            MetaError: it is no JSON Schema.
        """
        from turnlog.agent.output_check import of_json_schema  # noqa: PLC0415

        if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from files it may be
            raise MetaError(f"output: a JSON Schema is an object here, not {type(schema).__name__}", field="output")
        plain = cast("dict[str, Any]", plain_json(schema, "output", MetaError))
        title: object = plain.get("title")
        return Output(name or (title if isinstance(title, str) else "output"), plain, of_json_schema(plain))

    @property
    def parameter(self) -> dict[str, Any]:
        """What the parameter `output_schema` of a model call is: see `turnlog.providers.output_schema`."""
        return {"name": self.name, "schema": self._asked()}

    def _asked(self) -> Mapping[str, Any]:
        if not self._is_wrapped:
            return self.schema if "type" in self.schema else {"type": "object", **self.schema}
        inner = {name: value for name, value in self.schema.items() if name not in (*_OUTSIDE, "$schema")}
        outer = {name: self.schema[name] for name in _OUTSIDE if name in self.schema}
        whole = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], **outer}
        return cast("dict[str, Any]", _with_root(whole))

    def read(self, text: str) -> T_co:
        """Return the value that the text of a reply says.

        The text is JSON, or one Markdown code block of JSON.

        Raises:
            OutputError: it is not, or the value is not what was asked for.
        """
        said = unfenced(text)
        if self._is_wrapped:
            record = parsed(said)
            if not isinstance(record, dict) or set(cast("dict[str, Any]", record)) != {_WRAPPED}:
                raise OutputError(f"expected a JSON object with {_WRAPPED!r} alone")
            said = json.dumps(record[_WRAPPED])
        try:
            return self._check(said)
        except OutputError as error:
            raise OutputError(str(error)[:_MESSAGE_CHARACTERS_MAX]) from error.__cause__
        except Exception as error:  # what checks values of all types raises what it likes
            raise OutputError(f"it cannot be read: {told_error(error)}"[:_MESSAGE_CHARACTERS_MAX]) from error

    def repair(self, why: OutputError) -> str:
        """Return what to tell a model whose reply does not fit."""
        return REPAIR.format(why=why, schema=json.dumps(self._asked(), ensure_ascii=False))


def _with_root(schema: object) -> object:
    """Return a wrapped schema in which what refers to all of the schema means what is wrapped."""
    match schema:
        case dict():
            members = cast("dict[str, object]", schema)
            return {
                name: _within(value) if name == "$ref" and isinstance(value, str) else _with_root(value)
                for name, value in members.items()
            }
        case list():
            return [_with_root(each) for each in cast("list[object]", schema)]
        case _:
            return schema


def _within(reference: str) -> str:
    """Return a reference from the root of a schema as it is where that is wrapped; any other one as it is."""
    is_shared = any(reference == f"#/{name}" or reference.startswith(f"#/{name}/") for name in _SHARED)
    if is_shared or not (reference == "#" or reference.startswith("#/")):
        return reference
    return f"#/properties/{_WRAPPED}{reference[1:]}"
