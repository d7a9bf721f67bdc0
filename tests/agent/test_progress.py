"""How far a tool call has come: what tools say of it while they are at work."""

import asyncio
import threading
import time
from contextvars import copy_context
from fractions import Fraction
from typing import Any

import pytest
from tests.agent.running import contents, results, run
from tests.agent.scripted import Scripted, call, say
from tests.agent.servers import COMMAND

from turnlog import RunError, TurnLog, report_progress
from turnlog.agent.events import RunEvent, ToolFinished, ToolProgress, ToolStarted


def told_of(log: TurnLog, tool: object) -> list[tuple[object, ...]]:
    """Return what a run tells of one call of a tool."""
    told: list[RunEvent] = []
    run(log, Scripted(call(("work", {})), say("Done.")), tools=tool, on_event=told.append)
    found: list[tuple[object, ...]] = []
    for event in told:
        if isinstance(event, ToolProgress):
            found.append((event.progress.done, event.progress.total, event.progress.message))
        elif isinstance(event, ToolStarted | ToolFinished):
            found.append((event.kind,))
    return found


def test_a_function_says_how_far_it_has_come(log: TurnLog) -> None:
    """From the thread that it runs in; what it says is between the beginning and the end of the call."""

    def work() -> str:
        """Work."""
        report_progress(1, 2, "half")
        report_progress(2, 2)
        return "x"

    assert told_of(log, work) == [("tool_started",), (1, 2, "half"), (2, 2, ""), ("tool_finished",)]


def test_a_coroutine_says_how_far_it_has_come(log: TurnLog) -> None:
    """Also what it says last, and what tasks say that it starts."""

    async def work() -> str:
        """Work."""

        async def part() -> None:
            report_progress(1)

        await asyncio.create_task(part())
        report_progress(2)
        return "x"

    assert told_of(log, work) == [("tool_started",), (1, None, ""), (2, None, ""), ("tool_finished",)]


def test_progress_after_the_end_of_a_call_is_told_to_nobody(log: TurnLog) -> None:
    """A thread may go on after the call that started it."""
    threads: list[threading.Thread] = []
    ended = threading.Event()

    def late() -> None:
        ended.wait()
        report_progress(1)

    async def work() -> str:
        """Work."""
        context = copy_context()
        threads.append(threading.Thread(target=context.run, args=(late,)))
        threads[0].start()
        return "x"

    assert told_of(log, work) == [("tool_started",), ("tool_finished",)]
    ended.set()
    threads[0].join()


def test_progress_outside_of_a_call_is_nothing() -> None:
    """So that a function can be used elsewhere too."""
    report_progress(1, 2, "x")


def test_progress_is_not_recorded(log: TurnLog) -> None:
    """The turns are those of a tool that says nothing."""

    def work() -> str:
        """Work."""
        report_progress(1, 2, "secret plan")
        return "x"

    result = run(log, Scripted(call(("work", {})), say("Done.")), tools=work)
    assert result.stopped == "done"
    assert not any("secret plan" in text for _, text in contents(log, result.head.id))


def test_an_error_of_whoever_follows_ends_the_run(log: TurnLog) -> None:
    """As at every other event; the call and its result are recorded."""

    def follow(event: RunEvent) -> None:
        if isinstance(event, ToolProgress):
            raise ZeroDivisionError

    def work() -> str:
        """Work."""
        report_progress(1)
        return "x"

    with pytest.raises(ZeroDivisionError):
        run(log, Scripted(call(("work", {})), say("Done.")), tools=work, on_event=follow, bookmark="main")
    assert contents(log, "main")[-1][0] == "user"


def test_a_server_says_how_far_it_has_come(log: TurnLog) -> None:
    """Its progress notifications; the record for programs has all of it."""
    log.servers.set("s", COMMAND)
    told: list[RunEvent] = []
    adapter = Scripted(call(("s___steps", {"count": 2, "ends": True})), say("Done."))
    run(log, adapter, servers=["s"], on_event=told.append)
    assert [event.to_record() for event in told if isinstance(event, ToolProgress)] == [
        {"name": "s___steps", "id": "c1", "done": step, "total": 2, "message": f"step {step}"} for step in (1, 2)
    ]


def test_a_flood_of_progress_does_not_hold_a_call_up(log: TurnLog) -> None:
    """Each of a thousand steps is told."""
    log.servers.set("s", COMMAND)
    told: list[RunEvent] = []
    begun_s = time.monotonic()
    adapter = Scripted(call(("s___steps", {"count": 1000, "ends": True})), say("Done."))
    run(log, adapter, servers=["s"], on_event=told.append)
    assert sum(isinstance(event, ToolProgress) for event in told) == 1000
    assert time.monotonic() - begun_s < 20


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("half",), "done: expected a number, got str"),
        ((True,), "done: expected a number, got bool"),
        ((1, "two"), "total: expected a number, got str"),
        ((1, 2, 3), "message: expected str, got int"),
    ],
)
def test_progress_of_another_type_is_the_tools_own_fault(log: TurnLog, given: tuple[Any, ...], why: str) -> None:
    """Whoever shows it is not given what cannot be shown; the model is told."""

    def work() -> None:
        report_progress(*given)

    told: list[RunEvent] = []
    result = run(log, Scripted(call(("work", {})), say("Done.")), tools=work, on_event=told.append)
    assert not [event for event in told if isinstance(event, ToolProgress)]
    assert results(log, result.head.id) == [("c1", f"RunError: {why}", True)]
    with pytest.raises(RunError, match=f"^{why}"):
        work()


def test_numbers_of_other_libraries_are_told_as_pythons(log: TurnLog) -> None:
    """JSON has them."""

    def work() -> None:
        report_progress(Fraction(1, 2), 2)

    [_, (done, total, _), _] = told_of(log, work)
    assert (repr(done), repr(total)) == ("0.5", "2")
