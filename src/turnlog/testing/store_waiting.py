"""What an engine promises to those who wait for events: woken at once, told in time, and when the store is closed."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from turnlog.errors import StoreClosedError
from turnlog.store import Store
from turnlog.testing.harness import WAIT_S, StoreHarness, append, append_run, new_event


class StoreWaiting(StoreHarness):
    """Tests of `Store.wait`."""

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
        with ThreadPoolExecutor(8) as pool:
            for end in range(1, 30):
                waiting = [pool.submit(store.wait, end - 1) for _ in range(8)]
                append(store, new_event())
                assert [found.result(WAIT_S) for found in waiting] == [end] * 8

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

        with ThreadPoolExecutor(8) as pool:
            following = [pool.submit(follow) for _ in range(4)]
            list(pool.map(add, [count // 4] * 4))
            seen = [found.result(WAIT_S) for found in following]
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

        with ThreadPoolExecutor(4) as pool:
            waiting: list[Future[int]] = [pool.submit(wait) for _ in range(4)]
            started.wait()
            store.close()
            for found in waiting:
                with pytest.raises(StoreClosedError):
                    found.result(WAIT_S)
        with pytest.raises(StoreClosedError):
            store.wait(0)
