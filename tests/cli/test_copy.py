"""`turnlog copy`: what it prints, what it makes and what it refuses."""

from pathlib import Path

import pytest
from tests.cli.command import Command, write_conversation
from tests.cli.proving import signing

from turnlog import TurnLog


@pytest.fixture
def log_url(turnlog: Command) -> str:
    """Give the URL of the log of `write_conversation`."""
    write_conversation(turnlog.url)
    return turnlog.url


def test_log_is_copied_there_and_back(turnlog: Command, log_url: str, kept_postgres_url: str, tmp_path: Path) -> None:
    """From SQLite to PostgreSQL and back: what it exports is the same."""
    back = f"sqlite:///{tmp_path}/back/log.db"
    first, second = turnlog.ok("copy", log_url, kept_postgres_url).text.splitlines()
    assert first == "6 events copied, 0 there before"
    assert second.startswith("  the target is that log: 6 events compared, root sha256-")
    report = turnlog.ok("copy", kept_postgres_url, back, "--json").json
    with TurnLog.open(log_url) as log:
        assert report == {
            "log": log.id,
            "events": 6,
            "added": 6,
            "known": 0,
            "erased": 0,
            "checkpoints": 0,
            "root": second.rpartition(" ")[2],
            "since": 0,
            "remains": None,
        }
    assert turnlog.ok("verify", "--store", back).text.startswith("clean  6 events")
    assert turnlog.ok("export", "--store", back).stdout == turnlog.ok("export").stdout
    assert turnlog.ok("copy", log_url, back).text.startswith("0 events copied, 6 there before\n")


def test_checkpoint_from_outside_holds(tmp_path: Path) -> None:
    """The checkpoint that was written elsewhere is one of the copy, and it is kept in it too."""
    command = signing(tmp_path)
    command.ok("checkpoint", "-o", command.file("checkpoint"))
    target = f"sqlite:///{tmp_path}/copy.db"
    assert "  1 checkpoint copied\n" in command.ok("copy", command.url, target).text
    keys = command.file("keys.txt")
    command.ok("verify", "--store", target, "--checkpoint", command.file("checkpoint"), "--key", keys)
    assert command.ok("checkpoint", "show", "--store", target).stdout == command.ok("checkpoint", "show").stdout


def test_erasures_are_told(turnlog: Command, log_url: str, tmp_path: Path) -> None:
    """What was erased since the last copy is erased there, and a line says so."""
    target = f"sqlite:///{tmp_path}/copy.db"
    turnlog.ok("copy", log_url, target)
    turnlog.ok("erase", "--turn", "try", "--reason", "asked", "--yes")
    assert (
        "  1 event erased there, as they have been here since the last copy\n"
        in turnlog.ok("copy", log_url, target).text
    )


def test_what_is_left_of_an_erasure_is_told(turnlog: Command, log_url: str, kept_postgres_url: str) -> None:
    """By the exit status too: on a server, where the tables' files keep it."""
    turnlog.ok("copy", log_url, kept_postgres_url)
    turnlog.ok("erase", "--turn", "try", "--reason", "asked", "--yes")
    outcome = turnlog("copy", log_url, kept_postgres_url)
    assert (outcome.status, "1 event erased there" in outcome.text) == (1, True)
    assert "`turnlog erase --finish` writes the tables anew" in outcome.stderr


def test_wrong_use_is_refused(turnlog: Command, log_url: str, tmp_path: Path) -> None:
    """In one line, and no store is made."""
    other = f"sqlite:///{tmp_path}/other.db"
    for arguments, said in (
        ((other, log_url), "there is no store at"),
        ((log_url, log_url), "are the same store: nothing was copied"),
        ((log_url, "somewhere"), "is not a store URL"),
        ((log_url,), "DST"),
        ((log_url, other, "--store", log_url), "no --store"),
    ):
        failed = turnlog("copy", *arguments)
        assert (failed.status, failed.stdout, len(failed.stderr.splitlines())) == (2, b"", 1)
        assert said in failed.stderr.replace("TARGET", "DST")
    assert not (tmp_path / "other.db").exists()


def test_other_log_is_refused(turnlog: Command, log_url: str, tmp_path: Path) -> None:
    """In one line, and it stays as it is."""
    other = f"sqlite:///{tmp_path}/other.db"
    turnlog.ok("add", "of another log", "--store", other)
    before = turnlog.ok("export", "--store", other).stdout
    failed = turnlog("copy", log_url, other)
    assert (failed.status, failed.stdout) == (2, b"")
    assert failed.stderr.startswith("turnlog: the target has another log, '")
    assert turnlog.ok("export", "--store", other).stdout == before


def test_report_that_cannot_be_printed_is_told(turnlog: Command, log_url: str, tmp_path: Path) -> None:
    """The copy is whole all the same."""
    target = f"sqlite:///{tmp_path}/copy.db"
    done = turnlog.into("/dev/full", "copy", log_url, target)
    assert done.status == 2
    assert "all is copied, 6 events, but that could not be printed" in done.stderr
    assert turnlog.ok("verify", "--store", target).status == 0
