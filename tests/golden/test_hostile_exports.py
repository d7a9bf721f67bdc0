"""Exports that somebody has tampered with are refused, each with one line, and leave nothing."""

from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.golden import hostile_exports

from turnlog import TurnLog
from turnlog.errors import ConflictError, FormatError

FOLDER = Path(__file__).parent / "hostile" / "exports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def _refusal(name: str) -> str:
    return (FOLDER / f"{name}.err").read_text(encoding="utf-8").removesuffix("\n")


def test_golden_cases_are_those_of_the_script(tmp_path: Path) -> None:
    """Each case is there as the script makes it, and no other."""
    made = {name.replace(" ", "-"): content for name, content in hostile_exports.cases(tmp_path).items()}
    assert {name: (FOLDER / f"{name}.jsonl").read_bytes() for name in NAMES} == made
    assert {path.stem for path in FOLDER.glob("*.err")} == set(NAMES)
    assert len(NAMES) >= 80


@pytest.mark.parametrize("name", NAMES)
def test_hostile_export_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    """With the line that is expected, by an empty store and by one with a log, which stay as they are."""
    export = FOLDER / f"{name}.jsonl"
    for own in (False, True):
        path = tmp_path / f"{own}.db"
        with TurnLog.open(f"sqlite:///{path}") as log:
            if own:
                log.add_turn("mine", bookmark="main")
            before = [recorded.state for recorded in log.events()]
            with export.open("rb") as file, pytest.raises((FormatError, ConflictError)) as caught:
                log.import_turnlog(file)
            assert str(caught.value) == _refusal(name)
            assert "\n" not in str(caught.value)
            assert [recorded.state for recorded in log.events()] == before
            assert [bookmark.name for bookmark in log.bookmarks.all()] == (["main"] if own else [])
            assert log.verify().clean
        assert not list(tmp_path.glob("*-payloads/*/*"))


@pytest.mark.parametrize("make", [hostile_exports.small, hostile_exports.rich])
def test_exports_that_they_are_made_of_are_sound(tmp_path: Path, make: hostile_exports.Make) -> None:
    """Nothing but the tampering is refused."""
    with TurnLog.open("memory://") as log:
        path = tmp_path / "sound.jsonl"
        path.write_bytes(make(tmp_path))
        with path.open("rb") as file:
            assert log.import_turnlog(file).whole
        assert log.verify().clean


@pytest.mark.parametrize("name", ["deep-payload", "header-twice", "control-characters-in-a-bookmark", "two-beginnings"])
def test_command_says_it_on_one_line(tmp_path: Path, name: str) -> None:
    """With the name of the file in front, without control characters, whether there is a store or not."""
    turnlog = Command(store=tmp_path / "log.db")
    export = FOLDER / f"{name}.jsonl"
    assert turnlog.refused("import", "turnlog", export) == f"{export}: {_refusal(name)}"
    assert not turnlog.store.exists()
    turnlog.ok("add", "here")
    before = turnlog.ok("stats", "--json").json["events"]
    assert turnlog.refused("import", "turnlog", export) == f"{export}: {_refusal(name)}"
    assert turnlog.ok("stats", "--json").json["events"] == before


def test_endless_line_is_refused(tmp_path: Path) -> None:
    """A line of 200 MB that no event of the export can have is not read to its end."""
    path = tmp_path / "endless.jsonl"
    header = hostile_exports.small(tmp_path).split(b"\n", 1)[0]
    with path.open("wb") as file:
        file.write(header + b'\n{"at":1,"digest":"')
        file.seek(200_000_000, 1)
        file.write(b'"}\n')
    with TurnLog.open("memory://") as log, path.open("rb") as file:
        with pytest.raises(FormatError, match="line 2: longer than any line of this export can be"):
            log.import_turnlog(file)
        assert file.tell() < 20_000_000


def test_endless_header_is_refused(tmp_path: Path) -> None:
    """Nor is a header."""
    path = tmp_path / "endless.jsonl"
    with path.open("wb") as file:
        file.write(b'{"turnlog_export":2')
        file.seek(200_000_000, 1)
    with TurnLog.open("memory://") as log, path.open("rb") as file:
        with pytest.raises(FormatError, match="line 1: "):
            log.import_turnlog(file)
        assert file.tell() < 100_000


def test_large_document_is_taken_in(tmp_path: Path) -> None:
    """A line that is as long because its payload is so large is no longer than it can be."""
    path = tmp_path / "large.bin"
    path.write_bytes(b"\x00\xff" * 15_000_000)
    with TurnLog.open("memory://") as log, TurnLog.open("memory://") as copy:
        document = log.add_document(path, bytes_max=1 << 30)
        with (tmp_path / "large.jsonl").open("w+b") as file:
            log.export(file)
            file.seek(0)
            assert copy.import_turnlog(file).whole
        assert copy.payload(document.id) == path.read_bytes()
