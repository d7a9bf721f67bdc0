"""Tools as servers list them."""

import json

import msgspec
import pytest
from msgspec import Raw

from turnlog import ContentError
from turnlog.model import Tool, parse_tools, tools_bytes

LISTED = """[
  {"name": "files___read", "description": "Read a file.", "title": "Read",
   "inputSchema": {"type": "object", "properties": {"n": {"maximum": 1.50}}},
   "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
  {"name": "clock___now"}
]"""


def test_tools_are_read_as_a_server_lists_them() -> None:
    """Name, description and schemas are read; schemas stay JSON text as they were spelled."""
    read, now = parse_tools(LISTED)
    assert (read.name, read.description, read.title) == ("files___read", "Read a file.", "Read")
    assert bytes(read.input_schema) == b'{"type":"object","properties":{"n":{"maximum":1.50}}}'
    assert bytes(read.output_schema) == b'{"type":"object"}'
    assert now == Tool(name="clock___now")
    assert (bytes(now.output_schema), bytes(now.annotations)) == (b"", b"")
    assert parse_tools(tools_bytes([read, now])) == (read, now)
    assert tools_bytes([Tool(name="f")]) == tools_bytes(parse_tools('[{"name":"f"}]')) == b'[{"name":"f"}]'


def test_tool_without_a_schema_takes_an_empty_object() -> None:
    """A tool that lists no schema has one without properties."""
    [tool] = parse_tools('[{"name":"f"}]')
    assert msgspec.json.decode(tool.input_schema) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("name", ["input_schema", "inputSchema"])
def test_either_spelling_of_the_schema_is_read(name: str) -> None:
    """The Messages API writes `input_schema`, MCP `inputSchema`: both are the schema."""
    [tool] = parse_tools(f'[{{"name":"f","{name}":{{"type":"object","x":1}}}}]')
    assert msgspec.json.decode(tool.input_schema) == {"type": "object", "x": 1}


def test_property_called_like_the_schema_stays() -> None:
    """A property named `input_schema` inside a schema is not taken for one."""
    schema = {"type": "object", "properties": {"input_schema": {"type": "string"}}}
    [tool] = parse_tools(json.dumps([{"name": "f", "inputSchema": schema}]))
    assert msgspec.json.decode(tool.input_schema) == schema
    [tool] = parse_tools(json.dumps([{"name": "f", "input_schema": schema}]))
    assert msgspec.json.decode(tool.input_schema) == schema


def test_tools_come_back_from_their_bytes() -> None:
    """A listing written and read again is the same, and written again the same bytes."""
    tools = parse_tools(LISTED)
    assert parse_tools(tools_bytes(tools)) == tools
    assert tools_bytes(parse_tools(tools_bytes(tools))) == tools_bytes(tools)
    assert b'"maximum":1.50' in tools_bytes(tools)


def test_no_tools_are_an_empty_list() -> None:
    """A listing may be empty."""
    assert parse_tools("[]") == ()
    assert tools_bytes(()) == b"[]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "tools: "),
        ("{}", "tools: expected 'array', got 'object'"),
        ('[{"description":"d"}]', "missing required field 'name'"),
        ('[{"input_schema":{}}]', "missing required field 'name'"),
        ('[{"name":1}]', "expected 'str', got 'int'"),
        ('["input_schema": 1]', "tools: "),
        ('[1, {"input_schema": 2}]', "expected 'object', got 'int'"),
        ('[{"name":"a"},{"name":"b"},{"name":"a"}]', "tools: two tools are called 'a'"),
    ],
)
def test_what_is_no_listing_is_refused(text: str, message: str) -> None:
    """Tools that cannot be read, or that share a name, raise, and the message says where or why."""
    with pytest.raises(ContentError) as caught:
        parse_tools(text)
    assert message in str(caught.value)
    assert caught.value.field.startswith("tools")


def test_description_is_kept_character_by_character() -> None:
    """Descriptions are text of any script."""
    [tool] = parse_tools(msgspec.json.encode([{"name": "f", "description": "crème\n茶 \u2028 🌿"}]))
    assert tool.description == "crème\n茶 \u2028 🌿"


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (Tool(name="f", annotations=Raw(b"")), "annotations: not valid JSON"),
        (Tool(name="f", input_schema=Raw(b'{},"name":"g"')), "input_schema: not valid JSON"),
        (Tool(name="f", input_schema=Raw(b'{}},{"name":"g"')), "input_schema: not valid JSON"),
        (Tool(name="f", output_schema=Raw(b'{"a"')), "output_schema: not valid JSON"),
        (Tool(name=5), "name: expected 'str', got 'int'"),  # type: ignore[arg-type]
        (Tool(name="f", title={1}), "title: set is not JSON"),  # type: ignore[arg-type]
        (Tool(name="\ud800"), "name: not valid UTF-8"),
    ],
    ids=range(7),
)
def test_tool_with_raw_text_that_is_no_value_is_not_listed(tool: Tool, message: str) -> None:
    """It would be another key of the tool, or another tool; a listing that nobody can read is for ever."""
    with pytest.raises(ContentError, match=rf"^tools\[1\]\.{message}"):
        tools_bytes([Tool(name="a"), tool])


def test_schema_with_whitespace_is_listed_as_it_is() -> None:
    """What reads back otherwise may still be right."""
    tool = Tool(name="f", input_schema=Raw(b'{ "type": "object" }'))
    assert tools_bytes([tool]) == b'[{"name":"f","inputSchema":{ "type": "object" }}]'
    assert tools_bytes([Tool(name="f", input_schema={"type": "object"})]) == (  # type: ignore[arg-type]
        b'[{"name":"f","inputSchema":{"type":"object"}}]'
    )
