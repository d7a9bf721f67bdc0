"""Readers wait for the log to grow, and one thread looks for all of them."""

import math
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from turnlog.errors import CorruptionError, MetaError, StoreClosedError
from turnlog.store.waiting import Latch, Waker

NAME = "turnlog-waker"
FOR_EVER_S = 3600.0
"""A pause between looks that never comes to its end in a test."""


class Log:
    """The end of a log, and who asked for it."""

    def __init__(self) -> None:
        self.end = 0
        self.asked: list[str] = []
        self.error: BaseException | None = None
        self.looked = threading.Semaphore(0)

    def log_end(self) -> int:
        name = threading.current_thread().name
        self.asked.append(name)
        if name == NAME:
            self.looked.release()
        if self.error is not None:
            raise self.error
        return self.end

    def looks(self) -> int:
        """Return how often the waker's own thread has asked."""
        return self.asked.count(NAME)


class Reader(threading.Thread):
    """A thread that waits."""

    def __init__(self, waker: Waker, after: int = 0, timeout_s: float | None = None) -> None:
        super().__init__(daemon=True)
        self._waker, self._after, self._timeout_s = waker, after, timeout_s
        self.end: int | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.end = self._waker.wait(self._after, self._timeout_s)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def result(self) -> int | None:
        self.join(30)
        assert not self.is_alive()
        return self.end


def _until(condition: Callable[[], bool]) -> None:
    """Wait without sleeping until a condition holds that other threads bring about."""
    waiter = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        waiter.wait(0.001)
    pytest.fail("the condition never came")


def _wakers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def log() -> Log:
    """Give a log."""
    return Log()


@pytest.fixture
def slow(log: Log) -> Iterator[Waker]:
    """Give a waker whose thread looks once an hour: what wakes anybody is a nudge."""
    waker = Waker(log.log_end, poll_s=FOR_EVER_S)
    yield waker
    waker.close()


@pytest.fixture
def quick(log: Log) -> Iterator[Waker]:
    """Give a waker whose thread looks often."""
    waker = Waker(log.log_end, poll_s=0.001)
    yield waker
    waker.close()


def _waiting(waker: Waker) -> int:
    here = waker._here
    return len(here.watches) if here.thread is not None else 0


def test_log_that_is_longer_already_is_not_waited_for(log: Log, slow: Waker) -> None:
    """Who asks for less than there is gets the end at once, without a thread."""
    log.end = 7
    assert slow.wait(6, None) == 7
    assert slow.wait(0, 0.5) == 7
    assert log.looks() == 0
    assert slow._here.thread is None


def test_timeout_of_zero_asks_once(log: Log, slow: Waker) -> None:
    """Zero seconds are no wait at all: the end is returned, beyond or not."""
    log.end = 7
    assert slow.wait(7, 0) == 7
    assert slow.wait(6, 0) == 7
    assert slow.wait(100, 0) == 7
    assert len(log.asked) == 3
    assert slow._here.thread is None


def test_time_that_is_up_gives_the_end_as_it_is(log: Log, slow: Waker) -> None:
    """Who waits in vain gets the end of the log as it is then."""
    log.end = 7
    begin = monotonic()
    reader = Reader(slow, 9, 0.03)
    _until(lambda: _waiting(slow) == 1)
    log.end = 8
    assert reader.result() == 8
    assert monotonic() - begin >= 0.03
    assert not slow._here.watches


def test_growth_from_elsewhere_is_seen(log: Log, quick: Waker) -> None:
    """What another process records wakes a reader at the next look."""
    reader = Reader(quick, 3)
    assert log.looked.acquire(timeout=30)
    log.end = 3
    assert log.looked.acquire(timeout=30)
    assert log.looked.acquire(timeout=30)
    assert reader.is_alive()
    log.end = 5
    assert reader.result() == 5


def test_nudge_wakes_at_once_whom_it_concerns(log: Log, slow: Waker) -> None:
    """A nudge with the new end wakes those below it, without another look, and leaves the others."""
    low, high = Reader(slow, 0), Reader(slow, 5)
    _until(lambda: _waiting(slow) == 2)
    slow.nudge(5)
    assert low.result() == 5
    assert high.is_alive()
    slow.nudge(6)
    assert high.result() == 6
    assert log.looks() == 0


def test_nudge_without_an_end_makes_the_thread_look(log: Log, slow: Waker) -> None:
    """A nudge that does not say where the log ends has it looked up."""
    reader = Reader(slow)
    _until(lambda: _waiting(slow) == 1)
    log.end = 4
    slow.nudge()
    assert reader.result() == 4
    assert log.looks() == 1


def test_thread_does_not_ask_for_what_an_append_has_told(log: Log, slow: Waker) -> None:
    """Where this process appends all the time, nobody has to ask; after the last append it is asked again."""
    reader = Reader(slow, 9)
    _until(lambda: _waiting(slow) == 1)
    slow.nudge(5)
    slow._here.look.set()
    _until(lambda: not slow._here.told)
    assert log.looks() == 0
    log.end = 10
    slow._here.look.set()
    assert reader.result() == 10
    assert log.looks() == 1


def test_nudge_while_nobody_waits_takes_no_lock(slow: Waker) -> None:
    """An append pays nothing for readers that are not there: it goes by even if the lock is held."""
    with slow._here.lock:
        slow.nudge()
        slow.nudge(9)
    assert not slow._here.look.is_set()


def test_nothing_is_missed_between_asking_and_waiting(log: Log) -> None:
    """What is recorded while a reader asks, too late for the answer, wakes it."""

    def log_end() -> int:
        end = log.log_end()
        if threading.current_thread().name != NAME and end == 0:
            log.end = 1
            waker.nudge(1)
        return end

    waker = Waker(log_end, poll_s=FOR_EVER_S)
    assert waker.wait(0, None) == 1
    waker.close()


