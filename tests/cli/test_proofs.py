"""`turnlog prove` and `verify-proof`."""

import stat
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest
from tests.cli.command import STAMP, turn_id
from tests.cli.proving import NAME, SigningCommand, signing

from turnlog import TurnLog


@pytest.fixture(scope="module")
def turnlog(tmp_path_factory: pytest.TempPathFactory) -> SigningCommand:
    """Give the command with a log that has a checkpoint, for tests that only add files."""
    command = signing(tmp_path_factory.mktemp("signing"))
    command.ok("checkpoint", "-o", command.file("checkpoint"))
    return command


def events_of(path: Path) -> list[dict[str, str]]:
    line = path.read_text().split("\n")[1]
    return msgspec.json.decode(b64decode(line.removeprefix("extra ")))["events"]


def test_turn_is_proved_and_checked(turnlog: SigningCommand, tmp_path: Path) -> None:
    """The file is its owner's alone, and says what it shows to who has the key."""
    file = tmp_path / "turn.proof"
    assert turnlog.ok("prove", turn_id("c"), "-o", file).text == f"{file}  1 event shown\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = turnlog.ok("verify-proof", file, "--key", turnlog.file("keys.txt")).text.splitlines()
    with TurnLog.open(turnlog.url) as log:
        assert lines[0] == f"it holds  1 event of turnlog/{log.id}, the first at global position 4 of 6"
    assert lines[1].startswith(f"  signed by {NAME}  ")
    assert lines[2:] == [f"  {turn_id('c')}  {STAMP}  gpt.turn  private, payload"]


def test_own_keys_are_believed_by_default(turnlog: SigningCommand, tmp_path: Path) -> None:
    """And where there are none, the command asks for some."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    turnlog.ok("verify-proof", file)
    assert "--key FILE" in turnlog.refused("verify-proof", file, TURNLOG_KEYS_DIR=str(tmp_path / "none"))


def test_checking_needs_no_store(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Nor makes one."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    there = tmp_path / "nowhere.db"
    turnlog.ok("verify-proof", file, "--key", turnlog.file("keys.txt"), TURNLOG_STORE=f"sqlite:///{there}")
    assert not there.exists()


def test_thread_is_proved(turnlog: SigningCommand, tmp_path: Path) -> None:
    """All turns that it grew from."""
    file = tmp_path / "thread.proof"
    made = turnlog.ok("prove", "main", "-o", file, "--thread", "--call", "--json").json
    assert made == {"file": str(file), "bytes": file.stat().st_size}
    found = turnlog.ok("verify-proof", file, "--json").json
    assert found["holds"]
    assert {event["id"] for event in found["events"]} == {turn_id(name) for name in "abcde"}
    assert (found["index"], found["checkpoint"]["size"], found["checkpoint"]["signed_by"]) == (5, 6, [NAME])


def test_what_is_withheld_is_not_shown(turnlog: SigningCommand, tmp_path: Path) -> None:
    """A kind of it everywhere, or one of one event."""
    file = tmp_path / "withheld.proof"
    options = ("--withhold", "payload", "--withhold", f"{turn_id('b').upper()}:private")
    turnlog.ok("prove", "main", "-o", file, "--thread", *options)
    shown = {event["id"]: event for event in turnlog.ok("verify-proof", file, "--json").json["events"]}
    assert {event: found["shown"] for event, found in shown.items()} == {
        turn_id(name): [] if name == "b" else ["private"] for name in "abcde"
    }
    assert [event for event, found in shown.items() if found["withheld"]] == [turn_id("b")]
    assert "private part withheld or erased" in turnlog.ok("verify-proof", file).text
    assert not any("payload" in event for event in events_of(file))
    refused = turnlog.refused("prove", "main", "-o", tmp_path / "x", "--withhold", "header")
    assert refused == "--withhold 'header': one of private, payload, request, loss, or ID:payload"


def test_what_does_not_hold_is_said_in_a_line(turnlog: SigningCommand, tmp_path: Path) -> None:
    """With exit status 1; JSON says it too."""
    file = tmp_path / "edited.proof"
    turnlog.ok("prove", "main", "-o", file)
    file.write_text(file.read_text().replace("\nindex 5\n", "\nindex 4\n"))
    outcome = turnlog("verify-proof", file)
    assert (outcome.status, outcome.stdout) == (1, b"")
    assert outcome.stderr.startswith("turnlog: it does not hold: ")
    assert outcome.stderr.count("\n") == 1
    outcome = turnlog("verify-proof", file, "--json")
    assert (outcome.status, outcome.json["holds"]) == (1, False)
    assert outcome.json["why"] in outcome.stderr


def test_proof_of_another_key_does_not_hold(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Who signed it is somebody else."""
    file, keys = tmp_path / "turn.proof", tmp_path / "keys.txt"
    turnlog.ok("prove", "main", "-o", file)
    elsewhere = str(tmp_path / "elsewhere")
    turnlog.ok("keys", "new", "--name", NAME, TURNLOG_KEYS_DIR=elsewhere)
    keys.write_bytes(turnlog.ok("keys", "export", "--name", NAME, TURNLOG_KEYS_DIR=elsewhere).stdout)
    outcome = turnlog("verify-proof", file, "--key", keys)
    assert (outcome.status, outcome.stderr) == (
        1,
        "turnlog: it does not hold: no key that is known here has signed the note\n",
    )


