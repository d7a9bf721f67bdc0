"""Runs of arrivals, taken in one by one or many at once."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.arrivals import ARRIVALS, GUESTS, Arrivals, Run, first_difference, fits, lines
from turnlog.audit.checkpoints import Checkpoint


@given(st.lists(st.lists(st.integers(0, 2), max_size=5)))
def test_many_at_once_make_the_same_runs_as_one_by_one(pages: list[list[int]]) -> None:
    """However they are cut into pages, and where a page begins as the one before has ended."""
    one_by_one, at_once = Arrivals(), Arrivals()
    position = 1
    for page in pages:
        at_once.extend(position, page)
        for arrival in page:
            one_by_one.add(position, arrival)
            position += 1
    assert at_once.runs == one_by_one.runs
    starts = [start for start, _ in at_once.runs]
    assert starts == sorted(set(starts))


RUNS = st.lists(st.integers(0, 2), min_size=1, max_size=8)


def _runs(ways: list[int]) -> list[Run]:
    arrivals = Arrivals()
    arrivals.extend(1, ways)
    return arrivals.runs


def _signed(ways: list[int], *, old: bool = False) -> Checkpoint:
    extensions = lines(_runs(ways), len(ways))
    return Checkpoint("o", len(ways), bytes(32), extensions[:1] if old else extensions)


@given(RUNS, RUNS)
def test_checkpoint_fits_what_it_was_signed_for_and_a_restored_copy_alone(ways: list[int], since: list[int]) -> None:
    """Of any other way that the same events could have come, whatever came since, it fits none."""
    checkpoint = _signed(ways)
    copy = [way or 1 for way in ways]
    for other in product((0, 1, 2), repeat=len(ways)) if len(ways) <= 5 else [*product((0, 1), repeat=len(ways))]:
        assert fits(checkpoint, _runs([*other, *since])) is (list(other) in (ways, copy))


@given(RUNS)
def test_checkpoint_without_the_second_line_is_still_valid(ways: list[int]) -> None:
    """It fits its own log; a copy too, unless something was restored already when it was signed."""
    checkpoint = _signed(ways, old=True)
    assert fits(checkpoint, _runs(ways))
    assert fits(checkpoint, _runs([way or 1 for way in ways])) is (1 not in ways or 0 not in ways)


def test_second_line_is_there_where_something_was_restored() -> None:
    """A log in which nothing was is signed as before."""
    assert [line.partition(" ")[0] + " " for line in lines([(1, 0), (4, 2)], 9)] == [ARRIVALS]
    assert [line.partition(" ")[0] + " " for line in lines([(1, 1), (4, 0)], 9)] == [ARRIVALS, GUESTS]
    assert len(lines([(1, 0), (4, 1)], 3)) == 1


def test_contradictory_lines_fit_nothing() -> None:
    """Two of one kind, or one without the one that it belongs to."""
    [exact] = lines([(1, 0)], 2)
    guests = exact.replace(ARRIVALS, GUESTS)
    for extensions in ((exact, exact), (exact, guests, guests), (guests,)):
        assert not fits(Checkpoint("o", 2, bytes(32), extensions), [(1, 0)])
    [other] = lines([(1, 2)], 2)
    assert not fits(Checkpoint("o", 2, bytes(32), (exact, other.replace(ARRIVALS, GUESTS))), [(1, 0)])
    assert fits(Checkpoint("o", 2, bytes(32), ("another line",)), [(1, 1)])


@given(RUNS, RUNS)
def test_first_difference_is_the_first_event_that_came_otherwise(ways: list[int], others: list[int]) -> None:
    """None where all came alike."""
    size = min(len(ways), len(others))
    ways, others = ways[:size], others[:size]
    expected = next((at for at in range(size) if ways[at] != others[at]), None)
    assert first_difference(_runs(ways), _runs(others)) == (None if expected is None else expected + 1)
