"""Which tool a model is to call: one reading for all wires of a call's `tool_choice` and a window's `tool_mode`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

from msgspec import Struct

from turnlog.errors import ContentError
from turnlog.model.plain import plain_json
from turnlog.providers.interface import FrameInput

Mode = Literal["auto", "none", "required", "tool", "own"]
"""What a model may do: as it likes, no call, some call, a call of one tool, or what a record of the wire's own says."""

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_NAME_LISTS = ("allowedFunctionNames", "allowed_function_names")
"""Keys of Gemini's record with the names of tools."""

_EXPECTED = "auto, none, required, the name of a tool that is offered, or a record of the wire"


class ToolChoice(Struct, frozen=True, kw_only=True):
    """A choice that the wire is to be told.

    Attributes:
        mode: what the model may do.
        name: the tool, where the mode is `tool`.
        record: the record, where the mode is `own`.
    """

    mode: Mode
    name: str = ""
    record: dict[str, Any] | None = None


def tool_choice(given: FrameInput, *, search_tool: str = "") -> ToolChoice | None:
    """Return the choice of a request, None where the wire is to be told nothing.

    The parameter `tool_choice` goes before the window's `tool_mode`. That one is inherited, and may have been meant for
    another provider: what of it means nothing here is left out, and reported. Words are read in any case, and `any` is
    Anthropic's and Gemini's word for `required`.

    Args:
        given: what the request is made of.
        search_tool: what the wire calls its search, where that can be chosen as a tool.

    Raises:
        ContentError: the parameter is no choice, or names a tool that is not offered, be it in a record.
        UnsupportedContentError: no tool is offered and a call is asked for, or the window's mode means nothing here,
            and that may not be lost.
    """
    asked = given.params.get("tool_choice") is not None
    chosen: object = given.params["tool_choice"] if asked else given.tool_mode
    if chosen is None:
        return None
    mode = _MODES.get(chosen.lower()) if isinstance(chosen, str) else None
    if not (given.tools or given.search):
        if mode not in ("auto", "none"):
            why = f"{_name(asked)} {chosen!r}: no tools are offered"
            given.losses.lose("dropped", "tool_choice", why, harmless=not asked)
        return None
    if mode is not None:
        return ToolChoice(mode=mode)
    offered = {tool.name for tool in given.tools}
    if given.search and search_tool:
        offered.add(search_tool)
    if isinstance(chosen, str):
        if chosen in offered:
            return ToolChoice(mode="tool", name=chosen)
        if asked:
            raise ContentError(f"params.tool_choice: expected {_EXPECTED}, got {chosen!r}", field="params.tool_choice")
        why = f"{_name(asked)} {chosen!r}: it is neither a choice of the wire nor a tool that is offered"
        given.losses.lose("dropped", "tool_choice", why, harmless=True)
        return None
    record: object = plain_json(chosen, "params.tool_choice", ContentError)
    if not isinstance(record, dict):
        raise ContentError(
            f"params.tool_choice: expected {_EXPECTED}, got {type(chosen).__name__}", field="params.tool_choice"
        )
    found = cast("dict[str, Any]", record)
    missing = [name for name in _names_in(found, search_tool) if name not in offered]
    if missing:
        raise ContentError(
            f"params.tool_choice: {missing[0]!r} is no tool that is offered: offer it, or choose another",
            field="params.tool_choice",
        )
    return ToolChoice(mode="own", record=found)


def unforced(choice: object) -> object:
    """Return what a choice comes to once the call that it asks for was made: it forces none any more.

    A record keeps what else it says: which tools may be called, and whether several at once.
    """
    match cast("Any", choice):
        case str(choice):
            return choice if _MODES.get(choice.lower()) in ("auto", "none") else "auto"
        case {"type": "auto" | "none"} | {"mode": "AUTO" | "NONE" | "VALIDATED"} | {"auto": _}:
            return choice
        case {"type": "any" | "tool", **rest}:  # Anthropic
            return {"type": "auto", **{name: value for name, value in rest.items() if name != "name"}}
        case {"type": "allowed_tools", "allowed_tools": {**allowed}, **rest}:  # Chat Completions
            return {"type": "allowed_tools", "allowed_tools": {**allowed, "mode": "auto"}, **rest}
        case {"type": "allowed_tools", **rest}:  # Responses
            return {"type": "allowed_tools", **rest, "mode": "auto"}
        case {"mode": "ANY", **rest}:  # Gemini: with AUTO there are no names
            return {"mode": "VALIDATED" if any(map(rest.get, _NAME_LISTS)) else "AUTO", **rest}
        case {"any": _} | {"tool": _}:  # Converse
            return {"auto": {}}
        case _:
            return "auto"


def _names_in(record: dict[str, Any], search_tool: str) -> Iterator[str]:
    """Return the tools that a record names, at any depth: each wire has its own place for them, and some have lists."""
    if search_tool and record.get("type") == search_tool:
        yield search_tool
    for key, value in record.items():
        if key == "name" and isinstance(value, str):
            yield value
        for item in cast("list[object]", value) if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from _names_in(cast("dict[str, Any]", item), search_tool)
            elif key in _NAME_LISTS and isinstance(item, str):
                yield item


def _name(asked: bool) -> str:
    return "tool_choice" if asked else "tool_mode"
