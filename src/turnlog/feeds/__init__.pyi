from .facade import Feeds
from .following import AsyncEvents, CaughtUp, Events, Item, Wanted
from .live import LiveDelta, Streams
from .postgres_target import PostgresTarget
from .projection import Projection, projection
from .runner import Runner
from .targets import SQLiteTarget, Target

__all__ = [
    "AsyncEvents",
    "CaughtUp",
    "Events",
    "Feeds",
    "Item",
    "LiveDelta",
    "PostgresTarget",
    "Projection",
    "Runner",
    "SQLiteTarget",
    "Streams",
    "Target",
    "Wanted",
    "projection",
]
