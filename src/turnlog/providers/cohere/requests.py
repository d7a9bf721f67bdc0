"""From carried messages to the body of a request to Cohere's v2 chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import (
    MALFORMED,
    Block,
    Document,
    LossEntry,
    LossKind,
    Native,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from turnlog.model.plain import plain_json
from turnlog.providers.body import check_parameters, encode, frame
from turnlog.providers.carriage import Carried
from turnlog.providers.interface import Frame, FrameInput

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The images that Cohere's models see (docs.cohere.com/docs/image-inputs)."""

PLAN = "tool_plan"
"""The extra key of a thinking block that says that it is the plan behind the tool calls of a message."""

CITATIONS = "citations"
"""The extra key of a block with the citations in it, a list of objects as the wire has them."""

_RESERVED = ("model", "stream", "tools", "messages")
_TOOL_CHOICES = {"none": "NONE", "required": "REQUIRED"}

# Messages


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as messages of the wire: each tool result is one of its own."""
    if carried.role == "assistant":
        return [encode(_assistant(carried.blocks))]
    messages = [encode(_tool_message(block)) for block in carried.blocks if isinstance(block, ToolResult)]
    rest = [block for block in carried.blocks if not isinstance(block, ToolResult)]
    if rest:
        messages.append(encode({"role": carried.role, "content": _content(rest)}))
    return messages


def _tool_message(result: ToolResult) -> dict[str, Any]:
    content = result.content if isinstance(result.content, str) else _content(result.content)
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": content}


def _assistant(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return an assistant's message.

    Text beside tool calls goes to the tool plan: the API refuses it as content ("text content is not allowed when
    tool_calls are provided"), and the plan is where its own models put what they say before they call.
    """
    calls = [block for block in blocks if isinstance(block, ToolUse)]
    plan: list[str] = []
    content: list[Block] = []
    for block in blocks:
        match block:
            case Thinking() if PLAN in block.extra:
                plan.append(block.thinking)
            case Text() if calls:
                plan.append(block.text)
            case ToolUse() | ToolResult():
                pass
            case _:
                content.append(block)
    message: dict[str, Any] = {"role": "assistant"}
    if content:
        message["content"] = _content(content)
    if plan:
        message["tool_plan"] = "".join(plan)
    if calls:
        message["tool_calls"] = [_tool_call(call) for call in calls]
    if citations := list(_citations(blocks)):
        message["citations"] = citations
    return message


def _citations(blocks: Iterable[Block]) -> Iterable[Raw]:
    for block in blocks:
        if CITATIONS in block.extra:
            yield from msgspec.json.decode(block.extra[CITATIONS], type=list[Raw])


def _tool_call(call: ToolUse) -> dict[str, Any]:
    arguments = bytes(call.input).decode()
    if MALFORMED in call.extra:
        arguments = msgspec.json.decode(call.extra[MALFORMED], type=str)
    extra = {name: raw for name, raw in call.extra.items() if name != MALFORMED}
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function} | extra


def _content(blocks: Sequence[Block]) -> str | list[dict[str, Any] | Raw]:
    """Return text as one string, and anything else as a list of parts."""
    texts = [block.text for block in blocks if isinstance(block, Text) and not _own_keys(block)]
    # Citations count in the part that they are of, so that parts must stay apart.
    cited = len(texts) > 1 and any(CITATIONS in block.extra for block in blocks)
    if len(texts) == len(blocks) and not cited:
        return "".join(texts)
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return {"type": "text", "text": block.text} | _own_keys(block)
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking} | _own_keys(block)
        case Document():
            media_type = block.source.media_type.partition(";")[0].strip().lower()
            url = f"data:{media_type};base64,{block.source.data}"
            return {"type": "image_url", "image_url": {"url": url}} | _own_keys(block)
        case Native():
            return block.block
        case ToolUse() | ToolResult():
            raise AssertionError(f"{type(block).__name__} is not content")


def _own_keys(block: Block) -> dict[str, Raw]:
    """Return the keys that stood beside a block's own on the wire."""
    return {name: raw for name, raw in block.extra.items() if name != CITATIONS}


# The body around them


def frame_body(adapter: str, given: FrameInput) -> Frame:
    """Return the body around its messages: model, stream, tools, tool_choice, parameters by name.

    Raises:
        UnsupportedContentError: search, or a tool choice that the wire does not have.
        ContentError: a parameter would overwrite a part of the body, or is not what it should be.
    """
    check_parameters(given.params, _RESERVED)
    losses: list[LossEntry] = []
    if given.search:
        if given.on_loss != "report":
            raise UnsupportedContentError(
                f"{adapter} cannot search: turn the option search off, or ask another provider",
                provider=adapter,
                block="search",
            )
        losses.append(_loss("dropped", "search", "the wire has none"))
    choice, tools = _tool_choice(adapter, given, losses)
    before: dict[str, Any] = {
        "model": given.model,
        "stream": given.stream,
        "tools": [_tool(tool) for tool in tools],
        **({} if choice is None else {"tool_choice": choice}),
        **_parameters(given),
    }
    return frame(before, "messages", {}, losses)


def _parameters(given: FrameInput) -> dict[str, Any]:
    """Return the parameters under the names of the wire, sorted: the order in which they were given says nothing."""
    params = {
        name: plain_json(value, f"params.{name}", ContentError)
        for name, value in given.params.items()
        if name != "tool_choice"
    }
    if "top_p" in params:
        if "p" in params:
            raise ContentError("params.p: top_p is the same: give one of them", field="params.p")
        params["p"] = params.pop("top_p")
    return dict(sorted(params.items()))


def _tool(tool: Tool) -> dict[str, Any]:
    description = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name, **description, "parameters": tool.input_schema}}


def _tool_choice(adapter: str, given: FrameInput, losses: list[LossEntry]) -> tuple[str | None, Sequence[Tool]]:
    """Return the choice as the wire has it, and the tools to offer.

    Without tools there is nothing to choose. A window's tool mode that is no choice of this wire is left out and
    reported. The wire cannot name a tool: where losses are allowed, that tool alone is offered, and a call required.
    """
    chosen: object = given.params.get("tool_choice", given.tool_mode)
    word = chosen.lower() if isinstance(chosen, str) else None
    if chosen is None or word == "auto" or (word == "none" and not given.tools):
        return None, given.tools
    if not given.tools:
        losses.append(_loss("dropped", "parameter", f"tool_choice {chosen!r}: no tools are offered"))
        return None, given.tools
    if word in _TOOL_CHOICES:
        return _TOOL_CHOICES[word], given.tools
    named = [tool for tool in given.tools if tool.name == chosen]
    if not named and "tool_choice" in given.params:
        raise ContentError(
            f"params.tool_choice: {chosen!r} is none of auto, none, required, and no tool that is offered",
            field="params.tool_choice",
        )
    if not named:
        why = f"tool_mode {chosen!r}: it is neither a choice of the wire nor a tool that is offered"
        losses.append(_loss("dropped", "parameter", why))
        return None, given.tools
    if given.on_loss != "report":
        raise UnsupportedContentError(
            f"{adapter} cannot be told to call {chosen!r}: use tool_choice 'required', offer that tool alone, "
            "or allow losses with on_loss='report'",
            provider=adapter,
            block="tool_choice",
        )
    why = f"tool_choice {chosen!r}: it is the only tool that is offered, and a call is required"
    losses.append(_loss("downgraded", "parameter", why))
    return "REQUIRED", named


def _loss(kind: LossKind, block: str, why: str) -> LossEntry:
    return LossEntry(kind=kind, turn="", block=block, why=why)
