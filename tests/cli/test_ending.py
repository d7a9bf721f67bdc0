"""SIGTERM, SIGHUP and SIGKILL: what a command leaves behind, and what it says."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import TIMEOUT_S, Command, Outcome, clocked_log
from tests.cli.proving import SigningCommand, signing
from tests.cli.terminal import Terminal
from tests.wires.server import WireServer, stream

from turnlog import TurnLog
from turnlog.cli.leftovers import temporary_file, temporary_folder

WIRE = OpenAI()
ENDING = [(signal.SIGTERM, 143), (signal.SIGHUP, 129)]
_STRUCK = """\
import os, signal, sys
import turnlog.cli.evidence as evidence, turnlog.cli.targets as targets
from turnlog_command import main

def struck(function):
    def call(*arguments):
        function(*arguments)
        os.kill(os.getpid(), {number})
    return call

evidence.write_file = struck(evidence.write_file)
targets.os.fchmod = struck(os.fchmod)
sys.exit(main())
"""
"""The command, to which a signal comes when the first file is written to its temporary place."""


def _struck(command: Command, number: int, *arguments: str | Path) -> Outcome:
    return command.within(_STRUCK.format(number=int(number)), *arguments)


@pytest.fixture
def signer(tmp_path: Path) -> SigningCommand:
    """Give the command with a key, a log and a checkpoint."""
    (tmp_path / "home").mkdir()
    command = signing(tmp_path / "home")
    command.ok("checkpoint")
    return command


@pytest.mark.parametrize("what", ["evidence", "export"])
@pytest.mark.parametrize(("number", "status"), [*ENDING, (signal.SIGINT, 130)])
def test_ended_command_leaves_nothing(
    signer: SigningCommand, tmp_path: Path, what: str, number: signal.Signals, status: int
) -> None:
    """Neither what it was to make nor the temporary place of it; and it says in one line that it was ended."""
    outcome = _struck(signer, number, what, "main", "-o", tmp_path / "out")
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert (outcome.status, outcome.stdout, outcome.stderr) == (status, b"", f"turnlog: {word}\n")
    assert [one.name for one in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("what", ["evidence", "export"])
def test_next_command_removes_what_a_killed_one_left(signer: SigningCommand, tmp_path: Path, what: str) -> None:
    """If it makes the same thing. Of others it touches nothing."""
    (tmp_path / ".out.turnlog-mine").write_text("mine")
    (tmp_path / ".out.abcdefgh").write_text("mine")
    (tmp_path / ".out.turnlog-abcdefgh").symlink_to(signer.store)
    mine = {".out.turnlog-mine", ".out.abcdefgh", ".out.turnlog-abcdefgh", "home"}
    assert _struck(signer, signal.SIGKILL, what, "main", "-o", tmp_path / "out").status == -signal.SIGKILL
    [left] = {one.name for one in tmp_path.iterdir()} - mine
    assert left.startswith(".out.turnlog-")
    signer.ok(what, "main", "-o", tmp_path / "other")
    assert (tmp_path / left).exists()
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    (tmp_path / "other").unlink(missing_ok=True)
    signer.ok(what, "main", "-o", tmp_path / "out")
    assert {one.name for one in tmp_path.iterdir()} == {*mine, "out"}


def test_what_is_in_use_is_no_leftover(signer: SigningCommand, tmp_path: Path) -> None:
    """Two commands may make the same thing at the same time."""
    place = tmp_path / "out"
    with temporary_folder(place) as folder, temporary_file(place) as (file, _):
        signer.ok("evidence", "main", "-o", place)
        signer.ok("export", "-o", tmp_path / "out.jsonl")
        assert folder.is_dir()
        assert stat.S_ISREG(file.stat().st_mode)
    assert {one.name for one in tmp_path.iterdir()} == {"home", "out", "out.jsonl"}


def test_folder_that_was_being_replaced_is_put_back(signer: SigningCommand, tmp_path: Path) -> None:
    """Where a command was killed, or ended, when the old folder had been taken away and the new one was not there."""
    place = tmp_path / "out"
    signer.ok("evidence", "main", "-o", place)
    before = (place / "index.html").read_bytes()
    program = """\
import os, signal, sys
from pathlib import Path
from turnlog_command import main

rename = Path.rename

def struck(self, target):
    done = rename(self, target)
    if target.parent.name == "old":
        os.kill(os.getpid(), {number})
    return done

