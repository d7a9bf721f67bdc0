"""What a command loads before it does anything."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from cyclopts import App
from tests.cli.command import Command

from turnlog import TurnLog
from turnlog.cli.app import build_app

CALLING = ("anthropic", "eventsourcing", "httpx2", "jsonschema", "mcp", "openai", "pydantic")
"""What only those need who call a model, a tool or a server, take somebody's file in, or follow a log with
eventsourcing."""


def loaded(program: str) -> set[str]:
    """Return the modules of a process that has run a program."""
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        capture_output=True,
        check=True,
        text=True,
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "command", ["history", "read", "record", "bookmarks", "search", "tail", "erase", "care", "stores"]
)
def test_a_command_that_calls_nobody_loads_nothing_for_it(command: str) -> None:
    """Nor does opening a log."""
    program = f"import turnlog.cli.app, turnlog.cli.commands.{command}\nturnlog.TurnLog.open('memory://').close()"
    names = loaded(program)
    assert [name for name in CALLING if name in names] == []
    assert [name for name in names if name.startswith(("turnlog.agent.", "turnlog.interop."))] == []


RECORDING = ("asyncio", "cryptography", "puremagic", "rich.console", "turnlog.record.drafts", "turnlog.record.secrets")
"""What only those need who record or sign something, run something beside, or write for people at a terminal."""

SELDOM = (
    "difflib",
    "logging",
    "platformdirs",
    "scru128",
    "subprocess",
    "tempfile",
    "traceback",
    "turnlog.audit.seals",
    "turnlog.cli.turn_options",
    "turnlog.store.sqlite.check",
    "turnlog.store.sqlite.rebuild",
)
"""What only those need who misspell a command, say no store, have a pager or something sealed, record or mend."""

WITH_A_LOG = """
import contextlib, io, os, turnlog
from turnlog.cli.app import main
os.environ["TURNLOG_STORE"] = "sqlite:///" + {path!r}
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
    assert main({arguments!r}) == 0
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Give the path of a store with a few turns."""
    path = str(tmp_path / "log.db")
    with TurnLog.open(f"sqlite:///{path}") as log:
        root = log.add_turn("hello", bookmark="main")
        log.add_turn("hi", continues=root.id, bookmark="side")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["log"],
        ["log", "--all", "-n", "10"],
        ["threads"],
        ["children", "main"],
        ["diff", "main", "side"],
        ["ancestry", "main"],
        ["show", "main"],
        ["cat", "main"],
    ],
)
def test_a_command_that_reads_turns_loads_nothing_that_records_them(path: str, arguments: list[str]) -> None:
    """Neither the packages of others for it, nor the parts of a log that it does not use."""
    names = loaded(WITH_A_LOG.format(path=path, arguments=arguments))
    assert [name for name in (*CALLING, *RECORDING, *SELDOM) if name in names] == []
    parts = ("agent", "audit.notes", "calls", "context.projector", "feeds", "interop", "providers", "registers")
    used = {"turnlog.feeds.records"}  # what a turn is as a record, which `show` prints
    assert [name for name in names - used if name.startswith(tuple(f"turnlog.{part}." for part in parts))] == []


@pytest.mark.parametrize("arguments", [["context", "main"], ["add", "more", "--continues", "main"], ["bookmarks"]])
def test_a_command_loads_no_package_that_it_does_not_use(path: str, arguments: list[str]) -> None:
    """What signs, and what tells kinds of documents, is for those who do."""
    names = loaded(WITH_A_LOG.format(path=path, arguments=arguments))
    seldom = ("cryptography", "difflib", "logging", "platformdirs", "puremagic", "subprocess", "tempfile")
    assert [name for name in (*CALLING, *seldom) if name in names] == []


@pytest.mark.parametrize("form", ["anthropic", "atif", "html", "jsonl", "markdown", "openai"])
def test_an_export_loads_nothing_of_runs(path: str, form: str) -> None:
    """But for those forms that are of another agent framework."""
    names = loaded(WITH_A_LOG.format(path=path, arguments=["export", "main", "--format", form]))
    assert [name for name in CALLING if name in names] == []
    assert [name for name in names if name.startswith(("turnlog.agent.", "turnlog.interop.gmi"))] == []


def test_the_version_is_told_before_any_command_is_made() -> None:
    """Nothing of a log is loaded for it, nor what installs completion."""
    program = (
        "import os, sys\nfrom turnlog.cli.app import main\nsys.stdout = open(os.devnull, 'w')\nmain(['--version'])"
    )
    names = loaded(f"{program}\nsys.stdout = sys.__stdout__")
    assert [name for name in names if name.startswith(("turnlog.cli.commands", "turnlog.store", "cyclopts.comp"))] == []


AT_FIRST_SIGN = """
import io, os
from turnlog.cli.app import main

