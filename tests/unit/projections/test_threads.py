"""The thread index."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.rewriting import rewrite

from turnlog import Turn, TurnLog
from turnlog.errors import CorruptionError
from turnlog.events import TURN
from turnlog.events.flaws import TIME_MS_MAX
from turnlog.model import Origin
from turnlog.projections import Thread, TurnFilter, belonging, synchronous, turns
from turnlog.projections.belonging import ThreadsInOrder, threads_of_turns
from turnlog.projections.turns import Link
from turnlog.sources import Sources
from turnlog.store import SQLTransaction, open_store
from turnlog.testing.harness import append, erased, folded_anew, projected

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _threads(log: TurnLog) -> dict[str, Thread]:
    return {thread.id: thread for thread in log.threads()}


def _thread(log: TurnLog, headish: str) -> list[str]:
    return [turn.id for turn in log.thread(headish)]


def test_empty_log_has_no_threads(log: TurnLog) -> None:
    """Without turns there are no threads."""
    assert log.threads() == []


def test_thread_counts_turns_heads_and_bookmarks(log: TurnLog) -> None:
    """A root and what grows from it, forks included, is one thread with its heads in global order."""
    root = log.add_turn("r", bookmark="b").id
    one = log.add_turn("1", continues=root).id
    two = log.add_turn("2", continues=root, bookmark="a").id
    one = log.add_turn("3", continues=one).id
    [thread] = log.threads()
    assert (thread.id, thread.turns, thread.heads, thread.bookmarks) == (root, 4, (two, one), ("a", "b"))


def _log_at(*times: datetime) -> TurnLog:
    """Open an empty log whose clock gives the first time for its genesis and then one after the other."""
    clock = iter([times[0], *times])
    sources = Sources(time_ms=lambda: (next(clock) - _EPOCH) // timedelta(milliseconds=1))
    return TurnLog(open_store("memory://", projections=synchronous()), sources=sources)


def test_times_are_those_of_the_first_and_the_last_turn() -> None:
    """The root's time starts a thread and the turn recorded last ends it, whatever their order in time."""
    times = [datetime(2025, 1, day, tzinfo=UTC) for day in (3, 5, 4)]
    with _log_at(*times) as log:
        root = log.add_turn("r")
        log.add_turn("1", continues=root.id)
        log.add_turn("2", continues=root.id)
        [thread] = log.threads()
    assert (thread.started, thread.last) == (times[0].isoformat(), times[2].isoformat())


