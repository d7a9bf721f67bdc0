"""From a turn to its ancestry, and from the ancestry to the context window: a pure function of the log."""

from turnlog.context.ancestry import Progress, ancestry
from turnlog.context.projector import Projector

__all__ = ["Progress", "Projector", "ancestry"]
