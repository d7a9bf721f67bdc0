"""`turnlog evidence`: a folder for an auditor, whole or not at all, that shows only what its proof holds for."""

import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from tests import proof_cases as cases
from tests.cli.command import turn_id
from tests.cli.proving import NAME, SigningCommand, signing
from tests.docs.pages import ROOT
from tests.golden import generate

from turnlog import TurnLog
from turnlog.audit.proofs import PROOF
from turnlog.cli.evidence import verifier_source
from turnlog.digest import payload_hash
from turnlog.events import build, private_part
from turnlog.events.form import meta_text
from turnlog.model import ReplyFacts, decode_content

SOURCE = ROOT / "tools" / "verify_turnlog.py"
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</pre></article><iframe src='https://example.com'></iframe>",
    "\x1b[31mred\x1b[0m \u202eright to left\u202c & &amp; \"quotes\" 'too'",
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> SigningCommand:
    """Give the command with a log that has one of everything, hostile texts too, and a checkpoint."""
    folder = tmp_path_factory.mktemp("filled")
    store = folder / "log.db"
    generate.fill(store)
    command = SigningCommand(store=store)
    with TurnLog.open(command.url) as log:
        for text in HOSTILE:
            log.add_turn(text, continues="talk", inherited={"note": text}, provider_ptr=text)
        (folder / "page.html").write_text(HOSTILE[0])
        log.add_document(folder / "page.html", continues="talk")
        document = {"type": "document", "source": {"type": "base64", "media_type": HOSTILE[0], "data": "AA=="}}
        blocks = [
            {"type": "tool_use", "id": HOSTILE[0], "name": HOSTILE[0], "input": {HOSTILE[0]: [HOSTILE[1]]}},
            {
                "type": "tool_result",
                "tool_use_id": HOSTILE[0],
                "content": [{"type": "text", "text": HOSTILE[0]}, document],
            },
            {"type": "thinking", "thinking": HOSTILE[0]},
            {"type": "native", "provider": "p", "api": "a", "model": "m", "block": {"k": HOSTILE[1]}},
            document,
        ]
        log.add_turn(blocks, role="assistant", continues="talk", reply=ReplyFacts(model=HOSTILE[0], error=HOSTILE[1]))
    command.ok("keys", "new", "--name", NAME)
    command.ok("checkpoint")
    return command


