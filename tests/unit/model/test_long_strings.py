"""Long strings of JSON: with them done in pieces, all is as the codec alone would have it."""

import gc
import json
import random
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model import (
    Document,
    Native,
    Source,
    Text,
    ToolResult,
    ToolUse,
    content_bytes,
    decode_content,
    parse_content,
    parse_window,
)
from turnlog.model.blocks import text_content
from turnlog.model.json_text import minify
from turnlog.model.long_strings import LongStrings, has_long_string, json_pieces
from turnlog.model.pieces import PIECE

UNITS = ("a", "ab cd\n", "é", "漢字", "😀", "a😀", '"', "\\", '\\"', "\x00\x1f", "\x7f", "\n", " ", "C:\\new\\u0041")


class Held(Struct):
    """A struct with text that stays as it was spelled."""

    text: str
    raw: Raw


def drawn(seed: int, size: int) -> str:
    """Return a text in which everything meets everything: runs of units, some of them very long."""
    source = random.Random(seed)
    parts: list[str] = []
    while size > 0:
        part = source.choice(UNITS) * source.choice((1, 2, 3, 70, PIECE // 3))
        parts.append(part)
        size -= len(part)
    return "".join(parts)


def there_and_back(text: bytes) -> tuple[bytes, Any]:
    """Return JSON without its long strings, and what it says."""
    long = LongStrings()
    skeleton = long.out_of_json(text)
    return skeleton, long.into(msgspec.json.decode(skeleton))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_string_of_one_unit_is_read_as_the_codec_reads_it(unit: str, *, is_ascii: bool) -> None:
    """Also where it has nothing but escapes, or pairs of them."""
    value = {"first": "x", "text": unit * (3 * PIECE // len(unit)), "last": [1, "\\"]}
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    skeleton, said = there_and_back(text)
    assert said == value
    assert len(skeleton) < 200


@pytest.mark.parametrize("indent", [None, 2])
def test_a_value_is_written_in_pieces_as_the_codec_writes_it(indent: int | None) -> None:
    """Also structs, raw JSON as it is spelled, and what is nested so deeply that only the codec takes it apart."""
    text = drawn(3, 4 * PIECE)
    deep: object = text
    for _ in range(400):
        deep = [deep]
    spelled = Raw(b'{"in":"' + b"\\u0041" * PIECE + b'"}')
    for value in ([text, Held(text=text, raw=spelled), {text[:9]: spelled}], deep, "short"):
        whole = msgspec.json.encode(value)
        pieces = [bytes(piece) for piece in json_pieces(value, indent=indent)]
        assert b"".join(pieces) == (whole if indent is None else msgspec.json.format(whole, indent=indent))
    [_, *middle, _] = map(len, json_pieces([text], indent=indent))
    assert max(middle) <= 6 * PIECE


@pytest.mark.parametrize("seed", range(12))
def test_any_strings_are_read_and_written_as_the_codec_does(seed: int) -> None:
    """Short and long ones beside each other, in values and in keys."""
    fields = {drawn(seed, PIECE): drawn(seed + 100, 4 * PIECE)}
    value = [fields, "short", drawn(seed + 200, PIECE - 9)]
    text = msgspec.json.encode(value)
    skeleton, said = there_and_back(text)
    assert said == value
    assert len(skeleton) < len(text) // 2
    assert there_and_back(json.dumps(value).encode())[1] == value
    long = LongStrings()
    assert has_long_string(value)
    assert long.into_json(msgspec.json.encode(long.out_of(value))) == text


def test_what_has_no_long_string_stays_as_it_is() -> None:
    """However many strings it has."""
    text = msgspec.json.encode([{"name": "a text", "more": '\\"'}] * 40_000)
    long = LongStrings()
    assert len(text) > 2 * PIECE
    assert long.out_of_json(text) is text
    assert not long


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "' + b"x" * 2 * PIECE,
        b'{"a": "' + b"\\" * (2 * PIECE + 1) + b'"}',
        b"[" * 2 * PIECE,
        b'"' * (2 * PIECE + 1),
        b" " * 2 * PIECE,
    ],
)
def test_what_is_no_json_is_left_to_the_codec(text: bytes) -> None:
    """It comes to the codec, which refuses it."""
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        there_and_back(text)


@pytest.mark.parametrize("wrong", [b"\n", b"\xff", b"\\x", b"\\ud83d", b"\\u12x"])
@pytest.mark.parametrize("place", [0, PIECE, 3 * PIECE])
def test_what_is_no_string_is_refused(wrong: bytes, place: int) -> None:
    """Wherever it is, and by the block that it is in."""
    inside = b"a" * place + wrong + b"b" * (4 * PIECE - place)
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        there_and_back(b'["' + inside + b'"]')
    with pytest.raises(ContentError, match=r"^content"):
        decode_content(b'[{"type":"text","text":"' + inside + b'"}]')


def test_what_is_spelled_out_stays_as_it_was_spelled() -> None:
    """A mark in raw JSON becomes what stood there, and not what that says."""
    spelled = b'"' + b"\\u0041" * PIECE + b'"'
    long = LongStrings()
    text = b'{"text":' + spelled + b',"raw":{"in":[' + spelled + b"]}}"
    held = long.into(msgspec.json.decode(long.out_of_json(text), type=Held))
    assert held.text == "A" * PIECE
    assert bytes(held.raw) == b'{"in":[' + spelled + b"]}"


def test_blocks_are_written_and_read_as_short_ones_are() -> None:
    """Each kind of block, with keys of its own."""
    text = drawn(7, 2 * PIECE)
    more = Raw(msgspec.json.encode({"cited": text}))
    blocks = [
        Text(text=text, extra={"citations": more}),
        Document(source=Source(media_type="image/png", data="QUJD" * PIECE)),
        ToolUse(name="write", input=more, id="1"),
        ToolResult(tool_use_id="1", content=[Text(text=text), Text(text="short", extra={"a": more})]),
        ToolResult(tool_use_id="2", content=text, is_error=True),
    ]
    payload = content_bytes(blocks)
    records: Any = msgspec.json.decode(payload)
    assert [record["type"] for record in records] == ["text", "document", "tool_use", "tool_result", "tool_result"]
    assert records[0] == {"type": "text", "text": text, "citations": {"cited": text}}
    assert records[3]["content"][1] == {"type": "text", "text": "short", "a": {"cited": text}}
    assert decode_content(payload) == blocks
    assert content_bytes(records) == msgspec.json.encode(records)
    assert content_bytes(text) == msgspec.json.encode([{"type": "text", "text": text}])


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_bytes_of_text_are_written_as_the_text_is(size: int) -> None:
    """In pieces that end anywhere, also within a character; and what is no UTF-8 is refused wherever it is."""
    text = "a" * (size % 7) + drawn(size, size)
    assert text_content(text.encode()) == content_bytes(text) == text_content(memoryview(text.encode()))
    for wrong in (b"\xff", b"\xf0\x9f"):
        with pytest.raises(ContentError, match="UTF-8"):
            text_content(text.encode() + wrong)


def spaced(value: Any) -> bytes:
    """Return a value as JSON with whitespace, and with a few characters escaped that need not be."""
    return json.dumps(value, indent=1, ensure_ascii=False).replace("/", "\\/").encode()


@pytest.mark.parametrize("seed", range(5))
def test_content_with_long_texts_is_taken_as_it_is_spelled(seed: int) -> None:
    """Without whitespace outside strings; where there was none it is the very bytes, and no copy of them."""
    text = drawn(seed, 3 * PIECE) + "/"
    for value in (
        [{"type": "text", "text": text}, {"type": "tool_use", "name": "w", "input": {"a": [text, 1]}, "id": "1"}],
        {"type": "text", "text": text, "citations": [{text: text}]},
        text,
    ):
        source = spaced(value)
        payload = parse_content(source)
        blocks: Any = value if isinstance(value, list) else [value if isinstance(value, dict) else Text(text=value)]
        assert msgspec.json.decode(payload) == msgspec.to_builtins(blocks)
        assert minify(source, field="content") in payload
        assert parse_content(payload) is payload


@pytest.mark.parametrize("wrong", [b"\n", b"\xff", b"\\x", b"\\ud83d", b"\\u12x", b'"'])
@pytest.mark.parametrize("place", [0, PIECE, 3 * PIECE])
def test_what_is_wrong_in_a_long_text_is_told_with_its_place(wrong: bytes, place: int) -> None:
    """As the codec tells it of the whole text."""
    text = b' [{"type":"text","text":"' + b"a" * place + wrong + b"b" * (4 * PIECE - place) + b'"}]'
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as of_all:
        msgspec.json.format(text.decode(), indent=-1)
    why = str(getattr(of_all.value, "reason", of_all.value)).removeprefix("JSON is malformed: ")
    for parse in (parse_content, parse_window, lambda text: minify(text, field="content")):
        with pytest.raises(ContentError) as caught:
            parse(text)
        assert why in str(caught.value)


def test_a_window_may_have_long_texts_anywhere() -> None:
    """In content, in options, in the name of a document, and in blocks that are somebody's own."""
    text, own = drawn(3, 2 * PIECE), {"type": "odd", "in": drawn(4, 2 * PIECE)}
    source = spaced(
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": text}], "document_name": text},
                {"role": "assistant", "content": [own, {"type": "text", "text": "short"}]},
            ],
            "options": {"note": text},
        }
    )
    window = parse_window(source, own=("openai", "responses", "m"))
    [said], [block, short] = (message.content for message in window.messages)
    assert (said, window.messages[0].document_name, window.options) == (Text(text=text), text, {"note": text})
    assert isinstance(block, Native)
    assert (block.provider, msgspec.json.decode(block.block), short) == ("openai", own, Text(text="short"))


