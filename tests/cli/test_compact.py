"""`turnlog compact`: the real command, with a given text and against a server on loopback."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command
from tests.wires.server import WireServer, whole

from turnlog import TurnLog
from turnlog.cli.commands.compact import INSTRUCTION
from turnlog.model import Text

WIRE = OpenAI()


@pytest.fixture
def ids(turnlog: Command) -> list[str]:
    """Give a log with a conversation of 16 turns, and their ids."""
    ids: list[str] = []
    with TurnLog.open(turnlog.url) as log:
        for number in range(16):
            role = "assistant" if number % 2 else "user"
            ids.append(log.add_turn(f"said {number}", role=role, continues=ids[-1:] or None, bookmark="main").id)
    return ids


@pytest.fixture
def server(turnlog: Command, ids: list[str]) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        yield server


def texts(turnlog: Command, *arguments: str) -> list[str]:
    """Return the last text of each message of the window of `main`."""
    window = turnlog.ok("context", "main", "--json", *arguments).json
    return [message["content"][-1]["text"] for message in window["messages"]]


def test_dry_run_only_says_what_would_be_covered(turnlog: Command, ids: list[str]) -> None:
    """Nothing is recorded, and no text and no model is needed."""
    outcome = turnlog.ok("compact", "main", "--keep-last", "4", "--dry-run")
    assert outcome.stdout.decode() == (
        f"would be compacted  11 turns, from {ids[1]} to {ids[11]}\n"
        "from the next turn on: 6 messages before it, not 16\n"
    )
    turnlog.ok("add", "next", "-c", "main")
    assert len(texts(turnlog)) == 17


def test_given_text_stands_for_turns_from_the_next_turn_on(turnlog: Command, ids: list[str]) -> None:
    """The command says what it stands for; `--full` shows all turns."""
    said = [f"said {number}" for number in range(16)]
    outcome = turnlog.ok("compact", "main", "--text", "In short.", "--keep-last", "4")
    assert texts(turnlog) == said
    turnlog.ok("add", "next", "-c", "main")
    assert texts(turnlog) == ["said 0", "In short.", *said[12:], "next"]
    assert texts(turnlog, "--full") == [*said, "next"]
    summary = turnlog.ok("context", "main", "--explain", "--json").json["explain"]["summarized"]
    assert summary["turns"] == ids[1:12]
    assert outcome.text.splitlines() == [
        f"{summary['summary']}  stands for 11 turns, from {ids[1]} to {ids[11]}",
        "from the next turn on: 6 messages before it, not 16",
    ]


def test_context_shows_the_summary_and_what_it_stands_for(turnlog: Command, ids: list[str]) -> None:
    """As a message of its own kind, and with `--explain` as a list of turns."""
    report = turnlog.ok("compact", "main", "--text", "In short.", "--keep-last", "4", "--json").json
    turnlog.ok("add", "next", "-c", "main")
    shown = turnlog.ok("context", "main").text
    assert f"── summary  {report['summary']}" in shown
    assert "In short." in shown
    assert ids[5] not in shown
    assert f"── summarized  by {report['summary']}\n{ids[1]}\n" in turnlog.ok("context", "main", "--explain").text
    assert turnlog.ok("show", report["summary"]).status == 0


def test_text_comes_from_a_file_or_standard_input(turnlog: Command, ids: list[str], tmp_path: Path) -> None:
    """One line feed at the end is dropped."""
    (tmp_path / "summary.txt").write_text("From a file.\n", encoding="utf-8")
    arguments = ("--keep-last", "2", "--min-turns", "1", "--json")
    report = turnlog.ok(
        "compact", "main", "--text", f"@{tmp_path / 'summary.txt'}", *arguments, "--max-turns", "9"
    ).json
    assert (report["text"], report["turns"], report["not_compacted"]) == ("From a file.", 9, None)
    report = turnlog.ok("compact", "main", "--text", "-", *arguments, stdin=b"From a pipe.\n").json
    assert (report["text"], report["turns"], report["new_turns"]) == ("From a pipe.", 13, 4)


def test_nothing_to_do_is_told(turnlog: Command, ids: list[str]) -> None:
    """It is no failure. JSON has the reason as one word, and as a line."""
    outcome = turnlog.ok("compact", "main", "--text", "In short.", "--keep-last", "12")
    assert outcome.text == "not compacted  there are too few turns between the first and the last ones that are kept\n"
    report = turnlog.ok("compact", "main", "--text", "x", "--keep-last", "12", "--json").json
    assert (report["summary"], report["not_compacted"]) == (None, "too_short")
    assert report["why"].startswith("there are too few turns")


def test_what_cannot_be_is_refused(turnlog: Command, ids: list[str], tmp_path: Path) -> None:
    """With one line that says what to do."""
    assert "no model is asked" in turnlog.refused("compact", "main", "--text", "x", "-p", "kilo")
    assert "cannot be read" in turnlog.refused("compact", "main", "--text", f"@{tmp_path / 'absent'}")
    assert "is not UTF-8" in turnlog.refused("compact", "main", "--text", "-", stdin=b"\xff")
    assert "says nothing" in turnlog.refused("compact", "main", "--text", " ")
    assert "max_turns" in turnlog.refused("compact", "main", "--text", "x", "--max-turns", "1")
    assert "no turn or bookmark 'x'" in turnlog.refused("compact", "x", "--text", "x")


def test_model_writes_the_summary_in_a_fork(turnlog: Command, ids: list[str], server: WireServer) -> None:
    """Without tools, with the window up to the last covered turn. The call is recorded as any other, and cited."""
    server.answers.append(WIRE.reply("They counted."))
    outcome = turnlog("compact", "main", "-p", "kilo", "--keep-last", "4", "--json", OPENAI_API_KEY=KEY)
    assert (outcome.status, outcome.stderr) == (0, "")
    report = outcome.json
    [received] = server.received
    body = msgspec.json.decode(received.body)
    assert [message["content"] for message in body["messages"]] == [*(f"said {n}" for n in range(12)), INSTRUCTION]
    assert not body.get("tools")
    with TurnLog.open(turnlog.url) as log:
        summary = log.event(report["summary"])
        turn = log.turn(summary.header.cited("turn") or "")
        assert summary.header.cited("call") == turn.meta.call
        assert log.turn(turn.continues[0]).continues == (ids[11],)
        assert log.turn("main").id == ids[-1]
        log.add_turn("next", continues="main")
        assert log.context("main").messages[1].content[-1] == Text(text="They counted.")
        assert log.verify().damage == ()
        assert [check.difference for check in log.calls.check(turn.id)] == [None]


def test_later_run_sends_the_summary(turnlog: Command, ids: list[str], server: WireServer) -> None:
    """In place of the turns that it covers; the recorded request can be made again byte for byte."""
    turnlog.ok("compact", "main", "--text", "In short.", "--keep-last", "2")
    server.answers.append(WIRE.reply("Good."))
    assert turnlog("run", "Go on.", "-c", "main", "-p", "kilo", OPENAI_API_KEY=KEY).status == 0
    sent = msgspec.json.decode(server.received[0].body)["messages"]
    assert [message["role"] for message in sent] == ["user", "user", "user", "assistant", "user"]
    assert "In short." in msgspec.json.encode(sent[1]).decode()
    assert turnlog.ok("replay", "main", "--check", OPENAI_API_KEY=KEY).status == 0


def test_failed_call_records_no_summary(turnlog: Command, ids: list[str], server: WireServer) -> None:
    """The failure is recorded as any other, and told in one line."""
    server.answers.append(whole(b'{"error": {"message": "no such model"}}', status=404))
    line = turnlog.refused("compact", "main", "-p", "kilo", "--keep-last", "4", OPENAI_API_KEY=KEY)
    assert line.startswith("nothing was summarized: ")
    with TurnLog.open(turnlog.url) as log:
        assert "gpt.summary" not in log.stats().topics
        assert log.turn("main").id == ids[-1]
