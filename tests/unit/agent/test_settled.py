"""Blocking work that a cancellation waits for."""

import asyncio
import threading
from collections.abc import Iterator

import anyio
import pytest

from turnlog.agent.settled import delivered, settled
from turnlog.executors import Executors


@pytest.fixture
def executors() -> Iterator[Executors]:
    """Give the threads of a log."""
    threads = Executors()
    yield threads
    threads.close()


def test_the_result_of_the_work_is_returned(executors: Executors) -> None:
    """The work runs in another thread than the event loop."""
    assert asyncio.run(settled(executors, threading.get_ident)) != threading.get_ident()


def test_what_the_work_raises_is_raised(executors: Executors) -> None:
    """As it is."""

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        asyncio.run(settled(executors, fail))


def test_a_cancellation_waits_for_the_work_and_is_delivered_afterwards(executors: Executors) -> None:
    """The task gets the result, and is cancelled where it awaits next; each cancellation counts."""
    begun, go_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def work() -> str:
        begun.set()
        assert go_on.wait(30)
        return "done"

    async def task() -> None:
        seen.append(await settled(executors, work))
        current = asyncio.current_task()
        assert current is not None
        seen.append(current.cancelling())
        await asyncio.sleep(0)
        seen.append("not reached")

    async def main() -> None:
        running = asyncio.create_task(task())
        await asyncio.to_thread(begun.wait)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)
        assert not running.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert seen == ["done", 2]


def test_a_time_limit_around_the_work_is_a_time_out_after_it(executors: Executors) -> None:
    """`asyncio.timeout` takes the cancellation for its own, as it is."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(30)

    async def main() -> None:
        async with asyncio.timeout(None) as limit:
            loop = asyncio.get_running_loop()

            def let_go() -> None:
                begun.wait()
                loop.call_soon_threadsafe(limit.reschedule, loop.time() - 1)
                loop.call_soon_threadsafe(loop.call_soon, lambda: loop.call_soon(go_on.set))

            threading.Thread(target=let_go).start()
            await settled(executors, work)
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_cancellation_that_waited_has_its_message(executors: Executors) -> None:
    """A scope of anyio's knows its own cancellation by that."""

    async def main() -> None:
        loop, go_on = asyncio.get_running_loop(), threading.Event()
        with anyio.CancelScope() as scope:

            def work() -> None:
                loop.call_soon_threadsafe(scope.cancel)
                loop.call_soon_threadsafe(loop.call_soon, go_on.set)
                assert go_on.wait(30)

            await delivered(settled(executors, work))
        assert scope.cancelled_caught
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "raised", [None, KeyError("x"), asyncio.CancelledError()], ids=["result", "error", "cancelled"]
)
def test_a_cancellation_that_waited_comes_out_where_the_work_is_awaited(
    executors: Executors, raised: BaseException | None
) -> None:
    """And not where the task awaits next: nobody has cancelled anything there. What the work raises goes before it."""
    begun, go_on = threading.Event(), threading.Event()

    def record() -> None:
        begun.set()
        assert go_on.wait(30)

    async def work() -> None:
        await settled(executors, record)
        if raised is not None:
            raise raised

    async def task() -> str:
        with pytest.raises(type(raised or asyncio.CancelledError())):
            await delivered(work())
        current = asyncio.current_task()
        assert current is not None
        assert current.uncancel() == 0
        await asyncio.sleep(0)
        return "went on"

    async def main() -> str:
        running = asyncio.create_task(task())
        await asyncio.to_thread(begun.wait)
        running.cancel()
        await asyncio.sleep(0)
        go_on.set()
        return await running

    assert asyncio.run(main()) == "went on"
