"""Work of a run that a cancellation does not break off, so that it loses nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnlog.executors import Executors

T = TypeVar("T")


async def settled(executors: Executors, work: Callable[[], T]) -> T:
    """Do blocking work in a thread for appends, to its end, and return its result.

    A cancellation that comes meanwhile waits until the work is done, and is then delivered where the task awaits
    next. What was to be recorded is recorded, and the task knows of it.
    """
    return await finished(executors.run_append(work))


async def finished(work: Awaitable[T]) -> T:
    """Await work to its end, and return its result. A cancellation that comes meanwhile waits, as in `settled`."""
    future = asyncio.ensure_future(work)
    cancellations = 0
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancellations += 1
    task = asyncio.current_task()
    # The number of cancellations stays what it was: `asyncio.timeout` and `asyncio.Runner` count them.
    for _ in range(cancellations if task is not None else 0):
        assert task is not None
        task.uncancel()
        task.cancel()
    return future.result()
