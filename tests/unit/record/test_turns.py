"""Recording turns: parents, streams, bookmarks, expected heads, idempotent ids."""

import threading
from typing import Any

import pytest
from tests.facts import with_facts

from turnlog import Turn, TurnLog
from turnlog.errors import HeadConflictError, IdConflictError, MetaError, UnknownTurnError
from turnlog.ids import new_id
from turnlog.record import EventDraft, plan_event
from turnlog.record.append import META_BYTES_MAX
from turnlog.sources import Sources


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def _count(log: TurnLog) -> int:
    """Return the number of events. A log that has any has its genesis too."""
    return len(list(log.events()))


def _event(log: TurnLog, topic: str, meta: dict[str, Any] | None = None, id: str | None = None) -> str:
    draft = EventDraft(topic=topic, meta=meta or {}, id=id)
    payload = log.store.place(None)
    return log.store.write(lambda transaction: plan_event(transaction, draft, payload, Sources())).header.id


class TestParents:
    """What a turn continues."""

    def test_root_has_no_parents_and_starts_its_stream(self, log: TurnLog) -> None:
        """A turn without parents is position 0 of the stream that has its id."""
        root = log.add_turn("x")
        assert (root.continues, root.stream, root.position, root.global_position) == ((), root.id, 0, 2)

    def test_turn_after_the_last_of_a_stream_extends_it(self, log: TurnLog) -> None:
        """A linear run is one stream with positions from 0."""
        turns = [log.add_turn("0")]
        for number in range(1, 5):
            turns.append(log.add_turn(str(number), continues=turns[-1].id))
        assert [(turn.stream, turn.position) for turn in turns] == [(turns[0].id, number) for number in range(5)]

    def test_fork_starts_a_stream(self, log: TurnLog) -> None:
        """A second turn after the same parent is position 0 of a stream of its own."""
        root = log.add_turn("x")
        log.add_turn("a", continues=root.id)
        fork = log.add_turn("b", continues=root.id)
        assert (fork.stream, fork.position, fork.continues) == (fork.id, 0, (root.id,))

    def test_merge_extends_the_stream_of_its_first_parent(self, log: TurnLog) -> None:
        """The first parent decides the stream, and parents keep their order."""
        a, b = log.add_turn("a"), log.add_turn("b")
        merge = log.add_turn("m", continues=[b.id, a.id])
        assert (merge.stream, merge.position, merge.continues) == (b.stream, 1, (b.id, a.id))

    def test_merge_whose_first_parent_goes_on_starts_a_stream(self, log: TurnLog) -> None:
        """When the first parent is not the last of its stream, a merge is a fork."""
        a, b = log.add_turn("a"), log.add_turn("b")
        log.add_turn("c", continues=b.id)
        merge = log.add_turn("m", continues=[b.id, a.id])
        assert (merge.stream, merge.position) == (merge.id, 0)

    def test_parents_are_resolved_from_ids_in_either_case_and_from_bookmarks(self, log: TurnLog) -> None:
        """Whatever a caller wrote, ids in stored form are recorded."""
        a, b = log.add_turn("a", bookmark="Main"), log.add_turn("b")
        assert log.add_turn("m", continues=[b.id.upper(), "Main"]).continues == (b.id, a.id)

    def test_parent_named_twice_is_one(self, log: TurnLog) -> None:
        """By id and by bookmark, a turn is one parent, at its first place."""
        a, b = log.add_turn("a", bookmark="main"), log.add_turn("b")
        assert log.add_turn("m", continues=[a.id, b.id, "main", a.id.upper()]).continues == (a.id, b.id)

    def test_parents_are_cited_with_their_digests(self, log: TurnLog) -> None:
        """A turn's event names the digest of each parent."""
        a, b = log.add_turn("a"), log.add_turn("b")
        log.add_turn("m", continues=[a.id, b.id])
        *_, merge = log.events()
        assert [(p.id, p.digest) for p in merge.header.parents] == [(a.id, a.digest), (b.id, b.digest)]

    @pytest.mark.parametrize("respond", [False, True])
    def test_unknown_parent_is_refused(self, log: TurnLog, respond: bool) -> None:
        """There are no dangling turns: neither an unknown id nor an unknown name is continued, nor nothing at all."""
        with pytest.raises(UnknownTurnError) as caught:
            log.add_turn("x", respond=respond, continues=None if respond else new_id())
        assert caught.value.headish
        assert _count(log) == 0

    def test_unknown_second_parent_is_refused_with_nothing_written(self, log: TurnLog) -> None:
        """One unknown parent among known ones refuses the turn."""
        a = log.add_turn("a", bookmark="main")
        with pytest.raises(UnknownTurnError, match="'nope'"):
            log.add_turn("x", continues=[a.id, "nope"])
        assert _count(log) == 2
        assert _heads(log) == {"main": a.id}

    def test_turn_cannot_continue_itself(self, log: TurnLog) -> None:
        """A cycle cannot be stored: a turn's own id is unknown until it is recorded."""
        own = new_id()
        with pytest.raises(UnknownTurnError):
            log.add_turn("x", id=own, continues=own)
        assert _count(log) == 0

    def test_event_that_is_no_turn_is_no_parent(self, log: TurnLog) -> None:
        """Only turns are continued."""
        event = _event(log, "acme.note")
        with pytest.raises(UnknownTurnError, match=r"acme\.note"):
            log.add_turn("x", continues=event)

    def test_respond_continues_the_last_turn_of_the_log(self, log: TurnLog) -> None:
        """The turn that was recorded last, in whatever thread, is continued; other events are passed over."""
        log.add_turn("a")
        last = log.add_turn("b")
        _event(log, "acme.note")
        assert log.add_turn("c", respond=True).continues == (last.id,)


