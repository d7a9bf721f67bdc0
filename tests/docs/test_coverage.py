"""Where all of the source documents is: each row of the page has tests that there are, and no field is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "reference" / "coverage.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!the document says|---)(.+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")

# By document, what in it is a name, and the names that are of the description and of no structure. The newer one of
# gpt2099 has the same, with words that run together.
NAMES = {
    "001": (r"\b([a-z]+_[a-z_]+)\b", {"message_record", "options_record", "content_block", "document_block"}),
    "002": (r"^\s*([a-zA-Z]+)\??:", {"kind"}),
    "003": (r"`(?:turns\.|engine\.|toolcontext\.)?([A-Z][a-zA-Z]+)", set[str]()),
    "004": (r"^:([a-z?-]+) #|^([A-Z][A-Za-z]+) #", set[str]()),
}


def test_each_row_names_tests_that_there_are() -> None:
    """And every line of a table is a row."""
    assert len(ROWS) == sum(line.startswith("| ") for line in TEXT.splitlines()) - TEXT.count("\n## ")
    for what, _, tests in ROWS:
        named = TEST.findall(tests)
        assert named, what
        assert TEST.sub("", tests).replace("<br>", "") == "", what
        for file, name in named:
            assert re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8")), f"{file}::{name}"


@pytest.mark.parametrize("number", sorted(NAMES))
def test_no_name_of_the_documents_is_missing(shared: Path, number: str) -> None:
    """Fields, types and values."""
    pattern, passed_over = NAMES[number]
    [document] = (shared / "seeds").glob(f"{number}_*.txt")
    found = re.findall(pattern, document.read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for each in found for name in ([each] if isinstance(each, str) else each) if name}
    assert len(names) > 15
    assert sorted(name for name in names - passed_over if not re.search(rf"\b{re.escape(name)}", TEXT)) == []
