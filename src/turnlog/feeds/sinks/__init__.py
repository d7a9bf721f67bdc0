"""Sinks: where the events of a log go outside it, each at least once and in order, with an idempotency key.

- `interface` is the contract; `feed` runs a sink, `reading` is what it reads, `states` how far each feed has come
  (`running`: while it runs; `status`: for whoever asks).
- `jsonl` and `parquet` fill a folder. They know themselves how far they have come, and take back what is erased.
- `webhook`, `jetstream` and `otel` send to others, who are told of erasures as events.
- `moving` lets a feed go on from elsewhere, and `taking_back` carries out erasures in what was delivered before.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]
