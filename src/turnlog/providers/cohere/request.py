"""From carried messages to the body of a request to Cohere's v2 chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import (
    ARGUMENTS,
    MALFORMED,
    Block,
    Document,
    Native,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
    arguments_text,
)
from turnlog.model.plain import plain_json
from turnlog.providers.body import encode, frame
from turnlog.providers.carriage import Carried
from turnlog.providers.extras import (
    CALL_TYPE,
    MESSAGE,
    is_only_fields,
    leave_out,
    native_block,
    provider_fields,
    with_fields,
)
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.raw_json import fields_of, integer_of, items_of, raw
from turnlog.providers.tool_choice import tool_choice

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The images that Cohere's models see (docs.cohere.com/docs/image-inputs)."""

PLAN = "tool_plan"
"""The extra key of a thinking block that says that it is the plan behind the tool calls of a message."""

CITATIONS = "citations"
"""The extra key of a block with the citations in it, a list of objects as the wire has them."""

FUNCTION = "function"
"""The extra key of a tool call with the further fields of its function."""

_INDEX = "content_index"

_NOT_BESIDE = (CITATIONS, MESSAGE)
"""Extra keys that are of the message, and do not go back beside a block. Of its further fields the API takes none."""

RESERVED = ("model", "stream", "tools", "messages")

# Messages


def encode_message(carried: Carried) -> list[bytes]:
    """Return a carried message as messages of the wire: each tool result is one of its own.

    There are none where nothing of it has a place there.
    """
    if carried.role == "assistant":
        blocks = [block for block in carried.blocks if not is_only_fields(block)]
        return [encode(_assistant(blocks))] if blocks else []
    messages = [encode(_tool_message(block)) for block in carried.blocks if isinstance(block, ToolResult)]
    rest = [block for block in carried.blocks if not isinstance(block, ToolResult)]
    if rest:
        messages.append(encode({"role": carried.role, "content": _content(rest)}))
    return messages


def _tool_message(result: ToolResult) -> dict[str, Any]:
    content = result.content if isinstance(result.content, str) else _content(result.content)
    leave_out(provider_fields(result, CALL_TYPE, MESSAGE))
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
                leave_out(provider_fields(block, MESSAGE))  # citations too: they count in the part that it was
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
    if citations := list(_citations(blocks, content)):
        message["citations"] = citations
    return message


def _citations(blocks: Sequence[Block], content: Sequence[Block]) -> Iterator[Raw]:
    """Iterate over the citations of a message. Those of its content name the part that they are of as it stands now."""
    cited = [block for block in blocks if CITATIONS in block.extra]
    places = {id(block): place for place, block in enumerate(content)} if cited else {}
    for block in cited:
        place = places.get(id(block))
        for citation in items_of(block.extra.get(CITATIONS)) or ():
            if place is not None:
                yield _of_part(citation, place)
            elif not isinstance(block, Text):
                yield citation


def _of_part(citation: Raw, place: int) -> Raw:
    fields = fields_of(citation) or {}
    if integer_of(fields.get(_INDEX)) in (None, place):
        return citation
    return raw(fields | {_INDEX: raw(place)})


def _tool_call(call: ToolUse) -> dict[str, Any]:
    said = {"name": call.name, "arguments": arguments_text(call)}
    function = with_fields(said, fields_of(call.extra.get(FUNCTION)) or {})
    beside = provider_fields(call, *_NOT_BESIDE, FUNCTION, ARGUMENTS, MALFORMED)
    return with_fields({"id": call.id, "type": "function", "function": function}, beside)


def _content(blocks: Sequence[Block]) -> str | list[dict[str, Any] | Raw]:
    """Return text as one string, and anything else as a list of parts."""
    texts = [block.text for block in blocks if isinstance(block, Text) and not provider_fields(block, *_NOT_BESIDE)]
    # Citations count in the part that they are of, so that parts must stay apart.
    cited = len(texts) > 1 and any(CITATIONS in block.extra for block in blocks)
    if len(texts) == len(blocks) and not cited:
        return "".join(texts)
    return [_part(block) for block in blocks]


def _part(block: Block) -> dict[str, Any] | Raw:
    match block:
        case Text():
            return with_fields({"type": "text", "text": block.text}, provider_fields(block, *_NOT_BESIDE))
        case Thinking():
            return with_fields({"type": "thinking", "thinking": block.thinking}, provider_fields(block, *_NOT_BESIDE))
        case Document():
            media_type = block.source.media_type.partition(";")[0].strip().lower()
            url = f"data:{media_type};base64,{block.source.data}"
            image = {"type": "image_url", "image_url": {"url": url}}
            return with_fields(image, provider_fields(block, *_NOT_BESIDE))
        case Native():
            return native_block(block, *_NOT_BESIDE)
        case ToolUse() | ToolResult():
            raise AssertionError(f"{type(block).__name__} is not content")


# The body around them


def frame_body(given: FrameInput) -> Frame:
    """Return the body around its messages: model, stream, tools, tool_choice, parameters by name.

    Raises:
        UnsupportedContentError: a tool choice that the wire does not have.
        ContentError: a parameter would overwrite a part of the body, or is not what it should be.
    """
    choice, tools = _tool_choice(given)
    before: dict[str, Any] = {
        "model": given.model,
        "stream": given.stream,
        "tools": [_tool(tool) for tool in tools],
        **choice,
        **_parameters(given),
    }
    return frame(before, "messages", {})


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


def _tool_choice(given: FrameInput) -> tuple[dict[str, str], Sequence[Tool]]:
    """Return the choice as the wire has it, and the tools to offer.

    The wire cannot name a tool: that tool alone is offered, where the loss of others is allowed, and a call required.
    """
    choice = tool_choice(given)
    if choice is None or choice.mode == "auto":
        return {}, given.tools
    if choice.mode == "own":
        raise ContentError(
            "params.tool_choice: the wire has no records for it: expected auto, none, required, or the name of a tool "
            "that is offered",
            field="params.tool_choice",
        )
    if choice.mode != "tool":
        return {"tool_choice": choice.mode.upper()}, given.tools
    if len(given.tools) > 1:
        why = f"tool_choice {choice.name!r} as the only tool that is offered, with a call required"
        given.losses.lose("downgraded", "tool_choice", why, advice="offer that tool alone, use 'required'")
    return {"tool_choice": "REQUIRED"}, [tool for tool in given.tools if tool.name == choice.name]
