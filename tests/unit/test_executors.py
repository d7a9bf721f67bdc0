"""Blocking functions run in threads of their own kind, and none of one kind holds up another."""

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.errors import StoreClosedError
from turnlog.executors import Executors, of_process

WAIT_S = 30


class Blocked:
    """A function that blocks until it is let go. `begun` counts its calls."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.calls = 0
        self.go_on = threading.Event()

    def __call__(self, result: object = None) -> object:
        self.calls += 1
        self.begun.release()
        assert self.go_on.wait(WAIT_S)
        return result

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=WAIT_S)


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    """Give a function that blocks."""
    function = Blocked()
    yield function
    function.go_on.set()


@pytest.fixture
def executors() -> Iterator[Executors]:
    """Give executors with few threads, which end soon."""
    few = Executors(appends_max=2, reads_max=1, waits_max=2, idle_s=0.02)
    yield few
    few.close()


def _threads(kind: str = "") -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"turnlog-{kind}")]


@pytest.mark.parametrize("kind", ["append", "read", "wait"])
def test_function_runs_in_a_thread_of_its_kind(executors: Executors, kind: str) -> None:
    """It gets its arguments and the caller's context variables, and its result and its errors come back."""
    variable = contextvars.ContextVar("variable", default="unset")

    def function(first: int, /, *rest: int, function: str) -> tuple[object, ...]:
        seen = variable.get()
        variable.set("changed in the thread")
        return threading.current_thread().name, first, rest, function, seen

    def fail() -> None:
        raise KeyError("mine")

    async def main() -> None:
        run = getattr(executors, f"run_{kind}")
        variable.set("set by the caller")
        name, *rest = await run(function, 1, 2, 3, function="x")
        assert name == f"turnlog-{kind}-1"
        assert rest == [1, (2, 3), "x", "set by the caller"]
        assert variable.get() == "set by the caller"
        with pytest.raises(KeyError, match="mine"):
            await run(fail)

    asyncio.run(main())


