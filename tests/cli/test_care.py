"""`turnlog verify`, `stats`, and what happens when the world is unkind."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.command import Command, write_conversation

from turnlog import TurnLog


def test_verify_of_a_sound_log_is_clean(read: Command) -> None:
    """Status 0, with counts of what was read."""
    report = read.ok("verify", "--json").json
    assert {name: report[name] for name in ("events", "payloads", "clean", "damage")} == {
        "events": 6,
        "payloads": 5,
        "clean": True,
        "damage": [],
    }
    assert read.ok("verify").text.startswith("clean  6 events, 5 payloads, ")


def test_verify_of_damage_has_status_1_and_a_line_for_each(turnlog: Command) -> None:
    """The report stays whole JSON on standard output."""
    write_conversation(turnlog.url)
    with sqlite3.connect(turnlog.store) as connection:
        connection.execute("UPDATE stored_events SET payload = X'00' WHERE notification_id = 3")
    connection.close()
    outcome = turnlog("verify", "--json")
    report = outcome.json
    assert (outcome.status, report["clean"]) == (1, False)
    assert [damage["global_position"] for damage in report["damage"]] == [3]
    [line] = outcome.stderr.splitlines()
    assert line.startswith("turnlog: damage at global position 3, event ")


def test_long_work_shows_progress_on_a_terminal_only(read: Command) -> None:
    """The bar goes to standard error; standard output has the report and nothing else."""
    outcome = read.on_terminal("stderr", "verify", "--json", TERM="xterm-256color", COLUMNS="80")
    assert b"verifying" in outcome.stdout
    assert b"6/6" in outcome.stdout
    assert outcome.stderr == read.ok("verify", "--json").text


def test_stats_counts(read: Command) -> None:
    """`--json` has the numbers of `TurnLog.stats`, the table has them for people."""
    stats = read.ok("stats", "--json").json
    assert (stats["turns"], stats["threads"], stats["bookmarks"]) == (5, 1, 2)
    assert stats["topics"] == {"gpt.turn": 5, "log.genesis": 1}
    lines = [line.split() for line in read.ok("stats").text.splitlines()]
    assert lines[1:5] == [["turns", "5"], ["threads", "1"], ["bookmarks", "2"], ["events", "6"]]


def test_version_and_help_need_no_store(turnlog: Command) -> None:
    """They print and succeed."""
    assert turnlog.ok("--version").text.startswith("turnlog 0.")
    assert "Usage: turnlog add" in turnlog.ok("add", "--help").text


def test_completion_is_installed_for_the_shell(turnlog: Command, tmp_path: Path) -> None:
    """The script knows the commands, also those within commands, and their options."""
    turnlog.ok("--install-completion", SHELL="/bin/bash")
    script = (tmp_path / ".local/share/bash-completion/completions/turnlog").read_text()
    assert all(word in script for word in ("claude-code", "rename", "--expected-head"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("show", ""), ["aside", "main"]),
        (("add", "Hi", "-c", ""), ["aside", "main"]),
        (("bookmarks", "rename", ""), ["aside", "main"]),
        (("bookmarks", "-b", ""), ["aside", "main"]),
        (("erase", "--turn", ""), ["aside", "main"]),
        (("prove", ""), ["aside", "main"]),
        (("search", "word", "--thread", ""), ["aside", "main"]),
        (("tail", "--bookmark", ""), ["aside", "main"]),
        (("request", ""), ["aside", "main"]),
        (("run", "Hi", "-p", ""), ["kilo"]),
        (("add", "Hi", "-p", ""), ["kilo"]),
        (("pointer", "delete", ""), ["kilo"]),
        (("run", "Hi", "--servers", ""), ["files"]),
        (("mcp", "tools", ""), ["files"]),
        (("provider", "models", ""), ["milli"]),
        (("show", "'ma"), ["main"]),
        (("run", "Hi", "-p", "mi"), []),
        (("show", "--store", "memory://", ""), []),
        (("--json", "log", "ma"), ["main"]),
        (("log", "--json", "ma"), ["main"]),
        (("log", "--store", "STORE", "ma"), ["main"]),
        (("--store", "STORE", "log", "ma"), ["main"]),
        (("--store=STORE", "log", "ma"), ["main"]),
        (("log", "--store", "sqlite", ":", "//PATH", "ma"), ["main"]),
        (("log", "--store", "=", "sqlite", ":", "//PATH", "ma"), ["main"]),
    ],
    ids=" ".join,
)
def test_names_of_the_store_are_completed(turnlog: Command, line: tuple[str, ...], expected: list[str]) -> None:
    """As the script asks for them when Tab is pressed, of the store that the line is about."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("First", bookmark="main")
        log.add_turn("Second", bookmark="aside")
        log.pointers.set("kilo", "milli", "m")
        log.servers.set("files", ["cat"])
        log.providers.set("milli", adapter="openai_chat", base_url="http://127.0.0.1:1")
    words = [word.replace("STORE", turnlog.url).replace("PATH", f"/{turnlog.store}") for word in line]
    said = turnlog.ok(
        "__complete", *words, **({} if words == [*line] else {"TURNLOG_STORE": "memory://"})
    ).text.splitlines()
    offered = [each.split("\t")[0] for each in said]
    assert [name for name in offered if name in ("aside", "main", "kilo", "files", "milli")] == expected


