"""How long something waits for a server, once somebody wants to stop."""

import time
from math import inf

import pytest

from turnlog.hurry import AGAIN_S, ALL_S, HURRY, LASTS_S, LEAST_S, PATIENCE_S, REMEMBERED_S, Hurry, hurry, hurry_of_run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give a clock that stands, at the number in a list."""
    now = [1000.0]
    monkeypatch.setattr("turnlog.hurry.monotonic", lambda: now[0])
    return now


def test_without_a_hurry_all_wait_for_ever(clock: list[float]) -> None:
    """Before it begins, and after it has ended."""
    hurry = Hurry()
    assert hurry.left_s(0) == inf
    hurry.begin()
    assert hurry.left_s(0) < inf
    hurry.end()
    assert (hurry.left_s(0), hurry.gave_up, clock) == (inf, False, [1000.0])


def test_patience_counts_from_the_hurry_or_from_the_question(clock: list[float]) -> None:
    """Whichever came later: what has waited for long already is not given up at once."""
    hurry = Hurry()
    hurry.begin()
    assert hurry.left_s(10) == PATIENCE_S
    clock[0] += 1
    hurry.begin()
    assert (hurry.left_s(10), hurry.left_s(clock[0])) == (PATIENCE_S - 1, PATIENCE_S)


def test_who_asks_late_has_what_is_left_of_the_time(clock: list[float]) -> None:
    """But a second at least: what took the time before may have been another thing."""
    hurry = Hurry()
    hurry.begin()
    clock[0] += 2
    assert hurry.left_s(clock[0]) == ALL_S - 2
    clock[0] += 30
    assert hurry.left_s(clock[0]) == LEAST_S


def test_what_ends_shares_the_time_that_is_left(clock: list[float]) -> None:
    """It has all of its own time without a hurry, and at the beginning of one."""
    hurry = Hurry()
    assert hurry.grace_s(1.5, times=2) == 1.5
    hurry.begin()
    assert hurry.grace_s(1.5, times=2) == 1.5
    clock[0] += PATIENCE_S
    assert hurry.grace_s(1.5, times=2) == (ALL_S - PATIENCE_S) / 2
    clock[0] += 30
    assert hurry.grace_s(1.5, times=2) == AGAIN_S
    hurry.end()
    assert hurry.grace_s(1.5, times=2) == 1.5


def test_one_that_gave_up_tells_the_others(clock: list[float]) -> None:
    """They wait a moment only, also in a hurry that begins soon after."""
    hurry = Hurry()
    hurry.begin()
    hurry.give_up()
    assert (hurry.gave_up, hurry.left_s(clock[0])) == (True, AGAIN_S)
    hurry.end()
    assert not hurry.gave_up
    with hurry:
        assert hurry.gave_up
    clock[0] += REMEMBERED_S
    with hurry:
        assert (hurry.gave_up, hurry.left_s(clock[0])) == (False, PATIENCE_S)


def test_a_block_within_a_hurry_does_not_end_it() -> None:
    """It is as it was before."""
    hurry = Hurry()
    hurry.begin()
    with hurry:
        pass
    assert hurry.left_s(time.monotonic()) < inf


def test_a_run_has_a_hurry_of_its_own(clock: list[float]) -> None:
    """It begins when the run is cancelled, and others of the process are in none."""
    cancelled = [False]
    assert hurry() is HURRY
    with hurry_of_run(lambda: cancelled[0]):
        own = hurry()
        assert own.left_s(clock[0]) == inf
        cancelled[0] = True
        assert (own.left_s(clock[0]), HURRY.left_s(clock[0])) == (PATIENCE_S, inf)
        own.give_up()
        assert (own.gave_up, HURRY.gave_up) == (True, False)
    assert hurry() is HURRY


def test_that_of_the_process_is_that_of_its_runs(clock: list[float]) -> None:
    """Ctrl-C is for all of them."""
    with hurry_of_run(lambda: False), HURRY:
        assert hurry().left_s(clock[0]) < inf


def test_what_outlives_a_run_is_in_no_hurry_for_ever(clock: list[float]) -> None:
    """What was asked for before the end gives up; a task that a run has started may go on for days."""
    cancelled = [False]
    with hurry_of_run(lambda: cancelled[0]):
        ended = hurry()
    cancelled[0] = True
    assert ended.left_s(clock[0]) == inf
    with hurry_of_run(lambda: True):
        broken_off = hurry()
        assert broken_off.since_s == clock[0]
    assert broken_off.left_s(clock[0]) < inf
    clock[0] += LASTS_S + 1
    assert broken_off.left_s(clock[0]) == inf
