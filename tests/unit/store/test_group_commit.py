"""Group commit."""

import threading
from collections.abc import Callable, Sequence

import pytest

from turnlog.errors import StoreBusyError, UncertainError
from turnlog.store import group_commit
from turnlog.store.group_commit import BATCH_MAX, GroupCommit, Request

Work = Callable[[list[str]], object]


class Journal:
    """A commit function that runs requests on a list, and can be held up at its start."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.batches: list[int] = []
        self.running = 0
        self.running_max = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.crash: BaseException | None = None

    def commit(self, batch: Sequence[Request[list[str]]]) -> None:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        self.entered.release()
        assert self.gate.wait(30)
        self.batches.append(len(batch))
        crash, self.crash = self.crash, None
        try:
            if crash is not None:
                raise crash
            for request in batch:
                try:
                    request.result = request.work(self.lines)
                except Exception as error:  # noqa: BLE001 - every error belongs to its caller
                    request.error = error
        finally:
            self.running -= 1


class Caller(threading.Thread):
    """A thread that runs one request and keeps what came of it."""

    def __init__(self, group: GroupCommit[list[str]], work: Work) -> None:
        super().__init__(daemon=True)
        self._group, self._work = group, work
        self.result: object = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._group.run(self._work)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error


def _write(line: str) -> Work:
    def work(lines: list[str]) -> str:
        lines.append(line)
        return f"wrote {line}"

    return work


def _until(condition: Callable[[], bool]) -> None:
    """Wait without sleeping until a condition holds that other threads bring about."""
    waiter = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        waiter.wait(0.001)
    pytest.fail("the condition never came")


def _waiting(group: GroupCommit[list[str]]) -> int:
    return len(group._waiting)


def _leading(group: GroupCommit[list[str]], journal: Journal) -> Caller:
    """Return a caller that leads, and is held up until the journal's gate is opened."""
    journal.gate.clear()
    leader = Caller(group, _write("first"))
    assert journal.entered.acquire(timeout=30)
    return leader


@pytest.fixture
def journal() -> Journal:
    """Give a journal."""
    return Journal()


def test_lone_caller_gets_its_result_in_its_own_thread(journal: Journal) -> None:
    """One caller alone runs its own batch of one, without another thread."""
    group = GroupCommit(journal.commit)
    threads: list[int] = []

    def work(lines: list[str]) -> int:
        threads.append(threading.get_ident())
        return 7

    assert group.run(work) == 7
    assert threads == [threading.get_ident()]
    assert journal.batches == [1]


def test_error_of_a_request_is_raised_to_its_caller_only(journal: Journal) -> None:
    """A request that fails raises its own error; the next one is not affected."""
    group = GroupCommit(journal.commit)
    failure = ValueError("mine")

    def work(lines: list[str]) -> None:
        raise failure

    with pytest.raises(ValueError, match="mine") as caught:
        group.run(work)
    assert caught.value is failure
    assert group.run(_write("a")) == "wrote a"


def test_requests_that_arrive_during_a_commit_share_the_next(journal: Journal) -> None:
    """Who comes while a batch runs waits, and all of these run as one batch."""
    group = GroupCommit(journal.commit)
    callers = [_leading(group, journal)]
    for number in range(5):
        callers.append(Caller(group, _write(str(number))))
        _until(lambda number=number: _waiting(group) == number + 1)
    journal.gate.set()
    for caller in callers:
        caller.join(30)
    assert journal.batches == [1, 5]
    assert journal.lines[0] == "first"
    assert sorted(journal.lines[1:]) == ["0", "1", "2", "3", "4"]
    assert [caller.result for caller in callers] == ["wrote first", *(f"wrote {number}" for number in range(5))]


def test_batch_has_a_largest_size(journal: Journal) -> None:
    """More requests than a batch may hold are spread over several, none lost."""
    group = GroupCommit(journal.commit)
    first = _leading(group, journal)
    callers = [Caller(group, _write("x")) for _ in range(BATCH_MAX + 10)]
    _until(lambda: _waiting(group) == BATCH_MAX + 10)
    journal.gate.set()
    for caller in (first, *callers):
        caller.join(30)
    assert journal.batches == [1, BATCH_MAX, 10]
    assert all(caller.result == "wrote x" for caller in callers)


