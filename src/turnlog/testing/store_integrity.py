"""What a durable engine promises when what it keeps is changed behind its back: readers are told, writers refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import Raw

from turnlog.errors import CorruptionError, SchemaError, StoreError, StoreOpenError
from turnlog.events import Arrival, Recorded, build
from turnlog.ids import new_id
from turnlog.store import NO_PAYLOAD, ReadTransaction, Store, WriteTransaction, past_damage
from turnlog.testing.harness import (
    LARGE,
    WAIT_S,
    Change,
    DurableHarness,
    Places,
    StoreHarness,
    Tally,
    TwiceTally,
    append,
    append_run,
    erased,
    folded_anew,
    new_event,
    projected,
    recorded_or_raise,
    states,
    tally,
)
from turnlog.testing.store_erasing import erase
from turnlog.testing.store_rebuilding import fill

_SET = "UPDATE stored_events SET {column} = ? WHERE event_id = ?"

_READS: dict[str, Callable[[ReadTransaction, Recorded], object]] = {
    "event": lambda transaction, recorded: transaction.event(recorded.header.id),
    "at": lambda transaction, recorded: transaction.at(recorded.header.stream, recorded.header.position),
    "at_global": lambda transaction, recorded: transaction.at_global(recorded.global_position),
    "stream": lambda transaction, recorded: transaction.stream(recorded.header.stream, 0, 9),
    "stream_end": lambda transaction, recorded: transaction.stream_end(recorded.header.stream),
    "stream_payloads": lambda transaction, recorded: list(transaction.stream_payloads(recorded.header.stream, 0, 9)),
    "log": lambda transaction, _: list(transaction.log()),
    "log_backwards": lambda transaction, _: list(transaction.log_backwards(99, topics=["test.event"])),
    "last": lambda transaction, _: transaction.last("test.event"),
}
"""Every way to read an event."""


class ChangedEvents(DurableHarness):
    """Tests of reading events that were changed in the store."""

    @pytest.fixture
    def target(self, store: Store) -> Recorded:
        """Append a stream of two events, of which the second one will be changed."""
        first = new_event()
        second = new_event(
            stream=first.header.id, position=1, payload=b"x", public={"role": "user"}, private={"who": "Ada"}
        )
        append(store, first)
        return append(store, second, payload=b"x")[0]

    def change(self, folder: Path, target: Recorded, column: str, value: object) -> None:
        """Put another value into a column of an event's row."""
        self.tamper(folder, _SET.format(column=column), (value, target.header.id))

    @pytest.mark.parametrize("read", _READS)
    @pytest.mark.parametrize("changed", ["state", "leaf_hash", "private", "no private", "both"])
    def test_changed_event_is_refused(
        self, store: Store, tmp_path: Path, target: Recorded, changed: str, read: str
    ) -> None:
        """An event whose header, leaf hash or private part is not what was recorded is damage, however it is read."""
        state = target.state.replace(b'"role":"user"', b'"role":"evil"')
        match changed:
            case "state":
                self.change(tmp_path, target, "state", state)
            case "leaf_hash":
                self.change(tmp_path, target, "leaf_hash", bytes(32))
            case "private":
                private = (target.private_state or b"").replace(b"Ada", b"Eve")
                self.change(tmp_path, target, "private", private)
            case "no private":
                self.change(tmp_path, target, "private", None)
            case _:
                # Cut in the middle: no event at all.
                self.change(tmp_path, target, "state", target.state[:50])
                self.change(tmp_path, target, "private", b"{")
        with store.read() as transaction, pytest.raises(CorruptionError) as caught:
            _READS[read](transaction, target)
        assert caught.value.global_position == target.global_position

    @pytest.mark.parametrize("changed", ["edited", "another's", "none", "empty", "marked as erased"])
    def test_damaged_private_part_keeps_nothing_from_being_erased(
        self, store: Store, tmp_path: Path, target: Recorded, changed: str
    ) -> None:
        """Others are erased beside it, and so is it; who erases reads past it, and nobody else does."""
        [other] = append(store, new_event(private={"who": "Bob"}))
        if changed == "marked as erased":
            self.change(tmp_path, target, "payload_placement", 5)
        else:
            private = (target.private_state or b"").replace(b"Ada", b"Eve")
            parts = {"edited": private, "another's": other.private_state, "none": None, "empty": b""}
            self.change(tmp_path, target, "private", parts[changed])
        for gone in (other, target):
            with store.read() as transaction, past_damage(transaction):
                for read in _READS.values():
                    read(transaction, target)
                found = transaction.event(target.header.id)
                assert found is not None
                assert (found.state, found.leaf_hash) == (target.state, target.leaf_hash)
                assert (found.damaged, found.unreadable, found.erased) == (True, True, False)
                assert (found.private, found.sealed, found.hash, found.size) == (None, None, None, None)
                assert transaction.payload(found) is None
            with store.read() as transaction, pytest.raises(CorruptionError):
                transaction.event(target.header.id)
            named = found if gone is target else gone
            erase(store, named, foreseen=[named], until=3)
        with store.read() as transaction:
            assert [event.erased for event in transaction.log()] == [False, True, True, False, False]
            assert transaction.payload(transaction.stream_end(target.header.stream)) is None
        assert list(store.check()) == []
        assert projected(store) == folded_anew(store)

    def test_damaged_header_is_not_read_past(self, store: Store, tmp_path: Path, target: Recorded) -> None:
        """What it was of cannot be told, whatever the private part is."""
        self.change(tmp_path, target, "private", b"{}")
        self.change(tmp_path, target, "leaf_hash", bytes(32))
        with store.read() as transaction, past_damage(transaction), pytest.raises(CorruptionError) as caught:
            transaction.event(target.header.id)
        assert caught.value.global_position == target.global_position

    def test_private_part_of_an_event_without_one_is_read_past(self, store: Store, tmp_path: Path) -> None:
        """It is none of its own: to who erases the event is what it was."""
        [recorded] = append(store, new_event())
        self.change(tmp_path, recorded, "private", new_event(private={"n": 1}).private_state)
        with store.read() as transaction, past_damage(transaction):
            for read in _READS.values():
                read(transaction, recorded)
            assert transaction.event(recorded.header.id) == recorded

    @pytest.mark.parametrize("read", _READS)
    def test_private_part_that_no_header_commits_to_is_refused(self, store: Store, tmp_path: Path, read: str) -> None:
        """An event that has no private part cannot be given one."""
        [recorded] = append(store, new_event())
        other = new_event(private={"n": 1})
        self.change(tmp_path, recorded, "private", other.private_state)
        with store.read() as transaction, pytest.raises(CorruptionError):
            _READS[read](transaction, recorded)

    def test_whole_header_of_another_event_is_refused(self, store: Store, tmp_path: Path, target: Recorded) -> None:
        """A header that is consistent with its leaf hash, and is another event's, is not given for the one asked."""
        other = build(
            topic="test.event",
            id=new_id(),
            time=target.header.time,
            meta=Raw(b'{"role":"evil"}'),
            private=target.private,
            stream=target.header.stream,
            position=7,
        )
        self.change(tmp_path, target, "state", other.state)
        self.change(tmp_path, target, "leaf_hash", other.leaf_hash)
        with store.read() as transaction:
            for ask in ("event", "at", "stream", "stream_payloads"):
                with pytest.raises(CorruptionError):
                    _READS[ask](transaction, target)

    def test_events_that_have_changed_places_are_refused(self, store: Store, tmp_path: Path) -> None:
        """Two events whose rows were given each other's names are not given for each other."""
        one, two = append(store, new_event(private={"n": 1}), new_event(private={"n": 2}))
        swap = "UPDATE stored_events SET event_id = ?, originator_id = ? WHERE notification_id = ?"
        # Through another name: a name is unique at every moment.
        for name, at in ((new_id(), 1), (one.header.id, 2), (two.header.id, 1)):
            self.tamper(tmp_path, swap, (name, name, at))
        with store.read() as transaction:
            for recorded in (one, two):
                for ask in ("event", "at", "stream", "stream_end", "stream_payloads"):
                    with pytest.raises(CorruptionError):
                        _READS[ask](transaction, recorded)

    def test_event_under_another_topic_is_refused(self, store: Store, tmp_path: Path) -> None:
        """An event that was put under another topic is not given for one of that topic."""
        [recorded] = append(store, new_event(topic="acme.note"))
        self.change(tmp_path, recorded, "topic", "gpt.pointer")
        with store.read() as transaction:
            for read in (
                lambda: list(transaction.log(topics=["gpt.pointer"])),
                lambda: list(transaction.log_backwards(9, topics=["gpt.turn", "gpt.pointer"])),
                lambda: transaction.last("gpt.pointer"),
            ):
                with pytest.raises(CorruptionError):
                    read()

    @pytest.mark.parametrize("size", [10, 4096])
    def test_changed_payload_is_refused(self, store: Store, tmp_path: Path, size: int) -> None:
        """A payload that is not what was recorded is damage, however it is read."""
        payload = random.Random(size).randbytes(size)
        [recorded] = append(store, new_event(payload=payload), payload=payload)
        for stored in (payload[:-1] + bytes([payload[-1] ^ 1]), payload + b"x", payload[:-1], b"", None):
            self.change(tmp_path, recorded, "payload", stored)
            with store.read() as transaction:
                [row] = transaction.stored_rows(0, 1)
                for read in (
                    lambda transaction=transaction: transaction.payload(recorded),
                    lambda transaction=transaction: list(transaction.payload_pieces(recorded)),
                    lambda transaction=transaction: list(transaction.stream_payloads(recorded.header.stream, 0, 0)),
                    lambda transaction=transaction, row=row: transaction.verified_payload(row, recorded),
                ):
                    with pytest.raises(CorruptionError):
                        read()

    @pytest.mark.parametrize("placement", [0, 3, 4, 5, 6, -1, 255])
    def test_wrong_placement_is_refused(self, store: Store, tmp_path: Path, placement: int) -> None:
        """A payload that is said to be somewhere else, or erased while its private part is there, is damage."""
        [recorded] = append(store, new_event(payload=b"x"), payload=b"x")
        self.change(tmp_path, recorded, "payload_placement", placement)
        with store.read() as transaction, pytest.raises(CorruptionError):
            list(transaction.stream_payloads(recorded.header.stream, 0, 0))

    @pytest.mark.parametrize("arrival", [3, -1, 99])
    def test_unknown_arrival_is_not_trusted(self, store: Store, tmp_path: Path, arrival: int) -> None:
        """An event that came in no known way is taken for one of another log."""
        [recorded] = append(store, new_event())
        self.change(tmp_path, recorded, "arrival", arrival)
        with store.read() as transaction:
            found = transaction.event(recorded.header.id)
        assert found is not None
        assert found.arrival is Arrival.GUEST

    def test_stored_rows_show_damage_as_it_is(self, store: Store, tmp_path: Path, target: Recorded) -> None:
        """Verification gets whatever lies in the store: nothing in it is refused there, or mended."""
        self.change(tmp_path, target, "state", b"\xff{")
        self.change(tmp_path, target, "topic", "other")
        self.change(tmp_path, target, "arrival", 9)
        with store.read() as transaction:
            row = transaction.stored_rows(target.global_position - 1, 1)[0]
        assert (row.state, row.topic, row.arrival) == (b"\xff{", "other", 9)

    def test_other_events_are_read_beside_a_damaged_one(self, store: Store, tmp_path: Path, target: Recorded) -> None:
        """Damage is of one event: the others can be read, and appended to."""
        self.change(tmp_path, target, "state", b"{}")
        with store.read() as transaction:
            assert transaction.genesis() is not None
            assert transaction.at_global(1) == transaction.stream(target.header.stream, 0, 0)[0]
            assert transaction.log_end() == 2
        assert append(store, new_event())[0].global_position == 3


