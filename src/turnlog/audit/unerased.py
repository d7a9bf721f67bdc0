"""What an erasure of this log names and is there nonetheless: put back, or restored before the erasure came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from turnlog.audit.targets import cited_targets
from turnlog.errors import CorruptionError
from turnlog.events import ERASURE, SEAL, Arrival, Recorded
from turnlog.store import ReadTransaction


def is_there(target: Recorded) -> bool:
    """Tell whether what an erasure names has content that should be gone.

    An event that seals is named where a key was destroyed and nothing of its subject was in the log. It stays.
    """
    return not target.erased and target.header.private is not None and target.header.topic != SEAL


def unerased(transaction: ReadTransaction) -> Iterator[Recorded]:
    """Iterate over the events that erasures of this log name and that are there, each once.

    Damaged ones are left out, but for those that are read past: see `past_damage`.

    What another log has erased is that log's word: it may be here.
    """
    seen: set[str] = set()
    for erasure in transaction.log(topics=[ERASURE]):
        if erasure.arrival == Arrival.GUEST:
            continue
        for event_id in cited_targets(erasure):
            if event_id in seen:
                continue
            seen.add(event_id)
            with suppress(CorruptionError):
                target = transaction.event(event_id)
                if target is not None and is_there(target):
                    yield target
