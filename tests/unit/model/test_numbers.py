"""Numbers as they are written, and as computers have them."""

import pytest

from turnlog.model.numbers import is_exactly

SMALL = "e-" + "9" * 30


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0.1", True),
        ("1.50E+2", True),
        ("9007199254740993.0", False),
        ("1e-400", False),
        (f"1{SMALL}", False),
        (f"-0.01{SMALL.upper()}", False),
        (f"0.00{SMALL}", True),
    ],
)
def test_a_number_is_what_was_written_or_near_it(written: str, expected: bool) -> None:
    """Whatever its exponent is: also one that no decimal number of Python has."""
    assert is_exactly(float(written), written) is expected
