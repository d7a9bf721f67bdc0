"""The parts of a log for asyncio: what hangs on an AsyncTurnLog. Every method is that of the part, run in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from turnlog import providers
from turnlog.audit import Audit
from turnlog.audit.holding import Holds
from turnlog.calls import Calls, RequestCheck, ToolCalls
from turnlog.executors import Executors
from turnlog.feeds import Feeds
from turnlog.providers import Provider
from turnlog.registers import Bookmarks, Pointers, Providers, Registers, Servers

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
_PAGE = 1000


class Part(Generic[T]):
    """Something of a log, and the threads that its methods run in."""

    def __init__(self, sync: T, executors: Executors) -> None:
        """Take the part of a `TurnLog`."""
        self.sync = sync
        self._executors = executors


def appends(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that appends as one that is awaited: with the same arguments, result and errors."""

    @wraps(method)
    async def run(self: Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_append(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


def reads(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that reads as one that is awaited."""

    @wraps(method)
    async def run(self: Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_read(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


def waits(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[Part[T], P], Coroutine[Any, Any, R]]:
    """Return a method that may take as long as it likes as one that is awaited."""

    @wraps(method)
    async def run(self: Part[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._executors.run_wait(method, self.sync, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - our own

    return run


async def pages(executors: Executors, items: Iterator[I]) -> AsyncIterator[I]:
    """Iterate over items that are made in a thread, a page at a time."""
    while page := await executors.run_read(lambda: list(islice(items, _PAGE))):
        for item in page:
            yield item


class AsyncBookmarks(Part[Bookmarks]):
    """Names for turns; see `turnlog.registers.Bookmarks`."""

    set = appends(Bookmarks.set)
    rename = appends(Bookmarks.rename)
    delete = appends(Bookmarks.delete)
    get = reads(Bookmarks.get)
    all = reads(Bookmarks.all)


class AsyncCalls(Part[Calls]):
    """The model calls of a log; see `turnlog.calls.Calls`."""

    record = appends(Calls.record)
    record_reply = appends(Calls.record_reply)
    get = reads(Calls.get)
    all = reads(Calls.all)
    request = reads(Calls.request)
    events = reads(Calls.events)
    tools = reads(Calls.tools)
    of = reads(Calls.of)
    replies = reads(Calls.replies)
    forget = reads(Calls.forget)

    async def check(
        self, headish: str, *, adapter: Callable[[str, str], Provider] = providers.get_as
    ) -> AsyncIterator[RequestCheck]:
        """Make every recorded request in the ancestry of a turn again, and compare; see `Calls.check`."""
        async for checked in pages(self._executors, self.sync.check(headish, adapter=adapter)):
            yield checked


class AsyncToolCalls(Part[ToolCalls]):
    """The tool calls of a log; see `turnlog.calls.ToolCalls`."""

    begin = appends(ToolCalls.begin)
    end = appends(ToolCalls.end)
    record_results = appends(ToolCalls.record_results)
    of = reads(ToolCalls.of)


class AsyncPointers(Part[Pointers]):
    """Named aliases for a provider and a model; see `turnlog.registers.Pointers`."""

    set = appends(Pointers.set)
    delete = appends(Pointers.delete)
    get = reads(Pointers.get)
    all = reads(Pointers.all)


class AsyncProviders(Part[Providers]):
    """Which providers may be called; see `turnlog.registers.Providers`."""

    set = appends(Providers.set)
    disable = appends(Providers.disable)
    get = reads(Providers.get)
    all = reads(Providers.all)


class AsyncServers(Part[Servers]):
    """MCP servers by name; see `turnlog.registers.Servers`."""

    set = appends(Servers.set)
    set_all = appends(Servers.set_all)
    delete = appends(Servers.delete)
    get = reads(Servers.get)
    all = reads(Servers.all)


class AsyncHolds(Part[Holds]):
    """Legal holds; see `turnlog.audit.holding.Holds`."""

    set = appends(Holds.set)
    release = appends(Holds.release)
    get = reads(Holds.get)
    all = reads(Holds.all)


class AsyncRegisters(Part[Registers]):
    """Registers that came with imports; see `turnlog.registers.Registers`."""

    imported = reads(Registers.imported)
    trust = appends(Registers.trust)


class AsyncAudit(Part[Audit]):
    """Signed checkpoints of a log, and proofs; see `turnlog.audit.Audit`."""

    checkpoint = waits(Audit.checkpoint)
    checkpoints = reads(Audit.checkpoints)
    cosigned = appends(Audit.cosigned)
    keep_checkpoints = reads(Audit.keep_checkpoints)
    consistency_proof = waits(Audit.consistency_proof)
    publish = waits(Audit.publish)
    prove = waits(Audit.prove)
    prove_consistency = waits(Audit.prove_consistency)
    rebuild_tree = waits(Audit.rebuild_tree)


class AsyncFeeds(Part[Feeds]):
    """Search, usage and other projections of a log; see `turnlog.feeds.Feeds`."""

    search = waits(Feeds.search)
    unsearchable = reads(Feeds.unsearchable)
    usage = waits(Feeds.usage)
    total_usage = waits(Feeds.total_usage)
    tools = waits(Feeds.tools)
    run = waits(Feeds.run)
    status = reads(Feeds.status)
    rebuild = waits(Feeds.rebuild)
    skip = waits(Feeds.skip)
    all = reads(Feeds.all)
    get = reads(Feeds.get)
    move = waits(Feeds.move)
    remove = waits(Feeds.remove)
