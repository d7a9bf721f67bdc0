"""Text made safe and short for a terminal."""

import json
import sys
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from turnlog.cli.text import (
    age,
    barred_pieces,
    first_line,
    first_lines,
    fit,
    json_printable,
    line_pieces,
    marked,
    on_line,
    one_line,
    pad,
    printable,
    said_in_lines,
    said_in_row,
    said_pieces,
    size,
    timestamp,
    to_decide_on,
    without_end,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def is_blank(sign: str) -> bool:
    """Tell whether a character is a blank: of category Zs, the tab, or the pattern of Braille without a dot."""
    return unicodedata.category(sign) == "Zs" or sign in "\t\u2800"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("a\rb\x07\x00\x7f\x9b", "a\\x0db\\x07\\x00\\x7f\\x9b"),
        ("a\u202eb\u2028c\u2066", "a\\u202eb\\u2028c\\u2066"),
        ("é 漢 👍", "é 漢 👍"),
        ("\udcff", "\\udcff"),
        ("a\u200bb\u2060c\u3164", "a\\u200bb\\u2060c\\u3164"),
        ("ok\U000e0072\U000e006d", "ok\\U000e0072\\U000e006d"),
        ("می\u200cخواهم 👨\u200d👩 ❤\ufe0f", "می\u200cخواهم 👨\u200d👩 ❤\ufe0f"),
    ],
)
def test_control_characters_are_spelled_out(text: str, expected: str) -> None:
    """No text that was recorded can command a terminal; other scripts stay as they are."""
    assert printable(text) == expected


@pytest.mark.parametrize(
    "text", ["a\x7fb\x9b2J\x9d52;c", "a\u202eb\u2028\ufeff", "ok\U000e0072", "é 漢 👍\n", '"\\u001b"']
)
def test_json_is_spelled_out_so_that_it_says_the_same(text: str) -> None:
    """As far as JSON has escapes: outside of strings there is nothing to spell."""
    whole = json.dumps([text], ensure_ascii=False)
    spelled = json_printable(whole)
    assert json.loads(spelled) == [text]
    assert printable(spelled) == spelled


def test_what_is_decided_on_has_nothing_unseen() -> None:
    """What joins letters and emoji hides text too, where somebody has to say yes to all of it."""
    assert to_decide_on("a\u00adb\u200dc\ufe0f\u202e") == "a\\xadb\\u200dc\\ufe0f\\u202e"
    assert to_decide_on("\u17b4\u180b\u180f\u2800\U0001bca1") == "\\u17b4\\u180b\\u180f\\u2800\\U0001bca1"
    assert to_decide_on("naïve 漢 👍\n") == "naïve 漢 👍\n"


@pytest.mark.parametrize(
    "unseen",
    [
        *("", "\u00ad", "\u0301", "\u034f", "\u200c", "\u200d", "\ufe0f", "\u200d\ufe0f", "\u2800", "\u0483"),
        *("\u0591", "\u064b", "\u17b4", "\u180b", "\u20d0", "\U0001bca0", "\U0001d173"),
    ],
)
@pytest.mark.parametrize("header", ["── user  03h", "→ pay {}", "← done", "(erased)", "(thinking)", "\\── user"])
def test_what_takes_no_room_hides_no_header(header: str, unseen: str) -> None:
    """Before a header or within it: a line that looks like one gets its backslash, in a page and in a row."""
    for text in (unseen + header, header[0] + unseen + header[1:]):
        assert said_in_lines(f"a\n{text}") == f"a\n\\{text}"
        if "──" not in header:
            assert said_in_row(text) == f"\\{text}"
    assert said_in_row(f"{unseen}[main] x") == f"\\{unseen}[main] x"


def test_no_line_that_looks_like_a_header_comes_through() -> None:
    """Whatever has no cell stands before it, or in it, of all characters that there are: letters of words too."""
    unseen = [sign for sign in map(chr, range(0x80, sys.maxunicode + 1)) if not cell_len(sign)]
    assert len([sign for sign in unseen if sign.isalnum()]) > 200
    for sign in unseen:
        for text in (f"{sign}── user", f"─{sign}─ user"):
            shown = printable(text)
            assert said_in_lines(shown) == (f"\\{shown}" if sign in shown else shown), f"U+{ord(sign):04X}"
            row = printable(text.replace("──", "→").replace("─", "→", 1).replace("─", ""))
            assert said_in_row(row) == (f"\\{row}" if sign in row else row), f"U+{ord(sign):04X}"


