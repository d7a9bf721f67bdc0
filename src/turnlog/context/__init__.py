"""From a turn to its ancestry, and from the ancestry to the context window: a pure function of the log."""

from turnlog.context.ancestry import Progress, ancestry
from turnlog.context.compaction import CompactionReport, Summarize, SummaryText, compact
from turnlog.context.cuts import KEEP_FIRST, KEEP_LAST, MIN_TURNS, NotCompacted, Policy
from turnlog.context.projector import Projector

__all__ = [
    "KEEP_FIRST",
    "KEEP_LAST",
    "MIN_TURNS",
    "CompactionReport",
    "NotCompacted",
    "Policy",
    "Progress",
    "Projector",
    "Summarize",
    "SummaryText",
    "ancestry",
    "compact",
]
