"""`turnlog search`, `usage` and `projections`."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, say
from tests.cli.command import Command
from tests.cli.terminal import Terminal

from turnlog import ReplyFacts, TurnLog
from turnlog.model import Origin
from turnlog.projections import synchronous


@pytest.fixture
def talk(turnlog: Command) -> Command:
    """Give a command whose log has two threads."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("What lives in the River?", bookmark="main")
        log.add_turn("Otters, and a heron\nby the bridge\x07", continues="main")
        log.add_turn("A river elsewhere", bookmark="other")
    return turnlog


def test_turns_are_found(talk: Command) -> None:
    """With a snippet on one line, whatever is in it."""
    lines = talk.ok("search", "heron", "bridge").text.splitlines()
    assert lines[1] == "  Otters, and a heron by the bridge\\x07"
    assert len(talk.ok("search", "river", "--json").json_lines) == 2
    [found] = talk.ok("search", "river", "--thread", "other", "--json").json_lines
    assert found["snippet"] == "A \x02river\x03 elsewhere"
    assert found["threads"] == [talk.ok("ancestry", "other", "--json").json_lines[0]["id"]]
    assert talk("search", "RIVER", "-n", "1", "--newest", "--json").json_lines == [found]
    assert len(talk.ok("search", '"lives in"', "--role", "user", "--since", "2020-01-01", "--json").json_lines) == 1


def test_a_word_without_end_takes_no_more_than_a_few_lines(turnlog: Command) -> None:
    """As base64 has: what is beside what was found is shown by its beginning and its end."""
    turnlog.ok("add", stdin=b"needle " + b"A" * 20_000 + b"\n")
    shown = turnlog.ok("search", "needle").text
    assert "needle AAA" in shown
    assert "AAA…AAA" in shown
    assert len(shown) < 500


def test_more_than_are_printed_are_told(talk: Command) -> None:
    """On standard error, however many were asked for."""
    for arguments in ((), ("--json",)):
        some = talk("search", "river", "-n", "1", *arguments)
        assert (some.status, some.stderr) == (0, "turnlog: there are more than 1 turn: `--limit N` prints N of them\n")
        assert talk.ok("search", "river", "-n", "2", *arguments).text.startswith(some.text)
    with TurnLog.open(talk.url) as log, log.group() as group:
        for _ in range(20):
            group.add_turn("river")
    many = talk("search", "river")
    assert len(many.text.splitlines()) == 2 * 20
    assert many.stderr == "turnlog: there are more than 20 turns: `--limit N` prints N of them\n"


def test_nothing_found_is_said(talk: Command) -> None:
    """On standard error, and that is no failure."""
    nothing = talk("search", "nightingale")
    assert (nothing.status, nothing.stdout, nothing.stderr) == (0, b"", "turnlog: nothing found\n")
    assert talk("search", "river", "--until", "2020-01-01").stdout == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give the words: turnlog search WORDS"),
        (("!!",), "no word"),
        (("x", "--limit", "0"), "limit: give a number from 1 to 1,000,000, got 0"),
        (("x", "--limit", "99999999999999999999"), "limit: give a number from 1 to 1,000,000"),
        ((" ".join(map(str, range(300))),), "it has 300 words: give 256 at most"),
        (("x", "--since", "soon"), "--since"),
        (("x", "--thread", "nope"), "no turn or bookmark 'nope'"),
        (("x", "--role", "robot"), "role"),
    ],
)
def test_what_cannot_be_searched_is_one_line(talk: Command, arguments: tuple[str, ...], said: str) -> None:
    """And says what to do."""
    assert said in talk.refused("search", *arguments)


def test_usage_without_replies_is_said(talk: Command) -> None:
    """In both of its forms."""
    assert talk("usage").stderr == "turnlog: no replies of models yet\n"
    assert talk("usage", "--tools").stderr == "turnlog: no tools were called yet\n"
    assert "by" in talk.refused("usage", "--by", "moon")
    assert talk.refused("usage", "--by", "model", "--tools") == (
        "usage: --by, --model, --since and --until are of tokens, and --tools counts calls"
    )


def test_usage_is_a_table(turnlog: Command) -> None:
    """With the sum of all below, where there is more than one line."""
    with TurnLog.open(turnlog.url) as log:
        for model in ("one", "two", "two"):
            run(log, Scripted(say("Done.")), model=model)
    rows = [line.split() for line in turnlog.ok("usage", "--by", "model").text.splitlines()]
    assert rows[0][:3] == ["model", "replies", "input"]
    assert [row[:2] for row in rows[1:]] == [["one", "1"], ["two", "2"], ["all", "3"]]
    one, two = turnlog.ok("usage", "--by", "model", "--json").json_lines
    counts = {"output_tokens": 10, "total_tokens": 10, "input_tokens": 0, "reasoning_tokens": 0}
    counts |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    assert one == {"key": "one", "keys": ["one"], "replies": 1, "untold": 0, "usage": counts}
    assert (two["replies"], two["usage"]["total_tokens"]) == (2, 20)
    [only] = turnlog.ok("usage", "--by", "model", "--json", "--model", "t*", "--since", "today").json_lines
    assert only == two
    assert turnlog("usage", "--until", "yesterday").stderr == "turnlog: none of the replies is such a one\n"


