"""What becomes of the result of a tool call: content kinds, structured content, what is malformed or unknown."""

import json
from base64 import b64encode
from typing import Any, cast

import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse
from msgspec import Raw
from tests.agent.servers import odd
from tests.agent.test_mcp import called, document

from turnlog import TurnLog
from turnlog.agent.mcp.content import outcome_of
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.messages import message_of
from turnlog.agent.toolbox import ToolOutcome
from turnlog.model import Document, Native, Source, Text, ToolResult

PNG = b64encode(b"\x89PNG\r\n\x1a\n").decode()


def blocks(*content: object, **result: object) -> list[object]:
    """Return the blocks of a result, those without extra keys by what matters: text, or media type and bytes."""
    outcome = outcome_of({"content": list(content), **result})
    return [block.text if isinstance(block, Text) and not block.extra else block for block in outcome.content]


def native(json: bytes) -> Native:
    """Return a native block of MCP."""
    return Native(provider="mcp", block=Raw(json))


def test_nothing_of_an_odd_result_is_lost() -> None:
    """Unknown and malformed content is kept as it came, behind a line that says so; unknown keys stay with a block."""
    outcome = called(odd("kinds"), "odd___go")
    assert outcome == ToolOutcome(
        content=(
            Text(text="(content of the kind 'hologram', which cannot be shown here)"),
            native(b'{"type":"hologram","depth":1.5,"a":null}'),
            Text(text="(content of the kind 'image' that cannot be read)"),
            native(b'{"type":"image","data":"not base64!","mimeType":"image/png"}'),
            document("image/png", b"hello"),
            Text(text="Resource file:///a/b.csv (text/csv):"),
            document("text/csv", b"a,b\n"),
            Text(
                text="seen",
                extra={"annotations": Raw(b'{"audience":["user"],"priority":0.5}'), "_meta": Raw(b'{"k":1}')},
            ),
            Text(text="own", extra={"source": Raw(b'"this key is one of documents"')}),
            Text(text="(content of the kind 'text' that cannot be read)"),
            native(b'{"type":"text"}'),
            Text(text="(content of no kind)"),
            native(b'"bare"'),
        )
    )
    with TurnLog.open("memory://") as log:
        result = ToolResult(tool_use_id="t", content=list(outcome.content))
        turn = log.add_turn([result])
        [message] = log.context(turn.id).messages
        assert list(message.content) == [result]


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        ([], {"a": 1}, ['{"a":1}']),
        ([], [1, "é"], ['[1,"é"]']),
        ([], None, []),
        (["{\n  \"b\": 2,\n  \"a\": 1\n}"], {"a": 1, "b": 2}, ["{\n  \"b\": 2,\n  \"a\": 1\n}"]),
        (["see below"], {"a": 1}, ["see below", '{"a":1}']),
        (["1"], {"result": 1}, ["1"]),
        (["true"], {"result": 1}, ["true", '{"result":1}']),
        (["hello"], {"result": "hello"}, ["hello"]),
        (["a", "b"], {"result": ["a", "b"]}, ["a", "b"]),
        (["a"], {"result": ["a", "b"]}, ["a", '{"result":["a","b"]}']),
        (['{"a":1}', '{"a":2}'], {"result": [{"a": 1}, {"a": 2}]}, ['{"a":1}', '{"a":2}']),
        (["hello"], {"content": "hello"}, ["hello"]),
        (['[{"a": 1}]'], {"entities": [{"a": 1}]}, ['[{"a": 1}]']),
        (["3"], {"left": 3}, ["3", '{"left":3}']),
        (["1"], {"result": 1, "more": 2}, ["1", '{"result":1,"more":2}']),
        (["[" * 100_000], {"a": 1}, ["[" * 100_000, '{"a":1}']),
    ],
)  # fmt: skip
def test_structured_content_is_there_once(content: list[str], structured: object, expected: list[str]) -> None:
    """As one more text of JSON, unless the content says the same."""
    texts = [{"type": "text", "text": text} for text in content]
    assert blocks(*texts, structuredContent=structured) == expected
    assert blocks(*texts, structuredContent=Raw(json.dumps(structured, indent=1).encode())) == expected


