"""The beginning of a log: whatever is appended first, `log.genesis` goes before it."""

from __future__ import annotations

from turnlog.sources import Sources
from turnlog.store.transactions import WriteTransaction
from turnlog.store.values import NO_PAYLOAD


def begin(transaction: WriteTransaction, sources: Sources) -> None:
    """Give an empty log its first event. Do nothing to any other."""
    if transaction.is_empty():
        transaction.append(sources.genesis(), NO_PAYLOAD)
