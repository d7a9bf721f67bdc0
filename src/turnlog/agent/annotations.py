"""What annotations say beside types: bounds, by msgspec or by pydantic, and what a parameter is for.

pydantic is not imported here: few functions speak of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

_PYDANTICS = frozenset(("pydantic", "pydantic_core", "annotated_types"))
_BOTH = (
    "what only msgspec reads (Meta, structs) stands together with what only pydantic reads (Field, types of its own), "
    "and either passes over the other: use one"
)


def is_for_pydantic(kind: object) -> bool:
    """Tell whether a type has anything in it that only pydantic reads, beside models: bounds, or types of its own.

    Raises:
        TypeError: it has what only msgspec reads, too.
    """
    said = [*_said(kind, {})]
    if not any(map(_is_pydantics, said)):
        return False
    if any(map(_is_msgspecs, said)):
        raise TypeError(_BOTH)
    return True


def is_for_msgspec(kind: object) -> bool:
    """Tell whether a type has anything in it that only msgspec reads: bounds, or structs.

    Raises:
        TypeError: it has what only pydantic reads, too.
    """
    return not is_for_pydantic(kind) and any(map(_is_msgspecs, _said(kind, {})))


def hides_default(default: Any, annotation: object) -> bool:
    """Tell whether a `Field` of pydantic stands for the default of a parameter, or has one: Python does not see it."""
    return _is_field(default) or any(_is_field(said) and not said.is_required() for said in metadata_of(annotation))


def metadata_of(annotation: object) -> tuple[Any, ...]:
    """Return what stands behind the type in `Annotated`; nothing in another annotation."""
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def description_in(annotation: object) -> str | None:
    """Return what an annotation says of a parameter: a text, or a `Doc` of PEP 727; None where it says nothing."""
    for said in metadata_of(annotation):
        text = said if isinstance(said, str) else getattr(said, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def _is_field(said: Any) -> bool:
    kind: Any = said.__class__
    return kind.__name__ == "FieldInfo" and _is_of_pydantic(kind)


def _is_of_pydantic(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _PYDANTICS


def _is_pydantics(said: object) -> bool:
    if not isinstance(said, type):
        return _is_of_pydantic(type(said))
    reads = hasattr(said, "__get_pydantic_core_schema__") or hasattr(said, "__pydantic_validator__")
    return reads and not hasattr(said, "model_json_schema")


def _is_msgspecs(said: object) -> bool:
    return isinstance(said, msgspec.Meta) or (isinstance(said, type) and issubclass(said, msgspec.Struct))


def _said(kind: Any, seen: dict[int, object]) -> Iterator[object]:
    """Iterate over the classes in a type and over what stands beside types, in fields too; not in models."""
    if id(kind) in seen:
        return
    seen[id(kind)] = kind  # held, so that nothing else gets its number
    origin = get_origin(kind)
    if origin is Annotated:
        yield from metadata_of(kind)
    if hasattr(kind, "__value__"):  # `type X = …`
        yield from _said(kind.__value__, seen)
    for inner in (origin, *get_args(kind)[: 1 if origin is Annotated else None]):
        if inner is not None:
            yield from _said(inner, seen)
    if inspect.isclass(kind):
        yield kind
        for hint in _fields(kind):
            yield from _said(hint, seen)


def _fields(kind: Any) -> list[object]:
    has_fields = (
        hasattr(kind, "__dataclass_fields__"),
        hasattr(kind, "__total__"),  # a `TypedDict`, that of typing_extensions too
        msgspec.Struct in kind.__mro__,
        hasattr(kind, "_fields"),  # a `NamedTuple`
    )
    if not any(has_fields):
        return []
    try:
        return [*get_type_hints(kind, include_extras=True).values()]
    except Exception:  # noqa: BLE001 - an annotation that is a text may raise anything: who reads the type tells it
        return []