Path.rename = struck
sys.exit(main())
"""
    for number, status in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
        ended = signer.within(program.format(number=int(number)), "evidence", "main", "-o", place, "--force")
        assert ended.status == status
        assert place.exists() == (number == signal.SIGTERM)
    assert "--force" in signer.refused("evidence", "main", "-o", place)
    assert (place / "index.html").read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"home", "out"}


def test_long_name_is_no_obstacle(signer: SigningCommand, tmp_path: Path) -> None:
    """The temporary name is no longer than a name may be."""
    name = "\N{GRINNING FACE}" * 63
    signer.ok("export", "-o", tmp_path / name)
    assert {one.name for one in tmp_path.iterdir()} == {"home", name}


@pytest.mark.parametrize(("number", "status"), ENDING)
def test_command_that_waits_is_ended(turnlog: Command, number: signal.Signals, status: int) -> None:
    """It is not before something happens."""
    turnlog.ok("add", "Hello")
    with turnlog.begin("tail", "--follow") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, stderr) == (status, b"turnlog: terminated\n")


@pytest.mark.parametrize("start", ["module", "program"])
@pytest.mark.parametrize(
    ("number", "status", "line"),
    [
        (signal.SIGINT, 130, b"turnlog: interrupted\n"),
        (signal.SIGTERM, 143, b"turnlog: terminated\n"),
        (signal.SIGHUP, 129, b"turnlog: terminated\n"),
    ],
)
def test_signal_while_the_package_is_imported_is_one_line(
    turnlog: Command, tmp_path: Path, start: str, number: signal.Signals, status: int, line: bytes
) -> None:
    """However the command is started: `turnlog`, or `python -m turnlog`."""
    # Python imports it before anything else: it strikes when the first module of the package looks for msgspec.
    (tmp_path / "sitecustomize.py").write_text(
        f"""\
import signal, sys

class Striking:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec":
            signal.raise_signal({int(number)})

sys.meta_path.insert(0, Striking())
"""
    )
    started = {
        "module": ["-m", "turnlog"],
        "program": ["-c", "import sys; from turnlog_command import main; sys.exit(main())"],
    }
    done = subprocess.run(
        [sys.executable, *started[start], "log"],
        capture_output=True,
        env=turnlog.environment(PYTHONPATH=str(tmp_path)),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", line)


_SLOW = """\
import os, signal, sys, time
import turnlog.cli.app as app
import turnlog.cli.interrupts as interrupts

def run(tokens):
    try:
        signal.raise_signal(signal.{first})
    finally:
        interrupts.PATIENCE_S = {patience_s}
        for number in {more}:
            signal.raise_signal(number)
        os.write(1, b"cleaned up")

app._run = run
sys.exit(app.main())
"""


@pytest.mark.parametrize("first", ["SIGTERM", "SIGHUP"])
def test_a_second_signal_that_comes_late_ends_at_once(turnlog: Command, first: str) -> None:
    """Whatever is still to be cleaned up does not come to an end."""
    done = turnlog.within(_SLOW.format(first=first, more="[signal.SIGTERM]", patience_s=0))
    assert (done.status, done.stdout, done.stderr) == (-signal.SIGTERM, b"", "")


@pytest.mark.parametrize(("first", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_further_signals_leave_time_to_clean_up(turnlog: Command, first: str, status: int) -> None:
    """A terminal that goes away sends two, from the kernel and from the shell, and people press twice."""
    for more in ("[signal.SIGHUP]", "[signal.SIGTERM, signal.SIGTERM]"):
        done = turnlog.within(_SLOW.format(first=first, more=more, patience_s=10))
        assert (done.status, done.stdout, done.stderr) == (status, b"cleaned up", "turnlog: terminated\n")


@pytest.mark.parametrize("ignored", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_ignored_signal_stays_ignored(turnlog: Command, ignored: str) -> None:
    """As with `nohup`; and a command in the background, which ignores Ctrl-C, is ended as others are."""
    ignore = f"import signal; signal.signal(signal.{ignored}, signal.SIG_IGN)\n"
    done = turnlog.within(ignore + _SLOW.format(first=ignored, more="[]", patience_s=10))
    assert (done.status, done.stdout, done.stderr) == (0, b"cleaned up", "")
    other = "SIGTERM" if ignored != "SIGTERM" else "SIGINT"
    done = turnlog.within(ignore + _SLOW.format(first=other, more="[]", patience_s=10))
    assert done.stdout == b"cleaned up"
    assert (done.status, done.stderr) in {(143, "turnlog: terminated\n"), (130, "turnlog: interrupted\n")}


@pytest.mark.parametrize(("number", "status"), ENDING)
def test_signal_in_a_destructor_is_not_lost(turnlog: Command, number: signal.Signals, status: int) -> None:
    """Nor if Ctrl-C is ignored."""
    program = """\
import os, signal, sys
import turnlog.cli.app as app

signal.signal(signal.SIGINT, signal.SIG_IGN)

class Slow:
    def __del__(self):
        signal.raise_signal({number})
        for _ in range(1000):
            pass

def run(tokens):
    slow = Slow()
    del slow
    while True:
        signal.pause()

