"""Types that pydantic reads as types of a tool's parameters: their schemas, and reading them.

They are models, or become models here. pydantic is imported for the latter alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from turnlog.agent.told_errors import first_line
from turnlog.errors import OutputError

_UNNAMED = re.compile("[^A-Za-z0-9_-]")
_FAULTS_MAX = 5


class OfParameter:
    """Marks the model that a type becomes which stands in a parameter: the function is given its `root`.

    `check` refuses what the schema does not allow, though pydantic reads it, such as `"5"` for an integer.
    """

    root: Any
    check: ClassVar[Callable[[Any], None]]


def as_model(parameter: str, kind: object) -> type[OfParameter]:
    """Return the model that stands for a type which pydantic reads.

    Raises:
        TypeError: pydantic knows nothing of the type.
    """
    import pydantic  # noqa: PLC0415 - few functions ask for it

    try:
        base: Any = pydantic.RootModel[kind]
        return type(parameter, (OfParameter, base), {"__module__": __name__})
    except Exception as error:  # pydantic_core raises its own, and types of others raise what they like
        raise TypeError(f"pydantic does not take it: {first_line(error)}") from error


class Models:
    """The models that the parameters of a function have, whose definitions stand beside those of other types."""

    def __init__(self) -> None:
        """Begin with none."""
        self.definitions: dict[str, Any] = {}

    def schema(self, kind: type) -> dict[str, Any]:
        """Return the schema of a type that msgspec knows nothing of: of a model a reference to its definition.

        Raises:
            TypeError: it is no model, or has no schema.
        """
        if not _is_model(kind):
            raise TypeError(
                f"{kind.__name__} is none of plain values, list, dict, Literal, Enum, TypedDict, a dataclass, a struct "
                "of msgspec, and a model of pydantic"
            )
        model: Any = kind
        name = _UNNAMED.sub("_", kind.__name__)
        try:
            # Names of its own: msgspec says of the same enumeration something else.
            schema: dict[str, Any] = model.model_json_schema(ref_template=f"#/$defs/{name}_{{model}}")
        except Exception as error:
            raise TypeError(f"{kind.__name__} has no JSON Schema: {first_line(error)}") from error
        for inner, definition in schema.pop("$defs", {}).items():
            self._define(f"{name}_{inner}", definition)
        if issubclass(kind, OfParameter):
            from turnlog.agent.output_check import of_schema_of_type  # noqa: PLC0415 - few functions ask for it

            kind.check = staticmethod(of_schema_of_type(model.model_json_schema()))
            if (
                schema.get("title") == kind.__name__ and len(schema) > 1
            ):  # nobody gave it one; msgspec takes no empty one
                del schema["title"]
            return schema
        if list(schema) == ["$ref"]:  # it has itself in it
            return schema
        self._define(name, schema)
        return {"$ref": f"#/$defs/{name}"}

    def joined(self, definitions: dict[str, Any]) -> dict[str, Any]:
        """Return the definitions of other types with those of the models.

        Raises:
            TypeError: a model and another type have one name.
        """
        for name, definition in definitions.items():
            self._define(name, definition)
        return self.definitions

    def _define(self, name: str, definition: Any) -> None:
        if self.definitions.setdefault(name, definition) != definition:
            raise TypeError(f"two types are called {name!r}: rename one of them")


def read_model(kind: type, value: object) -> object:
    """Return a value of JSON as a model.

    Raises:
        ValueError: it does not fit; says where.
    """
    model: Any = kind
    try:
        # As JSON: a strict model takes texts for times from nothing else.
        read = model.model_validate_json(msgspec.json.encode(value))
        if issubclass(kind, OfParameter):
            kind.check(value)
    except OutputError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        faults: Any = getattr(error, "errors", None)
        if faults is None:
            raise
        told = [_told(fault) for fault in faults(include_url=False, include_input=False, include_context=False)]
        more = [f"and {len(told) - _FAULTS_MAX} more"] if len(told) > _FAULTS_MAX else []
        raise ValueError("; ".join((*told[:_FAULTS_MAX], *more))) from error
    return read


def _is_model(kind: type) -> bool:
    return all(hasattr(kind, name) for name in ("model_json_schema", "model_validate_json"))


def _told(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else fault["msg"]
