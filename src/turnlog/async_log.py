"""AsyncTurnLog: the same log for asyncio. Every method is TurnLog's, run in a thread.

The threads are the log's own: appends have theirs, reads have theirs, and calls that wait have theirs, so that no
number of waiting calls keeps an append from being made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial, wraps
from os import PathLike
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from turnlog.agent.run_events import RunEvents
from turnlog.async_parts import (
    AsyncAudit,
    AsyncBookmarks,
    AsyncCalls,
    AsyncFeed,
    AsyncFeeds,
    AsyncHolds,
    AsyncPointers,
    AsyncProviders,
    AsyncRegisters,
    AsyncRunner,
    AsyncServers,
    AsyncToolCalls,
    Part,
    appends,
    reads,
    waits,
)
from turnlog.errors import StoreLostError, StoreOpenError, UncertainError
from turnlog.events import Recorded, Seals
from turnlog.executors import of_process
from turnlog.feeds import AsyncEvents, Item, Wanted
from turnlog.group import TurnGroup
from turnlog.hurry import HURRY
from turnlog.log import TurnLog
from turnlog.record import Hook
from turnlog.store.awaiting import wait_beyond
from turnlog.turn import turn_of

__all__ = [
    "AsyncAudit",
    "AsyncBookmarks",
    "AsyncCalls",
    "AsyncFeed",
    "AsyncFeeds",
    "AsyncHolds",
    "AsyncPointers",
    "AsyncProviders",
    "AsyncRegisters",
    "AsyncRunner",
    "AsyncServers",
    "AsyncToolCalls",
    "AsyncTurnLog",
]

P = ParamSpec("P")
R = TypeVar("R")


def _in_loop(
    method: Callable[Concatenate[TurnLog, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[AsyncTurnLog, P], Coroutine[Any, Any, R]]:
    """Return a coroutine method of TurnLog as one of AsyncTurnLog."""

    @wraps(method)
    async def run(self: AsyncTurnLog, *args: P.args, **kwargs: P.kwargs) -> R:
        return await method(self.sync, *args, **kwargs)

    return run


def _events(
    method: Callable[Concatenate[TurnLog, P], RunEvents[R]],
) -> Callable[Concatenate[AsyncTurnLog, P], RunEvents[R]]:
    """Return a method of TurnLog that returns the events of a run as one of AsyncTurnLog."""

    @wraps(method)
    def run_events(self: AsyncTurnLog, *args: P.args, **kwargs: P.kwargs) -> RunEvents[R]:
        return method(self.sync, *args, **kwargs)

    return run_events


class _Opening:
    """A log that a thread opens for a task, which may be cancelled meanwhile.

    Attributes:
        opened: the log, as soon as it is open.
        is_given_up: whether nobody waits for it any more.
    """

    def __init__(self, open_log: Callable[[], TurnLog]) -> None:
        self._open_log = open_log
        self.opened: list[TurnLog] = []
        self.is_given_up = False

    def open(self) -> TurnLog:
        log = self._open_log()
        # In this order: whoever gives up says so first, and then looks here. To close twice is allowed.
        self.opened.append(log)
        if self.is_given_up:
            log.close()
        return log


class AsyncTurnLog(Part[TurnLog]):
    """An append-only log of turns, for asyncio. See `TurnLog` for what each method does and raises.

    Appends that are awaited at the same time share a commit. A cancelled append may still be recorded: give it an id,
    and the same append again returns the stored turn.

    Attributes:
        sync: the log itself.
        bookmarks, calls, tool_calls, pointers, providers, servers, holds, registers, audit, feeds: the parts of the
            log, with methods to await.
    """

    def __init__(self, log: TurnLog) -> None:
        """Take an open log. `AsyncTurnLog.open` is the usual way.

        Raises:
            StoreOpenError: it is no log, as where a store is.
        """
        if not isinstance(log, TurnLog):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = "where a store is" if isinstance(log, str | PathLike) else f"of type {type(log).__name__}"
            raise StoreOpenError(f"this is {what}, and no log: open it with AsyncTurnLog.open(…)")
        super().__init__(log, log.executors)
        self.bookmarks = AsyncBookmarks(log.bookmarks, log.executors)
        self.calls = AsyncCalls(log.calls, log.executors)
        self.tool_calls = AsyncToolCalls(log.tool_calls, log.executors)
        self.pointers = AsyncPointers(log.pointers, log.executors)
        self.providers = AsyncProviders(log.providers, log.executors)
        self.servers = AsyncServers(log.servers, log.executors)
        self.registers = AsyncRegisters(log.registers, log.executors)
        self.audit = AsyncAudit(log.audit, log.executors)
        self.feeds = AsyncFeeds(log.feeds, log.executors)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        create: bool = True,
        busy_timeout_s: float = 60.0,
        on_busy: Callable[[float], None] | None = None,
        redact: Sequence[Hook] = (),
        seals: Seals | None = None,
    ) -> Self:
        """Open a log; see `TurnLog.open`. One that is opened when nobody waits for it any more is closed again."""
        opening = _Opening(
            partial(
                TurnLog.open,
                url,
                create=create,
                busy_timeout_s=busy_timeout_s,
                on_busy=on_busy,
                redact=redact,
                seals=seals,
            )
        )
        try:
            return cls(await of_process().run_append(opening.open))
        except asyncio.CancelledError:
            opening.is_given_up = True
            for log in opening.opened:
                with HURRY:
                    await asyncio.shield(of_process().run_append(log.close))
            raise

    async def __aenter__(self) -> Self:
        """Return the log itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log. When the task was cancelled, a server that does not answer is not waited for."""
        with HURRY if isinstance(error, asyncio.CancelledError | StoreLostError | UncertainError) else nullcontext():
            await self.close()

    async def close(self) -> None:
        """Release the store; see `TurnLog.close`. Appends that were begun are made, cancelled or not.

        The log is closed even if this task is cancelled: then maybe a moment later, and before the process ends.
        """
        # Not in the log's own threads, which it waits for.
        await of_process().run_append(self.sync.close)

    @overload
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
    ) -> AsyncEvents[Recorded]: ...
    @overload
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
        mark: bool = False,
        deltas: bool = False,
    ) -> AsyncEvents[Item]: ...
    def events(
        self,
        after: int = 0,
        *,
        after_id: str | None = None,
        follow: bool = False,
        topics: str | Sequence[str] = (),
        thread: str | None = None,
        bookmark: str | None = None,
        mark: bool = False,
        deltas: bool = False,
    ) -> AsyncEvents[Any]:
        """Iterate over the events of the log with `async for`; see `TurnLog.events`. To wait takes no thread."""
        wanted = Wanted.of(
            after,
            after_id=after_id,
            follow=follow,
            topics=topics,
            thread=thread,
            bookmark=bookmark,
            mark=mark,
            deltas=deltas,
        )
        return AsyncEvents(self.sync.feeds, wanted, self._executors)

    async def wait(self, after: int, timeout_s: float | None = None) -> int:
        """Wait until the log has events above a global position; see `TurnLog.wait`. To wait takes no thread.

        Args:
            after: a global position.
            timeout_s: how long to wait at most, in seconds; None for as long as it takes.
        """
        return await wait_beyond(self.sync.store, self._executors, after, timeout_s)

    async def id(self) -> str | None:
        """Return the log's identity; see `TurnLog.id`."""
        return await self._executors.run_read(lambda: self.sync.id)

    @asynccontextmanager
    async def group(self) -> AsyncGenerator[TurnGroup]:
        """Record several turns together, when the `async with` block ends; see `TurnLog.group`.

        Adding takes no `await`: nothing is recorded then.
        """
        group = TurnGroup(self.sync._sources.new_id)  # pyright: ignore[reportPrivateUsage] - our own
        try:
            yield group
        finally:
            drafts = group.end()
        recorded = await self._executors.run_append(self.sync._record_group, drafts)  # pyright: ignore[reportPrivateUsage] - our own
        group.turns = [turn_of(each) for each in recorded]

    @property
    def holds(self) -> AsyncHolds:
        """The legal holds: what must not be erased."""
        return AsyncHolds(self.sync.holds, self._executors)

    add_turn = appends(TurnLog.add_turn)
    add_document = appends(TurnLog.add_document)
    add_event = appends(TurnLog.add_event)
    add_group = appends(TurnLog.add_group)
    compact = waits(TurnLog.compact)  # whoever summarizes may take long, and record something
    turn = reads(TurnLog.turn)
    event = reads(TurnLog.event)
    ancestry = reads(TurnLog.ancestry)
    children = reads(TurnLog.children)
    compare = reads(TurnLog.compare)
    latest = waits(TurnLog.latest)
    thread = reads(TurnLog.thread)
    turn_count = reads(TurnLog.turn_count)
    threads = waits(TurnLog.threads)
    content = reads(TurnLog.content)
    text = reads(TurnLog.text)
    payload = reads(TurnLog.payload)
    context = reads(TurnLog.context)
    import_transcript = waits(TurnLog.import_transcript)
    import_claude_code = waits(TurnLog.import_claude_code)
    export = waits(TurnLog.export)
    import_turnlog = waits(TurnLog.import_turnlog)
    copy_to = waits(TurnLog.copy_to)
    run = arun = _in_loop(TurnLog.arun)
    run_events = _events(TurnLog.run_events)
    verify = waits(TurnLog.verify)
    rebuild_projections = waits(TurnLog.rebuild_projections)
    erase = waits(TurnLog.erase)
    finish_erasing = waits(TurnLog.finish_erasing)
    retain = waits(TurnLog.retain)
    seal = appends(TurnLog.seal)
    stats = reads(TurnLog.stats)