app._run = run
sys.exit(app.main())
"""
    done = turnlog.within(program.format(number=int(number)))
    assert (done.status, done.stderr) == (status, "turnlog: terminated\n")


@pytest.mark.parametrize("ctrl_c", ["default_int_handler", "SIG_IGN"])
def test_run_that_is_ended_records_what_had_arrived(turnlog: Command, ctrl_c: str) -> None:
    """As one that is interrupted does."""
    start = (
        f"import signal, sys; from turnlog_command import main; signal.signal(signal.SIGINT, signal.{ctrl_c})\n"
        "sys.exit(main())"
    )
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
        with subprocess.Popen(
            [sys.executable, "-c", start, "run", "Hi", "-p", "kilo", "-b", "main"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=turnlog.environment(OPENAI_API_KEY=KEY),
        ) as process:
            assert process.stdout is not None
            assert process.stdout.read(4) == b"Half"
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        turn = log.turn("main")
        assert (turn.meta.stop_reason, log.payload("main")) == ("aborted", b'[{"type":"text","text":"Half"}]')
    assert (process.returncode, stdout) == (143, b"\n")
    assert stderr.decode() == (
        f"turnlog: terminated; what there was is recorded as {turn.id}: `turnlog run -c main` goes on\n"
    )


@pytest.mark.parametrize("within", ["a prompt", "a reply"])
def test_chat_is_ended(turnlog: Command, within: str) -> None:
    """Ctrl-C stays in it, SIGTERM does not. It says how to go on."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.add_turn("Begin", bookmark="main")
        server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
        with Terminal(turnlog, "chat", "-p", "kilo", "-c", "main", OPENAI_API_KEY=KEY) as terminal:
            terminal.expect("> ")
            if within == "a reply":
                terminal.send("Hi\n")
                terminal.expect("Half")
            shown, status = terminal.end_by(signal.SIGTERM)
        if within == "a reply":
            assert log.turn("main").meta.stop_reason == "aborted"
    assert status == 143
    assert shown.endswith("turnlog: terminated; `turnlog chat -c main` goes on from here\n")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("tail", "--follow"), '"gpt.turn"'),
        (("chat", "-p", "kilo", "-c", "main"), "> "),
        (("erase", "--turn", "main", "--reason", "asked for"), "]"),
        (("run", "Go on", "-p", "kilo", "-c", "main"), "Half"),
    ],
    ids=["tail", "chat", "erase", "run"],
)
def test_terminal_that_goes_away_ends_a_command_as_its_signal_does(
    turnlog: Command, arguments: tuple[str, ...], shown: str
) -> None:
    """Though it cannot tell anybody."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.add_turn("Begin", bookmark="main")
        server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
        with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
            terminal.expect(shown)
            assert terminal.hang_up() == 128 + signal.SIGHUP


@pytest.mark.parametrize(("arguments", "status"), [(("threads", "--store", "memory://"), 0), (("show", "no"), 2)])
def test_error_that_nobody_reads_leaves_the_status(turnlog: Command, arguments: tuple[str, ...], status: int) -> None:
    """Python would end with 120."""
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" 2>/dev/full', "sh", sys.executable, "-m", "turnlog", *arguments],
        capture_output=True,
        env=turnlog.environment(),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, b"")


def test_writer_whose_reader_waits_is_ended(turnlog: Command) -> None:
    """It drops what nobody takes."""
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("x" * 1_000_000, bookmark="main")
    reader, writer = os.pipe()
    with turnlog.begin("cat", "main", stdout=writer) as process:
        while select.select([], [writer], [], 0)[1]:  # until no more goes into the pipe
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    os.close(writer)
    os.close(reader)
    assert (process.returncode, stderr) == (143, b"turnlog: terminated\n")


@pytest.mark.parametrize("command", ["erase", "retain"])
def test_interrupt_after_erasing_says_that_it_is_erased(turnlog: Command, command: str) -> None:
    """And before it, that it was interrupted and no more."""
    program = """\
import signal, sys
import turnlog.store.sqlite.store as store
from turnlog_command import main

def struck(*arguments):
    signal.raise_signal(signal.SIGINT)

store.{function} = struck
sys.exit(main())
"""
    arguments = {
        "erase": ("erase", "--turn", "main", "--reason", "asked for", "--yes"),
        "retain": ("retain", "--older-than", "1h", "--apply", "--reason", "it is time"),
    }
    with clocked_log(turnlog.url) as log:
        log.add_turn("Private", bookmark="main")
    ended = turnlog.within(program.format(function="take_away"), *arguments[command])
    assert (ended.status, ended.stderr) == (130, "turnlog: interrupted\n")
    with TurnLog.open(turnlog.url) as log:
        assert log.payload("main") == b'[{"type":"text","text":"Private"}]'
    ended = turnlog.within(program.format(function="scrub"), *arguments[command])
    assert ended.status == 130
    assert ended.stderr == (
        "turnlog: interrupted; it is erased, and that is recorded; traces can still be in files of the store, and "
        "`turnlog erase --finish` removes them\n"
    )
    assert turnlog.ok("erase", "--finish").text == "nothing of what was erased here is left in the files of the store\n"
    with TurnLog.open(turnlog.url) as log:
        assert [event.erased for event in log.events(topics=["gpt.turn"])] == [True]


@pytest.mark.parametrize(("makes", "temporary"), [("mkstemp", temporary_file), ("mkdtemp", temporary_folder)])
def test_an_interrupt_right_behind_what_was_made_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    makes: str,
    temporary: Callable[[Path], AbstractContextManager[Any]],
) -> None:
    """Before the line that sees to its end."""
    make = getattr(tempfile, makes)

    def interrupted(**arguments: Any) -> None:
        make(**arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, makes, interrupted)
    with pytest.raises(KeyboardInterrupt), temporary(tmp_path / "export.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []
