"""AsyncTurnLog against TurnLog."""

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from turnlog import AsyncTurnLog, ConflictError, ContextWindow, MetaError, StoreClosedError, TurnLog, UnknownTurnError
from turnlog.async_log import (
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
)
from turnlog.audit import Audit
from turnlog.audit.holding import Holds
from turnlog.calls import Calls, ToolCalls
from turnlog.feeds import Feeds, Runner, Status
from turnlog.feeds.sinks import Feed, FeedStatus, JSONLines
from turnlog.registers import Bookmarks, Pointers, Providers, Registers, Servers

PAIRS = [
    (AsyncTurnLog, TurnLog),
    (AsyncBookmarks, Bookmarks),
    (AsyncCalls, Calls),
    (AsyncToolCalls, ToolCalls),
    (AsyncPointers, Pointers),
    (AsyncProviders, Providers),
    (AsyncServers, Servers),
    (AsyncRegisters, Registers),
    (AsyncHolds, Holds),
    (AsyncAudit, Audit),
    (AsyncFeeds, Feeds),
    (AsyncFeed, Feed),
    (AsyncRunner, Runner),
]

OF_THREADS: dict[type, set[str]] = {
    Audit: {"close"},  # comes with that of the log
    Feeds: {"close", "target"},  # a database has no asynchronous form
    AsyncFeed: {"name"},  # an attribute of the other one
}
"""What has no asynchronous form."""


def _public(kind: type) -> dict[str, object]:
    """Return the methods and properties of a class and of what it is made of."""
    members = {name: getattr(kind, name, None) for base in kind.__mro__[:-1] for name in vars(base)}
    return {
        name: member
        for name, member in members.items()
        if not name.startswith("_")
        and name not in OF_THREADS.get(kind, ())
        and (callable(member) or isinstance(member, property))
    }


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_async_log_has_every_method_of_the_log(ours: type, theirs: type) -> None:
    """What TurnLog and its parts can do, AsyncTurnLog and its parts can."""
    here, there = _public(ours).keys(), _public(theirs).keys()
    file = inspect.getsourcefile(ours)
    assert not there - here, f"add {', '.join(sorted(there - here))} to {ours.__name__} in {file}"
    assert not here - there, f"{theirs.__name__} has no {', '.join(sorted(here - there))}"


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_async_methods_take_the_same_arguments(ours: type, theirs: type) -> None:
    """A call is moved between the two by adding await."""
    for name, member in sorted(_public(theirs).items()):
        if isinstance(member, property):
            if isinstance(getattr(ours, name), property):  # a part of the log: there is nothing to wait for
                continue
            assert list(inspect.signature(getattr(ours, name)).parameters) == ["self"], name
            continue
        signatures = (
            [(p.name, p.kind, p.default) for p in inspect.signature(getattr(kind, name)).parameters.values()]
            for kind in (ours, theirs)
        )
        assert len(set(map(str, signatures))) == 1, name


def test_async_log_has_every_part_of_the_log() -> None:
    """What hangs on a TurnLog hangs on an AsyncTurnLog, in its asynchronous form."""
    forms = {theirs: ours for ours, theirs in PAIRS}

    async def parts() -> tuple[dict[str, type], dict[str, type]]:
        async with await AsyncTurnLog.open("memory://") as log:
            own = {name: type(getattr(log.sync, name)) for name in dir(log.sync) if not name.startswith("_")}
            wanted = {name: forms[kind] for name, kind in own.items() if kind in forms}
            return wanted, {name: type(getattr(log, name)) for name in wanted}

    wanted, found = asyncio.run(parts())
    assert found == wanted
    assert len(found) == len(PAIRS) - 3  # the log itself, and what its feeds make


def _returned(kind: type, name: str) -> str:
    """Return the name of the class that a method returns."""
    member = getattr(kind, name)
    return str(inspect.get_annotations(member)["return"]) if inspect.isfunction(member) else ""


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_what_async_methods_make_is_asynchronous_too(ours: type, theirs: type) -> None:
    """Where a method of a log returns what has methods of its own, the other one's returns its asynchronous form."""
    forms = {theirs.__name__: ours.__name__ for ours, theirs in PAIRS}
    wanted = {name: forms[made] for name in _public(theirs) if (made := _returned(theirs, name)) in forms}
    assert {name: _returned(ours, name) for name in wanted} == wanted
    assert theirs is not Feeds or wanted == {"feed": "AsyncFeed", "runner": "AsyncRunner"}