@pytest.mark.parametrize("sign", [sign for sign in map(chr, range(sys.maxunicode + 1)) if is_blank(sign)])
def test_every_blank_is_one_in_a_header(sign: str) -> None:
    """Nobody can tell one from another: a call of a tool, its result, a header, a mark."""
    for text in (f"→{sign}bash {{}}", f"←{sign}done", f"──{sign}user"):
        assert said_in_lines(f"a\n{text}") == f"a\n\\{text}"
    assert [said_in_row(f"{mark}{sign}x") for mark in "→←✗"] == [f"\\{mark}{sign}x" for mark in "→←✗"]


@pytest.mark.parametrize(
    "text",
    [
        *("━━ user", "─━ user", "┄┄ user", "—— user", "―― user", "–– user", "‒‒ user", "−− user", "╴╶ user", "ꟷꟷ user"),
        *("ー user", "一 user", "ㅡ\xa0user", "⸺ user", "－ user", "─― аssistant", "──  user"),
        *("⟶ bash {}", "￫ bash {}", "⟵ done", "￩ done", "（erased)", "(еrаsеd)", "(ѕealed", "(thinkinɡ)"),
    ],
)
def test_what_looks_like_a_sign_of_a_header_is_one(text: str) -> None:
    """Lines of a box, dashes, arrows, brackets, and letters that look the same as Latin ones."""
    assert said_in_lines(f"a\n{text}\nb") == f"a\n\\{text}\nb"


@pytest.mark.parametrize(
    "text",
    [
        *(
            " ── user",
            "-- user",
            "‐‐ user",
            "——鲁迅",
            "—— 鲁迅",
            "――と彼は言った",
            "一 総則",
            "一　はじめに",
            "ー 項目",
        ),
        *("– Äpfel", "— Nein, sagte er – und ging", "— — —", "―――――", "──────", "├── src", "└─ x", "a ── b", "a → b"),
        *(
            "→x",
            "->",
            "✗ no",
            "• one",
            "… and so on",
            "(see below)",
            "(seal)",
            "（注）",
            "[main] x",
            "\\frac",
            "각 ᅡ",
            "ー",
            "一",
        ),
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """German and Chinese, lists and trees: nobody takes that for a header."""
    assert said_in_lines(f"a\n{text}\nb") == f"a\n{text}\nb"
    assert said_in_row(f"x {text}") == f"x {text}"


@pytest.mark.parametrize("text", ["── user", "—— user", "一 user", "── ", "x [main]", "✓ done", "(see below)"])
def test_what_passes_for_no_mark_of_a_row_stays_as_it_is(text: str) -> None:
    """In a list no line is a header's."""
    assert said_in_row(text) == text


def test_bookmarks_cannot_look_like_others() -> None:
    assert marked(["a\x1b, b\n[", "a\\x1b"]) == "[a\\x1b\\, b \\[, a\\\\x1b]"
    assert marked(["ma\u034fin", "main\ufe0f", "\u2800", "main"]) == "[ma\\u034fin, main\\ufe0f, \\u2800, main]"


def test_one_line_folds_blanks() -> None:
    """Line feeds, tabs and runs of blanks become one blank."""
    assert one_line(" a\n\n\tb  c\n") == "a b c"


def test_part_of_a_line_keeps_its_blanks() -> None:
    """Padding stays; what would end the line or command a terminal does not."""
    assert on_line("  a\nb \x1b[2J ") == "  a b \\x1b[2J "
    assert on_line(" plain ") == " plain "


def test_first_line_skips_blank_lines_and_stops_at_a_thousand_characters() -> None:
    """The first line with something on it is given, bounded."""
    assert first_line("\n  \n hello \nworld") == "hello"
    assert first_line("x" * 5000) == "x" * 1000


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a"], "│ a"),
        (["it holds\n  signed by me\n\nb"], "│ it holds\n│   signed by me\n│ \n│ b"),
        (["a\n"], "│ a\n"),
        (["a\r", "\nb\rc\x85d\u2028e", "f\x1b\n", "g"], "│ a\n│ b\\x0dc\\x85d\\u2028ef\\x1b\n│ g"),
        (["x" * 600_000, "\ny"], "│ " + "x" * 600_000 + "\n│ y"),
        ([], ""),
    ],
)
def test_every_line_is_behind_a_bar(pieces: list[str], expected: str) -> None:
    """However a text ends its lines, and comes in pieces."""
    assert "".join(barred_pieces(pieces)) == expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("hello", 5, "hello"), ("hello", 4, "hel…"), ("漢字漢字", 8, "漢字漢字"), ("漢字漢字", 6, "漢字…"), ("hi", 0, "")],
)
def test_text_is_cut_by_terminal_cells(text: str, width: int, expected: str) -> None:
    """Wide characters count for two cells."""
    assert fit(text, width) == expected


