"""Bodies of requests to the Responses API: all that stands around the input."""

from __future__ import annotations

import re
from typing import Any

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import LossEntry, Tool
from turnlog.model.plain import plain_json
from turnlog.providers.body import check_parameters, frame
from turnlog.providers.interface import Frame, FrameInput
from turnlog.providers.schemas import plain_object

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

_RENAMED = {"max_tokens": "max_output_tokens"}
_MODES = ("auto", "none", "required")
_WITHOUT_REASONING = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-|gpt-5-chat|davinci|babbage)")
"""Models that do not reason. The API refuses to be asked for their encrypted reasoning; it is asked for all others'."""


def frame_of(given: FrameInput, adapter: str) -> Frame:
    """Return the body around its input.

    `store` and `include` have defaults that parameters replace: nothing is stored, and reasoning comes encrypted, so
    that it can go back.

    Raises:
        UnsupportedContentError: stop sequences, which the API does not have, unless losses are to be reported.
        ContentError: a parameter would change what the window or the call decides, or chooses a tool that there is not.
    """
    check_parameters(given.params, RESERVED)
    losses: list[LossEntry] = []
    before: dict[str, Any] = {"model": given.model, "stream": given.stream, "store": False}
    if not _WITHOUT_REASONING.match(given.model.rpartition("/")[2]):
        before["include"] = ["reasoning.encrypted_content"]
    tools = [_tool(tool, losses) for tool in given.tools]
    before["tools"] = [*tools, {"type": "web_search"}] if given.search else tools
    choice = _tool_choice(given, adapter, losses)
    if choice is not None:
        before["tool_choice"] = choice
    for name, value in given.params.items():
        if name == "stop_sequences":
            if value:
                losses.append(_lost(given, adapter, f"stop_sequences {value!r}: the API has none"))
        elif name != "tool_choice":
            before[_RENAMED.get(name, name)] = plain_json(value, f"params.{name}", ContentError)
    return frame(before, "input", {}, losses)


def _tool(tool: Tool, losses: list[LossEntry]) -> dict[str, Any]:
    schema = bytes(tool.input_schema).strip()
    parameters, removed = plain_object(schema if schema[:1] == b"{" else b"{}")  # `true` is a schema too
    if removed:
        why = f"the schema of {tool.name!r} without the keywords {', '.join(removed)}"
        losses.append(LossEntry(kind="downgraded", turn="", block="tool", why=why))
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": False,
    }


def _tool_choice(given: FrameInput, adapter: str, losses: list[LossEntry]) -> object:
    """Return the tool choice, or None for none. The window's is inherited, and may be of another provider.

    Raises:
        ContentError: the parameter names a tool that is not offered.
    """
    asked = "tool_choice" in given.params
    chosen: object = given.params["tool_choice"] if asked else given.tool_mode
    if chosen is None or not (given.tools or given.search):
        if chosen not in (None, "auto", "none"):
            losses.append(_lost(given, adapter, f"tool_choice {chosen!r}: no tools are offered", harmless=True))
        return None
    if chosen in _MODES:
        return chosen
    if not isinstance(chosen, str):
        return plain_json(chosen, "params.tool_choice", ContentError)
    if any(tool.name == chosen for tool in given.tools):
        return {"type": "function", "name": chosen}
    if asked:
        raise ContentError(
            f"params.tool_choice: {chosen!r} is none of {', '.join(_MODES)}, and no tool that is offered",
            field="params.tool_choice",
        )
    why = f"tool_mode {chosen!r}: it is neither a choice of the wire nor a tool that is offered"
    losses.append(_lost(given, adapter, why, harmless=True))
    return None


def _lost(given: FrameInput, adapter: str, why: str, *, harmless: bool = False) -> LossEntry:
    """Return the loss of a parameter, where losses of its kind are to be reported.

    Raises:
        UnsupportedContentError: they are not.
    """
    if given.on_loss == "error" or not (harmless or given.on_loss):
        raise UnsupportedContentError(
            f"{adapter} cannot carry {why}: leave it out, or allow losses with on_loss='report'",
            provider=adapter,
            block="parameter",
        )
    return LossEntry(kind="dropped", turn="", block="parameter", why=why)
