"""What an engine promises to those who read: every question of `ReadTransaction`, asked about a small log."""

from __future__ import annotations

import pytest

from turnlog.digest import event_digest
from turnlog.ids import new_id
from turnlog.store import Store
from turnlog.testing.harness import StoreHarness, Tally, append, append_run, new_event


class StoreReads(StoreHarness):
    """Tests of `Store.read` and what it gives."""

    def test_empty_store_has_nothing(self, store: Store) -> None:
        """A fresh store answers every question with nothing, and is sound."""
        with store.read() as transaction:
            assert transaction.event(new_id()) is None
            assert transaction.at(new_id(), 0) is None
            assert transaction.stream(new_id(), 0, 10) == []
            assert transaction.stream_payloads(new_id(), 0, 10) == []
            assert list(transaction.log()) == []
            assert transaction.last("test.event") is None
        assert list(store.check()) == []
        assert store.stats().events == 0

    def test_event_is_found_by_id(self, store: Store) -> None:
        """An event is found by its id in stored form, with its exact bytes; an unknown id gives None."""
        [first, second] = append(store, new_event(store, meta={"ü": "\u2028"}), new_event(store))
        with store.read() as transaction:
            assert transaction.event(first.event.id) == first
            assert transaction.event(second.event.id) == second
            assert transaction.event(new_id()) is None
        assert first.digest == event_digest(first.state)

    def test_event_is_found_by_position(self, store: Store) -> None:
        """An event is found by stream and position; a position past the end gives None."""
        run = append_run(store, 3)
        stream = run[0].event.stream
        with store.read() as transaction:
            assert [transaction.at(stream, position) for position in range(4)] == [*run, None]
            assert transaction.at(run[1].event.id, 0) is None

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
            assert transaction.stream(run[0].event.stream, first, last) == run[found]
            assert transaction.stream_payloads(run[0].event.stream, first, last) == [(r, None) for r in run[found]]

    def test_streams_that_interleave_are_read_apart(self, store: Store) -> None:
        """Streams that grew in turns are each read in the order of their own positions."""
        ids = [new_id(), new_id()]
        for position in range(3):
            for stream in ids:
                event_id = stream if position == 0 else None
                append(store, new_event(store, id=event_id, stream=stream, position=position))
        with store.read() as transaction:
            for stream in ids:
                assert [r.event.position for r in transaction.stream(stream, 0, 9)] == [0, 1, 2]
            assert [r.event.stream for r in transaction.log()] == ids * 3

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
        appended = append(store, *(new_event(store, topic=topic) for topic in topics))
        with store.read() as transaction:
            assert list(transaction.log(topics=["b"])) == [appended[1], appended[4]]
            assert list(transaction.log(2, topics=["c", "a"])) == [appended[2], appended[3], appended[5]]
            assert list(transaction.log(topics=["d"])) == []
            assert list(transaction.log(topics=[])) == appended

    def test_long_log_is_read_whole(self, store: Store) -> None:
        """A log longer than any page that an engine reads at once comes back whole and in order."""
        appended = append(store, *(new_event(store) for _ in range(2501)))
        with store.read() as transaction:
            assert list(transaction.log()) == appended
            assert list(transaction.log(1500)) == appended[1500:]

    def test_log_can_be_left_early(self, store: Store) -> None:
        """A reader that stops in the middle of the log does not keep others from reading or writing."""
        append(store, *(new_event(store) for _ in range(10)))
        with store.read() as transaction:
            assert next(iter(transaction.log())).global_position == 1
        [last] = append(store, new_event(store))
        assert last.global_position == 11

    def test_last_of_a_topic(self, store: Store) -> None:
        """The last event of a topic is found, also of those before a global position."""
        appended = append(store, *(new_event(store, topic=topic) for topic in ("a", "b", "a", "b")))
        with store.read() as transaction:
            assert transaction.last("a") == appended[2]
            assert transaction.last("b", before=4) == appended[1]
            assert transaction.last("b", before=2) is None
            assert transaction.last("c") is None

    def test_read_that_raises_releases_its_snapshot(self, store: Store) -> None:
        """An error inside a read comes out unchanged and leaves the store usable."""
        with pytest.raises(ZeroDivisionError), store.read():
            raise ZeroDivisionError
        [recorded] = append(store, new_event(store))
        with store.read() as transaction:
            assert transaction.event(recorded.event.id) == recorded

    def test_scratch_has_empty_tables(self, store: Store) -> None:
        """A scratch database has the tables of the projections, empty, and keeps nothing."""
        append(store, new_event(store))
        for _ in range(2):
            with store.scratch() as scratch:
                assert scratch.rows("SELECT * FROM tally") == []
                scratch.run("INSERT INTO tally VALUES (?, ?)", ("x", 1))
                assert scratch.rows("SELECT * FROM tally") == [("x", 1)]

    def test_projections_are_those_it_was_opened_with(self, store: Store) -> None:
        """A store names its projections, in the order in which they fold."""
        assert [type(projection) for projection in store.projections] == [Tally]
