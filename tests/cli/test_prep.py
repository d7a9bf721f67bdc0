"""`turnlog prep`."""

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.cli.command import Command

NO_ORIGIN = "turnlog: no origin: not in a git repository\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a folder with two files that is not in a repository."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("1 < 2\n")
    (root / "caf\u00e9.txt").write_text("b")
    return root


def _paths(xml: bytes) -> list[str]:
    return [file.attrib["path"] for file in ET.fromstring(xml).iter("file")]


def test_document_goes_into_the_log(turnlog: Command, tmp_path: Path) -> None:
    """`git ls-files | turnlog prep | turnlog add -`: files that git names are in the turn, with where they are from."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "caf\u00e9.txt").write_text("1 < 2\n")
    environment = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "-m", "one")):
        subprocess.run(["git", *arguments], cwd=root, env=environment, check=True)
    listing = subprocess.run(["git", "ls-files"], cwd=root, env=environment, check=True, capture_output=True).stdout
    prepared = turnlog.ok("prep", "--root", root, "--instructions", "Explain.", stdin=listing)
    turn = turnlog.ok("add", "-", "--json", stdin=prepared.stdout).json
    [block] = turnlog.ok("cat", turn["id"]).json
    document = ET.fromstring(block["text"])
    assert [element.tag for element in document] == ["origin", "instructions", "files"]
    assert document.findtext("origin/dirty") == "false"
    assert document.findtext("files/file") == "1 < 2\n"
    assert str(tmp_path) not in block["text"]


@pytest.mark.parametrize("argument", [(), ("-",)])
def test_paths_are_read_from_standard_input(turnlog: Command, root: Path, argument: tuple[str, ...]) -> None:
    """One a line, as git quotes them or as they are."""
    listing = b'"caf\\303\\251.txt"\na.txt\n'
    outcome = turnlog("prep", *argument, "--root", root, stdin=listing)
    assert (outcome.status, outcome.stderr, _paths(outcome.stdout)) == (0, NO_ORIGIN, ["caf\u00e9.txt", "a.txt"])


@pytest.mark.parametrize("option", ["-0", "--null"])
def test_paths_may_end_with_a_nul(turnlog: Command, root: Path, option: str) -> None:
    """As `git ls-files -z` prints them."""
    outcome = turnlog("prep", option, "--root", root, stdin="a.txt\0caf\u00e9.txt\0".encode())
    assert (outcome.status, _paths(outcome.stdout)) == (0, ["a.txt", "caf\u00e9.txt"])


def test_paths_may_be_arguments(turnlog: Command, root: Path) -> None:
    """Standard input is not read then; what cannot be embedded is on standard error, too."""
    outcome = turnlog("prep", "a.txt", "gone.txt", "--root", root, "--bytes-max", "5", "--", "-x", stdin=b"other")
    assert (outcome.status, _paths(outcome.stdout)) == (0, ["a.txt", "gone.txt", "-x"])
    assert outcome.stderr == (
        NO_ORIGIN
        + "turnlog: 'a.txt': too large: 6 bytes, more than 5\n"
        + "turnlog: 'gone.txt': missing\n"
        + "turnlog: '-x': missing\n"
    )


def test_instructions_may_be_in_a_file(turnlog: Command, root: Path, tmp_path: Path) -> None:
    """Named after an @; one line feed at its end is dropped."""
    (tmp_path / "task.md").write_text("Do\nit.\n\n")
    outcome = turnlog("prep", "a.txt", "--root", root, "--instructions", f"@{tmp_path / 'task.md'}")
    assert ET.fromstring(outcome.stdout).findtext("instructions") == "Do\nit.\n"


def test_document_is_a_value_for_programs(turnlog: Command, root: Path) -> None:
    """With what was reported."""
    outcome = turnlog("prep", "a.txt", "gone.txt", "--root", root, "--json")
    assert outcome.json["notes"] == ["no origin: not in a git repository", "'gone.txt': missing"]
    assert _paths(outcome.json["document"].encode()) == ["a.txt", "gone.txt"]


def test_prep_refuses_what_it_cannot_do(turnlog: Command, root: Path, tmp_path: Path) -> None:
    """No files, no folder, instructions that are not there or not text."""
    assert turnlog.refused("prep") == "standard input is empty: there are no files to print"
    assert turnlog.refused("prep", "-", "a", stdin=b"b") == (
        "- stands for the paths on standard input: give it alone, or give PATHS"
    )
    assert turnlog.refused("prep", "a", "--bytes-max", "-1") == "--bytes-max -1: bytes, from 0"
    assert turnlog.refused("prep", "a", "--root", tmp_path / "gone") == (
        f"--root: there is no folder {str(tmp_path / 'gone')!r}"
    )
    assert "no such file" in turnlog.refused("prep", "a", "--instructions", f"@{tmp_path / 'gone'}")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert turnlog.refused("prep", "a", "--instructions", f"@{tmp_path / 'latin'}") == (
        f"--instructions: {str(tmp_path / 'latin')!r} is not UTF-8 (byte 3)"
    )
