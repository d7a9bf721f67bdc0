"""A process that is forked while it holds locks: they are its own, and go with it, whatever its children do."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from turnlog import StoreClosedError, TurnLog


def child(work: Callable[[], None]) -> int:
    """Fork a child that does some work and then waits to be killed; return it once the work is done."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reader)
            work()
            os.write(writer, b"done")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 4) == b"done"
    os.close(reader)
    return process


def kill(process: int) -> None:
    """Kill a child, and see to it that it is gone."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_a_forked_child_has_none_of_its_parents_locks(log_url: str) -> None:
    """Nor the log: it says so, and whatever the child lets go of, its parent has still."""
    with TurnLog.open(log_url) as log:
        turn = log.add_turn("root", bookmark="main")
        release = log.store.locks.take("turn")
        assert release is not None
        events = log.events()
        assert next(events).global_position == 1

        def work() -> None:
            with pytest.raises(StoreClosedError, match="opened before this process was forked: open it again"):
                next(events)
            with pytest.raises(StoreClosedError, match="opened before this process was forked: open it again"):
                log.turn("main")
            release()
            log.close()
            with TurnLog.open(log_url) as own:
                assert own.store.locks.is_taken("turn")
                own.add_turn("child", continues="main")

        kill(child(work))
        with TurnLog.open(log_url) as other:
            assert other.store.locks.is_taken("turn")
            release()
            assert not other.store.locks.is_taken("turn")
        assert next(events).header.id == turn.id
        assert log.turn("main").continues == (turn.id,)
        assert log.verify().clean


def test_locks_go_with_a_killed_process_though_its_child_lives(log_url: str) -> None:
    """As with the workers of `multiprocessing`, which go on when what has forked them is killed."""
    reader, writer = os.pipe()

    def work() -> None:
        log = TurnLog.open(log_url)
        log.add_turn("root", bookmark="main")
        assert log.store.locks.take("turn") is not None
        os.write(writer, b"%d" % child(lambda: None))

    killed = child(work)
    worker = int(os.read(reader, 20))
    try:
        with TurnLog.open(log_url) as log:
            assert log.store.locks.is_taken("turn")
            kill(killed)
            until_s = time.monotonic() + 30
            while log.store.locks.is_taken("turn"):
                assert time.monotonic() < until_s
                time.sleep(0.01)
            assert log.verify().clean
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


def test_the_server_looks_whether_a_host_with_locks_is_still_there(postgres_url: str) -> None:
    """By itself it would keep the locks of one that lost its power for two hours."""
    with TurnLog.open(postgres_url) as log:
        assert log.store.locks.take("turn") is not None
        with log.store.read() as transaction:
            asked = "SELECT setting FROM pg_settings WHERE name LIKE 'tcp_keepalives%' ORDER BY name"
            assert transaction.rows(asked) == [("3",), ("30",), ("10",)]