def test_times_of_imported_turns_are_those_of_their_source() -> None:
    """A turn that was said elsewhere has the time that it had there, where its source says one that can be read."""
    recorded = datetime(2025, 1, 3, tzinfo=UTC)
    for timestamp, expected in (
        ("2024-05-06T07:08:09.123456+02:00", datetime(2024, 5, 6, 5, 8, 9, 123456, tzinfo=UTC)),
        ("2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("yesterday", recorded),
    ):
        with _log_at(recorded) as log:
            log.add_turn("x", origin=Origin(format="test", ids=[], timestamp=timestamp))
            [thread] = log.threads()
        assert (thread.started, thread.last) == (expected.isoformat(), expected.isoformat())


def test_time_beyond_the_calendar_is_listed() -> None:
    """The largest time that an event can have does not make the list of threads fail."""
    sources = Sources(time_ms=lambda: TIME_MS_MAX)
    with TurnLog(open_store("memory://", projections=synchronous()), sources=sources) as log:
        log.add_turn("x", id="f5lxx1zz5pnorynqglhzmsp33")
        [thread] = log.threads()
    assert thread.started.startswith("9999-12-31")


def test_latest_activity_is_last(log: TurnLog) -> None:
    """Threads are listed by their last turn in the log."""
    a, b, c = (log.add_turn(text).id for text in "abc")
    log.add_turn("x", continues=a)
    assert [thread.id for thread in log.threads()] == [b, c, a]


def test_merge_belongs_to_the_threads_of_all_parents(log: TurnLog) -> None:
    """A merge, and what grows from it, counts in both threads; neither has the other's turns before it."""
    a, b = log.add_turn("a", bookmark="a").id, log.add_turn("b", bookmark="b").id
    a1 = log.add_turn("a1", continues=a).id
    b1 = log.add_turn("b1", continues=b).id
    merge = log.add_turn("m", continues=[a1, b1]).id
    after = log.add_turn("n", continues=merge).id
    fork = log.add_turn("f", continues=merge).id
    a_only = log.add_turn("g", continues=a1).id
    threads = _threads(log)
    assert (threads[a].turns, threads[b].turns) == (6, 5)
    assert threads[a].heads == (after, fork, a_only)
    assert threads[b].heads == (after, fork)
    assert (threads[a].bookmarks, threads[b].bookmarks) == (("a",), ("a", "b"))
    assert _thread(log, a) == [a, a1, merge, after, fork, a_only]
    assert _thread(log, b) == [b, b1, merge, after, fork]
    assert _thread(log, after) == [a, b, a1, b1, merge, after, fork, a_only]


def test_fork_from_before_a_merge_does_not_join_the_other_thread(log: TurnLog) -> None:
    """A stream joins a thread in its middle: what forks from before that point stays out."""
    a, b = log.add_turn("a").id, log.add_turn("b").id
    a1 = log.add_turn("a1", continues=a).id
    merge = log.add_turn("m", continues=[a1, b]).id
    early = log.add_turn("e", continues=a).id
    assert _thread(log, b) == [b, merge]
    assert _thread(log, early) == [a, a1, merge, early]
    assert _threads(log)[b].turns == 2


def test_threads_mirror_the_definition_in_a_random_log(log: TurnLog) -> None:
    """All turns that grow from a root are its thread: counts, heads, bookmarks and members, across merges too."""
    generator = random.Random(5)
    roots_of: dict[str, set[str]] = {}
    continued: set[str] = set()
    ids: list[str] = []
    for number in range(250):
        recent = ids[-15:]
        chosen = generator.sample(recent, min(generator.choice([0, 1, 1, 1, 2, 3]), len(recent)))
        bookmark = generator.choice([None, None, None, f"b{generator.randrange(6)}"])
        turn = log.add_turn(str(number), continues=chosen or None, bookmark=bookmark)
        roots_of[turn.id] = {root for parent in turn.continues for root in roots_of[parent]} or {turn.id}
        continued.update(turn.continues)
        ids.append(turn.id)
    found = _threads(log)
    assert found.keys() == {root for roots in roots_of.values() for root in roots}
    bookmarks = log.bookmarks.all()
    for root, thread in found.items():
        members = [turn for turn in ids if root in roots_of[turn]]
        assert thread.turns == len(members)
        assert thread.heads == tuple(turn for turn in members if turn not in continued)
        assert thread.bookmarks == tuple(b.name for b in bookmarks if b.turn in members)
    for turn in ids[::10]:
        assert _thread(log, turn) == [other for other in ids if roots_of[other] & roots_of[turn]]
    shuffled = generator.sample(ids, len(ids))
    with log.store.read() as transaction:
        for order in (ids, ids[::-1], ids[100:], ids[:100:-1], shuffled, ids[100:] + ids[:100], ids[::2] + ids):
            threads_of = ThreadsInOrder()
            headers = {turn: event.header for turn in order if (event := transaction.event(turn)) is not None}
            told = [threads_of.of(transaction, headers[turn]) for turn in order]
            assert told == [tuple(sorted(roots_of[turn])) for turn in order]
            assert threads_of_turns(transaction, order) == dict(zip(order, told, strict=True))


def test_threads_of_nested_forks_are_told_by_few_reads(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last turn is asked for first: each fork would lead to the root by all that it is nested in."""
    reads = list[str]()
    find_links = turns.find_links

    def counted(transaction: SQLTransaction, where: str, *parameters: object) -> list[Link]:
        reads.append(where)
        return find_links(transaction, where, *parameters)

    for module in (turns, belonging):
        monkeypatch.setattr(module, "find_links", counted)
    root = turn = log.add_turn("r").id
    log.add_turn("1", continues=root)
    for number in range(100):
        turn = log.add_turn(str(number), continues=turn).id
        log.add_turn("beside", continues=turn)
    events = [event for event in log.events() if event.header.topic == TURN]
    with log.store.read() as transaction:
        for order in (events, events[::-1]):
            reads.clear()
            threads_of = ThreadsInOrder()
            assert {threads_of.of(transaction, event.header) for event in order} == {(root,)}
            assert len(reads) <= 2 * len(events)
    reads.clear()
    assert [thread.id for thread in log.threads(5)] == [root]
    assert len(reads) <= 2 * len(events)


def test_bookmark_events_are_no_turns(log: TurnLog) -> None:
    """Events of other topics make no thread and count in none."""
    root = log.add_turn("r").id
    log.bookmarks.set("x", root)
    log.bookmarks.delete("x")
    [thread] = log.threads()
    assert (thread.turns, thread.bookmarks, thread.heads) == (1, (), (root,))


def test_many_merges_of_new_roots_stay_linear(log: TurnLog) -> None:
    """A thousand documents merged one after another write a bounded number of rows each."""
    chain = log.add_turn("r").id
    for _ in range(1000):
        document = log.add_turn("d").id
        chain = log.add_turn("m", continues=[chain, document]).id
    with log.store.read() as transaction:
        tables = [table for projection in log.store.projections for table in projection.tables]
        rows = sum(transaction.rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables)
    assert rows <= 3 * 2001


def test_erased_turns_keep_their_places(log: TurnLog) -> None:
    """Roots, links and counts are of headers: a turn that is erased stands in its thread as before."""
    with TurnLog.open("memory://") as source:
        root = source.add_turn("r")
        source.add_turn("a", continues=root.id)
        fork = source.add_turn("b", continues=root.id)
        source.add_turn("m", continues=[fork.id, root.id])
        recorded = list(source.events())
        expected = source.threads()
        children = [child.id for child in source.children(root.id)]
    for event in recorded:
        append(log.store, erased(event))
    assert [(thread.id, thread.turns, thread.heads) for thread in log.threads()] == [
        (thread.id, thread.turns, thread.heads) for thread in expected
    ]
    assert [child.id for child in log.children(root.id)] == children
    assert projected(log.store) == folded_anew(log.store)


def test_threads_can_be_those_with_a_turn(log: TurnLog) -> None:
    """A merge is in the threads of all its parents, and so is what grows from it; what a fork has is of the thread."""
    one = log.add_turn("one", bookmark=False)
    two = log.add_turn("two", bookmark=False)
    three = log.add_turn("three", bookmark=False)
    on = log.add_turn("on", continues=two.id)
    merge = log.add_turn("merge", continues=[one.id, on.id])
    fork = log.add_turn("fork", continues=two.id)

    def having(*turns: str) -> list[str]:
        return [thread.id for thread in log.threads(wanted=lambda turn: turn.id in turns)]

    assert having(three.id) == [three.id]
    assert having(fork.id) == having(on.id) == [two.id]
    assert having(merge.id) == [one.id, two.id]
    assert having(one.id, three.id) == [three.id, one.id]
    assert having() == []


def test_latest_threads_that_are_wanted(log: TurnLog) -> None:
    """As many as are asked for, of those that are asked about."""
    ids = [log.add_turn(str(number), role=("user", "assistant")[number % 2]).id for number in range(6)]

    def latest(limit: int | None, **asked: Any) -> list[str]:
        return [thread.id for thread in log.threads(limit, **asked)]

    assert latest(None) == latest(6) == latest(10**20) == ids
    assert (latest(2), latest(0), latest(-1)) == (ids[4:], [], [])
    assert latest(2, among=lambda thread: thread.id < ids[3]) == ids[1:3]
    assert latest(2, wanted=lambda turn: turn.role == "user") == [ids[2], ids[4]]
    assert latest(9, among=lambda thread: thread.id < ids[3], wanted=lambda turn: turn.role == "user") == ids[:3:2]


@pytest.mark.parametrize("turns_max", [0, 1, 3, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_threads_are_the_last_ones_of_all(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, turns_max: int, seed: int
) -> None:
    """Whether they are found by the last turns of the log, or all threads are looked at."""
    monkeypatch.setattr("turnlog.projections.threads.LOOKED_AT_MAX", turns_max)
    source = random.Random(seed)
    ids: list[str] = []
    for number in range(40):
        parents = source.sample(ids, min(len(ids), source.choice([0, 0, 1, 1, 1, 1, 2])))
        name = f"name-{number}" if number % 3 == 0 else False
        ids.append(log.add_turn(str(number), continues=parents or None, bookmark=name).id)
    every = log.threads()
    assert len(every) > 5
    for limit in range(len(every) + 2):
        assert log.threads(limit) == every[len(every) - min(limit, len(every)) :]
    named = [thread for thread in every if thread.bookmarks]
    assert log.threads(2, among=lambda thread: bool(thread.bookmarks)) == named[-2:]


def test_a_few_threads_are_found_without_looking_at_the_others(log: TurnLog) -> None:
    """The log is read from its end, as far as it takes."""
    ids = [log.add_turn(str(number), bookmark=False).id for number in range(9)]
    seen: list[str] = []
    log.threads(2, among=lambda thread: not seen.append(thread.id))
    assert seen == [ids[8], ids[7]]


def test_no_more_threads_are_made_than_are_asked_for(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where the last turns of the log are of one thread, so that all others are looked at."""
    monkeypatch.setattr("turnlog.projections.threads.LOOKED_AT_MAX", 2)
    ids = [log.add_turn(str(number), bookmark=False).id for number in range(9)]
    fork = log.add_turn("4 again", continues=ids[4], bookmark=False).id
    log.add_turn("4 goes on", continues=ids[4], bookmark=False)
    for _ in range(3):
        log.add_turn("8 goes on", continues=ids[8], bookmark=False)
    made: list[str] = []

    def make(**fields: Any) -> Thread:
        made.append(fields["id"])
        return Thread(**fields)

    monkeypatch.setattr("turnlog.projections.threads.Thread", make)
    found = log.threads(3)
    assert [thread.id for thread in found] == [ids[7], ids[4], ids[8]]
    assert fork in found[1].heads
    assert made == [ids[8], ids[4], ids[7]]


def test_threads_with_a_turn_are_looked_for_from_their_ends(log: TurnLog) -> None:
    """Of the latest thread first, and no further than it takes; what many threads share is read once."""
    roots = [log.add_turn(f"root {number}", bookmark=False).id for number in range(3)]
    turn = shared = log.add_turn("all", continues=roots)
    for number in range(600):
        turn = log.add_turn(str(number), continues=turn.id)
    late = log.add_turn("late", bookmark=False)
    seen: list[str] = []

    def look(asked: Turn, wanted: str) -> bool:
        seen.append(asked.id)
        return asked.id == wanted

    def having(wanted: str, limit: int | None = None) -> list[str]:
        seen.clear()
        return [thread.id for thread in log.threads(limit, wanted=lambda turn: look(turn, wanted))]

    assert having(late.id, 1) == seen == [late.id]
    assert having(turn.id, 1) == [roots[2]]
    assert seen == [late.id, roots[2], turn.id]
    assert having(shared.id) == roots
    assert len(seen) == len(set(seen)) == 604
    assert having(roots[1]) == [roots[1]]
    assert len(seen) == len(set(seen)) == 605


@pytest.mark.parametrize("bookmarks_max", [0, 100])
@pytest.mark.parametrize("seed", range(3))
def test_threads_of_bookmarks_are_those_that_have_them(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, bookmarks_max: int, seed: int
) -> None:
    """Whether they are found by the bookmarks, or the threads are asked for theirs."""
    monkeypatch.setattr("turnlog.projections.threads._BOOKMARKS_MAX", bookmarks_max)
    source = random.Random(seed)
    ids: list[str] = []
    for number in range(40):
        parents = source.sample(ids, min(len(ids), source.choice([0, 0, 1, 1, 1, 1, 2])))
        name = f"name-{number % 7}" if number % 3 == 0 else False
        role = source.choice(("user", "assistant"))
        ids.append(log.add_turn(str(number), role=role, continues=parents or None, bookmark=name).id)
    which = TurnFilter(role="assistant")
    for pattern in ("name-3", "name-[1-4]", "*", "name", "none*"):
        for asked in ({}, {"which": which}):
            every = [
                each for each in log.threads(**asked) if any(fnmatchcase(name, pattern) for name in each.bookmarks)
            ]
            assert bool(every) == (pattern not in ("name", "none*"))
            assert log.threads(bookmark=pattern, **asked) == every
            assert log.threads(2, bookmark=pattern, **asked) == every[-2:]
            assert (
                log.threads(2, bookmark=pattern, among=lambda each: each.turns > 3, **asked)
                == [each for each in every if each.turns > 3][-2:]
            )


def test_a_thread_is_found_by_its_bookmark_alone(file_log: TurnLog, poke: Callable[..., None]) -> None:
    """No turn of another thread is read."""
    named = file_log.add_turn("named", bookmark="named").id
    fork = file_log.add_turn("fork", continues=named, bookmark="fork").id
    other = file_log.add_turn("other", bookmark="other").id
    poke(f"UPDATE stored_events SET state = X'00' WHERE event_id = '{other}'")
    for pattern in ("named", "fork", "[nf]*"):
        [thread] = file_log.threads(bookmark=pattern)
        assert (thread.id, thread.heads, thread.bookmarks) == (named, (fork,), ("fork", "named"))
    with pytest.raises(CorruptionError):
        file_log.threads(bookmark="other")


def test_ends_of_branches_are_found_without_reading_them(file_log: TurnLog, poke: Callable[..., None]) -> None:
    """Of many branches, those are read that are asked for."""
    root = file_log.add_turn("root").id
    with file_log.group() as group:
        forks = [group.add_turn(str(number), continues=root, bookmark=False) for number in range(600)]
    last = file_log.add_turn("last", continues=forks[0], bookmark="last").id
    poke(f"UPDATE stored_events SET state = X'00' WHERE event_id = '{forks[300]}'")
    [thread] = file_log.threads()
    assert (thread.turns, thread.heads, thread.bookmarks) == (602, (*forks[1:], last), ("last",))
    assert [turn.id for turn in file_log.latest(3, root)] == [*forks[-2:], last]
    assert file_log.turn_count(last) == 602


def test_threads_of_a_damaged_end_are_refused(file_log: TurnLog, poke: Callable[..., None]) -> None:
    """What says where it is must be a place."""
    turn = file_log.add_turn("here")
    poke(f"UPDATE stored_events SET originator_version = 'x' WHERE event_id = '{turn.id}'")
    with pytest.raises(CorruptionError, match="the place of an event is damaged"):
        file_log.threads()


def test_the_latest_turns_of_a_stream_with_a_gap_are_refused(file_log: TurnLog, store_path: Path) -> None:
    """At once, wherever somebody says that its end is."""
    ids = [file_log.add_turn("root").id]
    for number in range(4):
        ids.append(file_log.add_turn(str(number), continues=ids[-1]).id)
    rewrite(store_path, ids[-1], header=lambda header: header.update(position=10**15))
    for limit in (2, None):
        with pytest.raises(CorruptionError, match="has a gap before its position 1000000000000000: run"):
            file_log.latest(limit, ids[0])


def test_the_latest_turns_say_where_they_stand(file_log: TurnLog, poke: Callable[..., None]) -> None:
    """A row in another place than its turn says is not passed over."""
    turn = file_log.add_turn("here")
    poke(f"UPDATE stored_events SET originator_version = 999 WHERE event_id = '{turn.id}'")
    with pytest.raises(CorruptionError, match=r"under position 999 of stream .*, which is not its own"):
        file_log.latest(1)
