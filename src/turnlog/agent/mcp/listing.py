"""What MCP servers list and answer in parts, each checked on its own: other threads go on meanwhile.

Source: Model Context Protocol 2025-11-25, Server Features. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.types import (
    BlobResourceContents,
    Prompt,
    PromptMessage,
    Resource,
    ResourceTemplate,
    TextResourceContents,
    Tool,
)
from msgspec import Raw, Struct
from pydantic import TypeAdapter, ValidationError

from turnlog.agent.half_pairs import any_json
from turnlog.agent.mcp.content import raw_json
from turnlog.agent.mcp.signals import MisbehaviourError
from turnlog.model.pieces import PIECE
from turnlog.model.tools import ABSENT

_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    "contents": TypeAdapter(TextResourceContents | BlobResourceContents),
    "messages": TypeAdapter(PromptMessage),
    "prompts": TypeAdapter(Prompt),
    "resourceTemplates": TypeAdapter(ResourceTemplate),
    "resources": TypeAdapter(Resource),
    "tools": TypeAdapter(Tool),
}
_fields = msgspec.json.Decoder(dict[str, Raw])


class ListedTool(Struct, frozen=True, kw_only=True):
    """A tool as a server lists it, with its schemas and annotations as JSON text.

    Attributes:
        name: the server's name for it.
        needs_task: whether it can be called as a task only (MCP 2025-11-25, Tasks, Tool-Level Negotiation).
        bad_header: why an annotation for a header in its schema is none, empty where all are; such a tool is not to be
            offered, of a server of 2026-07-28.
    """

    name: str
    title: str | None
    description: str
    input_schema: Raw
    output_schema: Raw
    annotations: Raw
    needs_task: bool
    bad_header: str


def listed(kind: str, parts: Sequence[object]) -> list[ListedTool] | list[dict[str, Any]]:
    """Return the parts of a result as the server wrote them, and checked: tools, or what else it lists.

    Raises:
        MisbehaviourError: one is not as the protocol has it, or is nested too deeply.
    """
    found: list[Any] = []
    for index, part in enumerate(parts):
        try:
            fields = _read(part)
            _ADAPTERS[kind].validate_python(_short(fields), by_name=False)
            found.append(_tool(fields) if kind == "tools" else fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, (kind, index, *first["loc"])))
            raise MisbehaviourError(
                f"does not answer as the protocol has it ({place}: {first['msg'].lower()})"
            ) from error
        except (ValueError, RecursionError) as error:
            raise MisbehaviourError(f"lists what cannot be read ({kind}.{index}: {error})") from error
    return found


def _read(part: object) -> Any:
    """Return the keys and values of a part. A value that is very long, and no text, is JSON text."""
    if not isinstance(part, Raw):
        return part
    if len(memoryview(part)) <= PIECE:
        return any_json(bytes(part))
    fields = _fields.decode(part)
    return {
        name: value if len(memoryview(value)) > PIECE and bytes(value)[:1] in b"{[" else any_json(bytes(value))
        for name, value in fields.items()
    }


def _short(fields: Any) -> Any:
    """Return values with an empty one for each that is JSON text, for checks that do not look into it."""
    if not isinstance(fields, dict):
        return fields
    named = cast("dict[str, object]", fields)
    return {name: _empty(value) if isinstance(value, Raw) else value for name, value in named.items()}


def _empty(value: Raw) -> list[object] | dict[str, object]:
    return [] if bytes(value)[:1] == b"[" else {}


def _tool(fields: dict[str, Any]) -> ListedTool:
    execution = fields.get("execution")
    raw = {name: _text(fields.get(name)) for name in ("inputSchema", "outputSchema", "annotations")}
    schema = raw["inputSchema"]
    marked = b"x-mcp-header" in bytes(schema)
    return ListedTool(
        name=fields["name"],
        title=fields.get("title"),
        description=fields.get("description") or "",
        input_schema=schema,
        output_schema=raw["outputSchema"],
        annotations=raw["annotations"],
        needs_task=isinstance(execution, dict)
        and cast("dict[str, object]", execution).get("taskSupport") == "required",
        bad_header=find_invalid_x_mcp_header(any_json(bytes(schema))) or "" if marked else "",
    )


def _text(value: object) -> Raw:
    """Return a value as JSON text without blanks, no text for none."""
    if value is None:
        return ABSENT
    if not isinstance(value, Raw):
        return raw_json(value)
    return Raw(msgspec.json.format(bytes(value).decode(errors="replace"), indent=-1).encode())
