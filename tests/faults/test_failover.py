"""A primary with a synchronous standby: the primary is killed during writes, the standby is promoted, all go on.

Writers and followers have one URL of both servers. Rounds go on from what the last one left, with a new standby.
"""

import io
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest
import scru128
from tests.docs.pages import ROOT
from tests.servers.cutting import CuttingProxy
from tests.servers.postgres import PostgresServer, _programs, _run, missing
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import StoreBusyError, StoreCutError, StoreOpenError, StoreReadOnlyError, UncertainError
from turnlog.feeds import CaughtUp
from turnlog.testing.faults import run_processes

ROUNDS = 6 if SOAK else 1
WRITERS, THREADS, FOLLOWERS = 3, 2, 2
DATABASE = "talk"
ACKNOWLEDGED = 400 if SOAK else 60
"""Turns that each round has before the primary is killed, and again after that, at least."""


def _url(*servers: PostgresServer, database: str) -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=5"


def _write(url: str, folder: str, name: str) -> list[str]:
    """Append until the file `stop` is there; note each turn that was acknowledged, in a file, at once."""
    stop = Path(folder, "stop")
    failed: list[str] = []

    def work(log: TurnLog, thread: int) -> None:
        notes = os.open(Path(folder, f"{name}-{thread}.acknowledged"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for number in count():
                if stop.exists():
                    return
                turn = log.add_turn(f"{stop.parent.name} {name} {thread} {number}", continues="main")
                os.write(notes, f"{turn.global_position} {turn.id}\n".encode())
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failed.append(repr(error))
        finally:
            os.close(notes)

    with TurnLog.open(url) as log:
        threads = [threading.Thread(target=work, args=(log, number)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return failed


def _follow(url: str, end: str) -> list[tuple[int, str]]:
    """Take what comes until the end is there. Who is cut off in the middle of a read goes on behind the last event."""
    seen: list[tuple[int, str]] = []
    with TurnLog.open(url) as log:
        while True:
            position, event_id = seen[-1] if seen else (0, None)
            with suppress(StoreBusyError):
                for event in log.events(position, after_id=event_id, follow=True):
                    seen.append((event.global_position, event.header.id))
                    if event.header.topic == end:
                        return seen


def _acknowledged(folder: Path) -> list[tuple[int, str]]:
    lines = [line.split() for file in folder.glob("*.acknowledged") for line in file.read_text().splitlines()]
    return [(int(position), event_id) for position, event_id in lines]


def _wait_for(folder: Path, number: int) -> None:
    while len(_acknowledged(folder)) < number:
        sleep(0.02)


def _round(primary: PostgresServer, standby: PostgresServer, database: str, folder: Path) -> None:
    """Kill the primary during writes, promote the standby, and hold what was acknowledged against the log."""
    url = _url(primary, standby, database=database)
    failures: list[BaseException] = []

    def fail_over() -> None:
        try:
            _wait_for(folder, ACKNOWLEDGED)
            primary.kill()
            before = len(_acknowledged(folder))
            standby.promote()
            _wait_for(folder, before + ACKNOWLEDGED)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)
        finally:
            (folder / "stop").touch()

    def end() -> None:
        failing.join()
        while len(list(folder.glob("*.ended"))) < WRITERS:
            sleep(0.02)
        with TurnLog.open(url) as log:
            log.add_event(f"acme.end-{folder.name}")

    failing, ending = threading.Thread(target=fail_over), threading.Thread(target=end)
    failing.start()
    ending.start()
    writers = [(_write_to_end, (url, str(folder), f"writer-{number}")) for number in range(WRITERS)]
    found = run_processes([*writers, *((_follow, (url, f"acme.end-{folder.name}")) for _ in range(FOLLOWERS))])
    failing.join()
    ending.join()
    assert failures == []
    assert [failed for failed in found[:WRITERS] if failed] == []
    _check(standby.url(database), _acknowledged(folder), found[WRITERS:])


def _write_to_end(url: str, folder: str, name: str) -> list[str]:
    try:
        return _write(url, folder, name)
    finally:
        Path(folder, f"{name}.ended").touch()


def _check(url: str, acknowledged: list[tuple[int, str]], followed: Sequence[list[tuple[int, str]]]) -> None:
    with TurnLog.open(url) as log:
        events = [(event.global_position, event.header.id) for event in log.events()]
        assert log.verify().damage == ()
        texts = [log.payload(event.header.id) for event in log.events(topics=["gpt.turn"])]
    assert [position for position, _ in events] == list(range(1, len(events) + 1))
    assert len(set(texts)) == len(texts), "something was recorded twice"
    lost = set(acknowledged).difference(events)
    assert not lost
    for seen in followed:
        assert seen == events[: len(seen)]
        assert len(seen) == len(events)


@pytest.mark.timeout(1800 if SOAK else 300)
def test_no_acknowledged_turn_is_lost_when_the_standby_takes_over(tmp_path: Path, own_postgres: PostgresServer) -> None:
    """Each is there at its global position; followers have each event once, in order; the log is sound."""
    primary, database = own_postgres, "talk"
    primary.create_database(database)
    for number in range(ROUNDS):
        standby = primary.standby()
        folder = tmp_path / str(number)
        folder.mkdir()
        with TurnLog.open(_url(primary, standby, database=database)) as log:
            log.add_turn(f"root {number}", continues="main" if number else None, bookmark="main")
        _round(primary, standby, database, folder)
        primary = standby


def test_append_waits_while_the_standby_is_away(own_postgres: PostgresServer) -> None:
    """Nobody sees it until the standby has it; then it returns."""
    standby = own_postgres.standby()
    with TurnLog.open(own_postgres.url()) as log, TurnLog.open(own_postgres.url()) as other:
        log.add_turn("root", bookmark="main")
        standby.kill()
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(log.add_turn("waits", continues="main").global_position))
        thread.start()
        own_postgres.wait_until_commit_waits()
        assert done == []
        assert other.wait(2, timeout_s=0.5) == 2
        standby.start()
        thread.join()
        assert done == [3]
        assert other.wait(2, timeout_s=30) == 3


def test_search_does_not_wait_for_the_standby(own_postgres: PostgresServer) -> None:
    """What is derived is folded again where a new primary lacks it; a temporary index is gone without the standby."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url = own_postgres.url("talk")
    with TurnLog.open(url) as log:
        log.add_turn("How long do leeks take?", bookmark="main")
        standby.kill()
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(len(log.feeds.search("leeks"))))
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        with psycopg.connect(url, autocommit=True) as connection:
            while not done and connection.execute(waiting).fetchone() == (0,):
                sleep(0.01)
        assert done == [1]
        standby.start()
        thread.join()


def test_repeat_waits_while_the_standby_is_away(own_postgres: PostgresServer) -> None:
    """A primary that was started again shows what no standby has: nobody is told yet that it is recorded."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url, export, given = own_postgres.url("talk"), io.BytesIO(), scru128.new_string()
    with TurnLog.open(url, busy_timeout_s=1) as log:
        log.add_turn("root", bookmark="main")
        away = log.add_turn("away", bookmark="away").id
        log.erase(turn=away, reason="asked for")
        standby.kill()

        def append() -> None:
            with suppress(UncertainError):
                log.add_turn("again", continues="main", id=given)

        thread = threading.Thread(target=append)
        thread.start()
        own_postgres.wait_until_commit_waits()
        own_postgres.kill()
        thread.join()
    own_postgres.start()
    with TurnLog.open(url) as log:
        log.export(export)
        continued = log.thread("main")[0].id
    repeats: dict[str, Callable[[TurnLog], object]] = {
        "turn": lambda log: log.add_turn("again", continues=continued, bookmark="main", id=given),
        "erase": lambda log: log.erase(turn=away, reason="asked for"),
        "import": lambda log: log.import_turnlog(io.BytesIO(export.getvalue())),
    }
    for name, repeat in repeats.items():
        done: list[str] = []

        def work(name: str = name, repeat: Callable[[TurnLog], object] = repeat, done: list[str] = done) -> None:
            with TurnLog.open(url) as log:
                repeat(log)
                done.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        with psycopg.connect(url, autocommit=True) as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            while not done and connection.execute(waiting).fetchone() == (0,):
                sleep(0.01)
        assert done == []
        standby.start()
        thread.join()
        assert done == [name]
        standby.kill()


def test_append_that_waited_when_the_primary_died_is_made_once(own_postgres: PostgresServer) -> None:
    """The client goes on by itself at the promoted standby: there it is recorded, whether it had come there or not."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url = _url(own_postgres, standby, database="talk")
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        standby.kill()
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(log.add_turn("once", continues="main").global_position))
        thread.start()
        own_postgres.wait_until_commit_waits()
        own_postgres.kill()
        standby.start()
        standby.promote()
        thread.join()
        assert done == [3]
        assert len(log.thread("main")) == 2
        assert log.verify().damage == ()


def test_append_that_learns_late_that_its_server_is_gone_is_made_at_the_new_one(own_postgres: PostgresServer) -> None:
    """One that vanishes without a word is noticed when the time to wait is over: the new primary is asked then."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    with TurnLog.open(_url(own_postgres, standby, database="talk"), busy_timeout_s=2) as log:
        log.add_turn("root", bookmark="main")
        standby.wait_for_replay()
        began = monotonic()
        own_postgres.stall()
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(log.add_turn("late", continues="main").global_position))
        thread.start()
        standby.promote()
        while monotonic() < began + 2.5:
            sleep(0.1)
        own_postgres.kill()
        thread.join()
        assert done == [3]


def test_append_that_waits_for_the_standby_is_not_shown_when_its_connection_is_lost(
    own_postgres: PostgresServer,
) -> None:
    """Its session goes on to wait: were it ended, others would see a turn that is lost with the primary."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url = own_postgres.url("talk")
    with CuttingProxy(url) as proxy, TurnLog.open(proxy.url) as log, TurnLog.open(url) as other:
        log.add_turn("root", bookmark="main")
        standby.kill()
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(log.add_turn("waits", continues="main").global_position))
        thread.start()
        own_postgres.wait_until_commit_waits()
        proxy.cut_all()
        with psycopg.connect(url, autocommit=True) as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            while connection.execute(waiting, ("LOCK TABLE%",)).fetchone() == (0,) and len(other.thread("main")) == 1:
                sleep(0.05)
        assert [turn.global_position for turn in other.thread("main")] == [2]
        standby.start()
        thread.join()
        assert done == [3]
        assert len(other.thread("main")) == 2


def test_log_that_is_opened_while_the_standby_takes_over_waits_for_it(own_postgres: PostgresServer) -> None:
    """As reads do that begin then: who waits is told so. With no primary in time it says what each server is."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url = _url(own_postgres, standby, database="talk")
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
    standby.wait_for_replay()
    own_postgres.kill()
    with pytest.raises(StoreOpenError) as refused:
        TurnLog.open(url, busy_timeout_s=0.2)
    gone, read_only = (f"127.0.0.1:{server.port}" for server in (own_postgres, standby))
    assert str(refused.value).endswith(
        f"cannot be opened: no primary was found: {gone}: Connection refused; {read_only}: session is read-only; "
        "see whether its server runs, and try again later"
    )
    waits = threading.Event()
    promoting = threading.Thread(target=lambda: waits.wait(60) and standby.promote())
    promoting.start()
    with TurnLog.open(url, on_busy=lambda _: waits.set()) as log:
        assert len(log.thread("main")) == 1
    promoting.join()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((f"/{DATABASE}", "/nothing"), 'FATAL: database "nothing" does not exist; see whether its URL is right'),
        (
            ("//postgres@", "//nobody@"),
            'FATAL: role "nobody" does not exist; see whether its URL is right, and the role',
        ),
        (
            (f"/{DATABASE}", f"/{DATABASE}?sslmode=require"),
            "server does not support SSL, but SSL was required; turn SSL on there, or ask for less with sslmode=",
        ),
        (("127.0.0.1", "nothing.invalid"), "failed to resolve host 'nothing.invalid'"),
    ],
)
def test_connection_that_no_waiting_brings_is_refused_at_once(
    own_postgres: PostgresServer, change: tuple[str, str], said: str
) -> None:
    """It is not said that trying again helps."""
    with pytest.raises(StoreOpenError) as refused:
        TurnLog.open(own_postgres.create_database(DATABASE).replace(*change))
    assert said in str(refused.value)
    assert "try again" not in str(refused.value)