def test_some_hundreds_of_names_are_completed(turnlog: Command) -> None:
    """No shell shows more. With more letters they are others."""
    with TurnLog.open(turnlog.url) as log, log.group() as group:
        for number in range(1000):
            group.add_turn("x", bookmark=f"n{number:03}")
    for typed, names in (
        ("n", [f"n{number:03}" for number in range(300)]),
        ("n98", [f"n98{end}" for end in range(10)]),
    ):
        said = turnlog.ok("__complete", "log", typed).text.splitlines()
        assert [name for name in said if name.startswith("n")] == names


def test_there_is_nothing_to_complete_without_a_store(turnlog: Command) -> None:
    """And pressing Tab makes none."""
    assert "main" not in turnlog.ok("__complete", "show", "").text
    assert not turnlog.store.exists()


def test_a_file_that_is_no_store_is_refused(turnlog: Command) -> None:
    """And is left as it is."""
    turnlog.store.write_bytes(b"not a store at all, but long enough to be looked at " * 40)
    before = turnlog.store.read_bytes()
    assert "is not a turnlog store" in turnlog.refused("log")
    assert "is not a turnlog store" in turnlog.refused("add", "x")
    assert turnlog.store.read_bytes() == before


def test_a_full_disk_under_a_large_output_is_one_line(turnlog: Command) -> None:
    """Also where what was to be written is not kept."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("x" * 1_000_000, bookmark="main")
    for arguments in (("export",), ("cat", "main"), ("show", "main"), ("context", "main")):
        outcome = turnlog.into("/dev/full", *arguments)
        assert (outcome.status, outcome.stderr) == (
            2,
            "turnlog: standard output cannot be written: no space left on device\n",
        )


@pytest.mark.parametrize(
    "arguments", [("log",), ("log", "--json"), ("export",), ("cat", "main"), ("--help",), ("--version",)]
)
def test_a_full_disk_under_the_output_is_one_line(read: Command, arguments: tuple[str, ...]) -> None:
    """Output that cannot be written is not passed over in silence."""
    outcome = read.into("/dev/full", *arguments)
    assert (outcome.status, outcome.stderr) == (
        2,
        "turnlog: standard output cannot be written: no space left on device\n",
    )


def test_a_reader_that_leaves_ends_the_output_quietly(read: Command) -> None:
    """As in `turnlog log | head`; an export that is cut says so, because a cut export is of no use."""
    for arguments in (["log"], ["--help"], ["log", "--help"]):
        outcome = read.into_closed_pipe(*arguments)
        assert (outcome.status, outcome.stderr) == (0, "")
    line = "turnlog: standard output was closed before the export was whole\n"
    outcome = read.into_closed_pipe("export")
    assert (outcome.status, outcome.stderr) == (2, line)
    outcome = read.into_closed_pipe("export", "--format", "markdown", "main")  # which tells of options before
    assert (outcome.status, outcome.stderr.endswith(line)) == (2, True)


def test_a_reader_of_a_named_pipe_that_leaves_is_told(turnlog: Command, tmp_path: Path) -> None:
    """What is written as into a file is not there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    turnlog.ok("add", "-", stdin=b"x" * 1_000_000)

    def leave() -> None:
        with pipe.open("rb") as file:
            file.read(1)

    reader = threading.Thread(target=leave, daemon=True)
    reader.start()
    assert turnlog.refused("export", "-o", str(pipe)) == f"{str(pipe)!r}: broken pipe"
    reader.join()


def test_ctrl_c_is_one_line(turnlog: Command) -> None:
    """Status 130 as shells have it, and nothing recorded."""
    outcome = turnlog.interrupted_while_reading_stdin("add")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (130, b"", "turnlog: interrupted\n")
    assert not turnlog.store.exists()


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}])
def test_output_is_utf8_in_every_locale(read: Command, locale: dict[str, str]) -> None:
    """The drawing does not crash where the locale knows only ASCII."""
    assert read.ok("log", "-n", "1", **locale).text.splitlines()[1] == "┊"


_TAB = """\
source "$1"
completes=$(complete -p turnlog); completes=${completes##*-F }
COMP_WORDS=(turnlog log ma); COMP_CWORD=2; COMP_LINE="turnlog log ma"; COMP_POINT=${#COMP_LINE}
${completes%% *} turnlog ma log
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does with the script when Tab is pressed behind `turnlog log ma`."""


def test_the_installed_script_completes_in_bash(turnlog: Command, tmp_path: Path) -> None:
    """It is run as the shell runs it, and asks the command for the names of the store."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("First", bookmark="main")
        log.add_turn("Second", bookmark="aside")
    turnlog.ok("--install-completion", "--shell", "bash")
    script = tmp_path / ".local/share/bash-completion/completions/turnlog"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", _TAB, "bash", str(script)],
        env=turnlog.environment(PATH=path),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["main"]
