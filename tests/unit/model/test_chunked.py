"""The chunked sequence, against a tuple."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.model.chunked import CHUNK, Chunked

_sizes = st.integers(0, 3 * CHUNK + 2)


@given(_sizes, st.lists(_sizes, max_size=5))
def test_extended_sequence_is_the_tuple_of_all_items(first: int, more: list[int]) -> None:
    """However it grew, it has the items of the tuple, and what it grew from is unchanged."""
    expected = tuple(range(first))
    found: Chunked[int] = Chunked(expected)
    for size in more:
        shorter, before = found, expected
        found, expected = found.extended(range(len(expected), len(expected) + size)), tuple(range(len(expected) + size))
        assert shorter == before
    assert (len(found), list(found), found) == (len(expected), list(expected), expected)
    assert found == Chunked(expected)
    assert hash(found) == hash(Chunked(expected))


@given(_sizes.filter(bool), st.data())
def test_index_and_slice_are_those_of_a_tuple(size: int, data: st.DataObject) -> None:
    """Items are found from either end; a slice is a tuple."""
    found, expected = Chunked(range(size)), tuple(range(size))
    index = data.draw(st.integers(-size, size - 1))
    assert found[index] == expected[index]
    cut = data.draw(st.slices(size))
    assert found[cut] == expected[cut]


@pytest.mark.parametrize("index", [3, -4])
def test_index_outside_raises(index: int) -> None:
    """An index that no item has is an IndexError."""
    with pytest.raises(IndexError):
        Chunked("abc")[index]


def test_growing_shares_all_full_chunks() -> None:
    """One more item copies less than a chunk, whatever the length."""
    shorter = Chunked(range(10 * CHUNK + 1))
    longer = shorter.extended([0])
    assert all(a is b for a, b in zip(shorter._chunks[:10], longer._chunks[:10], strict=True))


def test_other_items_or_kinds_are_not_equal() -> None:
    """Order and number count; text is not a sequence of items here."""
    assert Chunked("ab") != Chunked("ba")
    assert Chunked("ab") != ("a",)
    assert Chunked("ab") != "ab"
    assert repr(Chunked("ab")) == "('a', 'b')"


@given(_sizes, _sizes, st.sampled_from(["shared", "equal", "other", "other at the end"]))
def test_sequence_starts_with_what_a_tuple_starts_with(first: int, more: int, how: str) -> None:
    """A sequence starts with a shorter one of the same items, whether they share chunks or not."""
    shorter = Chunked(range(first))
    longer = shorter.extended(range(first, first + more))
    other = {
        "shared": shorter,
        "equal": Chunked(range(first)),
        "other": Chunked(range(1, first + 1)),
        "other at the end": Chunked([*range(first - 1), -1][:first]),
    }[how]
    expected = tuple(longer)[:first] == tuple(other)
    assert longer.starts_with(other) is expected
    assert other.starts_with(longer) is (tuple(other) == tuple(longer))


def test_shared_chunks_are_not_looked_into() -> None:
    """Whether a longer sequence starts with the one it grew from is told without comparing the chunks they share."""

    class Item:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None

    shorter = Chunked([Item() for _ in range(2 * CHUNK)])
    assert shorter.extended([Item()]).starts_with(shorter)
    assert not shorter.starts_with(shorter.extended([Item()]))


@given(_sizes, st.data())
def test_items_since_an_index_are_those_of_a_slice(size: int, data: st.DataObject) -> None:
    """The items from an index on are those of the tuple, up to none at all at its end."""
    index = data.draw(st.integers(0, size))
    assert Chunked(range(size)).since(index) == tuple(range(index, size))
