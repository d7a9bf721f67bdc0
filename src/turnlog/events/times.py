"""When an event was recorded, and when what it says was said."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from turnlog.errors import MetaError
from turnlog.model import Origin, TurnMeta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_MAX = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970."""

_milliseconds = re.compile("[0-9]{13}")


def time_of(ms: int) -> datetime:
    """Return the time of a header, in UTC, to the millisecond. Times after the year 9999 are given as its end."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, 0), MS_MAX))


def ms_of(time: datetime) -> int:
    """Return a time in milliseconds since 1970, without what is left of the last one."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def us_of(time: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def time_of_us(us: int) -> datetime:
    """Return the time of microseconds since 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=us)


def said_at(meta: TurnMeta, ms: int) -> datetime:
    """Return when a turn was said: for an imported one as its source says, else when it was recorded."""
    said = parse_time(meta.origin.timestamp) if isinstance(meta.origin, Origin) else None
    return time_of(ms) if said is None else said


def is_between(time: datetime, since: datetime | None, until: datetime | None) -> bool:
    """Tell whether a time is not before one and before another, as far as these are given."""
    return (since is None or since <= time) and (until is None or time < until)


def check_times(**times: object) -> None:
    """Refuse times that say no zone, and what is none; None is fine.

    Raises:
        MetaError: one of them is such a one.
    """
    for name, time in times.items():
        if time is not None and (not isinstance(time, datetime) or time.utcoffset() is None):
            raise MetaError(f"{name}: give a datetime with a time zone, got {time!r}", field=name)


def parse_time(timestamp: object) -> datetime | None:
    """Return the time of a text, in UTC; None if it is none.

    It is ISO 8601, for UTC where it has no offset; or milliseconds since 1970 in thirteen digits, as OpenCode has them.
    """
    if not isinstance(timestamp, str):
        return None
    try:
        if _milliseconds.fullmatch(timestamp):
            return time_of(int(timestamp))
        time = datetime.fromisoformat(timestamp)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
