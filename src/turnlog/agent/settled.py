"""Work of a run that a cancellation does not break off, so that it loses nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

from turnlog.agent.letting_go import cancel_as, carried, result_of
from turnlog.executors import Executors
from turnlog.hurry import hurry, hurry_of_run

T = TypeVar("T")


@contextmanager
def hurried_when_cancelled() -> Generator[None]:
    """Let what is done for a run wait for a store that does not answer for a few seconds only, once it is cancelled.

    It is for the task that the run is in: what cancels only a part of a run, such as a tool, is no reason.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    with hurry_of_run(lambda: task is not None and task.cancelling() > before):
        yield


async def settled(executors: Executors, work: Callable[[], T]) -> T:
    """Do blocking work in a thread for appends, to its end, and return its result.

    A cancellation that comes meanwhile waits until the work is done, and is then delivered where the task awaits
    next. What was to be recorded is recorded, and the task knows of it; but for a store that does not answer, which is
    given up soon then.
    """
    return await finished(executors.run_append(work))


async def delivered(work: Awaitable[T]) -> T:
    """Await work, and return its result, or raise the cancellation that `settled` still has for this task then.

    It is for what callers await: a cancellation that is left waiting would come out of what they await next, where
    nobody has cancelled anything. What the work raises goes before it: what could not be recorded, say.
    """
    try:
        result = await work
    except (Exception, asyncio.CancelledError):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        raise
    await asyncio.sleep(0)
    return result


async def finished(work: Awaitable[T]) -> T:
    """Await work to its end, and return its result. A cancellation that comes meanwhile waits, as in `settled`."""
    future = asyncio.ensure_future(carried(work))
    cancelled, _ = None, hurry().since_s
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = asyncio.CancelledError(*error.args)  # `error` leads back to here
            _ = hurry().since_s  # looked at now, so that it begins now
    task = asyncio.current_task()
    if cancelled is not None and task is not None:
        # The number of cancellations stays what it was: `asyncio.timeout` and `asyncio.Runner` count them.
        task.uncancel()
        cancel_as(task, cancelled)
    return result_of(future)