def test_a_feed_and_a_runner_go_on_until_their_task_is_cancelled(tmp_path: Path) -> None:
    """Or until they are stopped. Both can be begun again, and a request to stop is not left behind."""

    async def follow() -> tuple[FeedStatus, list[Status]]:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            await log.add_turn("one")
            feed = await log.feeds.feed(JSONLines(tmp_path / "lines"), name="archive")
            runner = await log.feeds.runner()
            for what in (feed, runner):
                for is_cancelled in (True, False):
                    reached = threading.Event()
                    task = asyncio.create_task(what.follow(told=lambda _, reached=reached: reached.set()))
                    assert await asyncio.to_thread(reached.wait, 30)
                    (task.cancel if is_cancelled else what.stop)()
                    assert (await asyncio.gather(task, return_exceptions=True) == [None]) is not is_cancelled
            assert feed.name == "archive"
            assert not (await feed.status()).running
            await log.add_turn("two")
            return await feed.run(), await runner.run()

    status, statuses = asyncio.run(follow())
    assert (status.position, status.lag) == (3, 0)
    assert {each.lag for each in statuses} == {0}


def test_a_runner_that_is_cancelled_twice_is_waited_for(tmp_path: Path) -> None:
    """Nothing is at work when the task has ended, so that the log can be closed."""
    working, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work(_: list[Status]) -> None:
        working.set()
        assert go_on.wait(30)
        done.set()

    async def follow() -> None:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            runner = await log.feeds.runner()
            task = asyncio.create_task(runner.follow(told=work))
            assert await asyncio.to_thread(working.wait, 30)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert done.is_set()

    asyncio.run(follow())


def test_a_runner_works_for_one_task_at_a_time(tmp_path: Path) -> None:
    """A second one is refused, and the first one goes on; behind that it can be used again."""

    async def follow() -> None:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            runner, reached = await log.feeds.runner(), threading.Event()
            task = asyncio.create_task(runner.follow(told=lambda _: reached.set()))
            assert await asyncio.to_thread(reached.wait, 30)
            for again in (runner.follow, runner.run, partial(runner.rebuild, "usage")):
                with pytest.raises(ConflictError, match="at work in another thread or task"):
                    await again()
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert {each.lag for each in await runner.run()} == {0}

    asyncio.run(follow())


def test_async_log_gives_what_the_log_gives(tmp_path: Path) -> None:
    """Turns, windows, events and bookmarks are equal through either; concurrent appends are all recorded."""
    url = f"sqlite:///{tmp_path}/log.db"

    async def record() -> tuple[object, ...]:
        async with await AsyncTurnLog.open(url) as log:
            root = await log.add_turn("hello", bookmark="main")
            replies = await asyncio.gather(*(log.add_turn(f"reply {n}", continues=root.id) for n in range(20)))
            assert len({reply.id for reply in replies}) == 20
            await log.pointers.set("milli", "anthropic", "a-model")
            events = [recorded async for recorded in log.events()]
            said = await log.turn("main"), await log.context("main"), await log.threads(), await log.id()
            return *said, await log.pointers.all(), events

    recorded = asyncio.run(record())
    with TurnLog.open(url) as log:
        said = log.turn("main"), log.context("main"), log.threads(), log.id
        assert recorded == (*said, log.pointers.all(), list(log.events()))
        assert len(recorded[-1]) == 23  # type: ignore[arg-type]


def test_async_log_raises_what_the_log_raises() -> None:
    """An error comes out of the await as it is."""

    async def ask() -> None:
        async with await AsyncTurnLog.open("memory://") as log:
            await log.turn("nope")

    with pytest.raises(UnknownTurnError, match="no turn or bookmark 'nope'"):
        asyncio.run(ask())


def test_calls_that_wait_do_not_keep_appends_waiting(tmp_path: Path) -> None:
    """With hundreds of calls that wait for the log to grow, an append is made at once and wakes them all."""

    async def record() -> set[int]:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            waiting = [asyncio.create_task(log.wait(0)) for _ in range(200)]
            await asyncio.sleep(0)
            await log.add_turn("hello")
            return set(await asyncio.gather(*waiting))

    assert asyncio.run(record()) <= {1, 2}


def test_a_wait_takes_no_thread_and_leaves_nothing_when_it_is_given_up(tmp_path: Path) -> None:
    """Neither where the log is asked nor while it is waited for: others wait on, are woken, and can be bounded."""

    async def record() -> tuple[int, int, list[int]]:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            end = (await log.add_turn("hello")).global_position
            kept = asyncio.create_task(log.wait(end))
            for begun in (False, True):
                given_up = [asyncio.create_task(log.wait(end)) for _ in range(100)]
                if begun:
                    assert await log.wait(end, 0.001) == await log.wait(end, 0) == end
                else:
                    await asyncio.sleep(0)
                for task in given_up:
                    task.cancel()
                await asyncio.wait(given_up)
            waker, until = cast("Any", log.sync.store)._waker, monotonic() + 30
            # Nothing tells of what a thread was asked for that nobody waits for.
            while (left := len(waker._here.watches)) > 1 and monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0)
            threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("turnlog-wait")]
            later = (await log.add_turn("more")).global_position
            return left, len(threads), [await kept - later, await log.wait(0) - later]

    assert asyncio.run(record()) == (1, 0, [0, 0])


