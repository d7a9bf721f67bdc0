"""When turns were said: a projection, so that those of a time are found in a long log without reading the others.

When a turn was said is its source's word, and may be any time: turns do not stand in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from turnlog.events import TURN, turn_meta
from turnlog.events.times import ms_of, said_at
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.projections.turns import AFTER_ALL

INDEXED_EVENTS = 20_000
"""Of a log with fewer events every turn is looked at: that takes a tenth of a second."""


class TimesSaid(Projection):
    """When each turn was said. What is sealed may have been said at any time: the table is not sealed."""

    name = "times"
    version = 1
    topics = (TURN,)
    schema = (
        "CREATE TABLE times_said (position INTEGER PRIMARY KEY, time_ms INTEGER)",
        "CREATE INDEX times_said_in_order ON times_said (time_ms, position)",
    )
    tables = ("times_said",)

    def fold(self, db: Any, event: LogEvent) -> None:
        """Note a turn."""
        recorded = event.recorded
        time = None if recorded.sealed is not None else ms_of(said_at(turn_meta(recorded), recorded.header.time))
        db.execute("INSERT INTO times_said VALUES (?, ?)", (event.global_position, time))

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Note erased turns anew: by when they were recorded, which is all that is left."""
        for event in events:
            if db.execute("DELETE FROM times_said WHERE position = ?", (event.global_position,)).rowcount:
                self.fold(db, event)


def said_between(db: Any, since: datetime | None, until: datetime | None) -> tuple[range, ...]:
    """Return global positions among which all turns are that were said in a time, the last ones first.

    Turns behind the last one in the table may be of any time. It is of the same snapshot as what is asked of the table:
    others bring that up to date meanwhile, or build it anew.

    Args:
        db: a transaction of the target, in which no turn is passed over.
        since: the turns were said then, or later.
        until: they were said before that.
    """
    bounds = [("time_ms >= ?", since), ("time_ms <= ?", until)]
    given = [(condition, ms_of(time)) for condition, time in bounds if time is not None]
    within = " AND ".join(condition for condition, _ in given) or "time_ms IS NOT NULL"
    [(last,)] = db.execute("SELECT MAX(position) FROM times_said").fetchall()
    ends: list[int] = []
    for condition, values in ((within, [ms for _, ms in given]), ("time_ms IS NULL", [])):
        statement = f"SELECT MIN(position), MAX(position) FROM times_said WHERE {condition}"
        [found] = db.execute(statement, values).fetchall()
        ends += [position for position in found if position is not None]
    behind = range((last or 0) + 1, AFTER_ALL)
    return (behind, range(min(ends), max(ends) + 1)) if ends else (behind,)
