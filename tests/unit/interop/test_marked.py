import gc

import msgspec
import pytest
from msgspec import Raw

from turnlog.interop.marked import (
    Marks,
    data_url,
    digest_of,
    in_pieces,
    is_text,
    json_as_text,
    json_in,
    marked_text,
    one_mark,
    says,
    text_of,
    text_pieces,
    unmarked,
    whole,
)
from turnlog.interop.texts import DamagedError, parsed
from turnlog.model.pieces import PIECE

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
    assert b"".join(in_pieces(marked(line, marks))) == msgspec.json.format(line, indent=-1)
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


def test_string_of_damaged_texts_has_no_mark() -> None:
    """Also where several texts follow each other: one of them that is read again by itself is looked at."""
    marks = Marks()
    sound, damaged = f'["{LONG}"]'.encode(), f'["{LONG}\\x"]'.encode()
    assert marks.of_texts(sound + b"\n" + damaged) is None
    assert len(marks) == 0
    with pytest.raises(DamagedError, match="escape"):
        parsed(damaged, marks)
    assert text_of(FIELDS.decode(marked(b'{"a":"%b"}' % LONG.encode(), marks))["a"]) == LONG


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
        one_mark(f"{marked_text(Raw(found[1]))}.")
        json_as_text(Raw(b"[" + found[1] + b"]"))
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


def test_pieces_can_be_iterated_over_again() -> None:
    found = in_pieces(marked(f'["{LONG}"]'.encode(), marks := Marks()))
    assert len(marks) == 1
    assert b"".join(found) == b"".join(found) == f'["{LONG}"]'.encode()
    assert b"".join(in_pieces(b'["short"]')) == b'["short"]'


@pytest.mark.parametrize("space", ["", " "], ids=["as it is", "with whitespace"])
@pytest.mark.parametrize("long", [f"{LONG}", f"{LONG}\\n\\u00e9\\\\"], ids=["plain", "escapes"])
def test_json_in_a_long_text_keeps_its_spelling(long: str, space: str) -> None:
    marks = Marks()
    said = f'{{"a":{space}"{long}"{space},"b":[1,"x"]}}'
    text = marked_text(Raw(marked(msgspec.json.encode(said), marks)))
    assert text is not None
    assert unmarked(text) == said
    found = json_in(text)
    assert found is not None
    assert len(found[0]) < PIECE
    assert found[1] == (not space)
    assert whole(found[0]) == msgspec.json.format(said.encode(), indent=-1)


@pytest.mark.parametrize("said", [f"{LONG}", f'"{LONG}"', f'["{LONG}"]', f'{{"a":"{LONG}"', f'{{"a":"{LONG}\\x"}}'])
def test_what_is_no_object_is_none_in_a_long_text(said: str) -> None:
    marks = Marks()
    text = marked_text(Raw(marked(msgspec.json.encode(said), marks)))
    assert text is not None
    assert json_in(text) is None
    assert unmarked(text) == said
    assert len(marks) == 1 or said[0] in '"['
    assert json_in('{"a":1}') is None  # it has no mark: whoever asks reads it as it is


def test_text_around_marks_has_one() -> None:
    marks = Marks()
    first, second = FIELDS.decode(marked(f'{{"a":"{LONG}1","b":"2{LONG}"}}'.encode(), marks)).values()
    text = one_mark(f"*{marked_text(first)}*\n{marked_text(second)}")
    assert len(text) < PIECE
    assert unmarked(text) == f"*{LONG}1*\n2{LONG}"
    assert whole(msgspec.json.encode([text])) == msgspec.json.encode([unmarked(text)])
    assert one_mark(f"*{marked_text(first)}*\n{marked_text(second)}") == text
    assert one_mark("short") == "short"
    mark = marked_text(first)
    assert mark is not None
    assert one_mark(mark) == mark


def test_json_as_a_text_has_a_mark() -> None:
    raw = Raw(marked(f'{{"a":["{LONG}\\"",1]}}'.encode(), marks := Marks()))
    text = json_as_text(raw)
    assert len(text) < PIECE
    assert unmarked(text) == f'{{"a":["{LONG}\\"",1]}}'
    assert whole(msgspec.json.encode(text)) == msgspec.json.encode(unmarked(text))
    assert json_as_text(Raw(b'{"a":1}')) == '{"a":1}'
    assert len(marks) == 2


@pytest.mark.parametrize(
    "pieces", [["a b"], ["", " \n", " a", " b", "", "\t "], ["a ", " ", ""], [" a  b "], ["a", " b"]]
)
def test_digest_is_that_of_the_text_without_whitespace_around(pieces: list[str]) -> None:
    assert digest_of(pieces) == digest_of(["".join(pieces).strip()])
    assert (digest_of(pieces) == digest_of(["a b"])) == ("".join(pieces).strip() == "a b")


def test_digest_of_nothing_is_none() -> None:
    assert digest_of([]) is None
    assert digest_of([" ", "\n"]) is None


def test_long_text_without_a_mark_comes_in_pieces() -> None:
    found = list(text_pieces(Raw(msgspec.json.encode(LONG * 3))))
    assert "".join(found) == LONG * 3
    assert max(map(len, found)) <= PIECE
