"""The suites as an engine's author uses them: each is the sum of the rooms beside this one."""

from __future__ import annotations

from turnlog.testing.log_branching import LogBranching
from turnlog.testing.log_evidence import LogEvidence
from turnlog.testing.log_recording import LogRecording
from turnlog.testing.log_replay import LogReplay
from turnlog.testing.provider_losses import ProviderLosses
from turnlog.testing.provider_pairing import ProviderPairing
from turnlog.testing.provider_replies import ProviderReplies
from turnlog.testing.provider_requests import ProviderRequests
from turnlog.testing.provider_unknowns import ProviderUnknowns
from turnlog.testing.store_durability import StoreDurability
from turnlog.testing.store_erasing import StoreErasing
from turnlog.testing.store_integrity import StoreIntegrity
from turnlog.testing.store_locks import StoreLocks
from turnlog.testing.store_outcomes import StoreOutcomes
from turnlog.testing.store_reads import StoreReads
from turnlog.testing.store_rebuilding import StoreRebuilding
from turnlog.testing.store_recorders import StoreRecorders
from turnlog.testing.store_sealing import StoreSealing
from turnlog.testing.store_sides import StoreSides
from turnlog.testing.store_waiting import StoreWaiting
from turnlog.testing.store_writes import StoreWrites


class StoreSuite(
    StoreWrites,
    StoreOutcomes,
    StoreReads,
    StoreSides,
    StoreWaiting,
    StoreLocks,
    StoreRebuilding,
    StoreErasing,
    StoreSealing,
    StoreRecorders,
):
    """The contract of `turnlog.store.interface` that every engine keeps.

    Subclass it, name the subclass `Test…`, and give it `open_store`:

    ```python
    class TestMyStore(StoreSuite):
        def open_store(self, folder, projections):
            return MyStore(folder / "log", projections=projections)

        def open_sealed(self, folder, projections, seals):
            return MyStore(folder / "log", projections=projections, seals=seals)
    ```

    Without `open_sealed` what opens with keys is skipped.
    """


class DurableStoreSuite(StoreSuite, StoreDurability, StoreIntegrity):
    """The contract of an engine whose logs outlive their store: what was written is there when it is opened again.

    What is changed behind the engine's back is noticed. Beside `open_store`, give it `tamper` and `sabotage`, by which
    the suite changes things so, and `tamper_payload`, without which large payloads that were changed are skipped: see
    `turnlog.testing.harness.DurableEngine`.
    """


class LogSuite(LogRecording, LogEvidence, LogBranching, LogReplay):
    """What `TurnLog` promises, on one engine: recording, evidence, branching, bookmarks, replay, export and import."""


class ProviderSuite(ProviderRequests, ProviderLosses, ProviderPairing, ProviderReplies, ProviderUnknowns):
    """The contract of `turnlog.providers.interface` that every adapter keeps, but for the network.

    Subclass it, name the subclass `Test…`, and give it the adapter and one real reply, streamed and whole:

    ```python
    class TestMyProvider(ProviderSuite):
        def adapter(self):
            return MyProvider()

        def sample(self):
            return SampleReply(
                model="mine-1",
                streamed=tuple(Path("reply.jsonl").read_bytes().splitlines()),
                whole=Path("reply.json").read_bytes(),
                text="Let me look at both files.",
                thinking="They want a comparison.",
                calls=(("files___read", '{"path":"a"}'), ("files___read", '{"path":"b"}')),
            )
    ```
    """