_CHANGES: tuple[Change, ...] = (
    lambda kept: kept[:-1] + bytes([kept[-1] ^ 1]),
    lambda kept: kept + b"x",
    lambda kept: kept[:-1],
    lambda _: b"",
    lambda _: None,
)
"""What happens to large payloads. They are random: whatever compresses them keeps them as they are."""

_PAYLOAD_READS: tuple[Callable[[ReadTransaction, Recorded], object], ...] = (
    lambda transaction, recorded: transaction.payload(recorded),
    lambda transaction, recorded: list(transaction.payload_pieces(recorded)),
    lambda transaction, recorded: transaction.stored_payload(recorded),
    lambda transaction, recorded: list(transaction.stream_payloads(recorded.header.stream, 0, 0)),
    lambda transaction, recorded: transaction.verified_payload(
        transaction.stored_rows(recorded.global_position - 1, 1)[0], recorded
    ),
)
"""Every way to read a whole payload."""


class ChangedPayloads(DurableHarness):
    """Tests of large payloads that were changed where they are kept, and of what is kept for no event."""

    def test_changed_large_payload_is_refused(self, store: Store, tmp_path: Path) -> None:
        """A large payload, be it a file, that is not what was recorded is damage, however it is read."""
        whole = random.Random("whole").randbytes(LARGE)
        [sound] = append(store, new_event(payload=whole), payload=whole)
        for number, change in enumerate(_CHANGES):
            payload = random.Random(number).randbytes(LARGE)
            [target] = append(store, new_event(payload=payload), payload=payload)
            self.tamper_payload(tmp_path, target, change)
            with store.read() as transaction:
                for read in _PAYLOAD_READS:
                    with pytest.raises(CorruptionError):
                        read(transaction, target)
                assert transaction.payload(sound) == whole

    def test_check_tells_of_what_no_event_shows(self, store: Store, tmp_path: Path) -> None:
        """Damage that only the engine can see, one line each; before there was any, nothing."""
        if "strand" not in self.sabotage:
            pytest.skip("`sabotage` has no `strand`: nothing shows that `check` finds anything")
        for number in range(3):
            payload = random.Random(number).randbytes(LARGE)
            append(store, new_event(payload=payload), payload=payload)
        assert list(store.check()) == []
        self.harm(tmp_path, "strand")
        found = [what for _, what in store.check()]
        assert found
        assert all(what and "\n" not in what for what in found)


