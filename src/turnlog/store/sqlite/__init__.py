"""The SQLite engine: a store in one file (with a folder for large payloads), or in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from turnlog.store.sqlite.store import SQLiteStore

if TYPE_CHECKING:
    from turnlog.store.sqlite.recorders import SQLiteLogFactory, SQLiteLogRecorder, SQLiteLogTrackingRecorder


def __getattr__(name: str) -> object:
    """Return what is imported late, because eventsourcing comes with it."""
    if name in ("SQLiteLogFactory", "SQLiteLogRecorder", "SQLiteLogTrackingRecorder"):
        return getattr(import_module("turnlog.store.sqlite.recorders"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["SQLiteLogFactory", "SQLiteLogRecorder", "SQLiteLogTrackingRecorder", "SQLiteStore"]
