"""Requests of generateContent: contents, and the body around them (Gemini API, `models.generateContent`, v1beta)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import MALFORMED, Block, Document, Native, Text, Thinking, Tool, ToolResult, ToolUse
from turnlog.providers.body import encode, frame, given_twice
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import leave_out, native_block, provider_fields, with_fields
from turnlog.providers.gemini.schema import EndlessSchemaError, converted
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.losses import Losses
from turnlog.providers.raw_json import fields_of
from turnlog.providers.tool_choice import tool_choice
from turnlog.providers.tool_names import ToolNames

SIGNED_PART = "signed_part"
"""The extra key of a thinking block that says which part its signature stood on: `thought`, the part of the thinking
itself; `empty`, a text part without text. Without it, the part that the next block is of."""

ABOUT_CONTENT = frozenset(
    {"citationMetadata", "groundingAttributions", "groundingMetadata", "safetyRatings", "urlContextMetadata"}
)
"""Fields of a candidate that say something about its content: extra keys of a block, which no request has."""

CONTENT = "content_fields"
"""The extra key of a block with the further fields of the content that it is of. They go back there."""

OF_CONTENT = ABOUT_CONTENT | {CONTENT}
"""The extra keys that are of a whole content."""

NAMES = ToolNames(
    characters_max=64,
    pattern="[a-zA-Z_][a-zA-Z0-9_.:-]*",
    form="letters, digits, '_', '.', ':' and '-', a letter or '_' first,",
)
"""The names that tools can have (Gemini API, `FunctionDeclaration`)."""

DEFAULTS: Mapping[str, Any] = {"temperature": 1, "topP": 0.95, "maxOutputTokens": 81920}
"""The `generationConfig` of a request whose parameters say nothing else."""

_PARAMETERS = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_GENERATION = (
    "audioTimestamp",
    "audioTranscriptionConfig",
    "candidateCount",
    "enableAffectiveDialog",
    "enableEnhancedCivicAnswers",
    "frequencyPenalty",
    "imageConfig",
    "logprobs",
    "maxOutputTokens",
    "mediaResolution",
    "modelSelectionConfig",
    "presencePenalty",
    "responseFormat",
    "responseJsonSchema",
    "responseLogprobs",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "routingConfig",
    "seed",
    "speechConfig",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
    "translationConfig",
)
_GENERATION_NAMES = {
    **{name: name for name in _GENERATION},
    **{re.sub("[A-Z]", lambda capital: "_" + capital[0].lower(), name): name for name in _GENERATION},
    **_PARAMETERS,
}
"""What parameters are called inside `generationConfig`. The API reads its own names in either spelling."""

RESERVED = (
    "contents",
    "input",
    "messages",
    "model",
    "stream",
    "system",
    "systemInstruction",
    "system_instruction",
    "tools",
)
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

_MODEL_GENERATION = re.compile("(?:^|/)gemini-([0-9]*)")
_FIRST_GENERATION_WITH_SIGNATURES = 3
_NO_SIGNATURE = "skip_thought_signature_validator"
"""What the API takes for the signature of a call that another model made (Gemini API, "Thought Signatures"). From
Gemini 3 on models refuse calls without one; older ones do not look at it. Where a name says no generation, as that of
an alias (`gemini-flash-latest`), the model may be a new one."""

Part: TypeAlias = "dict[str, Any] | Raw"


# Ids of calls


def made_up_id(response_id: str | None, ordinal: int) -> str:
    """Return the id of a call that the API gave none: the same for the same reply, streamed or not.

    It has the id of the reply in it, or a word for that: the API's own can be `call_` and a number.

    Args:
        response_id: the id of the reply.
        ordinal: the call's place among those of the reply, from 1.
    """
    return f"call_{response_id or 'reply'}_{ordinal}"


def _id(given: object) -> dict[str, str]:
    """Return the id of a call where the API gave it. One that turnlog made up would be news to it."""
    if not isinstance(given, str):
        return {}
    reply, _, ordinal = given.rpartition("_")
    return {} if reply.startswith("call_") and ordinal.isdecimal() else {"id": given}


# Contents


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as contents of the wire: one, or none where nothing of it has a place there."""
    parts = parts_of(carried.blocks)
    role = "model" if carried.role == "assistant" else "user"
    if role == "model" and _asks_for_signatures(carried.model):
        _sign_foreign_call(parts)
    content = {"role": role, "parts": parts}
    for block in carried.blocks:
        content = with_fields(content, fields_of(block.extra.get(CONTENT)) or {})
    return [encode(content)] if parts else []


def _asks_for_signatures(model: str) -> bool:
    found = _MODEL_GENERATION.search(model)
    return found is not None and int(found[1] or _FIRST_GENERATION_WITH_SIGNATURES) >= _FIRST_GENERATION_WITH_SIGNATURES


def _sign_foreign_call(parts: Sequence[Part]) -> None:
    """Mark the first call of a message as one without a signature, where another model made it."""
    for part in parts:
        if isinstance(part, dict) and "functionCall" in part:
            part.setdefault("thoughtSignature", _NO_SIGNATURE)
            return


def parts_of(blocks: Sequence[Block]) -> list[Part]:
    """Return blocks as parts, each signature on the part that it came on."""
    parts: list[Part] = []
    signature: str | None = None
    for block in blocks:
        if signature is not None and isinstance(block, Thinking | Native):
            parts.append({"text": "", "thoughtSignature": signature})
            signature = None
        if isinstance(block, Thinking):
            signature = _think(block, parts)
            continue
        part = _part(block)
        if signature is not None and isinstance(part, dict):
            part["thoughtSignature"] = signature
            signature = None
        parts.append(part)
    if signature is not None:
        parts.append({"text": "", "thoughtSignature": signature})
    return parts


