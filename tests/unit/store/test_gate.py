"""A gate lets calls in until it is closed, and closing waits for those inside."""

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Generator
from time import monotonic, sleep

import pytest

from turnlog.errors import StoreClosedError
from turnlog.store.gate import Gate


class Inside(threading.Thread):
    """A thread that is inside a gate until it is told to leave."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self._entered, self._told = threading.Event(), threading.Event()
        self.start()
        assert self._entered.wait(30)

    def run(self) -> None:
        with self._gate.enter():
            self._entered.set()
            assert self._told.wait(30)

    def leave(self) -> None:
        self._told.set()
        self.join(30)


def _in_thread(work: Callable[[], object]) -> object:
    """Run work in another thread and return its result."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(30)
    return results[0]


def test_open_gate_lets_a_thread_in_again_and_again() -> None:
    """Entering while inside is allowed, and so is entering after leaving."""
    gate = Gate("log.db")
    with gate.enter(), gate.enter():
        pass
    with gate.enter():
        pass
    assert gate.close(0)


@pytest.mark.parametrize("been_inside", [False, True])
def test_closed_gate_refuses(been_inside: bool) -> None:
    """Who comes after closing is told that the store is closed, also a thread that was inside before."""
    gate = Gate("log.db")
    if been_inside:
        with gate.enter():
            pass
    assert gate.close(0)
    with pytest.raises(StoreClosedError, match=r"^store 'log\.db' is closed$") as caught, gate.enter():
        pass
    assert caught.value.__suppress_context__


def test_refused_entry_is_not_inside() -> None:
    """Refused entries do not count, even while their errors are kept."""
    gate = Gate("log.db")
    inside = Inside(gate)
    assert not gate.close(0)
    errors: list[StoreClosedError] = []
    for _ in range(3):
        with pytest.raises(StoreClosedError) as caught:
            gate.enter()
        errors.append(caught.value)
    inside.leave()
    assert _in_thread(lambda: gate.close(0))
    assert len(errors) == 3


def test_closing_waits_until_all_have_left() -> None:
    """Close returns true as soon as the last of several threads has left, and not before."""
    gate = Gate("log.db")
    first, second = Inside(gate), Inside(gate)
    closed = threading.Event()
    closer = threading.Thread(target=lambda: gate.close(30) and closed.set())
    closer.start()
    first.leave()
    assert not closed.wait(0.01)
    second.leave()
    assert closed.wait(30)
    closer.join(30)


def test_closing_says_when_somebody_stays() -> None:
    """When the time is up, close returns false; closing again waits again, and returns true in the end."""
    gate = Gate("log.db")
    inside = Inside(gate)
    begin = monotonic()
    assert not gate.close(0.02)
    assert monotonic() - begin >= 0.02
    assert not gate.close(0)
    inside.leave()
    assert gate.close(0)
    assert gate.close(0)


def test_two_may_close_at_once() -> None:
    """A second closer waits as the first one does."""
    gate = Gate("log.db")
    inside = Inside(gate)
    results: list[bool] = []
    closers = [threading.Thread(target=lambda: results.append(gate.close(30))) for _ in range(4)]
    for closer in closers:
        closer.start()
    inside.leave()
    for closer in closers:
        closer.join(30)
    assert results == [True] * 4


def test_own_entries_do_not_count() -> None:
    """Who closes from inside does not wait for itself, but for others; and may not enter any more."""
    gate = Gate("log.db")
    with gate.enter(), gate.enter():
        inside = Inside(gate)
        assert not gate.close(0)
        inside.leave()
        assert gate.close(0)
        with pytest.raises(StoreClosedError):
            gate.enter()


def test_last_to_leave_is_waited_for_after_closing_gave_up() -> None:
    """What is to be done once all have left is done then, once, if closing did not wait long enough."""
    gate = Gate("log.db")
    empty = threading.Event()
    runs: list[None] = []

    def on_empty() -> None:
        runs.append(None)
        empty.set()

    first, second = Inside(gate), Inside(gate)
    assert not gate.close(0, on_empty)
    first.leave()
    assert not empty.wait(0.03)
    second.leave()
    assert empty.wait(30)
    assert gate.close(0, on_empty)
    assert runs == [None]


def test_own_entries_count_for_what_is_done_later() -> None:
    """What is to be done once all have left waits for the thread that closed, too."""
    gate = Gate("log.db")
    empty = threading.Event()
    with gate.enter():
        inside = Inside(gate)
        assert not gate.close(0, empty.set)
        inside.leave()
        assert not empty.wait(0.03)
    assert empty.wait(30)


