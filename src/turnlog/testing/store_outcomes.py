"""What an engine promises about an append: its outcomes, the first event of a log, arrival, erased events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from turnlog.errors import IdConflictError
from turnlog.events import Arrival, Citation, Event, Recorded, cite
from turnlog.ids import new_id
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, Placement, Store, Taken, WriteTransaction
from turnlog.store.begin import begin
from turnlog.testing.harness import (
    Places,
    RefusedError,
    StoreHarness,
    append,
    erased,
    new_event,
    states,
    tally,
)


class StoreOutcomes(StoreHarness):
    """Tests of `WriteTransaction.append`."""

    # Taken

    def test_known_id_is_an_outcome(self, store: Store) -> None:
        """A second event under an id is not recorded, `append` says so, and the first one stays as it is."""
        [first] = append(store, new_event(private={"n": 1}))
        second = new_event(id=first.header.id, stream=new_id(), position=1, private={"n": 2})
        assert store.write(lambda transaction: transaction.append(second, NO_PAYLOAD)) is Taken.ID
        assert states(store) == [first.state]
        assert tally(store) == {"test.event": 1}

    def test_taken_position_is_an_outcome(self, store: Store) -> None:
        """A second event at a position of a stream is not recorded, and `append` says so."""
        [first] = append(store, new_event())
        second = new_event(stream=first.header.stream)
        assert store.write(lambda transaction: transaction.append(second, NO_PAYLOAD)) is Taken.POSITION
        assert states(store) == [first.state]

    def test_same_event_again_is_a_known_id(self, store: Store) -> None:
        """Of an event whose id and position are taken the id is what is said to be."""
        [first] = append(store, new_event())
        assert store.write(lambda transaction: transaction.append(first, NO_PAYLOAD)) is Taken.ID

    def test_transaction_goes_on_after_an_outcome(self, store: Store) -> None:
        """What is appended before and after an event that is taken is recorded, without a gap, and can be read."""
        [root] = append(store, new_event())
        before, after = new_event(private={"n": 1}), new_event(private={"n": 2})

        def plan(transaction: WriteTransaction) -> list[Recorded | Taken]:
            return [
                transaction.append(before, NO_PAYLOAD),
                transaction.append(new_event(id=root.header.id, stream=new_id(), position=1), NO_PAYLOAD),
                transaction.append(new_event(stream=root.header.stream), NO_PAYLOAD),
                transaction.append(new_event(id=before.header.id), NO_PAYLOAD),
                transaction.append(after, NO_PAYLOAD),
            ]

        found = store.write(plan)
        assert found[1:4] == [Taken.ID, Taken.POSITION, Taken.ID]
        assert [recorded.global_position for recorded in found if isinstance(recorded, Recorded)] == [2, 3]
        assert states(store) == [root.state, before.state, after.state]
        assert tally(store) == {"test.event": 3}

    def test_plan_can_choose_another_place(self, store: Store) -> None:
        """A plan that finds a position taken records the event elsewhere, in the same transaction."""
        [root] = append(store, new_event())
        wanted, fork = new_event(stream=root.header.stream), new_event()

        def plan(transaction: WriteTransaction) -> Recorded | Taken:
            outcome = transaction.append(wanted, NO_PAYLOAD)
            return transaction.append(fork, NO_PAYLOAD) if outcome is Taken.POSITION else outcome

        recorded = store.write(plan)
        assert isinstance(recorded, Recorded)
        assert (recorded.state, recorded.global_position) == (fork.state, 2)

    def test_payload_of_a_taken_event_is_not_kept(self, store: Store) -> None:
        """An event that is taken leaves neither its payload nor any damage."""
        [first] = append(store, new_event())
        payload = random.Random(4).randbytes(100_000)
        with pytest.raises(IdConflictError):
            append(store, new_event(id=first.header.id, payload=payload), payload=payload)
        assert (store.stats().payload_bytes, store.stats().file_count) == (0, 0)
        assert list(store.check()) == []

    # The first event

    def test_empty_log_is_empty_until_the_first_append(self, store: Store) -> None:
        """A plan can ask whether the log has an event yet; one that it has appended itself counts."""

        def plan(transaction: WriteTransaction) -> list[bool]:
            before = transaction.is_empty()
            transaction.append(new_event(), NO_PAYLOAD)
            return [before, transaction.is_empty()]

        assert store.write(plan) == [True, False]
        assert store.write(lambda transaction: transaction.is_empty()) is False

    def test_log_whose_first_plan_failed_is_empty(self, store: Store) -> None:
        """Events that a failed plan appended do not make a log less empty."""

        def fail(transaction: WriteTransaction) -> None:
            transaction.append(new_event(), NO_PAYLOAD)
            raise RefusedError("after the append")

        with pytest.raises(RefusedError):
            store.write(fail)
        assert store.write(lambda transaction: transaction.is_empty()) is True

    def test_log_begins_with_its_genesis(self, store: Store) -> None:
        """`begin` gives an empty log its first event, and does nothing to any other log."""
        sources = Sources()
        with store.read() as transaction:
            assert transaction.genesis() is None

        def plan(transaction: WriteTransaction) -> None:
            for _ in range(2):
                begin(transaction, sources)
            transaction.append(new_event(), NO_PAYLOAD)

        for _ in range(2):
            store.write(plan)
        with store.read() as transaction:
            genesis = transaction.genesis()
            assert genesis is not None
            assert (genesis.header.topic, genesis.global_position) == ("log.genesis", 1)
            assert genesis == transaction.at_global(1) == transaction.event(genesis.header.id)
            assert transaction.topics() == {"log.genesis": 1, "test.event": 2}

    # Arrival

    @pytest.mark.parametrize("arrival", Arrival)
    def test_arrival_is_kept(self, store: Store, arrival: Arrival) -> None:
        """How an event came into the store is stored beside it, and given with it by every way to read."""
        [recorded] = append(store, new_event(), arrival=arrival)
        assert recorded.arrival is arrival
        with store.read() as transaction:
            assert transaction.event(recorded.header.id) == recorded
            assert next(iter(transaction.log())).arrival is arrival
            assert transaction.stored_rows(0, 9)[0].arrival == arrival

    def test_event_is_recorded_here_unless_it_is_said_otherwise(self, store: Store) -> None:
        """Without an arrival an event counts as recorded in this store."""
        event = new_event()
        recorded = store.write(lambda transaction: transaction.append(event, NO_PAYLOAD))
        assert isinstance(recorded, Recorded)
        assert recorded.arrival is Arrival.RECORDED

    # Erased events

    @pytest.mark.parametrize("payload", [None, b"", b"x", bytes(100_000)], ids=["none", "empty", "small", "large"])
    def test_erased_event_is_kept_without_what_is_gone(self, store: Store, payload: bytes | None) -> None:
        """An erased event has its header, its digest and its place; its private part and its payload are nowhere."""
        whole = new_event(payload=payload, public={"n": 1}, private={"who": "Ada"})
        [recorded] = append(store, erased(whole), arrival=Arrival.GUEST)
        assert recorded.erased
        assert (recorded.state, recorded.digest) == (whole.state, whole.digest)
        assert (recorded.private_state, recorded.private, recorded.hash, recorded.size) == (None, None, None, None)
        with store.read() as transaction:
            assert transaction.event(whole.header.id) == recorded
            assert transaction.at(whole.header.stream, 0) == recorded
            assert list(transaction.stream_payloads(whole.header.stream, 0, 0)) == [(recorded, None)]
            assert transaction.payload(recorded) is None
            [row] = transaction.stored_rows(0, 9)
            assert (row.placement, row.private, row.stored) == (Placement.ERASED, None, None)
            assert transaction.verified_payload(row, recorded) == (0, None)
        assert list(store.check()) == []
        assert store.stats().payload_bytes == 0

    def test_event_without_a_private_part_is_not_erased(self, store: Store) -> None:
        """Where there never was a private part none is missing."""
        [recorded] = append(store, new_event())
        assert not recorded.erased
        with store.read() as transaction:
            assert transaction.stored_rows(0, 9)[0].placement == Placement.NONE

    # What projections fold

    def test_erased_events_and_guests_are_folded(self, store: Store) -> None:
        """Projections see every event: what it means that one is erased, or a guest, is theirs to say."""
        append(store, erased(new_event(payload=b"x")), arrival=Arrival.GUEST)
        append(store, new_event(), arrival=Arrival.RESTORED)
        assert tally(store) == {"test.event": 2}

    # What is cited

    def test_citations_come_back_as_they_were_given(self, store: Store) -> None:
        """The store neither follows nor changes what an event cites."""
        [first] = append(store, new_event())
        citations: list[Citation] = [cite(first, "parent"), cite(first, "evidence")]
        [second] = append(store, new_event(citations=citations))
        with store.read() as transaction:
            found = transaction.event(second.header.id)
        assert found is not None
        assert found.header.citations == citations
        assert [parent.id for parent in found.header.parents] == [first.header.id]
        assert found.header.cited("evidence") == first.header.id
        assert found.header.cited("turn") is None

    # Places

    def test_place_of_an_event_is_its_stream_and_position(self, tmp_path: Path) -> None:
        """The place of an event is known to whoever reads, and to projections while it is folded."""
        places = self.open_store(tmp_path / "places", [Places()])
        root = new_event()
        wanted: list[Event] = [root, new_event(stream=root.header.id, position=1), new_event()]
        append(places, *wanted)
        expected = [(event.header.id, event.header.stream, event.header.position) for event in wanted]
        with places.read() as transaction:
            assert [(event.header.id, *_place(transaction.place(event.header.id))) for event in wanted] == expected
            assert sorted(transaction.rows("SELECT * FROM places")) == sorted(expected)
            assert transaction.place(new_id()) is None
        with places.scratch() as scratch, places.read() as transaction:
            for recorded in transaction.log():
                assert scratch.place(recorded.header.id) is None
                scratch.fold(recorded)
                assert scratch.place(recorded.header.id) == (recorded.header.stream, recorded.header.position)
            assert sorted(scratch.rows("SELECT * FROM places")) == sorted(expected)
        places.close()


def _place(place: tuple[str, int] | None) -> tuple[str, int]:
    assert place is not None
    return place
