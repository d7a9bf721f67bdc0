"""Feeding others: following the log, and what is made of it elsewhere.

- `selection` says which events are wanted, `following` gives them to whoever follows.
- `live` hands on what is going on and is not in the log yet.
- `projection` is what folds events into tables of its own, `targets` the databases that have these, and `runner` runs
  it: each event once. `search` and `usage` are projections that every log can have; `facade` puts all together.
- `sinks` are where events go outside the log, and the feeds that deliver them; `records` is the form that they have.
- `application` is the log as an application of eventsourcing.
"""

from turnlog.feeds.facade import Feeds
from turnlog.feeds.following import AsyncEvents, CaughtUp, Events, Item, Wanted
from turnlog.feeds.live import LiveDelta, Streams
from turnlog.feeds.projection import Projection, projection
from turnlog.feeds.runner import Runner
from turnlog.feeds.targets import SQLiteTarget, Target

__all__ = [
    "AsyncEvents",
    "CaughtUp",
    "Events",
    "Feeds",
    "Item",
    "LiveDelta",
    "Projection",
    "Runner",
    "SQLiteTarget",
    "Streams",
    "Target",
    "Wanted",
    "projection",
]
