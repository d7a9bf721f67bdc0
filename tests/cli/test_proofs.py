"""`turnlog prove` and `verify-proof`."""

import json
import stat
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest
from tests import proof_cases as cases
from tests.cli.command import STAMP, turn_id
from tests.cli.proving import NAME, SigningCommand, signing

from turnlog import TurnLog
from turnlog.digest import payload_hash
from turnlog.events import build, private_part
from turnlog.events.form import meta_text


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
    assert lines[2:] == [
        f"  {turn_id('c')}  {STAMP}  gpt.turn  private, payload",
        "  1 cited event is not shown",
        "  --show prints what they say",
    ]


def test_own_keys_are_believed_by_default(turnlog: SigningCommand, tmp_path: Path) -> None:
    """And where there are none, the command asks for some."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    turnlog.ok("verify-proof", file)
    assert "--key FILE" in turnlog.refused("verify-proof", file, TURNLOG_KEYS_DIR=str(tmp_path / "none"))


def test_keys_come_through_a_pipe_too(turnlog: SigningCommand, tmp_path: Path) -> None:
    """As a shell gives what another command prints (`--key <(…)`)."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    keys = turnlog.file("keys.txt").read_bytes()
    assert turnlog.ok("verify-proof", file, "--key", "/dev/stdin", stdin=keys).text.startswith("it holds")


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
    assert made == {"file": str(file), "bytes": file.stat().st_size, "events": 5, "sealed": 0, "guests": []}
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
    assert refused == "--withhold 'header': one of private, payload, request, loss, secret, or ID:payload"


