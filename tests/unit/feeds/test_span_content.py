"""What a span has of content: all of what is small, and of what is long a part and how much is missing."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turnlog.errors import ContentError
from turnlog.feeds.sinks.span_content import PARTS_BYTES_MAX, TEXT_BYTES_MAX, Said, SpanContent
from turnlog.model.blocks import ToolResult, ToolUse
from turnlog.model.pieces import PIECE

TEXTS: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[[str], dict[str, Any]]]] = {
    "text": (lambda said: {"type": "text", "text": said}, lambda said: {"type": "text", "content": said}),
    "thinking": (
        lambda said: {"type": "thinking", "thinking": said, "signature": "s"},
        lambda said: {"type": "reasoning", "content": said},
    ),
    "result": (
        lambda said: {"type": "tool_result", "content": said, "tool_use_id": "c1"},
        lambda said: {"type": "tool_call_response", "id": "c1", "response": said},
    ),
    "result of blocks": (
        lambda said: {"type": "tool_result", "content": [{"type": "text", "text": said}], "tool_use_id": "c1"},
        lambda said: {"type": "tool_call_response", "id": "c1", "response": said},
    ),
    "document": (
        lambda said: {"type": "document", "source": {"type": "base64", "media_type": "a/b", "data": said}},
        lambda said: {"type": "blob", "modality": "document", "mime_type": "a/b", "content": said},
    ),
    "name": (
        lambda said: {"type": "tool_use", "id": "c1", "name": said, "input": {}},
        lambda said: {"type": "tool_call", "id": "c1", "name": said, "arguments": {}},
    ),
}
"""Blocks that have a text, and the parts that are made of them."""

RAW: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Any], dict[str, Any]]]] = {
    "arguments": (
        lambda value: {"type": "tool_use", "id": "c1", "name": "n", "input": value},
        lambda value: {"type": "tool_call", "id": "c1", "name": "n"} | ({"arguments": value} if value else {}),
    ),
    "native": (
        lambda value: {"type": "native", "provider": "p", "block": value},
        lambda value: {"type": "native", "provider": "p"} | ({"block": value} if value else {}),
    ),
}
"""Blocks that have raw JSON, and the parts that are made of them, with it and without it."""


def said(*blocks: dict[str, Any]) -> Said:
    """Return content of blocks."""
    return Said(msgspec.json.encode(blocks))


def message(*parts: dict[str, Any]) -> bytes:
    """Return the JSON of a message with parts."""
    return msgspec.json.encode({"role": "user", "parts": parts})


def of_size(size: int) -> dict[str, str]:
    """Return an object whose JSON has so many bytes."""
    return {"a": "x" * (size - len(b'{"a":""}'))}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    "text", ["", "short", 'é "\n\u2028 \U0001f642', "é\n" * PIECE, "x" * TEXT_BYTES_MAX, "é" * (TEXT_BYTES_MAX // 2)]
)
def test_texts_up_to_the_limit_are_whole(kind: str, text: str) -> None:
    """As they were before there was one, and nothing is said of them."""
    block, part = TEXTS[kind]
    content = SpanContent()
    assert content.message("user", said(block(text))) == message(part(text))
    assert content.attributes == {}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * (TEXT_BYTES_MAX + 1), TEXT_BYTES_MAX),
        ("x" * (TEXT_BYTES_MAX - 1) + "éy", TEXT_BYTES_MAX - 1),
        ("x" * (TEXT_BYTES_MAX - 3) + "\U0001f642yz", TEXT_BYTES_MAX - 3),
        ("é" * (5 * TEXT_BYTES_MAX), TEXT_BYTES_MAX),
    ],
    ids=["one more", "two bytes", "four bytes", "pieces"],
)
def test_longer_texts_are_cut_behind_a_character(kind: str, text: str, kept: int) -> None:
    """What is missing is told in bytes of UTF-8: no character is there in part, and nothing comes behind a cut."""
    block, part = TEXTS[kind]
    content = SpanContent()
    beginning = text.encode()[:kept].decode()
    assert content.message("user", said(block(text))) == message(part(beginning))
    assert content.attributes == {"turnlog.content.bytes_left_out": len(text.encode()) - kept}


@pytest.mark.parametrize("kind", RAW)
@pytest.mark.parametrize("above", [0, 1])
def test_json_is_whole_or_not_there(kind: str, above: int) -> None:
    """A part of it would be no JSON. Where it is not there, all of it is counted."""
    block, part = RAW[kind]
    content = SpanContent()
    value = of_size(TEXT_BYTES_MAX + above)
    assert content.message("user", said(block(value))) == message(part(None if above else value))
    assert content.attributes == ({"turnlog.content.bytes_left_out": TEXT_BYTES_MAX + 1} if above else {})


def test_texts_of_a_result_are_one() -> None:
    """With line feeds between them, which the limit counts; what is no text is not in it."""
    half = "x" * (TEXT_BYTES_MAX // 2)
    texts = [{"type": "text", "text": text} for text in (half, half, "y")]
    native = {"type": "native", "provider": "p", "block": {}}
    result = said({"type": "tool_result", "content": [texts[0], native, *texts[1:]], "tool_use_id": "c1"})
    [block] = result.blocks
    assert isinstance(block, ToolResult)
    assert "".join(result.result(block)) == f"{half}\n{half}\ny"
    content = SpanContent()
    assert content.text(result.result(block)) == f"{half}\n{half}"[:-1]
    assert content.attributes == {"turnlog.content.bytes_left_out": 3}


@pytest.mark.parametrize("size", [2, PIECE + 1000, TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1, 5 * TEXT_BYTES_MAX])
def test_arguments_as_text_are_cut(size: int) -> None:
    """They are an attribute of their own."""
    value = {} if size == 2 else of_size(size)
    asking = said({"type": "tool_use", "name": "n", "input": value})
    [block] = asking.blocks
    assert isinstance(block, ToolUse)
    content = SpanContent()
    assert content.json_text(asking, block.input) == msgspec.json.encode(value).decode()[:TEXT_BYTES_MAX]
    assert content.bytes_left_out == max(0, size - TEXT_BYTES_MAX)


def test_arguments_as_text_are_cut_behind_a_character() -> None:
    """As every text is."""
    value = {"a": "x" * (TEXT_BYTES_MAX - 7) + "éy"}
    text = msgspec.json.encode(value).decode()
    asking = said({"type": "tool_use", "name": "n", "input": value})
    [block] = asking.blocks
    assert isinstance(block, ToolUse)
    content = SpanContent()
    assert content.json_text(asking, block.input) == text[: text.index("é")]
    assert content.bytes_left_out == len('éy"}'.encode())


def test_parts_for_which_there_is_no_room_are_left_out() -> None:
    """What comes behind them is there if there is room for it; their bytes count, and so do they."""
    long = [{"type": "text", "text": letter * TEXT_BYTES_MAX} for letter in "abcde"]
    content = SpanContent()
    made = content.message("user", said(*long, {"type": "text", "text": "last"}))
    parts = [{"type": "text", "content": letter * TEXT_BYTES_MAX} for letter in "abc"]
    assert made == message(*parts, {"type": "text", "content": "last"})
    assert len(made) <= PARTS_BYTES_MAX
    assert content.attributes == {
        "turnlog.content.bytes_left_out": 2 * TEXT_BYTES_MAX,
        "turnlog.content.parts_left_out": 2,
    }


def test_text_that_json_spells_long_is_left_out_where_it_has_no_room() -> None:
    """Its limit is in UTF-8, and the one of a message in JSON, which has six bytes for a control character."""
    text = "\1" * (TEXT_BYTES_MAX + 1)
    content = SpanContent()
    made = content.message("user", said({"type": "text", "text": text}, {"type": "text", "text": "last"}))
    assert made == message({"type": "text", "content": "last"})
    assert content.attributes == {
        "turnlog.content.bytes_left_out": TEXT_BYTES_MAX + 1,
        "turnlog.content.parts_left_out": 1,
    }


def test_each_message_has_room_of_its_own() -> None:
    """What is left out of all of them is counted together."""
    content = SpanContent()
    text = {"type": "text", "text": "x" * (TEXT_BYTES_MAX + 7)}
    first = content.message("user", said(text, text, text))
    assert content.message("user", said(text, text, text)) == first
    assert content.attributes == {"turnlog.content.bytes_left_out": 6 * 7}


def test_long_texts_that_are_none_are_told_before_any_is_read() -> None:
    """As they are where all of a content is decoded."""
    with pytest.raises(ContentError, match="a text is malformed"):
        Said(b'[{"type":"text","text":"' + b"x" * PIECE + b'\\q"}]')
