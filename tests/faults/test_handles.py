"""Locks of a database file are a whole process's: they outlast all else it does with the file, and go into no child."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from turnlog import StoreClosedError, StoreOpenError, TurnLog
from turnlog.cli.commands.stores import _file as look_at  # pyright: ignore[reportPrivateUsage]
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.store.sqlite import handles

_VISIT = """
import sys
from turnlog import TurnLog
with TurnLog.open(sys.argv[1]) as log:
    print(*(event.header.id for event in log.events()))
"""

FORKS = 8


def visit(url: str) -> set[str]:
    """Open a store in another process, and close it; return the ids of the events that are seen there."""
    done = subprocess.run([sys.executable, "-c", _VISIT, url], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def in_child(work: Callable[[], object]) -> int:
    """Fork a child that does some work, and return its process."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return process


def ended(process: int) -> int:
    """Wait for a child, and return its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def opened_again(log: TurnLog) -> None:
    """Open the same store a second time."""
    with TurnLog.open(log.store.url) as other:
        assert other.turn("main")


def verified(log: TurnLog) -> None:
    """Read all bytes of the file, and those beside it."""
    assert log.verify().clean


def looked_at(log: TurnLog) -> None:
    """Look at the store as `turnlog stores` does."""
    assert look_at(Path(log.store.url.removeprefix("sqlite:///"))).exists


@pytest.mark.parametrize("look", [opened_again, verified, looked_at])
def test_who_looks_at_an_open_file_leaves_its_locks(tmp_path: Path, look: Callable[[TurnLog], None]) -> None:
    """Another process that comes and goes does not take itself for the last one, and the log away."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        ids = {log.add_turn("root", bookmark="main").id}
        for number in range(2):
            look(log)
            assert ids <= visit(url)
            ids.add(log.add_turn(f"turn {number}", continues="main").id)
        assert ids <= visit(url)


def test_who_reads_an_open_file_of_projections_leaves_its_locks(tmp_path: Path) -> None:
    """They are in a file of their own."""
    path = tmp_path / "own.db"
    come_and_go = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT 1 FROM t')"
    with closing(SQLiteTarget(path)) as target:
        with target.transaction() as db:
            db.execute("CREATE TABLE t (n)")
        for number in range(3):
            with target.reader() as db:
                assert len(db.execute("SELECT n FROM t").fetchall()) == number
            subprocess.run([sys.executable, "-c", come_and_go], check=True)
            with target.transaction() as db:
                db.execute("INSERT INTO t VALUES (?)", (number,))
    with closing(SQLiteTarget(path)) as target, target.reader() as db:
        assert db.execute("SELECT n FROM t").fetchall() == [(0,), (1,), (2,)]


def test_children_record_though_their_parent_closes_the_file(tmp_path: Path) -> None:
    """They have connections of their own, as with the workers of `multiprocessing`."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")

        def work() -> None:
            with TurnLog.open(url) as own:
                for number in range(10):
                    own.add_turn(f"turn {number}", continues="main")
                    time.sleep(0.05)

        children = [in_child(work) for _ in range(3)]
        assert log.turn("main")
    visit(url)
    assert [ended(child) for child in children] == [0] * 3
    with TurnLog.open(url) as log:
        assert len(log.ancestry("main")) == 31
        assert log.verify().clean


def test_a_process_that_records_may_be_forked_at_any_moment(tmp_path: Path) -> None:
    """Its threads wait for a moment, and go on; each child can open the store, and record."""
    url = f"sqlite:///{tmp_path}/log.db"
    ended_all, counts = threading.Event(), [0, 0]
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")

        def record(index: int) -> None:
            while not ended_all.is_set():
                log.add_turn("parent", continues="main")
                counts[index] += 1
                if index:
                    assert log.turn("main")

        def work() -> None:
            with TurnLog.open(url) as own:
                own.add_turn("child", continues="main")

        threads = [threading.Thread(target=record, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        children: list[int] = []
        for number in range(FORKS):
            time.sleep(0.003 * number)
            children.append(in_child(work))
        assert [ended(child) for child in children] == [0] * FORKS
        ended_all.set()
        for thread in threads:
            thread.join()
    with TurnLog.open(url) as log:
        assert len(log.ancestry("main")) == 1 + FORKS + sum(counts)
        assert log.verify().clean


def test_what_is_in_use_at_a_fork_cannot_be_opened_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to do; other stores can be opened. The parent goes on, and later children can open it."""
    monkeypatch.setattr(handles, "WAIT_S", 0.2)
    url = f"sqlite:///{tmp_path}/log.db"

    def refused() -> None:
        with pytest.raises(StoreOpenError, match=r"in use when this process was forked.*'spawn'"):
            TurnLog.open(url)
        with TurnLog.open(f"sqlite:///{tmp_path}/other.db") as other:
            other.add_turn("child")

    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")
        with log.store.read() as transaction:
            assert transaction.log_end() == 2
            assert ended(in_child(refused)) == 0
            log.add_turn("meanwhile", continues="main")
            assert transaction.log_end() == 2
        assert ended(in_child(lambda: TurnLog.open(url).close())) == 0
        assert log.verify().clean


def test_threads_that_open_and_close_a_store_take_no_handle_of_others(tmp_path: Path) -> None:
    """Each reads how the file begins, on a handle that another one may have kept open."""
    url, failures, ids = f"sqlite:///{tmp_path}/log.db", list[BaseException](), list[str]()
    with TurnLog.open(url) as log:
        log.add_turn("root", bookmark="main")

    def come_and_go() -> None:
        try:
            for _ in range(60):
                with TurnLog.open(url) as own:
                    ids.append(own.add_turn("x").id)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {*ids} <= visit(url)
    with TurnLog.open(url) as log:
        assert log.verify().clean


def test_forks_and_checks_leave_no_handles(tmp_path: Path) -> None:
    """What is beside the file is made anew behind each fork: none is left of what is gone."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("root", bookmark="main")
        counts: list[int] = []
        for _ in range(12):
            assert ended(in_child(lambda: None)) == 0
            log.add_turn("more", continues="main")
            assert log.verify().clean
            counts.append(len([*Path("/dev/fd").iterdir()]))
        assert counts[-1] < counts[0] + 8  # there may be another reader or two


def test_a_child_may_leave_the_block_in_which_its_parent_searches(tmp_path: Path) -> None:
    """The log, and all that is beside it, refuses to work there, and does not wait for anybody."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("alpha", bookmark="main")
        assert log.feeds.search("alpha")

        def work() -> None:
            signal.alarm(20)
            with pytest.raises(StoreClosedError, match="opened before this process was forked"):
                log.feeds.search("alpha")
            log.close()

        assert ended(in_child(work)) == 0
        assert log.feeds.search("alpha")


def test_an_interrupt_that_comes_while_a_fork_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork takes place, the interrupt is raised behind it, and the log goes on."""
    monkeypatch.setattr(handles, "WAIT_S", 0.5)
    reading, read = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
            log.add_turn("root", bookmark="main")

            def reader() -> None:
                with log.store.read():
                    reading.set()
                    assert read.wait(30)

            thread = threading.Thread(target=reader)
            thread.start()
            assert reading.wait(30)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            interrupted = False
            try:
                ended(in_child(lambda: None))
                time.sleep(5)
            except KeyboardInterrupt:
                interrupted = True
            assert interrupted
            log.add_turn("behind", continues="main")
            read.set()
            thread.join()
            assert log.verify().clean
    finally:
        signal.signal(signal.SIGINT, before)
