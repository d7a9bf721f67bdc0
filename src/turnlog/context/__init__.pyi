from .ancestry import ancestry, ancestry_backwards
from .compaction import (
    CompactionReport,
    Summarize,
    SummaryText,
    compact,
)
from .cuts import (
    KEEP_FIRST,
    KEEP_LAST,
    MIN_TURNS,
    NotCompacted,
    Policy,
)
from .parting import Parting, parting
from .projector import Projector

__all__ = [
    "KEEP_FIRST",
    "KEEP_LAST",
    "MIN_TURNS",
    "CompactionReport",
    "NotCompacted",
    "Parting",
    "Policy",
    "Projector",
    "Summarize",
    "SummaryText",
    "ancestry",
    "ancestry_backwards",
    "compact",
    "parting",
]