def test_thousand_readers_cost_one_look(log: Log, slow: Waker) -> None:
    """Each reader asks when it comes; after that one look serves all, however many wait."""
    size = threading.stack_size(128 * 1024)
    try:
        readers = [Reader(slow, number % 10) for number in range(1000)]
    finally:
        threading.stack_size(size)
    _until(lambda: len(log.asked) == 1000)
    assert _waiting(slow) == 1000
    log.end = 5
    slow.nudge()
    _until(lambda: _waiting(slow) == 500)
    log.end = 10
    slow.nudge()
    assert [reader.result() for reader in readers] == [5 if number % 10 < 5 else 10 for number in range(1000)]
    assert log.looks() == 2
    assert len(log.asked) == 1002


def test_thread_begins_with_the_first_reader_and_ends_after_the_last(log: Log, quick: Waker) -> None:
    """Where nobody waits there is no thread for long, and a new one when somebody waits again."""
    threads: list[threading.Thread] = []
    for end in (1, 2):
        assert not quick._here.thread
        reader = Reader(quick, end - 1)
        assert log.looked.acquire(timeout=30)
        thread = quick._here.thread
        assert thread is not None
        assert thread.daemon
        threads.append(thread)
        log.end = end
        assert reader.result() == end
        thread.join(30)
        assert not thread.is_alive()
        while log.looked.acquire(blocking=False):
            pass
    assert threads[0] is not threads[1]


def test_thread_stays_for_a_reader_that_waits_again(log: Log, quick: Waker) -> None:
    """A reader that waits in a loop does not start a thread each time."""
    threads: set[threading.Thread | None] = set()
    for end in range(1, 30):
        reader = Reader(quick, end - 1)
        _until(lambda: _waiting(quick) == 1)
        threads.add(quick._here.thread)
        log.end = end
        assert reader.result() == end
    assert len(threads) == 1


def test_error_of_the_log_is_raised_by_all_who_wait(log: Log, quick: Waker) -> None:
    """When the end cannot be told, readers get the error, with a traceback of their own; later ones may do better."""
    readers = [Reader(quick) for _ in range(20)]
    _until(lambda: _waiting(quick) == 20)
    log.error = CorruptionError("the stored bytes are damaged")
    for reader in readers:
        reader.join(30)
        assert isinstance(reader.error, CorruptionError)
        assert str(reader.error) == "the stored bytes are damaged"
        assert len(traceback.extract_tb(reader.error.__traceback__)) < 12
    assert len({id(reader.error) for reader in readers}) == 20
    with pytest.raises(CorruptionError):
        quick.wait(0, 1)
    log.error, log.end = None, 1
    assert quick.wait(0, None) == 1


def test_closing_wakes_all_and_refuses_more(log: Log, slow: Waker) -> None:
    """Readers that wait get a StoreClosedError, and so do those who come later; closing twice is allowed."""
    readers = [Reader(slow, 0, timeout_s) for timeout_s in (None, 3600.0, math.inf)]
    _until(lambda: _waiting(slow) == 3)
    thread = slow._here.thread
    slow.close()
    for reader in readers:
        reader.join(30)
        assert isinstance(reader.error, StoreClosedError)
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()
    for timeout_s in (0, 1, None):
        with pytest.raises(StoreClosedError):
            slow.wait(0, timeout_s)
    slow.nudge()
    slow.nudge(3)
    slow.close()


@pytest.mark.parametrize("timeout_s", [-1, -0.001, -math.inf, math.nan])
def test_time_that_makes_no_sense_is_refused(log: Log, slow: Waker, timeout_s: float) -> None:
    """A negative time, or none that is a number, is an error of the field."""
    with pytest.raises(MetaError, match="timeout_s") as caught:
        slow.wait(0, timeout_s)
    assert caught.value.field == "timeout_s"
    assert log.asked == []


def test_no_append_is_missed(log: Log, slow: Waker) -> None:
    """Readers that follow a log while it grows see its end, though nothing but nudges wakes them."""
    last = 2000
    seen: list[list[int]] = [[] for _ in range(4)]

    def follow(ends: list[int]) -> None:
        end = 0
        while end < last:
            end = slow.wait(end, None)
            ends.append(end)

    readers = [threading.Thread(target=follow, args=(ends,)) for ends in seen]
    for reader in readers:
        reader.start()
    for end in range(1, last + 1):
        log.end = end
        slow.nudge(end)
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    for ends in seen:
        assert ends == sorted(set(ends))
        assert ends[-1] == last


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_process_waits_for_itself(log: Log, slow: Waker) -> None:
    """A child process has none of its parent's readers and threads, not even if a lock was held when it began."""
    reader = Reader(slow)
    _until(lambda: _waiting(slow) == 1)
    with slow._here.lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                slow.nudge(1)
                log.end = 1
                mine = Reader(slow, 1)
                _until(lambda: _waiting(slow) == 1)
                slow.nudge(2)
                if mine.result() == 2 and slow.wait(0, 5) == 1:
                    slow.close()
                    code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.is_alive()
    slow.nudge(8)
    assert reader.result() == 8


def test_interrupted_reader_is_forgotten(log: Log, slow: Waker) -> None:
    """A reader that is interrupted while it asks leaves nothing behind."""
    log.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        slow.wait(0, None)
    assert not slow._here.watches


def test_a_signal_that_does_not_wake_the_main_thread_is_not_lost() -> None:
    """It comes just before the wait begins. So does here one that another thread is given: Python notes it, no more."""
    threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        Latch().wait(None)