def test_stop_iteration_becomes_an_error_that_a_coroutine_can_raise(executors: Executors) -> None:
    """The caller does not wait for ever for what no coroutine can raise."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await executors.run_read(next, iter(()))

    asyncio.run(main())


def test_waits_and_reads_do_not_hold_up_appends(executors: Executors, blocked: Blocked) -> None:
    """Appends run while all threads of the other kinds are taken, and more is queued for them."""

    async def main() -> None:
        others = [asyncio.create_task(executors.run_wait(blocked, number)) for number in range(6)]
        others += [asyncio.create_task(executors.run_read(blocked, number)) for number in range(6, 9)]
        for _ in range(3):  # as many as may run
            await blocked.has_begun()
        for number in range(5):
            assert await executors.run_append(lambda number=number: number) == number
        assert blocked.calls == 3
        assert not any(task.done() for task in others)
        blocked.go_on.set()
        assert await asyncio.gather(*others) == list(range(9))

    asyncio.run(main())


def test_queued_functions_run_in_order(executors: Executors) -> None:
    """What waits for a thread runs in the order in which it came."""
    order: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(executors.run_read(order.append, number) for number in range(50)))

    asyncio.run(main())
    assert order == list(range(50))


@pytest.mark.parametrize(("kind", "many"), [("append", 64), ("read", 16), ("wait", 300)])
def test_as_many_run_at_the_same_time(kind: str, many: int) -> None:
    """64 appends can meet in one commit, and hundreds of followers can wait."""
    executors = Executors()
    meeting = threading.Barrier(many)
    size = threading.stack_size(256 * 1024)

    async def main() -> None:
        run = getattr(executors, f"run_{kind}")
        await asyncio.gather(*(run(meeting.wait, WAIT_S) for _ in range(many)))

    try:
        asyncio.run(main())
        assert len(_threads(kind)) >= many - 1  # one that is done early may be taken again
    finally:
        threading.stack_size(size)
        executors.close()


def test_threads_begin_with_work_and_end_when_idle(executors: Executors) -> None:
    """There is no thread before there is work, one is used again, and it ends when there is no more."""

    async def main() -> None:
        assert not _threads("append")
        # A thread that hands over a result is not idle yet: the next function may start the second one.
        names = {await executors.run_append(lambda: threading.current_thread().name) for _ in range(20)}
        assert names <= {"turnlog-append-1", "turnlog-append-2"}
        for thread in _threads("append"):
            assert thread.daemon
            thread.join(WAIT_S)
        assert not _threads("append")
        assert await executors.run_append(lambda: threading.current_thread().name) not in names

    asyncio.run(main())


def test_work_that_comes_when_a_thread_is_about_to_end_is_done() -> None:
    """However the end of an idle thread and the next work meet, nothing is lost."""
    executors = Executors(appends_max=3, idle_s=0.0002)

    async def main() -> None:
        for number in range(300):
            assert await executors.run_append(lambda number=number: number) == number
            if number % 3:
                await asyncio.sleep(0.0002)

    asyncio.run(main())
    executors.close()


def test_cancelled_task_does_not_stop_its_function(executors: Executors, blocked: Blocked) -> None:
    """A function that has begun goes on when the task that awaits it is cancelled; its thread is then free again."""

    async def main() -> None:
        task = asyncio.create_task(executors.run_read(blocked))
        await blocked.has_begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        blocked.go_on.set()
        assert await executors.run_read(lambda: "next") == "next"

    asyncio.run(main())


def test_cancelled_append_that_has_not_begun_runs_and_a_read_does_not(executors: Executors, blocked: Blocked) -> None:
    """An append that was accepted is run, also if nobody awaits it any more; other work is then dropped."""
    ran: list[str] = []

    async def main() -> None:
        busy = [asyncio.create_task(executors.run_append(blocked)) for _ in range(2)]
        busy += [asyncio.create_task(executors.run_read(blocked)) for _ in range(1)]
        busy += [asyncio.create_task(executors.run_wait(blocked)) for _ in range(2)]
        for _ in busy:
            await blocked.has_begun()
        queued = [
            asyncio.create_task(run(ran.append, name))
            for name, run in {
                "append": executors.run_append,
                "read": executors.run_read,
                "wait": executors.run_wait,
            }.items()
        ]
        await asyncio.sleep(0)
        for task in queued:
            task.cancel()
        await asyncio.wait(queued)
        assert all(task.cancelled() for task in queued)
        blocked.go_on.set()
        await asyncio.gather(*busy)
        await executors.run_read(lambda: None)
        await executors.run_append(lambda: None)

    asyncio.run(main())
    executors.close()
    assert ran == ["append"]


def test_closing_runs_accepted_appends_and_drops_the_rest(executors: Executors, blocked: Blocked) -> None:
    """Queued appends are run before closing is done; queued reads and waits tell their callers that it is closed."""

    async def main() -> None:
        appends = [asyncio.create_task(executors.run_append(blocked, number)) for number in range(7)]
        reads = [asyncio.create_task(executors.run_read(blocked, number)) for number in range(3)]
        waits = [asyncio.create_task(executors.run_wait(blocked, number)) for number in range(4)]
        for _ in range(2 + 1 + 2):
            await blocked.has_begun()
        closing = asyncio.create_task(asyncio.to_thread(executors.close))
        results = await asyncio.gather(*reads[1:], *waits[2:], return_exceptions=True)
        assert [type(result) for result in results] == [StoreClosedError] * 4
        assert not closing.done()
        blocked.go_on.set()
        await closing
        assert blocked.calls == 7 + 1 + 2
        assert await asyncio.gather(*appends, reads[0], *waits[:2]) == [*range(7), 0, 0, 1]

    asyncio.run(main())


def test_closing_does_not_wait_for_waits(executors: Executors, blocked: Blocked) -> None:
    """A function that may take for ever does not keep closing from its end."""

    async def main() -> None:
        wait = asyncio.create_task(executors.run_wait(blocked, "woken"))
        await blocked.has_begun()
        executors.close()
        assert not wait.done()
        blocked.go_on.set()
        assert await wait == "woken"

    asyncio.run(main())


def test_closed_executors_refuse(executors: Executors) -> None:
    """After closing, which may be done twice and by one of their own functions, everything is refused."""

    async def main() -> None:
        await executors.run_append(executors.close)
        executors.close()
        for run in (executors.run_append, executors.run_read, executors.run_wait):
            with pytest.raises(StoreClosedError, match="open it again"):
                await run(lambda: None)

    asyncio.run(main())
    for thread in _threads():
        thread.join(WAIT_S)
    assert not _threads()


def test_result_after_the_event_loop_is_closed_disturbs_nobody(executors: Executors, blocked: Blocked) -> None:
    """A function may end when the event loop that asked for it is gone."""

    async def main() -> None:
        asyncio.create_task(executors.run_append(blocked))  # noqa: RUF006 - left alone on purpose
        await blocked.has_begun()

    asyncio.run(main())
    blocked.go_on.set()
    executors.close()
    assert not _threads("append")


def test_idle_thread_keeps_nothing_of_what_it_did() -> None:
    """Functions, results and errors are let go when they are done, without the garbage collector."""
    executors = Executors(idle_s=3600)

    class LargeError(Exception):
        pass

    def work() -> LargeError:
        return LargeError()

    def fail() -> None:
        raise LargeError

    async def main() -> list[weakref.ref[object]]:
        result = await executors.run_read(work)
        kept: list[weakref.ref[object]] = [weakref.ref(result)]
        try:
            await executors.run_read(fail)
        except LargeError as error:
            kept.append(weakref.ref(error))
        return kept

    gc.disable()
    try:
        kept = asyncio.run(main())
        pause = threading.Event()
        for _ in range(WAIT_S * 1000):
            if all(reference() is None for reference in kept):
                break
            pause.wait(0.001)  # the thread is not idle yet
        assert [reference() for reference in kept] == [None, None]
    finally:
        gc.enable()
        executors.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_process_is_refused(executors: Executors) -> None:
    """A child process has none of the threads: it is told to open the log again, and can close."""
    asyncio.run(executors.run_append(lambda: None))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                asyncio.run(executors.run_append(lambda: None))
            except StoreClosedError as error:
                executors.close()
                code = 0 if "forked: open it again" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(executors.run_append(lambda: 1)) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_executors_of_its_own() -> None:
    """Those that belong to no log work in it."""
    assert asyncio.run(of_process().run_append(lambda: 1)) == 1
    assert of_process() is of_process()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = asyncio.run(of_process().run_append(lambda: 0))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_process_ends_when_appends_are_done_and_not_later(tmp_path: Path) -> None:
    """At the end of the process accepted appends are run, though nobody awaits them; waits are left alone."""
    script = f"""
        import asyncio, threading
        from pathlib import Path
        from turnlog.executors import Executors, of_process

        executors = Executors(appends_max=1)
        main_is_done = threading.main_thread().join

        def append(name):
            main_is_done(0.05)
            (Path({str(tmp_path)!r}) / name).touch()

        async def main():
            for name in ("first", "second"):
                asyncio.create_task(executors.run_append(append, name))
            asyncio.create_task(executors.run_wait(threading.Event().wait))
            await asyncio.sleep(0)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], timeout=60, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