@pytest.fixture(scope="module")
def folder(filled: SigningCommand) -> Path:
    """Give the folder for its conversation."""
    path = filled.file("evidence")
    filled.ok("evidence", "talk", "-o", path)
    return path


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the verifier of a folder as its README says."""
    command = [sys.executable, "-sE", "verify_turnlog.py", "proof.tlog-proof", "--key", "keys.txt", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, path: Path) -> None:
        """Read it."""
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_folder_is_complete_and_holds(folder: Path, filled: SigningCommand) -> None:
    """Its own verifier, run as the README says, accepts it, and so does the command."""
    assert {"index.html", "proof.tlog-proof", "checkpoint", "keys.txt", "verify_turnlog.py", "README.txt"} <= names(
        folder
    )
    done = check(folder, "--compare", ".")
    assert (done.returncode, done.stderr) == (0, "")
    said = filled.ok("verify-proof", folder / "proof.tlog-proof").text
    beside = {"README.txt", "index.html", "keys.txt", "verify_turnlog.py"}
    assert done.stdout == said.removesuffix("  --show prints what they say\n") + (
        f"  {len(names(folder) - beside)} files of the folder: byte for byte what the proof shows\n"
        "  not covered by the proof: README.txt, index.html, keys.txt, verify_turnlog.py\n"
        "  index.html can have been changed: `turnlog evidence --proof` makes it anew from the proof\n"
    )
    readme = (folder / "README.txt").read_text()
    assert "python verify_turnlog.py proof.tlog-proof --key keys.txt --compare ." in readme
    assert (folder / "keys.txt").read_bytes() == filled.ok("keys", "export", "--name", NAME).stdout
    assert (folder / "checkpoint").read_text() == filled.ok("checkpoint", "show").text
    assert (folder / "proof.tlog-proof").read_text().startswith(PROOF)


def test_requests_and_replies_are_exact(folder: Path, filled: SigningCommand) -> None:
    """Byte for byte what was sent, and what came."""
    with TurnLog.open(filled.url) as log:
        calls = [event.header.id for event in log.events() if event.header.topic == "gpt.call"]
        for call in calls:
            assert (folder / "requests" / f"{call}.json").read_bytes() == log.calls.request(call)
        replies = {
            event.header.id: log.payload(event.header.id) for event in log.events() if event.header.topic == "gpt.reply"
        }
        turns = {turn.id: log.payload(turn.id) for turn in log.ancestry("talk")}
    assert {path.stem: path.read_bytes() for path in (folder / "replies").iterdir()} == replies
    kept = {path.stem: path.read_bytes() for sub in ("turns", "documents") for path in (folder / sub).iterdir()}
    assert kept == turns
    assert len(list((folder / "requests").glob("*.loss.txt"))) == 1


def test_page_has_no_scripts_and_loads_nothing(folder: Path) -> None:
    """What was recorded is text and nothing else, and every link is to a file that is there."""
    page = Page(folder / "index.html")
    assert page.tags.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "form", "base", "link", "audio", "video"}
    )
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href"}
    assert page.links
    assert all((folder / link).is_file() for link in page.links)
    assert HOSTILE[0] in page.text
    assert HOSTILE[1] in page.text
    assert r"\x1b[31mred\x1b[0m \u202eright to left\u202c & &amp;" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page.text)
    # No name that a browser would run.
    assert {Path(name).suffix for name in names(folder)} == {".html", ".json", ".txt", ".bin", ".py", ".tlog-proof", ""}


def test_page_shows_the_conversation_in_order(folder: Path, filled: SigningCommand) -> None:
    """Each turn of the ancestry once, the oldest first."""
    with TurnLog.open(filled.url) as log:
        ancestry = [turn.id for turn in log.ancestry("talk")]
    text = (folder / "index.html").read_text()
    assert re.findall(r'<article class="[a-z ]+" id="(\w+)">', text) == ancestry


@pytest.mark.parametrize("part", ["private", "payload", "request", "loss"])
def test_what_is_withheld_is_nowhere(filled: SigningCommand, tmp_path: Path, part: str) -> None:
    """Neither on the page nor in a file, and the page says that it is not shown."""
    path = tmp_path / "out"
    filled.ok("evidence", "talk", "-o", path, "--withhold", part)
    assert check(path, "--compare", ".").returncode == 0
    events = msgspec.json.decode(
        b64decode((path / "proof.tlog-proof").read_text().split("\n")[1].removeprefix("extra "))
    )
    assert not any(part in event for event in events["events"])
    page = Page(path / "index.html")
    if part == "private":
        assert "withheld, or were erased" in page.text
        assert "right to left" not in page.text
        assert not {name for name in names(path) if "/" in name}
    elif part == "payload":
        assert "Its content is withheld." in page.text
        assert {name.partition("/")[0] for name in names(path) if "/" in name} == {"requests"}
    elif part == "request":
        assert "what the model was sent: not shown" in page.text
        assert not list(path.glob("requests/*.json"))
    else:
        assert not list(path.glob("requests/*.loss.txt"))


def test_one_turn_is_withheld(filled: SigningCommand, tmp_path: Path) -> None:
    """And all others are shown."""
    with TurnLog.open(filled.url) as log:
        first = next(iter(log.ancestry("talk"))).id
    path = tmp_path / "out"
    filled.ok("evidence", "talk", "-o", path, "--withhold", f"{first}:payload")
    assert not (path / "turns" / f"{first}.json").exists()
    assert len(list((path / "turns").iterdir())) > 5


def test_erased_turn_is_said_to_be(filled: SigningCommand, tmp_path: Path) -> None:
    """A proof does not tell whether it was erased or withheld, and neither does the page."""
    with TurnLog.open(filled.url) as log:
        [erased] = [event.header.id for event in log.events() if event.erased]
    path = tmp_path / "out"
    filled.ok("evidence", erased, "-o", path)
    assert "withheld, or were erased" in Page(path / "index.html").text
    assert "To be erased" not in Page(path / "index.html").text
    assert check(path, "--compare", ".").returncode == 0


def test_edited_folder_is_found(filled: SigningCommand, tmp_path: Path) -> None:
    """A changed file, a missing one, a further one."""
    path = tmp_path / "out"
    filled.ok("evidence", "talk", "-o", path)
    file = next((path / "replies").iterdir())
    before = file.read_bytes()
    file.write_bytes(before + b" ")
    assert check(path, "--compare", ".").returncode == 1
    assert check(path).returncode == 0
    file.unlink()
    assert check(path, "--compare", ".").returncode == 1
    file.write_bytes(before)
    assert check(path, "--compare", ".").returncode == 0
    (path / "requests" / "another.json").write_bytes(b"{}")
    done = check(path, "--compare", ".")
    assert (done.returncode, done.stderr) == (1, "it does not hold: requests/another.json is not in the proof\n")


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """Give a copy of the folder, to change it."""
    return Path(shutil.copytree(folder, tmp_path / "copied"))


def test_what_the_proof_does_not_cover_is_named(copied: Path) -> None:
    """What belongs to a folder, and what is foreign: by name, the first few, and with --json all."""
    (copied / "index.html").write_text("I never said that.")
    for number in range(7):
        (copied / f"{number}.txt").write_text("foreign")
    (copied / "more").mkdir()
    (copied / "more" / "x\x1b[31m.txt").write_text("foreign")
    done = check(copied, "--compare", ".")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-3:] == [
        "  not covered by the proof: README.txt, index.html, keys.txt, verify_turnlog.py",
        "  foreign, not covered by the proof: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 3 more",
        "  index.html can have been changed: `turnlog evidence --proof` makes it anew from the proof",
    ]
    found = msgspec.json.decode(check(copied, "--compare", ".", "--json").stdout)["compared"]
    assert found["beside"] == ["README.txt", "index.html", "keys.txt", "verify_turnlog.py"]
    assert found["foreign"] == [*(f"{number}.txt" for number in range(7)), "more/x\x1b[31m.txt"]
    assert "compared" not in msgspec.json.decode(check(copied, "--json").stdout)


def test_links_are_refused(copied: Path, tmp_path: Path) -> None:
    """Whatever they lead to: it can be changed after the check, by whoever it belongs to."""
    file = next((copied / "turns").iterdir())
    for name in (f"turns/{file.name}", "index.html", "replies", "foreign"):
        place, kept = copied / name, tmp_path / "kept"
        if place.exists():
            place.rename(kept)
        place.symlink_to(kept)
        done = check(copied, "--compare", ".")
        assert done.returncode == 1
        assert done.stderr == f"it does not hold: {name} is a symbolic link, and none of the files\n"
        place.unlink()
        if kept.exists():
            kept.rename(place)
    assert check(copied, "--compare", ".").returncode == 0
    os.mkfifo(copied / "pipe")
    assert check(copied, "--compare", ".").stderr == "it does not hold: pipe is no file\n"


@pytest.mark.parametrize("name", ["checkpoint", "proof.tlog-proof"])
def test_changed_proof_and_checkpoint_are_found(copied: Path, tmp_path: Path, name: str) -> None:
    """They are compared with the proof that is checked."""
    proof = tmp_path / "proof"
    shutil.copy(copied / "proof.tlog-proof", proof)
    with (copied / name).open("ab") as file:
        file.write(b"\n")
    command = [sys.executable, SOURCE, proof, "--key", copied / "keys.txt", "--compare", copied]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"it does not hold: {name} is not what the proof shows\n")


def test_folder_is_made_anew_from_its_proof(copied: Path, tmp_path: Path) -> None:
    """Without the log, byte for byte; so what was changed in it is seen."""
    before = {name: (copied / name).read_bytes() for name in names(copied)}
    (copied / "index.html").write_text("I never said that.")
    stranger = SigningCommand(store=tmp_path / "none.db")
    arguments = ("--proof", copied / "proof.tlog-proof", "--key", copied / "keys.txt")
    stranger.ok("evidence", *arguments, "-o", tmp_path / "anew")
    assert {name: (tmp_path / "anew" / name).read_bytes() for name in names(tmp_path / "anew")} == before
    assert "one of them" in stranger.refused("evidence", "main", *arguments, "-o", tmp_path / "other")
    assert "one of them" in stranger.refused("evidence", *arguments[2:], "-o", tmp_path / "other")
    assert "--withhold" in stranger.refused("evidence", *arguments, "--withhold", "payload", "-o", tmp_path / "other")
    text = (copied / "proof.tlog-proof").read_text()
    (tmp_path / "forged").write_text(text.replace("\nindex ", "\nindex 1"))
    forged = ("--proof", tmp_path / "forged", *arguments[2:])
    stranger.refused("evidence", *forged, "-o", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_proof_of_what_is_no_turn_makes_no_folder(filled: SigningCommand, tmp_path: Path) -> None:
    """There is no conversation in it."""
    with TurnLog.open(filled.url) as log:
        call = next(event.header.id for event in log.events() if event.header.topic == "gpt.call")
    filled.ok("prove", call, "-o", tmp_path / "call.proof")
    assert "no turn" in filled.refused("evidence", "--proof", tmp_path / "call.proof", "-o", tmp_path / "out")


def test_folder_is_its_owners_alone(folder: Path) -> None:
    """As everything that is written."""
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


GUESTS = "events of other logs can be among them: the time of such a one is what that log said"


def test_turns_that_are_cut_out_of_a_proof_are_said_to_be(tmp_path: Path) -> None:
    """At their place, at the head of the page, in README.txt and by the command, in the words of `verify-proof`."""
    command = signing(tmp_path)
    command.ok("checkpoint")
    whole, cut, folder = (tmp_path / name for name in ("whole.proof", "cut.proof", "cut"))
    command.ok("prove", "main", "-o", whole, "--thread")
    events = events_by_id(whole)
    del events[turn_id("a")]
    cut.write_text(cases.with_events(whole.read_text(), [*events.values()]))
    said = command.ok("evidence", "--proof", cut, "-o", folder).text
    assert said == f"{folder}  4 events shown in 10 files\n  1 cited event is not shown\n"
    assert "\n  1 cited event is not shown\n" in command.ok("verify-proof", cut).text
    text = (folder / "index.html").read_text()
    head, second, *rest = text.split("<article")
    assert '<p class="wrong">1 cited event is not shown</p>' in head
    assert turn_id("b") in second
    assert f"continues <code>{turn_id('a')}</code>, which is not shown" in second
    assert not any("which is not shown" in turn for turn in rest)
    readme = (folder / "README.txt").read_text()
    assert "\nMind that      1 cited event is not shown\n\nWhat is here\n" in readme
    assert check(folder, "--compare", ".").returncode == 0
    made = command.ok("evidence", "--proof", cut, "-o", folder, "--force", "--json").json
    assert (made["not_shown"], made["guests_possible"], made["events"]) == ([turn_id("a")], False, 4)
    assert command.ok("evidence", "main", "-o", folder, "--force").text == f"{folder}  5 events shown in 11 files\n"
    assert "not shown" not in (folder / "index.html").read_text()
    assert "Mind that" not in (folder / "README.txt").read_text()


def events_by_id(proof: Path) -> dict[str, dict[str, str]]:
    events = cases.events_of(proof.read_text())
    return {msgspec.json.decode(b64decode(event["header"]))["id"]: event for event in events}


def test_what_else_is_cut_out_of_a_proof_is_said_too(tmp_path: Path) -> None:
    """A summary, or what that was made of; and a turn that no turn of the page continues is there all the same."""
    command = signing(tmp_path)
    with TurnLog.open(command.url) as log:
        for number in range(8):
            log.add_turn(str(number), continues="main")
        log.compact("main", text="In short.", keep_first=0, keep_last=2, min_turns=1)
        head = log.add_turn("And?", continues="main").id
        [summary] = (event for event in log.events() if event.header.topic == "gpt.summary")
        oldest = summary.header.cited("from")
    assert oldest is not None
    command.ok("checkpoint")
    whole, cut = tmp_path / "whole.proof", tmp_path / "cut.proof"
    command.ok("prove", "main", "-o", whole, "--thread", "--call")
    events = events_by_id(whole)

    def page_of(*kept: str) -> Page:
        cut.write_text(cases.with_events(whole.read_text(), [events[one] for one in kept]))
        command.ok("evidence", "--proof", cut, "-o", tmp_path / "out", "--force")
        return Page(tmp_path / "out" / "index.html")

    assert f"cites as summary {summary.header.id}, which is not shown" in page_of(head).text
    page = page_of(head, summary.header.id)
    assert f"cites as from {oldest}, which is not shown" in page.text
    assert f"cites as summary {summary.header.id}, which" not in page.text
    page = page_of(head, summary.header.id, oldest)
    assert f"cites as from {oldest}, which" not in page.text
    assert f"turns/{oldest}.json" in page.links
    said = command.ok("verify-proof", cut, "--show").text.partition("\nAnd?\n")[2]
    assert said.startswith("\nshown too, and continued by none of the turns above:\n\n── ")
    assert f"  {oldest} · " in said


def test_that_events_can_be_of_other_logs_is_said(folder: Path, filled: SigningCommand, tmp_path: Path) -> None:
    """Also where the one that makes the folder has only the proof."""
    assert GUESTS in Page(folder / "index.html").text.partition("The conversation")[0]
    assert f"\nMind that      {GUESTS}\n" in (folder / "README.txt").read_text()
    proof = folder / "proof.tlog-proof"
    assert f"\n  {GUESTS}\n" in filled.ok("verify-proof", proof).text
    assert filled.ok("evidence", "--proof", proof, "-o", tmp_path / "out").text.endswith(f"\n  {GUESTS}\n")
    made = filled.ok("evidence", "talk", "-o", tmp_path / "out", "--force", "--json").json
    assert (made["not_shown"], made["guests_possible"]) == ([], True)


NUMBERS = ("12345678901234567890123", "0.1000000000000000055511151231257827", "1e400", "-0", "1.00", "1E+22")


def test_numbers_are_shown_as_they_were_recorded(tmp_path: Path) -> None:
    """Character by character, wherever in a block, and each of a key that stands twice. None hides the rest."""
    command = signing(tmp_path)
    numbers = ",".join(NUMBERS).encode()
    pay = b'{"type":"tool_use","id":"c","name":"pay","input":{"sum":1,"sum":1000,"n":[%b]}}' % numbers
    text = b'{"type":"text","text":"I pay now.","cited":[%b]}' % numbers
    native = b'{"type":"native","provider":"p","block":{"n":%b}}'
    inner = b",".join(native % number.encode() for number in NUMBERS)
    result = b'{"type":"tool_result","tool_use_id":"c","content":[%b]}' % inner
    with TurnLog.open(command.url) as log:
        blocks = decode_content(b"[%b]" % b",".join((text, pay, result)))
        turn = log.add_turn(blocks, role="assistant", continues="main", bookmark="main").id
        assert all(log.payload(turn).count(number.encode()) >= 3 for number in NUMBERS)
    command.ok("checkpoint")
    command.ok("evidence", "main", "-o", tmp_path / "out")
    said = Page(tmp_path / "out" / "index.html").text
    assert "I pay now." in said
    assert '"sum": 1,\n  "sum": 1000,' in said
    shown = [line.strip().rstrip(",").removeprefix('"n": ') for line in said.splitlines()]
    assert {number: shown.count(number) for number in NUMBERS} == dict.fromkeys(NUMBERS, 3)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        pytest.param(
            b'[{"type":"text","text":"said","text":"shown"}]', ['"text": "said"', '"text": "shown"'], id="key"
        ),
        pytest.param(
            b'[{"type":"text","text":"before"},{"type":"text","text":1e400}]', ["before", "1e400"], id="field"
        ),
        pytest.param(b'[{"type":"text","text":"before"},{"type":"new","n":-0}]', ["before", '"n": -0'], id="type"),
        pytest.param(b'[{"type":"text","text":"before"},[5.0],"6"]', ["before", "5.0", '"6"'], id="no block"),
        pytest.param(b'[{"type":"text","text":"before"},', ["cannot be read", '"before"'], id="no JSON"),
        pytest.param(b'[{"type":"text","text":"\\ud800 before"}]', ["cannot be read", "ud800 before"], id="surrogate"),
        pytest.param(b'[{"type":"text","text":"\xff<b>"}]', ["cannot be read", '"\\xff<b>"'], id="no UTF-8"),
        pytest.param(b"[" * 5000 + b"before" + b"]" * 5000, ["cannot be read", "[[before]]"], id="deep"),
    ],
)
def test_what_is_no_content_is_shown_as_it_is(tmp_path: Path, payload: bytes, said: list[str]) -> None:
    """Whoever has the key can have signed anything: none of it hides the rest."""
    meta = meta_text({"role": "user"})
    private = private_part({}, hash=payload_hash(payload), size=len(payload), salt=bytes(16))
    event = build(topic="gpt.turn", id="03fr9cxksbd0ufbbn4sb2e5pj", time=0, meta=meta, private=private)
    assert event.private_state is not None
    file, keys = tmp_path / "odd.proof", tmp_path / "keys.txt"
    file.write_text(cases.signed_event(event.state, private=event.private_state, payload=payload))
    keys.write_text(cases.KEYS[0])
    command = SigningCommand(store=tmp_path / "none.db")
    command.ok("evidence", "--proof", file, "--key", keys, "-o", tmp_path / "out")
    text = Page(tmp_path / "out" / "index.html").text
    assert [part in text for part in said] == [True] * len(said)


def test_no_metadata_passes_for_a_fact_of_turnlogs_own(tmp_path: Path) -> None:
    """Nor as what something is cited: it has a word before its name."""
    meta = meta_text({"role": "user", "digest": "forged", "continues": "forged"})
    event = build(topic="gpt.turn", id="03fr9cxksbd0ufbbn4sb2e5pj", time=0, meta=meta, private=None)
    file, keys = tmp_path / "odd.proof", tmp_path / "keys.txt"
    file.write_text(cases.signed_event(event.state))
    keys.write_text(cases.KEYS[0])
    command = SigningCommand(store=tmp_path / "none.db")
    command.ok("evidence", "--proof", file, "--key", keys, "-o", tmp_path / "out")
    rows = re.findall("<th>(.*?)</th>", (tmp_path / "out" / "index.html").read_text().partition("<details")[2])
    assert sorted(rows) == ["digest", "meta.continues", "meta.digest", "meta.role"]


def test_no_folder_is_replaced_without_force(filled: SigningCommand, tmp_path: Path) -> None:
    """And with it only an evidence folder that has nothing else in it."""
    path = tmp_path / "out"
    path.mkdir()
    assert "--force" in filled.refused("evidence", "talk", "-o", path)
    filled.ok("evidence", "talk", "-o", path, "--force")
    filled.ok("evidence", "main", "-o", path, "--force")
    assert not (path / "requests").exists()
    (path / "mine.txt").write_text("mine")
    assert "it is not replaced" in filled.refused("evidence", "talk", "-o", path, "--force")
    assert (path / "mine.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.txt").write_text("mine")
    assert "it is not replaced" in filled.refused("evidence", "talk", "-o", other, "--force")
    file = tmp_path / "file"
    file.write_text("mine")
    assert "it is not replaced" in filled.refused("evidence", "talk", "-o", file, "--force")
    assert {one.name for one in tmp_path.iterdir()} == {"out", "other", "file"}


def test_store_is_never_replaced(tmp_path: Path) -> None:
    """Nor is anything made in its payload folder."""
    inside = tmp_path / "out"
    inside.mkdir()
    command = SigningCommand(store=inside / "checkpoint")
    command.ok("add", "x" * 100_000)
    command.ok("keys", "new", "--name", NAME)
    command.ok("checkpoint")
    turn = command.ok("log", "--json").json_lines[0]["id"]
    (inside / "proof.tlog-proof").write_text("")
    before = command.store.read_bytes()
    for place in (
        inside,
        tmp_path,
        command.store,
        inside / "checkpoint-payloads",
        inside / "checkpoint-payloads" / "x",
    ):
        refused = command.refused("evidence", turn, "-o", place, "--force")
        assert "store" in refused or "no folder" in refused
    assert command.store.read_bytes() == before


def test_nothing_is_left_where_nothing_is_made(filled: SigningCommand, tmp_path: Path) -> None:
    """No key, no turn, no checkpoint, no folder above."""
    path = tmp_path / "out"
    filled.refused("evidence", "nothing-of-this-name", "-o", path)
    filled.refused("evidence", "talk", "-o", path, "--withhold", "header")
    assert "no folder" in filled.refused("evidence", "talk", "-o", tmp_path / "none" / "out")
    stranger = tmp_path / "keys.txt"
    elsewhere = str(filled.file("elsewhere"))
    filled("keys", "new", "--name", "stranger", TURNLOG_KEYS_DIR=elsewhere)
    stranger.write_bytes(filled.ok("keys", "export", "--name", "stranger", TURNLOG_KEYS_DIR=elsewhere).stdout)
    assert "no key that is known here" in filled.refused("evidence", "talk", "-o", path, "--key", stranger)
    assert {one.name for one in tmp_path.iterdir()} == {"keys.txt"}


def test_keys_that_are_given_go_along(filled: SigningCommand, tmp_path: Path) -> None:
    """All of them: also those of witnesses that have not signed yet."""
    keys = tmp_path / "all.txt"
    witness = filled.ok("keys", "export", "--name", NAME, "--witness").stdout
    keys.write_bytes(filled.ok("keys", "export", "--name", NAME).stdout + witness)
    made = filled.ok("evidence", "talk", "-o", tmp_path / "out", "--key", keys, "--json").json
    assert (tmp_path / "out" / "keys.txt").read_bytes() == keys.read_bytes()
    assert made["files"] == len(names(tmp_path / "out"))


def test_log_without_a_checkpoint_has_no_evidence(tmp_path: Path) -> None:
    """It says how to make one."""
    command = signing(tmp_path)
    assert "make one with `turnlog checkpoint`" in command.refused("evidence", "main", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_verifier_of_the_checkout_is_found() -> None:
    """In an editable install the one of `tools`."""
    assert verifier_source() == SOURCE.read_bytes()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    [built] = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_verifier_is_in_the_wheel(wheel: Path, filled: SigningCommand, tmp_path: Path) -> None:
    """And is found there, where there is no checkout."""
    assert (wheel / "turnlog" / "audit" / "verify_turnlog.py.txt").read_bytes() == SOURCE.read_bytes()
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import turnlog.cli\nfrom turnlog.cli.app import main\n"
        f"assert turnlog.__file__.startswith({str(wheel)!r})\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "evidence", "talk", "-o", str(tmp_path / "out")],
        env=filled.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "verify_turnlog.py").read_bytes() == SOURCE.read_bytes()
