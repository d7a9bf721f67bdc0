"""Ctrl-C, wherever it strikes: one line, status 130, and a log that is whole."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import TIMEOUT_S, Command, Outcome
from tests.forging import exported
from tests.soak import SOAK

from turnlog import TurnLog

ROUNDS = 20 if SOAK else 8
_STARTED = """\
import os, sys
from turnlog_command import main
os.write(3, b"x")  # from here on it is the command's, which is not imported yet
sys.exit(main())
"""


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an export of a log that goes in in several groups, with payload files."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "large.bin").write_bytes(os.urandom(100_000))
    with TurnLog.open("memory://") as log, (folder / "out.jsonl").open("wb") as file:
        log.add_document(folder / "large.bin", bookmark=False)
        log.add_turn("0", bookmark="main")
        for number in range(1, 1200):
            log.add_turn(str(number), continues="main")
        log.export(file)
    return folder / "out.jsonl"


def _random_delays(seed: int, command: Command, *arguments: str) -> Callable[[], float]:
    """Run the command to its end, and return what draws moments of the time that it takes on this machine, in s."""
    begun = time.monotonic()
    assert _interrupted(command, TIMEOUT_S, *arguments).status == 0
    taken_s = time.monotonic() - begun
    source = random.Random(seed)
    return lambda: source.uniform(0, taken_s)


def _interrupted(command: Command, delay_s: float, *arguments: str) -> Outcome:
    """Run the command, and send it SIGINT so long after it has started."""
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", f"import os; os.dup2({writer}, 3)\n{_STARTED}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.environment(),
        pass_fds=(writer,),
    ) as process:
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        try:
            stdout, stderr = process.communicate(timeout=delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    return Outcome(stdout=stdout, stderr=stderr.decode(), status=process.returncode)


def test_import_can_be_interrupted_at_any_time(tmp_path: Path, export: Path) -> None:
    """What is in stays, is told, and the same import adds the rest."""
    delay_s = _random_delays(0, Command(store=tmp_path / "whole.db"), "import", "turnlog", str(export))
    stopped = 0
    for number in range(ROUNDS):
        command = Command(store=tmp_path / f"{number}.db")
        outcome = _interrupted(command, delay_s(), "import", "turnlog", str(export))
        assert outcome.stderr.count("\n") <= 1, outcome.stderr
        if outcome.status == 130:
            assert outcome.stderr.startswith("turnlog: interrupted")
            stopped += 1
        elif outcome.stderr:
            # It was through, and is leaving: Ctrl-C ends it without a word.
            raise AssertionError(outcome)
        else:
            assert outcome.status in (0, -signal.SIGINT)
        with TurnLog.open(command.url) as log, export.open("rb") as file:
            log.import_turnlog(file)
            assert log.verify().clean
            assert exported(log) == export.read_bytes()
    assert stopped > 0


def test_interrupt_of_a_command_that_is_being_imported(turnlog: Command) -> None:
    """It ends with one line too."""
    delay_s = _random_delays(2, turnlog, "provider", "list")
    outcomes = [_interrupted(turnlog, delay_s() / 2, "provider", "list") for _ in range(ROUNDS)]
    ended = (130, "turnlog: interrupted\n")
    assert {(outcome.status, outcome.stderr) for outcome in outcomes} <= {ended, (0, ""), (-signal.SIGINT, "")}
    assert ended in {(outcome.status, outcome.stderr) for outcome in outcomes}


def test_export_that_is_interrupted_leaves_no_file(tmp_path: Path, export: Path) -> None:
    """Neither half of it nor what it was written to first."""
    command = Command(store=tmp_path / "log.db")
    command.ok("import", "turnlog", str(export))
    before = {path for path in tmp_path.iterdir() if not path.name.startswith("log.db")}
    delay_s = _random_delays(1, command, "export", "-o", str(tmp_path.parent / f"{tmp_path.name}.jsonl"))
    for number in range(8):
        target = tmp_path / f"{number}.jsonl"
        outcome = _interrupted(command, delay_s(), "export", "-o", str(target))
        assert outcome.stderr.count("\n") <= 1, outcome.stderr
        assert not target.exists() or target.read_bytes() == export.read_bytes()
        target.unlink(missing_ok=True)
        assert {path for path in tmp_path.iterdir() if not path.name.startswith("log.db")} == before


@pytest.mark.parametrize("machine", ["idle", "busy"])
def test_interrupt_in_a_destructor_is_not_lost(turnlog: Command, machine: str) -> None:
    """Python cannot raise it there. It strikes again a moment later, and prints no traceback.

    On a busy machine that moment is over while Python still tells of it.
    """
    program = f"""\
import os, signal, sys, threading, time
import turnlog.cli.app as app

if {machine == "busy"}:
    start = threading.Thread.start
    threading.Thread.start = lambda thread: (start(thread), time.sleep(0.1))

class Slow:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
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
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=turnlog.environment(), timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (130, b"turnlog: interrupted\n")


def test_second_interrupt_adds_nothing(turnlog: Command) -> None:
    """Whoever presses Ctrl-C twice sees no more than one line either."""
    program = """\
import signal, sys
import turnlog.cli.app as app

class Late:
    def __del__(self):
        raise ValueError("left half done")

def run(tokens):
    late = Late()
    raise KeyboardInterrupt

app._run = run
status = app.main()
signal.raise_signal(signal.SIGINT)
sys.exit(status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=turnlog.environment(), timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"turnlog: interrupted\n")
