"""What an engine promises to those who work on a log: a lock has one holder, and goes with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from turnlog.store import Store
from turnlog.testing.harness import StoreHarness


class StoreLocks(StoreHarness):
    """Tests of `Store.locks`."""

    def test_a_lock_has_one_holder(self, store: Store) -> None:
        """Until it is given back, which can be done twice; other names have locks of their own."""
        first = store.locks.take("a")
        assert first is not None
        assert (store.locks.take("a"), store.locks.is_taken("a"), store.locks.is_taken("b")) == (None, True, False)
        second = store.locks.take("b")
        assert second is not None
        first()
        assert (store.locks.is_taken("a"), store.locks.is_taken("b")) == (False, True)
        assert store.locks.taken(["c", "b", "a"]) == ["b"]
        again = store.locks.take("a")
        assert again is not None
        first()
        assert store.locks.is_taken("a")
        again()
        second()
        assert (store.locks.is_taken("a"), store.locks.is_taken("b")) == (False, False)
        assert store.locks.taken("abc") == []

    def test_one_of_many_gets_a_lock(self, store: Store) -> None:
        """Whoever asks at the same time."""
        with ThreadPoolExecutor(8) as pool:
            for number in range(20):
                taken = [found for found in pool.map(store.locks.take, [f"lock {number}"] * 8) if found is not None]
                assert len(taken) == 1
                taken[0]()

    def test_locks_are_given_back_when_the_store_is_closed(self, store: Store) -> None:
        """Giving them back later does nothing."""
        release = store.locks.take("a")
        assert release is not None
        store.close()
        release()
