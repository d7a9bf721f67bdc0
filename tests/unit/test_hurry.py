"""How long something waits for a server, once somebody wants to stop."""

import time
from math import inf

import pytest

from turnlog.hurry import AGAIN_S, PATIENCE_S, REMEMBERED_S, Hurry


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
