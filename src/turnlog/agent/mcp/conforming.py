"""Whether what an MCP server answers is as it says of the tool that it is.

Source: Model Context Protocol 2025-11-25, Server Features, Tools, "Output Schema": clients should check that. What is
otherwise is given to the model all the same, for the tool did its work, with a line that tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from turnlog.agent.half_pairs import any_json
from turnlog.agent.mcp.content import STRUCTURED, outcome_of
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Text
from turnlog.model.pieces import PIECE

SCHEMA_BYTES_MAX = 64 * 1024
"""A larger schema is not checked by, and no structured content of more than 256 KiB is."""

_CHARACTERS_MAX = 500


def outcome_by(result: Mapping[str, object], schema: Raw) -> ToolOutcome:
    """Return the outcome that a result tells of, and behind it how it is not as the tool's output schema has it.

    Raises:
        ValueError: the result cannot be read; see `outcome_of`.
    """
    outcome = outcome_of(result)
    otherwise = told_otherwise(result, schema)
    if otherwise is None:
        return outcome
    return msgspec.structs.replace(outcome, content=(*outcome.content, Text(text=otherwise)))


def told_otherwise(result: Mapping[str, object], schema: Raw) -> str | None:
    """Return a line that tells how the structured content of a result is not as the tool's output schema has it.

    None where it is, and where there is none, no schema, or an error: that needs to follow none.
    """
    structured = result.get(STRUCTURED)
    if structured is None or result.get("isError") is True or not 0 < len(memoryview(schema)) <= SCHEMA_BYTES_MAX:
        return None
    if isinstance(structured, Raw):
        if len(memoryview(structured)) > PIECE:
            return None
        structured = any_json(bytes(structured))
    wanted = any_json(bytes(schema))
    if not isinstance(wanted, dict):
        return None
    from turnlog.agent.output_check import fault_by  # noqa: PLC0415 - slow to import, and most tools have no schema

    fault = fault_by(cast("dict[str, Any]", wanted), structured)
    if fault is None:
        return None
    shown = fault if len(fault) <= _CHARACTERS_MAX else f"{fault[:_CHARACTERS_MAX]}…"
    return f"(the structured content is not as the tool's output schema has it: {shown})"
