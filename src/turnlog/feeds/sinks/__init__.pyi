from .feed import Feed
from .interface import Batch, Choice, Place, Sink, SinkRecord, check_sink
from .jetstream import JetStream
from .jsonl import JSONLines
from .moving import move
from .otel import OpenTelemetry
from .parquet import ParquetFiles
from .states import FeedState, FeedStates
from .status import FeedStatus, status_of
from .taking_back import delivered_to, take_back
from .webhook import Webhook

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
    "check_sink",
    "delivered_to",
    "move",
    "status_of",
    "take_back",
]
