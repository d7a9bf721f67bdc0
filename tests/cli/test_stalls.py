"""A command on a log whose server answers no more, or is gone: it can be stopped at once, and repeats nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.agent.servers import COMMAND, odd
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import ServerCommand
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal
from tests.servers.postgres import PostgresServer, missing
from tests.soak import SOAK
from tests.wires.server import WireServer, stream

from turnlog import TurnLog

WIRE = OpenAI()
STOP_S = 5.0
"""How long a person waits at most for the prompt."""

WAITS = "turnlog: waiting for the store's server, or another process that writes …\n"
"""What is said while it is waited for."""

STOPS = [("reply", "Ctrl-C thrice"), ("tool", "SIGTERM"), ("question", "Ctrl-C")]
if SOAK:
    STOPS = [(where, how) for where in ("reply", "tool", "question") for how in ("Ctrl-C", "Ctrl-C thrice", "SIGTERM")]

OTHERS = [(("add", "second"), "Ctrl-C"), (("add", "second"), "SIGTERM"), (("log",), "SIGTERM")]
OTHERS += [(("tail", "--follow"), "Ctrl-C")]
if SOAK:
    OTHERS += [(("log",), "Ctrl-C"), (("tail", "--follow"), "SIGTERM")]


@pytest.fixture(scope="module")
def _started() -> Iterator[PostgresServer]:
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def server(_started: PostgresServer, _home: None) -> Iterator[PostgresServer]:
    """Give a server that answers, which a test may stall and kill; it answers again afterwards."""
    yield _started
    if _started.is_running:
        _started.go_on()
    else:
        _started.start()
    _started.empty_database(_started.url())


@pytest.fixture
def turnlog(server: PostgresServer, tmp_path: Path) -> ServerCommand:
    """Give the command, with a log on the server that has one turn."""
    turnlog = ServerCommand(store=tmp_path / "log.db", address=server.url())
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("first", bookmark="old")
    return turnlog


@pytest.fixture
def model(turnlog: ServerCommand) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and the log an MCP server `s`."""
    with WireServer() as model, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, model.url)
        log.servers.set("s", COMMAND)
        yield model


def stop(terminal: Terminal, how: str) -> tuple[str, int]:
    """Stop a command, and return what it wrote and its status; it ends in time, and without a traceback."""
    written, status, took_s = terminal.stop(how)
    assert took_s < STOP_S, written
    assert "Traceback" not in written
    return written, status


@pytest.mark.parametrize(("where", "how"), STOPS)
def test_a_run_is_stopped(
    turnlog: ServerCommand, model: WireServer, server: PostgresServer, where: str, how: str
) -> None:
    """It says why what it had is not recorded. What was recorded before is there, and the next run goes on."""
    tool, given = ("s___wait", "{}") if where == "tool" else ("s___echo", '{"text":"hi"}')
    called = WIRE.reply("", (("id_1", tool, given),))
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True) if where == "reply" else called)
    approve = ["--approve", "auto"] if where == "tool" else []
    arguments = ("run", "Go", "-p", "kilo", "-b", "main", "--servers", "s", *approve)
    with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect({"reply": "Half", "tool": "→ s___wait", "question": "or an answer] "}[where])
        time.sleep(0.3)
        server.stall()
        written, status = stop(terminal, how)
    if where == "question":
        assert status == (143 if how == "SIGTERM" else 130)
    else:
        assert (status, "its server does not answer" in written) == (2, True), written
    if where == "tool":
        assert WAITS in written
    server.go_on()
    model.answers.append(WIRE.reply("Whole."))
    done = turnlog("run", "-c", "main", "--approve", "auto", "--on-interrupted", "report", OPENAI_API_KEY=KEY)
    assert (done.status, done.stdout) == (0, b"Whole.\n")
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean


