"""Pages of documentation: their code blocks, and running one page after the other of its blocks as a reader would.

What a page shows is what is typed, and nobody is on the network: an address of a provider in a page stands for a local
server, and the SDKs are sent there by their own variables. A Python block that begins with the comment `# NAME.py` is
what a reader saves under that name; so is `pyproject.toml`.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

import psycopg
from psycopg import sql
from tests.agent.forked_servers import command, serve
from tests.cli.forked import can_fork, commands_in
from tests.docs.models import ModelServer
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent.parent
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)\n?", re.MULTILINE)
_FILE = re.compile(r"# (\w+\.py|pyproject\.toml)\n")
_EXIT_STATUS = re.compile(r"  # exit status (\d+)$")

# What differs from run to run, and what stands for it on both sides of a comparison.
_VARYING = (
    (re.compile(r"\b0[0-9a-z]{24}\b"), "<id>"),
    (re.compile(r"sha256-[A-Za-z0-9+/]{43}="), "<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "<date>"),
    (re.compile(r"\b\d+(?:\.\d+)? [kM]B\b"), "<size>"),
    (re.compile(r"\bin \d+\.\d+s\b"), "<duration>"),
    (re.compile(r"\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}"), "<verifier key>"),
    (re.compile(r"(?<=  )[0-9a-f]{8}(?=  |$)", re.MULTILINE), "<key id>"),
    (re.compile(r"(?<=  )[A-Za-z0-9+/]{43}=(?=  )"), "<root>"),
    (re.compile(r"(?:\bkey +|\bsealed:)[\w-]{22}(?![\w-])"), "<sealing key or tag>"),
)

FOLDER = "/home/you"
"""What pages show in the place of the folder that they are tried in."""

# Addresses in pages, and the path on the local server that each stands for.
_MODEL_ADDRESSES = {
    "https://api.anthropic.com": "",
    "http://localhost:11434/v1": "/v1",
    "https://api.harbour.example": "/harbour",
    "https://notary.example/v1": "/notary/v1",
}
POSTGRES_ADDRESS = "pg.example.org"
"""The host in pages that stands for a local PostgreSQL server, with an empty database and roles."""

POSTGRES_DATABASE, POSTGRES_ROLES = "talks", ("talks_owner", "talks_writer", "talks_reader")
MCP_ADDRESS = "https://notes.example/mcp"
"""The address in pages that stands for the page's own MCP server, served over HTTP."""

_MCP_SERVER = "notes_server.py"

