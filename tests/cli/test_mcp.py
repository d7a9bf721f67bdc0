"""`turnlog mcp`, with real servers."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.agent.servers import COMMAND, HttpServer, odd
from tests.cli.command import Command
from tests.wires.server import Answer, Received, WireServer, whole

from turnlog import TurnLog


def register_odd(turnlog: Command, behaviour: str, *arguments: str) -> None:
    """Register a server that behaves in an odd way, as `odd`."""
    turnlog.ok("mcp", "register", "odd", "--", *odd(behaviour, *arguments).command)


def test_servers_are_registered_listed_and_taken_away(turnlog: Command, tmp_path: Path) -> None:
    """All that is registered comes back; values of environment variables are nowhere."""
    run = ("--cwd", str(tmp_path), "--timeout", "2.5", "--env", "A_TOKEN", "--env", "B", "--", "npx", "-y", "a b")
    record = {
        "name": "fs",
        "command": ["npx", "-y", "a b"],
        "cwd": str(tmp_path.resolve()),
        "env": ["A_TOKEN", "B"],
        "timeout_s": 2.5,
    }
    assert turnlog.ok("mcp", "register", "--json", "fs", *run, A_TOKEN="secret").json == record
    line = turnlog.ok("mcp", "register", "web", "--url", "https://example.org/mcp", "--header", "Authorization=TOKEN")
    assert line.text == "registered web  https://example.org/mcp  Authorization from TOKEN\n"
    assert turnlog.ok("mcp", "list", "--json").json_lines == [
        record,
        {"name": "web", "url": "https://example.org/mcp", "header_env": {"Authorization": "TOKEN"}},
    ]
    assert turnlog.ok("mcp").text == (
        f"fs   npx -y 'a b'             env A_TOKEN, env B, in {tmp_path.resolve()}, up to 2.5 s a call\n"
        "web  https://example.org/mcp  Authorization from TOKEN\n"
    )
    assert b"secret" not in turnlog.store.read_bytes()
    assert turnlog.ok("mcp", "unregister", "fs").text == "unregistered fs\n"
    assert turnlog.ok("mcp", "unregister", "web", "--json").json == {"name": "web"}
    assert turnlog.ok("mcp", "list", "--json").stdout == b""
    assert turnlog("mcp").stderr.startswith("turnlog: no MCP servers yet: `turnlog mcp register NAME")


def test_words_after_two_dashes_reach_the_server(turnlog: Command) -> None:
    """Even what looks like an option of every command."""
    turnlog.ok("mcp", "register", "s", "--", "run", "--json", "--store", "x", "-", "--", "-y")
    with TurnLog.open(turnlog.url, create=False) as log:
        assert log.servers.get("s").command == ("run", "--json", "--store", "x", "-", "--", "-y")


def test_tools_of_a_server_are_listed(turnlog: Command) -> None:
    """With the names of their arguments, and the server's own name where it differs."""
    register_odd(turnlog, "names", "go", "files.read")
    assert turnlog.ok("mcp", "tools", "odd").text == ("odd___go\nodd___files_read_a5021576    (files.read)\n")
    assert turnlog.ok("mcp", "tools", "odd", "--json").json_lines == [
        {"name": "odd___go", "inputSchema": {"type": "object"}, "tool": "go"},
        {
            "name": "odd___files_read_a5021576",
            "title": "files.read",
            "inputSchema": {"type": "object"},
            "tool": "files.read",
        },
    ]
    register_odd(turnlog, "schemas")
    assert turnlog.ok("mcp", "tools", "odd").text.split("\n")[0] == "odd___go    z? é?  Goes."
    register_odd(turnlog, "tasks")
    listed = turnlog("mcp", "tools", "odd")
    assert listed.text == "odd___optional\nodd___forbidden\n"
    assert listed.stderr == (
        "turnlog: MCP server 'odd': its tool 'required' runs as a task only, which turnlog cannot do: it is not"
        " offered\n"
    )
    register_odd(turnlog, "toolless")
    assert turnlog("mcp", "tools", "odd").stderr == "turnlog: odd has no tools\n"


def test_the_line_of_a_tool_leads_nowhere(turnlog: Command) -> None:
    """What lists the resources does so in lines that are not shown."""
    turnlog.ok("mcp", "register", "s", "--", *COMMAND)
    last = turnlog.ok("mcp", "tools", "s").text.splitlines()[-1]
    assert last.split("  ")[0] == "s___read_resource"
    assert last.endswith("  Read a resource of the server 's' by its address.")


def test_the_help_says_what_becomes_of_numbers(turnlog: Command) -> None:
    """And of nothing else that it is sent as it is spelled."""
    said = " ".join(turnlog.ok("mcp", "call", "--help").text.replace("│", " ").split())
    assert "Integers go to the tool as they are, other numbers as 64-bit floats" in said
    assert "spelled" not in said


