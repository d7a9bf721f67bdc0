"""The options of an input as parameters of a model call, and which model they ask for.

Options have AgentOS's names, in camelCase or snake_case. What the api of the provider does not have is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct
from pydantic.alias_generators import to_camel

from turnlog.interop.gmi.input import ModelOptions
from turnlog.interop.gmi.naming import shortened

Record = Mapping[str, Any]

_EVERYWHERE = {
    "maxTokens": "max_tokens",
    "stop": "stop_sequences",
    "stopSequences": "stop_sequences",
    "temperature": "temperature",
    "topP": "top_p",
}
"""By AgentOS's name the name that all adapters read."""

_OF_API: Mapping[str, Mapping[str, str]] = {
    "chat_completions": {
        "frequencyPenalty": "frequency_penalty",
        "logitBias": "logit_bias",
        "parallelToolCalls": "parallel_tool_calls",
        "presencePenalty": "presence_penalty",
        "reasoningEffort": "reasoning_effort",
        "seed": "seed",
        "userId": "user",
    },
    "responses": {"parallelToolCalls": "parallel_tool_calls", "userId": "user"},
    "messages": {"topK": "top_k"},
    "generate_content": {
        "frequencyPenalty": "frequencyPenalty",
        "presencePenalty": "presencePenalty",
        "seed": "seed",
        "topK": "topK",
    },
    "chat_v2": {
        "frequencyPenalty": "frequency_penalty",
        "presencePenalty": "presence_penalty",
        "seed": "seed",
        "topK": "k",
    },
}
"""By api, and by AgentOS's name, the name on the wire of what only some have."""

_ELSEWHERE = frozenset(
    {"customModelParams", "modelId", "requestTimeout", "stream", "preferredModelId", "preferredProviderId"}
    | {"toolChoice", "responseFormat"}
)


class CallOptions(Struct, frozen=True, kw_only=True):
    """What the options of an input come to for a call.

    Attributes:
        params: parameters of the call.
        tool_choice: `auto`, `none`, `required` or the name of a tool; None where nothing is asked for.
        stream: whether to ask for the reply in pieces; None where nothing is said.
        timeout_s: how long to wait for the provider, in seconds; None where nothing is said.
        notes: what is not carried, a line for people each.
    """

    params: dict[str, Any]
    tool_choice: str | None = None
    stream: bool | None = None
    timeout_s: float | None = None
    notes: tuple[str, ...] = ()


def call_options(options: ModelOptions | None, api: str) -> CallOptions:
    """Return the options of an input as parameters for an api, and what of them it does not have.

    `customModelParams` go as they are, and win.

    Args:
        options: the options.
        api: the api that will be asked: `chat_completions`, `messages`, ….
    """
    given = {} if options is None else _named(options)
    params: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in given.items():
        known = _EVERYWHERE.get(name) or _OF_API.get(api, {}).get(name)
        if known is not None:
            params[known] = [value] if known == "stop_sequences" and isinstance(value, str) else value
        elif api == "messages" and name == "userId":
            params["metadata"] = {"user_id": value}
        elif api == "responses" and name == "reasoningEffort":
            params["reasoning"] = {"effort": value}
        elif name not in _ELSEWHERE:
            notes.append(f"options.{shortened(name)} is not carried: the api {api!r} has no such parameter")
    params |= _response_format(given.get("responseFormat"), api, notes)
    tool_choice = _tool_choice(given.get("toolChoice"), notes)
    custom: object = given.get("customModelParams")
    if isinstance(custom, dict):
        params |= cast("Record", custom)
    elif custom is not None:
        notes.append("options.customModelParams is not carried: it is no record")
    stream: object = given.get("stream")
    if stream is not None and not isinstance(stream, bool):
        notes.append("options.stream is not carried: it is neither true nor false")
    timeout: object = given.get("requestTimeout")
    timeout_ms = timeout if isinstance(timeout, int | float) and not isinstance(timeout, bool) else 0
    if timeout is not None and not timeout_ms > 0:
        notes.append("options.requestTimeout is not carried: it is no time in milliseconds")
    return CallOptions(
        params=params,
        tool_choice=tool_choice,
        stream=stream if isinstance(stream, bool) else None,
        timeout_s=timeout_ms / 1000 if timeout_ms > 0 else None,
        notes=tuple(notes),
    )


