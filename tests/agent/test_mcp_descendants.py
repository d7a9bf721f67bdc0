"""What an MCP server has started is ended with it, wherever that went."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from msgspec import Raw
from tests.agent.servers import odd
from tests.agent.test_mcp_faults import text_of

from turnlog.agent.mcp.descendants import Descendants
from turnlog.agent.mcp.tools import McpTools

STOP_S = 5.0
"""How long stopping may take."""

ENDED = {
    "a child": "echo $$; exec sleep 600",
    "a child in a session of its own, such as a browser": "echo $$; exec setsid sleep 600",
    "a grandchild in a session of its own": "setsid sleep 600 >/dev/null & echo $!; wait",
    "one that ignores SIGTERM, with a child": """exec setsid sh -c 'trap "" TERM; sleep 600 & echo $$ $!; wait'""",
    "one whose parent has ended": "sleep 600 >/dev/null & echo $!",
}
"""What a server may start, and the script of it; it writes the processes' ids."""

DAEMON = f"""PARENT=$$ setsid {sys.executable} -c '
import os, time
while os.getppid() == int(os.environ["PARENT"]):
    time.sleep(0.01)
print(os.getpid(), flush=True)
time.sleep(600)' &"""
ENDED_ALREADY = "echo $$; exec setsid true"


def lives(process: int) -> bool:
    """Tell whether there is a process of this id that has not ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


async def started(tools: McpTools) -> list[int]:
    """Have a server start what it is to start, and return the processes' ids."""
    processes = list(map(int, text_of(await tools.call("odd___go", Raw(b"{}"))).split()))
    assert processes
    return processes


async def use(*arguments: str) -> tuple[list[int], float]:
    """Use a server that starts something; return the processes' ids, and how long it took to stop, in seconds."""
    async with McpTools([odd("starts", *arguments)]) as tools:
        processes = await started(tools)
        begin_s = time.monotonic()
    return processes, time.monotonic() - begin_s


def stopped(*arguments: str) -> tuple[list[int], float]:
    """Do the same from without an event loop."""
    return asyncio.run(use(*arguments))


@pytest.mark.parametrize("server", ["", "stays"])
def test_what_a_server_has_started_ends_with_it(server: str) -> None:
    """Within five seconds, whether the server ends by itself or has to be killed. The kinds are tried at once."""

    async def use_all() -> list[tuple[list[int], float]]:
        return await asyncio.gather(*(use(script, *([server] if server else [])) for script in ENDED.values()))

    outcomes = dict(zip(ENDED, asyncio.run(use_all()), strict=True))
    left = {kind: [each for each in processes if lives(each)] for kind, (processes, _) in outcomes.items()}
    assert left == {kind: [] for kind in ENDED}
    assert {kind: took_s for kind, (_, took_s) in outcomes.items() if took_s >= STOP_S} == {}


def test_a_daemon_outlives_the_server_that_started_it() -> None:
    """It is in a session of its own, and what started it let it go. Nobody waits for it."""
    [daemon], took_s = stopped(DAEMON)
    try:
        assert lives(daemon)
        assert took_s < 1
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_what_has_ended_and_was_not_asked_for_its_status_is_not_waited_for() -> None:
    """A zombie is no process any more."""
    _, took_s = stopped(ENDED_ALREADY)
    assert took_s < 1


def test_what_was_started_is_told_of_by_its_process_id(caplog: pytest.LogCaptureFixture) -> None:
    """A person reads in the records why stopping took longer."""
    [process], _ = stopped(ENDED["a child in a session of its own, such as a browser"])
    assert [record.getMessage() for record in caplog.records if record.name == "turnlog.mcp"] == [
        f"process {process} that an MCP server had started went on when its input had ended: it is terminated"
    ]


@contextmanager
def session() -> Iterator[psutil.Process]:
    """Give the leader of a session that another process has started, with a child."""
    script = "setsid sh -c 'sleep 600 & echo $$; wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        leader = psutil.Process(int(process.stdout.readline()))
        try:
            yield leader
        finally:
            for each in [leader, *leader.children()]:  # the leader ends when it has no child any more
                each.kill()


def test_a_process_id_that_is_of_another_process_now_ends_nothing() -> None:
    """The program that had it is gone, and this one is not of turnlog's."""
    with session() as leader:
        Descendants(leader.pid).end(0)
        assert lives(leader.pid)
        assert len(leader.children()) == 1


def test_what_was_seen_is_remembered_when_its_parent_has_ended() -> None:
    """Then nothing leads from the program to it."""
    script = "setsid sh -c 'echo $$; exec sleep 600' & wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stdout is not None
        process = int(program.stdout.readline())
        started = Descendants(program.pid)
        started.look()
        program.kill()
        program.wait()
        assert lives(process)
        started.end(0)
    assert not lives(process)
