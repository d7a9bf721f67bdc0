"""How long a sink may wait."""

from __future__ import annotations

from turnlog.errors import MetaError

SECONDS_MAX = 24 * 3600.0


def check_seconds(value: object, field: str, *, from_zero: bool = False) -> float:
    """Return a number of seconds: above 0, or from 0, up to a day.

    Raises:
        MetaError: it is none.
    """
    if isinstance(value, int | float) and type(value) is not bool and _is_within(value, from_zero=from_zero):
        return float(value)
    least = "from" if from_zero else "above"
    raise MetaError(f"{field} is {value!r}: give seconds, {least} 0 and up to {SECONDS_MAX:,.0f}", field=field)


def _is_within(value: float, *, from_zero: bool) -> bool:
    return 0 < value <= SECONDS_MAX or (from_zero and value == 0)