def test_a_run_with_a_stubborn_server_is_stopped(
    turnlog: ServerCommand, model: WireServer, server: PostgresServer
) -> None:
    """Both take their time to be given up, and together no more than a person waits."""
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("s", odd("starts", "echo $PPID", "stays").command or ())
    model.answers.append(WIRE.reply("", (("id_1", "s___go", "{}"),)))
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    arguments = ("run", "Go", "-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto")
    with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("← s___go  ")
        started = int(terminal.expect("\n"))
        terminal.expect("Half")
        server.stall()
        written, status = stop(terminal, "Ctrl-C")
    assert (status, "its server does not answer" in written, psutil.pid_exists(started)) == (2, True, False), written
    server.go_on()
    with TurnLog.open(turnlog.url) as log:
        assert written.count(f"what came before is recorded, up to {log.turn('main').id}: ") == 1
        assert log.turn("main").meta.role == "user"


@pytest.mark.parametrize(("arguments", "how"), OTHERS)
def test_another_command_is_stopped(
    turnlog: ServerCommand, server: PostgresServer, arguments: tuple[str, ...], how: str
) -> None:
    """Also where it waits for what it has sent."""
    server.stall()
    with Terminal(turnlog, *arguments) as terminal:
        time.sleep(1.5)
        _, status = stop(terminal, how)
    assert status == (143 if how == "SIGTERM" else 130)
    server.go_on()
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_run_whose_server_is_gone_is_stopped(
    turnlog: ServerCommand, model: WireServer, server: PostgresServer, how: str
) -> None:
    """As where it does not answer: it is looked for no longer than that."""
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with Terminal(turnlog, "run", "Go", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("Half")
        server.kill()
        written, status = stop(terminal, how)
    assert (status, "its server does not answer" in written, WAITS in written) == (2, True, True), written
    server.start()
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").meta.role == "user"
        assert log.verify().clean


@pytest.mark.parametrize(("how", "ends"), [("Ctrl-C", 130), ("SIGTERM", 143)])
def test_another_command_whose_server_is_gone_is_stopped(
    turnlog: ServerCommand, server: PostgresServer, how: str, ends: int
) -> None:
    """It says before that it waits."""
    with Terminal(turnlog, "tail", "--follow", "--mark") as terminal:
        terminal.expect("caught_up")
        server.kill()
        terminal.expect(WAITS)
        _, status = stop(terminal, how)
    assert status == ends


@pytest.mark.parametrize("typed", ["Hello\r", "/show\r"])
def test_a_session_has_its_prompt_again(
    turnlog: ServerCommand, model: WireServer, server: PostgresServer, typed: str
) -> None:
    """With the bookmark as it was; it says that nothing was recorded, and Ctrl-D leaves."""
    model.answers.append(WIRE.reply("Whole."))
    with Terminal(turnlog, "chat", "-p", "kilo", "-c", "old", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("old > ")
        terminal.send("First\r")
        terminal.expect("old > ")
        server.stall()
        terminal.send(typed)
        terminal.expect(typed.strip())
        time.sleep(0.5)
        began_s = time.monotonic()
        terminal.send(CTRL_C)
        said = terminal.expect("old > ")
        assert time.monotonic() - began_s < STOP_S
        assert ("nothing was recorded" in said) == (typed == "Hello\r")
        began_s = time.monotonic()
        terminal.send(CTRL_D)
        written, status = terminal.end()
        assert (status, time.monotonic() - began_s < STOP_S) == (0, True), written
    server.go_on()


def test_a_session_whose_reply_was_broken_off_has_its_prompt_again(
    turnlog: ServerCommand, model: WireServer, server: PostgresServer
) -> None:
    """With the bookmark as it was, also where the message is recorded and the reply was not."""
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with Terminal(turnlog, "chat", "-p", "kilo", "-c", "old", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("old > ")
        terminal.send("Hello\r")
        terminal.expect("Half")
        server.kill()
        terminal.send(CTRL_C)
        terminal.expect("old > ")
        terminal.send(CTRL_D)
        written, status = terminal.end()
    assert status == 0, written
    server.start()
