"""What turnlog's own tests are made of, for those who write a store engine or an adapter, or build on a log.

- `StoreSuite` and `DurableStoreSuite`: the contract of a store engine, `LogSuite`: that of `TurnLog` on top of it. A
  subclass of a few lines that opens an engine's store runs them; pytest collects it.
- `ProviderSuite`: the contract of a provider adapter, checked with a `SampleReply` of the provider.
- `turnlog.testing.strategies`: hypothesis strategies for content blocks, options and JSON.
- `turnlog.testing.faults`: processes that are killed at work, flipped bytes, exhausted disks.

It needs the packages of the `dev` extra, which `import turnlog` does not.
"""

import pytest

# The suites are full of plain asserts: pytest shows their values only if it knows of the modules before their import.
pytest.register_assert_rewrite(
    "turnlog.testing.harness",
    "turnlog.testing.log_branching",
    "turnlog.testing.log_evidence",
    "turnlog.testing.log_recording",
    "turnlog.testing.log_replay",
    "turnlog.testing.provider_harness",
    "turnlog.testing.provider_losses",
    "turnlog.testing.provider_pairing",
    "turnlog.testing.provider_replies",
    "turnlog.testing.provider_requests",
    "turnlog.testing.provider_unknowns",
    "turnlog.testing.store_durability",
    "turnlog.testing.store_erasing",
    "turnlog.testing.store_integrity",
    "turnlog.testing.store_locks",
    "turnlog.testing.store_outcomes",
    "turnlog.testing.store_reads",
    "turnlog.testing.store_rebuilding",
    "turnlog.testing.store_recorders",
    "turnlog.testing.store_sealing",
    "turnlog.testing.store_sides",
    "turnlog.testing.store_waiting",
    "turnlog.testing.store_writes",
)

# The registration above comes first.
from turnlog.testing.provider_harness import SampleReply  # noqa: E402
from turnlog.testing.suites import DurableStoreSuite, LogSuite, ProviderSuite, StoreSuite  # noqa: E402

__all__ = ["DurableStoreSuite", "LogSuite", "ProviderSuite", "SampleReply", "StoreSuite"]
