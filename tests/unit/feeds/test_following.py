"""Following a log: history, what comes while it is followed, filters, pieces of replies, and a log that was cut."""

import asyncio
import gc
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.agent.running import run
from tests.agent.scripted import Scripted, call, say

from turnlog import AsyncTurnLog, TurnLog
from turnlog.errors import CorruptionError, MetaError, StoreClosedError, StoreCutError, UnknownTurnError
from turnlog.events import Recorded
from turnlog.feeds import CaughtUp, LiveDelta
from turnlog.feeds import live as live_module
from turnlog.feeds.following import Following
from turnlog.store.pages import PAGE_EVENTS


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log in memory, and one in a file."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        yield log


class Follower(threading.Thread):
    """A thread that follows a log and keeps what it was given."""

    def __init__(self, log: TurnLog, *arguments: Any, **wanted: Any) -> None:
        super().__init__(daemon=True)
        self.events = log.events(*arguments, follow=True, **wanted)
        self.given: list[Any] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for event in self.events:
                self.given.append(event)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def positions(self) -> list[int]:
        return [event.global_position for event in self.given if isinstance(event, Recorded)]

    def until(self, condition: Callable[[], bool]) -> None:
        until(lambda: condition() or not self.is_alive())
        assert condition(), self.error

    def end(self) -> list[Any]:
        self.events.stop()
        self.join(30)
        assert not self.is_alive()
        return self.given


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that other threads bring about."""
    end = monotonic() + 30
    while not condition() and monotonic() < end:
        sleep(0.001)


# ------------------------------------------------------------------------------------------------------------ in order


def test_history_then_live(log: TurnLog) -> None:
    """The marker stands between what was there and what came."""
    log.add_turn("one", bookmark="main")
    follower = Follower(log, mark=True)
    follower.until(lambda: len(follower.given) == 3)
    assert follower.given[2] == CaughtUp(global_position=2)
    log.add_turn("two", continues="main")
    follower.until(lambda: follower.positions() == [1, 2, 3])
    assert follower.events.position == 3
    assert [type(item) for item in follower.end()].count(CaughtUp) == 1


def test_without_following_it_ends(log: TurnLog) -> None:
    """What is recorded meanwhile does not belong to it. The marker comes at the end."""
    assert list(log.events(mark=True)) == [CaughtUp(global_position=0)]
    log.add_turn("one")
    events = log.events(mark=True)
    assert next(events).global_position == 1
    log.add_turn("two")
    assert [type(item) for item in events] == [Recorded, CaughtUp]
    assert events.position == 2
    assert [event.global_position for event in log.events(2)] == [3]


def test_long_history_is_given_in_pages(log: TurnLog) -> None:
    """Nothing is lost between two pages, nor between the last one and what is live."""
    with log.group() as group:
        turn = group.add_turn("first")
        for number in range(PAGE_EVENTS + 100):
            turn = group.add_turn(str(number), continues=turn)
    follower = Follower(log)
    log.add_turn("live")
    follower.until(lambda: len(follower.given) == PAGE_EVENTS + 103)
    assert follower.positions() == [*range(1, PAGE_EVENTS + 104)]
    follower.end()
    assert len(list(log.events())) == PAGE_EVENTS + 103


def test_resuming_goes_on_where_it_stopped(log: TurnLog) -> None:
    """From the position, and with the id of the event there as a check."""
    for text in ("one", "two", "three"):
        log.add_turn(text)
    events = log.events()
    taken = [next(events), next(events)]
    rest = log.events(events.position, after_id=taken[-1].header.id)
    assert [event.global_position for event in rest] == [3, 4]


def test_topics_are_picked_and_the_position_goes_on(log: TurnLog) -> None:
    """The position of who wants few events does not stay behind."""
    log.add_turn("one", bookmark="main")
    log.add_event("acme.seen")
    follower = Follower(log, topics=["acme.seen"])
    follower.until(lambda: follower.positions() == [3])
    log.add_turn("two")
    follower.until(lambda: follower.events.position == 4)
    log.add_event("acme.seen")
    follower.until(lambda: follower.positions() == [3, 5])
    follower.end()
    assert [event.global_position for event in log.events(topics="acme.seen")] == [3, 5]


def test_many_followers_get_the_same(log: TurnLog) -> None:
    """Wherever they begin, and however slow they are."""
    for number in range(20):
        log.add_turn(str(number))
    followers = [Follower(log, after) for after in range(20)]
    for number in range(20):
        log.add_turn(str(number))
    for follower in followers:
        follower.until(lambda follower=follower: follower.events.position == 41)
    assert [follower.positions() for follower in followers] == [[*range(after + 1, 42)] for after in range(20)]
    for follower in followers:
        follower.end()


def test_followers_at_the_end_share_one_read(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them reads what came, the others are given it."""
    reads: list[int] = []
    log.add_turn("one")
    followers = [Follower(log) for _ in range(50)]
    for follower in followers:
        follower.until(lambda follower=follower: len(follower.given) == 2)
    until(lambda: len(log.store._waker._here.watches) == 50)
    read_on = log.store.tail._read_on

    def counted(after: int, seen: Any) -> Any:
        reads.append(after)
        return read_on(after, seen)

    monkeypatch.setattr(log.store.tail, "_read_on", counted)
    log.add_turn("two")
    for follower in followers:
        follower.until(lambda follower=follower: len(follower.given) == 3)
    until(lambda: len(log.store._waker._here.watches) == 50)
    assert reads.count(2) == 1
    for follower in followers:
        follower.end()


