"""AsyncTurnLog: the same log for asyncio. Every method is TurnLog's, run in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from turnlog.events import Recorded
from turnlog.log import TurnLog

P = ParamSpec("P")
R = TypeVar("R")
_PAGE_EVENTS = 1000


def _in_thread(
    method: Callable[Concatenate[TurnLog, P], R],
) -> Callable[Concatenate[AsyncTurnLog, P], Coroutine[Any, Any, R]]:
    """Return a method of TurnLog as one of AsyncTurnLog: with the same arguments, result and errors."""

    @wraps(method)
    async def run(self: AsyncTurnLog, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.log, *args, **kwargs)

    return run


def _in_loop(
    method: Callable[Concatenate[TurnLog, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[AsyncTurnLog, P], Coroutine[Any, Any, R]]:
    """Return a coroutine method of TurnLog as one of AsyncTurnLog."""

    @wraps(method)
    async def run(self: AsyncTurnLog, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(self.log, *args, **kwargs)

    return run


class AsyncTurnLog:
    """An append-only log of turns, for asyncio. See `TurnLog` for what each method does and raises.

    Appends that are awaited at the same time share a commit. A cancelled append may still be recorded: give it an id,
    and the same append again returns the stored turn.
    """

    def __init__(self, log: TurnLog) -> None:
        """Take an open log. `AsyncTurnLog.open` is the usual way."""
        self.log = log

    @classmethod
    async def open(cls, url: str, *, create: bool = True, busy_timeout_s: float = 60.0) -> Self:
        """Open a log; see `TurnLog.open`."""
        return cls(await asyncio.to_thread(TurnLog.open, url, create=create, busy_timeout_s=busy_timeout_s))

    async def __aenter__(self) -> Self:
        """Return the log itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        await self.close()

    async def events(self, after: int = 0, *, topics: Sequence[str] = ()) -> AsyncIterator[Recorded]:
        """Iterate over the events above a global position, as of now; see `TurnLog.events`."""
        found = self.log.events(after, topics=topics)
        while page := await asyncio.to_thread(lambda: list(islice(found, _PAGE_EVENTS))):
            for recorded in page:
                yield recorded

    close = _in_thread(TurnLog.close)
    add_turn = _in_thread(TurnLog.add_turn)
    add_document = _in_thread(TurnLog.add_document)
    turn = _in_thread(TurnLog.turn)
    ancestry = _in_thread(TurnLog.ancestry)
    children = _in_thread(TurnLog.children)
    thread = _in_thread(TurnLog.thread)
    threads = _in_thread(TurnLog.threads)
    bookmarks = _in_thread(TurnLog.bookmarks)
    payload = _in_thread(TurnLog.payload)
    context = _in_thread(TurnLog.context)
    set_bookmark = _in_thread(TurnLog.set_bookmark)
    rename_bookmark = _in_thread(TurnLog.rename_bookmark)
    delete_bookmark = _in_thread(TurnLog.delete_bookmark)
    import_claude_code = _in_thread(TurnLog.import_claude_code)
    export = _in_thread(TurnLog.export)
    import_turnlog = _in_thread(TurnLog.import_turnlog)
    run = arun = _in_loop(TurnLog.arun)
    verify = _in_thread(TurnLog.verify)
    stats = _in_thread(TurnLog.stats)
