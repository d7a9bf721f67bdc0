"""The limit of time that a run has, and where it ends: when that is over, or when the log is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from turnlog.errors import StoreClosedError
from turnlog.long_work import LongWork


class TimeIsOverError(Exception):
    """Say, inside the run loop, that the limit of time has ended something."""


@asynccontextmanager
async def until(ends_s: float | None) -> AsyncGenerator[None]:
    """End what is done in here when a limit of time is over. A time-out of somebody else's goes through.

    Args:
        ends_s: when, by the clock of the event loop; None for no limit.

    Raises:
        TimeIsOverError: it was over.
    """
    async with _within(asyncio.timeout_at(ends_s), TimeIsOverError()):
        yield


@asynccontextmanager
async def until_closed(work: LongWork) -> AsyncGenerator[None]:
    """End what is done in here when the log is closed, as a cancellation does.

    Args:
        work: the long work on the log.

    Raises:
        StoreClosedError: it was closed.
    """
    limit = asyncio.timeout(None)
    loop = asyncio.get_running_loop()

    def end() -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_expire, limit)

    closed = StoreClosedError("the log was closed while a run was at work: what had come is recorded")
    async with _within(limit, closed):
        with work.known(end):
            yield


@asynccontextmanager
async def _within(limit: asyncio.Timeout, over: Exception) -> AsyncGenerator[None]:
    """Raise an error where a limit has ended what is done in here, and not a time-out of somebody else's."""
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise over from error
        raise


def _expire(limit: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # it is over already
        limit.reschedule(0)
