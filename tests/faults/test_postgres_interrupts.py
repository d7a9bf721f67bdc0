"""Ctrl-C at any moment of an append to PostgreSQL, and writers that stand still: nothing is left by half or hangs."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic, sleep

import psutil
import pytest
from tests.faults.interrupting import at_line, interrupt
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.store import gate, group_commit, waiting
from turnlog.store.postgres import appending, connections, store, transactions, wire

ROUNDS = 60 if SOAK else 6
EACH = 3 if SOAK else 23
"""At each so-manieth line it is interrupted."""
WAIT_S = 30.0
IDLE_S = 2
"""How long a transaction may stand still in these tests, in seconds."""

_LOOP = """\
import os, sys
from turnlog import TurnLog
def tell(turn):
    os.write(1, f"{turn.id} {turn.global_position}\\n".encode())  # all of it or nothing
with TurnLog.open(sys.argv[1]) as log:
    print("ready", flush=True)
    try:
        for number in range(100_000):
            tell(log.add_turn(f"{sys.argv[2]} {number}", continues="main"))
    except KeyboardInterrupt:
        pass
    # It can be used as before.
    tell(log.add_turn(f"{sys.argv[2]} after", continues="main"))
"""


def _started(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_loop_of_appends_can_be_interrupted_at_any_time(postgres_url: str) -> None:
    """What was acknowledged is there, at most one more is, and the log goes on."""
    source = random.Random(3)
    with TurnLog.open(postgres_url) as log:
        log.add_turn("root", bookmark="main")
        acknowledged: list[tuple[str, int]] = []
        for number in range(ROUNDS):
            with _started("-c", _LOOP, postgres_url, str(number)) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                with suppress(subprocess.TimeoutExpired):
                    process.wait(source.uniform(0, 0.2))
                process.send_signal(signal.SIGINT)
                told, errors = process.communicate(timeout=WAIT_S)
            assert (process.returncode, errors) == (0, "")
            acknowledged += [(event_id, int(at)) for event_id, at in map(str.split, told.splitlines())]
        events = list(log.events())
        at = {event.header.id: event.global_position for event in events}
        assert [at[event_id] for event_id, _ in acknowledged] == [position for _, position in acknowledged]
        assert len(acknowledged) + 2 <= len(events) <= len(acknowledged) + 2 + ROUNDS
        assert log.verify().clean


def test_command_can_be_interrupted_at_any_time(postgres_url: str) -> None:
    """`turnlog add` ends with one line, and with its turn recorded once or not at all."""
    source = random.Random(4)
    with TurnLog.open(postgres_url) as log:
        log.add_turn("root", bookmark="main")
        begun = monotonic()
        with _started("-m", "turnlog", "add", "whole", TURNLOG_STORE=postgres_url) as process:
            assert process.wait(WAIT_S) == 0
        taken_s = monotonic() - begun
        for number in range(ROUNDS):
            with _started("-m", "turnlog", "add", f"number {number}", TURNLOG_STORE=postgres_url) as process:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(source.uniform(0.3, 1) * taken_s)
                process.send_signal(signal.SIGINT)
                told, errors = process.communicate(timeout=WAIT_S)
            assert errors.count("\n") <= 1 or "KeyboardInterrupt" in errors.splitlines()[-1], errors
            assert process.returncode in (0, 130, -signal.SIGINT, 1)
            if told:
                assert log.event(told.split()[0]) is not None
        texts = [log.payload(event.header.id) for event in log.events(topics=["gpt.turn"])]
        assert len(set(texts)) == len(texts)
        assert log.verify().clean


def _append(log: TurnLog) -> object:
    return log.add_turn("interrupted", continues="main")


def _append_alone(log: TurnLog) -> object:
    return log.add_event("acme.note", b"interrupted")


def _read(log: TurnLog) -> object:
    return log.payload("main")


_STORE = (group_commit, gate, waiting, connections, store, appending, transactions, wire)


# A connection that an interrupt has taken away from what would have closed it is closed when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(1800 if SOAK else 120)
@pytest.mark.parametrize("way", [_append, _append_alone, _read])
def test_interrupt_at_any_line_of_the_store_does_no_harm(postgres_url: str, way: Callable[[TurnLog], object]) -> None:
    """Wherever it falls, the log can be read, written and closed, and nothing of it is recorded twice or by half."""
    with TurnLog.open(postgres_url) as log:
        log.add_turn("before", bookmark="main")
    harmed: list[str] = []
    line = 0
    place: str | None = ""
    while place is not None:
        line += EACH
        log = TurnLog.open(postgres_url, busy_timeout_s=WAIT_S)
        way(log)
        with log.store.read() as transaction:
            before = transaction.log_end()
        place = at_line(line, partial(way, log), interrupt, _STORE)

        def go_on(log: TurnLog = log, place: str | None = place, before: int = before) -> None:
            try:
                turn = log.add_turn("after", continues="main")
                assert log.turn("main") == turn
                assert before < turn.global_position <= before + 2
            except Exception as error:  # noqa: BLE001 - it is reported
                harmed.append(f"{place}: {error!r}")

        for step in (go_on, log.close):
            thread = threading.Thread(target=step, daemon=True)
            thread.start()
            thread.join(WAIT_S / 3)
            if thread.is_alive():
                harmed.append(f"{place}: {step!r} hangs")
    assert harmed == []
    assert line > 5 * EACH
    with TurnLog.open(postgres_url) as log:
        assert log.verify().clean


def test_interrupt_at_any_line_of_an_exchange_does_not_hang(postgres_url: str) -> None:
    """Also just after the last answer was read: it is not waited for again."""
    line = 1
    with TurnLog.open(postgres_url) as log:
        log.add_turn("before", bookmark="main")
        # Few enough that no group of statements is passed by.
        while at_line(line, partial(_append, log), interrupt, (wire,)) is not None:
            line += 4
            log.add_turn("after", continues="main")
        assert log.verify().clean
    assert line > 50


_STANDS_STILL = """\
import os, signal, sys
from turnlog import TurnLog
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store.postgres import connections

connections.IDLE_S = int(sys.argv[2])
stops = [signal.SIGSTOP]

def plan(transaction):
    draft = turn_draft("stood still", bookmark=False)
    recorded = plan_turn(transaction, draft, transaction.placed(draft.payload), Sources())
    transaction.rows("SELECT 1")  # now the server has it
    while stops:
        os.kill(os.getpid(), stops.pop())
    return recorded

with TurnLog.open(sys.argv[1]) as log:
    log.add_turn("warm", bookmark=False)
    print(log.store.write(plan).global_position)
"""


def test_writer_that_stands_still_in_its_transaction_holds_nobody_up_for_ever(postgres_url: str) -> None:
    """Others get their positions once the server has ended it. It runs its plan again when it goes on."""
    with TurnLog.open(postgres_url) as log, _started("-c", _STANDS_STILL, postgres_url, str(IDLE_S)) as process:
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            assert process.poll() is None
            sleep(0.01)
        begun = monotonic()
        # The genesis and a turn are there.
        assert log.add_turn("beside", bookmark=False).global_position == 3
        assert log.add_event("acme.note").global_position == 4
        assert monotonic() - begun < WAIT_S
        process.send_signal(signal.SIGCONT)
        told, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, told, errors) == (0, "5\n", "")
        assert [event.global_position for event in log.events()] == [1, 2, 3, 4, 5]
        assert log.verify().clean
