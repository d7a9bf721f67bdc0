"""What a newcomer sees of a run, without a key and without a network."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.cli.command import Command, Outcome

from turnlog import TurnLog

SAID = """\

> When can I leave Nantes by ferry on Monday, and is the sea calm then?
Let me look.
Ferries leave at 08:10 and at 17:40. The sea is calm until noon: take the one at 08:10.

> And by train?
I can look up ferries only. For trains, ask at the station.

3 of 3 model calls can be made again, byte for byte.
"""


@dataclass(frozen=True, kw_only=True)
class Newcomer(Command):
    """The command of who has named no store, and has no key."""

    def environment(self, **changes: str) -> dict[str, str]:
        """Return an environment as `Command` does, without a store."""
        found = super().environment(**changes)
        return found if "TURNLOG_STORE" in changes else {name: found[name] for name in found.keys() - {"TURNLOG_STORE"}}


def turnlog(folder: Path, *words: str, **environment: str) -> Outcome:
    """Run the command in a folder."""
    return Newcomer(store=folder / "home" / "log.db", folder=folder)(*words, **environment)


def test_a_run_is_recorded_and_made_again(tmp_path: Path) -> None:
    """And the commands that it names work as they are printed; a second time it begins another thread."""
    outcome = turnlog(tmp_path, "demo")
    assert outcome.status == 0, outcome.stderr
    place, _, rest = outcome.text.partition("\n")
    assert place == f"Recorded in {tmp_path / 'turnlog-demo.db'}:"
    assert rest.startswith(SAID)
    assert re.search(r"^18 events read again: no damage\.$", rest, re.MULTILINE)
    assert '→ ferry_times {"day":"Monday"}\n' in outcome.stderr
    assert "← sea  calm until noon, then rough\n" in outcome.stderr
    named = re.findall(r"^  turnlog (.*)$", rest, re.MULTILINE)
    assert [command.split()[0] for command in named] == ["log", "show", "context", "replay"]
    for command in named:
        outcome = turnlog(tmp_path, *shlex.split(command))
        assert outcome.status == 0, command
        if command.startswith("show "):
            assert outcome.text.count(", approved by the policy of the run") == 2
    assert turnlog(tmp_path, "demo").status == 0
    threads = turnlog(tmp_path, "threads", "--json", "--store", "sqlite:///turnlog-demo.db")
    assert len(threads.text.splitlines()) == 2


def test_a_second_one_takes_no_bookmark(tmp_path: Path) -> None:
    """Somebody may have gone on from there: it has names of its own, which the commands that it prints have."""
    store = ("--store", "sqlite:///turnlog-demo.db")
    turnlog(tmp_path, "demo")
    turnlog(tmp_path, "add", "And on Tuesday?", "-c", "ferry", *store)
    turnlog(tmp_path, "bookmarks", "delete", "train", *store)
    before = turnlog(tmp_path, "show", "ferry", "--json", *store).text
    outcome = turnlog(tmp_path, "demo")
    assert (" on ferry-2 (" in outcome.stderr, " on train-2 (" in outcome.stderr) == (True, True)
    assert re.findall(r"turnlog (?:show|context|replay) (\S+)", outcome.text) == ["ferry-2~2", "ferry-2", "ferry-2"]
    assert turnlog(tmp_path, "show", "ferry", "--json", *store).text == before


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_all_is_recorded_whatever_becomes_of_the_output(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A reader that leaves (`turnlog demo | head -3`) ends it quietly, a full disk with a line."""
    command = Command(store=tmp_path / "log.db")
    outcome = command.into_closed_pipe("demo", "--store", command.url, *more)
    assert outcome.status == 0
    assert "stopped" not in outcome.stderr
    assert command.ok("stats", "--json").json["events"] == 18
    with TurnLog.open(command.url) as log:
        assert [log.turn(name).meta.stop_reason for name in ("ferry", "train")] == ["stop", "stop"]
    outcome = command.into("/dev/full", "demo", "--store", command.url, *more)
    said = f"turnlog: all of it is recorded in {str(command.store)!r}, but could not be printed"
    assert (outcome.status, outcome.stderr.splitlines()[-1]) == (2, f"{said} (no space left on device)")
    with TurnLog.open(command.url) as log:
        assert [log.turn(name).meta.stop_reason for name in ("ferry-2", "train-2")] == ["stop", "stop"]


def test_it_keeps_out_of_the_store_of_others(tmp_path: Path) -> None:
    """What TURNLOG_STORE names is for real work; a store that is named is taken."""
    outcome = turnlog(tmp_path, "demo", TURNLOG_STORE=f"sqlite:///{tmp_path}/real.db")
    assert outcome.status == 0, outcome.stderr
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["turnlog-demo.db"]
    named = tmp_path / "named.db"
    assert turnlog(tmp_path, "demo", "--store", f"sqlite:///{named}").status == 0
    assert named.exists()


def test_it_is_told_to_programs(tmp_path: Path) -> None:
    """As a run is: a value a line, and what it came to at the end."""
    lines = turnlog(tmp_path, "demo", "--json").text.splitlines()
    found = [msgspec.json.decode(line) for line in lines]
    assert found[-1].items() >= {"again": 3, "calls": 3, "verified": True}.items()
    assert [each["event"] for each in found if each.get("event") == "result"] == ["result"] * 2


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"]])
def test_it_is_found(tmp_path: Path, words: list[str]) -> None:
    """In the help of the command and of its own."""
    assert "without a key" in " ".join(turnlog(tmp_path, *words).text.split())
