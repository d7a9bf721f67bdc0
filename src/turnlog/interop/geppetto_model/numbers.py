"""Numbers of documents that no float can hold as they are written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from turnlog.model.numbers import is_exactly


class Rounded(float):
    """A number that is another one than was written: the nearest that a float can hold.

    Attributes:
        written: what was written.
    """

    __slots__ = ("written",)

    written: str


def number(written: str) -> float:
    """Return the number of a text: a `Rounded` one where it is not exactly that, infinity where it is too large."""
    value = float(written)
    if not math.isfinite(value) or is_exactly(value, written):
        return value
    rounded = Rounded(value)
    rounded.written = written
    return rounded


def rounded_in(value: object, field: str) -> Iterator[tuple[str, Rounded]]:
    """Give the rounded numbers of a value with their places, in their order."""
    waiting: list[tuple[str, object]] = [(field, value)]
    while waiting:
        place, each = waiting.pop()
        match each:
            case Rounded():
                yield place, each
            case dict():
                record = cast("dict[object, object]", each)
                waiting += [(f"{place}.{name}", inner) for name, inner in reversed(record.items())]
            case list():
                items = cast("list[object]", each)
                waiting += [(f"{place}[{index}]", items[index]) for index in reversed(range(len(items)))]
            case _:
                pass