_FLAWS = ("swallow", "unguard", "weaken", "slow", "forget", "upgrade")


class ChangedSchema(DurableHarness):
    """Tests of a store whose tables, indexes and guards are not what they should be."""

    @pytest.mark.parametrize("kind", _FLAWS)
    def test_changed_schema_is_found_and_nothing_is_written(self, store: Store, tmp_path: Path, kind: str) -> None:
        """What was done to the schema of an open store is told, the next write is refused, and reading goes on."""
        run = append_run(store, 2)
        assert store.check_schema() == []
        self.harm(tmp_path, kind)
        flaws = store.check_schema()
        assert flaws
        assert all(flaw and "\n" not in flaw for flaw in flaws)
        for _ in range(2):
            with pytest.raises(SchemaError, match="nothing was recorded"):
                append(store, new_event())
        with store.read() as transaction:
            assert list(transaction.log()) == run

    @pytest.mark.parametrize("kind", _FLAWS)
    def test_changed_schema_is_found_when_the_store_is_opened_later(
        self, store: Store, tmp_path: Path, kind: str
    ) -> None:
        """A store that was changed while nobody had it open is found to be so, or is not opened at all."""
        run = append_run(store, 2)
        store.close()
        self.harm(tmp_path, kind)
        try:
            again = self.open_store(tmp_path, [Tally()])
        except StoreError:
            assert kind == "upgrade"
            return
        assert again.check_schema()
        with pytest.raises(SchemaError, match="nothing was recorded"):
            append(again, new_event())
        with again.read() as transaction:
            assert list(transaction.log()) == run
        again.close()

    @pytest.mark.parametrize("kind", ["unguard", "slow", "forget"])
    def test_rebuild_restores_what_is_missing(self, store: Store, tmp_path: Path, kind: str) -> None:
        """A missing guard, a missing index and the list of projections come back with a rebuild, and writes go on."""
        append_run(store, 2)
        self.harm(tmp_path, kind)
        store.rebuild()
        assert store.check_schema() == []
        append(store, new_event())
        assert tally(store) == {"test.event": 3}

    @pytest.mark.parametrize("kind", ["swallow", "weaken"])
    def test_rebuild_leaves_what_somebody_added(self, store: Store, tmp_path: Path, kind: str) -> None:
        """What somebody has put into a store is evidence: it stays, and stays refused."""
        append_run(store, 2)
        self.harm(tmp_path, kind)
        before = store.check_schema()
        store.rebuild()
        assert store.check_schema() == before
        with pytest.raises(SchemaError):
            append(store, new_event())

    def test_append_that_goes_nowhere_is_an_error(self, store: Store) -> None:
        """Where a row does not go in, though nothing of it is taken, `append` says so, and the plan leaves nothing."""

        def plan(transaction: WriteTransaction) -> None:
            recorded_or_raise(event := new_event(), transaction.append(event, NO_PAYLOAD))
            # In the plan itself: before it, the schema was looked at and found sound.
            for statement in self.sabotage["swallow"]:
                transaction.run(statement)
            transaction.append(new_event(), NO_PAYLOAD)

        with pytest.raises(SchemaError):
            store.write(plan)
        assert states(store) == []
        assert store.check_schema() == []
        assert append(store, new_event())[0].global_position == 1

    @pytest.mark.parametrize(
        "statement",
        [
            "DROP TABLE places",
            "DROP INDEX places_by_stream",
            "DROP TABLE tally",
            "ALTER TABLE tally ADD COLUMN more BIGINT",
        ],
    )
    def test_rebuild_restores_tables_of_projections(self, tmp_path: Path, statement: str) -> None:
        """Tables and indexes that are missing or changed are found, keep others from writing, and are built anew."""
        store = self.open_store(tmp_path, [Tally(), Places()])
        fill(store)
        before = projected(store)
        self.tamper(tmp_path, statement)
        assert store.check_schema()
        with pytest.raises(SchemaError):
            append(store, new_event())
        assert store.rebuild() == ["tally", "places"]
        assert projected(store) == before
        assert store.check_schema() == []
        append(store, new_event())
        assert projected(store) == folded_anew(store)
        store.close()

    def test_tables_of_others_are_named_and_do_no_harm(self, store: Store, tmp_path: Path) -> None:
        """A table that is none of turnlog's can stand in the store: it is told of, and in nobody's way."""
        self.tamper(tmp_path, "CREATE TABLE notes (text TEXT PRIMARY KEY)")
        assert store.unread() == ["notes"]
        assert store.check_schema() == []
        append(store, new_event())
        assert tally(store) == {"test.event": 1}


