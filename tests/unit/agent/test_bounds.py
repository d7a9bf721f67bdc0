"""How much of a result goes to a model."""

import operator
import sys
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.agent.bounds import NOTICE_BYTES_MAX, Bounds, result_page
from turnlog.model import (
    ContextWindow,
    Document,
    Message,
    Source,
    Text,
    ToolResult,
    blocks,
    content_bytes,
    long_strings,
)
from turnlog.model.erased import erased_content
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE

LONG = "a" * (NOTICE_BYTES_MAX + 11)


def window(*contents: Any) -> ContextWindow:
    """Return a window of users' messages, of turns `t0`, `t1`, …."""
    return ContextWindow(
        messages=[
            Message(turn=f"t{index}", role="user", content_json=content_bytes([content]))
            for index, content in enumerate(contents)
        ],
        options={},
    )


def result(*content: Any, **fields: Any) -> ToolResult:
    """Return the result of a call."""
    return ToolResult(tool_use_id="c1", content=list(content), **fields)


def bounded(given: ToolResult, bytes_max: int = 10) -> Any:
    """Return the content of a result as a model gets it that can read on."""
    whole = window(given)
    bounds = Bounds(bytes_max)
    [message] = bounds.bounded(whole, bounds.cut_turns(whole)).messages
    [block] = message.content
    assert isinstance(block, ToolResult)
    return block.content


def image(size: int, **fields: Any) -> Document:
    """Return an image of a number of bytes."""
    return Document(source=Source(media_type="image/png", data=b64encode(b"i" * size).decode()), **fields)


def csv(text: str) -> Document:
    """Return a text-like document."""
    return Document(source=Source(media_type="text/csv", data=b64encode(text.encode()).decode()))


@pytest.mark.parametrize("content", [Text(text=LONG), result(Text(text="a" * (10 + NOTICE_BYTES_MAX))), result()])
def test_a_window_without_long_results_stays_itself(content: Any) -> None:
    """Texts that are no results are not cut, nor is a result that is longer by less than the notice of a cut."""
    given = window(content)
    bounds = Bounds(10)
    assert bounds.bounded(given) is given
    assert bounds.cut_turns(given) == set()


def test_long_messages_without_results_are_not_held_on_to() -> None:
    """A run lets a window go when its request is made, however large a text in it is."""
    given = window(Text(text="tool_result" + "a" * 3 * PIECE))
    [message] = given.messages
    before = sys.getrefcount(message)
    bounds = Bounds(10)
    assert bounds.bounded(given) is given
    assert sys.getrefcount(message) == before


def test_a_result_is_known_by_a_type_that_is_spelled_in_escapes() -> None:
    """What is sent is what it says."""
    content = content_bytes([result(Text(text=LONG)), Text(text="a" * 3 * PIECE)])
    given = window(Text(text=""))
    [message] = given.messages
    spelled = content.replace(b"tool_result", b"tool\\u005fresult")
    given = msgspec.structs.replace(given, messages=(msgspec.structs.replace(message, content_json=spelled),))
    assert Bounds(10).cut_turns(given) == {message.turn}


def test_the_text_of_a_result_is_cut_and_says_where() -> None:
    """The notice has the sizes, and how to read on."""
    [text] = bounded(result(Text(text=LONG)))
    assert text.text == (
        "a" * 10 + "\n\n[Cut here: this is the first 10 of 511 bytes."
        ' To read on, call read_result with "result": "t0.0" and "offset": 10.]'
    )


def test_a_result_that_is_one_text_is_cut_as_one() -> None:
    """Other fields of a result stay."""
    given = window(ToolResult(tool_use_id="c1", content=LONG, is_error=True))
    [message] = Bounds(10).bounded(given).messages
    [cut] = message.content
    assert isinstance(cut, ToolResult)
    assert isinstance(cut.content, str)
    assert (cut.tool_use_id, cut.is_error) == ("c1", True)
    assert cut.content.startswith("a" * 10 + "\n\n[Cut here: this is the first 10 of 511 bytes. The rest is recorded, ")


def test_text_is_cut_between_two_characters() -> None:
    """Nothing of a character goes alone."""
    [text] = bounded(result(Text(text="aé" * NOTICE_BYTES_MAX)), 11)
    assert text.text.partition("\n")[0] == "aéaéaéa"
    assert '"offset": 10.' in text.text


