"""`turnlog checkpoint`: sign, keep, write elsewhere, list, show, cosign; and checkpoints that come by themselves."""

import os
import shlex
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.cli.proving import NAME, SigningCommand, signing

from turnlog import TurnLog
from turnlog.audit.checkpoints import cosign, open_checkpoint
from turnlog.audit.notes import Signer, Verifier


@pytest.fixture
def turnlog(tmp_path: Path) -> SigningCommand:
    """Give the command with a key and a log of six events."""
    return signing(tmp_path)


def believed(command: SigningCommand) -> list[Verifier]:
    return [Verifier.parse(command.file("keys.txt").read_text())]


def test_checkpoint_is_signed_kept_and_written(turnlog: SigningCommand) -> None:
    """What is printed, kept and in the file is the same head."""
    file = turnlog.file("checkpoint")
    made = turnlog.ok("checkpoint", "-o", file, "--json").json
    signed = open_checkpoint(file.read_text(), believed(turnlog))
    with TurnLog.open(turnlog.url) as log:
        assert signed.checkpoint.origin == f"turnlog/{log.id}" == made["origin"]
    assert (signed.checkpoint.size, made["size"], made["signatures"]) == (6, 6, [NAME])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert turnlog.ok("checkpoint", "show").text == file.read_text() == made["note"]
    assert turnlog.ok("checkpoint", "list", "--json").json_lines == [made]
    assert turnlog.ok("verify", "--checkpoint", file, "--key", turnlog.file("keys.txt")).status == 0


def test_lines_for_people(turnlog: SigningCommand) -> None:
    """Size, root, origin, and who signed."""
    first, second = turnlog.ok("checkpoint", "--origin", "example.com/log").text.splitlines()
    assert first.startswith("6 events  ")
    assert first.endswith("  example.com/log")
    assert second == f"  signed by {NAME}"
    [line] = turnlog.ok("checkpoint", "list").text.splitlines()
    assert line.split() == ["6", first.split()[2], "example.com/log", NAME]


def test_origin_stays(turnlog: SigningCommand) -> None:
    """It is the one that was given once."""
    turnlog.ok("checkpoint", "--origin", "example.com/other")
    turnlog.ok("add", "more", "--continues", "main")
    assert turnlog.ok("checkpoint", "--json").json["origin"] == "example.com/other"


def test_same_head_is_signed_once_a_key(turnlog: SigningCommand) -> None:
    """Ed25519 has one signature of a text, so the second one is the first."""
    first = turnlog.ok("checkpoint", "--json").json
    assert turnlog.ok("checkpoint", "--json").json == first
    assert len(turnlog.ok("checkpoint", "list", "--json").json_lines) == 1


def test_places_outside_the_store(turnlog: SigningCommand) -> None:
    """A folder gets a file, a file a further note, a command the note on its standard input."""
    folder, file, taken = turnlog.file("folder"), turnlog.file("notes"), turnlog.file("taken")
    folder.mkdir()
    places = ("--to", f"{folder}/", "--to", str(file), "--to", f"command:tee {taken}")
    note = turnlog.ok("checkpoint", *places, "--json").json["note"]
    assert [path.read_text() for path in folder.iterdir()] == [note]
    assert note in file.read_text()
    assert taken.read_text() == note
    turnlog.ok("add", "more", "--continues", "main")
    turnlog.ok("checkpoint", *places)
    assert len(list(folder.iterdir())) == 2
    turnlog.ok("verify", "--checkpoint", folder, "--checkpoint", file, "--key", turnlog.file("keys.txt"))


def test_place_that_fails_is_told(turnlog: SigningCommand) -> None:
    """It is kept in the store, in the file that is asked for, and at all other places."""
    other = turnlog.file("notes")
    file = turnlog.file("note")
    line = turnlog.refused("checkpoint", "--to", "command:false", "--to", str(other), "-o", file)
    assert "is kept, but not everywhere" in line
    [kept] = turnlog.ok("checkpoint", "list", "--json").json_lines
    assert other.exists()
    assert file.read_text() == kept["note"]


def test_key_is_named_where_there_are_several(turnlog: SigningCommand) -> None:
    """By --key, or TURNLOG_CHECKPOINT_KEY."""
    turnlog.ok("keys", "new", "--name", "second")
    assert "which key? give --key NAME" in turnlog.refused("checkpoint")
    assert turnlog.ok("checkpoint", "--key", "second", "--json").json["signatures"] == ["second"]
    made = turnlog.ok("checkpoint", "--json", TURNLOG_CHECKPOINT_KEY=NAME).json
    assert made["signatures"] == [NAME]


