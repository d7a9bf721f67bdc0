"""Every command and snippet of the documentation runs, and prints what the page shows."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import POSTGRES_ADDRESS, ROOT, Reader, blocks, commands, matches
from tests.servers.postgres import missing

import turnlog
from turnlog.cli.app import build_app

APP = build_app()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
STORIES = [
    page
    for page in PAGES
    # The programs of the log format take a file and are run by test_log_format.py.
    if page.name != "log-format.md" and any(block.language in ("python", "console") for block in blocks(page))
]
LANGUAGES = {"python", "console", "sh", "sql", "json", "text", "toml"}


PROGRAMS = ("curl", "git", "jq")
"""Programs that pages use and that not every machine has."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def programs(page: Path) -> list[str]:
    """Return the programs of others that the commands of a page use."""
    typed = " ".join(command for block in blocks(page) if block.language == "console" for command, _ in commands(block))
    return [program for program in PROGRAMS if re.search(rf"(?<![\w.-]){program} ", typed)]


@pytest.mark.timeout(300)  # a page is many processes, one after the other
@pytest.mark.parametrize("page", STORIES, ids=name)
def test_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following a page from top to bottom in an empty folder works, and gives the output that it shows."""
    for program in programs(page):
        if shutil.which(program) is None:
            pytest.skip(f"{name(page)} uses {program}, which is not installed")
    if POSTGRES_ADDRESS in page.read_text(encoding="utf-8") and (reason := missing()):
        pytest.skip(reason)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    with Reader(tmp_path) as reader:
        for block in blocks(page):
            reader.follow(block, page)


def test_essay_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick start in the module's docstring runs."""
    page = tmp_path / "essay.md"
    page.write_text(turnlog.__doc__ or "", encoding="utf-8")
    [block] = blocks(page)
    assert block.language == "python"
    monkeypatch.chdir(tmp_path)
    with Reader(tmp_path) as reader:
        reader.follow(block, page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_fences_are_of_a_known_language(page: Path) -> None:
    """Each block says what it is, so that no snippet escapes these tests."""
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the repository names one that is there, and a heading of it that is there."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(file), f"{target}: no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made from the headings' text."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_of_commands_exist(page: Path) -> None:
    """Each `turnlog COMMAND --option` that a page names, or shows without running it, is of that command."""
    unknown = {line for line in named_commands(page) if not options(line) <= options_of(line)}
    assert unknown == set()


def test_commands_with_options_are_seen() -> None:
    """In prose, and in what is shown without running it."""
    page = ROOT / "docs" / "how-to" / "run-a-witness.md"
    assert "witness --key witness.example/w --log log.vkey --state witness-state" in named_commands(page)
    assert "add --blocks" in named_commands(ROOT / "docs" / "reference" / "coverage.md")
    assert not options("add --content-json") <= options_of("add --content-json")


def named_commands(page: Path) -> Iterator[str]:
    """Give the command lines of turnlog with options in a page's backquotes and `text` blocks, without `turnlog`."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    shown = [command for block in blocks(page) if block.language == "text" for command in typed(block.text)]
    for line in [*re.findall(r"`turnlog ([^`]+)`", prose), *shown]:
        one = " ".join(re.split(r" -- | [|>] ", line)[0].split())
        if options(one):
            yield one


def typed(text: str) -> list[str]:
    """Return the command lines of turnlog in what a terminal shows."""
    return [found.replace("\\\n> ", "") for found in re.findall(r"^\$ turnlog (.*(?:\n> .*)*)", text, re.MULTILINE)]


def options(line: str) -> set[str]:
    """Return the options of a command line."""
    return set(re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", re.sub(r"'[^']*'|\"[^\"]*\"", "", line)))


def options_of(line: str) -> set[str]:
    """Return the options that the command of a line takes; those of turnlog itself where it names none."""
    app = APP
    for word in line.split():
        if word.startswith("-") or word not in app:
            break
        app = app[word]
    if app is APP:
        return {name for name in APP if name.startswith("-")}
    arguments = [] if app.default_command is None else app.assemble_argument_collection()
    return {"--help", "--store", "--json"}.union(*(argument.names for argument in arguments))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    """Each `make` that a page tells to type is a target that make knows."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.splitlines():
                command = line.partition("#")[0].split()
                assert command[:1] == ["make"], f"line {block.line}: a sh block holds make commands only: {line}"
                done = subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, capture_output=True, check=False)
                assert done.returncode == 0, done.stderr.decode()


def test_every_decision_is_listed() -> None:
    """The list of decisions names each decision, with the number, the title and the status that it has."""
    listed = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    files = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    for file in files:
        title, status = re.match(r"# \d{4} (.+)\n\nStatus: (\w+)", file.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
        assert f"| [{file.name[:4]}]({file.name}) | {title} | {status} |" in listed
    assert [file.name[:4] for file in files] == [f"{number:04}" for number in range(1, len(files) + 1)]


@pytest.mark.parametrize(
    ("actual", "shown", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a\nb\nc\nd\n", "a\n...\nd\n", True),
        ("a\nb\nc\n", "a\n...\nd\n", False),
        ("turn 03fr9cxksbd0ufbbn4sb2e5pj\n", "turn 0aaaaaaaaaaaaaaaaaaaaaaaa\n", True),
        ("turn 03fr9cxksbd0ufbbn4sb2e5pj\n", "turn main\n", False),
        ("→ a\n← 1\n← 2\nend\n", "→ a\n← 2\n← 1\nend\n", True),
        ("→ a\n→ b\n", "→ b\n→ a\n", False),
    ],
)
def test_comparison_of_output(actual: str, shown: str, same: bool) -> None:
    """Ids and the order of results may differ, and three dots stand for any lines; everything else counts."""
    assert matches(actual, shown) is same