def test_what_comes_behind_the_cut_is_left_out_and_images_stay() -> None:
    """The bound is of all texts of a result; blocks before the cut are as they were."""
    first = Text(text="head", extra={"annotations": msgspec.Raw(b"{}")})
    found = bounded(result(first, image(3), Text(text=LONG), image(4), Text(text="more"), csv("a,b")))
    assert found[0] == first
    assert found[1] == image(3)
    assert found[2].text.startswith("aaaaa\n\n[Cut here: this is the first 10 of 525 bytes.")
    assert found[3:] == [image(4)]


FIRST = ("", "a" * 8, "a" * 9, "a" * 10, "a" * 11, "aé" * 3, "aé" * 3 + "a", "é" * 5, "é" * 6)


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", ["", "b", "é"])
def test_wherever_the_cut_is_it_is_told_once(first: str, second: str) -> None:
    """Before, behind and between the texts of a result."""
    found = bounded(result(Text(text=first), Text(text=second), Text(text=LONG)))
    whole = "\n".join((first, second, LONG))
    kept, told, _ = "\n".join(block.text for block in found).partition("\n\n[Cut here")
    assert told
    assert sum("[Cut here" in block.text for block in found) == 1
    assert whole.startswith(kept.removesuffix("\n"))
    assert 9 <= len(kept.encode()) <= 11


def test_text_like_documents_are_bounded_as_text() -> None:
    """Wires send them as text."""
    [text] = bounded(result(csv(LONG)))
    assert text.text.startswith("a" * 10 + "\n\n[Cut here")


def test_a_document_that_is_too_large_is_a_line_that_says_what_it_was() -> None:
    """It may have fifty times the bytes of a text."""
    fields = {"extra": {"title": msgspec.Raw(b'"shot.png"')}}
    assert bounded(result(image(500, **fields))) == [image(500, **fields)]
    [text] = bounded(result(image(501, **fields)))
    assert text.text == (
        '[a document "shot.png" of type image/png, 501 bytes, that is recorded and left out here: more than 500 bytes]'
    )


def test_an_erased_turn_stays_as_it_is() -> None:
    """It has no results."""
    erased = Message(turn="t", role="user", content_json=erased_content("t", 1, sealed=False))
    given = ContextWindow(messages=[erased], options={})
    assert Bounds(1).bounded(given) is given


def test_the_same_window_is_cut_to_the_same_bytes() -> None:
    """A longer window begins with the messages of the shorter one."""
    given = window(result(Text(text=LONG)), "more")
    bounds = Bounds(10)
    shorter = bounds.bounded(msgspec.structs.replace(given, messages=given.messages[:1]))
    assert bounds.bounded(given).messages[0] is shorter.messages[0]
    assert Bounds(10).bounded(given).messages == bounds.bounded(given).messages


@given(st.lists(st.text(max_size=40), max_size=4), st.integers(1, 30))
def test_the_pages_of_a_result_are_its_text(texts: list[str], bytes_max: int) -> None:
    """Read one behind the other they are whole, and none is larger than it may be, but for a large character."""
    given = result(*(Text(text=text) for text in texts))
    offset, read = 0, ""
    while True:
        page = result_page(given, LongStrings(), offset, bytes_max)
        assert len(page.text.encode()) <= max(bytes_max, 4)
        read += page.text
        if page.end == page.size:
            break
        assert page.end > offset
        offset = page.end
    assert read == "\n".join(texts)


@given(st.text(min_size=1, max_size=20), st.integers(-3, 90), st.integers(1, 9))
def test_a_page_may_be_asked_for_anywhere(text: str, offset: int, bytes_max: int) -> None:
    """An offset inside a character, or outside of the text, is taken as the next sensible one."""
    page = result_page(result(Text(text=text)), LongStrings(), offset, bytes_max)
    assert page.text in text
    assert page.size == len(text.encode())


@pytest.mark.parametrize("bytes_max", [10, PIECE - 1, PIECE, 3 * PIECE + 1, 5 * PIECE])
def test_long_texts_are_cut_as_short_ones_are(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in pieces, and are not there as a whole."""
    said = "é 漢 😀 line\n" * (2 * PIECE // 16)
    nested = (Text(text=said), csv(said), image(24 * PIECE), Text(text=said), Text(text="x"))
    given = window(result(*nested), ToolResult(tool_use_id="c2", content=said), result(*nested[::-1]), Text(text=said))
    found = [Bounds(bytes_max).bounded(given, readable).messages for readable in (frozenset[str](), frozenset(["t0"]))]
    for module in (blocks, long_strings):
        monkeypatch.setattr(module, "PIECE", sys.maxsize)
    assert found[0] == Bounds(bytes_max).bounded(given).messages
    assert found[1] == Bounds(bytes_max).bounded(given, frozenset(["t0"])).messages
    assert any(map(operator.ne, found[0], given.messages))