# Variables of whoever runs this that would change what a page does: stores, keys, endpoints, proxies.
_NOT_THEIRS = re.compile(r"(?:TURNLOG|PYTEST)_.*|.*_(?:API_KEY|BASE_URL|PROXY|proxy)|PYTHONUNBUFFERED")
_GIT = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A Reader"), ("EMAIL", "reader@example.org"), ("DATE", "2026-11-21T04:00:00Z"))
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(language=found[1], text=found[2], line=text.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Iterate over the commands of a console block, each with the output that the page shows for it."""
    starts = list(_COMMAND.finditer(block.text))
    assert starts, f"a console block without a command, at line {block.line}"
    assert starts[0].start() == 0, f"a console block that begins with output, at line {block.line}"
    ends = [start.start() for start in starts[1:]] + [len(block.text)]
    for start, end in zip(starts, ends, strict=True):
        yield start[1].replace("\n> ", "\n"), block.text[start.end() : end]


def normal(text: str) -> str:
    """Return output without what varies, and without blanks at the ends of lines.

    Results of tools that ran at the same time come in any order: they are sorted.
    """
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    lines = (re.sub(r" {2,}", "  ", line).rstrip() for line in text.strip("\n").splitlines())
    runs = groupby(lines, key=lambda line: line.startswith("← "))
    return "\n".join(line for results, run in runs for line in (sorted(run) if results else run))


def matches(actual: str, shown: str) -> bool:
    """Tell whether output is what a page shows, where a line of three dots stands for any lines."""
    parts = re.split(r"^\.\.\.$", normal(shown), flags=re.MULTILINE)
    pattern = ".*?".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, normal(actual), flags=re.DOTALL) is not None


class Reader:
    """Someone who follows a page in a folder: types its commands, saves its files, runs its Python.

    It is a context manager: what pages need beside the folder is started and stopped with it.
    """

    def __init__(self, folder: Path) -> None:
        """Begin in a folder, with keys of providers, and without any variable of turnlog's."""
        self.folder = folder
        self._names: dict[str, object] = {"__name__": "page"}
        self._models = ModelServer()
        self._addresses: dict[str, str] = {}
        self._open = ExitStack()
        self._variables = {name: value for name, value in os.environ.items() if not _NOT_THEIRS.fullmatch(name)} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTHONPATH": str(folder),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **_GIT,
        }

    def __enter__(self) -> Self:
        """Start the models."""
        url = self._open.enter_context(self._models).url
        if can_fork({}):
            commands = self._open.enter_context(commands_in())
            self._variables["PATH"] = f"{commands}:{self._variables['PATH']}"
            self._quicken_servers(commands)
        self._addresses = {address: url + path for address, path in _MODEL_ADDRESSES.items()}
        self._variables |= {
            "ANTHROPIC_API_KEY": "a-key-of-anthropic",
            "ANTHROPIC_BASE_URL": url,
            "OPENAI_API_KEY": "a-key-of-openai",
            "OPENAI_BASE_URL": f"{url}/api.openai/v1",
            "HARBOUR_API_KEY": "a-key-of-harbour",
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what was started."""
        self._open.close()

    def _quicken_servers(self, commands: Path) -> None:
        """Have `python notes_server.py` run where the SDK is imported already, and else as it is."""
        serve()
        python = commands / "python"
        server = shlex.join([*command(), "program"])
        anew = shlex.quote(sys.executable)
        python.write_text(f'#!/bin/sh\n[ "$*" = {_MCP_SERVER} ] && exec {server} "$@"\nexec {anew} "$@"\n')
        python.chmod(0o755)

    def follow(self, block: Block, page: Path) -> None:
        """Do what a block says, and check that the output is what it shows."""
        where = f"{page.name}:{block.line}"
        match block.language:
            case "python" | "toml" if saved := _FILE.match(block.text):
                self._save(saved[1], self._reached(block.text))
            case "python":
                # Blank lines before it, so that a traceback names the line of the page.
                source = "\n" * block.line + self._reached(block.text)
                with patch.dict(os.environ, self._variables, clear=True):
                    exec(compile(source, str(page), "exec"), self._names)  # noqa: S102 - running the page is the test
            case "console":
                for command, shown in commands(block):
                    output = self.run(command, where)
                    assert not shown.strip() or matches(output, shown), (
                        f"{where}: {command}\n-- shown:\n{normal(shown)}\n-- actual:\n{normal(output)}"
                    )
            case _:
                pass

    def run(self, command: str, where: str) -> str:
        """Type a command and return what it printed; check that it ends as it says.

        That is with 0, with 2 where it says `# fails`, and with N where it says `# exit status N`.
        """
        if exported := re.fullmatch(r"export (\w+)=('?)(\S+|[^']+)\2", command):
            self._variables[exported[1]] = self._reached(exported[3])
            return ""
        if moved := re.fullmatch(r"cd (\S+)", command):
            self.folder = self.folder / moved[1]
            return ""
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {self._reached(command)}"],
            cwd=self.folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # in the order in which a terminal shows them
            text=True,
            check=False,
            timeout=60,
        )
        said = _EXIT_STATUS.search(command)
        expected = int(said[1]) if said else 2 if "# fails" in command else 0
        output = done.stdout
        assert done.returncode == expected, f"{where}: {command}: exit status {done.returncode}: {output}"
        for address, reached in sorted(self._addresses.items(), key=lambda pair: -len(pair[1])):
            output = output.replace(reached, address)
        return output.replace(str(self.folder), FOLDER)

    def _reached(self, text: str) -> str:
        """Return a text of a page with addresses of local servers in the place of those that the page shows."""
        if MCP_ADDRESS in text and MCP_ADDRESS not in self._addresses:
            self._addresses[MCP_ADDRESS] = self._served_over_http(_MCP_SERVER)
        if POSTGRES_ADDRESS in text and POSTGRES_ADDRESS not in self._addresses:
            self._addresses[POSTGRES_ADDRESS] = self._postgres()
        for address, reached in self._addresses.items():
            text = text.replace(address, reached)
        return text

    def _served_over_http(self, file: str) -> str:
        """Start the MCP server in a file that the page had saved, over HTTP, and return its address."""
        serve()
        program = [*command(), "program", str(Path(__file__).parent / "serve_mcp.py"), file]
        process = self._open.enter_context(
            subprocess.Popen(program, cwd=self.folder, env=self._variables, stdout=subprocess.PIPE, text=True)
        )
        self._open.callback(process.kill)
        assert process.stdout is not None
        return f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"

    def _postgres(self) -> str:
        """Start a PostgreSQL server with a database and roles, and return its host and port."""
        server = self._open.enter_context(PostgresServer())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for role in POSTGRES_ROLES:
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            name, owner = sql.Identifier(POSTGRES_DATABASE), sql.Identifier(POSTGRES_ROLES[0])
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, owner))
        return f"127.0.0.1:{server.port}"

    def _save(self, name: str, text: str) -> None:
        """Save a file of a page. A project that is saved counts as installed: its entry points are there."""
        (self.folder / name).write_text(text, encoding="utf-8")
        if name == "pyproject.toml":
            settings = tomllib.loads(text)
            project = settings["project"]
            # Beside `test_harbour.py`, setuptools installs `harbour.py` only if it is told that this is the module.
            modules = {
                path.partition(":")[0] for points in project["entry-points"].values() for path in points.values()
            }
            assert set(settings["tool"]["setuptools"]["py-modules"]) == modules
            installed = self.folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
            installed.mkdir()
            about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
            (installed / "METADATA").write_text(about, encoding="utf-8")
            groups = [
                f"[{group}]\n" + "".join(f"{point} = {path}\n" for point, path in points.items())
                for group, points in project["entry-points"].items()
            ]
            (installed / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