def test_usage_by_two_things_has_a_column_of_each(turnlog: Command) -> None:
    """In the order in which they are given; the sum of all is below the first."""
    with TurnLog.open(turnlog.url) as log:
        for number, model in enumerate(("one", "two", "one")):
            reply, origin = (
                ReplyFacts(model=model),
                Origin(format="x", ids=["x"], timestamp=f"2026-01-0{number + 1}T00:00:00Z"),
            )
            log.add_turn("Yes.", role="assistant", bookmark="b", reply=reply, origin=origin)
    by = ("usage", "--by", "model", "--by", "day")
    assert [line.split()[:3] for line in turnlog(*by).stdout.decode().splitlines()] == [
        ["model", "day", "replies"],
        ["one", "2026-01-01", "1"],
        ["one", "2026-01-03", "1"],
        ["two", "2026-01-02", "1"],
        ["all", "3", "0"],
    ]
    assert [each["keys"] for each in turnlog.ok(*by, "--json").json_lines][1] == ["one", "2026-01-03"]
    assert turnlog.refused("usage", "--by", "day", "--by", "day").startswith("by: expected some of day, model, ")


@pytest.mark.parametrize("by", ["model", "thread"])
def test_the_total_of_usage_is_on_the_screen(turnlog: Command, by: str) -> None:
    """Beside long names and large numbers: what is nothing but zeros is left out there, and a name is cut."""
    usage = {"input_tokens": 123_456_789, "output_tokens": 12_345_678, "cache_read_input_tokens": 234_567_890}
    with TurnLog.open(turnlog.url) as log:
        for model in ("claude-haiku-4-5-20251001", "claude-opus-4-1-20250805"):
            log.add_turn("Hi.", bookmark="main")
            log.add_turn("Yes.", role="assistant", continues="main", reply=ReplyFacts(model=model, usage=usage))
    with Terminal(turnlog, "usage", "--by", by, columns=80) as terminal:
        lines = terminal.end()[0].splitlines()[-4:]
    assert [line.split() for line in lines[::3]] == [
        [by, "replies", "input", "output", "cache", "read", "total"],
        ["all", "2", "246,913,578", "24,691,356", "469,135,780", "740,740,714"],
    ]
    assert [len(line.split()) for line in lines[1:3]] == [6, 6]
    assert turnlog.ok("usage", "--by", by).text.splitlines()[0].split()[-2:] == ["reasoning", "total"]


def test_payload_that_is_there_again_is_found(talk: Command) -> None:
    """The next search tries again what could not be read."""
    talk.ok("add", "--bookmark", "long", "water " * 20_000)
    [file] = (path for path in Path(f"{talk.store}-payloads").rglob("??/*") if path.is_file())
    away = file.rename(file.with_name("away"))
    for _ in range(2):
        line = talk.refused("search", "river")
        assert "CorruptionError" in line
        assert "the next run tries it again, and `turnlog projections skip search" in line
    away.rename(file)
    assert len(talk.ok("search", "water", "--json").json_lines) == 1


def test_projections_tell_how_they_are_doing(talk: Command) -> None:
    """Not built, behind, up to date, paused; and go on once the event is skipped."""
    status = talk.ok("projections", "status").text.splitlines()
    assert [line.partition(" to 0 ")[2].strip() for line in status] == ["not built yet"] * len(status)
    assert talk.ok("projections", "run", "search").text.split()[-3:] == ["up", "to", "date"]
    talk.ok("add", "more")
    assert "1 event behind" in talk.ok("projections", "status").text
    # What is in the way of the next turn makes it poison.
    with closing(sqlite3.connect(f"{talk.store}-projections", isolation_level=None)) as connection:
        connection.execute("INSERT INTO search_turns VALUES (5, 'x', 'x', 0, 'user', NULL, 0, 'in the way')")
    paused = talk("projections", "run")
    assert paused.status == 1
    assert "search is paused at global position 5" in paused.stderr
    assert "`turnlog projections rebuild search` tries it again" in paused.stderr
    assert "skip search --reason" in paused.stderr
    assert "is paused" in talk.refused("search", "river")
    talk.ok("projections", "rebuild", "search")
    assert talk("projections", "status").status == 0
    assert "not paused" in talk.refused("projections", "skip", "search", "--reason", "x")
    assert "no projection 'nope'" in talk.refused("projections", "run", "nope")
    with TurnLog.open("memory://") as log:
        beside = [each.name for each in log.feeds.projections]
    assert [line.split()[0] for line in status] == beside
    inside = [each.name for each in synchronous()]
    known = ", ".join(map(repr, [*inside, "merkle tree", *beside]))
    assert talk.refused("projections", "rebuild", "search", "nope") == f"no projection 'nope' (one of {known})"


def test_skipping_needs_a_reason(talk: Command) -> None:
    """One that says something."""
    talk.ok("projections", "run")
    assert "reason: say why" in talk.refused("projections", "skip", "search", "--reason", " ")


def test_restored_log_is_told_with_what_to_do(talk: Command) -> None:
    """By what searches it and by the status; building anew goes on."""
    talk.ok("search", "river")
    with closing(sqlite3.connect(talk.store)) as source, closing(sqlite3.connect(f"{talk.store}-old")) as copy:
        source.backup(copy)
    talk.ok("add", "A heron")
    talk.ok("search", "heron")
    with closing(sqlite3.connect(f"{talk.store}-old")) as copy, closing(sqlite3.connect(talk.store)) as store:
        copy.backup(store)
    talk.ok("add", "An otter")
    assert "`turnlog projections rebuild search`" in talk.refused("search", "otter")
    status = talk("projections", "status")
    assert status.status == 1
    assert "cannot go on" in status.text
    assert "`turnlog projections rebuild search`" in status.stderr
    inside = talk("projections", "rebuild")
    said = "turnlog: beside the store, and as they were: search; `turnlog projections rebuild search`\n"
    assert (inside.status, inside.stderr) == (0, said)
    talk.ok("projections", "rebuild", "search")
    assert len(talk.ok("search", "otter", "--json").json_lines) == 1
