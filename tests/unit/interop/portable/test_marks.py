"""Sets of global positions, one bit for each event of a log."""

from hypothesis import given
from hypothesis import strategies as st

from turnlog.interop.portable.marks import Marks


@given(st.integers(0, 70).flatmap(lambda bound: st.tuples(st.just(bound), st.lists(st.integers(0, bound)))))
def test_marks_are_a_set_in_ascending_order(drawn: tuple[int, list[int]]) -> None:
    """What was added is there, once, and nothing else is."""
    bound, numbers = drawn
    marks = Marks(bound)
    model: set[int] = set()
    for number in numbers:
        assert marks.add(number) == (number not in model)
        model.add(number)
    assert list(marks) == sorted(model)
    assert len(marks) == len(model)
    assert [number in marks for number in range(bound + 20)] == [number in model for number in range(bound + 20)]
