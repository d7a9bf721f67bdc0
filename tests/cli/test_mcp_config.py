"""`turnlog mcp import` and `turnlog run --mcp-config`: other programs' files."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.mcp_server import PNG
from tests.agent.servers import COMMAND
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command
from tests.wires.server import WireServer

from turnlog import TurnLog

SERVER = {"command": COMMAND[0], "args": list(COMMAND[1:])}
SECRET = "hf3k9s8d7f6g5h4j"
WIRE = OpenAI()


def config(folder: Path, servers: dict[str, Any]) -> Path:
    """Return a file with these servers."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_servers_of_a_file_are_registered_and_used(turnlog: Command, tmp_path: Path) -> None:
    """What was not taken over, and what is not set, is said; what is registered already is left as it is."""
    file = config(
        tmp_path,
        {
            "s": {**SERVER, "env": {"MY_TOKEN": "${MY_TOKEN}", "LEVEL": "${LEVEL:-debug}"}, "timeout": 5000},
            "web": {"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${T}"}, "start_timeout_s": 9},
            "off": {"command": "x", "disabled": True},
        },
    )
    s = {
        "name": "s", "command": list(COMMAND), "env": ["MY_TOKEN"], "timeout_s": 5.0,
        "env_values": {"LEVEL": "${LEVEL:-debug}"},
    }  # fmt: skip
    dry = turnlog("mcp", "import", str(file), "--dry-run", MY_TOKEN="x", T="y")
    assert dry.text.startswith("would register  s    ")
    assert not turnlog.store.exists()
    outcome = turnlog("mcp", "import", str(file), "s", "--json", MY_TOKEN="secret")
    assert outcome.json == {"registered": [s], "unchanged": [], "dry_run": False}
    assert outcome.stderr == "turnlog: mcpServers.s.timeout is read as 5 s\n"
    outcome = turnlog("mcp", "import", str(file), MY_TOKEN="secret")
    assert [line.split()[:2] for line in outcome.text.splitlines()] == [["registered", "web"], ["unchanged", "s"]]
    assert "https://x.org/mcp" in outcome.text
    assert "Authorization: Bearer ${T}, up to 9 s to start" in outcome.text
    assert outcome.stderr == (
        "turnlog: mcpServers.s.timeout is read as 5 s\n"
        "turnlog: 'off' is turned off in the file, and left out\n"
        "turnlog: MCP server 'web' needs the environment variable 'T', which is not set: set it, or"
        " `keyring set turnlog T`, and try again\n"
    )
    assert turnlog.ok("mcp", "call", "s", "echo", '{"text":"a secret"}', MY_TOKEN="secret").text == (
        "a [redacted: MY_TOKEN]\n"
    )
    assert b"secret" not in turnlog.store.read_bytes()


def test_a_file_with_a_flaw_registers_nothing(turnlog: Command, tmp_path: Path) -> None:
    """Neither by an import nor by a run, which makes no store either."""
    file = config(tmp_path, {"s": SERVER, "t": {"command": "x", "env": {"A_TOKEN": SECRET}}})
    why = (
        f"'{file}': mcpServers.t.env.A_TOKEN: looks like a secret, and secrets never enter the log: write ${{A_TOKEN}}"
        " in its place, and set A_TOKEN in the environment or with `keyring set turnlog A_TOKEN`"
    )
    assert turnlog.refused("mcp", "import", str(file)) == why
    assert turnlog.refused("run", "Hi", "--mcp-config", str(file)) == why
    assert not turnlog.store.exists()


def test_standard_input_is_no_file_of_servers(turnlog: Command) -> None:
    """As it is for commands that take `-`."""
    said = "it takes a file, not standard input"
    assert turnlog.refused("mcp", "import", "-") == f"mcp import -: {said}"
    assert turnlog.refused("run", "Hi", "--mcp-config", "-", "-p", "kilo") == f"--mcp-config -: {said}"
    assert not turnlog.store.exists()


def test_a_start_time_out_is_registered(turnlog: Command) -> None:
    """And shown, with that of calls."""
    turnlog.ok("mcp", "register", "s", "--start-timeout", "0.5", "--timeout", "2", "--", "x")
    assert turnlog.ok("mcp").text == "s  x  up to 2 s a call, up to 0.5 s to start\n"
    assert turnlog.refused("mcp", "register", "s", "--start-timeout", "0", "--", "x") == (
        "--start-timeout 0 is not a number of seconds above 0"
    )
    assert turnlog.refused("mcp", "register", "s", "--start-timeout", "1e300", "--", "x") == (
        "--start-timeout 1e+300 is more than 1,000,000 seconds"
    )


