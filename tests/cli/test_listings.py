"""How much of a listing is shown: limits, times, roles, models and bookmarks."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.command import Command, clocked_log
from tests.facts import with_facts
from tests.faults.hostile import run_sql

from turnlog.cli.failures import UsageError
from turnlog.cli.filters import parse_time
from turnlog.cli.text import age


@pytest.fixture
def days(turnlog: Command) -> Command:
    """Give a log with a thread on each of three days; each is a question and its answer, an hour later."""
    for day in (1, 2, 3):
        for hour, role, text in ((9, "user", f"Question {day}"), (10, "assistant", f"Answer {day}")):
            with clocked_log(turnlog.url, datetime(2026, 3, day, hour, tzinfo=UTC)) as log:
                said = {"role": role, "model": f"model-{day}"} if role == "assistant" else {"role": role}
                name = f"trip-{day}" if day < 3 else "home"
                log.add_turn(text, **with_facts(said), bookmark=name, continues=None if role == "user" else name)
    return turnlog


def lines(command: Command, *arguments: str) -> list[str]:
    """Return the first line of each turn that is listed."""
    return [line.rpartition("  ")[2].rpartition("] ")[2] for line in command.ok(*arguments).text.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), [3, 2, 1]),
        (("-n", "2"), [3, 2]),
        (("--since", "2026-03-02T10:00Z"), [3, 2]),
        (("--until", "2026-03-02T10:00Z"), [1]),
        (("--since", "2026-03-02T00:00Z", "--until", "2026-03-03T00:00Z"), [2]),
        (("--bookmark", "trip-*"), [2, 1]),
        (("-b", "home"), [3]),
        (("-b", "trip-*", "-n", "1"), [2]),
        (("--role", "assistant"), [3, 2, 1]),
        (("--role", "assistant", "--model", "model-2"), [2]),
        (("--model", "model-[13]"), [3, 1]),
        (("--model", "model-*", "-n", "2"), [3, 2]),
    ],
)
def test_threads_are_newest_first(days: Command, arguments: tuple[str, ...], found: list[int]) -> None:
    """By their last turn; for programs the same."""
    assert lines(days, "threads", *arguments) == [f"Question {day}" for day in found]
    records = days.ok("threads", *arguments, "--json").json_lines
    assert [record["bookmarks"] for record in records] == [[f"trip-{day}" if day < 3 else "home"] for day in found]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), ["home", "trip-1", "trip-2"]),
        (("-n", "2"), ["home", "trip-2"]),
        (("--bookmark", "trip-*"), ["trip-1", "trip-2"]),
        (("--model", "model-1"), ["trip-1"]),
        (("--role", "user"), []),
        (("--since", "2026-03-02T00:00Z", "--until", "2026-03-03T00:00Z"), ["trip-2"]),
    ],
)
def test_bookmarks_are_by_name(days: Command, arguments: tuple[str, ...], found: list[str]) -> None:
    """Limits and filters are of the turns that they are at."""
    assert [record["name"] for record in days.ok("bookmarks", *arguments, "--json").json_lines] == found


@pytest.mark.parametrize(
    "arguments", [("-b", "trip-1"), ("-b", "trip-1", "-n", "1"), ("-b", "trip-1", "--model", "model-1")]
)
def test_a_bookmark_is_looked_up_by_its_name(days: Command, arguments: tuple[str, ...]) -> None:
    """What the others are at is not looked at."""
    run_sql(days.store, "UPDATE bookmarks SET turn_id = X'00' WHERE name = 'home'")
    assert [record["name"] for record in days.ok("bookmarks", *arguments, "--json").json_lines] == ["trip-1"]
    assert lines(days, "bookmarks", *arguments) == ["Answer 1"]


def test_only_turns_of_bookmarks_that_are_shown_are_read(days: Command) -> None:
    """Of the latest ones, and by a filter those of one after the other until there are enough."""
    head = days.ok("log", "trip-1", "-n", "1", "--json").json_lines[0]["id"]
    run_sql(days.store, f"UPDATE stored_events SET state = X'00' WHERE event_id = '{head}'")
    assert [line.split()[0] for line in days.ok("bookmarks", "-n", "2").text.splitlines()] == ["home", "trip-2"]
    found = days.ok("bookmarks", "-n", "1", "--role", "assistant", "--model", "*-2", "--json").json_lines
    assert [record["name"] for record in found] == ["trip-2"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("log", "--all", "--role", "assistant"), ["┊", "Answer 1", "", "┊", "Answer 2", "", "┊", "Answer 3"]),
        (("log", "--all", "--model", "model-[12]"), ["┊", "Answer 1", "", "┊", "Answer 2"]),
        (
            ("log", "--all", "--since", "2026-03-02T09:30Z", "--until", "2026-03-03T09:30Z", "--role", "user"),
            ["Question 3"],
        ),
        (("ancestry", "home"), ["Question 3", "Answer 3"]),
        (("ancestry", "home", "-n", "1"), ["Answer 3"]),
        (("ancestry", "home", "--role", "user"), ["Question 3"]),
        (("children", "home~1", "--model", "model-3"), ["Answer 3"]),
        (("children", "home~1", "--since", "2026-03-03T09:30Z", "--role", "assistant"), ["Answer 3"]),
        (("children", "home~1", "-b", "home", "-n", "1"), ["Answer 3"]),
        (("ancestry", "home", "--until", "2026-03-03T09:30Z"), ["Question 3"]),
        (("ancestry", "home", "--since", "2026-03-03T09:30Z", "--model", "model-3"), ["Answer 3"]),
        (("ancestry", "home", "--bookmark", "h*"), ["Answer 3"]),
        (("log", "--all", "-b", "trip-*"), ["┊", "Answer 1", "", "┊", "Answer 2"]),
    ],
)
def test_turns_can_be_chosen(days: Command, arguments: tuple[str, ...], found: list[str]) -> None:
    """By role, model, time and bookmark; of what fits, the latest."""
    assert lines(days, *arguments) == found


@pytest.mark.parametrize("arguments", [("--model", "model-2"), ("--until", "2026-03-03T09:30Z")])
def test_a_choice_of_no_turn_says_so(days: Command, arguments: tuple[str, ...]) -> None:
    """On standard error: there is nothing to list."""
    outcome = days("children", "home~1", *arguments)
    assert (outcome.status, outcome.text, outcome.stderr) == (0, "", "turnlog: none of the turns is such a one\n")


@pytest.mark.parametrize(
    "command", [("log",), ("ancestry", "home"), ("children", "home~1"), ("threads",), ("bookmarks",)]
)
def test_a_bookmark_that_is_not_there_is_named(days: Command, command: tuple[str, ...]) -> None:
    """It may be misspelled; one that is there, and at nothing that is listed, is not."""
    outcome = days(*command, "-b", "hmoe")
    line = "turnlog: no bookmark is such a one as 'hmoe': `turnlog bookmarks` lists what there is\n"
    assert (outcome.status, outcome.text, outcome.stderr) == (0, "", line)
    assert "is such a one\n" in days(*command, "-b", "trip-1", "--since", "1h").stderr


@pytest.mark.parametrize(
    ("arguments", "left_out", "found"),
    [
        (("-n", "1"), 5, ["Question 3", "Answer 3"]),
        (("--model", "model-[12]"), 3, ["Question 1", "Answer 1", "Question 2", "Answer 2"]),
        (("--role", "user"), 4, ["Question 1", "Question 2", "Question 3"]),
        (("--bookmark", "trip-*"), 3, ["Question 1", "Answer 1", "Question 2", "Answer 2"]),
        (("-b", "trip-*", "-n", "1"), 5, ["Question 2", "Answer 2"]),
        (("-b", "*", "--model", "model-2"), 5, ["Question 2", "Answer 2"]),
        (("--since", "2026-03-03T09:30Z"), 5, ["Question 3", "Answer 3"]),
        (("--until", "2026-03-02T09:30Z"), 4, ["Question 1", "Answer 1", "Question 2"]),
        (("home", "--until", "2026-03-03T09:30Z"), 6, ["Question 3"]),
        (("home", "--ancestry", "-b", "home"), 5, ["Question 3", "Answer 3"]),
    ],
)
def test_an_export_is_of_what_fits_with_its_ancestry(
    days: Command, tmp_path: Path, arguments: tuple[str, ...], left_out: int, found: list[str]
) -> None:
    """It says how much is left out, and goes into another store, where nothing is missing."""
    done = days("export", *arguments)
    assert done.status == 0
    assert done.stderr == f"turnlog: left out: {left_out} of 7 events of the log\n"
    other = Command(store=tmp_path / "other.db")
    assert other.ok("import", "turnlog", "-", "--json", stdin=done.stdout).json["added"] == len(found)
    events = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    assert [event["payload"][0]["text"] for event in events] == found
    assert other.ok("verify").text.startswith("clean")


def test_an_export_of_nothing_says_so(days: Command, tmp_path: Path) -> None:
    """And leaves no file; a page of a thread is of all its ancestry."""
    out = tmp_path / "out.jsonl"
    nothing = "none of the turns is such a one: there is nothing to export"
    assert days.refused("export", "--role", "system", "-o", out) == nothing
    assert days.refused("export", "home", "-b", "trip-1") == nothing
    assert days.refused("export", "-b", "nope*") == "no bookmark is such a one as 'nope*': there is nothing to export"
    assert days.refused("export", "-n", "0") == "--limit must be at least 1, got 0"
    assert days.refused("export", "home", "--format", "markdown", "-n", "1") == (
        "export: --format markdown writes HEADISH and its ancestry: limits and filters are for --format turnlog"
    )
    assert not out.exists()


def test_the_latest_turns_of_all_threads(days: Command) -> None:
    """In global order, whatever their thread, and how many are before them."""
    shown = days.ok("log", "--all", "-n", "3").text.splitlines()
    assert shown[0] == "… 3 earlier turns"
    assert [line.rpartition("  ")[2].rpartition("] ")[2] for line in shown if "●" in line] == [
        "Answer 2", "Question 3", "Answer 3",
    ]  # fmt: skip
    assert len(days.ok("log", "--all", "-n", "9", "--json").json_lines) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--all", "--role", "user", "-n", "1"), "… earlier turns"),
        (("--all", "--role", "user", "-n", "3"), "● "),
        (("--all", "-b", "*", "-n", "1"), "… 2 earlier turns"),
        (("home", "--role", "user", "-n", "1"), "● "),
        (("home", "--ancestry", "-n", "1"), "… 1 earlier turn"),
    ],
)
def test_what_is_left_out_by_a_limit_is_of_what_fits(days: Command, arguments: tuple[str, ...], said: str) -> None:
    """How many is said where nothing more has to be read for it."""
    assert days.ok("log", *arguments).text.startswith(said)


def test_heads_of_a_thread_are_those_of_its_branches(turnlog: Command) -> None:
    """Not what a bookmark is at before the thread joins another one, nor in others."""
    with clocked_log(turnlog.url) as log:
        log.add_turn("One", bookmark="one")
        log.add_turn("Two", bookmark="two")
        log.add_turn("Both", continues=["one", "two"], bookmark="both")
        log.add_turn("Fork of one", continues="one", bookmark="fork")
        log.add_turn("Other", bookmark="other")

    def heads(*arguments: str) -> list[str]:
        records = turnlog.ok("log", *arguments, "-b", "*", "--json").json_lines
        return [record["meta"]["head"] for record in records]

    assert heads("fork") == ["one", "both", "fork"]
    assert heads("two") == ["two", "both"]
    assert heads("--all") == ["one", "two", "both", "fork", "other"]


def test_a_listing_without_anything_says_why(days: Command) -> None:
    """That there are others."""
    none = "turnlog: none of the threads is such a one\n"
    assert days("threads", "--role", "user", "--model", "model-*").stderr == none
    assert days("log", "--all", "--role", "system").stderr == "turnlog: none of the turns is such a one\n"


def test_a_head_that_is_missing_is_damage(days: Command) -> None:
    """And no name that somebody has misspelled."""
    head = days.ok("log", "home", "-b", "home", "--json").json_lines[0]["id"]
    run_sql(days.store, f"DELETE FROM stored_events WHERE event_id = '{head}'")
    for arguments in (("--all",), ("trip-1",)):
        said = days.refused("log", *arguments, "-b", "*")
        assert said.startswith(f"turn '{head}', which a bookmark is at, is missing: run `turnlog verify`")


@pytest.mark.parametrize(
    "command",
    [
        ["log", "home"],
        ["log", "--all"],
        ["log", "--all", "-n", "2"],
        ["ancestry", "home"],
        ["threads", "-b", "home"],
        ["bookmarks", "-b", "home"],
    ],
)
def test_damaged_turns_hide_no_others(days: Command, command: list[str]) -> None:
    """They say so in their rows, and behind them stands what is damaged: of the first, and how many more there are."""
    answer, question = (turn["id"] for turn in days.ok("log", "home", "--json").json_lines[::-1])
    before = days.ok(*command).text
    run_sql(days.store, f"UPDATE stored_events SET payload = X'00' WHERE event_id IN ('{question}', '{answer}')")
    outcome = days(*command)
    assert outcome.text == before.replace("Question 3", "(damaged)").replace("Answer 3", "(damaged)")
    both = outcome.text.count("(damaged)") == 2
    [line] = outcome.stderr.splitlines()
    assert outcome.status == 2
    assert line.startswith(f"turnlog: payload of event '{answer if command[0] == 'bookmarks' else question}' ")
    assert ("; 1 more turn cannot be read either: run `turnlog verify`" in line) is both


def test_a_turn_that_was_moved_hides_no_others(days: Command) -> None:
    """It is not where its header says, and where it is, it says something else."""
    [head] = [turn["id"] for turn in days.ok("log", "home", "-n", "1", "--json").json_lines]
    before = days.ok("bookmarks").text
    run_sql(days.store, f"UPDATE stored_events SET originator_version = 7 WHERE event_id = '{head}'")
    outcome = days("bookmarks")
    assert (outcome.status, outcome.text) == (2, before.replace("Answer 3", "(damaged)"))
    assert f"turn '{head}' does not stand in its stream where it says: run `turnlog verify`" in outcome.stderr


@pytest.mark.parametrize("command", ["threads", "log", "ancestry home", "children home"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "0"), "--limit must be at least 1, got 0"),
        (("--since", "soon"), "--since 'soon': give a day (2026-11-22, today, yesterday)"),
        (("--until", "2026-02-30"), "--until '2026-02-30': give a day"),
        (
            ("--since", "today", "--until", "yesterday"),
            "--until 'yesterday' is not after --since 'today': nothing is between them",
        ),
        (("--since", "999999w"), "--since '999999w': give a day"),
    ],
)
def test_what_is_no_limit_or_time_is_refused(
    days: Command, command: str, arguments: tuple[str, ...], message: str
) -> None:
    """In one line that says what to give."""
    assert days.refused(*command.split(), *arguments).startswith(message)


def test_times_are_those_of_this_machine() -> None:
    """Days begin at midnight here; a time with a zone is in that."""
    here = datetime.now().astimezone()
    assert parse_time("today", "--since") == here.replace(hour=0, minute=0, second=0, microsecond=0)
    assert parse_time("2026-03-01", "--since") == datetime(2026, 3, 1).astimezone()
    assert parse_time("2026-03-01T12:00+02:00", "--since") == datetime(2026, 3, 1, 10, tzinfo=UTC)
    for text, ago in (("90m", timedelta(minutes=90)), ("48h", timedelta(days=2)), ("2w", timedelta(days=14))):
        assert abs(datetime.now(UTC) - ago - parse_time(text, "--since")) < timedelta(minutes=1)
    assert timedelta(hours=22) < parse_time("today", "") - parse_time("yesterday", "") < timedelta(hours=26)
    with pytest.raises(UsageError):
        parse_time("", "--since")


@pytest.mark.parametrize("now", ["2026-10-25T12:00+01:00", "2026-10-26T12:00+01:00", "2026-03-29T12:00+02:00"])
def test_days_begin_at_midnight_where_the_clock_was_changed(monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    """On the day of it, and on the day after."""
    clock = datetime.fromisoformat(now)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        for name, days in (("today", 0), ("yesterday", 1)):
            day = (clock.date() - timedelta(days=days)).isoformat()
            assert parse_time(name, "--since", now=clock) == parse_time(day, "--since")
            assert parse_time(name, "--since", now=clock).astimezone().isoformat().startswith(f"{day}T00:00:00+")
    time.tzset()


def test_a_zone_that_is_none_keeps_no_time_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its minutes are written behind its hours: a day of it is refused, and what needs none is not."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC+530")
        time.tzset()
        assert abs(datetime.now(UTC) - timedelta(days=2) - parse_time("48h", "--since")) < timedelta(minutes=1)
        with pytest.raises(UsageError, match="--since 'today': give a day"):
            parse_time("today", "--since")
    time.tzset()


@pytest.mark.parametrize("days", [0.0002, 0.02, 0.5, 3, 20, 100, 1000])
def test_how_long_ago_is_typed_as_listings_say_it(days: float) -> None:
    """In seconds, minutes, hours, days, weeks, months and years: what is that old, or younger, is found."""
    now = datetime.now(UTC)
    shown = age(now - timedelta(days=days), now)
    since = now - parse_time(shown, "--since")
    assert timedelta(days=days / 2.5) < since + timedelta(seconds=1) <= timedelta(days=days, seconds=1)


def test_stats_says_where_the_store_is(days: Command) -> None:
    """The path, so that it can be found."""
    assert days.ok("stats").text.splitlines()[0].split() == ["store", str(days.store)]


def test_threads_say_what_comes_after_the_prompt(turnlog: Command) -> None:
    """All threads of a program may begin with the same system turn."""
    with clocked_log(turnlog.url) as log:
        log.add_turn("Be brief.", role="system", bookmark="main")
        log.add_turn("Which ferry?", continues="main")
        log.add_turn("Be long.", role="system")
    assert lines(turnlog, "threads") == ["Be long.", "Which ferry?"]


def test_a_name_of_a_bookmark_cannot_pass_for_two(turnlog: Command) -> None:
    """A backslash is before what parts names in a mark."""
    with clocked_log(turnlog.url) as log:
        log.add_turn("Hello", bookmark="main, try] [x")
    assert turnlog.ok("log").text.rstrip("\n").endswith(r"[main\, try\] \[x] Hello")
