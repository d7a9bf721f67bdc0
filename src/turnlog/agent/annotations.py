"""What annotations say beside types: bounds, by msgspec or by pydantic, and what a parameter is for.

pydantic is not imported here: few functions speak of it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

_PYDANTICS = frozenset(("pydantic", "pydantic_core", "annotated_types"))
_OWN = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_BOTH = (
    "what only msgspec reads (Meta, structs) stands together with what only pydantic reads (Field, types of its own), "
    "and either passes over the other: use one"
)
_IN_MODEL = "a model of pydantic passes over the bounds of msgspec's Meta: use Field there"
_UNREAD = "pydantic reads an Iterable only when the function does: use a list"


def only_reader(kind: object) -> Literal["pydantic", "msgspec"] | None:
    """Tell who alone reads something in a type: pydantic its bounds and types of its own, msgspec its bounds.

    Models and structs are told by whoever comes upon them, and are not meant.

    Raises:
        TypeError: it has what only the one reads, and what only the other does; or what is not read before a function
            is called.
        NameError: an alias names what is not there.
    """
    said = [*_said(kind, {}, {})]
    if not any(map(_is_pydantics, said)):
        return "msgspec" if any(map(_is_bounded, said)) else None
    if any(map(_is_msgspecs, said)):
        raise TypeError(_BOTH)
    if not {Iterable, Iterator, AsyncIterable}.isdisjoint(part for part in said if inspect.isclass(part)):
        raise TypeError(_UNREAD)
    return "pydantic"


def hides_default(default: Any, annotation: object) -> bool:
    """Tell whether a `Field` of pydantic stands for the default of a parameter, or has one: Python does not see it."""
    return _is_field(default) or any(_is_field(said) and not said.is_required() for said in _beside(annotation))


def description_in(annotation: object) -> str | None:
    """Return what an annotation says of a parameter: a text, or a `Doc` of PEP 727; None where it says nothing."""
    for said in _beside(annotation):
        text = said if isinstance(said, str) else getattr(said, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def _beside(annotation: object) -> tuple[Any, ...]:
    """Return what stands beside a type in `Annotated`, also where None may stand in its place."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1:]
    others = [kind for kind in get_args(annotation) if kind is not types.NoneType]
    return get_args(others[0])[1:] if len(others) == 1 and get_origin(others[0]) is Annotated else ()


def _is_field(said: Any) -> bool:
    return any(kind.__name__ == "FieldInfo" and _is_of_pydantic(kind) for kind in type(said).__mro__)


def _is_of_pydantic(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _PYDANTICS


def _is_pydantics(said: object) -> bool:
    if not isinstance(said, type):
        return any(map(_is_of_pydantic, type(said).__mro__)) or _has(type(said), *_OWN)
    if issubclass(said, msgspec.Struct) or _has(said, "model_json_schema"):
        return False
    return _has(said, *_OWN, "__pydantic_validator__", "__pydantic_config__")


def _has(kind: Any, *names: str) -> bool:
    return any(hasattr(kind, name) for name in names)


def _is_msgspecs(said: object) -> bool:
    return _is_bounded(said) or (isinstance(said, type) and issubclass(said, msgspec.Struct))


def _is_bounded(said: object) -> bool:
    return isinstance(said, msgspec.Meta) and any(getattr(said, name) is not None for name in _BOUNDS)


def _said(kind: Any, seen: dict[int, object], in_models: dict[int, object]) -> Iterator[object]:
    """Iterate over the classes in a type and over what stands beside types, in fields too; not in models.

    Args:
        kind: the type.
        seen: what was come upon already, by its number.
        in_models: the same within models, which may stand beside them too.

    Raises:
        TypeError: bounds of msgspec stand in a model.
    """
    if id(kind) in seen:
        return
    seen[id(kind)] = kind  # held, so that nothing else gets its number
    if get_origin(kind) is Annotated:
        yield from get_args(kind)[1:]
    for inner in _within(kind):
        yield from _said(inner, seen, in_models)
    if not inspect.isclass(kind):
        return
    yield kind
    if hasattr(kind, "model_json_schema"):
        _check_model(kind, in_models)
        return
    for hint in _fields(kind):
        yield from _said(hint, seen, in_models)


def _within(kind: Any) -> Iterator[object]:
    """Iterate over the types that a type is made of."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is not None and origin is not Annotated:
        yield origin
    yield from arguments[: 1 if origin is Annotated else None]
    if isinstance(kind, TypeVar):
        yield from (kind.__bound__, *kind.__constraints__)
    elif inspect.isclass(kind):
        yield from vars(kind).get("__orig_bases__", ())
    elif type(kind).__name__ == "TypeAliasType":
        yield kind.__value__
    elif hasattr(kind, "__supertype__"):  # a `NewType`
        yield kind.__supertype__


def _check_model(model: Any, seen: dict[int, object]) -> None:
    for field in getattr(model, "model_fields", {}).values():
        if any(map(_is_bounded, (*field.metadata, *_said(field.annotation, seen, seen)))):
            raise TypeError(f"{_IN_MODEL} ({model.__name__})")


def _fields(kind: Any) -> list[object]:
    has_fields = (
        hasattr(kind, "__dataclass_fields__"),
        hasattr(kind, "__attrs_attrs__"),
        hasattr(kind, "__total__"),  # a `TypedDict`, that of typing_extensions too
        msgspec.Struct in kind.__mro__,
        hasattr(kind, "_fields"),  # a `NamedTuple`
    )
    if not any(has_fields):
        return []
    try:
        hints = get_type_hints(kind, include_extras=True).values()
    except Exception:  # noqa: BLE001 - an annotation that is a text may raise anything: who reads the type tells it
        return []
    return [hint for hint in hints if hint is not ClassVar and get_origin(hint) is not ClassVar]