@pytest.mark.parametrize("content", [b"", b"\xff", b"no proof\n", b"\x00" * 1000])
def test_what_is_no_proof_does_not_hold(turnlog: SigningCommand, tmp_path: Path, content: bytes) -> None:
    """Whatever it is."""
    file = tmp_path / "none"
    file.write_bytes(content)
    outcome = turnlog("verify-proof", file)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (1, b"", 1)


def test_files_that_are_not_there_are_usage(turnlog: SigningCommand, tmp_path: Path) -> None:
    """It is not said that a proof does not hold that nobody has read."""
    assert "no such file" in turnlog.refused("verify-proof", tmp_path / "none")
    turnlog.ok("prove", "main", "-o", tmp_path / "proof")
    assert "no such file" in turnlog.refused("verify-proof", tmp_path / "proof", "--key", tmp_path / "none")


def test_no_file_is_replaced_without_force(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Nor one of the store, ever; and nothing is written where nothing is proved."""
    file = tmp_path / "proof"
    file.write_text("mine")
    assert "--force" in turnlog.refused("prove", "main", "-o", file)
    assert file.read_text() == "mine"
    turnlog.ok("prove", "main", "-o", file, "--force")
    turnlog.ok("verify-proof", file)
    assert "a file of the store itself" in turnlog.refused("prove", "main", "-o", turnlog.store, "--force")
    turnlog.refused("prove", "nothing-of-this-name", "-o", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_growth_is_proved_and_checked(tmp_path: Path) -> None:
    """From an older checkpoint to a newer one."""
    command = signing(tmp_path)
    old, new, file = command.file("old"), command.file("new"), command.file("growth")
    command.ok("checkpoint", "-o", old)
    command.ok("add", "more", "--continues", "main")
    assert "no checkpoint covers event" in command.refused("prove", "main", "-o", file)
    command.ok("checkpoint", "-o", new)
    assert command.ok("prove", "--consistency", old, new, "-o", file).text == f"{file}  the log has only grown\n"
    text = command.ok("verify-proof", file).text
    assert " has only grown, from 6 to 7 events\n" in text
    found = command.ok("verify-proof", file, "--json").json
    assert (found["old"]["size"], found["new"]["size"], found["holds"]) == (6, 7, True)
    refused = command.refused("prove", "--consistency", new, old, "-o", command.file("other"))
    assert "name the old one first" in refused
    assert "takes two files" in command.refused("prove", "--consistency", old, "-o", command.file("other"))
    assert "takes two files" in command.refused("prove", "main", "more", "-o", command.file("other"))
    older = command.file("older.proof")
    command.ok("prove", turn_id("b"), "--checkpoint", old, "-o", older)
    assert command.ok("verify-proof", older, "--json").json["checkpoint"]["size"] == 6