class TwoVersions(StoreHarness):
    """Tests of stores that are open on one log with other projections, as processes of two versions are."""

    def test_store_gains_a_projection_from_the_log(self, store: Store, tmp_path: Path) -> None:
        """A projection that a store lacks is built from the log when the store is opened with it."""
        fill(store)
        store.close()
        wider = self.open_store(tmp_path, [Tally(), Places()])
        assert projected(wider) == folded_anew(wider)
        assert len(projected(wider)["places"]) == 50
        assert wider.check_schema() == []
        append(wider, new_event())
        assert projected(wider) == folded_anew(wider)
        wider.close()

    def test_later_version_of_a_projection_is_built_anew(self, store: Store, tmp_path: Path) -> None:
        """A projection whose version is higher than the one that was built is built anew when the store is opened."""
        append(store, new_event(), new_event(topic="a"))
        store.close()
        later = self.open_store(tmp_path, [TwiceTally()])
        assert tally(later) == {"a": 2, "test.event": 2}
        append(later, new_event())
        assert tally(later) == {"a": 2, "test.event": 4}
        later.close()

    @pytest.mark.parametrize("projections", [[Tally(), Places()], [TwiceTally()]], ids=["more", "later"])
    def test_store_of_an_older_version_stops_writing(
        self, store: Store, tmp_path: Path, projections: list[Tally]
    ) -> None:
        """Once a newer version has given a store more, those that have it open with the older one only read.

        Whoever opens it with the older one reads what that knows: not a later version of a projection.
        """
        run = append_run(store, 2)
        newer = self.open_store(tmp_path, projections)
        for _ in range(2):
            with pytest.raises(SchemaError, match="nothing was recorded"):
                append(store, new_event())
        [last] = append(newer, new_event())
        with store.read() as transaction:
            assert list(transaction.log()) == [*run, last]
        assert projected(newer) == folded_anew(newer)
        if projections[0].version > Tally.version:
            with pytest.raises(StoreOpenError, match="was written by a newer turnlog: its tally are of version 2"):
                self.open_store(tmp_path, [Tally()])
        else:
            older = self.open_store(tmp_path, [Tally()])
            with older.read() as transaction:
                assert transaction.log_end() == 3
            with pytest.raises(SchemaError):
                append(older, new_event())
            older.close()
        newer.close()

    def test_store_gains_a_projection_while_others_append(self, store: Store, tmp_path: Path) -> None:
        """Each append until the projection is there is folded into it, and each one after that is refused."""
        underway = threading.Semaphore(0)

        def append_until_refused() -> int:
            count = 0
            while True:
                try:
                    append(store, new_event())
                except SchemaError:
                    return count
                count += 1
                underway.release()

        with ThreadPoolExecutor(2) as pool:
            appending = [pool.submit(append_until_refused) for _ in range(2)]
            for _ in range(20):
                assert underway.acquire(timeout=WAIT_S)
            newer = self.open_store(tmp_path, [Tally(), Places()])
            counts = [found.result(WAIT_S) for found in appending]
        assert projected(newer) == folded_anew(newer)
        assert len(projected(newer)["places"]) == sum(counts)
        newer.close()

    def test_erased_events_are_folded_when_a_store_gains_a_projection(self, store: Store, tmp_path: Path) -> None:
        """Of erased events the header is there to fold."""
        append(store, erased(new_event(payload=b"x")))
        store.close()
        newer = self.open_store(tmp_path, [Tally(), Places()])
        assert len(projected(newer)["places"]) == 1
        newer.close()


class StoreIntegrity(ChangedEvents, ChangedPayloads, ChangedSchema, TwoVersions):
    """Tests that change a store behind turnlog's back, or with another version of it."""
