"""Transcripts of other systems: their files become turns, and events that keep all that a turn has no place for.

- `transcript` is what a file is, whatever its format, and how a reader puts it together.
- `session` says what of it is in the log, and what is to be recorded.
- `lines` has what formats share, and each format has a module of its own.
"""

from turnlog.interop.importing import Problem, TranscriptReport
from turnlog.interop.transcripts.report import PieceMeta

__all__ = ["PieceMeta", "Problem", "TranscriptReport"]
