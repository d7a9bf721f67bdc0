"""What an engine promises to those who erase: private part and payload are gone for all, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnlog.digest import sri_bytes
from turnlog.errors import ConflictError
from turnlog.events import ERASURE, TARGET, Event, Recorded, cite
from turnlog.store import NO_PAYLOAD, ErasedFiles, FoldTransaction, Placement, Store, SyncProjection, WriteTransaction
from turnlog.testing.harness import (
    LARGE,
    RefusedError,
    StoreHarness,
    append,
    folded_anew,
    in_thread,
    new_event,
    projected,
    recorded_or_raise,
    states,
)


class Names(SyncProjection):
    """The name that an event has in its private part, by event; none where that is erased."""

    name = "names"
    tables = ("names",)
    schema = ("CREATE TABLE names (event_id TEXT PRIMARY KEY, who TEXT NOT NULL)",)

    def apply(self, transaction: FoldTransaction, recorded: Recorded) -> None:
        """Write the name down."""
        if recorded.private_state is not None and b'"who":"' in recorded.private_state:
            who = recorded.private_state.split(b'"who":"')[1].split(b'"')[0].decode()
            transaction.run("INSERT INTO names VALUES (?, ?)", (recorded.header.id, who))


def erasure_of(targets: Sequence[Recorded]) -> Event:
    """Return the event that says that others are erased."""
    return new_event(topic=ERASURE, public={"reason": "asked"}, citations=[cite(event, TARGET) for event in targets])


def erase(store: Store, *targets: Recorded, foreseen: Sequence[Recorded] = (), until: int = 0) -> ErasedFiles:
    """Erase events, and append the event that says so."""

    def plan(transaction: WriteTransaction) -> Sequence[Recorded]:
        said = erasure_of(targets)
        recorded_or_raise(said, transaction.append(said, NO_PAYLOAD))
        return targets

    return store.erase(plan, foreseen=foreseen, until=until)


def record(store: Store, who: str, size: int = 300) -> tuple[Recorded, bytes]:
    """Append an event with a name in its private part, and so many random bytes as its payload; return both."""
    payload = random.Random(f"{who} {size}").randbytes(size)
    [recorded] = append(store, new_event(payload=payload, private={"who": who}), payload=payload)
    return recorded, payload


class StoreErasing(StoreHarness):
    """Tests of `Store.erase` and `Store.scrub`."""

    @pytest.fixture
    def names(self, tmp_path: Path) -> Store:
        """Open a store that keeps names of private parts."""
        return self.open_store(tmp_path / "names", [Names()])

    @pytest.mark.parametrize("size", [0, 300, LARGE])
    def test_private_part_and_payload_are_gone(self, store: Store, size: int) -> None:
        """Of an erased event the header, the digest and the place stay; the events beside it stay whole."""
        (before, kept), (gone, _) = record(store, "Grace", size + 1), record(store, "Ada", size)
        erase(store, gone)
        with store.read() as transaction:
            found = transaction.event(gone.header.id)
            assert found is not None
            assert (found.state, found.leaf_hash, found.global_position) == (gone.state, gone.leaf_hash, 2)
            assert (found.erased, found.private_state, found.hash, found.size) == (True, None, None, None)
            assert transaction.at_global(2) == transaction.at(gone.header.stream, 0) == found
            assert transaction.payload(found) is None
            assert list(transaction.stream_payloads(gone.header.stream, 0, 0)) == [(found, None)]
            rows = transaction.stored_rows(0, 9)
            assert [row.global_position for row in rows] == [1, 2, 3]
            assert (rows[1].placement, rows[1].private, rows[1].stored) == (Placement.ERASED, None, None)
            assert not transaction.has_file(sri_bytes(gone.hash or ""))
            assert transaction.event(before.header.id) == before
            assert transaction.payload(before) == kept
            assert transaction.last_erasure() == 3
        assert store.stats().payload_bytes == size + 1
        assert list(store.check()) == []
        assert store.check_schema() == []

    def test_no_erasure_is_none(self, store: Store) -> None:
        """Until something is erased, the position of the last erasure is 0, and there is nothing to scrub."""
        record(store, "Ada")
        with store.read() as transaction:
            assert transaction.last_erasure() == 0
        assert store.scrub() is None

    def test_nothing_is_left_in_the_files(self, store: Store, tmp_path: Path) -> None:
        """What was erased stands in no file of the store, or it is told why it still does."""
        payloads = [record(store, "Ada Lovelace", size) for size in (300, LARGE)]
        found = erase(store, *(recorded for recorded, _ in payloads))
        if (found.remains or store.scrub()) is None:
            raw = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
            marks = [b"Ada Lovelace", *(payload[:64] for _, payload in payloads)]
            assert [mark for mark in marks if mark in raw] == []

    def test_payload_that_others_have_stays(self, store: Store) -> None:
        """Where an event that stays has the same payload, whether or not the engine keeps it once, it can be read."""
        payload = random.Random(1).randbytes(LARGE)
        gone, kept = append(store, *(new_event(payload=payload) for _ in range(2)), payload=payload)
        assert erase(store, gone).removed == 0
        with store.read() as transaction:
            assert transaction.payload(kept) == payload
        erase(store, kept)
        assert (store.stats().file_count, store.stats().file_bytes) == (0, 0)
        assert list(store.check()) == []

    @pytest.mark.parametrize("is_foreseen", [False, True])
    def test_projections_are_as_if_there_had_been_nothing(self, names: Store, is_foreseen: bool) -> None:
        """What projections have folded of it is gone, whether it was foreseen or not; what came since is folded."""
        (first, _), (gone, _), (later, _) = (record(names, who) for who in ("Grace", "Ada", "Barbara"))
        erase(names, gone, foreseen=[gone] if is_foreseen else [], until=2 if is_foreseen else 0)
        rows = sorted([(first.header.id, "Grace"), (later.header.id, "Barbara")], key=repr)
        assert projected(names) == folded_anew(names) == {"names": rows}
        names.close()

    def test_what_others_than_the_foreseen_events_have_folded_is_gone(self, names: Store) -> None:
        """What the plan returns counts, whatever was foreseen."""
        (first, _), (gone, _) = record(names, "Grace"), record(names, "Ada")
        erase(names, first, gone, foreseen=[gone], until=2)
        assert projected(names) == {"names": []}
        names.close()

    def test_what_is_appended_next_sees_it_erased(self, store: Store) -> None:
        """Also where the event was recorded a moment before, and by every way that a plan has."""
        gone, _ = record(store, "Ada")
        erase(store, gone)
        found = store.write(
            lambda transaction: [
                transaction.event(gone.header.id),
                transaction.at(gone.header.stream, 0),
                transaction.recent.get(gone.header.id),
            ]
        )
        assert [event is None or event.erased for event in found] == [True] * 3
        assert append(store, new_event())[0].global_position == 3

    def test_plan_that_raises_erases_nothing(self, store: Store) -> None:
        """Neither what the plan appended is kept, nor what it meant to erase gone."""
        recorded, payload = record(store, "Ada", LARGE)
        before = states(store)

        def plan(transaction: WriteTransaction) -> Sequence[Recorded]:
            said = erasure_of([recorded])
            transaction.append(said, NO_PAYLOAD)
            raise RefusedError("after the append")

        with pytest.raises(RefusedError):
            store.erase(plan)
        assert states(store) == before
        with store.read() as transaction:
            assert transaction.event(recorded.header.id) == recorded
            assert transaction.payload(recorded) == payload

    def test_what_has_nothing_to_erase_is_refused(self, store: Store) -> None:
        """An event without a private part, and one that is erased: then nothing is erased, and nothing recorded."""
        (gone, _), (other, payload) = record(store, "Ada"), record(store, "Grace", LARGE)
        erase(store, gone)
        [bare] = append(store, new_event(topic="bare"))
        before = states(store)
        for target in (gone, bare):
            with pytest.raises(ConflictError):
                erase(store, other, target)
        assert states(store) == before
        with store.read() as transaction:
            assert transaction.event(other.header.id) == other
            assert transaction.payload(other) == payload
        assert list(store.check()) == []

    def test_what_a_plan_appends_without_anything_to_erase_is_recorded(self, store: Store) -> None:
        """It says that a key was destroyed, of which nothing is in the log."""
        recorded, _ = record(store, "Ada")
        said = erasure_of([recorded])

        def plan(transaction: WriteTransaction) -> Sequence[Recorded]:
            transaction.append(said, NO_PAYLOAD)
            return []

        assert store.erase(plan) == ErasedFiles()
        assert states(store) == [recorded.state, said.state]

    def test_erasing_wakes_those_who_wait(self, store: Store) -> None:
        """What says that something was erased is an event like others."""
        gone, _ = record(store, "Ada")
        waiting = in_thread(lambda: store.wait(1))
        erase(store, gone)
        assert waiting() == 2