# ------------------------------------------------------------------------------------------------------------- filters


def test_thread_has_its_turns_and_what_is_about_them(log: TurnLog) -> None:
    """Forks and merges too, calls and replies, bookmarks set on them, and events of one's own that cite them."""
    root = log.add_turn("root", bookmark="main")
    other = log.add_turn("other", bookmark="other")
    follower = Follower(log, thread="main")
    fork = log.add_turn("fork", continues=root.id, bookmark=False)
    log.add_turn("more of the other", continues="other")
    merge = log.add_turn("merge", continues=[other.id, fork.id], bookmark=False)
    log.add_turn("after the merge", continues=merge.id)
    log.add_turn("other before the merge", continues=other.id, bookmark=False)
    run(log, Scripted(say("Done.")), continues="main")
    log.bookmarks.set("here", fork.id)
    log.bookmarks.set("there", other.id)
    log.add_event("acme.seen", cites=[("seen", fork.id)])
    log.add_event("acme.seen", cites=[("seen", other.id)])
    log.erase(turn=fork.id, reason="asked")
    end = log.wait(0, 0)
    follower.until(lambda: follower.events.position == end)
    given = follower.end()
    wanted = {turn.id for turn in log.thread(root.id)}
    told = [event.header.id for event in given if event.header.topic == "gpt.turn"]
    assert told == [turn.id for turn in log.thread(root.id)]
    others = [event.header for event in given if event.header.id not in wanted]
    assert [header.topic for header in others] == ["gpt.call", "gpt.reply", "gpt.bookmark", "acme.seen", "gpt.erasure"]
    again = [event.header.id for event in log.events(thread=fork.id)]
    assert again == [event.header.id for event in given]


def test_bookmark_has_the_turns_that_moved_it(log: TurnLog) -> None:
    """And what is about them, and about the bookmark."""
    first = log.add_turn("one", bookmark="main")
    log.add_turn("aside", continues=first.id, bookmark="aside")
    follower = Follower(log, bookmark="main")
    run(log, Scripted(say("Done.")), continues="main")
    run(log, Scripted(say("Done.")), continues="aside")
    log.bookmarks.set("aside", first.id)
    log.bookmarks.rename("main", "new")
    end = log.wait(0, 0)
    follower.until(lambda: follower.events.position == end)
    topics = [event.header.topic for event in follower.end()]
    assert topics == ["gpt.turn", "gpt.turn", "gpt.call", "gpt.reply", "gpt.turn", "gpt.bookmark"]