def test_pad_fills_up_by_terminal_cells() -> None:
    """Wide characters count for two cells."""
    assert (pad("漢", 4), pad("abc", 2)) == ("漢  ", "abc")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (14 * 86400, "2w"),
        (90 * 86400, "3mo"),
        (800 * 86400, "2y"),
    ],
)
def test_age_is_short(seconds: int, expected: str) -> None:
    """Each unit gives way to the next larger one."""
    assert age(NOW - timedelta(seconds=seconds), NOW) == expected


def test_a_time_to_come_is_told_from_one_of_a_moment_ago() -> None:
    """As of a turn that came with an import; not of another computer's clock that is a little ahead."""
    ages = [age(NOW + timedelta(seconds=seconds), NOW) for seconds in (59, 61, 86400 * 3, 86400 * 365 * 73)]
    assert ages == ["0s", "+1m", "+3d", "+73y"]


def test_years_have_four_digits() -> None:
    """So that a column of times is in order."""
    assert timestamp(datetime(1, 2, 3, 4, 5, 6, 789, tzinfo=UTC)) == "0001-02-03T04:05:06Z"


def test_a_turn_without_a_time_has_no_age() -> None:
    """Ids that were made without a time hint say 1970, which is not shown."""
    epoch = datetime.fromtimestamp(0, UTC)
    assert (age(epoch, NOW), timestamp(epoch), timestamp(NOW)) == ("-", "-", "2026-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_size_has_decimal_units(count: int, expected: str) -> None:
    """Units are decimal, and the number stays below a thousand where there is a larger unit."""
    assert size(count) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_text_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Wherever lines end: no piece parts CR from LF, or a line that is shorter than a piece."""
    monkeypatch.setattr("turnlog.cli.text._PIECE", size)
    text = "one\r\n\r\ntwo\x1b\n" + "long " * 9 + "\r\n\n"
    assert "".join(line_pieces((text,))) == "".join(line_pieces(text)) == text
    assert "".join(said_pieces((text,))) == "".join(said_pieces(text)) == said_in_lines(printable(text))
    assert "".join(said_pieces(text, "← ")) == "← " + printable(text)
    assert ("".join(said_pieces("")), "".join(said_pieces("", "← "))) == ("", "← ")


@pytest.mark.parametrize("size", [4, 9, 13, 30])
def test_no_line_passes_for_a_header_wherever_a_piece_ends(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Also not one that is longer than a piece, and begins with signs that have no cell."""
    monkeypatch.setattr("turnlog.cli.text._PIECE", size)
    monkeypatch.setattr("turnlog.cli.text._LINE_CHARACTERS_MAX", size)
    for text in ("a\n── header", "\n\n\n── header\n", "\u00ad" * 12 + "── header", "abc\n\u200d── header"):
        lines = "".join(said_pieces(text)).replace("\u00ad", "").replace("\u200d", "").split("\n")
        assert not any(line.startswith("──") for line in lines), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "a"),
        ("a\n", "a"),
        ("a\r\n\n\r\n", "a"),
        ("\n\r\n", ""),
        ("a\n\r", "a\n\r"),
        ("a\r\r\n", "a\r"),
        ("\n\na\n\r\nb\r\n", "\n\na\n\r\nb"),
    ],
)
def test_text_in_pieces_goes_without_the_line_feeds_at_its_end(text: str, expected: str) -> None:
    """Wherever a piece ends."""
    for end in range(len(text) + 1):
        assert "".join(without_end((text[:end], text[end:]))) == expected
    assert "".join(without_end(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb\nc", "a\nb"), ("a\r\nb\r\nc\nd", "a\r\nb"), ("\n\n\n", "\n"), ("a\rb\r\r\n\r\n", "a\rb\r\r\n")],
)
def test_the_first_lines_of_text_in_pieces(text: str, expected: str) -> None:
    """Wherever a piece ends."""
    for end in range(len(text) + 1):
        assert "".join(first_lines((text[:end], text[end:]), 2)) == expected
    assert "".join(first_lines(text, 2)) == expected
