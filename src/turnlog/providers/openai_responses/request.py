"""Bodies of requests to the Responses API: all that stands around the input. `items` has what stands in it."""

from __future__ import annotations

import re
from typing import Any

from turnlog.errors import ContentError
from turnlog.model import Tool
from turnlog.model.plain import plain_json
from turnlog.providers.body import frame, given_twice
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.losses import Losses
from turnlog.providers.openai_responses.items import encode_message
from turnlog.providers.schemas import plain_object
from turnlog.providers.tool_choice import tool_choice

__all__ = ["encode_message", "frame_body"]

RESERVED = frozenset(
    {
        "conversation",
        "input",
        "instructions",
        "messages",
        "model",
        "previous_response_id",
        "prompt",
        "stream",
        "system",
        "tools",
    }
)
"""Parameters that would change what the model sees into something else than the context window, or are the call's."""

WEB_SEARCH = "web_search"
"""The type of the search tool, which the provider runs itself. It has no name."""

_RENAMED = {"max_tokens": "max_output_tokens"}
_WITHOUT_REASONING = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-|gpt-5-chat|davinci|babbage)")
"""Models that do not reason. The API refuses to be asked for their encrypted reasoning; it is asked for all others'."""


def frame_body(given: FrameInput) -> Frame:
    """Return the body around its input.

    `store` and `include` have defaults that parameters replace: nothing is stored, and reasoning comes encrypted, so
    that it can go back.

    Raises:
        UnsupportedContentError: stop sequences, which the API does not have, unless losses are to be reported.
        ContentError: a parameter would change what the window or the call decides, or chooses a tool that there is not.
    """
    before: dict[str, Any] = {"model": given.model, "stream": given.stream, "store": False}
    if not _WITHOUT_REASONING.match(given.model.rpartition("/")[2]):
        before["include"] = ["reasoning.encrypted_content"]
    tools = [_tool(tool, given.losses) for tool in given.tools]
    before["tools"] = [*tools, {"type": WEB_SEARCH}] if given.search else tools
    before |= _tool_choice(given)
    for name, value in given.params.items():
        if name == "stop_sequences":
            if value:
                given.losses.lose("dropped", "parameter", f"stop_sequences {value!r}: the API has none")
        elif name != "tool_choice":
            wire_name = _RENAMED.get(name, name)
            if wire_name != name and wire_name in given.params:
                raise given_twice(name, wire_name)
            before[wire_name] = plain_json(value, f"params.{name}", ContentError)
    return frame(before, "input", {})


def _tool(tool: Tool, losses: Losses) -> dict[str, Any]:
    schema = bytes(tool.input_schema).strip()
    parameters, removed = plain_object(schema if schema[:1] == b"{" else b"{}")  # `true` is a schema too
    losses.lose_keywords(tool, removed)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": False,
    }


def _tool_choice(given: FrameInput) -> dict[str, Any]:
    choice = tool_choice(given, search_tool=WEB_SEARCH)
    if choice is None:
        return {}
    if choice.mode == "tool":
        is_function = any(tool.name == choice.name for tool in given.tools)
        return {"tool_choice": {"type": "function", "name": choice.name} if is_function else {"type": choice.name}}
    return {"tool_choice": choice.record if choice.mode == "own" else choice.mode}
