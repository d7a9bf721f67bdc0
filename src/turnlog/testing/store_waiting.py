"""What an engine promises to those who wait for events: woken at once, told in time, and when the store is closed."""

from __future__ import annotations

import threading
from functools import partial
from threading import Event, Semaphore

import pytest

from turnlog.errors import StoreClosedError
from turnlog.store import Store
from turnlog.testing.harness import WAIT_S, StoreHarness, append, append_run, in_thread, new_event


class StoreWaiting(StoreHarness):
    """Tests of `Store.wait`, `Store.watch` and `Store.unwatch`."""

    def test_wait_for_what_is_there_returns_the_end(self, store: Store) -> None:
        """Where the log has events above the position already, its end is told at once."""
        append_run(store, 3)
        assert [store.wait(after) for after in (0, 1, 2)] == [3, 3, 3]
        assert store.wait(2, 0) == 3

    @pytest.mark.parametrize("timeout_s", [0, 0.05])
    def test_wait_ends_without_events(self, store: Store, timeout_s: float) -> None:
        """When nothing came in time, the position of the end is told, which is not above the one that was given."""
        assert store.wait(0, timeout_s) == 0
        append(store, new_event())
        assert store.wait(1, timeout_s) == 1

    def test_append_wakes_those_who_wait(self, store: Store) -> None:
        """Whoever waits is told of each append of this process: nobody is forgotten, whenever they began."""
        for end in range(1, 30):
            waiting = [in_thread(partial(store.wait, end - 1)) for _ in range(8)]
            append(store, new_event())
            assert [found() for found in waiting] == [end] * 8

    def test_waiting_readers_follow_without_gaps(self, store: Store) -> None:
        """Readers that wait and read, while others append, see every event once and in order."""
        count = 200

        def follow() -> list[bytes]:
            seen: list[bytes] = []
            while len(seen) < count:
                store.wait(len(seen))
                with store.read() as transaction:
                    seen += [recorded.state for recorded in transaction.log(len(seen))]
            return seen

        def add(share: int) -> None:
            for _ in range(share):
                append(store, new_event())

        following = [in_thread(follow) for _ in range(4)]
        for adding in [in_thread(partial(add, count // 4)) for _ in range(4)]:
            adding()
        seen = [found() for found in following]
        with store.read() as transaction:
            states = [recorded.state for recorded in transaction.log()]
        assert seen == [states] * 4

    def test_events_that_were_undone_wake_nobody(self, store: Store) -> None:
        """The end that is told is of events that are recorded: what a failed plan appended does not count."""
        with pytest.raises(ZeroDivisionError):
            append(store, new_event(), new_event(topic="test.broken"))
        assert store.wait(0, 0.05) == 0

    def test_closing_ends_the_waiting(self, store: Store) -> None:
        """Whoever waits when the store is closed, or waits then, is told that it is closed."""
        started = threading.Barrier(5)

        def wait() -> int:
            started.wait()
            return store.wait(0)

        waiting = [in_thread(wait) for _ in range(4)]
        started.wait()
        store.close()
        for found in waiting:
            with pytest.raises(StoreClosedError):
                found()
        with pytest.raises(StoreClosedError):
            store.wait(0)

    def test_who_watches_is_told_once(self, store: Store) -> None:
        """By the first append that goes beyond the position, or at once where the log has gone beyond it already."""
        append_run(store, 2)
        told, both = Semaphore(0), Semaphore(0)
        store.watch(1, told.release)
        assert told.acquire(timeout=WAIT_S)
        watch = store.watch(2, both.release)
        assert not both.acquire(blocking=False)
        for end in (3, 4):
            append(store, new_event())
            assert store.wait(end - 1) == end
        assert both.acquire(timeout=WAIT_S)
        assert watch.result() in (3, 4)
        assert [told.acquire(blocking=False), both.acquire(blocking=False)] == [False, False]
        store.unwatch(watch)

    def test_who_watches_no_more_is_not_told(self, store: Store) -> None:
        """Others are; to forget a watch twice does nothing."""
        gone, stays = Event(), Event()
        watch = store.watch(0, gone.set)
        store.watch(0, stays.set)
        for _ in range(2):
            store.unwatch(watch)
        append(store, new_event())
        assert stays.wait(WAIT_S)
        assert not gone.is_set()

    def test_who_watches_backwards_is_told_that_the_log_ends_before(self, store: Store) -> None:
        """Whoever has read further than the log goes learns that it was cut; another waits until it has grown."""
        append(store, new_event())
        cut, further = Event(), Event()
        store.watch(5, further.set)
        watch = store.watch(5, cut.set, backwards=True)
        assert cut.wait(WAIT_S)
        assert watch.result() == 1
        assert not further.is_set()

    def test_closing_tells_those_who_watch(self, store: Store) -> None:
        """They are told, and what they get is that the store is closed; nobody can watch from then on."""
        told = Event()
        watch = store.watch(0, told.set)
        store.close()
        assert told.wait(WAIT_S)
        with pytest.raises(StoreClosedError):
            watch.result()
        with pytest.raises(StoreClosedError):
            store.watch(0, told.set)