class Screen(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        seen.append((text, {*sys.modules}))

seen, errors = [], sys.stderr
os.environ["TERM"] = "xterm"
sys.stderr = Screen()
assert main(["run", "Hi", "--nix"]) == 2
sys.stderr = errors
assert "starting" in seen[0][0], seen[0][0]
early = seen[0][1]
"""


def test_a_run_shows_that_it_works_before_it_loads_what_it_needs() -> None:
    """Nothing of a log is there by then; neither is what calls models."""
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys\n{AT_FIRST_SIGN}\nprint(*early)"],
        capture_output=True,
        check=True,
        text=True,
    )
    names = set(shown.stdout.split())
    assert [name for name in CALLING if name in names] == []
    parts = ("agent", "cli.commands", "cli.options", "log", "store", "providers")
    assert [name for name in names if name.startswith(tuple(f"turnlog.{part}" for part in parts))] == []


def test_importing_the_package_imports_nothing_of_it() -> None:
    """What is exported is imported when it is asked for; parts of the package are reached through it, too."""
    names = {name for name in loaded("import turnlog") if name.startswith("turnlog.")}
    assert names == set()
    assert {"turnlog.turn", "turnlog.errors"} <= loaded("import turnlog\nturnlog.Turn\nturnlog.errors.TurnlogError")


def test_a_run_is_found_on_the_class_as_on_the_log() -> None:
    """Though it comes from elsewhere, and late."""
    program = "import turnlog\nassert turnlog.TurnLog.run is turnlog.TurnLog.__dict__['run']\nlog = turnlog.TurnLog"
    assert "turnlog.agent.loop" in loaded(program)


def commands(app: App) -> Iterator[App]:
    """Yield each command, those within commands too."""
    for name in app:
        if not name.startswith("-"):
            yield app[name]
            yield from commands(app[name])


@pytest.mark.parametrize("command", [*commands(build_app())], ids=lambda command: command.name[0])
def test_the_options_of_every_command_can_be_read(command: App) -> None:
    """Those of a dataclass that inherits fields are read in the module of the heir when one of them is given."""
    hints = {} if command.default_command is None else get_type_hints(command.default_command)
    for group in hints.values():
        if isinstance(group, type) and is_dataclass(group):
            assert get_type_hints(group.__init__)


@pytest.mark.parametrize(
    "arguments",
    [
        ["log"],
        ["show", "main", "--json"],
        ["verify"],
        ["show", "nobody"],
        ["lgo"],
        ["add", "\udcff"],
        ["add", "-", "--continues", "nobody"],
        ["export", "--help"],
    ],
)
def test_a_command_that_is_started_does_what_its_copy_does(read: Command, arguments: list[str]) -> None:
    """Most tests run copies of a process that has imported everything: see `tests/cli/forked.py`."""
    assert read.started(*arguments, stdin=b"\xff \xc3\xa9\n") == read(*arguments, stdin=b"\xff \xc3\xa9\n")
