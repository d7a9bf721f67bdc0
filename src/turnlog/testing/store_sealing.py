"""What an engine promises of what is sealed: it is kept sealed, opens with its key alone, and the log says what is."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from turnlog.digest import payload_hash
from turnlog.events import SEAL, Arrival, DataKey, Event, Recorded, Seal, build, meta_text, private_part, sealed_part
from turnlog.events.sealing import OpenedPayload
from turnlog.ids import new_id
from turnlog.sources import Sources
from turnlog.store import NO_PAYLOAD, NewPayload, Store, WriteTransaction
from turnlog.store.sealed_payloads import opened
from turnlog.store.values import SealPolicy
from turnlog.testing.harness import (
    LARGE,
    TOPIC,
    RefusedError,
    StoreHarness,
    Tally,
    append,
    new_event,
    recorded_or_raise,
    text_of,
)
from turnlog.testing.seals import SealsInMemory

PAYLOADS = (b"", random.Random(1).randbytes(300), text_of(4096), random.Random(2).randbytes(LARGE))
"""Payloads of which each is kept in another way: empty, as it is, compressed, large."""

ONE, OTHER = DataKey.of(bytes(32)), DataKey.of(bytes(range(32)))

STORE_SEALED = SealPolicy(keys=frozenset({"a tag"}), store=True)
"""What is sealed once `seal_event("store")` is recorded."""

_sources = Sources()


def seal_event(scope: str, *, tag: str | None = None) -> Event:
    """Return the event that says that a log, or what is of a subject with a tag, is sealed from here on."""
    return new_event(topic=SEAL, public={"scope": scope, "keys": "a tag"} | ({} if tag is None else {"tag": tag}))


def policies(store: Store) -> tuple[SealPolicy | None, SealPolicy | None]:
    """Return what is sealed, as a reader finds it and as a plan that appends does."""
    event = new_event()

    def plan(transaction: WriteTransaction) -> SealPolicy | None:
        found = transaction.seal_policy()
        recorded_or_raise(event, transaction.append(event, NO_PAYLOAD))
        return found

    with store.read() as transaction:
        found = transaction.seal_policy()
    return found, store.write(plan)


def sealed_event(placed: NewPayload, who: str) -> Event:
    """Return an event with a payload that is sealed, and a name in its private part, sealed likewise."""
    assert placed.seal is not None, "what is placed or sealed with a seal has it"
    private = private_part({"who": who}, hash=placed.content_hash, size=placed.content_size, salt=_sources.salt())
    assert private is not None
    return build(
        topic=TOPIC,
        id=new_id(),
        time=_sources.time_ms(),
        meta=meta_text({}),
        private=private,
        sealed=sealed_part(private, placed.seal, hash=placed.hash, size=placed.size, tags={}),
    )


def append_placed(store: Store, placed: NewPayload, who: str = "Ada") -> Recorded:
    """Append a sealed event with a payload that is placed sealed."""
    event = sealed_event(placed, who)
    return store.write(lambda transaction: recorded_or_raise(event, transaction.append(event, placed)))


def check_sealed(store: Store, recorded: Recorded, placed: NewPayload, payload: bytes) -> None:
    """Check that a payload is what was placed, and is kept sealed in such a way that it opens."""
    assert placed.seal is not None
    assert (placed.content_hash, placed.content_size) == (payload_hash(payload), len(payload))
    with store.read() as transaction:
        stored = transaction.stored_payload(recorded)
        assert stored is not None
        assert (payload_hash(stored), len(stored)) == (placed.hash, placed.size)
        assert not payload or payload[-100:] not in stored
        content = b"".join(opened(OpenedPayload(placed.seal.secret, stored), len(payload), len(payload)))
        assert content == payload


class StoreSealing(StoreHarness):
    """Tests of `Store.place` with a seal, `seal`, `opened` and `seal_policy`."""

    def test_payload_that_is_placed_with_a_seal_is_kept_sealed(self, store: Store, tmp_path: Path) -> None:
        """Nothing else is written, and without its key neither the payload nor the private part can be read."""
        for payload in PAYLOADS:
            placed = store.place(payload, Seal.new(ONE))
            recorded = append_placed(store, placed, "Ada Lovelace")
            check_sealed(store, recorded, placed, payload)
            with store.read() as transaction:
                found = transaction.event(recorded.header.id)
                assert found is not None
                assert (found.private, found.hash, found.erased) == (None, None, False)
                assert (found.stored_hash, found.stored_size) == (placed.hash, placed.size)
                assert transaction.payload(found) is None
                assert list(transaction.payload_pieces(found)) == []
                assert list(transaction.stream_payloads(recorded.header.stream, 0, 0)) == [(found, None)]
                [row] = transaction.stored_rows(recorded.global_position - 1, 1)
                assert transaction.verified_payload(row, found)[1] is None
        for file in (path for path in tmp_path.rglob("*") if path.is_file()):
            kept = file.read_bytes()
            assert not any(payload and payload[-100:] in kept for payload in PAYLOADS), file
            assert b"Ada Lovelace" not in kept, file
        assert list(store.check()) == []

    def test_plan_seals_what_was_placed_plain(self, store: Store, tmp_path: Path) -> None:
        """What is made ready and not written can be sealed in a plan, and sealed there again under another key."""
        for payload in PAYLOADS:
            ready = store.place(payload, is_written=False)
            found = store.write(partial(self._seal_three_times, ready=ready, payload=payload))
            assert [placed.seal and placed.seal.key for _, placed in found] == [ONE.id, ONE.id, OTHER.id]
            assert len({placed.hash for _, placed in found}) == 3
            for recorded, placed in found:
                check_sealed(store, recorded, placed, payload)
        for file in (path for path in tmp_path.rglob("*") if path.is_file()):
            kept = file.read_bytes()
            assert not any(payload and payload[-100:] in kept for payload in PAYLOADS), file
        assert list(store.check()) == []

    @staticmethod
    def _seal_three_times(
        transaction: WriteTransaction, *, ready: NewPayload, payload: bytes
    ) -> list[tuple[Recorded, NewPayload]]:
        sealed = [transaction.seal(placed, ONE) for placed in (ready, transaction.placed(payload))]
        sealed.append(transaction.seal(sealed[0], OTHER))
        events = [sealed_event(placed, "Ada") for placed in sealed]
        return [
            (recorded_or_raise(event, transaction.append(event, placed)), placed)
            for event, placed in zip(events, sealed, strict=True)
        ]

    def test_private_part_alone_can_be_sealed(self, store: Store) -> None:
        """An event without a payload has a seal too, from the store or in a plan."""
        placed = store.place(None, Seal.new(ONE))
        assert (placed.hash, placed.content_hash) == (None, None)
        recorded = append_placed(store, placed)
        sealed = store.write(lambda transaction: transaction.seal(NO_PAYLOAD, OTHER))
        assert sealed.seal is not None
        assert (sealed.hash, sealed.seal.key) == (None, OTHER.id)
        with store.read() as transaction:
            found = transaction.event(recorded.header.id)
            assert found is not None
            assert (found.private, transaction.stored_payload(found)) == (None, None)

    def test_what_is_sealed_opens_with_its_key_alone(self, tmp_path: Path) -> None:
        """However it is read, as long as the key is there; `opened` gives what was read without it as it is with it."""
        seals = SealsInMemory()
        store = self.open_sealed(tmp_path, [Tally()], seals)
        [plain] = append(store, new_event(private={"n": 1}))
        sealed = [append_placed(store, store.place(payload, Seal.new(seals.make("Ada")))) for payload in PAYLOADS]
        with store.read() as transaction:
            assert list(transaction.log()) == [plain, *sealed]
            for recorded, payload in zip(sealed, PAYLOADS, strict=True):
                assert recorded.private is not None
                assert transaction.event(recorded.header.id) == recorded
                assert transaction.payload(recorded) == payload
                assert b"".join(transaction.payload_pieces(recorded)) == payload
                assert list(transaction.stream_payloads(recorded.header.stream, 0, 0)) == [(recorded, payload)]
                [row] = transaction.stored_rows(recorded.global_position - 1, 1)
                assert transaction.verified_payload(row, recorded) == (len(payload), payload)
            assert transaction.payload_bytes() == sum(map(len, PAYLOADS))
        seals.destroy("Ada")
        with store.read() as transaction:
            shut = [*transaction.log(plain.global_position)]
            assert [(event.private, event.private_state) for event in shut] == [
                (None, event.private_state) for event in sealed
            ]
            assert [transaction.payload(event) for event in shut] == [None] * len(shut)
            assert [*map(transaction.opened, shut)] == shut
            seals.make("Ada")
            assert [*map(transaction.opened, shut)] == sealed
            assert transaction.opened(plain) == plain
        store.close()

    def test_what_is_sealed_is_what_the_log_says(self, store: Store) -> None:
        """Its `log.seal` events say it from there on, but for those of another log and of plans that failed."""
        append(store, new_event())
        append(store, seal_event("store"), arrival=Arrival.GUEST)
        assert policies(store) == (None, None)

        def fail(transaction: WriteTransaction) -> None:
            recorded_or_raise(said := seal_event("store"), transaction.append(said, NO_PAYLOAD))
            raise RefusedError("after the append")

        with pytest.raises(RefusedError):
            store.write(fail)
        assert policies(store) == (None, None)

        def plan(transaction: WriteTransaction) -> tuple[SealPolicy | None, SealPolicy | None]:
            before = transaction.seal_policy()
            recorded_or_raise(said := seal_event("subject", tag="of Ada"), transaction.append(said, NO_PAYLOAD))
            return before, transaction.seal_policy()

        of_subject = SealPolicy(keys=frozenset({"a tag"}), subjects=frozenset({"of Ada"}))
        assert store.write(plan) == (None, of_subject)
        assert policies(store) == (of_subject, of_subject)
        append(store, seal_event("store"), arrival=Arrival.RESTORED)
        whole = SealPolicy(keys=frozenset({"a tag"}), store=True, subjects=frozenset({"of Ada"}))
        assert policies(store) == (whole, whole)