class TestBookmarks:
    """Which bookmark a turn moves."""

    @pytest.mark.parametrize("role", ["user", "assistant", "system"])
    def test_turn_after_a_head_moves_the_bookmark(self, log: TurnLog, role: str) -> None:
        """A bookmark is inherited by the next turn, whoever speaks, and stored on it."""
        root = log.add_turn("x", bookmark="main")
        turn = log.add_turn("y", role=role, continues=root.id)
        assert turn.meta.head == "main"
        assert _heads(log) == {"main": turn.id}

    def test_document_moves_the_bookmark_too(self, log: TurnLog, tmp_path: Any) -> None:
        """Documents inherit as turns do."""
        (tmp_path / "a.txt").write_text("x")
        log.add_turn("x", bookmark="main")
        document = log.add_document(tmp_path / "a.txt", continues="main")
        assert _heads(log) == {"main": document.id}

    def test_fork_from_an_older_turn_moves_nothing(self, log: TurnLog) -> None:
        """Only the head passes its bookmark on."""
        root = log.add_turn("x", bookmark="main")
        head = log.add_turn("y", continues=root.id)
        fork = log.add_turn("z", continues=root.id)
        assert fork.meta.head is None
        assert _heads(log) == {"main": head.id}

    def test_turn_after_an_unmarked_turn_moves_nothing(self, log: TurnLog) -> None:
        """Without a bookmark at the parent there is none to move."""
        root = log.add_turn("x")
        assert log.add_turn("y", continues=root.id).meta.head is None
        assert _heads(log) == {}

    def test_none_leaves_the_bookmark_where_it_is(self, log: TurnLog) -> None:
        """A turn may name no bookmark."""
        root = log.add_turn("x", bookmark="main")
        turn = log.add_turn("y", continues="main", bookmark=False)
        assert turn.meta.head is None
        assert _heads(log) == {"main": root.id}
        assert log.add_turn("z", continues=turn.id).meta.head is None

    def test_another_name_leaves_the_bookmark_where_it_is(self, log: TurnLog) -> None:
        """A turn that names another bookmark moves that one only."""
        root = log.add_turn("x", bookmark="main")
        turn = log.add_turn("y", continues="main", bookmark="other")
        assert _heads(log) == {"main": root.id, "other": turn.id}

    def test_bookmark_can_be_taken_from_another_thread(self, log: TurnLog) -> None:
        """Naming an existing bookmark moves it, wherever it was."""
        log.add_turn("x", bookmark="main")
        other = log.add_turn("y", bookmark="main")
        assert _heads(log) == {"main": other.id}

    def test_first_parent_decides(self, log: TurnLog) -> None:
        """With several parents the first one's bookmark moves and the others stay."""
        a, b = log.add_turn("a", bookmark="a"), log.add_turn("b", bookmark="b")
        merge = log.add_turn("m", continues=[b.id, a.id])
        assert _heads(log) == {"a": a.id, "b": merge.id}

    def test_second_parent_is_not_asked(self, log: TurnLog) -> None:
        """When the first parent is no head, no bookmark moves, even if the second one is."""
        a, b = log.add_turn("a"), log.add_turn("b", bookmark="b")
        assert log.add_turn("m", continues=[a.id, b.id]).meta.head is None
        assert _heads(log) == {"b": b.id}

    def test_respond_inherits(self, log: TurnLog) -> None:
        """Responding to a head moves its bookmark."""
        log.add_turn("x", bookmark="main")
        turn = log.add_turn("y", respond=True)
        assert _heads(log) == {"main": turn.id}

    def test_name_that_was_continued_moves_among_several(self, log: TurnLog) -> None:
        """Of several bookmarks at one turn the one that the caller continued by name moves."""
        root = log.add_turn("x", bookmark="a")
        log.bookmarks.set("b", root.id)
        log.bookmarks.set("c", root.id)
        turn = log.add_turn("y", continues="b")
        assert _heads(log) == {"a": root.id, "b": turn.id, "c": root.id}

    def test_name_that_the_parent_moved_comes_next(self, log: TurnLog) -> None:
        """When continued by id, the bookmark that the parent itself moved is preferred."""
        root = log.add_turn("x", bookmark="a")
        log.bookmarks.set("b", root.id)
        turn = log.add_turn("y", continues=root.id)
        assert _heads(log) == {"a": turn.id, "b": root.id}

    def test_name_that_was_moved_last_comes_then(self, log: TurnLog) -> None:
        """Else the bookmark that was put there last moves."""
        root = log.add_turn("x")
        log.bookmarks.set("a", root.id)
        log.bookmarks.set("c", root.id)
        log.bookmarks.set("b", root.id)
        turn = log.add_turn("y", continues=root.id)
        assert _heads(log) == {"a": root.id, "b": turn.id, "c": root.id}

    def test_deleted_and_renamed_bookmarks_are_inherited_as_they_are_now(self, log: TurnLog) -> None:
        """What counts is where bookmarks are when the turn is recorded, not what the parent says."""
        root = log.add_turn("x", bookmark="old")
        log.bookmarks.rename("old", "new")
        turn = log.add_turn("y", continues=root.id)
        assert turn.meta.head == "new"
        log.bookmarks.delete("new")
        assert log.add_turn("z", continues=turn.id).meta.head is None


