from .facade import Feeds
from .following import AsyncEvents, CaughtUp, Events, Item, Wanted
from .live import LiveDelta, Streams
from .log_events import LogEvent
from .postgres_target import PostgresTarget
from .projection import Projection, Skip, State, Status, projection
from .runner import HasStore, Runner
from .selection import Selection
from .sinks.feed import Feed
from .sinks.interface import Batch, Choice, Sink, SinkRecord
from .sinks.states import FeedState
from .sinks.status import FeedStatus
from .sqlite_target import SQLiteTarget
from .targets import Target
from .usage import ToolSum, UsageSum

__all__ = [
    "AsyncEvents",
    "Batch",
    "CaughtUp",
    "Choice",
    "Events",
    "Feed",
    "FeedState",
    "FeedStatus",
    "Feeds",
    "HasStore",
    "Item",
    "LiveDelta",
    "LogEvent",
    "PostgresTarget",
    "Projection",
    "Runner",
    "SQLiteTarget",
    "Selection",
    "Sink",
    "SinkRecord",
    "Skip",
    "State",
    "Status",
    "Streams",
    "Target",
    "ToolSum",
    "UsageSum",
    "Wanted",
    "projection",
]
