"""When each turn was said, and by whom: a projection, so that listings of a long log need not look at every turn.

When a turn was said is its source's word, and may be any time: turns do not stand in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from turnlog.events import TURN, turn_meta
from turnlog.events.times import ms_of, said_at
from turnlog.feeds.log_events import LogEvent
from turnlog.feeds.projection import Projection
from turnlog.projections.filters import TurnFilter
from turnlog.projections.turns import AFTER_ALL

INDEXED_EVENTS = 20_000
"""Of a log with fewer events every turn is looked at: that takes a tenth of a second."""

_NAME_CHARACTERS_MAX = 200
_ODD = "\uffff"
"""Stands for each name that is longer, or has a NUL: PostgreSQL takes neither into an index."""

_MODELS_MAX = 500
"""So many models are asked for by their names, of more all."""

_NEAR = 64
"""Turns that stand so near each other are read together with what is between them."""


class Listings(Projection):
    """When each turn was said, in what role and by which model.

    What is sealed may have been said at any time: the table is not sealed. Role and model are public.
    """

    name = "listings"
    version = 1
    topics = (TURN,)
    schema = (
        "CREATE TABLE listed_turns (position INTEGER PRIMARY KEY, time_ms INTEGER, role TEXT NOT NULL, model TEXT)",
        "CREATE INDEX listed_turns_by_time ON listed_turns (time_ms, position)",
        "CREATE INDEX listed_turns_by_speaker ON listed_turns (role, model, position)",
    )
    tables = ("listed_turns",)

    def fold(self, db: Any, event: LogEvent) -> None:
        """Note a turn."""
        recorded = event.recorded
        meta = turn_meta(recorded)
        time = None if recorded.sealed is not None else ms_of(said_at(meta, recorded.header.time))
        model = meta.model
        if model is not None and (len(model) > _NAME_CHARACTERS_MAX or "\0" in model):
            model = _ODD
        db.execute("INSERT INTO listed_turns VALUES (?, ?, ?, ?)", (event.global_position, time, meta.role, model))

    def forget(self, db: Any, events: Sequence[LogEvent]) -> None:
        """Note erased turns anew: by when they were recorded, which is all that is left of the time."""
        for event in events:
            if db.execute("DELETE FROM listed_turns WHERE position = ?", (event.global_position,)).rowcount:
                self.fold(db, event)


def spans(db: Any, which: TurnFilter) -> tuple[range, ...]:
    """Return global positions among which all turns are that are wanted, the last ones first.

    Turns behind the last one in the table may be any. It is of the same snapshot as what is asked of the table: others
    bring that up to date meanwhile, or build it anew.

    Args:
        db: a transaction of the target, in which no turn is passed over.
        which: what is wanted.
    """
    [(last,)] = db.execute("SELECT MAX(position) FROM listed_turns").fetchall()
    behind = range((last or 0) + 1, AFTER_ALL)
    if which.is_of_speaker:
        return (behind, *_joined(_positions(db, which)))
    ends: list[int] = []
    for condition, values in (_within(which), ("time_ms IS NULL", [])):
        statement = f"SELECT MIN(position), MAX(position) FROM listed_turns WHERE {condition}"
        [found] = db.execute(statement, values).fetchall()
        ends += [position for position in found if position is not None]
    return (behind, range(min(ends), max(ends) + 1)) if ends else (behind,)


def _within(which: TurnFilter) -> tuple[str, list[int]]:
    """Return the condition in SQL that a turn was said in the time, and its values."""
    bounds = [("time_ms >= ?", which.since), ("time_ms <= ?", which.until)]
    given = [(condition, ms_of(time)) for condition, time in bounds if time is not None]
    return " AND ".join(condition for condition, _ in given) or "time_ms IS NOT NULL", [ms for _, ms in given]


def _positions(db: Any, which: TurnFilter) -> Iterator[int]:
    """Iterate over the positions of turns in a role, by a model and of a time, the last one first."""
    conditions: list[str] = []
    values: list[Any] = []
    if which.role is not None:
        conditions.append("role = ?")
        values.append(which.role)
    if which.model is not None:
        there_are = db.execute("SELECT DISTINCT model FROM listed_turns WHERE model IS NOT NULL").fetchall()
        names = (model for (model,) in there_are)
        models = [name for name in names if name == _ODD or which.takes_model(name)]
        if len(models) <= _MODELS_MAX:
            conditions.append(f"model IN ({', '.join('?' * len(models))})" if models else "FALSE")
            values += models
    if which.is_of_time:
        within, times = _within(which)
        conditions.append(f"({within} OR time_ms IS NULL)")
        values += times
    statement = f"SELECT position FROM listed_turns WHERE {' AND '.join(conditions) or 'TRUE'} ORDER BY position DESC"
    return (position for (position,) in db.execute(statement, values).fetchall())


def _joined(positions: Iterable[int]) -> Iterator[range]:
    """Iterate over ranges that have some positions, all given the last one first."""
    found: range | None = None
    for position in positions:
        if found is not None and found.start - position <= _NEAR:
            found = range(position, found.stop)
            continue
        if found is not None:
            yield found
        found = range(position, position + 1)
    if found is not None:
        yield found