def test_an_append_goes_on_while_summaries_are_written(tmp_path: Path) -> None:
    """By more threads than there are for appends. A summarizer may record turns itself, as a run of a model does."""
    added = threading.Event()

    async def record() -> list[bool]:
        async with await AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:

            def summarize(_: ContextWindow) -> str:
                assert added.wait(30)
                return f"It says {log.sync.add_turn('a summary of it').id}."

            ids: list[str] = []
            for number in range(70):
                async with log.group() as group:
                    first = group.add_turn("a")
                    group.add_turn("b", continues=first, bookmark=str(number))
                ids.append(str(number))
            work = [log.compact(id, summarize=summarize, keep_first=0, keep_last=0, min_turns=1) for id in ids]
            compacting = [asyncio.ensure_future(each) for each in work]
            await asyncio.sleep(0.2)
            await asyncio.wait_for(log.add_turn("not held up"), 10)
            added.set()
            return [report.summary is not None for report in await asyncio.gather(*compacting)]

    assert asyncio.run(record()) == [True] * 70


@pytest.mark.parametrize("is_open", [False, True])
def test_a_log_that_is_opened_for_nobody_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """Who was cancelled while a thread opened it, or had opened it already, leaves no store open."""
    opened: list[TurnLog] = []
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def held(url: str, **options: Any) -> TurnLog:
        begun.set()
        if not is_open:
            go_on.wait(30)
        log = original(url, **options)
        monkeypatch.setattr(log, "close", lambda: (TurnLog.close(log), closed.set()))
        opened.append(log)
        if is_open:
            go_on.set()
        return log

    async def give_up() -> None:
        task = asyncio.create_task(AsyncTurnLog.open(f"sqlite:///{tmp_path}/log.db"))
        await asyncio.sleep(0)
        (go_on if is_open else begun).wait(30)  # in the event loop, which sees nothing of it until then
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 30)

    original = TurnLog.open
    monkeypatch.setattr(TurnLog, "open", held)
    asyncio.run(give_up())
    with pytest.raises(StoreClosedError):
        opened[0].turn_count()


def test_a_log_opens_and_closes_while_the_threads_of_asyncio_are_busy() -> None:
    """Such as with what ends only when the log is closed."""

    async def close() -> None:
        with ThreadPoolExecutor(1) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            log = await AsyncTurnLog.open("memory://")
            following = asyncio.create_task(asyncio.to_thread(list, log.sync.events(follow=True)))
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(20):
                    await log.close()
                    (await AsyncTurnLog.open("memory://")).sync.close()
            finally:
                log.sync.close()
                with pytest.raises(StoreClosedError):
                    await following

    asyncio.run(close())


def test_a_log_is_closed_though_its_closing_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the task was cancelled before a thread had begun to."""
    closed = threading.Event()

    async def give_up() -> TurnLog:
        with ThreadPoolExecutor(1) as threads:
            loop, go_on = asyncio.get_running_loop(), threading.Event()
            loop.set_default_executor(threads)
            log = await AsyncTurnLog.open("memory://")
            monkeypatch.setattr(log.sync, "close", lambda: (TurnLog.close(log.sync), closed.set()))
            busy = asyncio.ensure_future(loop.run_in_executor(threads, go_on.wait))
            closing = asyncio.create_task(log.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            go_on.set()
            await busy
        return log.sync

    log = asyncio.run(give_up())
    assert closed.wait(30)
    with pytest.raises(StoreClosedError):
        log.turn_count()


@pytest.mark.parametrize("timeout_s", [None, 3600.0])
def test_a_wait_ends_when_the_log_is_closed(timeout_s: float | None) -> None:
    """With an error that says so; so does one that begins later. A time that is none is refused."""

    async def close() -> None:
        log = await AsyncTurnLog.open("memory://")
        waiting = asyncio.create_task(log.wait(0, timeout_s))
        with pytest.raises(MetaError, match="timeout_s is -1: give seconds, from 0, or None"):
            await log.wait(0, -1)
        assert await log.wait(0, 0.001) == 0
        await log.close()
        with pytest.raises(StoreClosedError, match="closed"):
            await waiting
        with pytest.raises(StoreClosedError, match="the log is closed: open it again"):
            await log.wait(0)

    asyncio.run(close())


def test_cancelled_append_is_made(tmp_path: Path) -> None:
    """To cancel the awaiting of an append does not break it off: closing the log waits until it is recorded."""
    url = f"sqlite:///{tmp_path}/log.db"
    begun, go_on = threading.Event(), threading.Event()

    async def record() -> None:
        log = await AsyncTurnLog.open(url)

        def held() -> None:
            begun.set()
            go_on.wait()
            log.sync.add_turn("cancelled")

        task = asyncio.create_task(log.sync.executors.run_append(held))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        go_on.set()
        await closing

    asyncio.run(record())
    with TurnLog.open(url) as log:
        assert log.stats().turns == 1
