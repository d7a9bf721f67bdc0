"""The page that compares libraries says what was measured, and shows the programs that were."""

import json
import sys

import pytest
from benchmarks.agents.compare import HERE, LIBRARIES, RESULTS, measure, table
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "explanation" / "compared.md").read_text(encoding="utf-8")


def test_the_page_has_what_was_measured() -> None:
    """The table is made of the results, and names their day."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert f"Measured on {found['date']}:\n\n{table(found['libraries'])}" in PAGE


@pytest.mark.parametrize("program", ["tools.py", *(program for program, _ in LIBRARIES.values())])
def test_the_page_has_the_programs(program: str) -> None:
    """As they are run."""
    assert f"```text\n{(HERE / program).read_text(encoding='utf-8')}```\n" in PAGE


def test_turnlog_does_what_the_page_says() -> None:
    """Killed in a tool, it calls nothing twice; it keeps each request; it refuses a store that was changed."""
    said = json.loads(RESULTS.read_text(encoding="utf-8"))["libraries"]["turnlog"]
    found = measure("turnlog", sys.executable)
    passing = ("version", "bytes")
    assert {name: value for name, value in found.items() if name not in passing} == {
        name: value for name, value in said.items() if name not in passing
    }
