"""A run that is stopped, by a person or a signal, at the worst moments: how long it takes, and what it leaves.

Each case is a run on a terminal. What is left of it: no process, a log in which nothing is lost, and a next run that
repeats nothing in silence. Each takes seconds: without `TURNLOG_SOAK=1` some of them are tried, with it all.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.servers import COMMAND
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command
from tests.cli.terminal import Terminal
from tests.soak import SOAK
from tests.wires.server import WireServer, stream, whole

from turnlog import TurnLog
from turnlog.agent.deciding import UNKNOWN
from turnlog.agent.execution import BROKEN_OFF

WIRE = OpenAI()
STOP_S = 5.0
"""How long a person waits at most for the prompt."""

SIGNALS = {
    "Ctrl-C": (130, "interrupted"),
    "Ctrl-C twice": (130, "interrupted"),
    "Ctrl-C thrice": (130, "interrupted"),
    "SIGTERM": (143, "terminated"),
    "SIGHUP": (129, "terminated"),
    "SIGKILL": (-signal.SIGKILL, ""),
}

SOME = SIGNALS if SOAK else ("Ctrl-C", "SIGTERM")
IN_A_TOOL = (
    [(how, tool) for how in SIGNALS for tool in ("wait", "hang")]
    if SOAK
    else [("Ctrl-C", "wait"), ("Ctrl-C thrice", "hang"), ("SIGHUP", "wait"), ("SIGKILL", "wait")]
)


@pytest.fixture
def server(turnlog: Command) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and a log with an MCP server `s`."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", COMMAND)
        yield server


class Run:
    """A run on a terminal, and the processes that it has started."""

    def __init__(self, turnlog: Command, *arguments: str) -> None:
        """Prepare it."""
        self.terminal = Terminal(
            turnlog, "run", *arguments, "-p", "kilo", "-b", "main", "--servers", "s", OPENAI_API_KEY=KEY
        )

    def stop(self, how: str) -> tuple[str, int, float]:
        """Stop it, and return what it wrote, its exit status, and the seconds that it took; check that all is gone."""
        terminal = self.terminal
        started = _descendants(terminal.process_id)
        written, status, took_s = terminal.stop(how)
        _check_gone(started)
        return written, status, took_s


def _descendants(process: int) -> list[tuple[int, str]]:
    """Return the processes that a process has started, and those that they have, each with when it started."""
    found: list[tuple[int, str]] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # that thread has just ended
            for child in map(int, path.read_text().split()):
                found += [(child, _started(child)), *_descendants(child)]
    return found


def _started(process: int) -> str:
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def _check_gone(processes: list[tuple[int, str]]) -> None:
    end = time.monotonic() + STOP_S
    while alive := [process for process, started in processes if started and _started(process) == started]:
        assert time.monotonic() < end, f"{alive} are still there"
        time.sleep(0.02)


@pytest.mark.parametrize(("how", "tool"), IN_A_TOOL)
def test_a_run_that_is_stopped_in_a_tool(turnlog: Command, server: WireServer, how: str, tool: str) -> None:
    """Within five seconds, with nothing left behind; the next run says what it does not know, and repeats nothing."""
    server.answers.append(WIRE.reply("", (("id_1", f"s___{tool}", "{}"),)))
    run = Run(turnlog, "Go", "--approve", "auto")
    with run.terminal as terminal:
        terminal.expect(f"→ s___{tool}")
        written, status, took_s = run.stop(how)
    assert (status, took_s < STOP_S) == (SIGNALS[how][0], True), (written, took_s)
    assert SIGNALS[how][1] in written
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean
        is_ended = how.startswith("SIG")
        asked = log.turn("main").id if is_ended else log.turn("main").meta.continues[0]
        [call] = log.tool_calls.of(asked)
        assert call.attempts[0].server == "s"
        assert [attempt.ending for attempt in call.attempts] == [None if how == "SIGKILL" else "broken_off"]
    server.answers.append(WIRE.reply("I see."))
    if is_ended:
        again = turnlog("run", "-c", "main", OPENAI_API_KEY=KEY)
        assert again.status == 1
        assert "may have had effects" in again.stderr
        done = turnlog("run", "-c", "main", "--on-interrupted", "report", OPENAI_API_KEY=KEY)
    else:
        done = turnlog("run", "-c", "main", OPENAI_API_KEY=KEY)
        assert "may have had effects" in done.stderr
    assert (done.status, done.stdout) == (0, b"I see.\n")
    said = UNKNOWN if is_ended else BROKEN_OFF
    assert said in server.received[-1].body.decode()
    shown = turnlog("show", asked).stdout.decode()
    assert f"s___{tool}" in shown
    assert "may have had effects" in shown


@pytest.mark.parametrize("how", SOME)
def test_a_run_that_is_stopped_in_a_reply(turnlog: Command, server: WireServer, how: str) -> None:
    """What had been said is kept as an aborted turn, but for a kill; the next run makes the same call."""
    server.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    run = Run(turnlog, "Go")
    with run.terminal as terminal:
        terminal.expect("Half")
        written, status, took_s = run.stop(how)
    assert (status, took_s < STOP_S) == (SIGNALS[how][0], True), (written, took_s)
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean
        if how != "SIGKILL":
            assert (log.turn("main").meta.stop_reason, b"Half" in log.payload("main")) == ("aborted", True)
    server.answers.append(WIRE.reply("Whole."))
    done = turnlog("run", "-c", "main", OPENAI_API_KEY=KEY)
    assert (done.status, done.stdout) == (0, b"Whole.\n")
    assert server.received[-1].body == server.received[-2].body


@pytest.mark.parametrize("how", SOME)
def test_a_run_that_is_stopped_while_it_asks(turnlog: Command, server: WireServer, how: str) -> None:
    """The call stays unanswered: nothing was begun, and the next run begins with it."""
    server.answers.append(WIRE.reply("", (("id_1", "s___echo", '{"text":"hi"}'),)))
    run = Run(turnlog, "Go")
    with run.terminal as terminal:
        terminal.expect("or an answer] ")
        written, status, took_s = run.stop(how)
    assert (status, took_s < STOP_S) == (SIGNALS[how][0], True), (written, took_s)
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean
        [call] = log.tool_calls.of("main")
        assert call.attempts == ()
    server.answers.append(WIRE.reply("Done."))
    done = turnlog("run", "-c", "main", "--approve", "auto", OPENAI_API_KEY=KEY)
    assert (done.status, done.stdout) == (0, b"Done.\n")


STUBBORN = """\
import runpy, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.argv = [sys.argv[1], "plain"]
runpy.run_path(sys.argv[0], run_name="__main__")
time.sleep(60)
"""


def register_stubborn(turnlog: Command) -> None:
    """Have a server `s` that goes on when its input is closed, and when it is told to end."""
    odd = Path(__file__).parent.parent / "agent" / "mcp_odd_server.py"
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("s", [sys.executable, "-c", STUBBORN, str(odd)])


@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C twice"])
def test_a_run_that_is_stopped_while_it_ends_its_servers(turnlog: Command, server: WireServer, how: str) -> None:
    """What ends them is not broken off: the server would be waited for until it ends by itself."""
    register_stubborn(turnlog)
    server.answers.append(WIRE.reply("Done."))
    run = Run(turnlog, "Go")
    with run.terminal as terminal:
        terminal.expect("Done.")
        time.sleep(0.5)
        written, _, took_s = run.stop(how)
    assert took_s < STOP_S, (written, took_s)
    assert "interrupted when the model had finished: all of it is recorded" in written
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").meta.stop_reason == "stop"


@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C thrice", "SIGTERM", "SIGTERM twice"])
def test_a_run_that_asks_is_stopped_with_a_server_that_does_not_let_itself_be_ended(
    turnlog: Command, server: WireServer, how: str
) -> None:
    """The first Ctrl-C breaks the question off, and no further one breaks off what it has begun: to end the server."""
    register_stubborn(turnlog)
    server.answers.append(WIRE.reply("", (("id_1", "s___go", "{}"),)))
    run = Run(turnlog, "Go")
    with run.terminal as terminal:
        terminal.expect("or an answer] ")
        written, status, took_s = run.stop(how)
    assert (status, took_s < STOP_S) == (SIGNALS[how.removesuffix(" twice")][0], True), (written, took_s)
    assert "Traceback" not in written


def test_a_run_whose_time_is_over_asks_no_more(turnlog: Command, server: WireServer) -> None:
    """It ends while it asks, and says how to go on; nothing was called. A machine at work may need longer to ask."""
    for limit_s in (3, 6, 12, 24, 48):
        server.answers.clear()
        server.answers.append(WIRE.reply("", (("id_1", "s___wait", "{}"),)))
        begin = time.monotonic()
        with Run(turnlog, "Go", "--max-time", f"{limit_s}").terminal as terminal:
            written, status = terminal.end()
        took_s = time.monotonic() - begin
        if "or an answer] " in written:
            break
    assert (status, took_s < limit_s + STOP_S) == (1, True), written
    assert "stopped: the limit of time is reached" in written.partition("or an answer] ")[2]
    with TurnLog.open(turnlog.url) as log:
        [call] = log.tool_calls.of("main")
        assert call.attempts == ()


@pytest.mark.parametrize("how", SOME)
def test_a_run_that_is_stopped_while_it_waits_to_try_again(turnlog: Command, server: WireServer, how: str) -> None:
    """A provider that asks to wait is not waited for; the try that failed is in the log."""
    refused = whole(b'{"error":{"message":"Slow down."}}', status=429, headers={"retry-after": "30"})
    server.answers += [refused] * 3
    run = Run(turnlog, "Go")
    with run.terminal as terminal:
        terminal.expect("again in 30 s")
        written, status, took_s = run.stop(how)
    assert (status, took_s < STOP_S) == (SIGNALS[how][0], True), (written, took_s)
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean
        assert log.turn("main").meta.stop_reason == "error"
        assert len(server.received) == log.stats().topics["gpt.call"] == 1
