"""`turnlog tail`: events as JSON lines."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command, Outcome
from tests.cli.forked import Begun
from tests.servers.postgres import PostgresServer

from turnlog import TurnLog

_PATIENCE_S = 30


IMPATIENT = """\
from turnlog import TurnLog
from turnlog_command import main
TurnLog.open.__func__.__kwdefaults__["busy_timeout_s"] = 0.2
main()
"""
"""The command, which waits for a server less long."""


@contextmanager
def tailing(turnlog: Command, *arguments: str, program: str | None = None) -> Iterator[Begun | subprocess.Popen[bytes]]:
    """Start `turnlog tail --follow`, or a program that is it, and end it."""
    words = ("tail", "--follow", *arguments)
    process = (
        turnlog.begin(*words)
        if program is None
        else subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=turnlog.environment(),
        )
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def line(process: Begun | subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the next line."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_events_come_in_order(turnlog: Command, tmp_path: Path) -> None:
    """With what other programs need: place, id, topic, metadata, and content if it is asked for."""
    first = turnlog.ok("add", "one", "--bookmark", "main", "--json").json
    notes = tmp_path / "notes.txt"
    notes.write_text("two")
    turnlog.ok("document", notes, "--continues", "main")
    [genesis, turn, document] = turnlog.ok("tail").json_lines
    assert [event["global_position"] for event in (genesis, turn, document)] == [1, 2, 3]
    assert (turn["id"], turn["topic"], turn["digest"]) == (first["id"], "gpt.turn", first["digest"])
    assert turn["meta"] == {"role": "user", "head": "main"}
    assert document["citations"][0]["id"] == first["id"]
    assert "content" not in turn
    [turn, document] = turnlog.ok("tail", "--after", "1", "--content").json_lines
    assert turn["content"] == [{"type": "text", "text": "one"}]
    assert document["content"]["name"] == "notes.txt"


def test_events_are_picked(turnlog: Command) -> None:
    """By place, topic, thread and bookmark."""
    turn = turnlog.ok("add", "one", "--bookmark", "main", "--json").json["id"]
    turnlog.ok("add", "two", "--bookmark", "other")
    turnlog.ok("bookmarks", "set", "aside", "main")

    def picked(*arguments: str) -> list[int]:
        return [event["global_position"] for event in turnlog.ok("tail", *arguments).json_lines]

    assert picked("-n", "2") == [3, 4]
    assert picked("-n", "9") == [1, 2, 3, 4]
    assert picked("-n", "0") == []
    assert picked("--after", "2", "--after-id", turn) == [3, 4]
    assert picked("--topic", "gpt.turn") == [2, 3]
    assert picked("--topic", "gpt.turn", "--topic", "gpt.bookmark") == [2, 3, 4]
    assert picked("--thread", "main") == [2, 4]
    assert picked("--bookmark", "aside") == [4]
    assert turnlog.ok("tail", "--mark").json_lines[-1] == {"caught_up": 4}


def test_the_last_ones_are_of_those_that_are_wanted(turnlog: Command) -> None:
    """However many others have come behind them, also when it goes on following."""
    with TurnLog.open(turnlog.url) as log:
        main = [
            log.add_turn(f"main {number}", continues="main" if number else None, bookmark="main").id
            for number in range(3)
        ]
        log.add_event("acme.review", cites=[("about", main[0])])
        for _ in range(40):
            log.add_turn("x", bookmark="other")
        log.add_event("acme.review", cites=[("about", main[1])])
        log.add_turn("aside", continues=main[0], bookmark="aside")

    def picked(*arguments: str) -> list[int]:
        return [event["global_position"] for event in turnlog.ok("tail", *arguments).json_lines]

    assert picked("--bookmark", "main", "-n", "2") == [5, 46]
    assert picked("--bookmark", "main", "-n", "9") == [2, 3, 4, 5, 46]
    assert picked("--bookmark", "main", "-n", "2", "--topic", "gpt.turn") == [3, 4]
    assert picked("--thread", "main", "-n", "4") == [4, 5, 46, 47]
    assert picked("--topic", "acme.review", "-n", "1") == [46]
    assert picked("--topic", "acme.review", "--topic", "gpt.turn", "-n", "3") == [45, 46, 47]
    assert picked("--bookmark", "none", "-n", "3") == picked("--bookmark", "main", "-n", "0") == []
    with tailing(turnlog, "--bookmark", "main", "-n", "1", "--topic", "gpt.turn") as process:
        assert line(process)["global_position"] == 4
        turnlog.ok("add", "more", "--continues", "main")
        assert line(process)["global_position"] == 48


def test_slip_for_a_topic_is_told(turnlog: Command) -> None:
    """Topics are open: one of which there are events is nobody's slip, and neither is one that is like no other."""
    turnlog.ok("add", "one")
    said = "turnlog: there is no event of the topic 'gtp.turn' yet, did you mean 'gpt.turn'\n"
    assert turnlog("tail", "--topic", "gtp.turn") == Outcome(stdout=b"", stderr=said, status=0)
    assert turnlog.ok("tail", "--topic", "acme.review", "--topic", "codex.turn").stdout == b""
    with TurnLog.open(turnlog.url) as log:
        log.add_event("gtp.turn")
        log.add_event("acme.note")
    assert [event["topic"] for event in turnlog.ok("tail", "--topic", "gtp.turn").json_lines] == ["gtp.turn"]
    said = "turnlog: there is no event of the topic 'acme.notes' yet, did you mean 'acme.note'\n"
    assert turnlog("tail", "--topic", "acme.notes") == Outcome(stdout=b"", stderr=said, status=0)