def test_generator_is_inside_wherever_it_goes_on() -> None:
    """What entered in one thread and is left in another, or is thrown away, is counted out."""
    gate = Gate("log.db")

    def pages() -> Generator[int]:
        with gate.enter():
            yield 1
            yield 2

    left_elsewhere, thrown_away = pages(), pages()
    for generator in (left_elsewhere, thrown_away):
        assert _in_thread(lambda generator=generator: next(generator)) == 1
    assert not gate.close(0)
    assert _in_thread(lambda: list(left_elsewhere)) == [2]
    assert not gate.close(0)
    del generator, thrown_away
    gc.collect()
    assert gate.close(0)


def test_body_that_raises_leaves() -> None:
    """An error inside is passed on, and its thread has left, even while the error is kept."""
    gate = Gate("log.db")

    def fail() -> BaseException:
        with pytest.raises(KeyError) as caught, gate.enter():
            raise KeyError("mine")
        return caught.value

    error = _in_thread(fail)
    assert gate.close(0)
    assert isinstance(error, KeyError)


def test_interrupts_do_not_lose_the_count() -> None:
    """However often a thread is interrupted on its way in and out, it is outside afterwards."""
    gate = Gate("log.db")
    passes = interrupts = 0
    interrupts_max = 500

    def work() -> None:
        nonlocal passes, interrupts
        while interrupts < interrupts_max:
            try:
                while True:
                    with gate.enter(), gate.enter():
                        pass
                    passes += 1
            except KeyboardInterrupt:
                interrupts += 1

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert thread.ident is not None
        number, interrupt = ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
        for sent in range(interrupts_max):
            seen = passes
            while interrupts < sent or passes == seen:
                assert thread.is_alive()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, interrupt)
        thread.join(30)
    finally:
        sys.setswitchinterval(interval_s)
    assert interrupts == interrupts_max
    assert gate.close(0)


def test_nobody_is_inside_once_closed() -> None:
    """In each of 200 rounds, 16 threads go in and out while the gate is closed, and none is inside afterwards."""
    threads_max = 16
    found_closed: list[int] = []
    entries = 0

    class Round:
        def __init__(self, number: int) -> None:
            self.number = number
            self.gate = Gate("log.db")
            self.closed = False
            self.begin = threading.Barrier(threads_max + 1)

        def work(self) -> None:
            nonlocal entries
            self.begin.wait(30)
            try:
                while True:
                    with self.gate.enter():
                        if self.closed:
                            found_closed.append(self.number)
                        entries += 1
                        sleep(0)  # others go on meanwhile
                        if self.closed:
                            found_closed.append(self.number)
            except StoreClosedError:
                pass

    for number in range(200):
        current = Round(number)
        threads = [threading.Thread(target=current.work) for _ in range(threads_max)]
        for thread in threads:
            thread.start()
        current.begin.wait(30)
        for _ in range(number % 20):
            sleep(0)
        assert current.gate.close(30)
        current.closed = True
        for thread in threads:
            thread.join(30)
    assert found_closed == []
    assert entries > 200


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_process_is_refused() -> None:
    """A child process cannot go in, also where it was inside when it forked, and closes nothing; its parent can."""
    gate, other = Gate("log.db"), Gate("other.db")
    inside = Inside(gate)
    with gate.enter():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                messages: list[str] = []
                for each in (gate, other):
                    try:
                        each.enter()
                    except StoreClosedError as error:
                        messages.append(str(error))
                if messages == [
                    "store 'log.db' was opened before this process was forked: open it again",
                    "store 'other.db' was opened before this process was forked: open it again",
                ] and not gate.close(30):
                    code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with gate.enter():
        pass
    inside.leave()
    assert gate.close(0)


def test_shut_for_a_moment_it_lets_in_only_who_is_inside() -> None:
    """They may have to come in once more to come to an end. Whoever comes waits, and comes in when it is opened."""
    gate = Gate("log.db")
    told, again, came = threading.Event(), threading.Event(), threading.Event()

    def inside() -> None:
        with gate.enter():
            assert told.wait(30)
            with gate.enter():
                again.set()

    def comes() -> None:
        with gate.enter():
            came.set()

    first = threading.Thread(target=inside, daemon=True)
    first.start()
    while not gate._places:  # pyright: ignore[reportPrivateUsage]
        sleep(0.001)
    assert not gate.shut(0.01)
    threading.Thread(target=comes, daemon=True).start()
    told.set()
    assert again.wait(30)
    first.join(30)
    assert gate.shut(30)
    assert not came.wait(0.05)
    gate.open()
    assert came.wait(30)
    assert gate.close(30)


def test_who_comes_and_goes_does_not_keep_it_from_being_shut() -> None:
    """Two threads that come again and again are let in no more, though one of them is always inside."""
    gate, ended = Gate("log.db"), threading.Event()

    def comes_again() -> None:
        while not ended.is_set():
            with gate.enter():
                sleep(0.001)

    threads = [threading.Thread(target=comes_again, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert gate.shut(30)
        gate.open()
    ended.set()
    for thread in threads:
        thread.join(30)