@pytest.mark.parametrize("place", [0, PIECE, 3 * PIECE])
def test_half_of_a_pair_is_refused_when_it_is_written(place: int) -> None:
    """As in a short text."""
    text = "a" * place + "\ud83d" + "b" * (4 * PIECE - place)
    for content in (text, [Text(text=text)], [{"type": "text", "text": text}]):
        with pytest.raises(ContentError, match="UTF-8"):
            content_bytes(content)


@pytest.mark.parametrize("is_ascii", [True, False])
def test_what_a_string_says_goes_into_another_one_as_the_codec_spells_it(*, is_ascii: bool) -> None:
    """However it was spelled, and whatever stands around it."""
    texts = [drawn(5, 3 * PIECE), "\U0001f600" * PIECE]
    long = LongStrings()
    marks = msgspec.json.decode(long.out_of_json(json.dumps(texts, ensure_ascii=is_ascii).encode()), type=list[str])
    spelled = long.encoded_into(msgspec.json.encode(["x".join(["1", *marks, *marks, "2"]), marks[0]]), b",")
    assert spelled == b"," + msgspec.json.encode(["x".join(["1", *texts, *texts, "2"]), texts[0]])
    assert long.into([f"{mark}; x" for mark in marks]) == [f"{text}; x" for text in texts]


