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
from tests.servers.postgres import PostgresServer
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


@pytest.fixture
def turnlog(own_postgres: PostgresServer, tmp_path: Path) -> ServerCommand:
    """Give the command, with a log on a server of its own that has one turn."""
    turnlog = ServerCommand(store=tmp_path / "log.db", address=own_postgres.create_database())
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("first", bookmark="old")
    return turnlog


@pytest.fixture
def model(turnlog: ServerCommand) -> Iterator[WireServer]:
    """Give a server that pointer `kilo` points at, and the log an MCP server `s`."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", COMMAND)
        yield server


def stop(terminal: Terminal, how: str) -> tuple[str, int]:
    """Stop a command, and return what it wrote and its status; it ends in time, and without a traceback."""
    written, status, took_s = terminal.stop(how)
    assert took_s < STOP_S, written
    assert "Traceback" not in written
    return written, status


@pytest.mark.parametrize(("where", "how"), STOPS)
def test_a_run_is_stopped(
    turnlog: ServerCommand, model: WireServer, own_postgres: PostgresServer, where: str, how: str
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
        own_postgres.stall()
        written, status = stop(terminal, how)
    if where == "question":
        assert status == (143 if how == "SIGTERM" else 130)
    else:
        assert (status, "its server does not answer" in written) == (2, True), written
    if where == "tool":
        assert WAITS in written
    own_postgres.go_on()
    model.answers.append(WIRE.reply("Whole."))
    done = turnlog("run", "-c", "main", "--approve", "auto", "--on-interrupted", "report", OPENAI_API_KEY=KEY)
    assert (done.status, done.stdout) == (0, b"Whole.\n")
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean


def test_a_run_with_a_stubborn_server_is_stopped(
    turnlog: ServerCommand, model: WireServer, own_postgres: PostgresServer
) -> None:
    """Both take their time to be given up, and together no more than a person waits."""
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("s", odd("starts", "echo $PPID", "stays").command or ())
    model.answers.append(WIRE.reply("", (("id_1", "s___go", "{}"),)))
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    arguments = ("run", "Go", "-p", "kilo", "-b", "main", "--servers", "s", "--approve", "auto")
    with Terminal(turnlog, *arguments, OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("← s___go  ")
        server = int(terminal.expect("\n"))
        terminal.expect("Half")
        own_postgres.stall()
        written, status = stop(terminal, "Ctrl-C")
    assert (status, "its server does not answer" in written, psutil.pid_exists(server)) == (2, True, False), written
    own_postgres.go_on()
    with TurnLog.open(turnlog.url) as log:
        assert written.count(f"what came before is recorded, up to {log.turn('main').id}: ") == 1
        assert log.turn("main").meta.role == "user"


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("arguments", [("add", "second"), ("log",), ("tail", "--follow")])
def test_another_command_is_stopped(
    turnlog: ServerCommand, own_postgres: PostgresServer, arguments: tuple[str, ...], how: str
) -> None:
    """Also where it waits for what it has sent."""
    own_postgres.stall()
    with Terminal(turnlog, *arguments) as terminal:
        time.sleep(1.5)
        _, status = stop(terminal, how)
    assert status == (143 if how == "SIGTERM" else 130)
    own_postgres.go_on()
    with TurnLog.open(turnlog.url) as log:
        assert log.verify().clean


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_run_whose_server_is_gone_is_stopped(
    turnlog: ServerCommand, model: WireServer, own_postgres: PostgresServer, how: str
) -> None:
    """As where it does not answer: it is looked for no longer than that."""
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with Terminal(turnlog, "run", "Go", "-p", "kilo", "-b", "main", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("Half")
        own_postgres.kill()
        written, status = stop(terminal, how)
    assert (status, "its server does not answer" in written, WAITS in written) == (2, True, True), written
    own_postgres.start()
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").meta.role == "user"
        assert log.verify().clean


@pytest.mark.parametrize(("how", "ends"), [("Ctrl-C", 130), ("SIGTERM", 143)])
def test_another_command_whose_server_is_gone_is_stopped(
    turnlog: ServerCommand, own_postgres: PostgresServer, how: str, ends: int
) -> None:
    """It says before that it waits."""
    with Terminal(turnlog, "tail", "--follow", "--mark") as terminal:
        terminal.expect("caught_up")
        own_postgres.kill()
        terminal.expect(WAITS)
        _, status = stop(terminal, how)
    assert status == ends


@pytest.mark.parametrize("typed", ["Hello\r", "/show\r"])
def test_a_session_has_its_prompt_again(
    turnlog: ServerCommand, model: WireServer, own_postgres: PostgresServer, typed: str
) -> None:
    """With the bookmark as it was; it says that nothing was recorded, and Ctrl-D leaves."""
    model.answers.append(WIRE.reply("Whole."))
    with Terminal(turnlog, "chat", "-p", "kilo", "-c", "old", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("old > ")
        terminal.send("First\r")
        terminal.expect("old > ")
        own_postgres.stall()
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
    own_postgres.go_on()


def test_a_session_whose_reply_was_broken_off_has_its_prompt_again(
    turnlog: ServerCommand, model: WireServer, own_postgres: PostgresServer
) -> None:
    """With the bookmark as it was, also where the message is recorded and the reply was not."""
    model.answers.append(stream(WIRE.events("Half")[:-2], hang=True))
    with Terminal(turnlog, "chat", "-p", "kilo", "-c", "old", OPENAI_API_KEY=KEY) as terminal:
        terminal.expect("old > ")
        terminal.send("Hello\r")
        terminal.expect("Half")
        own_postgres.kill()
        terminal.send(CTRL_C)
        terminal.expect("old > ")
        terminal.send(CTRL_D)
        written, status = terminal.end()
    assert status == 0, written
    own_postgres.start()