def test_password_that_is_missing_is_asked_for(own_postgres: PostgresServer) -> None:
    """Where to give it is said, and not that something else may be wrong."""
    url = own_postgres.create_database(DATABASE)
    (own_postgres.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
    with suppress(psycopg.OperationalError):
        while True:  # until the server has read it
            psycopg.connect(url).close()
    with pytest.raises(StoreOpenError, match=r"no password supplied; give the password in ~/\.pgpass, .* PGPASSWORD$"):
        TurnLog.open(url)


def test_uncertain_append_says_so(own_postgres: PostgresServer) -> None:
    """Where no server comes back in time, it is told that the turn may be recorded; the same id records it once."""
    standby = own_postgres.standby()
    own_postgres.create_database("talk")
    url = _url(own_postgres, standby, database="talk")
    with TurnLog.open(url, busy_timeout_s=2) as log:
        log.add_turn("root", bookmark="main")
        given = scru128.new_string()
        standby.kill()
        failed: list[Exception] = []

        def append() -> None:
            try:
                log.add_turn("once", continues="main", id=given)
            except UncertainError as error:
                failed.append(error)

        thread = threading.Thread(target=append)
        thread.start()
        own_postgres.wait_until_commit_waits()
        own_postgres.kill()
        thread.join()
        assert "it may be recorded or not, ask for its id, or record it again under the same id" in str(failed[0])
        standby.start()
        standby.promote()
        assert log.add_turn("once", continues="main", id=given).id == given
        assert len(log.thread("main")) == 2


def test_follower_is_told_of_what_an_asynchronous_standby_lacks(own_postgres: PostgresServer) -> None:
    """Where commits did not wait for it, acknowledged turns are lost with the primary: who saw them is told."""
    standby = own_postgres.standby(synchronous=False)
    own_postgres.create_database("talk")
    url = _url(own_postgres, standby, database="talk")
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
            behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_insert_lsn()"
            while connection.execute(behind).fetchone() != (0,):
                sleep(0.01)
        standby.kill()
        for number in range(3):
            log.add_turn(f"only here {number}", continues="main")
        *_, last = log.events()
        waiting = [
            log.events(last.global_position, follow=True, mark=True),
            log.events(0, follow=True, mark=True, topics=["acme.never"]),
        ]
        assert [next(events) for events in waiting] == [CaughtUp(global_position=last.global_position)] * 2
        own_postgres.kill()
        standby.start()
        standby.promote()
        for number in range(4):
            with pytest.raises(StoreCutError):
                next(iter(log.events(last.global_position, after_id=last.header.id)))
            log.add_turn(f"instead {number}", continues="main")
        for events in waiting:
            with pytest.raises(StoreCutError):
                next(events)
        assert len(log.thread("main")) == 5
        assert log.verify().damage == ()


def _commands(title: str, old: PostgresServer, new: PostgresServer) -> list[list[str]]:
    """Return the commands of a part of the page on failing over, as they are for two servers."""
    page = Path(ROOT, "docs/how-to/fail-over.md").read_text()
    block = page.partition(f"## {title}\n")[2].partition("```text\n")[2].partition("```")[0]
    here = block.replace("/srv/postgres", str(old.data)).replace("db2.example.org", f"127.0.0.1 port={new.port}")
    return [shlex.split(line) for line in here.splitlines()]


def test_old_primary_comes_back_as_a_standby() -> None:
    """By the commands of the page: `pg_rewind` takes back what it had more, and it follows the new one."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer(wal_log_hints="on") as primary:
        standby = primary.standby()
        primary.create_database("talk")
        with TurnLog.open(_url(primary, standby, database="talk")) as log:
            log.add_turn("root", bookmark="main")
            standby.kill()
            thread = threading.Thread(target=log.add_turn, args=("once",), kwargs={"continues": "main"})
            thread.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            with psycopg.connect(primary.url(), autocommit=True) as connection:
                while connection.execute(waiting).fetchone() == (0,):
                    sleep(0.01)
            primary.kill()
            standby.start()
            standby.promote()
            thread.join()
            stop, rewind, look, _, _ = _commands("The old primary", primary, standby)
            assert (stop[0], rewind[0]) == ("pg_ctl", "pg_rewind")
            _run(str(_programs() / "pg_rewind"), *rewind[1:])
            _run(*look)
            primary.start()
            log.add_turn("more", continues="main")
            events = [(event.global_position, event.header.id) for event in log.events()]
            with TurnLog.open(primary.url("talk")) as old:
                assert old.wait(3, timeout_s=60) == 4
                assert [(event.global_position, event.header.id) for event in old.events()] == events
                assert old.verify().damage == ()
                with pytest.raises(StoreReadOnlyError, match="connect to the primary, with target_session_attrs"):
                    old.add_turn("x")
                assert old.finish_erasing() == (
                    "nothing can be removed on a standby, or in a read-only session: `turnlog erase --finish` on the "
                    "primary"
                )
