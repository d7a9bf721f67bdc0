"""How a JSON Schema checks what a model said. Slow to import: only what asks for such a value does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import lru_cache, partial
from time import monotonic
from typing import Annotated, Any, cast

import jsonschema
import pydantic
import referencing.jsonschema
import regex
from pydantic_core import SchemaError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from turnlog.agent.reply_json import parsed
from turnlog.errors import MetaError, OutputError

_jsonschema: Any = jsonschema  # it has no types
_regex: Any = regex  # as little
_NO_OTHERS: Registry[Any] = Registry()
"""What a schema names is within it: nothing is fetched."""

_EXAMPLES_MAX = 5
"""So many faults are told at once."""

_SEARCH_S_MAX = 0.25
"""So long may one search for a pattern take that looks around or back."""

_CHECK_S_MAX = 1.0
"""So long may a check by somebody else's schema take, and one search for a pattern more."""

_UNCHECKED = (ArithmeticError, ValueError, Unresolvable, _regex.error)
"""What is raised where a value cannot be checked, beside too many levels and too long a search."""

_PROBES: tuple[Any, ...] = (None, {}, [], "", 0)


def of_json_schema(schema: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return what reads JSON that follows a schema.

    Patterns are searched for in time that grows with the text alone; those that look around themselves or back, which
    cannot be, for 0.25 s: after that the value cannot be checked. Other threads go on meanwhile.

    Raises:
        MetaError: it is no JSON Schema, or names what is not in it.
    """
    validator = _validator(schema, _KEYWORDS, checks_formats=True)

    def read(text: str) -> Any:
        value = parsed(text)
        try:
            faults = _faults(validator, value)
        except RecursionError as error:
            raise OutputError("it cannot be checked: it is nested too deeply") from error
        except TimeoutError as error:
            raise OutputError(f"it cannot be checked: a pattern was searched for {_SEARCH_S_MAX:g} s") from error
        except _UNCHECKED as error:
            raise OutputError(f"it cannot be checked: {error}") from error
        if faults:
            raise OutputError(told(faults))
        return value

    return read


def of_schema_of_type(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """Return what refuses a JSON value that the schema of a type does not allow, though the type reads it.

    Formats, keys and multiples are for the type, which knows them better than the schema says them. So is all that
    cannot be checked by the schema.
    """
    try:
        validator = _validator(schema, _KEYWORDS_OF_TYPES, checks_formats=False)
    except MetaError:
        return lambda _: None

    def check(value: Any) -> None:
        try:
            faults = _faults(validator, value)
        except (RecursionError, TimeoutError, *_UNCHECKED):
            return
        if faults:
            raise OutputError(told(faults))

    return check


def fault_by(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return the first thing in which a value does not follow a schema, whoever wrote that, in a line.

    None where it follows it, and where that cannot be told: by what is no schema, or within a second. What cannot be
    ended is not looked at: which items of a list are the same, and which properties were not looked at yet, for which
    patterns are searched. Nor are formats.
    """
    try:
        standard: Any = _jsonschema.validators.validator_for(schema, default=_jsonschema.Draft202012Validator)
        standard.check_schema(schema)
        end = monotonic() + _CHECK_S_MAX
        checks = {**standard.VALIDATORS, **_KEYWORDS, **dict.fromkeys(_ENDLESS, _passed_over)}
        keywords = {name: partial(_in_time, check, end) for name, check in checks.items()}
        validator: Any = _jsonschema.validators.extend(standard, keywords)(schema, registry=_NO_OTHERS)
        error: Any = next(validator.iter_errors(value), None)
    except Exception:  # noqa: BLE001 - a check by anybody's schema raises what it likes
        return None
    return None if error is None else told([_fault(error)])


def _in_time(check: Any, end: float, validator: Any, keyword: Any, instance: Any, schema: Any) -> Generator[Any]:
    """Check a keyword.

    Raises:
        TimeoutError: the time is over.
    """
    if monotonic() > end:
        raise TimeoutError
    yield from check(validator, keyword, instance, schema) or ()


def _validator(schema: Mapping[str, Any], keywords: Mapping[str, Any], *, checks_formats: bool) -> Any:
    """Return what finds the faults of a value by a schema.

    Raises:
        MetaError: it is no JSON Schema, or names what is not in it.
    """
    if not isinstance(schema.get("$schema", ""), str):
        raise MetaError("output: no JSON Schema: $schema: expected a text", field="output")
    standard: Any = _jsonschema.validators.validator_for(schema, default=_jsonschema.Draft202012Validator)
    try:
        standard.check_schema(schema)
    except jsonschema.SchemaError as error:
        fault: Any = error
        why = told([(_place(fault), fault.message)])
        raise MetaError(f"output: no JSON Schema: {why}", field="output") from error
    kind: Any = _jsonschema.validators.extend(standard, keywords)
    formats: Any = standard.FORMAT_CHECKER if checks_formats else None
    validator: Any = kind(schema, registry=_NO_OTHERS, format_checker=formats)
    try:
        for value in _PROBES:
            validator.is_valid(value)
        _check_references(schema, standard)
    except RecursionError as error:
        raise MetaError("output: no JSON Schema: it refers to itself without an end", field="output") from error
    except _regex.error as error:
        raise MetaError(f"output: no JSON Schema: a pattern cannot be read: {error}", field="output") from error
    except Unresolvable as error:
        why = f"it names {error.ref!r}, which is not in it, and nothing is fetched"
        raise MetaError(f"output: no JSON Schema: {why}", field="output") from error
    return validator


def _faults(validator: Any, value: Any) -> list[tuple[str, str]]:
    return sorted(_fault(error) for error in validator.iter_errors(value))


def told(faults: list[tuple[str, str]]) -> str:
    """Return what does not fit, each with its place, in a line."""
    shown = [f"{where}: {what}" if where else what for where, what in faults[:_EXAMPLES_MAX]]
    more = len(faults) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def _fault(error: Any) -> tuple[str, str]:
    """Return where something does not fit, and how; of alternatives none of which fits, the one that comes nearest."""
    nearest: Any = _jsonschema.exceptions.best_match([error])
    return _place(nearest), nearest.message


def _place(error: Any) -> str:
    return error.json_path.removeprefix("$").removeprefix(".")


# References


def _check_references(schema: Mapping[str, Any], standard: Any) -> None:
    """Look up all that a schema names, before anybody is asked.

    Raises:
        Unresolvable: something is not there.
    """
    specification = referencing.jsonschema.specification_with(standard.META_SCHEMA["$schema"])
    resource: Resource[Any] = specification.create_resource(schema)
    base = resource.id() or ""
    _check_within(resource, _NO_OTHERS.with_resource(base, resource).crawl().resolver(base))


def _check_within(resource: Resource[Any], resolver: Any) -> None:
    contents: object = resource.contents
    if isinstance(contents, Mapping):
        keywords = cast("Mapping[str, Any]", contents)
        for name in ("$ref", "$dynamicRef"):
            if name in keywords:
                resolver.lookup(keywords[name])
    for inner in resource.subresources():
        _check_within(inner, resolver.in_subresource(inner))


# Keywords with patterns: those of the library search with Python's `re`, some of whose patterns take for ever, and hold
# all other threads up meanwhile.


@lru_cache
def _finder(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a pattern is in a text.

    Raises:
        regex.error: it cannot be read.
    """
    try:
        adapter: pydantic.TypeAdapter[str] = pydantic.TypeAdapter(Annotated[str, pydantic.Field(pattern=pattern)])
    except SchemaError:
        compiled = _regex.compile(pattern)
        return lambda text: compiled.search(text, timeout=_SEARCH_S_MAX, concurrent=True) is not None

    def finds(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except pydantic.ValidationError:
            return False
        return True

    return finds


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Generator[Any]:
    del schema
    if validator.is_type(instance, "string") and not _finder(pattern)(instance):
        yield _jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Generator[Any]:
    del schema
    if not validator.is_type(instance, "object"):
        return
    for pattern, inner in patterns.items():
        finds = _finder(pattern)
        for name, value in instance.items():
            if finds(name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Generator[Any]:
    if not validator.is_type(instance, "object"):
        return
    finders = list(map(_finder, schema.get("patternProperties", {})))
    named = schema.get("properties", {})
    others = [name for name in instance if name not in named and not any(finds(name) for finds in finders)]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and others:
        listed = ", ".join(map(repr, others))
        yield _jsonschema.ValidationError(f"{listed}: no further properties are allowed")


def _passed_over(*_: Any) -> tuple[()]:
    return ()


_KEYWORDS = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}

_ENDLESS = ("uniqueItems", "unevaluatedProperties")
"""Keywords that somebody else's schema can make the check go on for ever with."""

_KEYWORDS_OF_TYPES = {
    **_KEYWORDS,
    "multipleOf": _passed_over,
    "oneOf": _jsonschema.Draft202012Validator.VALIDATORS["anyOf"],
    "propertyNames": _passed_over,
}
"""Those for schemas of types: a union of types may have a value that is one of several."""
