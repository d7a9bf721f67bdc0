"""Stores: append-only logs of events with their payloads, on eventsourcing's recorders.

`open_store` is the one place where a store URL is read. `Store` is the contract that every engine keeps;
`turnlog.testing.StoreSuite` checks it.

`TurnApplication` and `TurnFactory` are eventsourcing's way in: an application, and a factory from the environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from turnlog.store.interface import Store
from turnlog.store.pages import Tail
from turnlog.store.transactions import (
    FoldTransaction,
    ReadTransaction,
    ScratchTransaction,
    SideTables,
    SQLRow,
    SQLTransaction,
    SyncProjection,
    WriteTransaction,
    past_damage,
)
from turnlog.store.urls import open_store, parse_url
from turnlog.store.values import (
    NO_PAYLOAD,
    ErasedFiles,
    Folded,
    Located,
    NewPayload,
    Payload,
    Placement,
    SealPolicy,
    StoredRow,
    StoreStats,
    Taken,
)

if TYPE_CHECKING:
    from turnlog.feeds.application import TurnApplication, TurnFactory


def __getattr__(name: str) -> object:
    """Return what is found here though it rests on projections, which rest on stores."""
    if name in ("TurnApplication", "TurnFactory"):
        return getattr(import_module("turnlog.feeds.application"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "NO_PAYLOAD",
    "ErasedFiles",
    "FoldTransaction",
    "Folded",
    "Located",
    "NewPayload",
    "Payload",
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
    "Tail",
    "Taken",
    "TurnApplication",
    "TurnFactory",
    "WriteTransaction",
    "open_store",
    "parse_url",
    "past_damage",
]
