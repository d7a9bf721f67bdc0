"""What `TurnLog` promises about the shape of a log: forks, merges, threads, children, bookmarks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from turnlog import Turn, TurnLog
from turnlog.errors import (
    BookmarkExistsError,
    HeadConflictError,
    MetaError,
    UnknownBookmarkError,
    UnknownTurnError,
)
from turnlog.ids import new_id
from turnlog.testing.harness import LogHarness, heads


def ids(turns: list[Turn]) -> list[str]:
    """Return the ids of turns."""
    return [turn.id for turn in turns]


class LogBranching(LogHarness):
    """Tests of continuing, reading back, and bookmark events."""

    # Streams

    def test_linear_run_is_one_stream(self, log: TurnLog) -> None:
        """Turns that each continue the last one share a stream, at positions 0, 1, 2."""
        turns = [log.add_turn("a", bookmark="m"), log.add_turn("b", continues="m"), log.add_turn("c", continues="m")]
        assert [(turn.stream, turn.position) for turn in turns] == [
            (turns[0].id, 0),
            (turns[0].id, 1),
            (turns[0].id, 2),
        ]
        assert [turn.global_position for turn in turns] == [2, 3, 4]

    def test_fork_starts_a_stream_of_its_own(self, log: TurnLog) -> None:
        """A turn that continues one that was continued before starts a stream, named by itself."""
        root = log.add_turn("root")
        log.add_turn("a", continues=root.id)
        fork = log.add_turn("b", continues=root.id)
        assert (fork.stream, fork.position, fork.continues) == (fork.id, 0, (root.id,))

    def test_merge_extends_the_stream_of_its_first_parent(self, log: TurnLog) -> None:
        """A merge stands in the stream of its first parent."""
        a, b = log.add_turn("a"), log.add_turn("b")
        merge = log.add_turn("c", continues=[b.id, a.id])
        assert (merge.stream, merge.position, merge.continues) == (b.id, 1, (b.id, a.id))

    def test_parent_that_is_named_twice_is_one(self, log: TurnLog) -> None:
        """The same parent by id and by bookmark is one parent."""
        root = log.add_turn("a", bookmark="main")
        assert log.add_turn("b", continues=[root.id, "main", root.id.upper()]).continues == (root.id,)

    def test_digest_commits_to_the_parents(self, log: TurnLog) -> None:
        """An event cites its parents with their digests."""
        a, b = log.add_turn("a"), log.add_turn("b")
        merge = log.add_turn("c", continues=[a.id, b.id])
        header = log.event(merge.id).header
        assert [(cited.relation, cited.id, cited.digest) for cited in header.citations] == [
            ("parent", a.id, a.digest),
            ("parent", b.id, b.digest),
        ]
        assert [parent.id for parent in header.parents] == list(merge.continues)
        assert [recorded.digest for recorded in log.events(1)] == [a.digest, b.digest, merge.digest]

    # Ancestry and children

    def test_ancestry_is_oldest_first(self, log: TurnLog) -> None:
        """The ancestry of a linear run is the run."""
        turns = [log.add_turn("0", bookmark="m")] + [log.add_turn(str(n), continues="m") for n in range(1, 50)]
        assert log.ancestry("m") == turns
        assert log.ancestry(turns[20].id) == turns[:21]

    def test_ancestry_of_a_merge_is_depth_first(self, log: TurnLog) -> None:
        """A merge reads the first parent's ancestry, the first parent, then the second's, as listed."""
        doc1 = log.add_turn("doc1")
        doc1b = log.add_turn("doc1b", continues=doc1.id)
        doc2 = log.add_turn("doc2")
        doc2b = log.add_turn("doc2b", continues=doc2.id)
        forward = log.add_turn("forward", continues=[doc1b.id, doc2b.id], bookmark=False)
        backward = log.add_turn("backward", continues=[doc2b.id, doc1b.id])
        assert ids(log.ancestry(forward.id)) == ids([doc1, doc1b, doc2, doc2b, forward])
        assert ids(log.ancestry(backward.id)) == ids([doc2, doc2b, doc1, doc1b, backward])

    def test_diamond_holds_each_turn_once(self, log: TurnLog) -> None:
        """A turn that is reached twice stands where it is reached first."""
        root = log.add_turn("root")
        left = log.add_turn("left", continues=root.id)
        right = log.add_turn("right", continues=root.id)
        merge = log.add_turn("merge", continues=[right.id, left.id])
        last = log.add_turn("last", continues=[merge.id, root.id, left.id])
        assert ids(log.ancestry(last.id)) == ids([root, right, left, merge, last])

    def test_children_are_in_global_order(self, log: TurnLog) -> None:
        """The children of a turn are those that continue it, as first parent or further one, oldest first."""
        root, other = log.add_turn("root"), log.add_turn("other")
        a = log.add_turn("a", continues=root.id)
        b = log.add_turn("b", continues=[other.id, root.id])
        c = log.add_turn("c", continues=root.id)
        assert log.children(root.id) == [a, b, c]
        assert log.children(other.id) == [b]
        assert log.children(c.id) == []

    def test_unknown_headish_raises(self, log: TurnLog) -> None:
        """Every question about a turn that is not there raises, and says what was asked for."""
        log.add_turn("x")
        for headish in (new_id(), "nowhere", ""):
            for ask in (log.turn, log.ancestry, log.children, log.thread, log.payload, log.context):
                with pytest.raises(UnknownTurnError) as caught:
                    ask(headish)
                assert caught.value.headish == headish

    # Threads

    def test_thread_holds_all_that_grows_from_its_root(self, log: TurnLog) -> None:
        """A thread counts its turns, and names its heads, its bookmarks and when it began and last grew."""
        root = log.add_turn("root", bookmark="main")
        a = log.add_turn("a", continues="main")
        fork = log.add_turn("b", continues=root.id, bookmark="fork")
        [thread] = log.threads()
        assert (thread.id, thread.turns, thread.heads, thread.bookmarks) == (
            root.id,
            3,
            (a.id, fork.id),
            ("fork", "main"),
        )
        assert (thread.started, thread.last) == (root.time.isoformat(), fork.time.isoformat())
        assert log.thread(a.id) == log.thread("fork") == [root, a, fork]

    def test_thread_with_the_latest_activity_is_last(self, log: TurnLog) -> None:
        """Threads are ordered by the turn that was recorded last in each."""
        a, b = log.add_turn("a"), log.add_turn("b")
        assert [thread.id for thread in log.threads()] == [a.id, b.id]
        log.add_turn("a2", continues=a.id)
        assert [thread.id for thread in log.threads()] == [b.id, a.id]

    def test_merge_belongs_to_the_threads_of_all_parents(self, log: TurnLog) -> None:
        """A merge, and what grows from it, counts in every thread that it joins; what came before does not."""
        a = log.add_turn("a")
        b = log.add_turn("b")
        b2 = log.add_turn("b2", continues=b.id)
        merge = log.add_turn("merge", continues=[b2.id, a.id])
        last = log.add_turn("last", continues=merge.id)
        fork = log.add_turn("fork", continues=b2.id)
        threads = {thread.id: (thread.turns, thread.heads) for thread in log.threads()}
        assert threads == {a.id: (3, (last.id,)), b.id: (5, (last.id, fork.id))}
        assert ids(log.thread(a.id)) == ids([a, merge, last])
        assert ids(log.thread(merge.id)) == ids([a, b, b2, merge, last, fork])

    # Bookmark events

    def test_set_bookmark_points_anywhere(self, log: TurnLog) -> None:
        """A bookmark is set at any turn, by id or by another bookmark, and moved back as well as on."""
        root = log.add_turn("root", bookmark="main")
        head = log.add_turn("next", continues="main")
        assert log.bookmarks.set("copy", "main").turn == head.id
        assert log.bookmarks.set("main", root.id.upper()).turn == root.id
        assert heads(log) == {"copy": head.id, "main": root.id}
        assert log.add_turn("again", continues="main").continues == (root.id,)

    def test_set_bookmark_with_a_stale_expected_head_raises(self, log: TurnLog) -> None:
        """Setting a bookmark is compare-and-set on demand: a stale one raises and writes nothing."""
        root = log.add_turn("root", bookmark="main")
        head = log.add_turn("next", continues="main")
        for expected in (root.id, False):
            with pytest.raises(HeadConflictError):
                log.bookmarks.set("main", root.id, expected_head=expected)
        assert heads(log) == {"main": head.id}
        log.bookmarks.set("main", root.id, expected_head=head.id)
        log.bookmarks.set("new", root.id, expected_head=False)
        assert heads(log) == {"main": root.id, "new": root.id}

    def test_rename_bookmark_keeps_its_head(self, log: TurnLog) -> None:
        """A renamed bookmark stays where it is, and turns move it under its new name."""
        root = log.add_turn("root", bookmark="main")
        log.bookmarks.rename("main", "trunk")
        assert heads(log) == {"trunk": root.id}
        turn = log.add_turn("next", continues="trunk")
        assert turn.meta.head == "trunk"
        assert heads(log) == {"trunk": turn.id}

    def test_rename_bookmark_to_a_taken_name_raises(self, log: TurnLog) -> None:
        """A bookmark is not renamed onto another one, nor onto a name that none can have."""
        root = log.add_turn("root", bookmark="a")
        log.bookmarks.set("b", root.id)
        with pytest.raises(BookmarkExistsError) as caught:
            log.bookmarks.rename("a", "b")
        assert caught.value.name == "b"
        with pytest.raises(MetaError):
            log.bookmarks.rename("a", " ")
        assert heads(log) == {"a": root.id, "b": root.id}

    def test_delete_bookmark_keeps_the_turns(self, log: TurnLog) -> None:
        """A deleted bookmark is gone, its turns stay, and turns that continue its head move nothing."""
        root = log.add_turn("root", bookmark="main")
        log.bookmarks.delete("main")
        assert heads(log) == {}
        assert "head" not in log.add_turn("next", continues=root.id).to_record()["meta"]
        with pytest.raises(UnknownTurnError):
            log.add_turn("by name", continues="main")

    def test_unknown_bookmark_raises(self, log: TurnLog) -> None:
        """A bookmark that is not there can be neither renamed nor deleted."""
        with pytest.raises(UnknownBookmarkError):
            log.bookmarks.rename("a", "b")
        with pytest.raises(UnknownBookmarkError):
            log.bookmarks.delete("a")
        assert list(log.events()) == []

    # Many threads

    def test_threads_that_continue_one_bookmark_make_one_run(self, log: TurnLog) -> None:
        """Many threads that continue one bookmark at the same time make one linear run: no fork, none lost."""
        log.add_turn("root", bookmark="main")

        def add(n: int) -> Turn:
            return log.add_turn(f"turn {n}", continues="main")

        with ThreadPoolExecutor(8) as pool:
            turns = list(pool.map(add, range(100)))
        ancestry = log.ancestry("main")
        assert len(ancestry) == 101
        assert {turn.id for turn in turns} == set(ids(ancestry[1:]))
        assert [turn.position for turn in ancestry] == list(range(101))
        assert log.verify().clean

    def test_expected_head_has_one_winner(self, log: TurnLog) -> None:
        """Of many threads that expect the same head, exactly one moves the bookmark."""
        head = log.add_turn("root", bookmark="main").id
        for _ in range(10):

            def attempt(n: int, expected: str = head) -> Turn | None:
                try:
                    return log.add_turn(f"turn {n}", continues="main", expected_head=expected)
                except HeadConflictError:
                    return None

            with ThreadPoolExecutor(8) as pool:
                [head] = [turn.id for turn in pool.map(attempt, range(8)) if turn]
            assert heads(log) == {"main": head}
