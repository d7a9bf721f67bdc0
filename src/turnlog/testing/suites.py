"""The suites as an engine's author uses them: each is the sum of the rooms beside this one."""

from __future__ import annotations

from turnlog.testing.log_branching import LogBranching
from turnlog.testing.log_recording import LogRecording
from turnlog.testing.log_replay import LogReplay
from turnlog.testing.store_durability import StoreDurability
from turnlog.testing.store_reads import StoreReads
from turnlog.testing.store_recorders import StoreRecorders
from turnlog.testing.store_writes import StoreWrites


class StoreSuite(StoreWrites, StoreReads, StoreRecorders):
    """The contract of `turnlog.store.interface` that every engine keeps.

    Subclass it, name the subclass `Test…`, and give it `open_store`:

    ```python
    class TestMyStore(StoreSuite):
        def open_store(self, folder, projections):
            return MyStore(folder / "log", projections=projections)
    ```
    """


class DurableStoreSuite(StoreSuite, StoreDurability):
    """The contract of an engine whose logs outlive their store: what was written is there when it is opened again."""


class LogSuite(LogRecording, LogBranching, LogReplay):
    """What `TurnLog` promises, on one engine: recording, branching, bookmarks, replay, export and import."""
