"""Checks request bodies against the parameters that the SDKs themselves have types for, strictly: no unknown keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pydantic
from pydantic_core import SchemaValidator
from tests.wires import converse_types


def check_body(adapter: str, body: bytes) -> None:
    """Check a body against the types of the SDK that would send it.

    Raises:
        pydantic.ValidationError: a value is not of the type that the SDK has for it, or a key is in none of its types.
    """
    CHECKS[adapter](body)


def strict(of: Any) -> SchemaValidator:
    """Return a validator of a typed dict or a union of them that looks into everything and allows no other keys."""
    return SchemaValidator(_strict(pydantic.TypeAdapter(of).core_schema))


def _strict(schema: Any) -> Any:
    """Make iterables lists, which are checked at once, and close typed dicts."""
    match schema:
        case {"type": "generator"}:
            return {name: _strict(inner) for name, inner in (schema | {"type": "list"}).items()}
        case {"type": "typed-dict"}:
            return {name: _strict(inner) for name, inner in (schema | {"extra_behavior": "forbid"}).items()}
        case dict():
            return {name: _strict(inner) for name, inner in schema.items()}
        case list() | tuple():
            return [_strict(inner) for inner in schema]
        case _:
            return schema


# Anthropic and OpenAI: typed dicts


@cache
def _anthropic() -> SchemaValidator:
    from anthropic.types import message_create_params as params  # noqa: PLC0415 - only where it is asked for

    return strict(params.MessageCreateParamsStreaming | params.MessageCreateParamsNonStreaming)


@cache
def _chat() -> SchemaValidator:
    from openai.types.chat import completion_create_params as params  # noqa: PLC0415

    return strict(params.CompletionCreateParamsStreaming | params.CompletionCreateParamsNonStreaming)


@cache
def _responses() -> SchemaValidator:
    from openai.types.responses import response_create_params as params  # noqa: PLC0415

    return strict(params.ResponseCreateParamsStreaming | params.ResponseCreateParamsNonStreaming)


# Gemini and Cohere: models


@cache
def _gemini() -> type[pydantic.BaseModel]:
    from google.genai import types  # noqa: PLC0415

    return pydantic.create_model(
        "GenerateContentBody",
        __config__=pydantic.ConfigDict(extra="forbid"),
        contents=(list[types.Content], ...),
        tools=(list[types.Tool] | None, None),
        toolConfig=(types.ToolConfig | None, None),
        systemInstruction=(types.Content | None, None),
        generationConfig=(types.GenerationConfig | None, None),
        safetySettings=(list[types.SafetySetting] | None, None),
        cachedContent=(str | None, None),
    )


@cache
def _cohere() -> type[pydantic.BaseModel]:
    """Return a model of the parameters of the SDK's own method. Its types allow any further key: see `_extras`."""
    from cohere.v2.client import V2Client  # noqa: PLC0415

    parameters = inspect.signature(V2Client.chat, eval_str=True).parameters
    fields: dict[str, Any] = {
        name: (parameter.annotation, ... if parameter.default is inspect.Parameter.empty else None)
        for name, parameter in parameters.items()
        if name not in ("self", "request_options")
    }
    return pydantic.create_model(
        "ChatBody", __config__=pydantic.ConfigDict(extra="forbid"), stream=(bool, ...), **fields
    )


def _extras(value: Any, path: str = "") -> Iterable[str]:
    """Iterate over the paths of all keys that are in no type."""
    if isinstance(value, pydantic.BaseModel):
        yield from (f"{path}.{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _extras(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _extras(inner, f"{path}[{index}]")


def _check_cohere(body: bytes) -> None:
    assert list(_extras(_cohere().model_validate_json(body))) == []


# Bedrock: types of our own


@cache
def _converse() -> SchemaValidator:
    return strict(converse_types.Body)


CHECKS: dict[str, Callable[[bytes], Any]] = {
    "anthropic": lambda body: _anthropic().validate_json(body, strict=True),
    "openai_chat": lambda body: _chat().validate_json(body, strict=True),
    "cerebras": lambda body: _chat().validate_json(body, strict=True),
    "openai_responses": lambda body: _responses().validate_json(body, strict=True),
    "gemini": lambda body: _gemini().model_validate_json(body),
    "cohere": _check_cohere,
    "bedrock": lambda body: converse_types.check_roles(_converse().validate_json(body, strict=True)),
}
