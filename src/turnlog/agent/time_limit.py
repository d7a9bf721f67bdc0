"""The limit of time that a run has, and where it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


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
    limit = asyncio.timeout_at(ends_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeIsOverError from error
        raise