def test_one_batch_runs_at_a_time(journal: Journal) -> None:
    """However many callers there are, commits never overlap, and every request runs once."""
    group = GroupCommit(journal.commit)

    def many(name: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(200):
                assert group.run(_write(f"{name}.{number}")) == f"wrote {name}.{number}"

        return run

    threads = [threading.Thread(target=many(name)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert journal.running_max == 1
    assert sorted(journal.lines) == sorted(f"{name}.{number}" for name in range(8) for number in range(200))
    for name in range(8):
        mine = [line for line in journal.lines if line.startswith(f"{name}.")]
        assert mine == [f"{name}.{number}" for number in range(200)]


def test_interrupted_commit_tells_every_waiting_caller(journal: Journal) -> None:
    """When the leader is interrupted it sees the interrupt, the others a store error, and the group goes on."""
    group = GroupCommit(journal.commit)
    first = _leading(group, journal)
    others = [Caller(group, _write("a"))]
    _until(lambda: _waiting(group) == 1)
    others.append(Caller(group, _write("b")))
    _until(lambda: _waiting(group) == 2)
    original = journal.commit

    def commit(batch: Sequence[Request[list[str]]]) -> None:
        if len(batch) == 2:
            journal.crash = KeyboardInterrupt()
        original(batch)

    group._commit = commit
    journal.gate.set()
    for caller in (first, *others):
        caller.join(30)
    assert first.result == "wrote first"
    [leader] = [caller for caller in others if isinstance(caller.error, KeyboardInterrupt)]
    [follower] = [caller for caller in others if caller is not leader]
    assert isinstance(follower.error, UncertainError)
    assert "may or may not be recorded" in str(follower.error)
    assert group.run(_write("after")) == "wrote after"


def test_append_within_an_append_of_the_same_thread_is_refused(journal: Journal) -> None:
    """As where a signal handler comes between: it would wait for itself, and all others with it."""
    group = GroupCommit(journal.commit)
    journal.gate.set()

    def within(lines: list[str]) -> str:
        with pytest.raises(StoreBusyError, match="in the middle of an append"):
            group.run(_write("within"))
        return _write("around")(lines)

    assert group.run(within) == "wrote around"
    assert group.run(_write("after")) == "wrote after"
    assert journal.lines == ["around", "after"]


def test_caller_interrupted_while_it_waits_takes_its_request_back(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose caller was interrupted before it ran never runs, and those behind it still do."""
    group = GroupCommit(journal.commit)
    first = _leading(group, journal)
    interrupt = threading.Event()
    wait = Request.wait

    def interruptible(request: Request[list[str]]) -> None:
        if threading.current_thread() is interrupted:
            assert interrupt.wait(30)
            raise KeyboardInterrupt
        wait(request)

    monkeypatch.setattr(Request, "wait", interruptible)
    interrupted = threading.Thread.__new__(Caller)
    Caller.__init__(interrupted, group, _write("taken back"))
    _until(lambda: _waiting(group) == 1)
    behind = Caller(group, _write("behind"))
    _until(lambda: _waiting(group) == 2)
    interrupt.set()
    interrupted.join(30)
    journal.gate.set()
    first.join(30)
    behind.join(30)
    assert isinstance(interrupted.error, KeyboardInterrupt)
    assert behind.result == "wrote behind"
    assert journal.lines == ["first", "behind"]


def test_lead_passes_on_when_the_next_leader_was_interrupted(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that is interrupted after it was given the lead hands it to the one behind it."""
    group = GroupCommit(journal.commit)
    first = _leading(group, journal)
    wait = Request.wait

    def interrupted_after(request: Request[list[str]]) -> None:
        wait(request)
        if threading.current_thread() is heir and journal.gate.is_set():
            raise KeyboardInterrupt

    monkeypatch.setattr(Request, "wait", interrupted_after)
    heir = threading.Thread.__new__(Caller)
    Caller.__init__(heir, group, _write("taken back"))
    _until(lambda: _waiting(group) == 1)
    behind = Caller(group, _write("behind"))
    _until(lambda: _waiting(group) == 2)
    journal.gate.set()
    for caller in (first, heir, behind):
        caller.join(30)
    assert isinstance(heir.error, KeyboardInterrupt)
    assert behind.result == "wrote behind"
    assert journal.lines == ["first", "behind"]
    assert group.run(_write("after")) == "wrote after"


@pytest.mark.parametrize("is_one_interrupted", [False, True])
def test_callers_that_were_served_wake_each_other(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, is_one_interrupted: bool
) -> None:
    """Who led wakes one, and each of these the next: none has to look for itself, also where one was interrupted."""
    monkeypatch.setattr(group_commit, "LOOK_S", 60)
    group = GroupCommit(journal.commit)
    callers = [_leading(group, journal)]
    wait = Request.wait

    def interrupted_after(request: Request[list[str]]) -> None:
        wait(request)
        if is_one_interrupted and threading.current_thread() is callers[10] and request.done:
            raise KeyboardInterrupt

    monkeypatch.setattr(Request, "wait", interrupted_after)
    for number in range(20):
        callers.append(Caller(group, _write(str(number))))
        _until(lambda number=number: _waiting(group) == number + 1)
    journal.gate.set()
    for caller in callers:
        caller.join(20)
        assert not caller.is_alive()
    interrupted = [caller for caller in callers if isinstance(caller.error, KeyboardInterrupt)]
    assert interrupted == ([callers[10]] if is_one_interrupted else [])
    assert sorted(journal.lines[1:], key=int) == [str(number) for number in range(20)]