class TestExpectedHead:
    """Compare-and-set of bookmarks."""

    def test_right_expectation_is_met(self, log: TurnLog) -> None:
        """The turn is recorded when the bookmark is where it was expected, in either case of the id."""
        root = log.add_turn("x", bookmark="main", expected_head=False)
        turn = log.add_turn("y", continues="main", expected_head=root.id.upper())
        assert _heads(log) == {"main": turn.id}

    @pytest.mark.parametrize("inherit", [True, False])
    def test_stale_expectation_raises_and_writes_nothing(self, log: TurnLog, inherit: bool) -> None:
        """A bookmark that has moved on is reported with both places."""
        root = log.add_turn("x", bookmark="main")
        head = log.add_turn("y", continues="main")
        with pytest.raises(HeadConflictError) as caught:
            log.add_turn("z", continues="main", expected_head=root.id, bookmark=None if inherit else "main")
        assert (caught.value.bookmark, caught.value.expected, caught.value.actual) == ("main", root.id, head.id)
        assert _count(log) == 3
        assert _heads(log) == {"main": head.id}

    def test_bookmark_that_should_not_exist_raises(self, log: TurnLog) -> None:
        """None expects that there is no such bookmark yet."""
        root = log.add_turn("x", bookmark="main")
        with pytest.raises(HeadConflictError) as caught:
            log.add_turn("y", bookmark="main", expected_head=False)
        assert (caught.value.expected, caught.value.actual) == (None, root.id)
        assert _count(log) == 2

    def test_bookmark_that_should_exist_raises(self, log: TurnLog) -> None:
        """An expected turn and no bookmark is a conflict."""
        root = log.add_turn("x")
        with pytest.raises(HeadConflictError) as caught:
            log.add_turn("y", continues=root.id, bookmark="main", expected_head=root.id)
        assert (caught.value.bookmark, caught.value.actual) == ("main", None)
        assert _count(log) == 2

    def test_turn_that_moves_no_bookmark_cannot_meet_an_expectation(self, log: TurnLog) -> None:
        """Continuing from a stale parent with an expected head is the conflict that it was made for."""
        root = log.add_turn("x", bookmark="main")
        log.add_turn("y", continues="main")
        with pytest.raises(HeadConflictError) as caught:
            log.add_turn("z", continues=root.id, expected_head=root.id)
        assert (caught.value.bookmark, caught.value.actual) == (None, None)
        assert _count(log) == 3

    def test_one_of_many_racing_callers_wins(self, file_log: TurnLog) -> None:
        """Of eight threads that expect the same head one records its turn and seven are told."""
        root = file_log.add_turn("x", bookmark="main")
        barrier = threading.Barrier(8)
        outcomes: list[Turn | HeadConflictError] = []

        def add(name: int) -> None:
            barrier.wait()
            try:
                outcomes.append(file_log.add_turn(str(name), continues=root.id, bookmark="main", expected_head=root.id))
            except HeadConflictError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=add, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [outcome for outcome in outcomes if isinstance(outcome, Turn)]
        assert len(outcomes) == 8
        assert len(winners) == 1
        assert _heads(file_log) == {"main": winners[0].id}
        assert _count(file_log) == 3