IMAGE = {"type": "image", "data": b64encode(b"\x89PNG" * 1000).decode(), "mimeType": "image/png"}
LOOK = {"type": "text", "text": "Look."}
SHORT = {**IMAGE, "data": "(as in this result)"}


@pytest.mark.parametrize(
    ("content", "structured", "more"),
    [
        ([IMAGE], {"result": {**IMAGE, "annotations": None}}, []),
        ([LOOK, IMAGE], {"result": [LOOK, IMAGE]}, []),
        ([LOOK, IMAGE], {"content": [LOOK, IMAGE]}, []),
        ([IMAGE], {"result": IMAGE, "size": 4000}, [{"result": SHORT, "size": 4000}]),
        ([IMAGE], {"pages": [IMAGE["data"], "aGk="]}, [{"pages": [SHORT["data"], "aGk="]}]),
        (
            [IMAGE],
            {"url": f"data:image/png;base64,{IMAGE['data']}"},
            [{"url": f"data:image/png;base64,{SHORT['data']}"}],
        ),
        ([LOOK], {"pages": [IMAGE["data"]]}, [{"pages": [IMAGE["data"]]}]),
    ],
)
def test_structured_content_does_not_repeat_the_bytes_of_the_content(
    content: list[object], structured: object, more: list[object]
) -> None:
    """An image that is there once is not there a second time as base64, which a model would read digit by digit."""
    found = blocks(*content, structuredContent=structured)
    assert blocks(*content, structuredContent=Raw(json.dumps(structured).encode())) == found
    texts = [block for block in found if isinstance(block, str)]
    assert texts[content.count(LOOK) :] == [json.dumps(value, separators=(",", ":")) for value in more]


def test_structured_content_that_is_nested_too_deeply_is_an_error() -> None:
    """Of the result, and not of the program."""
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        outcome_of({"structuredContent": {"a": deep}})


@pytest.mark.parametrize(
    ("link", "line"),
    [
        ({"uri": "file:///a", "name": "a"}, "Resource link: a <file:///a>"),
        ({"uri": "x://a", "name": "a", "title": "The A"}, "Resource link: The A / a <x://a>"),
        (
            {"uri": "x://a", "name": "a", "mimeType": "a/b", "size": 1234, "description": "Two\nlines."},
            "Resource link: a <x://a> (a/b, 1,234 bytes): Two lines.",
        ),
        ({"uri": "x://a", "name": ["a"], "title": {}, "description": 1}, "Resource link: ['a'] <x://a>: 1"),
    ],
)
def test_a_link_is_one_line(link: dict[str, object], line: str) -> None:
    """With all that tells a model whether to read it."""
    assert blocks({"type": "resource_link", **link}) == [line]


def test_annotations_of_a_resource_stay_with_it() -> None:
    """Those of the content are with the line that names it, those of the resource with its text."""
    resource = {"uri": "x://a", "text": "A", "_meta": {"n": 1}}
    found = blocks({"type": "resource", "resource": resource, "annotations": {"priority": 1}})
    assert found == [
        Text(text="Resource x://a:", extra={"annotations": Raw(b'{"priority":1}')}),
        Text(text="A", extra={"_meta": Raw(b'{"n":1}')}),
    ]


@pytest.mark.parametrize(
    ("resource", "media_type"),
    [
        ({"uri": "file:///a.pdf", "blob": PNG, "mimeType": "image/x-own"}, "image/x-own"),
        ({"uri": "file:///a%20b.pdf?x=1", "blob": PNG}, "application/pdf"),
        ({"uri": "x://a", "blob": PNG}, "image/png"),
        ({"uri": "http://[", "blob": PNG}, "image/png"),
    ],
)
def test_the_media_type_of_a_blob_is_found(resource: dict[str, str], media_type: str) -> None:
    """What the server says, else by the extension of the URI, else by the bytes."""
    line, found = blocks({"type": "resource", "resource": resource})
    assert line == f"Resource {resource['uri']} ({media_type}):"
    assert found == Document(source=Source(media_type=media_type, data=PNG))


