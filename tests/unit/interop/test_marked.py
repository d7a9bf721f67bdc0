import gc

import msgspec
import pytest
from msgspec import Raw

from turnlog.interop.marked import Marks, data_url, is_text, pieces, says, text_of, whole
from turnlog.interop.texts import DamagedError, parsed
from turnlog.model.long_strings import PIECE

LONG = "é" * PIECE
FIELDS = msgspec.json.Decoder(dict[str, Raw])


def marked(text: bytes, marks: Marks) -> bytes:
    found, repaired = parsed(text, marks)
    assert not repaired
    assert len(found) < PIECE
    return found


@pytest.mark.parametrize("spelled", [f'"{LONG}"', f'"{LONG}\\"\\u00e9 \\ud83d\\ude42"', f'"\\\\{LONG}\\\\"'])
def test_long_string_is_what_it_was(spelled: str) -> None:
    marks = Marks()
    line = f'{{"a": {spelled}, "b": 1}}'.encode()
    record = FIELDS.decode(marked(line, marks))
    assert text_of(record["a"]) == msgspec.json.decode(spelled)
    assert whole(record["a"]) == spelled.encode()
    assert b"".join(pieces(marked(line, marks))) == msgspec.json.format(line, indent=-1)
    assert is_text(record["a"])
    assert says(record["a"])


def test_same_string_has_the_same_mark() -> None:
    marks = Marks()
    first, second = (marked(f'{{"a":"{LONG}","b":{number}}}'.encode(), marks) for number in (1, 2))
    assert FIELDS.decode(first)["a"] == FIELDS.decode(second)["a"]
    assert first != second
    assert marked(f'["{LONG}","{LONG}."]'.encode(), marks) != marked(f'["{LONG}.","{LONG}"]'.encode(), marks)


def test_string_of_a_damaged_line_has_no_mark() -> None:
    """Else the same string would pass in the next line without being looked at."""
    marks = Marks()
    damaged = f'["{LONG}\\x"]'.encode()
    for _ in range(2):
        with pytest.raises(DamagedError, match="escape"):
            parsed(damaged, marks)
    assert len(marks) == 0


@pytest.mark.parametrize("line", [f'{{"{LONG}":1}}', '["short"]'], ids=["key", "short"])
def test_keys_and_short_strings_have_no_marks(line: str) -> None:
    marks = Marks()
    assert parsed(line.encode(), marks) == (line.encode(), False)
    assert len(marks) == 0


def test_half_of_a_pair_is_replaced_and_the_string_has_a_mark() -> None:
    """So that a long string beside it has the mark that it has elsewhere."""
    marks = Marks()
    found, repaired = parsed(f'{{"a":"{LONG}\\ud83d","b" : "{LONG}", "{LONG}" :2}}'.encode(), marks)
    assert (len(marks), repaired) == (2, True)
    assert whole(found) == f'{{"a":"{LONG}\\ufffd","b":"{LONG}","{LONG}":2}}'.encode()
    assert FIELDS.decode(found)["b"] == FIELDS.decode(marked(f'{{"c":"{LONG}"}}'.encode(), marks))["c"]


def test_nesting_is_counted_beside_long_strings() -> None:
    with pytest.raises(DamagedError, match="nested deeper"):
        parsed(b"[" * 600 + f'"{LONG}"'.encode() + b"]" * 600, Marks())


def test_text_that_looks_like_a_mark_is_text() -> None:
    marks = Marks()
    forged = f"{'0' * 32}-0-0;"
    found = marked(f'["{forged}","{LONG}","{forged}"]'.encode(), marks)
    assert whole(found) == f'["{forged}","{LONG}","{forged}"]'.encode()
    assert text_of(Raw(f'"{forged}"'.encode())) == forged


def test_marks_are_those_of_their_file() -> None:
    """Files are read beside each other, and a file that is let go takes its strings with it."""
    one, other = Marks(), Marks()
    found = [marked(f'"{LONG}{number}"'.encode(), marks) for number, marks in enumerate((one, other))]
    assert [text_of(Raw(each)) for each in found] == [f"{LONG}0", f"{LONG}1"]
    assert data_url(Raw(parsed(msgspec.json.encode(f"data:image/png;base64,{LONG}"), other)[0])) is not None
    gc.disable()  # a string of 200 MB does not wait for that
    try:
        del other
        assert whole(found[1]) == found[1]
    finally:
        gc.enable()
    assert text_of(Raw(found[0])) == f"{LONG}0"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("data:image/png;base64,{}", "image/png"),
        ("data:image/png;charset=x;base64,{}", "image/png;charset=x"),
        ("data:text/plain,{}", None),
        ("https://example.com/{},", None),
    ],
)
@pytest.mark.parametrize("data", ["QUJD", "QUJD" * PIECE], ids=["short", "long"])
def test_data_url_is_taken_apart(url: str, said: str | None, data: str) -> None:
    marks = Marks()
    raw = Raw(parsed(msgspec.json.encode(url.format(data)), marks)[0])
    found = data_url(raw)
    assert (None if found is None else found[0]) == said
    if found is not None:
        assert text_of(found[1]) == data
        assert whole(b"[" + bytes(found[1]) + b"]") == msgspec.json.encode([data])
        assert data_url(raw) == found


@pytest.mark.parametrize(("raw", "text"), [(None, None), (Raw(b"1"), None), (Raw(b'""'), ""), (Raw(b'"a"'), "a")])
def test_other_json_is_no_text(raw: Raw | None, text: str | None) -> None:
    assert text_of(raw) == text
    assert is_text(raw) == (text is not None)
    assert says(raw) == bool(text)
    assert data_url(raw) is None
