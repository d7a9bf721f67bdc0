"""Connections to PostgreSQL that are lost at any moment: appends are recorded once, and reads go on."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.agent.running import values
from tests.agent.scripted import HERE, MODEL, Scripted, say
from tests.sealed_log import SealsInMemory
from tests.servers.cutting import Cut, CuttingProxy
from tests.servers.postgres import PostgresServer
from tests.soak import SOAK

from turnlog import AsyncTurnLog, TurnLog
from turnlog.errors import StoreBusyError, StoreError, StoreLostError, UncertainError
from turnlog.events import Recorded
from turnlog.feeds import CaughtUp, LiveDelta
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.sinks.jsonl import JSONLines
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.ids import new_id
from turnlog.store.postgres.connections import Address
from turnlog.store.postgres.wire import Statement, Wire

EACH = 1 if SOAK else 3
"""At each so-manieth message it is cut."""

_CUTS: tuple[Cut, ...] = ("request", "answer", "half")


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[CuttingProxy]:
    """Give a proxy before an empty database."""
    with CuttingProxy(postgres_url) as proxy:
        yield proxy


def _turn(log: TurnLog, text: str) -> tuple[str, int]:
    turn = log.add_turn(text, continues="main")
    return turn.id, turn.global_position


def _named_turn(log: TurnLog, text: str) -> tuple[str, int]:
    turn = log.add_turn(text, bookmark=False, id=new_id())
    return turn.id, turn.global_position


def _event(log: TurnLog, text: str) -> tuple[str, int]:
    recorded = log.add_event("acme.note", text.encode())
    return recorded.header.id, recorded.global_position


_APPENDS: dict[str, Callable[[TurnLog, str], tuple[str, int]]] = {
    "turn on a bookmark": _turn,
    "turn with an id": _named_turn,
    "event that runs alone": _event,
}


@pytest.mark.parametrize("cut", _CUTS)
@pytest.mark.parametrize("kind", _APPENDS)
def test_append_whose_connection_is_lost_is_recorded_once(
    proxy: CuttingProxy, postgres_url: str, kind: str, cut: Cut
) -> None:
    """Wherever it is cut: what comes back is recorded once, at that position."""
    done: list[tuple[str, int]] = []
    number = 0
    with TurnLog.open(proxy.url) as log:
        log.add_turn("root", bookmark="main")
        log.add_event("acme.note", b"root")
        while True:
            number += EACH
            proxy.arm(cut, number)
            done.append(_APPENDS[kind](log, f"number {number}"))
            if not proxy.disarm():
                break
    assert number > 1
    with TurnLog.open(postgres_url) as log:
        events = list(log.events())
        assert [event.global_position for event in events] == list(range(1, len(events) + 1))
        at = {event.header.id: event.global_position for event in events}
        assert [at[event_id] for event_id, _ in done] == [position for _, position in done]
        # The genesis and the two that were first.
        assert len(events) == len(done) + 3
        with log.store.read() as transaction:
            payloads = Counter(transaction.payload(event) for event in events)
        assert max(payloads.values()) == 1 + (payloads[None] > 1)
        assert log.verify().clean


@pytest.mark.parametrize("cut", _CUTS[:2])
def test_erasure_whose_connection_is_lost_says_what_came_of_it(
    proxy: CuttingProxy, postgres_url: str, cut: Cut
) -> None:
    """Wherever it is cut: what returns is recorded, what raises is not, and an error that is not sure says so."""
    number, failed = 0, 0
    seals = SealsInMemory()
    with TurnLog.open(proxy.url, seals=seals) as log, TurnLog.open(postgres_url, seals=seals) as other:
        log.seal(subject="somebody")
        while True:
            number += 1 if SOAK else 11
            turn = log.add_turn(f"number {number}", subject="somebody")
            proxy.arm(cut, number)
            error: StoreError | None = None
            try:
                log.erase(subject="somebody", reason="asked")
            except StoreError as raised:
                error, failed = raised, failed + 1
            assert other.turn(turn.id).erased == (error is None), error
            is_gone = seals.of_subject("somebody") is None
            assert (is_gone and error is not None) == isinstance(error, UncertainError)
            assert not isinstance(error, UncertainError) or "is destroyed, and that is not recorded" in str(error)
            if not proxy.disarm():
                break
            again = other.erase(subject="somebody", reason="again")
            assert again.still_sealed == 0
            assert again.key_missing == again.events * (not again.keys)
    assert failed > 1


@pytest.mark.parametrize("cut", _CUTS)
def test_read_whose_connection_is_lost_at_once_is_done_again(proxy: CuttingProxy, cut: Cut) -> None:
    """What is read in one round trip comes, on another connection."""
    number = 0
    with TurnLog.open(proxy.url) as log:
        turn = log.add_turn("root", bookmark="main")
        log.event(turn.id)
        while True:
            number += 1
            proxy.arm(cut, number)
            assert log.event(turn.id).global_position == 2
            if not proxy.disarm():
                break
    assert number > 5


def test_read_is_done_again_when_the_next_connections_are_lost_too(proxy: CuttingProxy) -> None:
    """While they are opened, made ready, or read from."""
    then = 0
    with TurnLog.open(proxy.url) as log:
        turn = log.add_turn("root", bookmark="main")
        log.event(turn.id)
        while True:
            then += 1
            proxy.arm("answer", 1, then, then)
            assert log.event(turn.id).global_position == 2
            if not proxy.disarm():
                break
    assert then > 20


@pytest.mark.parametrize("cut", _CUTS)
def test_read_whose_connection_is_lost_later_says_so(proxy: CuttingProxy, cut: Cut) -> None:
    """It raises, or comes as it should; never by half. The next one goes on."""
    number, failed = 0, 0
    with TurnLog.open(proxy.url) as log:
        turns = [log.add_turn(str(number), bookmark="main", respond=number > 0).id for number in range(5)]
        while True:
            number += 1
            proxy.arm(cut, number)
            try:
                found = [turn.id for turn in log.ancestry("main")]
            except StoreBusyError:
                failed += 1
            else:
                assert found == turns
            if not proxy.disarm():
                break
            assert log.turn("main").id == turns[-1]
    assert failed > 0


def test_read_after_the_server_was_started_again_works(own_postgres: PostgresServer) -> None:
    """Also where several idle connections were kept: they are not used."""
    with TurnLog.open(own_postgres.create_database()) as log:
        turn = log.add_turn("root", bookmark="main")
        with log.store.read() as one, log.store.read() as other:
            assert one.log_end() == other.log_end() == 2
        for end in (own_postgres.stop, own_postgres.kill):
            end()
            own_postgres.start()
            with log.store.read() as one, log.store.read() as other:
                assert one.log_end() == other.log_end()
            assert log.turn("main").id == turn.id
            turn = log.add_turn("more", continues="main")


def test_read_while_there_is_no_server_says_so(own_postgres: PostgresServer) -> None:
    """Once it has waited. The next one works when there is one again."""
    with TurnLog.open(own_postgres.create_database(), busy_timeout_s=1) as log:
        turn = log.add_turn("root", bookmark="main")
        own_postgres.kill()
        with pytest.raises(StoreBusyError, match="see whether its server runs"):
            log.turn("main")
        own_postgres.start()
        assert log.turn("main").id == turn.id


def test_idle_connections_that_were_cut_harm_nobody(proxy: CuttingProxy) -> None:
    """As a firewall or a pooler does."""
    with TurnLog.open(proxy.url) as log:
        turn = log.add_turn("root", bookmark="main")
        for _ in range(3):
            assert log.turn("main").id == turn.id
            proxy.cut_all()
            assert log.turn("main").id == turn.id
            turn = log.add_turn("more", continues="main")
            proxy.cut_all()
            turn = log.add_turn("more", continues="main")


def test_statements_that_were_sent_by_half_never_come_into_effect(postgres_url: str) -> None:
    """A parameter that cannot be sent ends the connection."""
    address = Address(postgres_url)
    wire = Wire(address.connect(lock_timeout_s=10, connect_timeout_s=10))
    with pytest.raises(UnicodeEncodeError):
        wire.exchange([Statement("CREATE TABLE public.half (n integer)"), Statement("SELECT ?", ("\ud800",))])
    with suppress(psycopg.Error):
        wire.exchange([Statement("SELECT 1")])
    wire.close()
    with closing(address.connect(lock_timeout_s=10, connect_timeout_s=10)) as connection:
        assert connection.execute("SELECT to_regclass('public.half')").fetchall() == [(None,)]


def test_plan_whose_parameter_cannot_be_sent_raises(proxy: CuttingProxy) -> None:
    """And the log goes on."""
    with TurnLog.open(proxy.url) as log:
        log.add_turn("root", bookmark="main")
        with pytest.raises(UnicodeEncodeError):
            log.store.write(lambda transaction: transaction.rows("SELECT ?", ("\ud800",)))
        with pytest.raises(UnicodeEncodeError), log.store.read() as transaction:
            transaction.rows("SELECT ?", ("\ud800",))
        assert log.add_turn("next", continues="main").global_position == 3
        assert log.verify().clean


def test_read_that_the_server_ends_is_done_again(own_postgres: PostgresServer) -> None:
    """The server says behind its last answer that it ends the connection, and the next reads have another one."""
    with TurnLog.open(own_postgres.create_database()) as log:
        turn = log.add_turn("root", bookmark="main")
        with closing(psycopg.connect(own_postgres.url(), autocommit=True)) as connection:
            for _ in range(100):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnlog'"
                )
                assert log.turn("main") == turn


@pytest.mark.timeout(300)
@pytest.mark.parametrize("thread", [None, "main"])
def test_follower_whose_connections_are_lost_goes_on(
    proxy: CuttingProxy, postgres_url: str, thread: str | None
) -> None:
    """Wherever it is cut: while it waits, in a page, or in a look at what an event is about."""
    with TurnLog.open(postgres_url) as writer, TurnLog.open(proxy.url) as log:
        expected = [writer.add_turn("root", bookmark="main").global_position]
        with log.events(1, follow=True, thread=thread) as events:
            found = [next(events).global_position]
            for number in range(1, 60, EACH):
                proxy.arm("half", number, 20 + number % 7)
                for _ in range(3):
                    expected.append(writer.add_turn("next", continues="main").global_position)
                    found.append(next(events).global_position)
        proxy.disarm()
        assert found == expected


@projection("acme.turns", topics="gpt.turn", schema=["CREATE TABLE turns (position INTEGER)"], tables=["turns"])
def turns(db: sqlite3.Cursor, event: LogEvent) -> None:
    """Keep where each turn is."""
    db.execute("INSERT INTO turns VALUES (?)", (event.global_position,))


def test_runner_whose_connections_are_lost_goes_on(proxy: CuttingProxy, postgres_url: str, tmp_path: Path) -> None:
    """Each event is folded once."""
    with (
        TurnLog.open(postgres_url) as writer,
        TurnLog.open(proxy.url) as log,
        closing(SQLiteTarget(tmp_path / "view.db")) as target,
        ThreadPoolExecutor(1) as threads,
    ):
        runner = Runner(log.store, target, [turns])
        reached: Queue[int] = Queue()
        running = threads.submit(lambda: runner.follow(told=lambda statuses: reached.put(statuses[0].position)))
        try:
            for number in range(0, 60, EACH):
                proxy.arm("half", number, 20 + number % 7)
                position = writer.add_turn(str(number)).global_position
                while reached.get(timeout=30) < position:
                    pass
        finally:
            runner.stop()
        running.result(30)
        expected = [event.global_position for event in writer.events(topics=["gpt.turn"])]
    with closing(sqlite3.connect(tmp_path / "view.db")) as connection:
        assert [position for (position,) in connection.execute("SELECT position FROM turns")] == expected


def test_follower_that_gave_up_is_asked_again(proxy: CuttingProxy, postgres_url: str) -> None:
    """Wherever it was: it goes on behind the last event, none is missing, and none comes twice."""
    with TurnLog.open(postgres_url) as other:
        other.add_turn("root", bookmark="main")
        for number in range(3):
            other.add_turn(f"number {number}", continues="main")
        wanted = [turn.id for turn in other.thread("main")]
    failed = 0
    with TurnLog.open(proxy.url, busy_timeout_s=0.1) as log:
        for number in range(1, 200) if SOAK else range(57, 80, 2):
            given: list[str] = []
            events = log.events(follow=True, mark=True, thread="main")
            proxy.arm("answer", number, *[1] * 1000)
            while True:
                try:
                    event = next(events)
                except StoreLostError:
                    failed += 1
                    proxy.disarm()
                    continue
                if isinstance(event, CaughtUp):
                    break
                given.append(event.header.id)
            proxy.disarm()
            assert given == wanted
    assert failed > 1


def test_event_loop_asks_no_server_for_those_who_follow(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when they begin, wait, or look whether a piece of a reply is wanted, and not where pieces come from."""

    async def follow() -> None:
        async with await AsyncTurnLog.open(postgres_url) as log:
            await log.add_turn("one", bookmark="main")
            store, readers = log.sync.store, set[threading.Thread]()
            read = store.read

            def noted() -> Any:
                readers.add(threading.current_thread())
                return read()

            monkeypatch.setattr(store, "read", noted)
            events = log.events(2, follow=True, deltas=True, thread="main")
            task = asyncio.create_task(anext(events))
            given = {"model": MODEL, "connection": HERE, "adapter": Scripted(say("Done."))}
            await log.run("two", **values(**given, continues="main"))
            kinds = [type(await task), *[type(await anext(events)) for _ in range(4)]]
            assert kinds == [Recorded, Recorded, LiveDelta, Recorded, Recorded]
            assert readers
            assert threading.main_thread() not in readers

    asyncio.run(follow())


