"""Waiting for the log to grow in an event loop: it takes no thread, so that any number may wait and give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic

from turnlog.executors import Executors
from turnlog.store.interface import Store
from turnlog.store.waiting import Watch, check_wait


async def wait_beyond(store: Store, executors: Executors, after: int, timeout_s: float | None) -> int:
    """Wait until the log goes beyond a global position, and return where it then ends; see `Waker.wait`.

    Nothing stays behind of a wait that is cancelled.

    Args:
        store: the store.
        executors: what asks the store where the log ends.
        after: a global position.
        timeout_s: how long to wait at most, in seconds; 0 asks once, None waits without end.

    Raises:
        MetaError: `after` is no global position, or `timeout_s` is negative or not a number.
        StoreClosedError: the store was closed, before or meanwhile.
        StoreBusyError: there can be no more threads in this process.
        StoreError: the store cannot be asked.
    """
    check_wait(after, timeout_s)
    until = None if timeout_s is None else monotonic() + timeout_s
    if timeout_s != 0:
        told = _Told()
        watching = Watching(store, after, told.tell)
        try:
            watch = await executors.run_read(watching.begin)
            if await told.comes(None if until is None else max(0, until - monotonic())):
                return watch.result()
        finally:
            watching.give_up()
    return await executors.run_read(store.wait, after, 0)


class Watching:
    """A watch that is begun in a thread, since a server may not answer, and given up in the event loop: maybe before
    it has begun."""

    def __init__(self, store: Store, after: int, tell: Callable[[], None], *, backwards: bool = False) -> None:
        """Take what to watch, and whom to tell; see `Waker.watch`."""
        self._begin = partial(store.watch, after, tell, backwards=backwards)
        self._forget = store.unwatch
        self._watches: list[Watch] = []
        self._is_over = False

    def begin(self) -> Watch:
        """Begin, and return the watch. Raises what `Waker.watch` does."""
        watch = self._begin()
        # In this order, and in `give_up` the other way round: one of the two sees what the other has done.
        self._watches.append(watch)
        if self._is_over:
            self._forget(watch)
        return watch

    def give_up(self) -> None:
        """Forget the watch, also where it is only being begun."""
        self._is_over = True
        for watch in self._watches:
            self._forget(watch)


class _Told:
    """Whether it was told that the log goes on: from any thread, to who waits in this event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def tell(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle)

    async def comes(self, timeout_s: float | None) -> bool:
        """Wait until it is told, and tell whether it was."""
        done, _ = await asyncio.wait([self._future], timeout=timeout_s)
        return bool(done)

    def _settle(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
