"""Tools: what a model is told that it may call."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.json_text import content_error, minify
from turnlog.model.plain import check_text, plain_json
from turnlog.model.shown import shown

TOOLS_MAX = 10_000
"""The most tools that a listing in a log may have."""

_NO_INPUT = Raw(b'{"type":"object","properties":{}}')
ABSENT = Raw(b"")
"""What stands for raw JSON that is not there: it has no text and is left out. Give this very one, or nothing."""


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool, as MCP lists it (Model Context Protocol, `tools/list`), its name as the model sees it: `server___tool`.

    Schemas and annotations are raw JSON text, as the server wrote them but for whitespace; no text where there is none.
    """

    name: str
    description: str = ""
    input_schema: Raw = msgspec.field(name="inputSchema", default=_NO_INPUT)
    output_schema: Raw = msgspec.field(name="outputSchema", default=ABSENT)
    title: str | None = None
    annotations: Raw = ABSENT

    __repr__ = shown


_tool = msgspec.json.Decoder(Tool)
_KINDS = {"name": str, "description": str, "input_schema": Raw, "output_schema": Raw, "annotations": Raw}
_tools = msgspec.json.Decoder(list[Tool])
_encode = msgspec.json.Encoder().encode
_snake_case = re.compile(rb'"input_schema"\s*:')


def parse_tools(text: str | bytes) -> tuple[Tool, ...]:
    """Return the tools of a JSON list as MCP writes it. `input_schema` is accepted for `inputSchema`.

    Raises:
        ContentError: not JSON, or not a list of tools; or two have one name.
    """
    source = minify(text, field="tools")
    if _snake_case.search(source):
        source = _camel_case(source)
    try:
        tools = _tools.decode(source)
    except msgspec.ValidationError as error:
        raise content_error(error, "tools") from error
    _check_names(tools)
    return tuple(tools)


def check_tools(tools: Sequence[Tool]) -> None:
    """Check that tools can be listed in a log.

    Raises:
        ContentError: one is none; there are more than `TOOLS_MAX`; or two have one name.
    """
    for index, tool in enumerate(tools):
        check_tool(tool, f"tools[{index}]")
    if len(tools) > TOOLS_MAX:
        raise ContentError(
            f"tools: {len(tools):,} tools cannot be offered, {TOOLS_MAX:,} can: choose servers, or tools", field="tools"
        )
    _check_names(tools)


def check_tool(tool: object, field: str) -> None:
    """Check that something is a tool, each field of its kind.

    Raises:
        ContentError: it is not.
    """
    if not isinstance(tool, Tool):
        raise ContentError(f"{field}: expected Tool, got {type(tool).__name__}", field=field)
    for name, kind in _KINDS.items():
        given: object = getattr(tool, name)
        if isinstance(given, str):
            check_text(given, f"{field}.{name}", ContentError)
        if not isinstance(given, kind):
            raise ContentError(
                f"{field}.{name}: expected {kind.__name__}, got {type(given).__name__}", field=f"{field}.{name}"
            )


def _check_names(tools: Sequence[Tool]) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise ContentError(f"tools: two tools are called {tool.name!r}", field="tools")
        seen.add(tool.name)


def _camel_case(source: bytes) -> bytes:
    try:
        records = msgspec.json.decode(source, type=list[dict[str, Raw]])
    except msgspec.ValidationError:
        return source
    for record in records:
        if "input_schema" in record and "inputSchema" not in record:
            record["inputSchema"] = record.pop("input_schema")
    return msgspec.json.encode(records)


def tools_bytes(tools: tuple[Tool, ...] | list[Tool]) -> bytes:
    """Return tools as JSON bytes, the payload of a tool listing.

    Raises:
        ContentError: a field of a tool is not JSON, or not of its type; the message names it.
    """
    file = io.BytesIO()  # one at a time: all in one call keep other threads waiting
    for number, tool in enumerate(tools):
        file.write(b"," if number else b"[")
        file.write(_tool_bytes(tool, f"tools[{number}]"))
    file.write(b"]" if tools else b"[]")
    return file.getvalue()


def _tool_bytes(tool: Tool, field: str) -> bytes:
    # What reads back as it was given has nothing in it that raw text went on with. That is cheap.
    with suppress(TypeError, ValueError, OverflowError):
        encoded = _encode(tool)
        if _tool.decode(encoded) == tool:
            return encoded
    plain = {
        name: plain_json(value, f"{field}.{name}", ContentError)
        for name in tool.__struct_fields__
        if (value := getattr(tool, name)) is not ABSENT
    }
    encoded = _encode(msgspec.structs.replace(tool, **plain))
    try:
        _tool.decode(encoded)
    except msgspec.ValidationError as error:
        raise content_error(error, field) from error
    return encoded