def test_nothing_is_signed_without_a_key_or_a_log(tmp_path: Path, turnlog: SigningCommand) -> None:
    """And no store is made for it."""
    assert "turnlog keys new" in turnlog.refused("checkpoint", TURNLOG_KEYS_DIR=str(tmp_path / "none"))
    there = tmp_path / "nowhere.db"
    assert "there is no store" in turnlog.refused("checkpoint", TURNLOG_STORE=f"sqlite:///{there}")
    assert not there.exists()


def test_list_of_none(read: Command) -> None:
    """It says how to make one."""
    outcome = read("checkpoint", "list")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert "`turnlog checkpoint` signs one" in outcome.stderr
    assert "no such checkpoint" in read.refused("checkpoint", "show")


def test_show_by_size(turnlog: SigningCommand) -> None:
    """The last one, or the one of a size."""
    first = turnlog.ok("checkpoint", "--json").json["note"]
    turnlog.ok("add", "more", "--continues", "main")
    second = turnlog.ok("checkpoint", "--json").json["note"]
    assert turnlog.ok("checkpoint", "show").text == second
    assert turnlog.ok("checkpoint", "show", "6").text == first
    assert "no such checkpoint" in turnlog.refused("checkpoint", "show", "5")


def test_no_file_is_replaced_without_force(turnlog: SigningCommand) -> None:
    """But it is signed and kept all the same, so a second try has the same note."""
    file = turnlog.file("checkpoint")
    file.write_text("mine")
    assert "--force" in turnlog.refused("checkpoint", "-o", file)
    assert file.read_text() == "mine"
    turnlog.ok("checkpoint", "-o", file, "--force")
    assert file.read_text() == turnlog.ok("checkpoint", "show").text


def test_cosignatures_are_taken_in(turnlog: SigningCommand) -> None:
    """Those of witnesses that are known, and of checkpoints that the store keeps."""
    witness = Signer.generate("witness.example/w")
    note = turnlog.ok("checkpoint", "--json").json["note"]
    body = note[: note.rindex("\n\n") + 1]
    turnlog.file("witness.txt").write_text(witness.cosigner_verifier.vkey + "\n")
    turnlog.file("cosigned").write_text(f"{body}\n{cosign(body, witness, 1_773_600_000)}\n")
    options = ("checkpoint", "cosign", turnlog.file("cosigned"), "--key", turnlog.file("witness.txt"))
    assert turnlog.ok(*options).text == f"6  signed by {NAME}, witness.example/w\n"
    kept = turnlog.ok("checkpoint", "show").text
    keys = [*believed(turnlog), witness.cosigner_verifier]
    assert open_checkpoint(kept, keys).cosigned_by == [("witness.example/w", 1_773_600_000)]
    made = turnlog.ok(*options, "--json").json
    assert (made["note"], made["signatures"]) == (kept, [NAME, "witness.example/w"])
    assert turnlog.refused(*options[:-1], turnlog.file("keys.txt")) == (
        f"{turnlog.file('cosigned')}: none of the cosignatures is of a witness that is known here"
    )
    other = body.replace("\n6\n", "\n5\n")
    turnlog.file("cosigned").write_text(f"{other}\n{cosign(other, witness, 1)}\n")
    assert "the store keeps no such checkpoint of 5 events" in turnlog.refused(*options)


def test_changed_log_is_not_signed_again(turnlog: SigningCommand) -> None:
    """What was signed before is to stay true."""
    turnlog.ok("checkpoint")
    database = sqlite3.connect(turnlog.store)
    triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    with database:
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM stored_events WHERE notification_id = 6")
        for _, sql in triggers:
            database.execute(sql)
    database.close()
    outcome = turnlog("checkpoint")
    assert outcome.status == 2
    assert "turnlog verify" in outcome.stderr
    assert len(turnlog.ok("checkpoint", "list", "--json").json_lines) == 1


def test_checkpoints_come_by_themselves(turnlog: SigningCommand) -> None:
    """Where the environment says how often, and to where."""
    notes = turnlog.file("notes")
    every = {"TURNLOG_CHECKPOINT_EVERY": "1", "TURNLOG_CHECKPOINT_TO": f"'{notes}'"}
    turnlog.ok("checkpoint")  # else what is there may get one of its own, before the turn comes
    turnlog.ok("add", "more", "--continues", "main", **every)
    assert [one["size"] for one in turnlog.ok("checkpoint", "list", "--json").json_lines] == [6, 7]
    assert turnlog.ok("checkpoint", "show").text in notes.read_text()
    outcome = turnlog("add", "more", TURNLOG_CHECKPOINT_TO=str(notes))
    assert outcome.status == 0
    assert outcome.stderr == (
        "turnlog: no checkpoint is made: TURNLOG_CHECKPOINT_TO says where to, "
        "and TURNLOG_CHECKPOINT_EVERY not how often\n"
    )
    line = turnlog.refused("add", "more", TURNLOG_CHECKPOINT_EVERY="often")
    assert "TURNLOG_CHECKPOINT_EVERY is 'often'" in line


