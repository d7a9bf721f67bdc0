"""Sinks: where the events of a log go outside it, each at least once and in order, with an idempotency key.

- `interface` is the contract; `feed` runs a sink, `reading` is what it reads, `states` how far each feed has come.
- `jsonl` and `parquet` fill a folder. They know themselves how far they have come, and take back what is erased.
- `webhook`, `jetstream` and `otel` send to others, who are told of erasures as events.
- `moving` lets a feed go on from elsewhere, and `taking_back` carries out erasures in what was delivered before.
"""

from turnlog.feeds.sinks.feed import Feed, FeedStatus, status_of
from turnlog.feeds.sinks.interface import Batch, Choice, Place, Sink, SinkRecord
from turnlog.feeds.sinks.jetstream import JetStream
from turnlog.feeds.sinks.jsonl import JSONLines
from turnlog.feeds.sinks.moving import move
from turnlog.feeds.sinks.otel import OpenTelemetry
from turnlog.feeds.sinks.parquet import ParquetFiles
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.feeds.sinks.taking_back import beyond_reach, take_back
from turnlog.feeds.sinks.webhook import Webhook

__all__ = [
    "Batch",
    "Choice",
    "Feed",
    "FeedState",
    "FeedStates",
    "FeedStatus",
    "JSONLines",
    "JetStream",
    "OpenTelemetry",
    "ParquetFiles",
    "Place",
    "Sink",
    "SinkRecord",
    "Webhook",
    "beyond_reach",
    "move",
    "status_of",
    "take_back",
]
