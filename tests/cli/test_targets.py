"""Files that commands write: never over the store, never over another file unasked."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import TIMEOUT_S, Command, write_conversation

from turnlog import TurnLog
from turnlog.cli.failures import UsageError
from turnlog.cli.options import Common
from turnlog.cli.targets import new_file

WINDOW = b'{"messages":[{"role":"user","content":[{"type":"text","text":"Hello"}]}],"options":{}}'


@pytest.fixture
def filled(turnlog: Command, tmp_path: Path) -> Command:
    """Give the command with a store that has a payload file."""
    write_conversation(turnlog.url)
    (tmp_path / "large.bin").write_bytes(os.urandom(100_000))
    with TurnLog.open(turnlog.url) as log:
        log.add_document(tmp_path / "large.bin")
    return turnlog


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _arguments(command: str, path: Path, window: Path) -> list[str]:
    """Return a command line that writes a file."""
    if command == "export":
        return ["export", "-o", str(path), "--force"]
    return ["wire", "prepare", str(window), "--provider", "anthropic", "--model", "m", "--report", str(path), "--force"]


KINDS = ("itself", "log", "index", "symlink", "payload", "in payloads", "dotted")


@pytest.mark.parametrize(
    ("command", "kind"), [*(("export", kind) for kind in KINDS), ("wire", "itself"), ("wire", "hard link")]
)
def test_files_of_the_store_are_never_written(filled: Command, tmp_path: Path, command: str, kind: str) -> None:
    """By whatever name, forced or not; nothing changes."""
    window = tmp_path / "window.json"
    window.write_bytes(WINDOW)
    store, payloads = filled.store, tmp_path / "log.db-payloads"
    [payload] = [path for path in payloads.glob("??/*") if path.is_file()]
    (tmp_path / "link").symlink_to(store)
    if kind == "hard link":  # a store with one is not opened
        (tmp_path / "hard").hardlink_to(store)
    (tmp_path / "hard payload").hardlink_to(payload)
    (tmp_path / "folder").mkdir()
    path = {
        "itself": store,
        "log": tmp_path / "log.db-wal",
        "index": tmp_path / "log.db-shm",
        "symlink": tmp_path / "link",
        "hard link": tmp_path / "hard",
        "payload": tmp_path / "hard payload",
        "in payloads": payloads / "export.jsonl",
        "dotted": tmp_path / "folder" / ".." / "log.db",
    }[kind]
    before = _content(tmp_path)
    refusal = f"{str(path)!r} is a file of the store itself: write to another one"
    assert filled.refused(*_arguments(command, path, window)) == refusal
    assert _content(tmp_path) == before


def test_store_behind_a_link_is_known(filled: Command, tmp_path: Path) -> None:
    """The file is the store, whichever of the two has the other name."""
    link = tmp_path / "other name.db"
    link.symlink_to(filled.store)
    through = Command(store=link)
    assert "is a file of the store itself" in through.refused("export", "-o", filled.store, "--force")
    assert "is a file of the store itself" in through.refused("export", "-o", link, "--force")


@pytest.mark.parametrize("command", ["export", "wire"])
def test_file_that_is_there_is_replaced_with_force_only(filled: Command, tmp_path: Path, command: str) -> None:
    """And then as a whole, for its owner alone."""
    window, path = tmp_path / "window.json", tmp_path / "file"
    window.write_bytes(WINDOW)
    path.write_bytes(b"precious")
    path.chmod(0o644)
    arguments = _arguments(command, path, window)
    refusal = f"there is a file {str(path)!r} already: name another one, or replace it with --force"
    assert filled.refused(*arguments[:-1]) == refusal
    assert path.read_bytes() == b"precious"
    filled.ok(*arguments)
    assert json.loads(path.read_bytes().splitlines()[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_link_is_written_through(filled: Command, tmp_path: Path) -> None:
    """What a symbolic link leads to is replaced, and the link stays."""
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    filled.ok("export", "-o", link)
    assert link.is_symlink()
    assert file.read_bytes() == filled.ok("export").stdout
    assert "already" in filled.refused("export", "-o", link)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        (".", "'.' is a folder: name a file in it"),
        ("nowhere/file", "'nowhere/file' cannot be written: there is no folder "),
        ("circle", "'circle': the symbolic links lead in a circle"),
    ],
)
def test_what_cannot_be_a_file_is_refused(
    filled: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, refusal: str
) -> None:
    """With the name that was given."""
    monkeypatch.chdir(tmp_path)
    Path("circle").symlink_to("circle")
    assert filled.refused("export", "-o", name).startswith(refusal)


def test_report_is_not_mixed_into_the_request(filled: Command) -> None:
    """Standard output has the request."""
    arguments = ("wire", "prepare", "-", "--provider", "anthropic", "--model", "m")
    assert filled.refused(*arguments, "--report", "-", stdin=WINDOW) == (
        "--report: name a file, standard output has the request"
    )


def test_full_disk_leaves_no_file(filled: Command, tmp_path: Path) -> None:
    """An export that does not fit is not there at all."""
    limited = tmp_path / "limited"
    limited.mkdir()
    before = sorted(tmp_path.rglob("*"))
    # The index of the write-ahead log has 32 KiB, the export more than 100 kB.
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); "
    program += "from turnlog.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "export", "-o", limited / "out.jsonl"],
        capture_output=True,
        env=filled.environment(),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (2, f"turnlog: '{limited}/out.jsonl': file too large\n")
    assert sorted(tmp_path.rglob("*")) == before
    with TurnLog.open(filled.url) as log:
        assert log.verify().clean


def test_full_disk_is_told_where_standard_output_has_no_buffer(filled: Command, tmp_path: Path) -> None:
    """The last piece fits in part, and is not taken for written."""
    whole = len(filled("export").stdout)
    program = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({whole - 1}, {whole - 1})); "
    program += "from turnlog.cli import main; sys.exit(main())"
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-u", "-c", program, "export"],
            stdout=out,
            stderr=subprocess.PIPE,
            env=filled.environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stderr.decode()) == (
        2,
        "turnlog: standard output cannot be written: file too large\n",
    )


def test_pipe_or_device_that_is_full_is_named(filled: Command) -> None:
    """As a file is."""
    path = Path("/dev/full")
    assert filled.refused("export", "-o", str(path)) == "'/dev/full': no space left on device"


def _no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "not permitted")


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Somebody else took the name while this one was written, on a file system with hard links or without."""
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    path = tmp_path / "out"

    def write(theirs: bytes | None, *, force: bool) -> None:
        with new_file(path, Common(store="memory://"), force=force) as file:
            file.write(b"mine")
            if theirs is not None:
                path.write_bytes(theirs)

    write(None, force=False)
    assert path.read_bytes() == b"mine"
    path.unlink()
    with pytest.raises(UsageError, match="already"):
        write(b"theirs", force=False)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]
    write(b"theirs again", force=True)
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is a folder in which not even root can make a file")
def test_file_that_cannot_be_made_is_named(turnlog: Command) -> None:
    """And not the temporary one, of which nobody has heard."""
    turnlog.ok("add", "hi")
    assert turnlog.refused("export", "-o", "/proc/x.jsonl").startswith("'/proc/x.jsonl': ")
