"""When an event was recorded, and when what it says was said."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from turnlog.events.flaws import TIME_MS_MAX
from turnlog.events.times import parse_time, said_at, time_of
from turnlog.model import Origin, TurnMeta


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1, datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        (1741064767089, datetime(2025, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (TIME_MS_MAX, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (-1, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_time_is_milliseconds_since_1970(time: int, expected: datetime) -> None:
    """An event's time is in UTC, to the millisecond; what is outside the calendar is its first or last moment."""
    assert time_of(time) == expected
    assert said_at(TurnMeta(role="user"), time) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-03-04T05:06:07.089Z", datetime(2025, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)),
        ("2025-03-04T05:06:07+02:00", datetime(2025, 3, 4, 3, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04", datetime(2025, 3, 4, tzinfo=UTC)),
        ("1741064767089", datetime(2025, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)),
        ("174106476708", None),
        ("", None),
        ("yesterday", None),
        ("2025-13-01", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        (5, None),
        (None, None),
    ],
)
def test_time_of_a_text_is_iso_8601_or_milliseconds(text: object, expected: datetime | None) -> None:
    """A text is read with its offset, without one as UTC; what is none, or outside the calendar, is none."""
    found = parse_time(text)
    assert found == expected
    assert found is None or found.tzinfo is UTC


def test_imported_turn_was_said_when_its_source_says() -> None:
    """Not when it was recorded, unless the source does not say."""
    there = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=1)))
    imported = TurnMeta(role="user", origin=Origin(format="f", ids=[], timestamp=there.isoformat()))
    assert said_at(imported, 5000) == there
    for meta in (
        TurnMeta(role="user"),
        TurnMeta(role="user", origin=Origin(format="f", ids=[])),
        TurnMeta(role="user", origin=Origin(format="f", ids=[], timestamp="?")),
    ):
        assert said_at(meta, 5000) == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