@pytest.mark.parametrize(
    "item",
    [
        {"type": "text", "text": None},
        {"type": "text", "text": "x", "$extra": 1},
        {"type": "image", "data": 1, "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://a", "blob": ""}},
        {"type": "image", "data": PNG, "mimeType": "image/png", "source": {}},
        {"type": "resource", "resource": {"text": "without a URI"}},
        {"type": "resource", "resource": {"uri": "x://a"}},
        {"type": "resource", "resource": "x://a"},
        {"type": "resource_link", "name": "without a URI"},
        {"type": ["text"]},
        {},
        None,
        [1],
    ],
)
def test_malformed_content_is_kept_as_it_came(item: object) -> None:
    """Behind a line that says that it cannot be read."""
    line, kept = blocks(item)
    assert str(line).startswith("(content of")
    assert isinstance(kept, Native)
    assert blocks({"type": "text", "text": "x"}, item) == ["x", line, kept]


def test_errors_and_results_without_content() -> None:
    """`isError` is true or it is not; content that is no list is one item."""
    assert outcome_of({"isError": True, "content": [{"type": "text", "text": "no"}]}) == ToolOutcome.error("no")
    assert outcome_of({"isError": "yes"}) == ToolOutcome(content=())
    assert outcome_of({"content": {"type": "text", "text": "x"}}) == ToolOutcome(content=(Text(text="x"),))


ROWS = [{"id": number, "name": f"é {number}", "tags": ["a", 1.5, None]} for number in range(10_000)]


@pytest.mark.parametrize("spelled", [{}, {"indent": 2}, {"ensure_ascii": False, "separators": (",", ":")}])
@pytest.mark.parametrize("secrets", [{}, {"MY_TOKEN": "é 7777"}])
def test_a_long_message_says_what_a_short_one_says(spelled: dict[str, Any], secrets: dict[str, str]) -> None:
    """Long structured content is not taken apart where a text has it too; where a secret may be in it, it is."""
    content = [{"type": "text", "text": json.dumps({"rows": ROWS}, **spelled)}]
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": content, "structuredContent": {"rows": ROWS}, "b": 1}}
    received = message_of(json.dumps(answer, ensure_ascii=False).encode())
    assert isinstance(received, SessionMessage)
    assert isinstance(received.message, JSONRPCResponse)
    result = received.message.result
    assert isinstance(result["structuredContent"], Raw)
    launch = Launch(secrets=secrets)
    told = cast("dict[str, object]", launch.masked(result))
    assert outcome_of(told) == outcome_of(cast("dict[str, object]", launch.masked(answer["result"])))
    assert json.loads(json.dumps({**result, "structuredContent": None})) == {
        **answer["result"],
        "structuredContent": None,
    }


@pytest.mark.parametrize("odd_one", ["NaN", '"\\ud83d"', '"\\x"'])
def test_a_long_message_with_what_is_no_json_is_read_if_it_can_be(odd_one: str) -> None:
    """NaN and half of a pair are; what is no JSON at all is an error."""
    rows = f"[{json.dumps(ROWS)}, {odd_one}]"
    line = f'{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"structuredContent":{{"rows":{rows}}}}}}}'
    received = message_of(line.encode())
    if odd_one == '"\\x"':
        assert isinstance(received, ValueError) or _cannot_be_read(received)
        return
    assert isinstance(received, SessionMessage)
    assert isinstance(received.message, JSONRPCResponse)
    [text] = outcome_of(received.message.result).content
    assert isinstance(text, Text)
    told = "NaN" if odd_one == "NaN" else "\ufffd"
    assert json.loads(text.text, parse_constant=str) == {"rows": [ROWS, told]}


def _cannot_be_read(received: SessionMessage) -> bool:
    assert isinstance(received.message, JSONRPCResponse)
    with pytest.raises(ValueError, match="escape"):
        outcome_of(received.message.result)
    return True


def test_numbers_that_json_has_not_are_refused_but_in_structured_content() -> None:
    """That is a text, and what JSON has not could not be recorded elsewhere."""
    infinite = {"a": float("inf")}
    assert outcome_of({"structuredContent": infinite}) == ToolOutcome(content=(Text(text='{"a":Infinity}'),))
    with pytest.raises(ValueError, match="not JSON compliant"):
        outcome_of({"content": [{"type": "text", "text": "x", "annotations": infinite}]})


def test_content_that_is_a_text_and_no_list_is_one_text() -> None:
    """Servers that were written in haste answer so."""
    assert outcome_of({"content": "plain"}) == ToolOutcome(content=(Text(text="plain"),))
