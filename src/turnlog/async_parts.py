"""The parts of a log for asyncio: what hangs on an AsyncTurnLog. Every method is that of the part, run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from turnlog import providers
from turnlog.audit import Audit
from turnlog.audit.holding import Holds
from turnlog.calls import Calls, RequestCheck, ToolCalls
from turnlog.errors import StoreClosedError
from turnlog.executors import Executors
from turnlog.feeds import Feeds, Projection, Runner, Target
from turnlog.feeds.sinks import Feed, Sink
from turnlog.providers import Provider
from turnlog.registers import Bookmarks, Pointers, Providers, Registers, Servers

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound="_Stops")
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


class _Stops(Protocol):
    """What goes on until it is stopped."""

    def stop(self) -> None: ...


def stops(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[Part[S], P], Coroutine[Any, Any, R]]:
    """Return a method that `stop` ends as one that is awaited.

    When the task is cancelled, it is stopped and waited for, however often the task is cancelled meanwhile.
    """

    @wraps(method)
    async def run(self: Part[S], *args: P.args, **kwargs: P.kwargs) -> R:
        work = _Work(partial(method, self.sync, *args, **kwargs), self.sync.stop)
        task = asyncio.ensure_future(self._executors.run_wait(work.run))  # pyright: ignore[reportPrivateUsage] - our own
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not work.give_up():
                task.cancel()
            while not task.done():
                with suppress(asyncio.CancelledError):  # one more: what is at work uses the log, and is waited for
                    await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # what it ended with is nobody's any more
            raise

    return run


class _Work(Generic[R]):
    """Work of a thread, for a task that may be cancelled: also before the thread has begun, or just as it ends."""

    def __init__(self, work: Callable[[], R], stop: Callable[[], None]) -> None:
        self._work = work
        self._stop = stop
        self._lock = Lock()
        self._goes_on = self._is_given_up = False

    def run(self) -> R:
        with self._lock:
            if self._is_given_up:
                raise StoreClosedError("nobody waits for it any more")
            self._goes_on = True
        try:
            return self._work()
        finally:
            with self._lock:
                self._goes_on = False

    def give_up(self) -> bool:
        """Stop the work if it goes on, and tell whether it does. Else a request to stop would be kept for the next."""
        with self._lock:
            self._is_given_up = True
            if self._goes_on:
                self._stop()
            return self._goes_on


async def pages(executors: Executors, items: Iterator[I]) -> AsyncIterator[I]:
    """Iterate over items that are made in a thread, a page at a time."""
    while page := await executors.run_read(lambda: list(islice(items, _PAGE))):
        for item in page:
            yield item


class AsyncBookmarks(Part[Bookmarks]):
    """Names for turns; see `turnlog.registers.Bookmarks`."""

    check_name = reads(Bookmarks.check_name)
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
    unusable = reads(Registers.unusable)
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


class AsyncFeed(Part[Feed]):
    """What delivers events to a sink; see `turnlog.feeds.sinks.Feed`.

    `run` and `follow` take a thread as long as they go on. When the task that awaits one is cancelled, it is stopped,
    and waited for until the batch that it is at is done or has failed. Callbacks are called in that thread.
    """

    run = stops(Feed.run)
    follow = stops(Feed.follow)
    take_back = waits(Feed.take_back)
    status = reads(Feed.status)

    @property
    def name(self) -> str:
        """Its name: how far it has come is kept under it."""
        return self.sync.name

    def stop(self) -> None:
        """Make `follow` or `run` return; see `turnlog.feeds.sinks.Feed.stop`."""
        self.sync.stop()


class AsyncRunner(Part[Runner]):
    """What runs projections; see `turnlog.feeds.Runner`.

    `run`, `follow` and `rebuild` take a thread as long as they go on, and one of them at a time: each task needs a
    runner of its own. When the task that awaits one is cancelled, it is stopped, and waited for until its batch is
    done. Projections and callbacks are called in that thread.
    """

    run = stops(Runner.run)
    follow = stops(Runner.follow)
    rebuild = stops(Runner.rebuild)
    status = reads(Runner.status)
    skip = waits(Runner.skip)
    retry = waits(Runner.retry)

    def stop(self) -> None:
        """Make `follow`, `run` or `rebuild` return; see `turnlog.feeds.Runner.stop`."""
        self.sync.stop()


class AsyncFeeds(Part[Feeds]):
    """Search, usage and other projections of a log; see `turnlog.feeds.Feeds`."""

    search = waits(Feeds.search)
    spans = waits(Feeds.spans)
    unsearchable = waits(Feeds.unsearchable)
    usage = waits(Feeds.usage)
    total_usage = waits(Feeds.total_usage)
    tools = waits(Feeds.tools)
    run = waits(Feeds.run)
    status = reads(Feeds.status)
    built = reads(Feeds.built)
    rebuild = waits(Feeds.rebuild)
    skip = waits(Feeds.skip)
    all = reads(Feeds.all)
    get = reads(Feeds.get)
    move = waits(Feeds.move)
    remove = waits(Feeds.remove)
    delivered_to = reads(Feeds.delivered_to)
    forget_erased = waits(Feeds.forget_erased)

    async def projections(self) -> tuple[Projection, ...]:
        """Return the projections that every log can have; see `Feeds.projections`."""
        return await self._executors.run_read(lambda: self.sync.projections)

    async def runner(
        self, projections: Sequence[Projection] | None = None, target: Target | None = None
    ) -> AsyncRunner:
        """Return what runs projections; see `Feeds.runner`."""
        return AsyncRunner(await self._executors.run_read(self.sync.runner, projections, target), self._executors)

    async def feed(
        self,
        sink: Sink,
        *,
        name: str | None = None,
        topics: str | Sequence[str] = (),
        after: int = 0,
        public: bool = False,
        unseal: bool = False,
        batch: int | None = None,
        attempts: int | None = None,
    ) -> AsyncFeed:
        """Return what delivers the events of the log to a sink; see `Feeds.feed`."""
        feed = await self._executors.run_read(
            self.sync.feed,
            sink,
            name=name,
            topics=topics,
            after=after,
            public=public,
            unseal=unseal,
            batch=batch,
            attempts=attempts,
        )
        return AsyncFeed(feed, self._executors)