class TestIdempotence:
    """The same turn again under its id."""

    def test_same_turn_again_is_the_stored_one(self, log: TurnLog) -> None:
        """Recording twice under one id records once, and returns the same."""
        own = new_id()
        first = log.add_turn("x", id=own, bookmark="main", servers=["a"], cache=True)
        again = log.add_turn("x", id=own.upper(), bookmark="main", servers=["a"], cache=True)
        assert again == first
        assert first.id == own
        assert _count(log) == 2

    def test_same_turn_again_after_the_log_moved_on(self, log: TurnLog) -> None:
        """A retry is seen from where the turn was recorded: bookmarks that moved since do not matter."""
        log.add_turn("r", bookmark="main")
        own = new_id()
        given: dict[str, Any] = {"continues": "main", "id": own}
        first = log.add_turn("x", **given)
        log.add_turn("y", continues="main")
        log.add_turn("z", bookmark="main")
        assert log.add_turn("x", **given) == first
        log.bookmarks.rename("main", "other")
        assert log.add_turn("x", **given) == first
        log.bookmarks.delete("other")
        assert log.add_turn("x", **given) == first

    def test_bookmark_that_was_renamed_before_is_followed_back(self, log: TurnLog) -> None:
        """The name that a turn continued is looked up as it was then, through renames, sets and deletes."""
        root = log.add_turn("r", bookmark="a")
        log.add_turn("unrelated", bookmark="b")
        log.bookmarks.delete("b")
        log.bookmarks.rename("a", "b")
        own = new_id()
        first = log.add_turn("x", continues="b", id=own, bookmark=False)
        assert first.continues == (root.id,)
        log.bookmarks.delete("b")
        log.add_turn("later", bookmark="b")
        assert log.add_turn("x", continues="b", id=own, bookmark=False) == first
        with pytest.raises(IdConflictError, match="continues"):
            log.add_turn("x", continues="a", id=own, bookmark=False)

    def test_retry_with_respond_after_the_log_moved_on(self, log: TurnLog) -> None:
        """The last turn is the one that was last then."""
        log.add_turn("r")
        own = new_id()
        first = log.add_turn("x", respond=True, id=own)
        log.add_turn("y")
        assert log.add_turn("x", respond=True, id=own) == first

    def test_retry_may_name_parents_otherwise(self, log: TurnLog) -> None:
        """By id, by bookmark or by respond: the same parents are the same turn."""
        root = log.add_turn("r", bookmark="main")
        own = new_id()
        first = log.add_turn("x", continues="main", id=own)
        assert log.add_turn("x", continues=root.id.upper(), id=own) == first
        assert log.add_turn("x", continues=[root.id, "main"], id=own, bookmark="main") == first
        assert log.add_turn("x", respond=True, id=own) == first

    def test_retry_is_not_asked_for_its_expected_head(self, log: TurnLog) -> None:
        """A turn that was recorded under an expectation is the same turn although the bookmark has moved by itself."""
        root = log.add_turn("r", bookmark="main")
        own = new_id()
        first = log.add_turn("x", continues="main", id=own, expected_head=root.id)
        assert log.add_turn("x", continues="main", id=own, expected_head=root.id) == first

    def test_options_in_another_form_are_the_same(self, log: TurnLog) -> None:
        """Tuples for lists and another key order make no other turn."""
        own = new_id()
        first = log.add_turn("x", id=own, inherited={"a": ("b",), "c": {"d": 1, "e": 2}}, servers=("s",))
        again = log.add_turn("x", id=own, inherited={"c": {"e": 2, "d": 1}, "a": ["b"], "servers": ["s"]})
        assert again == first

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"content": "y"}, "content"),
            ({"role": "assistant"}, "metadata"),
            ({"servers": ["b"]}, "metadata"),
            ({"inherited": {"n": True}}, "metadata"),
            ({"inherited": {"n": 1.0}}, "metadata"),
            ({"cache": True}, "metadata"),
            ({"model": "m"}, "metadata"),
            ({"usage": {"input_tokens": 1}}, "metadata"),
            ({"stop_reason": "end_turn"}, "metadata"),
            ({"bookmark": "other"}, "bookmark"),
            ({"bookmark": False}, "bookmark"),
            ({"continues": None}, "continues"),
            ({"continues": "nope"}, "continues"),
            ({"continues": ["main", "side"]}, "continues"),
        ],
        ids=str,
    )
    def test_another_turn_under_the_id_is_refused(self, log: TurnLog, change: dict[str, Any], what: str) -> None:
        """Whatever differs is named, and nothing is written."""
        log.add_turn("r", bookmark="main")
        log.add_turn("s", bookmark="side")
        own = new_id()
        given: dict[str, Any] = {"content": "x", "id": own, "continues": "main", "inherited": {"n": 1}}
        log.add_turn(**given)
        with pytest.raises(IdConflictError, match=what) as caught:
            log.add_turn(**with_facts(given | change))
        assert caught.value.event_id == own
        assert _count(log) == 4

    def test_id_of_another_event_is_taken(self, log: TurnLog) -> None:
        """A turn cannot have the id of an event of another topic."""
        event = _event(log, "acme.note")
        with pytest.raises(IdConflictError, match=r"acme\.note"):
            log.add_turn("x", id=event)

    def test_racing_retries_record_once(self, file_log: TurnLog) -> None:
        """Eight threads with the same turn and id all get the one stored turn."""
        own = new_id()
        barrier = threading.Barrier(8)
        turns: list[Turn] = []

        def add() -> None:
            barrier.wait()
            turns.append(file_log.add_turn("x", id=own, bookmark="main"))

        threads = [threading.Thread(target=add) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(turns) == 8
        assert all(turn == turns[0] for turn in turns)
        assert _count(file_log) == 2


class TestOtherEvents:
    """Events of other topics."""

    def test_event_is_a_stream_of_its_own(self, log: TurnLog) -> None:
        """An event that is no turn has no parents and is position 0 of its stream."""
        event_id = _event(log, "acme.note", {"b": 1, "a": None})
        _, recorded = log.events()
        assert (recorded.header.id, recorded.header.stream, recorded.header.position) == (event_id, event_id, 0)
        assert recorded.private is not None
        assert bytes(recorded.private.meta) == b'{"a":null,"b":1}'
        assert recorded.header.citations == []
        assert log.threads() == []

    def test_same_event_again_is_the_stored_one(self, log: TurnLog) -> None:
        """Other events are idempotent by id too."""
        own = _event(log, "acme.note", {"a": 1}, new_id())
        assert _event(log, "acme.note", {"a": 1}, own) == own
        assert _count(log) == 2
        for topic, meta in (("acme.note", {"a": 2}), ("acme.other", {"a": 1})):
            with pytest.raises(IdConflictError):
                _event(log, topic, meta, own)

    def test_id_of_a_turn_is_taken(self, log: TurnLog) -> None:
        """An event cannot have the id of a turn."""
        with pytest.raises(IdConflictError):
            _event(log, "acme.note", id=log.add_turn("x").id)


def test_metadata_has_a_largest_size(log: TurnLog) -> None:
    """Metadata beyond 1 MiB is refused with nothing written; just below it is recorded."""
    with pytest.raises(MetaError, match="limit") as caught:
        log.add_turn("x", inherited={"a": "b" * META_BYTES_MAX})
    assert caught.value.field == "meta"
    assert _count(log) == 0
    log.add_turn("x", inherited={"a": "b" * (META_BYTES_MAX - 200)})
    assert _count(log) == 2
