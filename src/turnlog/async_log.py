"""AsyncTurnLog: the same log for asyncio. Every method is TurnLog's, run in a thread.

The threads are the log's own: appends have theirs, reads have theirs, and calls that wait have theirs, so that no
number of waiting calls keeps an append from being made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial, wraps
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from turnlog import providers
from turnlog.agent.run_events import RunEvents
from turnlog.audit import Audit
from turnlog.audit.holding import Holds
from turnlog.calls import Calls, RequestCheck, ToolCalls
from turnlog.errors import StoreLostError, StoreOpenError, UncertainError
from turnlog.events import Recorded, Seals
from turnlog.executors import Executors
from turnlog.feeds import AsyncEvents, Feeds, Item, Wanted
from turnlog.group import TurnGroup
from turnlog.hurry import HURRY
from turnlog.log import TurnLog
from turnlog.providers import Provider
from turnlog.record import Hook
from turnlog.registers import Bookmarks, Pointers, Providers, Registers, Servers
from turnlog.store.awaiting import wait_beyond
from turnlog.turn import turn_of

__all__ = [
    "AsyncAudit",
    "AsyncBookmarks",
    "AsyncCalls",
    "AsyncFeeds",
    "AsyncHolds",
    "AsyncPointers",
    "AsyncProviders",
    "AsyncRegisters",
    "AsyncServers",
    "AsyncToolCalls",
    "AsyncTurnLog",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
_PAGE = 1000


class _Part(Generic[T]):
    """Something of a log, and the threads that its methods run in."""

    def __init__(self, sync: T, executors: Executors) -> None:
        """Take the part of a `TurnLog`."""
        self.sync = sync
        self._executors = executors


def _appends(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[_Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that appends as one that is awaited: with the same arguments, result and errors."""

    @wraps(method)
    async def run(self: _Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_append(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


def _reads(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[_Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that reads as one that is awaited."""

    @wraps(method)
    async def run(self: _Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_read(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


def _waits(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[_Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that may take as long as it likes as one that is awaited."""

    @wraps(method)
    async def run(self: _Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_wait(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


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


async def _pages(executors: Executors, items: Iterator[I]) -> AsyncIterator[I]:
    """Iterate over items that are made in a thread, a page at a time."""
    while page := await executors.run_read(lambda: list(islice(items, _PAGE))):
        for item in page:
            yield item


class AsyncBookmarks(_Part[Bookmarks]):
    """Names for turns; see `turnlog.registers.Bookmarks`."""

    set = _appends(Bookmarks.set)
    rename = _appends(Bookmarks.rename)
    delete = _appends(Bookmarks.delete)
    get = _reads(Bookmarks.get)
    all = _reads(Bookmarks.all)


class AsyncCalls(_Part[Calls]):
    """The model calls of a log; see `turnlog.calls.Calls`."""

    record = _appends(Calls.record)
    record_reply = _appends(Calls.record_reply)
    get = _reads(Calls.get)
    all = _reads(Calls.all)
    request = _reads(Calls.request)
    events = _reads(Calls.events)
    tools = _reads(Calls.tools)
    of = _reads(Calls.of)
    replies = _reads(Calls.replies)
    forget = _reads(Calls.forget)

    async def check(
        self, headish: str, *, adapter: Callable[[str, str], Provider] = providers.get_as
    ) -> AsyncIterator[RequestCheck]:
        """Make every recorded request in the ancestry of a turn again, and compare; see `Calls.check`."""
        async for checked in _pages(self._executors, self.sync.check(headish, adapter=adapter)):
            yield checked


class AsyncToolCalls(_Part[ToolCalls]):
    """The tool calls of a log; see `turnlog.calls.ToolCalls`."""

    begin = _appends(ToolCalls.begin)
    end = _appends(ToolCalls.end)
    record_results = _appends(ToolCalls.record_results)
    of = _reads(ToolCalls.of)


class AsyncPointers(_Part[Pointers]):
    """Named aliases for a provider and a model; see `turnlog.registers.Pointers`."""

    set = _appends(Pointers.set)
    delete = _appends(Pointers.delete)
    get = _reads(Pointers.get)
    all = _reads(Pointers.all)


class AsyncProviders(_Part[Providers]):
    """Which providers may be called; see `turnlog.registers.Providers`."""

    set = _appends(Providers.set)
    disable = _appends(Providers.disable)
    get = _reads(Providers.get)
    all = _reads(Providers.all)


class AsyncServers(_Part[Servers]):
    """MCP servers by name; see `turnlog.registers.Servers`."""

    set = _appends(Servers.set)
    set_all = _appends(Servers.set_all)
    delete = _appends(Servers.delete)
    get = _reads(Servers.get)
    all = _reads(Servers.all)


class AsyncHolds(_Part[Holds]):
    """Legal holds; see `turnlog.audit.holding.Holds`."""

    set = _appends(Holds.set)
    release = _appends(Holds.release)
    get = _reads(Holds.get)
    all = _reads(Holds.all)


class AsyncRegisters(_Part[Registers]):
    """Registers that came with imports; see `turnlog.registers.Registers`."""

    imported = _reads(Registers.imported)
    trust = _appends(Registers.trust)


class AsyncAudit(_Part[Audit]):
    """Signed checkpoints of a log, and proofs; see `turnlog.audit.Audit`."""

    checkpoint = _waits(Audit.checkpoint)
    checkpoints = _reads(Audit.checkpoints)
    cosigned = _appends(Audit.cosigned)
    keep_checkpoints = _reads(Audit.keep_checkpoints)
    consistency_proof = _waits(Audit.consistency_proof)
    publish = _waits(Audit.publish)
    prove = _waits(Audit.prove)
    prove_consistency = _waits(Audit.prove_consistency)
    rebuild_tree = _waits(Audit.rebuild_tree)


class AsyncFeeds(_Part[Feeds]):
    """Search, usage and other projections of a log; see `turnlog.feeds.Feeds`."""

    search = _waits(Feeds.search)
    unsearchable = _reads(Feeds.unsearchable)
    usage = _waits(Feeds.usage)
    total_usage = _waits(Feeds.total_usage)
    tools = _waits(Feeds.tools)
    run = _waits(Feeds.run)
    status = _reads(Feeds.status)
    rebuild = _waits(Feeds.rebuild)
    skip = _waits(Feeds.skip)
    all = _reads(Feeds.all)
    get = _reads(Feeds.get)
    move = _waits(Feeds.move)
    remove = _waits(Feeds.remove)


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


class AsyncTurnLog(_Part[TurnLog]):
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
            StoreOpenError: it is no log, but where a store is.
        """
        if isinstance(log, str | PathLike):
            raise StoreOpenError("this is where a store is, and no log: open it with AsyncTurnLog.open(…)")
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
            return cls(await asyncio.to_thread(opening.open))
        except asyncio.CancelledError:
            opening.is_given_up = True
            for log in opening.opened:
                with HURRY:
                    await asyncio.shield(asyncio.to_thread(log.close))
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
        """Release the store; see `TurnLog.close`. Appends that were begun are made, cancelled or not."""
        # Not in the log's own threads, which it waits for.
        await asyncio.to_thread(self.sync.close)

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
        group.turns = [turn_of(recorded) for recorded in await self.add_group(drafts)]

    @property
    def holds(self) -> AsyncHolds:
        """The legal holds: what must not be erased."""
        return AsyncHolds(self.sync.holds, self._executors)

    add_turn = _appends(TurnLog.add_turn)
    add_document = _appends(TurnLog.add_document)
    add_event = _appends(TurnLog.add_event)
    add_group = _appends(TurnLog.add_group)
    compact = _appends(TurnLog.compact)
    turn = _reads(TurnLog.turn)
    event = _reads(TurnLog.event)
    ancestry = _reads(TurnLog.ancestry)
    children = _reads(TurnLog.children)
    latest = _reads(TurnLog.latest)
    thread = _reads(TurnLog.thread)
    turn_count = _reads(TurnLog.turn_count)
    threads = _reads(TurnLog.threads)
    content = _reads(TurnLog.content)
    text = _reads(TurnLog.text)
    payload = _reads(TurnLog.payload)
    context = _reads(TurnLog.context)
    import_transcript = _waits(TurnLog.import_transcript)
    import_claude_code = _waits(TurnLog.import_claude_code)
    export = _waits(TurnLog.export)
    import_turnlog = _waits(TurnLog.import_turnlog)
    copy_to = _waits(TurnLog.copy_to)
    run = arun = _in_loop(TurnLog.arun)
    run_events = _events(TurnLog.run_events)
    verify = _waits(TurnLog.verify)
    rebuild_projections = _waits(TurnLog.rebuild_projections)
    erase = _waits(TurnLog.erase)
    finish_erasing = _waits(TurnLog.finish_erasing)
    retain = _waits(TurnLog.retain)
    seal = _appends(TurnLog.seal)
    stats = _reads(TurnLog.stats)