def _named(options: ModelOptions) -> dict[str, Any]:
    """Return the options that say something, by AgentOS's names."""
    given = options.model_dump(by_alias=True, exclude_unset=True)
    return {to_camel(name) if "_" in name else name: value for name, value in given.items() if value is not None}


# Tool choice


def _tool_choice(given: object, notes: list[str]) -> str | None:
    """Return a tool choice in the spelling of OpenAI, Anthropic or a plain word as the adapters read it."""
    match given:
        case None:
            return None
        case str():
            return {"any": "required"}.get(given, given)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "tool" | "function", "name": str(name)}:
            return name
        case {"type": "any" | "required"}:
            return "required"
        case {"type": "auto"}:
            return "auto"
        case {"type": "none"}:
            return "none"
        case _:
            notes.append("options.toolChoice is not carried: it is no choice that is known")
            return None


# Response format


def _response_format(given: object, api: str, notes: list[str]) -> dict[str, Any]:
    """Return the parameters that ask for a form of the reply."""
    if given is None:
        return {}
    spell = _FORMATS.get(api)
    params = spell(cast("Record", given)) if spell is not None and isinstance(given, dict) else None
    if params is None:
        notes.append(f"options.responseFormat is not carried: the api {api!r} has no such form")
        return {}
    return params


def _schema(given: Record) -> Record | None:
    """Return the record around the schema of a `json_schema` format; None for other formats."""
    inner: object = given.get("json_schema")
    if given.get("type") != "json_schema" or not isinstance(inner, dict):
        return None
    named = cast("Record", inner)
    return named if isinstance(named.get("schema"), dict) else None


def _as_chat_completions(given: Record) -> dict[str, Any] | None:
    return {"response_format": given}


def _as_responses(given: Record) -> dict[str, Any] | None:
    schema = _schema(given)
    return {"text": {"format": given if schema is None else {"type": "json_schema", **schema}}}


def _as_messages(given: Record) -> dict[str, Any] | None:
    if given.get("type") == "text":
        return {}
    schema = _schema(given)
    tool: object = given.get("tool")  # AgentOS's mark for a reply in the form of a tool's input
    marked: object = cast("Record", tool).get("input_schema") if isinstance(tool, dict) else None
    form: object = marked if schema is None else schema["schema"]
    return {"output_config": {"format": {"type": "json_schema", "schema": form}}} if isinstance(form, dict) else None


def _as_generate_content(given: Record) -> dict[str, Any] | None:
    schema = _schema(given)
    match given.get("type"):
        case "text":
            return {"responseMimeType": "text/plain"}
        case "json_object":
            own: object = given.get("_gemini")
            more: Record = cast("Record", own) if isinstance(own, dict) else {}
            return {"responseMimeType": "application/json", **more}
        case _ if schema is not None:
            return {"responseMimeType": "application/json", "responseJsonSchema": schema["schema"]}
        case _:
            return None


def _as_chat_v2(given: Record) -> dict[str, Any] | None:
    schema = _schema(given)
    if schema is not None:
        return {"response_format": {"type": "json_object", "schema": schema["schema"]}}
    return {"response_format": given} if given.get("type") in ("text", "json_object") else None


_FORMATS: Mapping[str, Callable[[Record], dict[str, Any] | None]] = {
    "chat_completions": _as_chat_completions,
    "responses": _as_responses,
    "messages": _as_messages,
    "generate_content": _as_generate_content,
    "chat_v2": _as_chat_v2,
}