def test_feed_that_follows_waits_for_the_server(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """For longer than an append does: it tells that it tries again, and goes on when the server is back."""
    url = own_postgres.url()
    with TurnLog.open(url) as log:
        log.add_turn("one", bookmark="main")
    retried, told = Event(), Queue[int]()
    with TurnLog.open(url, busy_timeout_s=0.2) as log, ThreadPoolExecutor() as pool:
        feed = log.feeds.feed(JSONLines(tmp_path), name="shelf")
        following = pool.submit(
            feed.follow, told=lambda status: told.put(status.position), on_retry=lambda *_: retried.set()
        )
        assert told.get(timeout=30) == 2
        own_postgres.kill()
        assert retried.wait(30) or following.result(0)
        own_postgres.start()
        with TurnLog.open(url) as other:
            other.add_turn("two", continues="main")
        while told.get(timeout=60) < 3:
            pass
        feed.stop()
        following.result(60)


@pytest.mark.parametrize("work", [lambda log: log.turn("main"), lambda log: log.add_turn("more", continues="main")])
def test_database_that_is_dropped_is_not_waited_for(
    own_postgres: PostgresServer, work: Callable[[TurnLog], object]
) -> None:
    """However long a server is waited for: it does not come back."""
    url = own_postgres.create_database()
    with TurnLog.open(url, busy_timeout_s=600) as log:
        log.add_turn("hello", bookmark="main")
        assert log.turn("main")
        name = sql.Identifier(url.rpartition("/")[2])
        with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        with pytest.raises(StoreLostError, match=r"does not exist\): see whether its URL is right, and the role may"):
            work(log)
