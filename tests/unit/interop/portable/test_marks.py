"""The sets of global positions that a part of a log is chosen with."""

from hypothesis import given
from hypothesis import strategies as st

from turnlog.interop.portable.marks import Marks

NUMBERS = st.integers(0, 100_000) | st.integers(0, 2**63 - 1)


@given(st.lists(NUMBERS), NUMBERS)
def test_marks_are_a_sorted_set(numbers: list[int], other: int) -> None:
    """However far apart the numbers are."""
    marks, model = Marks(), set[int]()
    for number in numbers:
        assert marks.add(number) is (number not in model)
        model.add(number)
    assert list(reversed(marks)) == sorted(model, reverse=True)
    assert (list(marks), len(marks)) == (sorted(model), len(model))
    assert all(number in marks for number in model)
    assert (other in marks) is (other in model)
