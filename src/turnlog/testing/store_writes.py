"""What an engine promises to those who write: transactions, positions, group commit, placement, closing."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from turnlog.digest import payload_hash
from turnlog.errors import IdConflictError, StoreClosedError
from turnlog.events import TURN, Event, Recorded
from turnlog.store import NO_PAYLOAD, NewPayload, Placement, Store, WriteTransaction
from turnlog.testing.harness import (
    WAIT_S,
    RefusedError,
    StoreHarness,
    append,
    append_run,
    global_positions,
    in_thread,
    new_event,
    recorded_or_raise,
    states,
    tally,
    text_of,
)

KIB = 1024
PAYLOAD_SIZES = (0, 1, 127, 128, 129, 4 * KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, KIB * KIB, KIB * KIB + 1)


class StoreWrites(StoreHarness):
    """Tests of `Store.write` and `Store.place`."""

    # One transaction

    def test_write_returns_what_the_plan_returned(self, store: Store) -> None:
        """A plan's own result comes back to its caller."""
        assert store.write(lambda transaction: ("seen", len(list(transaction.log())))) == ("seen", 0)

    def test_append_returns_the_event_as_it_is_read_later(self, store: Store) -> None:
        """The value that `append` returns equals the one that readers get."""
        [appended] = append(store, new_event(payload=b"x"), payload=b"x")
        with store.read() as transaction:
            assert transaction.event(appended.header.id) == appended
        assert appended.global_position == 1

    @pytest.mark.parametrize("error", [RefusedError("no"), ValueError("no"), KeyError(3)], ids=["own", "value", "key"])
    def test_plan_that_raises_after_an_append_leaves_nothing(self, store: Store, error: Exception) -> None:
        """What a plan raises comes to its caller, and nothing of what it appended stays."""
        append(store, new_event())
        before = states(store)

        def plan(transaction: WriteTransaction) -> None:
            for _ in range(3):
                event = new_event()
                transaction.append(event, NO_PAYLOAD)
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
            append(store, new_event(), new_event(topic=topic))
        assert states(store) == []
        assert tally(store) == {}

    def test_projection_sees_the_event_in_the_same_transaction(self, store: Store) -> None:
        """A synchronous projection is as new as the log, for the plan itself too."""

        def plan(transaction: WriteTransaction) -> list[tuple[object, ...]]:
            event = new_event(topic="test.counted")
            transaction.append(event, NO_PAYLOAD)
            return transaction.rows("SELECT topic, events FROM tally")

        assert store.write(plan) == [("test.counted", 1)]
        assert tally(store) == {"test.counted": 1}

    @pytest.mark.parametrize("size", [4, 200 * KIB])
    def test_plan_sees_what_it_appended(self, store: Store, size: int) -> None:
        """Every way to read, inside a plan, finds the events that the plan appended before, with their payloads."""
        payload = random.Random(size).randbytes(size)

        def plan(transaction: WriteTransaction) -> bool:
            event = new_event(payload=payload)
            recorded = recorded_or_raise(event, transaction.append(event, store.place(payload)))
            own, stream = event.header.id, event.header.stream
            return (
                transaction.event(own) == recorded
                and transaction.place(own) == (stream, 0)
                and transaction.at(stream, 0) == recorded
                and transaction.at_global(1) == recorded
                and transaction.genesis() == recorded
                and transaction.stream(stream, 0, 0) == [recorded]
                and transaction.stream_end(stream) == recorded
                and list(transaction.stream_payloads(stream, 0, 0)) == [(recorded, payload)]
                and transaction.payload(recorded) == payload
                and transaction.last(event.header.topic) == recorded
                and transaction.log_end() == 1
                and list(transaction.log()) == [recorded]
            )

        assert store.write(plan) is True

    def test_what_a_plan_places_is_what_the_store_places(self, store: Store) -> None:
        """A payload can be made ready inside a plan, and is kept as one that was made ready before it."""
        payload = text_of(4 * KIB)

        def plan(transaction: WriteTransaction) -> Recorded:
            event = new_event(payload=payload)
            placed = transaction.placed(payload)
            assert placed.hash == payload_hash(payload)
            return recorded_or_raise(event, transaction.append(event, placed))

        recorded = store.write(plan)
        with store.read() as transaction:
            assert transaction.payload(recorded) == payload

    def test_quiet_is_only_what_is_known_to_be(self, store: Store) -> None:
        """After an event it is not quiet once an event of another topic than the frequent ones may have followed.

        An engine may always say that it does not know, but never the other way round.
        """
        turn, rare, later = new_event(topic=TURN), new_event(), new_event(topic=TURN)

        def quiet(transaction: WriteTransaction, recorded: Recorded) -> bool:
            return transaction.is_quiet_since(recorded)

        [first] = append(store, turn)
        append(store, new_event(topic=TURN))
        [other] = append(store, rare)
        assert not store.write(lambda transaction: quiet(transaction, first))

        def plan(transaction: WriteTransaction) -> tuple[bool, bool]:
            recorded = recorded_or_raise(later, transaction.append(later, NO_PAYLOAD))
            event = new_event()
            before = quiet(transaction, first)
            recorded_or_raise(event, transaction.append(event, NO_PAYLOAD))
            return before, quiet(transaction, recorded)

        assert store.write(plan) == (False, False)
        assert not store.write(lambda transaction: quiet(transaction, first) or quiet(transaction, other))

    # Global positions

    def test_global_positions_count_from_one(self, store: Store) -> None:
        """The first event is at global position 1, and each further one follows without a gap."""
        appended = append(store, *(new_event() for _ in range(3))) + append_run(store, 2)
        assert [recorded.global_position for recorded in appended] == [1, 2, 3, 4, 5]
        assert global_positions(store) == [1, 2, 3, 4, 5]

    def test_failed_plans_leave_no_gap(self, store: Store) -> None:
        """The global positions that a failed plan was given go to the next events."""

        def fail(transaction: WriteTransaction) -> None:
            event = new_event()
            transaction.append(event, NO_PAYLOAD)
            raise RefusedError("after the append")

        for _ in range(3):
            append(store, new_event())
            with pytest.raises(RefusedError):
                store.write(fail)
        assert global_positions(store) == [1, 2, 3]

    # Group commit

    def test_concurrent_callers_get_their_own_results(self, store: Store) -> None:
        """Each of many threads gets the result of its own plan, and every event is recorded once."""
        wanted = [new_event(private={"n": n}) for n in range(200)]

        def add(event: Event) -> Recorded:
            return append(store, event)[0]

        with ThreadPoolExecutor(16) as pool:
            appended = list(pool.map(add, wanted))
        assert [recorded.state for recorded in appended] == [event.state for event in wanted]
        assert sorted(recorded.global_position for recorded in appended) == list(range(1, 201))
        assert set(states(store)) == {event.state for event in wanted}

    def test_concurrent_callers_get_their_own_errors(self, store: Store) -> None:
        """A plan that fails takes nothing from those it shares a commit with, and its error is its caller's alone."""
        gate = threading.Barrier(16)

        def run(n: int) -> int | str:
            gate.wait()
            try:
                return store.write(_failing_plan(n))
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
        [root] = append(store, new_event())
        gate = threading.Barrier(8)

        def run(_: int) -> Recorded | None:
            gate.wait()
            try:
                return append(store, new_event(stream=root.header.stream, position=1))[0]
            except IdConflictError:
                return None

        with ThreadPoolExecutor(8) as pool:
            won = [recorded for recorded in pool.map(run, range(8)) if recorded]
        assert len(won) == 1
        with store.read() as transaction:
            assert transaction.stream(root.header.stream, 0, 9) == [root, won[0]]

    # Payloads

    @pytest.mark.parametrize("size", PAYLOAD_SIZES)
    @pytest.mark.parametrize("kind", ["text", "random"])
    def test_payload_comes_back_as_it_was_given(self, store: Store, size: int, kind: str) -> None:
        """Bytes of every size about the placement thresholds, compressible or not, come back unchanged."""
        payload = text_of(size) if kind == "text" else random.Random(size).randbytes(size)
        [recorded] = append(store, new_event(payload=payload), payload=payload)
        with store.read() as transaction:
            assert transaction.payload(recorded) == payload
            assert b"".join(transaction.payload_pieces(recorded)) == payload
            assert list(transaction.stream_payloads(recorded.header.stream, 0, 0)) == [(recorded, payload)]
            for bytes_max in (1, size, size + 1):
                starts = transaction.stream_starts(recorded.header.stream, 0, 0, bytes_max)
                assert [*starts] == [(recorded, payload[:bytes_max])]
        assert recorded.hash == payload_hash(payload)
        assert recorded.size == size

    def test_no_payload_is_not_an_empty_one(self, store: Store) -> None:
        """An event without payload has none, one with an empty payload has empty bytes and their hash."""
        [none] = append(store, new_event())
        [empty] = append(store, new_event(payload=b""), payload=b"")
        with store.read() as transaction:
            assert transaction.payload(none) is None
            assert list(transaction.payload_pieces(none)) == []
            assert transaction.payload(empty) == b"".join(transaction.payload_pieces(empty)) == b""
        assert none.hash is None
        assert empty.hash == payload_hash(b"")

    @pytest.mark.parametrize("size", PAYLOAD_SIZES)
    @pytest.mark.parametrize("kind", ["text", "random"])
    def test_payload_in_pieces_is_the_payload(self, store: Store, size: int, kind: str) -> None:
        """It is kept as the same bytes in one, and one that a plan has appended can be read in it."""
        payload = text_of(size) if kind == "text" else random.Random(size).randbytes(size)
        placed = store.place([payload[:5], payload[5 : size // 2], payload[max(5, size // 2) :]])
        assert (placed.hash, placed.size, placed.placement) == (
            payload_hash(payload),
            size,
            store.place(payload).placement,
        )

        def plan(transaction: WriteTransaction) -> bytes:
            event = new_event(payload=payload)
            recorded = recorded_or_raise(event, transaction.append(event, placed))
            return b"".join(transaction.payload_pieces(recorded))

        assert store.write(plan) == payload

    @pytest.mark.parametrize("size", [10, 100 * KIB])
    def test_same_payload_twice_is_readable_twice(self, store: Store, size: int) -> None:
        """Two events may have the same payload, whether or not the engine keeps it once."""
        payload = random.Random(1).randbytes(size)
        appended = append(store, *(new_event(payload=payload) for _ in range(2)), payload=payload)
        with store.read() as transaction:
            assert [transaction.payload(recorded) for recorded in appended] == [payload, payload]

    def test_placed_payload_that_is_never_appended_is_no_damage(self, store: Store) -> None:
        """A payload that was placed for a plan that failed leaves the store sound."""
        store.place(text_of(200 * KIB))
        assert list(store.check()) == []
        assert states(store) == []

    @pytest.mark.parametrize("size", [10, 100 * KIB])
    def test_place_does_not_need_the_write_lock(self, store: Store, size: int) -> None:
        """While a plan holds the write lock, others make their payloads ready: large ones hold nobody up."""
        payload = random.Random(2).randbytes(size)

        def plan(transaction: WriteTransaction) -> NewPayload:
            recorded_or_raise(event := new_event(), transaction.append(event, NO_PAYLOAD))
            return in_thread(partial(store.place, payload))()

        placed = store.write(plan)
        event = new_event(payload=payload)
        recorded = store.write(lambda transaction: recorded_or_raise(event, transaction.append(event, placed)))
        with store.read() as transaction:
            assert transaction.payload(recorded) == payload

    def test_payload_of_a_failed_plan_takes_no_place(self, store: Store) -> None:
        """What was placed and not recorded is gone when the value that stands for it is."""
        payload = random.Random(3).randbytes(200 * KIB)
        before = store.stats()

        def fail() -> None:
            event = new_event(payload=payload)
            placed = store.place(payload)

            def plan(transaction: WriteTransaction) -> None:
                transaction.append(event, placed)
                raise RefusedError("after the append")

            with pytest.raises(RefusedError):
                store.write(plan)

        fail()
        gc.collect()
        assert store.stats().file_count == before.file_count == 0
        assert store.stats().file_bytes == 0
        assert list(store.check()) == []

    def test_payload_bytes_are_counted_as_given(self, store: Store) -> None:
        """`stats` counts events, and the bytes of payloads: as they were given, and as they stand beside the events."""
        sizes = [0, 1, 1000, 100 * KIB]
        for size in sizes:
            append(store, new_event(payload=text_of(size)), payload=text_of(size))
        append(store, new_event())
        stats = store.stats()
        assert (stats.events, stats.payload_bytes) == (5, sum(sizes))
        with store.read() as transaction:
            rows = transaction.stored_rows(0, 9)
            assert transaction.stored_payload_bytes() == stats.stored_payload_bytes
        beside = [row.stored for row in rows if row.placement in (Placement.INLINE, Placement.INLINE_ZSTD)]
        assert len(beside) >= 3
        assert stats.stored_payload_bytes == sum(map(len, beside))

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
            lambda: store.wait(0, 0),
            store.check_schema,
            store.unread,
            store.rebuild,
            lambda: store.scratch().__enter__(),
            store.check_open,
        ]
        for call in calls:
            with pytest.raises(StoreClosedError):
                call()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_forked_process_is_refused(self, store: Store) -> None:
        """A process that was forked since the store was opened is told to open its own; the store goes on."""
        append(store, new_event())
        child = os.fork()
        if child == 0:
            signal.alarm(int(WAIT_S))  # it must not outlive the tests
            try:
                os._exit(0 if _is_refused(store) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert append(store, new_event())[0].global_position == 2

    def test_open_store_says_that_it_is(self, store: Store) -> None:
        """What is recorded can be read by everybody, and is confirmed."""
        store.check_open()
        store.confirm()
        append(store, new_event())
        store.confirm()
        store.check_open()
        assert store.unsettled() == 0


def _is_refused(store: Store) -> bool:
    """Return whether a store refuses to be used, and says so. What it does not refuse is not done twice."""
    calls: list[Callable[[], object]] = [
        store.check_open,
        lambda: store.read().__enter__(),
        lambda: store.place(b""),
        lambda: append(store, new_event()),
    ]
    for call in calls:
        try:
            call()
        except StoreClosedError:
            continue
        return False
    return True


def _failing_plan(n: int) -> Callable[[WriteTransaction], int]:
    """Return a plan that appends one event; for n = 2 and 7, and 5 and 11, it fails before or after that."""
    event = new_event()

    def plan(transaction: WriteTransaction) -> int:
        if n == 2:
            raise RefusedError("refused 2")
        if n == 5:
            raise ZeroDivisionError("division 5")
        appended = recorded_or_raise(event, transaction.append(event, NO_PAYLOAD))
        if n == 7:
            raise RefusedError("refused 7")
        if n == 11:
            raise ZeroDivisionError("division 11")
        return appended.global_position

    return plan
