"""Text for people: recorded text made safe for a terminal, and times and sizes in few characters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

_CONTROLS = re.compile(
    # C0 but tab and line feed, DEL, C1, line and paragraph separators, direction marks and overrides, surrogates; and
    # what takes no room and is in no script or emoji: zero-width blanks, fillers, tags.
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    r"\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_UNSEEN = re.compile(
    r"[\u00ad\u034f\u17b4\u17b5\u180b-\u180d\u180f\u200c\u200d\u2800\ufe00-\ufe0f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a]"
)
"""What scripts, emoji and music need, and is not seen by itself."""
_BRAILLE_BLANK = "\u2800"
_HEADER = "── "
_OURS = (_HEADER, "→ ", "← ", "(erased", "(sealed", "(thinking")
_MARKS = ("[", "→ ", "← ", "✗ ", "(damaged", "(erased", "(meta", "(sealed", "(thinking")
_BEGINNINGS: dict[tuple[str, ...], set[str]] = {
    own: {each[:end] for each in own for end in range(1, len(each) + 1)} for own in (_OURS, _MARKS)
}
_LOOKS = {
    # Lines in the middle of a cell, from edge to edge or nearly: two in a row are that of a header, for which hyphens
    # are too short. Of the wide ones one is enough.
    **dict.fromkeys("━┄┅┈┉╌╍╴╶╸╺╼╾⎯⎻⎼‒–—―﹘−ｰￚꟷⲺⲻ", "─"),  # noqa: RUF001 - that they look alike is why they are here
    **dict.fromkeys("⸺⸻－ー一⼀㇐ㅡ⚊➖", "──"),  # noqa: RUF001 - as above
    **dict.fromkeys("⟶⭢￫🡒", "→"),
    **dict.fromkeys("⟵⭠￩🡐", "←"),
    **dict.fromkeys("✕✖✘🗴🗶", "✗"),
    **dict.fromkeys("（﹙❨❪⟮", "("),  # noqa: RUF001 - as above
    **dict(zip("аеԁɡһіӏѕⅰⅼⅾ", "aedghilsild", strict=True)),  # noqa: RUF001 - no eye tells them from Latin letters
}
"""What else looks like a sign of turnlog's own lines."""
# One class of characters, and the rest of what decides without a pattern: to compile that took a tenth of a command.
# Of the characters of words, jamo have no cell where they stand by themselves, and some look like dashes.
_PERHAPS_OURS = re.compile(r"^(?:[\\(\u1161-\u11ff\ud7b0-\ud7fbー一ㅡｰￚꟷⲺⲻ]|[^\x00-\x7f\w])", re.MULTILINE)  # noqa: RUF001 - as above
_PARTS_NAMES = re.compile(r"[\[\],\\]")
_BACKSLASHED = r"\\\g<0>"
_BLANKS = re.compile(r"[\t\n ]+")
_BAR = "│ "
_PIECE = 256 * 1024
"""So many characters of a text are made printable at once."""
_LINE_CHARACTERS_MAX = 1000
"""More of a line is never looked at: no terminal is that wide."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_AGES = (
    (_MINUTE_S, 1, "s"),
    (_HOUR_S, _MINUTE_S, "m"),
    (2 * _DAY_S, _HOUR_S, "h"),
    (14 * _DAY_S, _DAY_S, "d"),
    (90 * _DAY_S, 7 * _DAY_S, "w"),
    (730 * _DAY_S, 30 * _DAY_S, "mo"),
    (float("inf"), 365 * _DAY_S, "y"),
)
UNITS_S = {name: seconds for _, seconds, name in _AGES}
"""Units in which it is said how long ago a time was, in seconds."""


def printable(text: str) -> str:
    r"""Return text whose control characters are spelled out (`\x1b`), so that it cannot command a terminal.

    Line feeds and tabs stay; CR LF becomes a line feed.
    """
    return _CONTROLS.sub(_spelled, text.replace("\r\n", "\n"))


def json_printable(text: str) -> str:
    r"""Return JSON whose control characters are spelled out as JSON has them (`\u009b`): it says the same."""
    return _CONTROLS.sub(_spelled_in_json, text)


def line_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Iterate over a text, which comes in pieces, in ones that end with a line feed unless a line is longer."""
    rest = ""
    for text in texts:
        joined, start = rest + text if rest else text, 0
        while len(joined) - start > _PIECE:
            end = start + _PIECE
            end = joined.rfind("\n", start, end) + 1 or end + (joined[end - 1 : end + 1] == "\r\n")
            yield joined[start:end]
            start = end
        rest = joined[start:]
    if rest:
        yield rest