def _think(block: Thinking, parts: list[Part]) -> str | None:
    """Add what stands on parts of its own, and return the signature if it is one of the next part."""
    signature = block.signature
    on = msgspec.json.decode(block.extra[SIGNED_PART]) if SIGNED_PART in block.extra else None
    if block.thinking or on == "thought":
        signed = {} if signature is None or on != "thought" else {"thoughtSignature": signature}
        parts.append({"text": block.thinking, "thought": True, **signed, **_beside(block, SIGNED_PART)})
    else:
        leave_out(_beside(block, SIGNED_PART))
    if signature is not None and on == "empty":
        parts.append({"text": "", "thoughtSignature": signature})
    return signature if on is None else None


def _part(block: Text | Document | ToolUse | ToolResult | Native) -> Part:
    match block:
        case Text():
            return with_fields({"text": block.text}, _beside(block))
        case Document():
            source = block.source
            data = {"mime_type": source.media_type, "data": source.data}
            return with_fields({"inline_data": data}, _beside(block))
        case ToolUse():
            inside = fields_of(block.extra.get("functionCall")) or {}
            call = with_fields({"name": block.name, "args": block.input, **_id(block.id)}, inside)
            return with_fields({"functionCall": call}, _beside(block, "functionCall", MALFORMED))
        case ToolResult():
            return {"functionResponse": _result(block)}
        case Native():
            return native_block(block, *OF_CONTENT)


def _beside(block: Block, *names: str) -> dict[str, Raw]:
    """Return the extra fields of a block that its part came with: all but some names."""
    return provider_fields(block, *names, *OF_CONTENT)


def _result(block: ToolResult) -> dict[str, Any]:
    """Return a result as the object that the API wants; a text that is JSON itself stays a text."""
    content = [Text(text=block.content)] if isinstance(block.content, str) else block.content
    text = "\n".join(part.text for part in content if isinstance(part, Text))
    response = {"error" if block.is_error is True else "result": text}
    native = [native_block(part) for part in content if isinstance(part, Native)]
    for part in content:
        if isinstance(part, Text):
            leave_out(part.extra)
    result = {"name": block.name, "response": response, **({"parts": native} if native else {})}
    return with_fields({**result, **_id(block.tool_use_id)}, block.extra)


# The body around the contents


def frame_body(given: FrameInput) -> Frame:
    """Return the body around the contents. They come last, so that a longer conversation keeps the bytes before.

    Raises:
        UnsupportedContentError: search beside tools, or a schema of one that must lose something.
        ContentError: a parameter would overwrite a part of the body, or a tool's schema is none.
    """
    before: dict[str, Any] = {}
    if given.system:
        before["systemInstruction"] = {"parts": [{"text": text} for text in given.system]}
    if given.tools:
        if given.search:
            why = "search beside tools: the API has one or the other"
            given.losses.lose("dropped", "search", why, advice="choose one")
        before["tools"] = [{"functionDeclarations": [_declaration(tool, given.losses) for tool in given.tools]}]
    elif given.search:
        before["tools"] = [{"google_search": {}}]
    generation = dict(DEFAULTS)
    others: dict[str, Any] = {}
    said: set[str] = set()
    for name, value in given.params.items():
        if name == "generationConfig" and isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
        elif name in _GENERATION_NAMES:
            fields = {_GENERATION_NAMES[name]: value}
        else:
            if name != "tool_choice":
                others[name] = value
            continue
        if twice := said.intersection(fields):
            raise given_twice(name, min(twice))
        said.update(fields)
        generation |= fields
    calling = _calling(given)
    if calling is not None:
        beside = others.pop("toolConfig", None)
        config = dict(cast("Mapping[str, Any]", beside)) if isinstance(beside, Mapping) else {}
        before["toolConfig"] = {**config, "functionCallingConfig": calling}
    # A parameter that is null takes a default away: the model's own holds then.
    before["generationConfig"] = {name: value for name, value in generation.items() if value is not None}
    return frame(before | others, "contents", {})


def _declaration(tool: Tool, losses: Losses) -> dict[str, Any]:
    try:
        try:
            schema, lost = converted(tool.input_schema)
        except EndlessSchemaError as error:
            why = f"the schema of {tool.name!r} cut short: references are written out, and {error}"
            losses.lose("downgraded", "tool", why, advice="leave the tool out")
            schema, lost = converted(tool.input_schema, cut=True)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ContentError(f"tools: the schema of {tool.name!r} cannot be read: {error}", field="tools") from error
    losses.lose_keywords(tool, lost, advice="take them out")
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": schema}


def _calling(given: FrameInput) -> dict[str, Any] | None:
    """Return the `functionCallingConfig` that was asked for, or None. It is of tools alone: search is none of them."""
    choice = tool_choice(given)
    if choice is None:
        return None
    if not given.tools:
        if choice.mode not in ("auto", "none"):
            harmless = given.params.get("tool_choice") is None
            given.losses.lose("dropped", "tool_choice", "a call that is asked for: search is none", harmless=harmless)
        return None
    if choice.mode == "own":
        return choice.record
    if choice.mode == "tool":
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": _MODES[choice.mode]}
