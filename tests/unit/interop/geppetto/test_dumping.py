"""YAML with long texts in pieces: it is what PyYAML writes of them as a whole."""

from io import BytesIO

import msgspec
import pytest

from turnlog.interop.geppetto import write_yaml
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE

TEXTS = {
    "lines": ("", "A line, and one: more 🙂.\n\n  - 漢字\n", ""),
    "lines that begin and end with others": ("\n  ", "A line.\n", "\n\n"),
    "lines without an end": ("- ", "A line.\n", "x"),
    "lines, and at the end what has escapes": ("", "A line.\n", "\t\n"),
    "lines that fold": ("", "'A' \"line\", \\ ends\r\n  with\ttwo\xa0characters \n🙂\u2028", ""),
    "a line": ("", "A 'line': as long as it is  #", ""),
    "words": ("", "abc def ", "end"),
    "a number": ("", "1234567890", ""),
    "no letters": ("", "🙂🙂 🙂\n", ""),
}


def written(text: str, long: LongStrings | None = None) -> bytes:
    """Return a record with a text in it as YAML."""
    file = BytesIO()
    write_yaml({"blocks": ["begin", {"text": text}]}, file, long=long)
    return file.getvalue()


@pytest.mark.parametrize(("begin", "text", "end"), TEXTS.values(), ids=TEXTS.keys())
def test_a_long_text_is_written_as_it_is_as_a_whole(begin: str, text: str, end: str) -> None:
    """In every style."""
    long = LongStrings()
    whole = begin + text * (PIECE * 9 // 8 // len(text)) + end
    mark = msgspec.json.decode(long.out_of_json(msgspec.json.encode(whole)))
    assert mark != whole
    assert written(mark, long) == written(whole)
