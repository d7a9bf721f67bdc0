"""What an engine promises to those who write: transactions, positions, conflicts, group commit, placement."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnlog import events
from turnlog.digest import payload_hash
from turnlog.errors import IdConflictError, StoreClosedError
from turnlog.events import Event, Recorded
from turnlog.ids import new_id
from turnlog.store import Store, WriteTransaction
from turnlog.testing.harness import (
    RefusedError,
    StoreHarness,
    append,
    append_run,
    global_positions,
    new_event,
    states,
    tally,
    text_of,
)

KIB = 1024
PAYLOAD_SIZES = (0, 1, 127, 128, 129, 4 * KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, KIB * KIB)


class StoreWrites(StoreHarness):
    """Tests of `Store.write` and `Store.place`."""

    # One transaction

    def test_write_returns_what_the_plan_returned(self, store: Store) -> None:
        """A plan's own result comes back to its caller."""
        assert store.write(lambda transaction: ("seen", len(list(transaction.log())))) == ("seen", 0)

    def test_append_returns_the_event_as_it_is_read_later(self, store: Store) -> None:
        """The value that `append` returns equals the one that readers get."""
        [appended] = append(store, new_event(store, payload=b"x"), payload=b"x")
        with store.read() as transaction:
            assert transaction.event(appended.event.id) == appended
        assert appended.global_position == 1

    @pytest.mark.parametrize("error", [RefusedError("no"), ValueError("no"), KeyError(3)], ids=["own", "value", "key"])
    def test_plan_that_raises_after_an_append_leaves_nothing(self, store: Store, error: Exception) -> None:
        """What a plan raises comes to its caller, and nothing of what it appended stays."""
        append(store, new_event(store))
        before = states(store)

        def plan(transaction: WriteTransaction) -> None:
            for _ in range(3):
                event = new_event(store)
                transaction.append(events.encode(event), event, store.place(None))
            raise error

        with pytest.raises(type(error)) as caught:
            store.write(plan)
        assert caught.value is error
        assert states(store) == before
        assert tally(store) == {"test.event": 1}

    @pytest.mark.parametrize(("topic", "error"), [("test.refused", RefusedError), ("test.broken", ZeroDivisionError)])
    def test_projection_that_raises_undoes_the_append(self, store: Store, topic: str, error: type[Exception]) -> None:
        """An event that a projection cannot fold is not recorded, nor are those before it in the transaction."""
        with pytest.raises(error):
            append(store, new_event(store), new_event(store, topic=topic))
        assert states(store) == []
        assert tally(store) == {}

    def test_projection_sees_the_event_in_the_same_transaction(self, store: Store) -> None:
        """A synchronous projection is as new as the log, for the plan itself too."""

        def plan(transaction: WriteTransaction) -> list[tuple[object, ...]]:
            event = new_event(store, topic="test.counted")
            transaction.append(events.encode(event), event, store.place(None))
            return transaction.rows("SELECT topic, events FROM tally")

        assert store.write(plan) == [("test.counted", 1)]
        assert tally(store) == {"test.counted": 1}

    @pytest.mark.parametrize("size", [4, 200 * KIB])
    def test_plan_sees_what_it_appended(self, store: Store, size: int) -> None:
        """Every way to read, inside a plan, finds the events that the plan appended before, with their payloads."""
        payload = random.Random(size).randbytes(size)

        def plan(transaction: WriteTransaction) -> bool:
            event = new_event(store, payload=payload)
            recorded = transaction.append(events.encode(event), event, store.place(payload))
            return (
                transaction.event(event.id) == recorded
                and transaction.at(event.stream, 0) == recorded
                and transaction.stream(event.stream, 0, 0) == [recorded]
                and transaction.stream_payloads(event.stream, 0, 0) == [(recorded, payload)]
                and transaction.payload(recorded) == payload
                and transaction.last(event.topic) == recorded
                and list(transaction.log()) == [recorded]
            )

        assert store.write(plan) is True

    # Global positions

    def test_global_positions_count_from_one(self, store: Store) -> None:
        """The first event is at global position 1, and each further one follows without a gap."""
        appended = append(store, *(new_event(store) for _ in range(3))) + append_run(store, 2)
        assert [recorded.global_position for recorded in appended] == [1, 2, 3, 4, 5]
        assert global_positions(store) == [1, 2, 3, 4, 5]

    def test_failed_plans_leave_no_gap(self, store: Store) -> None:
        """The global positions that a failed plan was given go to the next events."""

        def fail(transaction: WriteTransaction) -> None:
            event = new_event(store)
            transaction.append(events.encode(event), event, store.place(None))
            raise RefusedError("after the append")

        for _ in range(3):
            append(store, new_event(store))
            with pytest.raises(RefusedError):
                store.write(fail)
        assert global_positions(store) == [1, 2, 3]

    # Conflicts

    def test_known_id_raises(self, store: Store) -> None:
        """A second event under an id is refused, and the first one stays as it is."""
        [first] = append(store, new_event(store, meta={"n": 1}))
        with pytest.raises(IdConflictError) as caught:
            append(store, new_event(store, id=first.event.id, stream=new_id(), meta={"n": 2}))
        assert caught.value.event_id == first.event.id
        assert states(store) == [first.state]

    def test_taken_position_raises(self, store: Store) -> None:
        """A second event at a position of a stream is refused; the error says which event is there."""
        [first] = append(store, new_event(store))
        with pytest.raises(IdConflictError) as caught:
            append(store, new_event(store, stream=first.event.stream))
        assert repr(first.event.id) in str(caught.value)
        assert states(store) == [first.state]

    # Group commit

    def test_concurrent_callers_get_their_own_results(self, store: Store) -> None:
        """Each of many threads gets the result of its own plan, and every event is recorded once."""
        wanted = [new_event(store, meta={"n": n}) for n in range(200)]

        def add(event: Event) -> Recorded:
            return append(store, event)[0]

        with ThreadPoolExecutor(16) as pool:
            appended = list(pool.map(add, wanted))
        assert [recorded.event for recorded in appended] == wanted
        assert sorted(recorded.global_position for recorded in appended) == list(range(1, 201))
        assert set(states(store)) == {events.encode(event) for event in wanted}

    def test_concurrent_callers_get_their_own_errors(self, store: Store) -> None:
        """A plan that fails takes nothing from those it shares a commit with, and its error is its caller's alone."""
        gate = threading.Barrier(16)

        def run(n: int) -> int | str:
            gate.wait()
            try:
                return store.write(_failing_plan(store, n))
            except (RefusedError, ZeroDivisionError) as error:
                return str(error)

        with ThreadPoolExecutor(16) as pool:
            outcomes = [outcome for _ in range(5) for outcome in pool.map(run, range(16))]
        kept = [outcome for outcome in outcomes if isinstance(outcome, int)]
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == [
            outcome for _ in range(5) for outcome in ("refused 2", "division 5", "refused 7", "division 11")
        ]
        assert sorted(kept) == list(range(1, 61))
        assert global_positions(store) == list(range(1, 61))

    def test_race_for_a_position_has_one_winner(self, store: Store) -> None:
        """Of many threads that append at one position of a stream, one succeeds and the others get a conflict."""
        [root] = append(store, new_event(store))
        gate = threading.Barrier(8)

        def run(_: int) -> Recorded | None:
            gate.wait()
            try:
                return append(store, new_event(store, stream=root.event.stream, position=1))[0]
            except IdConflictError:
                return None

        with ThreadPoolExecutor(8) as pool:
            won = [recorded for recorded in pool.map(run, range(8)) if recorded]
        assert len(won) == 1
        with store.read() as transaction:
            assert transaction.stream(root.event.stream, 0, 9) == [root, won[0]]

    # Payloads

    @pytest.mark.parametrize("size", PAYLOAD_SIZES)
    @pytest.mark.parametrize("kind", ["text", "random"])
    def test_payload_comes_back_as_it_was_given(self, store: Store, size: int, kind: str) -> None:
        """Bytes of every size about the placement thresholds, compressible or not, come back unchanged."""
        payload = text_of(size) if kind == "text" else random.Random(size).randbytes(size)
        [recorded] = append(store, new_event(store, payload=payload), payload=payload)
        with store.read() as transaction:
            assert transaction.payload(recorded) == payload
            assert transaction.stream_payloads(recorded.event.stream, 0, 0) == [(recorded, payload)]
        assert recorded.event.hash == payload_hash(payload)
        assert recorded.event.size == size

    def test_no_payload_is_not_an_empty_one(self, store: Store) -> None:
        """An event without payload has none, one with an empty payload has empty bytes and their hash."""
        [none] = append(store, new_event(store))
        [empty] = append(store, new_event(store, payload=b""), payload=b"")
        with store.read() as transaction:
            assert transaction.payload(none) is None
            assert transaction.payload(empty) == b""
        assert none.event.hash is None
        assert empty.event.hash == payload_hash(b"")

    @pytest.mark.parametrize("size", [10, 100 * KIB])
    def test_same_payload_twice_is_readable_twice(self, store: Store, size: int) -> None:
        """Two events may have the same payload, whether or not the engine keeps it once."""
        payload = random.Random(1).randbytes(size)
        appended = append(store, *(new_event(store, payload=payload) for _ in range(2)), payload=payload)
        with store.read() as transaction:
            assert [transaction.payload(recorded) for recorded in appended] == [payload, payload]

    def test_placed_payload_that_is_never_appended_is_no_damage(self, store: Store) -> None:
        """A payload that was placed for a plan that failed leaves the store sound."""
        store.place(text_of(200 * KIB))
        assert list(store.check()) == []
        assert states(store) == []

    def test_payload_bytes_are_counted_as_given(self, store: Store) -> None:
        """`stats` counts events, and the bytes of payloads as they were given."""
        sizes = [0, 1, 1000, 100 * KIB]
        for size in sizes:
            append(store, new_event(store, payload=text_of(size)), payload=text_of(size))
        append(store, new_event(store))
        stats = store.stats()
        assert (stats.events, stats.payload_bytes) == (5, sum(sizes))

    # Closing

    def test_closed_store_raises(self, store: Store) -> None:
        """After `close`, reading, writing and placing raise `StoreClosedError`; closing again does nothing."""
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.write(lambda transaction: transaction.last("x")),
            lambda: store.read().__enter__(),
            lambda: store.place(b""),
            store.stats,
            lambda: list(store.check()),
        ]
        for call in calls:
            with pytest.raises(StoreClosedError):
                call()


def _failing_plan(store: Store, n: int) -> Callable[[WriteTransaction], int]:
    """Return a plan that appends one event; for n = 2 and 7, and 5 and 11, it fails before or after that."""
    event: Event = new_event(store)

    def plan(transaction: WriteTransaction) -> int:
        if n == 2:
            raise RefusedError("refused 2")
        if n == 5:
            raise ZeroDivisionError("division 5")
        appended = transaction.append(events.encode(event), event, store.place(None))
        if n == 7:
            raise RefusedError("refused 7")
        if n == 11:
            raise ZeroDivisionError("division 11")
        return appended.global_position

    return plan
