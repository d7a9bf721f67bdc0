"""What a run imports, and in which thread: an event loop should not be held up for it."""

import os
import subprocess
import sys
from functools import cache
from tempfile import TemporaryDirectory

import msgspec
import pytest
from msgspec import Struct
from tests.agent.wires import KEY, Anthropic, OpenAI, Wire, set_up
from tests.wires.server import WireServer

from turnlog import TurnLog

ANTHROPIC, OPENAI = Anthropic(), OpenAI()

_PROGRAM = """
import asyncio, importlib.abc, json, sys, threading
{imports}

def look_up(river: str) -> str:
    "Return how long a river is."
    return "1006 km"

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            in_loop.append(name)

AUTO = Policy(approve="auto")
in_loop = []
url = sys.argv[1]

async def main():
    sys.meta_path.insert(0, Watch())
    {run}

asyncio.run(main())
print(json.dumps({{"in_loop": in_loop, "loaded": [*sys.modules]}}))
"""

_SYNC, _ASYNC = "from turnlog import Policy, TurnLog", "from turnlog import AsyncTurnLog, Policy"
_ARUN = """
    log = TurnLog.open(url)
    result = await log.arun("How long is it?", pointer="kilo", tools=[look_up], policy=AUTO)
    assert len(result.turns) == 4, result
    await asyncio.to_thread(log.close)
"""
_EVENTS = """
    log = TurnLog.open(url)
    run = log.run_events("How long is it?", pointer="kilo", tools=[look_up], policy=AUTO)
    events = [event.kind async for event in run]
    assert events.count("turn") == 4, events
    await asyncio.to_thread(log.close)
"""
_ASYNC_RUN = """
    async with await AsyncTurnLog.open(url) as log:
        result = await log.run("How long is it?", pointer="kilo", tools=[look_up], policy=AUTO)
        assert len(result.turns) == 4, result
"""

LIGHT = {
    "turnlog.agent",
    "turnlog.agent.late",
    "turnlog.agent.letting_go",
    "turnlog.agent.run_events",
    "turnlog.executors",
    "turnlog.long_work",
}
"""What starts a run in an event loop: a thread imports the rest."""

SDKS = ("anthropic", "openai", "httpx2", "pydantic", "mcp", "jsonschema", "docstring_parser", "cryptography")


class Imported(Struct):
    """Modules that were imported in the thread of the event loop, and all that there are."""

    in_loop: list[str]
    loaded: list[str]


@cache
def imported(wire: Wire, imports: str, run: str) -> Imported:
    """Return what a program has imported that asks a model, which calls a tool, for the first time."""
    with TemporaryDirectory() as folder, WireServer() as server:
        url = f"sqlite:///{folder}/log.db"
        with TurnLog.open(url) as log:
            set_up(log, wire, server.url)
        server.answers += [wire.reply("", [("id_1", "look_up", '{"river":"Loire"}')]), wire.reply("1006 km.")]
        shown = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(imports=imports, run=run), url],
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, wire.key_variable: KEY},
        )
    return msgspec.json.decode(shown.stdout, type=Imported)


@pytest.mark.parametrize(
    ("wire", "imports", "run"),
    [
        (ANTHROPIC, _SYNC, _ARUN),
        (OPENAI, _SYNC, _ARUN),
        (OPENAI, _SYNC, _EVENTS),
        (OPENAI, _ASYNC, _ASYNC_RUN),
    ],
    ids=["arun-anthropic", "arun-openai", "events-openai", "async-openai"],
)
def test_the_first_run_imports_next_to_nothing_in_the_event_loop(wire: Wire, imports: str, run: str) -> None:
    """Neither the run loop, nor parts of the log, nor an SDK."""
    in_loop = imported(wire, imports, run).in_loop
    assert {name for name in in_loop if name.partition(".")[0] == "turnlog"} <= LIGHT
    assert [name for name in in_loop if name.partition(".")[0] in SDKS] == []


@pytest.mark.parametrize(("wire", "other"), [(ANTHROPIC, "openai"), (OPENAI, "anthropic")], ids=["first", "second"])
def test_a_run_loads_the_sdk_that_it_needs_and_no_other(wire: Wire, other: str) -> None:
    """Nor that of MCP, where it has no server."""
    loaded = imported(wire, _SYNC, _ARUN).loaded
    assert wire.provider in loaded
    assert [name for name in loaded if name.partition(".")[0] in (other, "mcp", "jsonschema")] == []
