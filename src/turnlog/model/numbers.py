"""Numbers as they are written, and as computers have them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation


def is_exactly(value: float, written: str) -> bool:
    """Tell whether a number with a fraction or an exponent is what was written, and not only near it.

    What is the shortest spelling of a float is meant by it, as 0.1 is.

    Args:
        value: `float(written)`, which is finite.
        written: a number, as JSON and YAML write them.
    """
    try:
        return Decimal(written) == Decimal(repr(value))
    except InvalidOperation:  # of an exponent that not even `Decimal` has: so small that the float is 0
        return re.search("[1-9]", re.split("[eE]", written)[0]) is None
