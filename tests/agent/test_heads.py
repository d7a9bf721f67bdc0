"""Where a run goes on from: a bookmark that others move meanwhile, and one that is not where it was expected."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.running import run, values
from tests.agent.scripted import HERE, MODEL, Scripted, call, say

from turnlog import HeadConflictError, RunError, RunResult, StoreError, TurnLog
from turnlog.agent.events import BookmarkLeft, HeadBusy, RunEvent


def moving(log: TurnLog) -> Callable[[], str]:
    """Return a tool that moves the bookmark while the run is at work."""

    def move() -> str:
        log.add_turn("Somebody else.", continues="main")
        return "moved"

    return move


def test_a_run_whose_bookmark_was_moved_goes_on_on_a_branch_of_its_own(log: TurnLog) -> None:
    """It says so once, what it records is whole, and the bookmark stays where the other one has moved it."""
    told: list[RunEvent] = []
    adapter = Scripted(call(("move", {})), say("Done."))
    result = run(log, adapter, bookmark="main", tools=[moving(log)], on_event=told.append)
    [left] = [event for event in told if isinstance(event, BookmarkLeft)]
    assert (left.bookmark, left.turn.id) == ("main", result.turns[2].id)
    assert (result.stopped, result.text, result.to_record()["bookmark"]) == ("done", "Done.", None)
    assert log.payload("main") == b'[{"type":"text","text":"Somebody else."}]'
    assert [turn.id for turn in log.ancestry(result.head.id)] == [turn.id for turn in result.turns]


def test_a_run_that_goes_on_from_a_bookmark_says_where_it_leaves_it(log: TurnLog) -> None:
    """Also where it adds no turn of its own first."""
    run(log, Scripted(call(("move", {}))), bookmark="main", approve="ask", tools=[moving(log)])
    told: list[RunEvent] = []
    run(log, Scripted(say("Done.")), None, continues="main", tools=[moving(log)], on_event=told.append)
    assert [event.bookmark for event in told if isinstance(event, BookmarkLeft)] == ["main"]


@pytest.mark.parametrize("settings", [{"bookmark": False}, {"bookmark": "other"}, {}])
def test_a_run_whose_bookmark_nobody_moves_says_nothing(log: TurnLog, settings: dict[str, Any]) -> None:
    """Whatever bookmark it moves, or none."""
    log.add_turn("Hello", bookmark="main")
    told: list[RunEvent] = []
    run(log, Scripted(say("Done.")), continues="main", on_event=told.append, **settings)
    assert [event for event in told if isinstance(event, BookmarkLeft)] == []


def test_a_run_begins_only_where_its_bookmark_is_expected(log: TurnLog) -> None:
    """Else nothing is recorded and nobody is asked; from there on the bookmark moves along."""
    first = log.add_turn("Hello", bookmark="main")
    second = log.add_turn("Again", continues="main")
    adapter = Scripted(say("Done."))
    with pytest.raises(HeadConflictError):
        run(log, adapter, continues="main", expected_head=first.id)
    assert (adapter.bodies, log.turn("main").id) == ([], second.id)
    result = run(log, adapter, continues="main", expected_head=second.id)
    assert (result.stopped, log.turn("main").id) == ("done", result.head.id)


def test_a_run_that_goes_on_begins_only_where_its_bookmark_is_expected(log: TurnLog) -> None:
    """Before it calls a tool, so that no result is given up for it."""
    asked = run(log, Scripted(call(("work", {}))), bookmark="main", approve="ask", tools=[moving(log)]).head.id
    called: list[str] = []

    def work() -> str:
        called.append("work")
        return "worked"

    adapter = Scripted(say("Done."))
    with pytest.raises(HeadConflictError):
        run(log, adapter, None, continues="main", expected_head=log.add_turn("Elsewhere.").id, tools=[work])
    assert (adapter.bodies, called, log.turn("main").id) == ([], [], asked)
    assert run(log, adapter, None, continues="main", expected_head=asked, tools=[work]).stopped == "done"
    with pytest.raises(HeadConflictError):
        run(log, adapter, "New.", bookmark="main", expected_head=False)


def test_a_run_waits_for_another_one_and_goes_on_behind_it(log: TurnLog) -> None:
    """While the tools of that one are at work; it says so once."""
    told: list[RunEvent] = []

    async def both() -> list[RunResult]:
        at_work, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            """Work."""
            at_work.set()
            await go_on.wait()
            return "worked"

        def tell(event: RunEvent) -> None:
            told.append(event)
            if isinstance(event, HeadBusy):
                go_on.set()

        settings: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}
        adapter = Scripted(call(("work", {})), say("Done."))
        first = asyncio.ensure_future(
            log.arun("Go.", bookmark="main", tools=work, **values(**settings, adapter=adapter))
        )
        await at_work.wait()
        follow = {"continues": "main", "wait_s": 60, "on_event": tell}
        second = await log.arun("And?", **values(**follow, **settings, adapter=Scripted(say("Yes."))))
        return [await first, second]

    first, second = asyncio.run(both())
    assert [event for event in told if isinstance(event, HeadBusy)] == [HeadBusy(turn=first.turns[1], wait_s=60)]
    assert [turn.id for turn in log.ancestry("main")] == [turn.id for turn in (*first.turns, *second.turns)]


def test_runs_that_wait_begin_one_after_the_other(log: TurnLog) -> None:
    """Also where all begin at one moment: each answer follows its question, on the bookmark."""
    log.add_turn("Hello", bookmark="main")
    together = 5

    async def all_at_once() -> list[RunResult]:
        settings: dict[str, Any] = {"continues": "main", "model": MODEL, "connection": HERE, "wait_s": 60}
        return await asyncio.gather(
            *(
                log.arun(f"Question {number}", **values(**settings, adapter=Scripted(say(f"Answer {number}"))))
                for number in range(together)
            )
        )

    results = asyncio.run(all_at_once())
    assert {result.head.head for result in results} == {"main"}
    said = [log.text(turn) for turn in log.ancestry("main")][1:]
    assert len(said) == 2 * together
    for question, answer in zip(said[::2], said[1::2], strict=True):
        assert answer == question.replace("Question", "Answer")


@pytest.mark.parametrize("named", [{"continues": "main"}, {"respond": True}], ids=str)
@pytest.mark.parametrize("resumes", [True, False])
def test_a_run_does_not_wait_for_ever(log: TurnLog, resumes: bool, named: dict[str, Any]) -> None:
    """It says that another run is there; nothing is recorded."""
    asked = log.add_turn("Hello", bookmark="main")
    release = log.store.locks.take(asked.id)
    assert release is not None
    with pytest.raises(RunError, match="another run is still at work on turn"):
        run(log, Scripted(), None if resumes else "And?", wait_s=0.01, **named)
    assert log.turn("main").id == asked.id
    release()
    assert run(log, Scripted(say("Yes.")), None if resumes else "And?", wait_s=60, **named).stopped == "done"


@pytest.mark.parametrize("on_interrupted", ["ask", "repeat", "report"])
def test_a_turn_that_another_run_is_at_work_on_is_not_gone_on_from(log: TurnLog, on_interrupted: str) -> None:
    """Whatever is to be done about runs that were killed: that one lives. The turn before it is free to fork."""
    called: list[int] = []

    async def both() -> list[RunResult]:
        at_work, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            """Work."""
            called.append(1)
            at_work.set()
            await go_on.wait()
            return "worked"

        given: dict[str, Any] = {"model": MODEL, "connection": HERE, "approve": "auto"}
        adapter = Scripted(call(("work", {})), say("Done."))
        first = asyncio.ensure_future(log.arun("Go.", bookmark="main", tools=work, **values(**given, adapter=adapter)))
        await at_work.wait()
        other: dict[str, Any] = values(**given, adapter=Scripted(say("Yes.")), on_interrupted=on_interrupted)
        second = await log.arun(continues="main", tools=work, on_approval=lambda _: True, **other)
        third = await log.arun("Else?", continues="main~1", **values(**given, adapter=Scripted(say("Well."))))
        go_on.set()
        return [await first, second, third]

    first, second, third = asyncio.run(both())
    assert (first.stopped, second.stopped, third.stopped, called) == ("done", "busy", "done", [1])
    assert (second.turns, second.head.id) == ((), first.turns[1].id)
    assert "another run is at work on this turn" in second.why
    assert [attempt.ending for attempt in log.tool_calls.of(first.turns[1].id)[0].attempts] == ["result"]


@pytest.mark.parametrize("ending", ["cancelled", "failed", "done"])
def test_a_run_that_has_ended_is_at_work_on_nothing(log: TurnLog, ending: str) -> None:
    """However it ended."""

    async def work() -> str:
        """Work."""
        await asyncio.sleep(60)
        return "worked"

    async def ended() -> None:
        given = values(model=MODEL, connection=HERE, approve="auto", adapter=Scripted(call(("work", {})), say("Done.")))
        task = asyncio.ensure_future(
            log.arun("Go.", bookmark="main", tools=work if ending == "cancelled" else sorted_words, **given)
        )
        if ending == "cancelled":
            await asyncio.sleep(0.2)
            task.cancel()
        await asyncio.wait([task])

    def sorted_words() -> str:
        """Fail, or not."""
        if ending == "failed":
            raise ValueError
        return "a b"

    sorted_words.__name__ = "work"
    asyncio.run(ended())
    assert not any(log.store.locks.is_taken(turn.id) for turn in log.ancestry("main"))


def test_where_a_run_was_killed_is_nobody_at_work(tmp_path: Path) -> None:
    """What it had is free, and nothing of it is left beside the store."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        from turnlog import TurnLog

        log = TurnLog.open(sys.argv[1])
        assert log.store.locks.take("turn") is not None
        print("taken", flush=True)
        sys.stdin.read()
        """
    )
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with TurnLog.open(url) as log:
        log.add_turn("Hello")
        with subprocess.Popen(
            [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"taken\n"
            assert (log.store.locks.take("turn"), log.store.locks.is_taken("turn")) == (None, True)
            other.kill()
        assert not log.store.locks.is_taken("turn")
        release = log.store.locks.take("another")
        assert release is not None
        release()
        assert not (tmp_path / "log.db-locks").exists()


@pytest.mark.parametrize("is_link", [True, False])
def test_where_no_folder_for_locks_can_be_a_run_ends_before_anything_is_recorded(tmp_path: Path, is_link: bool) -> None:
    """A link that leads nowhere, or a file."""
    with TurnLog.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.add_turn("Hello", bookmark="main")
        folder = tmp_path / "log.db-locks"
        if is_link:
            folder.symlink_to(tmp_path / "nowhere")
        else:
            folder.touch()
        before = len(list(log.events()))
        with pytest.raises(StoreError, match="-locks"):
            run(log, Scripted(say("Yes.")), None, continues="main")
        assert len(list(log.events())) == before


def test_nobody_is_waited_for_where_nobody_is(log: TurnLog) -> None:
    """A finished reply can be gone on from at once, and so can nothing at all."""
    run(log, Scripted(say("Yes.")), bookmark="main", wait_s=60)
    run(log, Scripted(say("Yes.")), continues="main", wait_s=60)
    assert len(log.ancestry("main")) == 4
