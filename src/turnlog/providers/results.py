"""Tool results whose text says that they are errors, because the wire cannot, or wants them to have one."""

from __future__ import annotations

import msgspec

from turnlog.model import Text, ToolResult


def error_in_text(result: ToolResult) -> ToolResult:
    """Return a result whose text begins with the word error, in any case; unchanged where it does so already."""
    if isinstance(result.content, str):
        return msgspec.structs.replace(result, content=_said(result.content))
    place, text = next(
        ((place, block) for place, block in enumerate(result.content) if isinstance(block, Text)), (0, None)
    )
    if text is None:
        return msgspec.structs.replace(result, content=[Text(text=_said("")), *result.content])
    said = msgspec.structs.replace(text, text=_said(text.text))
    return msgspec.structs.replace(result, content=[*result.content[:place], said, *result.content[place + 1 :]])


def _said(text: str) -> str:
    if text.lstrip().lower().startswith("error"):
        return text
    return f"Error: {text}" if text else "Error"
