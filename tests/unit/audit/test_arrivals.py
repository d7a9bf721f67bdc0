"""Runs of arrivals, taken in one by one or many at once."""

from hypothesis import given
from hypothesis import strategies as st

from turnlog.audit.arrivals import Arrivals


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
