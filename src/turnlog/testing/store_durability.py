"""What an engine promises whose logs outlive their store: durability, snapshots beside writers, shared logs."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from turnlog.errors import IdConflictError
from turnlog.events import Arrival, Recorded
from turnlog.store import NO_PAYLOAD, Store, WriteTransaction
from turnlog.testing.harness import (
    WAIT_S,
    DurableHarness,
    RefusedError,
    Tally,
    append,
    append_run,
    erased,
    global_positions,
    in_thread,
    new_event,
    recorded_or_raise,
    states,
    tally,
    text_of,
)
from turnlog.testing.store_erasing import erase, record
from turnlog.testing.store_sealing import STORE_SEALED, policies, seal_event


class StoreDurability(DurableHarness):
    """Tests that open the same log twice, one after the other or at the same time."""

    def test_events_are_there_after_reopening(self, store: Store, tmp_path: Path) -> None:
        """Events, their bytes, global positions and projections are the same in a store opened later."""
        run = append_run(store, 3)
        store.close()
        again = self.open_store(tmp_path, [Tally()])
        with again.read() as transaction:
            assert list(transaction.log()) == run
        assert tally(again) == {"test.event": 3}
        assert append(again, new_event())[0].global_position == 4
        again.close()

    @pytest.mark.parametrize("size", [0, 1, 128, 64 * 1024, 1024 * 1024])
    def test_payloads_are_there_after_reopening(self, store: Store, tmp_path: Path, size: int) -> None:
        """A payload, wherever it is kept, is read back by a store opened later."""
        payloads = [text_of(size), random.Random(size).randbytes(size)]
        appended = [append(store, new_event(payload=p), payload=p)[0] for p in payloads]
        store.close()
        again = self.open_store(tmp_path, [Tally()])
        with again.read() as transaction:
            assert [transaction.payload(recorded) for recorded in appended] == payloads
        assert list(again.check()) == []
        again.close()

    def test_failed_plan_is_not_there_after_reopening(self, store: Store, tmp_path: Path) -> None:
        """What a failed plan appended is in no later store, and its global position is given to the next event."""
        append(store, new_event())

        def fail(transaction: WriteTransaction) -> None:
            event = new_event()
            transaction.append(event, NO_PAYLOAD)
            raise RefusedError("after the append")

        with pytest.raises(RefusedError):
            store.write(fail)
        store.close()
        again = self.open_store(tmp_path, [Tally()])
        append(again, new_event())
        assert global_positions(again) == [1, 2]
        again.close()

    def test_reader_keeps_its_snapshot(self, store: Store) -> None:
        """A reader does not see what is written while it reads; the writer does not wait for it."""
        [first] = append(store, new_event())
        with store.read() as transaction:
            assert list(transaction.log()) == [first]
            [second] = append(store, new_event(topic="later"))
            assert list(transaction.log()) == [first]
            assert transaction.event(second.header.id) is None
            assert transaction.last("later") is None
            assert transaction.rows("SELECT topic FROM tally") == [("test.event",)]
        with store.read() as transaction:
            assert list(transaction.log()) == [first, second]

    def test_reader_does_not_see_an_open_transaction(self, store: Store) -> None:
        """While a plan runs, readers are not kept waiting and see nothing of what it appended."""

        def plan(transaction: WriteTransaction) -> int:
            event = new_event()
            transaction.append(event, NO_PAYLOAD)
            return in_thread(lambda: len(states(store)))()

        assert store.write(plan) == 0
        assert len(states(store)) == 1

    def test_long_read_is_one_snapshot(self, store: Store) -> None:
        """A log that is read page by page ends where it ended when the read began."""
        appended = append(store, *(new_event() for _ in range(2100)))
        with store.read() as transaction:
            log = transaction.log()
            seen = [next(log)]
            append(store, new_event())
            seen += log
        assert seen == appended

    def test_two_stores_share_one_log(self, store: Store, tmp_path: Path) -> None:
        """Two stores open on one log see each other's events and share its global positions."""
        other = self.open_store(tmp_path, [Tally()])
        [first] = append(store, new_event())
        [second] = append(other, new_event())
        [third] = append(store, new_event())
        assert [first.global_position, second.global_position, third.global_position] == [1, 2, 3]
        assert states(store) == states(other) == [first.state, second.state, third.state]
        assert tally(store) == tally(other) == {"test.event": 3}
        other.close()

    def test_two_stores_race_for_a_position(self, store: Store, tmp_path: Path) -> None:
        """Of two stores that append at one position of a stream, one succeeds and the other gets a conflict."""
        other = self.open_store(tmp_path, [Tally()])
        [root] = append(store, new_event())
        for position in range(1, 20):
            gate = threading.Barrier(2)

            def run(which: Store, position: int = position, gate: threading.Barrier = gate) -> bool:
                gate.wait()
                try:
                    append(which, new_event(stream=root.header.stream, position=position))
                except IdConflictError:
                    return False
                return True

            with ThreadPoolExecutor(2) as pool:
                assert sorted(pool.map(run, [store, other])) == [False, True]
        assert global_positions(store) == list(range(1, 21))
        other.close()

    def test_lock_is_of_the_log_and_not_of_a_store(self, store: Store, tmp_path: Path) -> None:
        """Of two stores of one log, which are as two processes are, one has a lock; closing it gives the lock back."""
        other = self.open_store(tmp_path, [Tally()])
        release = store.locks.take("a")
        assert release is not None
        assert (other.locks.take("a"), other.locks.is_taken("a"), other.locks.is_taken("b")) == (None, True, False)
        assert other.locks.taken(["b", "a"]) == ["a"]
        release()
        assert not other.locks.is_taken("a")
        release = other.locks.take("a")
        assert release is not None
        assert store.locks.take("a") is None
        release()
        assert store.locks.take("a") is not None
        store.close()
        until = monotonic() + WAIT_S  # a server may take a moment to see that its client has gone
        while (release := other.locks.take("a")) is None:
            assert monotonic() < until, "the lock was not given back when its store was closed"
        other.close()

    def test_what_one_store_says_is_sealed_the_other_one_seals(self, store: Store, tmp_path: Path) -> None:
        """From its next transaction on, though it has found before that nothing is."""
        other = self.open_store(tmp_path, [Tally()])
        append(other, new_event())
        assert policies(other) == (None, None)
        append(store, seal_event("store"))
        assert policies(other) == policies(store) == (STORE_SEALED, STORE_SEALED)
        other.close()

    def test_waiting_sees_what_another_store_appends(self, store: Store, tmp_path: Path) -> None:
        """Whoever waits is woken by events that another store, or another process, has appended."""
        other = self.open_store(tmp_path, [Tally()])
        for end in range(1, 6):
            waiting = [in_thread(partial(store.wait, end - 1)) for _ in range(4)]
            append(other, new_event())
            assert [found() for found in waiting] == [end] * 4
        other.close()

    def test_arrival_and_erasure_are_there_after_reopening(self, store: Store, tmp_path: Path) -> None:
        """How events came into the store, and what of them is erased, is read back by a store opened later."""
        wanted = [erased(new_event(payload=b"x")), new_event(private={"n": 1})]
        appended = [
            append(store, event, arrival=arrival)[0]
            for event, arrival in zip(wanted, (Arrival.GUEST, Arrival.RESTORED), strict=True)
        ]
        store.close()
        again = self.open_store(tmp_path, [Tally()])
        with again.read() as transaction:
            assert list(transaction.log()) == appended
            assert [recorded.erased for recorded in transaction.log()] == [True, False]
        assert again.write(lambda transaction: transaction.is_empty()) is False
        again.close()

    def test_what_one_store_erases_no_other_one_has(self, store: Store, tmp_path: Path) -> None:
        """Neither a store that had recorded it, and has it in memory, once that appends, nor one that is opened later.

        Readers see it erased at once.
        """
        other = self.open_store(tmp_path, [Tally()])
        gone, _ = record(other, "Ada")
        erase(store, gone)
        with other.read() as transaction:
            found = transaction.event(gone.header.id)
        assert found is not None
        assert found.erased

        def plan(transaction: WriteTransaction) -> Recorded | None:
            recorded_or_raise(event := new_event(), transaction.append(event, NO_PAYLOAD))
            return transaction.event(gone.header.id)

        assert other.write(plan) == found
        other.close()
        store.close()
        again = self.open_store(tmp_path, [Tally()])
        with again.read() as transaction:
            assert transaction.event(gone.header.id) == found
        assert list(again.check()) == []
        again.close()

    def test_stores_that_are_opened_together_make_one_log(self, tmp_path: Path) -> None:
        """Many that open a log which does not exist yet, at the same time, all get the same one."""
        for attempt in range(25):
            gate = threading.Barrier(8)

            def run(_: int, folder: Path = tmp_path / f"new {attempt}", gate: threading.Barrier = gate) -> int:
                gate.wait()
                store = self.open_store(folder, [Tally()])
                [recorded] = append(store, new_event())
                store.close()
                return recorded.global_position

            with ThreadPoolExecutor(8) as pool:
                assert sorted(pool.map(run, range(8))) == list(range(1, 9))
