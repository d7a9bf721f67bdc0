"""What is long is shown by the user's pager, as git does it."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.cli.terminal import CTRL_C, Terminal

from turnlog import TurnLog

PAGER = """\
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_IGN)
lines = []
for line in sys.stdin:
    lines.append(line)
    if len(lines) == int(sys.argv[2]):
        break
Path(sys.argv[1]).write_text("".join(lines))
print("LESS is", os.environ.get("LESS"), flush=True)
while not Path(sys.argv[1] + ".quit").exists():
    pass
"""
"""Takes so many lines, keeps them, says so, and goes when it is told to."""

TURNS = 200


@pytest.fixture
def log(turnlog: Command, tmp_path: Path) -> Path:
    """Give a log with a long thread, and the place where the pager keeps what it is given."""
    with TurnLog.open(turnlog.url) as log:
        for number in range(TURNS):
            log.add_turn(f"turn {number}", continues=["main"] if number else None, bookmark="main")
    (tmp_path / "pager.py").write_text(PAGER)
    return tmp_path / "paged"


def pager(kept: Path, lines: int = 10**6) -> dict[str, str]:
    """Return an environment with a terminal that can show pages, and the pager."""
    return {"TERM": "xterm", "NO_COLOR": "", "PAGER": f"{sys.executable} {kept.parent / 'pager.py'} {kept} {lines}"}


@pytest.mark.parametrize("command", ["log", "ancestry", "context", "children", "diff", "threads", "bookmarks", "show"])
def test_a_pager_gets_what_a_terminal_would_with_colours(turnlog: Command, log: Path, command: str) -> None:
    """And is told, unless it is set up, to go where all fits on the screen."""
    turn = {"threads": (), "bookmarks": (), "diff": ("main", "main~1")}.get(command, ("main~1",))
    with Terminal(turnlog, command, *turn, **pager(log)) as terminal:
        terminal.expect("LESS is FRX")
        Path(f"{log}.quit").touch()
        assert terminal.end()[1] == 0
    assert "\x1b[" in log.read_text()
    plain = turnlog.ok(command, *turn).text
    assert len(log.read_text().splitlines()) == len(plain.splitlines())


def test_who_leaves_early_has_seen_enough(turnlog: Command, log: Path) -> None:
    """The command ends with the pager, without a word; Ctrl-C is for the pager."""
    Path(f"{log}.quit").touch()
    with Terminal(turnlog, "log", **pager(log, 3)) as terminal:
        shown, status = terminal.end()
    assert (status, shown.split()) == (0, ["LESS", "is", "FRX"])
    Path(f"{log}.quit").unlink()
    with Terminal(turnlog, "log", **pager(log)) as terminal:
        terminal.expect("LESS is FRX")
        time.sleep(0.3)
        terminal.send(CTRL_C)
        time.sleep(0.3)
        Path(f"{log}.quit").touch()
        shown, status = terminal.end()
    assert (status, "Traceback" in shown, "interrupted" in shown) == (0, False, False)


@pytest.mark.parametrize(
    ("none", "why"),
    [("", None), ("cat", None), ("no-such-pager-anywhere", "no such file or directory"), ("'", "no closing quotation")],
)
def test_without_a_pager_it_is_printed(turnlog: Command, log: Path, none: str, why: str | None) -> None:
    """Also where there is no such program, which is told."""
    with Terminal(turnlog, "log", **(pager(log) | {"TURNLOG_PAGER": none})) as terminal:
        shown, status = terminal.end()
    assert (status, shown.count("turn "), log.exists()) == (0, TURNS, False)
    told = f"turnlog: the pager {none!r}, which TURNLOG_PAGER names, cannot be run ({why})"
    assert [line for line in shown.splitlines() if "pager" in line] == ([] if why is None else [told])


def test_a_pager_may_be_a_line_for_a_shell(turnlog: Command, log: Path) -> None:
    """As git and man take it."""
    named = {"PAGED": str(log), "TURNLOG_PAGER": "head -n 2 | tail -n 1 > $PAGED"}
    with Terminal(turnlog, "log", **(pager(log) | named)) as terminal:
        assert terminal.end() == ("", 0)
    assert log.read_text().endswith("turn 1\n")


@pytest.mark.parametrize(("code", "how"), [("sys.exit(1)", "status 1"), ("os.kill(os.getpid(), 9)", "signal 9")])
def test_a_pager_that_fails_is_told(turnlog: Command, log: Path, code: str, how: str) -> None:
    """For nothing was shown."""
    failing = log.with_name("failing.py")
    failing.write_text(f"import os, sys\n{code}\n")
    named = f"{sys.executable} {failing}"
    with Terminal(turnlog, "log", **(pager(log) | {"TURNLOG_PAGER": named})) as terminal:
        shown, status = terminal.end()
    told = f"turnlog: the pager {named!r} failed ({how}): TURNLOG_PAGER=cat shows all without one"
    assert (status, shown.strip()) == (0, told)


@pytest.mark.usefixtures("log")
def test_that_the_usual_pager_is_not_there_is_not_told(turnlog: Command, tmp_path: Path) -> None:
    """Nobody has asked for it."""
    with Terminal(turnlog, "log", TERM="xterm", NO_COLOR="", PATH=str(tmp_path)) as terminal:
        shown, status = terminal.end()
    assert (status, shown.count("turn "), "turnlog:" in shown) == (0, TURNS, False)


def test_programs_get_no_pager(turnlog: Command, log: Path) -> None:
    """Neither JSON, nor what is piped, nor a terminal that cannot do more than write lines."""
    with Terminal(turnlog, "log", "--json", **pager(log)) as terminal:
        assert terminal.end()[0].count('"id"') == TURNS
    assert turnlog.ok("log", **pager(log)).text.count("turn ") == TURNS
    with Terminal(turnlog, "log", **(pager(log) | {"TERM": "dumb"})) as terminal:
        assert terminal.end()[0].count("turn ") == TURNS
    assert not log.exists()


def test_an_error_is_one_line_with_a_pager_too(turnlog: Command, log: Path) -> None:
    """And comes when the pager has gone."""
    Path(f"{log}.quit").touch()
    with Terminal(turnlog, "context", "nix", **pager(log)) as terminal:
        shown, status = terminal.end()
    assert (status, "turnlog: no turn or bookmark 'nix'" in shown) == (2, True)


def test_less_shows_it_and_leaves_what_fits(turnlog: Command, log: Path) -> None:
    """The pager that is used by default; where it is not installed, all is printed."""
    with Terminal(turnlog, "log", "-n", "3", TERM="xterm", NO_COLOR="") as terminal:
        shown, status = terminal.end()
    assert (status, "turn 199" in shown) == (0, True)
    with Terminal(turnlog, "log", TERM="xterm", NO_COLOR="") as terminal:
        terminal.expect("turn 20")
        if shutil.which("less") is not None:
            time.sleep(0.5)
            terminal.send("q")
        assert terminal.end()[1] == 0


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
@pytest.mark.parametrize("pager", [{}, {"PAGER": "less -S"}], ids=["by default", "named"])
@pytest.mark.parametrize("settings", ["-i", "-FX -R", "iMS", ""])
def test_less_shows_colours_and_utf8_however_it_is_set_up(
    turnlog: Command, log: Path, settings: str, pager: dict[str, str]
) -> None:
    """Whoever has options of their own in `LESS` need not name ours, nor a locale that has the signs."""
    with Terminal(turnlog, "log", TERM="xterm", NO_COLOR="", LESS=settings, LC_ALL="C", **pager) as terminal:
        terminal.expect("turn 20")
        time.sleep(0.5)
        terminal.send("q")
        _, status = terminal.end()
    assert status == 0
    assert "\x1b[1;36m●\x1b[0m" in terminal.output.decode()
    assert b"ESC" not in terminal.output