def test_following_gives_what_comes(turnlog: Command) -> None:
    """Each line as soon as its event is there. Ctrl-C ends it."""
    turnlog.ok("add", "one", "--bookmark", "main")
    with tailing(turnlog, "--mark") as process:
        assert [line(process)["global_position"] for _ in range(2)] == [1, 2]
        assert line(process) == {"caught_up": 2}
        for position, text in enumerate(("two", "three"), 3):
            turn = turnlog.ok("add", text, "--continues", "main", "--json").json["id"]
            event = line(process)
            assert (event["global_position"], event["id"]) == (position, turn)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=_PATIENCE_S)
        assert (process.returncode, error) == (130, b"turnlog: interrupted\n")


def test_reader_that_goes_away_ends_it(turnlog: Command) -> None:
    """Without a word."""
    turnlog.ok("add", "one", "--bookmark", "main")
    with tailing(turnlog) as process:
        assert line(process)["global_position"] == 1
        assert process.stdout is not None
        process.stdout.close()
        turnlog.ok("add", "two", "--continues", "main")
        assert process.wait(_PATIENCE_S) == 0


def test_reader_that_goes_away_ends_it_while_nothing_comes(turnlog: Command) -> None:
    """It does not wait for the next event in order to see that."""
    turnlog.ok("add", "one")
    with tailing(turnlog, "--mark") as process:
        while "caught_up" not in line(process):
            pass
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(_PATIENCE_S) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--after", "9"), "the log ends at global position 2, before 9"),
        (("--after", "2", "--after-id", "nope"), "rolled back"),
        (("--after", "-1"), "--after"),
        (("--last", "-1"), "--last"),
        (("--after", "1", "--last", "1"), "not both"),
        (("--thread", "nope"), "no turn or bookmark 'nope'"),
        (("--after-id", "nope"), "give --after, too"),
        (("--last", "1", "--after-id", "nope"), "give --after, too"),
        (("--topic", ""), "--topic is empty"),
        (("--topic", "nope"), "--topic 'nope' is no topic: turnlog's are gpt.bookmark, gpt.call, "),
        (("--topic", "x" * 5_000), f"--topic '{'x' * 59}…' is no topic: turnlog's are gpt.bookmark, "),
        (("--topic", "gpt.turn", "--topic", "gpt.trun"), "--topic 'gpt.trun' is no topic, did you mean 'gpt.turn'"),
    ],
)
def test_what_cannot_be_is_one_line(turnlog: Command, arguments: tuple[str, ...], said: str) -> None:
    """And says what to do."""
    turnlog.ok("add", "one")
    assert said in turnlog.refused("tail", *arguments)


def test_there_must_be_a_log(turnlog: Command) -> None:
    """Also in order to wait for one."""
    assert "there is no store" in turnlog.refused("tail", "--follow")


def test_server_that_is_away_is_waited_for(turnlog: Command, own_postgres: PostgresServer) -> None:
    """However long that takes: it is said once, and what comes then is printed."""
    url = own_postgres.url()
    with TurnLog.open(url) as log:
        log.add_turn("one", bookmark="main")
    with tailing(turnlog, "--store", url, program=IMPATIENT) as process:
        assert [line(process)["global_position"] for _ in range(2)] == [1, 2]
        own_postgres.kill()
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert said.startswith("turnlog: store 'postgresql://")
        assert said.endswith("it is waited for\n")
        own_postgres.start()
        with TurnLog.open(url) as log:
            log.add_turn("two", continues="main")
        assert line(process)["global_position"] == 3