def test_a_tool_is_called_over_stdio(turnlog: Command) -> None:
    """By either of its names, with arguments from the command line, from standard input, or none."""
    turnlog.ok("mcp", "register", "s", "--", *COMMAND)
    assert turnlog.ok("mcp", "call", "s", "add", '{"a":1,"b":2}').text == "3\n"
    echoed = turnlog.ok("mcp", "call", "s", "s___echo", "-", "--json", stdin='{"text": "é\\n"}'.encode())
    assert echoed.json == {"content": [{"type": "text", "text": "é\n"}], "is_error": False}
    assert turnlog.ok("mcp", "call", "s", "everything").text == (
        "Hello\n(image/png, 9 B)\n(audio/wav, 12 B)\nResource file:///notes.md (text/markdown):\n# Notes\n"
        "Resource file:///paper.pdf (application/pdf):\n(application/pdf, 9 B)\n"
        "Resource link: big.csv <file:///big.csv> (text/csv, 12,345 bytes): All rows\n"
    )
    with TurnLog.open(turnlog.url, create=False) as log:
        assert list(log.threads()) == []


def test_a_tool_is_called_over_http(turnlog: Command) -> None:
    """With a header from the environment."""
    with HttpServer(MCP_TEST_TOKEN="Bearer xyz") as server:
        turnlog.ok("mcp", "register", "s", "--url", server.url, "--header", "Authorization=MY_TOKEN")
        echoed = turnlog.ok("mcp", "call", "s", "echo", '{"text":"in"}', MY_TOKEN="Bearer xyz")
        assert echoed.text == "in\n"
        refused = turnlog.refused("mcp", "call", "s", "echo", '{"text":"in"}', MY_TOKEN="Bearer abc")
    assert refused.startswith(f"MCP server 's' at {server.url} answered with HTTP 401")


def test_an_error_of_a_tool_is_status_1(turnlog: Command) -> None:
    """What it said is the output; a call without an answer is an error too."""
    turnlog.ok("mcp", "register", "s", "--", *COMMAND)
    for arguments, line in [
        (("fail", '{"message":"no paper"}'), "Error executing tool fail: no paper\n"),
        (
            ("crash", '{"message":"bye"}'),
            "MCP server 's' ended during the call; the last it said: bye\n"
            "The call was not repeated, for it may have had effects.\n",
        ),
        (
            ("wait", "--timeout", "0.2"),
            "MCP server 's': 'wait' did not answer within 0.2 s; the call was given up, and may have had effects\n",
        ),
    ]:
        outcome = turnlog("mcp", "call", "s", *arguments)
        assert (outcome.status, outcome.text, outcome.stderr) == (1, line, "")
    outcome = turnlog("mcp", "call", "s", "fail", '{"message":"x"}', "--json")
    assert (outcome.status, outcome.json["is_error"]) == (1, True)


def test_control_characters_of_a_server_do_not_reach_the_terminal(turnlog: Command) -> None:
    """Neither from a result nor from the name of a tool."""
    register_odd(turnlog, "answers", '{"content":[{"type":"text","text":"\\u001b]0;x\\u0007"}]}')
    assert b"\x1b" not in turnlog.ok("mcp", "call", "odd", "go").stdout
    register_odd(turnlog, "names", "\x1b[31mred")
    assert b"\x1b" not in turnlog.ok("mcp", "tools", "odd").stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("register", "s"),
            "a server is a command to run or a --url, and this is neither: see turnlog mcp register --help",
        ),
        (
            ("register", "s", "run", "--url", "http://x"),
            "a server is a command to run or a --url, and this is both: see turnlog mcp register --help",
        ),
        (
            ("register", "s", "npx", "-y", "x"),
            "unknown option -y for 'mcp register' (put -- before a command that has options:"
            " turnlog mcp register NAME -- COMMAND…): see turnlog mcp register --help",
        ),
        (("register", "s", "--", ""), "COMMAND begins with an empty word: give the program to run"),
        (
            ("register", "s", "https://user:secret@x"),
            "a program is run here, and this is an address: give it as --url URL",
        ),
        (("register", "s", "--url", "http://x", "--header", "A=B", "--header", "a=C"), "--header a is given twice"),
        (("register", "a___b", "x"), "name: 'a___b' cannot be a server's (letters, digits, - and _, and no ___)"),
        (("register", "s", "--url", "ftp://x"), "url: 'ftp://x' is not an address such as https://example.org/v1"),
        (
            ("register", "s", "--env", "T=secret", "x"),
            "--env takes the name of an environment variable, such as API_TOKEN, and never its value",
        ),
        (
            ("register", "s", "--url", "http://x", "--header", "Authorization=Bearer secret"),
            "--header Authorization takes the name of an environment variable, such as API_TOKEN, and never its value",
        ),
        (
            ("register", "s", "--url", "http://x", "--header", "Bearer secret"),
            "--header takes HEADER=VARIABLE, such as Authorization=API_TOKEN",
        ),
        (
            ("register", "s", "--url", "http://x", "--env", "A"),
            "--env and --cwd are for a program that is run here; a --url takes --header",
        ),
        (
            ("register", "s", "x", "--header", "A=B"),
            "--header is for a --url; a program that is run here takes --env",
        ),
        (("register", "s", "x", "--cwd", "/no/such"), "--cwd: there is no folder '/no/such'"),
        (("register", "s", "x", "--timeout", "0"), "--timeout 0 is not a number of seconds above 0"),
        (("register", "s", "x", "--timeout", "nan"), "--timeout nan is not a number of seconds above 0"),
        (("unregister", "s"), "no MCP server 's'"),
        (("tools", "s"), "no MCP server 's': register it with `turnlog mcp register s -- COMMAND…`"),
        (("call", "s"), "missing TOOL for 'mcp call': see turnlog mcp call --help"),
        (("call", "s", "go", "[1]"), """arguments: expected a JSON object, such as '{"path": "."}'"""),
        (("call", "s", "go", "{"), "arguments: not valid JSON: input data was truncated"),
    ],
)
def test_bad_usage_is_one_line(turnlog: Command, arguments: tuple[str, ...], line: str) -> None:
    """Exit status 2, and a line that says what to do."""
    assert turnlog.refused("mcp", *arguments) == line