def test_unknown_thread_is_refused(log: TurnLog) -> None:
    """Once it is read."""
    with pytest.raises(UnknownTurnError):
        next(log.events(thread="nope"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"after": -1}, "global position"),
        ({"after": "7"}, "global position"),
        ({"after": True}, "global position"),
        ({"deltas": True}, "follow=True"),
        ({"topics": [1]}, "topics"),
        ({"thread": 1}, "thread"),
        ({"bookmark": "\n"}, "bookmark"),
    ],
)
def test_what_cannot_be_meant_is_refused(log: TurnLog, given: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(MetaError, match=said):
        log.events(**given)


# ----------------------------------------------------------------------------------------------------------------- end


def test_stop_ends_who_waits(log: TurnLog) -> None:
    """Also from another thread."""
    follower = Follower(log)
    until(lambda: bool(log.store._waker._here.watches))
    assert follower.end() == []
    assert follower.error is None
    with log.events(follow=True) as events:
        pass
    assert list(events) == []


def test_closing_the_log_ends_who_waits(log: TurnLog) -> None:
    """With an error: there may be more."""
    follower = Follower(log)
    until(lambda: bool(log.store._waker._here.watches))
    log.close()
    follower.join(30)
    assert isinstance(follower.error, StoreClosedError)


@pytest.mark.parametrize("follow", [False, True])
def test_closing_the_log_ends_who_has_read_ahead(log: TurnLog, follow: bool) -> None:
    """What was read and not given yet is not given."""
    for number in range(9):
        log.add_turn(str(number))
    events = log.events(follow=follow)
    assert next(events).global_position == 1
    log.close()
    for _ in range(2):
        with pytest.raises(StoreClosedError, match="is closed"):
            next(events)
    assert events.position == 1
    events.stop()
    assert list(events) == []


# ----------------------------------------------------------------------------------------------------------------- cut


def test_reader_beyond_the_end_is_told(log: TurnLog) -> None:
    """It follows another log, or one that was cut."""
    log.add_turn("one")
    wanted: dict[str, Any]
    for after, wanted in ((3, {}), (3, {"follow": True}), (2**63, {}), (2**63, {"after_id": "0" * 25})):
        told = (
            f"position {after:,} has none" if "after_id" in wanted else f"ends at global position 2, before {after:,}"
        )
        with pytest.raises(StoreCutError, match=told) as caught:
            next(log.events(after, **wanted))
        assert (caught.value.position, caught.value.end) == (after, 2)


def test_reader_that_meets_another_event_is_told(log: TurnLog) -> None:
    """At the position where it had come to."""
    turn = log.add_turn("one")
    log.add_turn("two")
    with pytest.raises(StoreCutError, match="position 3 has event"):
        next(log.events(3, after_id=turn.id))
    with pytest.raises(StoreCutError, match="position 4 has none"):
        next(log.events(4, after_id=turn.id))


def _cut(path: Path, position: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM stored_events WHERE notification_id = ?", (position,))
        for _, sql in triggers:
            connection.execute(sql)


@pytest.mark.parametrize("topics", [(), ("gpt.turn",)])
def test_follower_is_told_when_the_log_is_cut(tmp_path: Path, topics: tuple[str, ...]) -> None:
    """While it waits, at once."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("one")
        log.add_turn("two")
        follower = Follower(log, topics=topics)
        follower.until(lambda: follower.events.position == 3)
        _cut(path, 3)
        follower.join(30)
        assert isinstance(follower.error, StoreCutError), follower.error


def test_follower_is_told_when_history_is_written_anew(tmp_path: Path) -> None:
    """Another event stands where it had read one, and the log has gone on behind it."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("one")
    copy = path.read_bytes()
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("two")
        events = log.events()
        last = [event.header.id for event in events][-1]
    path.write_bytes(copy)
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("another two")
        log.add_turn("three")
        with pytest.raises(StoreCutError):
            next(log.events(events.position, after_id=last, follow=True))


def _replace(path: Path, other: Path) -> None:
    """Put another log in the place of one that is open, in one step."""
    with closing(sqlite3.connect(other)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


@pytest.mark.parametrize("kind", ["waits at the end", "wants none of it", "has read an erasure"])
def test_follower_at_the_end_is_told_when_another_history_goes_on(tmp_path: Path, kind: str) -> None:
    """Also where it has read nothing before its last event, nothing of what it wants, or nothing that is kept."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        erased = log.add_turn("erased")
    shutil.copy(path, other)
    with TurnLog.open(f"sqlite:///{other}") as elsewhere:
        for number in range(4):
            elsewhere.add_turn(f"elsewhere {number}")
    with TurnLog.open(f"sqlite:///{path}") as log:
        last = log.add_turn("here")
        topics = ["acme.never"] if kind == "wants none of it" else []
        after = 0 if kind == "wants none of it" else last.global_position
        events = log.events(after, follow=True, mark=True, topics=topics)
        assert next(events) == CaughtUp(global_position=3)
        if kind == "has read an erasure":
            log.erase(turn=[erased.id], reason="x")
            next(events)
        _replace(path, other)
        with pytest.raises(StoreCutError, match="and had event"):
            next(events)


def test_followers_of_two_histories_are_not_mixed_up(tmp_path: Path) -> None:
    """Who has read the other history is given what stands behind that, and not what was kept for others."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.add_turn("both")
    shutil.copy(path, other)
    with TurnLog.open(f"sqlite:///{other}") as elsewhere:
        for number in range(3):
            there = elsewhere.add_turn(f"elsewhere {number}")
    with TurnLog.open(f"sqlite:///{path}") as log:
        events = log.events(2, follow=True, mark=True)
        next(events)
        for number in range(3):
            log.add_turn(f"here {number}")
        assert next(events).global_position == 3
        _replace(path, other)
        late = log.events(3, follow=True, mark=True)
        given = [next(late).header.id for _ in range(2)]
        assert given[-1] == there.id
        assert [next(events).global_position for _ in range(2)] == [4, 5]
        with pytest.raises(StoreCutError):
            next(events)


def test_missing_event_is_not_passed_over(tmp_path: Path) -> None:
    """A follower stops there, and says where."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        for text in ("one", "two", "three"):
            log.add_turn(text)
        _cut(path, 3)
        with pytest.raises(CorruptionError, match="position 3 is missing"):
            list(log.events(follow=True))


# -------------------------------------------------------------------------------------------------------------- deltas


def _kinds(given: list[Any]) -> list[str]:
    return [
        f"{item.delta.type}: {item.delta.content}" if isinstance(item, LiveDelta) else item.header.topic
        for item in given
        if not isinstance(item, CaughtUp)
    ]


def test_pieces_of_a_reply_stand_between_call_and_reply(log: TurnLog) -> None:
    """They have no place in the log, and those who do not ask for them get none."""
    follower, plain = Follower(log, deltas=True), Follower(log)
    adapter = Scripted([{"text": "One."}, {"text": "Two."}, {"end": "stop", "tokens": 1}])
    result = run(log, adapter, bookmark="main")
    end = log.wait(0, 0)
    for each in (follower, plain):
        each.until(lambda each=each: each.events.position == end)
    given = follower.end()
    topics = ["log.genesis", "gpt.turn", "gpt.call", "gpt.reply", "gpt.turn"]
    assert _kinds(given) == [*topics[:3], "text: One.", "text: Two.", *topics[3:]]
    assert _kinds(plain.end()) == topics
    [first, second] = [item for item in given if isinstance(item, LiveDelta)]
    assert (first.number, second.number, first.after) == (1, 2, 3)
    assert (first.call, first.turn) == (given[2].header.id, result.turns[0].id)
    assert log.verify().damage == ()


def test_pieces_are_picked_by_thread(log: TurnLog) -> None:
    """Those of other threads are not given."""
    log.add_turn("here", bookmark="here")
    log.add_turn("there", bookmark="there")
    follower = Follower(log, thread="here", deltas=True)
    follower.until(lambda: follower.events.position == 3)
    for name in ("there", "here"):
        run(log, Scripted(say(f"Said {name}.")), continues=name)
    end = log.wait(0, 0)
    follower.until(lambda: follower.events.position == end)
    assert [item for item in _kinds(follower.end()) if item.startswith("text")] == ["text: Said here."]


def test_follower_that_is_too_slow_is_told_how_many_pieces_it_missed(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply has all of it."""
    monkeypatch.setattr(live_module, "DELTAS_MAX", 2)
    log.add_turn("Go.", bookmark="main")
    events = log.events(follow=True, deltas=True)
    adapter = Scripted([*({"text": str(number)} for number in range(5)), {"end": "stop", "tokens": 1}])
    run(log, adapter, continues="main")
    given = [next(events) for _ in range(6)]
    assert [(item.number, item.missed) for item in given if isinstance(item, LiveDelta)] == [(4, 3), (5, 0)]


def test_follower_that_nobody_has_any_more_keeps_nothing(log: TurnLog) -> None:
    """It need not be stopped for that."""
    log.events(follow=True, deltas=True)
    gc.collect()
    assert not log.feeds.streams._inboxes


# ------------------------------------------------------------------------------------------------------------- asyncio


async def _first(events: Any, count: int) -> list[Any]:
    return [await anext(events) for _ in range(count)]


def test_tasks_follow_without_threads(log: TurnLog) -> None:
    """A thousand of them wait; each gets everything."""

    async def go() -> None:
        here = AsyncTurnLog(log)
        await here.add_turn("one", bookmark="main")
        followers = [here.events(follow=True, mark=True) for _ in range(1000)]
        given = await asyncio.gather(*(_first(events, 3) for events in followers))
        assert {item[2] for item in given} == {CaughtUp(global_position=2)}
        waiting = [asyncio.create_task(_first(events, 3)) for events in followers]
        threads = threading.active_count()
        await asyncio.to_thread(until, lambda: len(log.store._waker._here.watches) == 1000)
        assert threading.active_count() <= threads + 2  # the waker, and the one that looked
        for text in ("two", "three", "four"):
            await here.add_turn(text, continues="main")
        given = await asyncio.gather(*waiting)
        assert {tuple(event.global_position for event in events) for events in given} == {(3, 4, 5)}

    asyncio.run(go())


def test_task_is_cancelled_and_stopped(log: TurnLog) -> None:
    """Nothing is left waiting, and what was not given is given to who goes on."""

    async def go() -> None:
        here = AsyncTurnLog(log)
        async with here.events(follow=True, deltas=True) as events:
            task = asyncio.create_task(_first(events, 1))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # A thread that was about to begin to watch forgets it when it has.
            await asyncio.to_thread(until, lambda: not log.store._waker._here.watches)
            await here.add_turn("one")
            assert [event.global_position for event in await _first(events, 2)] == [1, 2]
            asyncio.get_running_loop().call_later(0.05, events.stop)
            assert [event async for event in events] == []
        assert [event.global_position async for event in here.events(1)] == [2]
        with pytest.raises(StoreCutError):
            await anext(here.events(9))
        left = here.events()
        await anext(left)
        await here.close()
        with pytest.raises(StoreClosedError):
            await anext(left)

    asyncio.run(go())


def test_a_wait_that_is_given_up_while_a_thread_reads_loses_nothing(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read goes on, and whoever comes next has what it found: all events, none twice, in order."""
    for number in range(10):
        log.add_turn(str(number))
    begun, goes_on, read = threading.Event(), threading.Event(), Following.read

    def held(self: Following) -> bool:
        begun.set()
        goes_on.wait(10)
        return read(self)

    async def go(*, follow: bool) -> None:
        begun.clear()
        goes_on.clear()
        async with AsyncTurnLog(log).events(follow=follow) as events:
            given_up = asyncio.create_task(_first(events, 1))
            await asyncio.to_thread(begun.wait, 10)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            asyncio.get_running_loop().call_later(0.05, goes_on.set)
            given = await asyncio.wait_for(_first(events, 11), 10)
        assert [event.global_position for event in given] == list(range(1, 12))

    monkeypatch.setattr(Following, "read", held)
    for follow in (False, True):
        asyncio.run(go(follow=follow))


def test_a_server_that_does_not_answer_holds_up_no_event_loop(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wait, the store is asked where the log ends. Who gives up meanwhile leaves nothing behind."""
    answers, watch = threading.Event(), log.store.watch

    def held(*given: Any, **options: Any) -> Any:
        answers.wait(30)
        return watch(*given, **options)

    async def go() -> None:
        here = AsyncTurnLog(log)
        events: Any = here.events(end, follow=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.1)
        assert not answers.is_set()
        waiting = asyncio.create_task(anext(events))
        await asyncio.sleep(0.05)
        answers.set()
        await asyncio.to_thread(until, lambda: len(log.store._waker._here.watches) == 1)
        await here.add_turn("two")
        assert (await waiting).global_position == end + 1

    end = log.add_turn("one").global_position
    monkeypatch.setattr(log.store, "watch", held)
    asyncio.run(go())
    until(lambda: not log.store._waker._here.watches)


def test_task_gets_pieces_of_replies(log: TurnLog) -> None:
    """In the same event loop as the run."""

    async def go() -> None:
        here = AsyncTurnLog(log)
        events = here.events(follow=True, deltas=True)
        task = asyncio.create_task(_first(events, 7))
        adapter = Scripted(call(("add", {"a": 1, "b": 2}), text="I add."), say("Done."))
        running = asyncio.create_task(asyncio.to_thread(run, log, adapter, tools=[]))
        given = await task
        await running
        assert _kinds(given)[:4] == ["log.genesis", "gpt.turn", "gpt.call", "text: I add."]
        assert given[4].delta.name == "add"

    asyncio.run(go())


# ------------------------------------------------------------------------------------------------------------- erasing


def test_erased_content_is_not_given_from_memory(log: TurnLog) -> None:
    """Whoever is behind reads the log, and the log has it no more."""
    log.add_turn("kept", bookmark="main")
    fast = Follower(log)
    fast.until(lambda: fast.events.position == 2)
    turn = log.add_turn("a secret", continues="main")
    fast.until(lambda: fast.events.position == 3)
    log.erase(turn=turn.id, reason="asked")
    fast.until(lambda: fast.events.position == 4)
    assert all(event.header.id != turn.id or event.erased for event in log.store.tail._kept.events)
    slow = log.events(2)
    assert next(slow).erased
    fast.end()


def test_erasure_by_another_process_empties_what_is_kept(tmp_path: Path) -> None:
    """Once its event is read."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log, TurnLog.open(url) as other:
        follower = Follower(log)
        log.add_turn("kept")
        follower.until(lambda: follower.events.position == 2)
        turn = log.add_turn("a secret")
        follower.until(lambda: follower.events.position == 3)
        assert log.store.tail._kept.events[-1].private is not None
        other.erase(turn=turn.id, reason="asked")
        follower.until(lambda: follower.events.position == 4)
        assert log.store.tail._kept.events == []
        follower.end()
