"""Waiting for the log to grow in an event loop: it takes no thread, so that any number may wait and give up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic

from turnlog.executors import Executors
from turnlog.store.interface import Store
from turnlog.store.waiting import Watch, check_timeout


async def wait_beyond(store: Store, executors: Executors, after: int, timeout_s: float | None) -> int:
    """Wait until the log goes beyond a global position, and return where it then ends; see `Waker.wait`.

    Nothing stays behind of a wait that is cancelled.

    Args:
        store: the store.
        executors: what asks the store where the log ends.
        after: a global position.
        timeout_s: how long to wait at most, in seconds; 0 asks once, None waits without end.

    Raises:
        MetaError: `timeout_s` is negative or not a number.
        StoreClosedError: the store was closed, before or meanwhile.
        StoreBusyError: there can be no more threads in this process.
        StoreError: the store cannot be asked.
    """
    check_timeout(timeout_s)
    until = None if timeout_s is None else monotonic() + timeout_s
    if timeout_s != 0:
        waiting = _Waiting(store, after)
        try:
            watch = await executors.run_read(waiting.begin)
            if await waiting.ends(None if until is None else max(0, until - monotonic())):
                return watch.result()
        finally:
            waiting.give_up()
    return await executors.run_read(store.wait, after, 0)


class _Waiting:
    """A watch that is begun in a thread, and given up in the event loop: maybe before it has begun."""

    def __init__(self, store: Store, after: int) -> None:
        self._store = store
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Future[None] = self._loop.create_future()
        self._watches: list[Watch] = []
        self._is_over = False

    def begin(self) -> Watch:
        watch = self._store.watch(self._after, self._tell)
        # In this order, and in `give_up` the other way round: one of the two sees what the other has done.
        self._watches.append(watch)
        if self._is_over:
            self._store.unwatch(watch)
        return watch

    async def ends(self, timeout_s: float | None) -> bool:
        """Wait until the log goes on, and tell whether it did."""
        done, _ = await asyncio.wait([self._told], timeout=timeout_s)
        return bool(done)

    def give_up(self) -> None:
        self._is_over = True
        for watch in self._watches:
            self._store.unwatch(watch)

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self._told.done():
            self._told.set_result(None)
