"""Stores: append-only logs of events with their payloads, on eventsourcing's recorders.

`open_store` is the one place where a store URL is read. `Store` is the contract that every engine keeps;
`turnlog.testing.StoreSuite` checks it.
"""

from turnlog.store.interface import (
    NO_PAYLOAD,
    ErasedFiles,
    Folded,
    FoldTransaction,
    NewPayload,
    Placement,
    ReadTransaction,
    ScratchTransaction,
    SealPolicy,
    SideTables,
    SQLRow,
    SQLTransaction,
    Store,
    StoredRow,
    StoreStats,
    SyncProjection,
    Taken,
    WriteTransaction,
)
from turnlog.store.urls import open_store, parse_url

__all__ = [
    "NO_PAYLOAD",
    "ErasedFiles",
    "FoldTransaction",
    "Folded",
    "NewPayload",
    "Placement",
    "ReadTransaction",
    "SQLRow",
    "SQLTransaction",
    "ScratchTransaction",
    "SealPolicy",
    "SideTables",
    "Store",
    "StoreStats",
    "StoredRow",
    "SyncProjection",
    "Taken",
    "WriteTransaction",
    "open_store",
    "parse_url",
]