def test_what_a_place_says_commands_no_terminal(turnlog: SigningCommand) -> None:
    """It fails with what it likes on standard error: that is told on one line, and the turn is recorded."""
    turnlog.ok("checkpoint")
    place = "command:sh -c 'printf \"a\\033[2Jb\\rc\" >&2; exit 3'"
    every = {"TURNLOG_CHECKPOINT_EVERY": "1", "TURNLOG_CHECKPOINT_TO": shlex.quote(place)}
    outcome = turnlog("add", "more", "--continues", "main", **every)
    assert outcome.status == 0
    [line] = outcome.stderr.splitlines()
    assert line.startswith("turnlog: a checkpoint failed: ")
    assert line.endswith("command:sh: it ended with status 3: a\\x1b[2Jb\\x0dc")


def test_home_folder_of_nobody_is_no_place(turnlog: SigningCommand) -> None:
    """One line, wherever it is named."""
    place = "~nobody-of-this-name/notes"
    line = f"{place!r}: nobody of that name has a home folder here"
    assert turnlog.refused("checkpoint", "--to", place) == line
    every = {"TURNLOG_CHECKPOINT_EVERY": "1", "TURNLOG_CHECKPOINT_TO": f"'{place}'"}
    assert turnlog.refused("add", "more", **every) == line


def test_id_is_printed_before_a_place_outside_is_done(turnlog: SigningCommand) -> None:
    """The place takes what it needs: whoever waits for the id has it by then."""
    gate = turnlog.file("gate")
    os.mkfifo(gate)
    turnlog.ok("checkpoint")  # else what is there may get one of its own, before the turn comes
    every = {"TURNLOG_CHECKPOINT_EVERY": "1", "TURNLOG_CHECKPOINT_TO": f"'command:cat {gate}'"}
    with turnlog.begin("add", "more", "--continues", "main", **every) as process:
        assert process.stdout is not None
        assert b" user turn on main" in process.stdout.readline()
        assert process.poll() is None
        with gate.open("w"):
            pass  # the place ends once somebody has opened it
        assert process.wait(60) == 0
    assert [one["size"] for one in turnlog.ok("checkpoint", "list", "--json").json_lines] == [6, 7]


def test_a_folder_without_a_checkpoint_is_not_taken_for_an_anchor(turnlog: SigningCommand) -> None:
    """A volume that is not mounted is one."""
    folder = turnlog.file("folder")
    folder.mkdir()
    outcome = turnlog("verify", "--checkpoint", folder, "--key", turnlog.file("keys.txt"))
    assert (outcome.status, outcome.text.split()[0]) == (1, "incomplete")
    assert outcome.stderr == f"turnlog: a checkpoint was not used: {folder}: there is no checkpoint in it\n"


def test_checkpoint_that_cannot_be_used_keeps_none_from_being_used(turnlog: SigningCommand) -> None:
    """It is told, the exit status is 1, and the log is compared with the others."""
    folder = turnlog.file("folder")
    folder.mkdir()
    turnlog.ok("checkpoint", "-o", folder / "good")
    (folder / "other").write_text((folder / "good").read_text().replace(f"— {NAME} ", "— somebody "))
    (folder / "text").write_text("no checkpoint\n")
    options = ("verify", "--checkpoint", folder, "--key", turnlog.file("keys.txt"))
    outcome = turnlog(*options)
    assert outcome.status == 1
    first, *facts = outcome.text.splitlines()
    assert first.startswith("incomplete  6 events")
    assert first.endswith("every byte is as it was recorded, and 2 checkpoints could not be used")
    assert "  anchored     up to global position 6" in facts
    assert outcome.stderr.splitlines() == [
        f"turnlog: a checkpoint was not used: {folder}/other: no key that is known here has signed the note",
        f"turnlog: a checkpoint was not used: {folder}/text: "
        "a signed note is a text, an empty line, and signature lines",
    ]
    report = turnlog(*options, "--json").json
    assert (report["clean"], report["damage"], report["anchored"]) == (False, [], 6)
    assert [line.partition(": ")[0] for line in report["unusable_checkpoints"]] == [
        str(folder / "other"),
        str(folder / "text"),
    ]
    (folder / "other").unlink()
    (folder / "text").unlink()
    assert turnlog.ok(*options, "--json").json["unusable_checkpoints"] == []