def test_a_run_uses_the_servers_of_a_file(turnlog: Command, tmp_path: Path) -> None:
    """They are registered, so that the log says what ran, and that a run from there finds them."""
    file = str(config(tmp_path, {"my s": SERVER}))
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        server.answers.append(WIRE.reply("", calls=(("id_1", "my_s___echo", '{"text":"one"}'),)))
        server.answers.append(WIRE.reply("Done."))
        arguments = ("--mcp-config", file, "--allow", "my_s___echo")
        outcome = turnlog("run", "Go", "-p", "kilo", "-b", "main", *arguments, OPENAI_API_KEY=KEY)
        assert (outcome.status, outcome.text) == (0, "Done.\n")
        assert outcome.stderr.startswith(
            "turnlog: 'my s' is called 'my_s' here: names have letters, digits, - and _ only\n"
            "turnlog: registered my_s: `turnlog mcp` lists the MCP servers\n"
        )
        assert log.servers.get("my_s").command == COMMAND
        assert log.context("main").options["servers"] == ["my_s"]
        server.answers.append(WIRE.reply("Again."))
        outcome = turnlog("run", "Go on", "-c", "main", OPENAI_API_KEY=KEY)
        assert (outcome.status, outcome.text) == (0, "Again.\n")
        server.answers.append(WIRE.reply("Hello."))
        outcome = turnlog("chat", "-c", "main", "--mcp-config", file, stdin=b"Hi\n", OPENAI_API_KEY=KEY)
        assert (outcome.status, outcome.text) == (0, "Hello.\n")
        assert "my_s___echo" in server.received[-1].body.decode()


def test_resources_are_listed_and_attached(turnlog: Command) -> None:
    """Each is a document turn before the question that says where it is from."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", COMMAND)
        assert [line.split()[:2] for line in turnlog.ok("mcp", "resources", "s").text.splitlines()] == [
            ["notes://todo.md", "text/markdown"],
            ["notes://logo", "image/png"],
            ["notes://{day}/diary", "text/plain"],
        ]
        server.answers.append(WIRE.reply("Milk."))
        given = ("--resource", "s/notes://todo.md", "--resource", "s/notes://logo")
        outcome = turnlog("run", "What?", "-p", "kilo", "-b", "main", *given, OPENAI_API_KEY=KEY)
        assert (outcome.status, outcome.text) == (0, "Milk.\n")
        documents = [turn for turn in log.ancestry("main") if turn.meta.type == "document"]
        assert [(turn.meta.document_name, turn.meta.original_path, turn.meta.content_type) for turn in documents] == [
            ("todo.md", "s/notes://todo.md", "text/markdown"),
            ("logo", "s/notes://logo", "image/png"),
        ]
        assert [log.payload(turn.id) for turn in documents] == [b"# Milk", PNG]
        assert turnlog.refused("run", "What?", "--resource", "s") == (
            "--resource 's' is not of the form NAME/URI, such as notes/file:///todo.md:"
            " `turnlog mcp resources NAME` lists them"
        )


@pytest.mark.parametrize("command", [("run", "What?", "-p", "kilo"), ("chat", "-p", "kilo")])
def test_a_limit_of_time_holds_for_resources(turnlog: Command, command: tuple[str, ...]) -> None:
    """They are read before the run begins, and count for it."""
    with WireServer() as server, TurnLog.open(turnlog.url) as log:
        set_up(log, WIRE, server.url)
        log.servers.set("s", [sys.executable, "-c", "import sys; sys.stdin.read()"])
        given = (*command, "--resource", "s/notes://todo.md", "--max-time", "0.5")
        began_s = time.monotonic()
        outcome = turnlog(*given, stdin=b"What?\n", OPENAI_API_KEY=KEY)
        assert (outcome.status, outcome.stderr) == (
            2,
            "turnlog: the resources were not there within 0.5 s, the limit of time: nothing was recorded\n",
        )
        assert time.monotonic() - began_s < 20
        assert server.received == []


def test_prompts_are_listed_and_printed(turnlog: Command) -> None:
    """So that they can be asked."""
    with TurnLog.open(turnlog.url) as log:
        log.servers.set("s", COMMAND)
    assert turnlog.ok("mcp", "prompts", "s").text == "summarize  text style?  Ask for a summary.\n"
    assert turnlog.ok("mcp", "prompts", "s", "summarize", "text=a=b").text == "Summarize, brief: a=b\n"
    assert turnlog.refused("mcp", "prompts", "s", "summarize", "text") == (
        "'text': give each argument of a prompt once, as NAME=VALUE"
    )