def to_decide_on(text: str) -> str:
    """Return printable text in which nothing is unseen, for a person who is to say yes or no to what it does."""
    return _UNSEEN.sub(_spelled, printable(text))


def _spelled_in_json(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def said_in_lines(text: str) -> str:
    """Return printable text in which no line can pass for one of turnlog's own: a backslash stands before it.

    Its own are headers of turns, calls of tools and their results, and what stands for content that is not there. A
    line ends with a line feed: where a terminal goes on below with one that is too wide for it is not known here.
    """
    return _PERHAPS_OURS.sub(_backslashed, text)


def _backslashed(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if _passes_for(_OURS, found.string, found.start()) else found[0]


def _passes_for(own: tuple[str, ...], text: str, start: int = 0) -> bool:
    """Tell whether a line of a text begins for the eye as one of turnlog's own does, but for backslashes before.

    Between the characters of a header, what has no cell could not be told from nothing.
    """
    beginnings = _BEGINNINGS[own]
    line, seen = text[start : start + _LINE_CHARACTERS_MAX].partition("\n")[0], ""
    for sign in line:
        look = _look(sign)
        if sign == _BRAILLE_BLANK and f"{seen} " in beginnings:
            look = " "
        if not look or (sign == "\\" and not seen):
            continue
        if seen == _HEADER:
            return look == " " or cell_len(sign) == 1  # a Latin word is next, and none of a Chinese text
        seen += look
        if seen in own and seen != _HEADER:
            return True
        if seen not in beginnings:
            return False
    return seen == _HEADER or len(line) == _LINE_CHARACTERS_MAX  # in which there is nearly nothing to see


def _look(sign: str) -> str:
    """Return what a character looks like, or nothing for one that is not seen."""
    if sign.isspace():
        return " "
    if sign.isascii():
        return sign
    return _LOOKS.get(sign) or (sign if cell_len(sign) and not _UNSEEN.match(sign) else "")


def said_pieces(texts: Iterable[str], lead: str = "") -> Iterator[str]:
    """Iterate over text made printable, in pieces, in which no line can pass for one of turnlog's own.

    Args:
        texts: the text, which may be large, in pieces that end anywhere.
        lead: what is turnlog's own in its first line.
    """
    for piece in line_pieces(texts):
        shown = printable(piece)
        if lead:
            first, feed, rest = shown.partition("\n")
            yield lead + first + feed + said_in_lines(rest)
            lead = ""
        else:
            yield said_in_lines(shown)
    if lead:
        yield lead


def barred_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Iterate over text made printable, in pieces, each line of it behind a bar: no line of turnlog's own has one.

    Args:
        texts: the text, which may be large, in pieces that end anywhere.
    """
    bar = _BAR
    for piece in line_pieces(texts):
        shown = printable(piece)
        end = "\n" if shown.endswith("\n") else ""
        yield bar + shown.removesuffix("\n").replace("\n", f"\n{_BAR}") + end
        bar = _BAR if end else ""


def without_end(pieces: Iterable[str]) -> Iterator[str]:
    """Iterate over text in pieces, without the line feeds at its end."""
    held: list[str] = []
    for piece in pieces:
        said = piece.rstrip("\r\n")
        if said:
            yield from held
            yield said
            held.clear()
        held.append(piece[len(said) :])
    end = "".join(held)
    last = len(end)
    while end[last - 1 : last] == "\n":
        last -= 2 if end[last - 2 : last] == "\r\n" else 1
    yield end[:last]


def text_before_end(content: bytes) -> str:
    """Return a text in UTF-8 without the line end behind its last line: LF, or CR LF.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    return str(before_end(content), "utf-8")


def before_end(content: bytes) -> memoryview:
    """Return the bytes of a text without the line end behind its last line. They are not copied."""
    end = 2 if content.endswith(b"\r\n") else int(content.endswith(b"\n"))
    return memoryview(content)[: len(content) - end]


def first_lines(pieces: Iterable[str], lines: int) -> Iterator[str]:
    """Iterate over so many lines of text in pieces, without the line feed behind the last one. There must be more."""
    held = ""
    for piece in pieces:
        text = held + piece
        held = "\r" if text.endswith("\r") else ""  # it may be of a line feed
        text = text.removesuffix("\r")
        end = -1
        while lines and (found := text.find("\n", end + 1)) >= 0:
            lines, end = lines - 1, found
        if not lines:
            yield text[:end].removesuffix("\r")
            return
        yield text


def said_in_row(text: str) -> str:
    """Return the first line of a text as it stands in a row of a list, where bookmarks are marked too."""
    return f"\\{text}" if _passes_for(_MARKS, text) else text


def marked(names: Iterable[str]) -> str:
    """Return the mark of bookmarks, `[main, try]`.

    No name can pass for two, as a backslash stands before what parts them; or for another, as nothing in it is unseen.
    """
    return f"[{', '.join(_name_in_mark(name) for name in names)}]"


def _name_in_mark(name: str) -> str:
    return to_decide_on(_BLANKS.sub(" ", _PARTS_NAMES.sub(_BACKSLASHED, name)).strip())


def meta_name(name: str) -> str:
    """Return the name of a part of metadata as no fact of turnlog's own is named: whoever records chooses it."""
    return f"meta.{one_line(name)}"


def quoted(name: str) -> str:
    """Return a name as it is typed at a shell, printable."""
    return printable(shlex.quote(name))


def on_line(text: str) -> str:
    """Return text as a part of a line: printable, with blanks for line feeds. Blanks at its ends stay."""
    return text if text.isascii() and text.isprintable() else printable(text).replace("\n", " ")


def one_line(text: str) -> str:
    """Return printable text on one line: line feeds, tabs and runs of blanks become one blank."""
    return piece_of_line(text).strip()


def piece_of_line(text: str) -> str:
    """Return the same with the blanks at both ends, for text that other text stands beside."""
    return _BLANKS.sub(" ", printable(text))


def says(text: str) -> bool:
    """Tell whether there is more to a text than blanks. It is not copied for that: it may be large."""
    return bool(text) and not text.isspace()


def first_line(text: str) -> str:
    """Return the first line that is not blank, printable; at most 1,000 characters of it."""
    return one_line(text.lstrip()[:_LINE_CHARACTERS_MAX].split("\n", 1)[0])


def fit(text: str, width: int) -> str:
    """Return text cut to a width in terminal cells, with an ellipsis where something is missing."""
    if len(text) <= width and text.isascii():
        return text
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Return text filled up with blanks to a width in terminal cells."""
    return text + " " * (width - (len(text) if text.isascii() else cell_len(text)))


def age(time: datetime, now: datetime) -> str:
    """Return how long ago a time was, such as `5m` or `3d`; `+3d` for one that is to come, `-` for no time at all.

    That clocks differ by up to a minute is not told.
    """
    if time.timestamp() == 0:
        return "-"
    seconds = (now - time).total_seconds()
    to_come = "+" if seconds < -_MINUTE_S else ""
    seconds = abs(seconds) if to_come else max(seconds, 0)
    for below, unit, name in _AGES:
        if seconds < below:
            return f"{to_come}{int(seconds // unit)}{name}"
    raise AssertionError("the last age has no upper bound")


def timestamp(time: datetime) -> str:
    """Return a time in UTC to the second, such as `2026-01-02T03:04:05Z`; `-` for no time at all."""
    if time.timestamp() == 0:
        return "-"
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def size(count: int) -> str:
    """Return a number of bytes in decimal units, such as `12.3 MB`."""
    if count < 1000:
        return f"{count} B"
    value, unit = count / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 turn` or `1,200 turns`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
