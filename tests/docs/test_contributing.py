"""The map for those who carry on leads to what is there."""

import re

import pytest
from tests.docs.pages import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT)))
FILES = sorted({path for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|toml|md))`", TEXT) if path != "wire.py"})
PACKAGE = ROOT / "src" / "turnlog"


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_somewhere(link: str) -> None:
    """From the page's own folder."""
    assert (ROOT / link).exists()


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_is_named_is_there(path: str) -> None:
    """Seen from the project, from the package, or from where the link before it leads."""
    places = (ROOT, PACKAGE, *((ROOT / link).parent for link in LINKS))
    assert any((place / path).is_file() for place in places)


def test_each_folder_of_the_package_is_on_the_map() -> None:
    """Whoever adds one says what it is for."""
    named = set(re.findall(r"`([a-z_]+)`", TEXT.partition("## Where is what")[2].partition("Tests stand")[0]))
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= named


def test_each_folder_of_the_tests_is_on_the_map() -> None:
    """Whoever adds one says what it is for."""
    named = set(re.findall(r"`tests/([a-z]+)[`/]", TEXT))
    assert {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))} <= named


def test_each_table_that_is_named_is_in_a_file_that_a_link_leads_to() -> None:
    """Where a row is to be added: to code, or to the program of a page."""
    files = [(ROOT / link).read_text(encoding="utf-8") for link in LINKS if link.endswith((".py", ".md"))]
    tables = set(re.findall(r"`(_?[A-Z][A-Z_]{3,})`", TEXT))
    assert {"MODELS", "SAMPLES", "_COMMANDS"} <= tables
    assert {name for name in tables if not any(re.search(rf"^{name}\b", file, re.MULTILINE) for file in files)} == set()


def test_each_target_of_make_is_there() -> None:
    """As the Makefile calls it."""
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z]+)(?:`|  )", TEXT)) <= targets


@pytest.mark.parametrize("command", re.findall(r'`make test ARGS="([^"]+)"', TEXT))
def test_each_command_of_a_walk_names_tests_that_are_there(command: str) -> None:
    """On one line, so that it can be copied."""
    assert "\n" not in command
    assert [path for path in command.split() if path.startswith("tests/") and not (ROOT / path).exists()] == []
