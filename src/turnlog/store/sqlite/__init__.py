"""The SQLite engine: a store in one file (with a folder for large payloads), or in memory."""

from turnlog.store.sqlite.recorders import SQLiteLogFactory, SQLiteLogRecorder, SQLiteLogTrackingRecorder
from turnlog.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteLogFactory", "SQLiteLogRecorder", "SQLiteLogTrackingRecorder", "SQLiteStore"]
