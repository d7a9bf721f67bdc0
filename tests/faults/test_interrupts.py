"""Interrupts (^C, a signal handler that raises) never leave the log locked, and never record half of anything."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.faults.interrupting import at_line, interrupt
from tests.sealed_log import seals_in

from turnlog import TurnLog
from turnlog.errors import StoreError
from turnlog.store import WriteTransaction, gate, group_commit, rows, waiting
from turnlog.store.sqlite import appending, connections, store, transactions
from turnlog.testing.faults import run_process

WAIT_S = 30


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TurnLog]:
    """Open a log."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


def _append_in_a_thread(log: TurnLog, text: str) -> bool:
    """Append in a thread of its own and tell whether it came back: an append that hangs must not hang the test."""
    thread = threading.Thread(target=log.add_turn, args=(text,), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return not thread.is_alive()


def test_plan_that_is_interrupted_leaves_nothing(log: TurnLog) -> None:
    """An interrupt inside a write transaction comes out, nothing of it stays, and the next append works."""
    log.add_turn("before")
    draft = log.turn(log.add_turn("to copy").id)

    def plan(transaction: WriteTransaction) -> None:
        recorded = transaction.event(draft.id)
        assert recorded is not None
        transaction.run("DELETE FROM bookmarks")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.store.write(plan)
    assert _append_in_a_thread(log, "after")
    assert [recorded.global_position for recorded in log.events()] == [1, 2, 3, 4]
    assert log.verify().clean


def test_callers_that_share_an_interrupted_commit_get_an_answer(log: TurnLog) -> None:
    """When the thread that commits for others is interrupted, each gets a result or an error, and none hangs."""
    inside, go_on = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def plan(_: WriteTransaction) -> None:
        inside.set()
        go_on.wait(WAIT_S)
        raise KeyboardInterrupt

    def lead() -> None:
        try:
            log.store.write(plan)
        except KeyboardInterrupt:
            outcomes.append("interrupted")

    def follow(n: int) -> None:
        try:
            outcomes.append(log.add_turn(f"follow {n}").id)
        except StoreError:
            outcomes.append("error")

    threads = [threading.Thread(target=lead, daemon=True)]
    threads[0].start()
    assert inside.wait(WAIT_S)
    threads += [threading.Thread(target=follow, args=(n,), daemon=True) for n in range(5)]
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(outcomes) == 6
    recorded = {recorded.header.id for recorded in log.events()}
    assert {outcome for outcome in outcomes if outcome not in ("interrupted", "error")} <= recorded
    assert log.verify().clean


def _interrupt_a_waiting_caller(url: str) -> dict[str, Any]:
    """Let the main thread wait for its turn to be committed, interrupt it there, and tell what is recorded."""
    inside, go_on = threading.Event(), threading.Event()
    found: dict[str, Any] = {}
    signal.signal(signal.SIGUSR1, signal.default_int_handler)
    with TurnLog.open(url) as log:

        def plan(_: WriteTransaction) -> None:
            inside.set()
            go_on.wait(WAIT_S)

        def interrupt() -> None:
            main = threading.main_thread().ident or 0
            before: tuple[str, int] | None = None
            for _ in range(WAIT_S * 100):
                now = _place_in_group_commit(sys._current_frames()[main])
                if now is not None and now == before:
                    break
                before = now
                go_on.wait(0.01)
            signal.pthread_kill(main, signal.SIGUSR1)

        leader = threading.Thread(target=log.store.write, args=(plan,))
        leader.start()
        inside.wait(WAIT_S)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        try:
            log.add_turn("withdrawn")
            found["raised"] = "nothing"
        except KeyboardInterrupt:
            found["raised"] = "KeyboardInterrupt"
        go_on.set()
        leader.join()
        interrupter.join()
        found["after"] = log.add_turn("after").global_position
        found["clean"] = log.verify().clean
    return found


def _place_in_group_commit(frame: FrameType | None) -> tuple[str, int] | None:
    """Return where in the group commit a thread is: the same place twice means that it waits there."""
    while frame is not None and frame.f_code.co_filename != group_commit.__file__:
        frame = frame.f_back
    return (frame.f_code.co_name, frame.f_lasti) if frame else None


def test_interrupted_caller_withdraws_its_turn(tmp_path: Path) -> None:
    """A caller that is interrupted while it waits for its commit gets the interrupt, and its turn is not recorded."""
    found = run_process(_interrupt_a_waiting_caller, f"sqlite:///{tmp_path}/log.db")
    assert found == {"raised": "KeyboardInterrupt", "after": 2, "clean": True}


def test_interrupt_at_any_line_does_not_lock_the_log(tmp_path: Path) -> None:
    """Wherever in the group commit an interrupt falls, the next append works, and every turn is whole or absent."""
    url = f"sqlite:///{tmp_path}/log.db"
    log = TurnLog.open(url)
    locked: list[str] = []
    line = 0
    while place := at_line(line := line + 1, lambda log=log: log.add_turn("interrupted"), interrupt):
        thread = threading.Thread(target=log.add_turn, args=("after",), daemon=True)
        thread.start()
        thread.join(2)
        if thread.is_alive():
            locked.append(place)
            log = TurnLog.open(url)
    assert locked == []
    assert line > 10
    assert log.verify().clean
    log.close()


_WAYS: dict[str, Callable[[TurnLog], object]] = {
    "append": lambda log: log.add_turn("interrupted", continues="main"),
    "large append": lambda log: log.add_turn("x" * 200_000),
    "read": lambda log: log.payload("main"),
    "wait": lambda log: log.wait(log.turn("main").global_position, 0.01),
}
_STORE = (group_commit, gate, waiting, connections, store, appending, transactions, rows)


@pytest.mark.parametrize("way", _WAYS)
def test_interrupt_at_any_line_of_the_store_does_no_harm(tmp_path: Path, way: str) -> None:
    """Wherever in the store an interrupt falls, the log can be read, written and closed, and holds nothing by half."""
    url = f"sqlite:///{tmp_path}/log.db"
    with TurnLog.open(url) as log:
        log.add_turn("before", bookmark="main")
    harmed: list[str] = []
    line = 0
    while True:
        log = TurnLog.open(url, busy_timeout_s=WAIT_S)
        place = at_line(line := line + 1, lambda log=log: _WAYS[way](log), interrupt, _STORE)

        def go_on(log: TurnLog = log, place: str | None = place) -> None:
            try:
                turn = log.add_turn("after", continues="main")
                assert log.turn("main") == turn
            except Exception as error:  # noqa: BLE001 - it is reported
                harmed.append(f"{place}: {error}")

        for step in (go_on, log.close):
            thread = threading.Thread(target=step, daemon=True)
            thread.start()
            # Long before an append would give up, or closing would no longer wait.
            thread.join(WAIT_S / 3)
            if thread.is_alive():
                harmed.append(f"{place}: {step.__name__} hangs")
        if place is None:
            break
    assert harmed == []
    assert line > 30
    with TurnLog.open(url) as log:
        assert len(log.ancestry("main")) >= line
        assert log.verify().clean


def test_interrupt_at_any_line_leaves_nothing_believed_that_is_not_so(tmp_path: Path) -> None:
    """After a bookmark that was set, or sealing that was begun, or was not, what is recorded is as the log says."""
    seals = seals_in(tmp_path / "keys")
    wrong: list[str] = []
    ends: set[tuple[bool, bool]] = set()
    for number, work in enumerate((lambda log, root: log.bookmarks.set("x", root), lambda log, _: log.seal())):
        line, place = 0, ""
        while place is not None:
            line += 1
            with TurnLog.open(f"sqlite:///{tmp_path}/{number}-{line}.db", seals=seals) as log:
                root = log.add_turn("root").id
                place = at_line(
                    line, partial(work, log, root), interrupt, (group_commit, store, appending, transactions, rows)
                )
                is_set = bool(log.bookmarks.all())
                is_sealed = any(log.events(topics=["log.seal"]))
                after = log.add_turn("after", continues=root)
                moved = any(bookmark.turn == after.id for bookmark in log.bookmarks.all())
                if (moved, after.sealed is not None) != (is_set, is_sealed):
                    wrong.append(f"{place}: {is_set=} {is_sealed=}")
                ends.add((is_set, is_sealed))
    assert wrong == []
    assert ends == {(False, False), (True, False), (False, True)}


def test_caller_that_is_held_up_at_any_line_is_served_once(log: TurnLog) -> None:
    """Wherever in the group commit a caller is held up while others append, its turn is recorded, and only once."""
    others: list[threading.Thread] = []

    def let_others_append() -> None:
        for _ in range(2):
            others.append(threading.Thread(target=log.add_turn, args=("other",)))
            others[-1].start()
        for other in others[-2:]:
            other.join(0.05)  # they wait for the caller where it holds the lead

    line = 0
    while at_line(line := line + 1, lambda: log.add_turn("held up"), let_others_append):
        for other in others:
            other.join(WAIT_S)
    assert line > 10
    texts = [json.loads(log.payload(recorded.header.id))[0]["text"] for recorded in log.events(topics=["gpt.turn"])]
    assert texts.count("held up") == line
    assert texts.count("other") == 2 * (line - 1) == len(others)
    assert log.verify().clean