def test_content_is_shown_when_asked_for(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Turns as a window has them, oldest first; what is not shown is said to be so."""
    file = tmp_path / "thread.proof"
    turnlog.ok("prove", "main", "-o", file, "--thread", "--withhold", f"{turn_id('b')}:payload")
    whole = turnlog.ok("verify-proof", file).text
    assert whole.endswith("\n  --show prints what they say\n")
    shown = turnlog.ok("verify-proof", file, "--show").text
    table, *turns = shown.split("\n── ")
    assert table.rstrip("\n") + "\n" == whole.removesuffix("  --show prints what they say\n")
    with TurnLog.open(turnlog.url) as log:
        ancestry = log.ancestry("main")
        ids = [turn.partition("  ")[2].split()[0] for turn in turns]
        assert ids == [turn.id for turn in ancestry]
        texts = {turn.id: json.loads(log.payload(turn.id))[0]["text"] for turn in ancestry}
    said = {event: turn.rstrip("\n").partition("\n")[2] for event, turn in zip(ids, turns, strict=True)}
    assert said == {**texts, turn_id("b"): "(its content is not shown)"}
    found = turnlog.ok("verify-proof", file, "--show", "--json").json["events"]
    assert {event["id"]: event.get("content", [{"text": None}])[0]["text"] for event in found} == {
        **texts,
        turn_id("b"): None,
    }
    assert "content" not in turnlog.ok("verify-proof", file, "--json").json["events"][0]


def test_content_that_is_none_is_shown_as_text(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Whoever has the key can sign anything: it commands no terminal."""
    meta = meta_text({"role": "user", "model": "\x1b[2J"})
    payload = b'[{"type":"text"}]\x1b[31m\xff'
    private = private_part({}, hash=payload_hash(payload), size=len(payload), salt=bytes(16))
    event = build(topic="gpt.turn", id="03fr9cxksbd0ufbbn4sb2e5pj", time=0, meta=meta, private=private)
    assert event.private_state is not None
    file, keys = tmp_path / "odd.proof", tmp_path / "keys.txt"
    file.write_text(cases.signed_event(event.state, private=event.private_state, payload=payload))
    keys.write_text(cases.KEYS[0])
    shown = turnlog.ok("verify-proof", file, "--show", "--key", keys).text
    assert shown.splitlines()[-2:] == [
        f"── user · \\x1b[2J  {event.header.id} · -",
        '│ [{"type":"text"}]\\x1b[31m\\xff',
    ]
    json_of = turnlog.ok("verify-proof", file, "--show", "--json", "--key", keys).json
    assert json_of["events"][0]["content"] == {"type": "bytes", "size": len(payload)}


@pytest.mark.parametrize("colour", ["", "1"])
def test_no_payload_passes_for_what_is_said_of_the_proof(tmp_path: Path, colour: str) -> None:
    """Whatever an event of a topic of one's own says: each line of it is behind a bar."""
    command = signing(tmp_path)
    forged = "reviewed\n\nit holds  8 events of turnlog/x\n  signed by trusted.example\r\n\n── user  x"
    with TurnLog.open(command.url) as log:
        event = log.add_event("acme.review", forged.encode()).header.id
    command.ok("checkpoint")
    command.ok("prove", event, "-o", tmp_path / "event.proof")
    environment = {"FORCE_COLOR": "1"} if colour else {}
    said = command.ok("verify-proof", tmp_path / "event.proof", "--show", **environment).text
    assert said.partition("\n│ ")[2].splitlines() == [
        "reviewed",
        "│ ",
        "│ it holds  8 events of turnlog/x",
        "│   signed by trusted.example",
        "│ ",
        "│ ── user  x",
    ]


def test_events_that_are_cited_and_not_shown_are_named(turnlog: SigningCommand, tmp_path: Path) -> None:
    """So that nobody takes a part for the whole."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    with TurnLog.open(turnlog.url) as log:
        parents = list(log.turn("main").continues)
    found = turnlog.ok("verify-proof", file, "--json").json
    assert (found["not_shown"], found["guests_possible"]) == (parents, False)
    turnlog.ok("prove", "main", "-o", file, "--force", "--thread")
    assert turnlog.ok("verify-proof", file, "--json").json["not_shown"] == []
    assert "not shown" not in turnlog.ok("verify-proof", file).text


def test_guests_are_told(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Who makes a proof is told which events are of another log; who checks it, that some can be."""
    with TurnLog.open(turnlog.url) as log, (tmp_path / "export").open("wb") as export:
        log.export(export)
    other = signing(tmp_path)
    other.ok("add", "mine", "-b", "mine")
    with TurnLog.open(f"sqlite:///{tmp_path}/host.db") as log, (tmp_path / "export").open("rb") as export:
        log.add_turn("mine", bookmark="mine")
        log.import_turnlog(export)
        theirs = log.turn(turn_id("b")).id
    store = ("--store", f"sqlite:///{tmp_path}/host.db")
    other.ok("checkpoint", *store)
    file = tmp_path / "guest.proof"
    said = other.ok("prove", theirs, "-o", file, *store).text.splitlines()
    assert said[1:] == ["  1 event of another log, taken in by this one: the time of such a one is what that log said"]
    assert other.ok("prove", theirs, "-o", file, "--force", *store, "--json").json["guests"] == [theirs]
    assert "  events of other logs can be among them: " in other.ok("verify-proof", file).text
    assert other.ok("verify-proof", file, "--json").json["guests_possible"] is True
    assert other.ok("prove", "mine", "-o", file, "--force", *store).text == f"{file}  1 event shown\n"


def test_text_of_a_file_that_is_refused_is_not_printed(turnlog: SigningCommand, tmp_path: Path) -> None:
    """Not more than a bit of it, on one line, and nothing that commands a terminal."""
    file = tmp_path / "turn.proof"
    turnlog.ok("prove", "main", "-o", file)
    text = file.read_text()
    extra = cases.spelled(cases.events_of(text), format="\x7f\u202e\u009b" + "ABC" * 200)
    file.write_text(cases.with_extra(text, extra))
    outcome = turnlog("verify-proof", file)
    assert (outcome.status, outcome.stderr.count("\n")) == (1, 1)
    assert not any(control in outcome.stderr for control in "\x7f\u202e\u009b")
    assert "ABCABC" in outcome.stderr
    assert len(outcome.stderr) < 200


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


@pytest.fixture
def sealed(tmp_path: Path) -> SigningCommand:
    """Give the command with a log that is sealed from its third turn on, and a checkpoint of it."""
    command = signing(tmp_path / "sealed")
    assert command("seal").status == 0
    command.ok("add", "A secret of many, many words.", "--continues", "main")
    command.ok("checkpoint")
    return command


def test_sealed_turn_is_shown_to_who_has_no_key(sealed: SigningCommand, tmp_path: Path) -> None:
    """The proof has what opens it, and nothing that opens another."""
    file, other = tmp_path / "turn.proof", str(tmp_path / "other")
    assert sealed.ok("prove", "main", "-o", file).text == f"{file}  1 event shown\n"
    options = ("verify-proof", file, "--key", sealed.file("keys.txt"))
    assert "gpt.turn  private, payload\n" in sealed.ok(*options, TURNLOG_KEYS_DIR=other).text
    assert "\nA secret of many, many words.\n" in sealed.ok(*options, "--show", TURNLOG_KEYS_DIR=other).text


def test_turn_that_stays_sealed_is_told(sealed: SigningCommand, tmp_path: Path) -> None:
    """With --withhold secret, and where its key is not here."""
    file = tmp_path / "turn.proof"
    warning = "  1 event shown sealed: nobody reads what is in there without the key\n"
    made = sealed.ok("prove", "main", "-o", file, "--withhold", "secret").text
    assert made == f"{file}  1 event shown\n{warning}"
    head = sealed.ok("show", "main", "--json").json["id"]
    keys = tmp_path / "keys"
    keys.mkdir()
    without = sealed.ok("prove", head, "-o", file, "--force", TURNLOG_KEYS_DIR=str(keys)).text
    assert without == f"{file}  1 event shown\n{warning}"
    shown = sealed.ok("verify-proof", file, "--show").text
    assert "gpt.turn  sealed, sealed payload\n" in shown
    assert shown.endswith("\n(its content is sealed)\n")
    assert sealed.ok("verify-proof", file, "--json").json["events"][0]["shown"] == ["sealed", "sealed payload"]
    assert sealed.ok("prove", head, "-o", file, "--force", "--json", "--withhold", "secret").json["sealed"] == 1


def test_secret_opens_what_is_withheld_too(sealed: SigningCommand, tmp_path: Path) -> None:
    """Whoever makes the proof is told."""
    made = sealed.ok("prove", "main", "-o", tmp_path / "turn.proof", "--withhold", "payload").text
    assert made.splitlines()[1:] == [
        "  the hash and the size of what is withheld are shown: short content can be guessed by them",
        "  the secrets of sealed events open what is withheld of them too, for who has the sealed bytes",
    ]


def test_evidence_of_a_sealed_turn(sealed: SigningCommand, tmp_path: Path) -> None:
    """It is complete where it is opened, and has the sealed bytes where not; its verifier accepts it."""
    for options, name in (((), "turns"), (("--withhold", "secret"), "payloads")):
        folder = tmp_path / name
        sealed.ok("evidence", "main", "-o", folder, *options)
        page = (folder / "index.html").read_text()
        assert ("A secret of many, many words." in page) == (name == "turns")
        assert ("Its private part and its content are sealed" in page) == (name == "payloads")
        assert len(list((folder / "payloads").glob("*.sealed")) if name == "payloads" else [1]) == 1
        done = subprocess.run(
            [sys.executable, "verify_turnlog.py", "proof.tlog-proof", "--key", "keys.txt", "--compare", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
