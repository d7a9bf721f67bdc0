"""Tools that do not let themselves be ended: nobody waits for them for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 1.5
"""How long a tool has to end when it was cancelled, in seconds: as long as the program of a server."""

_left: set[asyncio.Task[Any]] = set()
"""Tasks that go on; kept, for tasks that nobody has may end before they do."""


async def ended_or_left(work: Coroutine[Any, Any, T], on_left: Callable[[], None]) -> T:
    """Await work in a task of its own, and pass a cancellation on to it; it has `GRACE_S` seconds to end then.

    What it comes to when it is cancelled is what this comes to, a result too. Work that goes on is left alone, for as
    long as the event loop goes on, which does not wait for it when it is closed.

    Args:
        work: the work.
        on_left: called where it is left at work.

    Raises:
        CancelledError: it was cancelled, from here or from within, or is left at work.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        if not await _ends(task):
            _leave(task)
            on_left()
            raise
    return task.result()


async def _ends(task: asyncio.Task[Any]) -> bool:
    """Cancel a task, again with each further cancellation of this one, and tell whether it ends."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + GRACE_S
    task.cancel()
    while not task.done() and (left_s := until_s - loop.time()) > 0:
        try:
            await asyncio.wait([task], timeout=left_s)
        except asyncio.CancelledError:
            task.cancel()
    return task.done()


def _leave(task: asyncio.Task[Any]) -> None:
    _left.add(task)
    task.add_done_callback(_forget)
    # `asyncio.run` waits for all tasks that it knows of, without a bound. A task with a life of its own may be unknown
    # to it (asyncio's documentation, "Extending").
    asyncio._unregister_task(task)


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio prints it: who waited for it was told that it is not known