def test_a_server_that_cannot_be_used_is_one_line(turnlog: Command) -> None:
    """Whatever it wrote to its standard error is part of the line, and no traceback is there."""
    register_odd(turnlog, "quits")
    assert turnlog.refused("mcp", "tools", "odd") == (
        "MCP server 'odd' ended before it answered; the last it said: bad token None"
    )
    register_odd(turnlog, "plain")
    assert turnlog.refused("mcp", "call", "odd", "goo") == (
        "MCP server 'odd' has no tool 'goo', did you mean 'go': see turnlog mcp tools odd"
    )


def test_the_sdk_is_imported_only_when_a_server_is_used(turnlog: Command) -> None:
    """It takes as long as all the rest; and where it is not installed, the line says how to install it."""
    imports = "import sys, turnlog.cli.commands.mcp; print([m for m in sys.modules if m.split('.')[0] == 'mcp'])"
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
    register_odd(turnlog, "plain")
    without = "import sys; sys.modules['mcp'] = None; from turnlog.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", without, "mcp", "tools", "odd"],
        capture_output=True, env=turnlog.environment(), check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "turnlog: MCP server 'odd' needs the package `mcp`: install it with `pip install 'turnlog[mcp]'`\n"
    )


def test_ctrl_c_ends_a_call_and_its_server(turnlog: Command, tmp_path: Path) -> None:
    """Exit status 130 and one line; no process is left."""
    note = tmp_path / "started"
    os.mkfifo(note)
    script = f"echo $$ > {note}; exec {shlex.join(COMMAND)}"
    turnlog.ok("mcp", "register", "s", "--", "sh", "-c", script)
    with turnlog.begin("mcp", "call", "s", "wait") as process:
        server = int(note.read_text())
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)
    assert (process.returncode, output) == (130, (b"", b"turnlog: interrupted\n"))
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


class SilentServer(WireServer):
    """A server over HTTP that opens a session, and answers nothing more."""

    def __init__(self) -> None:
        """Begin without a session."""
        super().__init__()
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()

    def answer_to(self, request: Received) -> Answer:
        """Return what to answer to `initialize`; anything else waits."""
        message = json.loads(request.body or b"{}")
        if message.get("method") != "initialize":
            self.is_asked.set()
            self.goes_on.wait()
            return Answer(status=500)
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": about}).encode()
        return whole(body, headers={"mcp-session-id": "1"})


@pytest.mark.parametrize("arguments", [("login", "s"), ("tools", "s"), ("call", "s", "go")], ids=str)
def test_ctrl_c_ends_a_session_with_a_server_that_is_silent(turnlog: Command, arguments: tuple[str, ...]) -> None:
    """Once: the server is asked to end the session, and not waited for."""
    with SilentServer() as server:
        turnlog.ok("mcp", "register", "s", "--url", server.url)
        with turnlog.begin("mcp", *arguments) as process:
            assert server.is_asked.wait(30)
            process.send_signal(signal.SIGINT)
            try:
                output = process.communicate(timeout=10)
            finally:
                process.kill()
                server.goes_on.set()
        assert (process.returncode, output) == (130, (b"", b"turnlog: interrupted\n"))
