"""When an event was recorded, and when what it says was said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from turnlog.model import Origin, TurnMeta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MAX = 253_402_300_799_999


def time_of(ms: int) -> datetime:
    """Return the time of a header, in UTC, to the millisecond. Times after the year 9999 are given as its end."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, 0), _MS_MAX))


def said_at(meta: TurnMeta, ms: int) -> datetime:
    """Return when a turn was said: for an imported one as its source says, else when it was recorded."""
    said = parse_time(meta.origin.timestamp) if isinstance(meta.origin, Origin) else None
    return time_of(ms) if said is None else said


def parse_time(timestamp: object) -> datetime | None:
    """Return the time of an ISO 8601 text, in UTC; one without an offset is taken for UTC. None if it is none."""
    if not isinstance(timestamp, str):
        return None
    try:
        time = datetime.fromisoformat(timestamp)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