@pytest.mark.parametrize(("text", "is_blank"), [(" \n\u3000" * PIECE, True), ("\t" * 40 * PIECE + "a", False)])
def test_a_long_string_is_blank_if_all_of_it_is(text: str, *, is_blank: bool) -> None:
    """Also where only its end says something, and where whitespace is written as escapes."""
    for value in (text, json.loads(json.dumps(text))):
        long = LongStrings()
        assert long.is_blank(msgspec.json.decode(long.out_of_json(json.dumps(value).encode()))) is is_blank
        assert long.is_blank(long.out_of(value)) is is_blank


def test_a_text_that_is_made_in_pieces_stands_wherever_another_one_does() -> None:
    """It is made each time that it is asked for, and is not there in between."""
    text, made = drawn(6, 3 * PIECE), 0

    def pieces() -> Iterator[str]:
        nonlocal made
        made += 1
        return (text[start : start + 999] for start in range(0, len(text), 999))

    long = LongStrings()
    mark = long.made_of(pieces)
    assert made == 0
    assert (long.into({"a": [mark, "b"]}), long.is_blank(mark)) == ({"a": [text, "b"]}, False)
    assert "".join(long.said_pieces(f"<{mark}>")) == f"<{text}>"
    assert long.into_json(msgspec.json.encode([mark])) == msgspec.json.encode([text])
    assert long.encoded_into(msgspec.json.encode([f"<{mark}>"])) == msgspec.json.encode([f"<{text}>"])
    assert long.into(f"{mark}>") == f"{text}>"
    long.check()
    assert made == 7


@pytest.mark.parametrize("source", [b'["not ended', b'["\xff"]', b"[" * 10_000])
def test_what_is_no_json_goes_once_that_is_said(source: bytes) -> None:
    """It may be large: nothing that is left of an error keeps it until garbage is collected."""
    gc.disable()
    try:
        before = sys.getrefcount(source)
        with suppress(ContentError):
            minify(source, field="content")
        assert sys.getrefcount(source) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("spelled", ['"' + "é" * PIECE + '"', '"' + "\\u00e9" * PIECE + '\\n\\\\"'])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_that_is_taken_over_is_written_as_it_is_spelled(spelled: str, indent: int | None) -> None:
    """Among JSON, and as a text of JSON, whose memory goes with the strings."""
    given = f'{{"a":{spelled},"b":[1.0]}}'.encode()
    own, long = LongStrings(), LongStrings()
    raw = long.json_taken_over(own, own.out_of_json(given))
    assert len(raw) < PIECE
    assert b"".join(long.encoded_pieces(b'{"c":' + raw + b"}")) == b'{"c":' + given + b"}"
    assert b"".join(long.pieces(raw)) == given
    text = given.decode() if indent is None else msgspec.json.format(given, indent=indent).decode()
    mark = long.json_as_text(raw, indent=indent)
    assert len(mark) < PIECE
    assert "".join(long.said_pieces(mark)) == text
    assert b"".join(long.encoded_pieces(msgspec.json.encode(mark))) == msgspec.json.encode(text)
    assert long.json_as_text(b'{"a":1}') == '{"a":1}'
    gone = weakref.ref(long)
    gc.disable()
    try:
        del long
        assert gone() is None
    finally:
        gc.enable()
