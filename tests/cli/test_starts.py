"""What is read of a payload of which there is only the beginning."""

import json
from typing import Any

import pytest

from turnlog.cli.starts import blocks_at_start
from turnlog.model import Block, Document, Native, Text, Thinking, ToolResult, ToolUse, decode_content

DATA = "QUJD" * 10
IMAGE = {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
TEXT = 'One "two" \\ \n three: \u00e9 \u4e2d \U0001f600 [a] {b}'
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": TEXT, "further": ["x", {"y": 1.5e3}]},
    {"type": "thinking", "thinking": "So be it", "signature": "s"},
    {"type": "tool_use", "id": "t", "name": "look", "input": {"at": "here", "deep": [{"and": "there"}], "n": 12}},
    {"type": "tool_result", "tool_use_id": "t", "content": "found \u00e9"},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "seen"}, IMAGE]},
    IMAGE,
    {"type": "text", "text": "the end"},
]


def said(block: Block) -> tuple[type[Block], str, bool]:
    """Return what a block is, what it says, and whether that may go on."""
    match block:
        case Text():
            return Text, block.text, True
        case Thinking():
            return Thinking, block.thinking, True
        case ToolUse():
            return ToolUse, bytes(block.input).decode().rstrip('"}]'), True
        case ToolResult(content=str(text)):
            return ToolResult, text, True
        case ToolResult(content=nested):
            return ToolResult, "".join(said(inner)[1] for inner in nested), True
        case Document():
            return Document, block.source.data, False
        case Native():
            raise AssertionError(block)


@pytest.mark.parametrize("is_ascii", [True, False])
def test_beginning_has_what_is_there(*, is_ascii: bool) -> None:
    """Wherever it ends: in a character, an escape, a key, a number, a document; nothing is made up."""
    payload = json.dumps(CONTENT, ensure_ascii=is_ascii, separators=(",", ":")).encode()
    whole = [said(block) for block in decode_content(payload)]
    lengths: list[int] = []
    for end in range(len(payload)):
        blocks = [said(block) for block in blocks_at_start(payload[:end])]
        for number, (kind, text, goes_on) in enumerate(blocks):
            assert kind is whole[number][0]
            is_last = number == len(blocks) - 1
            assert whole[number][1].startswith(text) if goes_on and is_last else text == whole[number][1], end
        lengths.append(len(blocks))
    assert lengths[:2] == [0, 0]
    assert set(lengths) == set(range(len(whole) + 1))


@pytest.mark.parametrize("text", ["ab" * 100_000, "\n" * 100_000, '["' * 100_000], ids=["plain", "lines", "brackets"])
def test_long_text_is_there_as_far_as_it_goes(text: str) -> None:
    """Also one of line feeds alone, and of brackets."""
    [block] = blocks_at_start(json.dumps([{"type": "text", "text": text}]).encode()[:100_000])
    assert isinstance(block, Text)
    assert len(block.text) > 20_000
    assert text.startswith(block.text)


@pytest.mark.parametrize("start", [b"", b"[", b'{"a":', b"]]]", b'"', b'[{"type":"text","te', b'[{"text":"a'])
def test_what_is_no_content_has_none(start: bytes) -> None:
    """Nothing is raised."""
    assert blocks_at_start(start) == []
