"""What an engine promises to those who read: every question of `ReadTransaction`, asked about a small log."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from turnlog.digest import event_digest, payload_hash, sri_bytes
from turnlog.errors import CorruptionError
from turnlog.events import Arrival
from turnlog.ids import new_id
from turnlog.projections import synchronous
from turnlog.store import Placement, Store
from turnlog.testing.harness import StoreHarness, Tally, append, append_run, folded_anew, new_event, projected


class StoreReads(StoreHarness):
    """Tests of `Store.read` and what it gives."""

    def test_empty_store_has_nothing(self, store: Store) -> None:
        """A fresh store answers every question with nothing, and is sound."""
        with store.read() as transaction:
            assert transaction.event(new_id()) is None
            assert transaction.at(new_id(), 0) is None
            assert transaction.stream(new_id(), 0, 10) == []
            assert list(transaction.stream_payloads(new_id(), 0, 10)) == []
            assert list(transaction.log()) == []
            assert list(transaction.log_backwards(99, topics=["test.event"])) == []
            assert transaction.log_end() == 0
            assert transaction.at_global(1) is None
            assert transaction.genesis() is None
            assert transaction.last("test.event") is None
            assert transaction.topics() == {}
            assert transaction.rare_topics() == []
            assert transaction.count_in([new_id()]) == 0
            assert transaction.stored_rows(0, 10) == []
            assert not transaction.has_file(bytes(32))
            with pytest.raises(CorruptionError):
                transaction.stream_end(new_id())
        assert list(store.check()) == []
        assert store.check_schema() == []
        assert store.unread() == []
        assert store.stats().events == 0

    def test_event_is_found_by_id(self, store: Store) -> None:
        """An event is found by its id in stored form, with its exact bytes; an unknown id gives None."""
        [first, second] = append(store, new_event(public={"ü": "\u2028"}), new_event())
        with store.read() as transaction:
            assert transaction.event(first.header.id) == first
            assert transaction.event(second.header.id) == second
            assert transaction.event(new_id()) is None
        assert first.digest == event_digest(first.state)

    def test_private_part_comes_back_as_it_was_given(self, store: Store) -> None:
        """Header and private part are given back byte for byte, and what the latter says of the payload."""
        event = new_event(payload=b"x", private={"ü": [1.5, "\u2028"]}, public={"b": 1, "a": None})
        [recorded] = append(store, event, payload=b"x")
        with store.read() as transaction:
            found = transaction.event(event.header.id)
        assert found is not None
        assert found == recorded
        assert (found.state, found.private_state, found.leaf_hash) == (
            event.state,
            event.private_state,
            event.leaf_hash,
        )
        assert (found.hash, found.size) == (payload_hash(b"x"), 1)
        assert not found.erased

    def test_ids_are_found_by_their_beginning_and_beside_each_other(self, store: Store) -> None:
        """In the order of ids, and of one topic alone."""
        run = append_run(store, 3)
        ids = sorted(recorded.header.id for recorded in run)
        topic = run[0].header.topic
        shared = ids[0][:4]
        with store.read() as transaction:
            assert transaction.ids_beginning(shared, topic=topic, limit=9) == ids
            assert transaction.ids_beginning(shared, topic=topic, limit=2) == ids[:2]
            assert transaction.ids_beginning(ids[1], topic=topic, limit=9) == ids[1:2]
            assert transaction.ids_beginning(shared, topic="other", limit=9) == []
            assert [transaction.ids_beside(own_id, topic=topic) for own_id in ids] == [ids[1:2], ids[::2], ids[1:2]]
            assert transaction.ids_beside(ids[1], topic="other") == []

    def test_event_is_found_by_position(self, store: Store) -> None:
        """An event is found by stream and position; a position past the end gives None."""
        run = append_run(store, 3)
        stream = run[0].header.stream
        with store.read() as transaction:
            assert [transaction.at(stream, position) for position in range(4)] == [*run, None]
            assert transaction.at(run[1].header.id, 0) is None

    def test_event_is_found_by_global_position(self, store: Store) -> None:
        """An event is found by its place in the log; before the first and past the last there is none."""
        run = append_run(store, 3)
        with store.read() as transaction:
            assert [transaction.at_global(at) for at in range(5)] == [None, *run, None]
            assert transaction.genesis() == run[0]
            assert transaction.log_end() == 3

    def test_end_of_a_stream_is_its_last_event(self, store: Store) -> None:
        """The last event of a stream is found, however many there are."""
        one, three = append_run(store, 1), append_run(store, 3)
        with store.read() as transaction:
            assert transaction.stream_end(one[0].header.stream) == one[0]
            assert transaction.stream_end(three[0].header.stream) == three[2]

    def test_ends_of_streams_are_located(self, store: Store) -> None:
        """Of any number of streams; one that there is none of is an error."""
        runs = [append_run(store, 1) for _ in range(600)] + [append_run(store, 3)]
        with store.read() as transaction:
            assert transaction.stream_ends([]) == {}
            found = transaction.stream_ends([run[0].header.stream for run in runs])
            with pytest.raises(CorruptionError, match="the end of stream 'unknown' cannot be found"):
                transaction.stream_ends([runs[0][0].header.stream, "unknown"])
        assert found == {
            end.header.stream: (end.header.id, end.header.stream, end.header.position, end.global_position)
            for *_, end in runs
        }

    def test_events_are_located_by_their_ids(self, store: Store) -> None:
        """Of any number of events; unknown ones are left out."""
        run = append_run(store, 1_200)
        with store.read() as transaction:
            assert transaction.located([]) == {}
            found = transaction.located([*(event.header.id for event in run), new_id()])
        assert found == {
            event.header.id: (event.header.id, event.header.stream, event.header.position, event.global_position)
            for event in run
        }

    @pytest.mark.parametrize(
        ("first", "last", "found"),
        [
            (0, 4, slice(0, 5)),
            (1, 3, slice(1, 4)),
            (2, 2, slice(2, 3)),
            (3, 99, slice(3, 5)),
            (5, 9, slice(0, 0)),
            (3, 2, slice(0, 0)),
        ],
    )
    def test_stream_range_includes_both_ends(self, store: Store, first: int, last: int, found: slice) -> None:
        """A range of a stream holds both its ends, in order, and stops where the stream stops."""
        run, _ = append_run(store, 5), append_run(store, 5)
        with store.read() as transaction:
            assert transaction.stream(run[0].header.stream, first, last) == run[found]
            assert list(transaction.stream_payloads(run[0].header.stream, first, last)) == [
                (r, None) for r in run[found]
            ]

    def test_a_long_stream_is_read_whole(self, store: Store) -> None:
        """However many events are read at once."""
        run = append_run(store, 2_100)
        stream = run[0].header.stream
        with store.read() as transaction:
            assert transaction.stream(stream, 0, 9_999) == run
            assert list(transaction.stream_payloads(stream, 0, 9_999)) == [(recorded, None) for recorded in run]
            for first, last in ((0, 255), (0, 256), (1, 257), (2_047, 2_099)):
                found = [recorded for recorded, _ in transaction.stream_payloads(stream, first, last)]
                assert found == run[first : last + 1]

    def test_streams_that_interleave_are_read_apart(self, store: Store) -> None:
        """Streams that grew in turns are each read in the order of their own positions."""
        ids = [new_id(), new_id()]
        for position in range(3):
            for stream in ids:
                event_id = stream if position == 0 else None
                append(store, new_event(id=event_id, stream=stream, position=position))
        with store.read() as transaction:
            for stream in ids:
                assert [r.header.position for r in transaction.stream(stream, 0, 9)] == [0, 1, 2]
            assert [r.header.stream for r in transaction.log()] == ids * 3

    def test_log_starts_after_a_global_position(self, store: Store) -> None:
        """The log gives the events above a global position, in order, and none past the end."""
        run = append_run(store, 5)
        with store.read() as transaction:
            assert list(transaction.log()) == run
            assert list(transaction.log(3)) == run[3:]
            assert list(transaction.log(5)) == []
            assert list(transaction.log(99)) == []

    def test_log_of_topics_holds_only_those(self, store: Store) -> None:
        """The log of some topics leaves the others out and keeps the global order; no topics means all."""
        topics = ["a", "b", "c", "a", "b", "c"]
        appended = append(store, *(new_event(topic=topic) for topic in topics))
        with store.read() as transaction:
            assert list(transaction.log(topics=["b"])) == [appended[1], appended[4]]
            assert list(transaction.log(2, topics=["c", "a"])) == [appended[2], appended[3], appended[5]]
            assert list(transaction.log(topics=["d"])) == []
            assert list(transaction.log(topics=[])) == appended

    def test_log_backwards_gives_the_last_first(self, store: Store) -> None:
        """The events of some topics below a global position come in reverse order, more than fit a page too."""
        appended = append(store, *(new_event(topic=f"t{number % 3}") for number in range(3300)))
        with store.read() as transaction:
            expected = [r for r in reversed(appended[:3000]) if r.header.topic in ("t0", "t2")]
            expected_of_one = [r for r in reversed(appended[:3000]) if r.header.topic == "t1"]
            assert list(transaction.log_backwards(3001, topics=["t0", "t2"])) == expected
            assert list(transaction.log_backwards(1, topics=["t0"])) == []
            assert list(transaction.log_backwards(3001, topics=["t1"])) == expected_of_one
            assert list(transaction.log_backwards(3001)) == appended[2999::-1]
            assert list(transaction.log_backwards(99, topics=["t9"])) == []

    def test_topics_are_counted(self, store: Store) -> None:
        """The number of events of each topic is told, for topics of turnlog and of others."""
        append(store, *(new_event(topic=topic) for topic in ("gpt.turn", "a", "gpt.turn", "gpt.call", "a", "a")))
        with store.read() as transaction:
            assert transaction.topics() == {"a": 3, "gpt.call": 1, "gpt.turn": 2}
            assert transaction.rare_topics() == ["a"]

    def test_events_of_streams_are_counted(self, store: Store) -> None:
        """Of any number of streams, also such as are not there."""
        runs = [append_run(store, 1 + number % 3) for number in range(9)]
        streams = [run[0].header.stream for run in runs]
        with store.read() as transaction:
            assert transaction.count_in([]) == 0
            assert transaction.count_in([new_id(), streams[4]]) == len(runs[4])
            assert transaction.count_in(dict.fromkeys([*streams, *(new_id() for _ in range(1_200))])) == 18

    def test_long_log_is_read_whole(self, store: Store) -> None:
        """A log longer than any page that an engine reads at once comes back whole and in order."""
        appended = append(store, *(new_event() for _ in range(2501)))
        with store.read() as transaction:
            assert list(transaction.log()) == appended
            assert list(transaction.log(1500)) == appended[1500:]

    def test_log_can_be_left_early(self, store: Store) -> None:
        """A reader that stops in the middle of the log does not keep others from reading or writing."""
        append(store, *(new_event() for _ in range(10)))
        with store.read() as transaction:
            assert next(iter(transaction.log())).global_position == 1
        [last] = append(store, new_event())
        assert last.global_position == 11

    def test_last_of_a_topic(self, store: Store) -> None:
        """The last event of a topic is found, also of those before a global position."""
        appended = append(store, *(new_event(topic=topic) for topic in ("a", "b", "a", "b")))
        with store.read() as transaction:
            assert transaction.last("a") == appended[2]
            assert transaction.last("b", before=4) == appended[1]
            assert transaction.last("b", before=2) is None
            assert transaction.last("c") is None

    def test_read_that_raises_releases_its_snapshot(self, store: Store) -> None:
        """An error inside a read comes out unchanged and leaves the store usable."""
        with pytest.raises(ZeroDivisionError), store.read():
            raise ZeroDivisionError
        [recorded] = append(store, new_event())
        with store.read() as transaction:
            assert transaction.event(recorded.header.id) == recorded

    # As it lies in the store

    def test_stored_rows_are_what_is_stored(self, store: Store) -> None:
        """Rows hold place, topic, bytes, leaf hash, arrival and private part as they lie in the store, in order."""
        stream = new_id()
        wanted = [
            new_event(id=stream, payload=b"x", private={"a": 1}),
            new_event(stream=stream, position=1, topic="other"),
        ]
        appended = append(store, wanted[0], payload=b"x") + append(store, wanted[1], arrival=Arrival.GUEST)
        with store.read() as transaction:
            rows = transaction.stored_rows(0, 10)
        assert [
            (
                row.global_position,
                row.stream,
                row.position,
                row.topic,
                row.state,
                row.event_id,
                row.leaf_hash,
                row.arrival,
                row.private,
            )
            for row in rows
        ] == [
            (
                recorded.global_position,
                recorded.header.stream,
                recorded.header.position,
                recorded.header.topic,
                recorded.state,
                recorded.header.id,
                recorded.leaf_hash,
                recorded.arrival,
                recorded.private_state,
            )
            for recorded in appended
        ]
        assert (rows[0].placement, rows[0].stored) == (Placement.INLINE, b"x")
        assert (rows[1].placement, rows[1].stored) == (Placement.NONE, None)

    def test_stored_rows_come_in_pages(self, store: Store) -> None:
        """At most `limit` rows above a global position are given, and none past the end."""
        append(store, *(new_event() for _ in range(10)))
        with store.read() as transaction:
            for after, limit, found in ((0, 3, [1, 2, 3]), (3, 100, [4, 5, 6, 7, 8, 9, 10]), (9, 1, [10]), (10, 9, [])):
                assert [row.global_position for row in transaction.stored_rows(after, limit)] == found

    @pytest.mark.parametrize("size", [None, 0, 1, 4096, 300_000])
    def test_verified_payload_is_the_payload(self, store: Store, size: int | None) -> None:
        """The payload of a stored row is checked and given with its size, wherever it is kept."""
        payload = None if size is None else random.Random(size).randbytes(size)
        [recorded] = append(store, new_event(payload=payload), payload=payload)
        with store.read() as transaction:
            [row] = transaction.stored_rows(0, 1)
            assert transaction.verified_payload(row, recorded) == (size or 0, payload)

    def test_verified_payload_is_checked_against_the_event(self, store: Store) -> None:
        """A payload that is not the one its event says is damage."""
        event, other = new_event(payload=b"one"), new_event(payload=b"two")
        [recorded] = append(store, event, payload=b"one")
        with store.read() as transaction:
            [row] = transaction.stored_rows(0, 1)
            with pytest.raises(CorruptionError) as caught:
                transaction.verified_payload(row, other)
            assert caught.value.global_position == recorded.global_position

    def test_has_file_tells_of_payloads_in_files(self, store: Store) -> None:
        """Whether a payload is kept in a file is told by its hash; of small ones, and of unknown ones, it is not."""
        large, small = random.Random(5).randbytes(200_000), b"small"
        [in_file] = append(store, new_event(payload=large), payload=large)
        append(store, new_event(payload=small), payload=small)
        with store.read() as transaction:
            [row, _] = transaction.stored_rows(0, 9)
            kept_in_a_file = row.placement in (Placement.FILE, Placement.FILE_ZSTD)
            assert transaction.has_file(sri_bytes(in_file.hash or "")) is kept_in_a_file
            assert not transaction.has_file(sri_bytes(payload_hash(small)))
            assert not transaction.has_file(bytes(32))

    # Scratch

    def test_scratch_has_empty_tables(self, store: Store) -> None:
        """A scratch database has the tables of the projections, empty, and keeps nothing."""
        append(store, new_event())
        for _ in range(2):
            with store.scratch() as scratch:
                assert scratch.rows("SELECT * FROM tally") == []
                scratch.run("INSERT INTO tally VALUES (?, ?)", ("x", 1))
                assert scratch.rows("SELECT * FROM tally") == [("x", 1)]

    def test_scratch_folds_into_the_same_rows(self, store: Store) -> None:
        """Events that are folded into a scratch database give the rows that were folded as they were recorded."""
        run = append_run(store, 3) + append(store, new_event(topic="other"))
        assert folded_anew(store) == projected(store) == {"tally": [("other", 1), ("test.event", 3)]}
        with store.scratch() as scratch:
            assert scratch.folded(run[0].header.id) is None
            for recorded in run[:2]:
                scratch.fold(recorded)
            second = run[1]
            assert scratch.folded(second.header.id) == (
                second.header.id,
                second.header.stream,
                second.header.position,
                second.leaf_hash,
                second.header.topic,
                second.global_position,
            )
            assert scratch.folded(run[2].header.id) is None

    def test_rows_are_given_one_by_one(self, store: Store) -> None:
        """`each` gives the rows of a result while other statements run in the same transaction."""
        append(store, *(new_event(topic=f"t{number}") for number in range(50)))
        with store.read() as transaction:
            for topic, events in transaction.each("SELECT topic, events FROM tally ORDER BY topic"):
                assert transaction.rows("SELECT events FROM tally WHERE topic = ?", (topic,)) == [(events,)]

    def test_projections_are_those_it_was_opened_with(self, store: Store, tmp_path: Path) -> None:
        """A store names its projections, in the order in which they fold."""
        assert [type(projection) for projection in store.projections] == [Tally]
        with closing(self.open_store(tmp_path / "all", synchronous())) as other:
            assert [projection.name for projection in other.projections] == [each.name for each in synchronous()]
