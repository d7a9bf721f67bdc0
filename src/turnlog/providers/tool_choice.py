"""Which tool a model is to call: one reading for all wires of a call's `tool_choice` and a window's `tool_mode`."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from turnlog.errors import ContentError
from turnlog.model.plain import plain_json
from turnlog.providers.interface import FrameInput

Mode = Literal["auto", "none", "required", "tool", "own"]
"""What a model may do: as it likes, no call, some call, a call of one tool, or what a record of the wire's own says."""

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
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


def tool_choice(given: FrameInput) -> ToolChoice | None:
    """Return the choice of a request, None where the wire is to be told nothing.

    The parameter `tool_choice` goes before the window's `tool_mode`. That one is inherited, and may have been meant for
    another provider: what of it means nothing here is left out, and reported. Words are read in any case, and `any` is
    Anthropic's and Gemini's word for `required`.

    Raises:
        ContentError: the parameter is no choice, or names a tool that is not offered.
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
    if isinstance(chosen, str):
        if any(tool.name == chosen for tool in given.tools):
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
    return ToolChoice(mode="own", record=cast("dict[str, Any]", record))


def _name(asked: bool) -> str:
    return "tool_choice" if asked else "tool_mode"
